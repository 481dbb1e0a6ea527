//! Advisory locks, as the manager keeps them.

use braid_layout::ClientId;
use braid_wire::control::{ControlReply, ControlRequest, Lock, Locked};

use crate::client::{Client, unexpected};
use crate::error::Result;

impl Client {
    /// The random number by which the manager knows this client.
    pub fn number(&self) -> ClientId {
        self.shared.number
    }

    /// Sets, removes, tests or claims an advisory lock, with one request. The client must watch
    /// ([`Client::watch`]): it keeps its locks as long as it does.
    ///
    /// # Errors
    /// The manager did not answer: then the outcome is unknown. Or there are too many locks.
    pub async fn lock(&self, asked: Lock) -> Result<Locked> {
        let subject = "a lock";
        match self.shared.control.call(subject, &ControlRequest::from(asked)).await? {
            ControlReply::Locked(locked) => Ok(locked),
            other => Err(unexpected(subject, &other)),
        }
    }
}
