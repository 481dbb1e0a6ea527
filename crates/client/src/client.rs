//! The client: what all its files share.

use std::sync::Arc;

use braid_transport::Limits;
use braid_wire::control::{ControlReply, ControlRequest};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::config::Config;
use crate::control::Control;
use crate::drives::Drives;
use crate::error::{Error, Result};
use crate::exchange::Window;
use crate::scratch::Scratch;

/// A client of one cluster. Cheap to clone; clones share sessions and bounds.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

/// What clones share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) control: Control,
    pub(crate) drives: Drives,
    /// Random: tells this client's operations from others'.
    pub(crate) number: u64,
    /// One permit per plan set that may be under way.
    sets: Semaphore,
    pub(crate) scratch: Scratch,
}

impl Client {
    /// Makes a client and proves its token to the manager. The manager is waited for within the client's patience.
    pub async fn connect(config: Config) -> Result<Client> {
        let limits = Limits { reply: config.drive_reply, ..config.limits };
        let mut number = [0; 8];
        getrandom::fill(&mut number).map_err(|error| Error::Answer {
            subject: "this machine's random numbers".to_owned(),
            why: error.to_string(),
        })?;
        let number = u64::from_le_bytes(number);
        let shared = Shared {
            control: Control::new(config.clone(), number),
            drives: Drives::new(config.token.cluster, limits, config.idle_sessions, config.avoid),
            number,
            sets: Semaphore::new(config.sets.max(1)),
            scratch: Scratch::default(),
            config,
        };
        let client = Client { shared: Arc::new(shared) };
        client.shared.control.greet().await?;
        Ok(client)
    }

    /// The settings it was made with.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Asks the manager; `subject` is what an error names.
    pub(crate) async fn ask(
        &self,
        subject: &str,
        request: impl Into<ControlRequest>,
    ) -> Result<ControlReply> {
        self.shared.control.call(subject, &request.into()).await
    }

    /// Asks for something whose answer is nothing but "done".
    pub(crate) async fn ask_done(&self, subject: &str, request: impl Into<ControlRequest>) -> Result<()> {
        match self.ask(subject, request).await? {
            ControlReply::Done(_) => Ok(()),
            other => Err(unexpected(subject, &other)),
        }
    }

    /// Leave to have one more plan set under way. Whoever has it waits for no other's.
    pub(crate) async fn set_permit(&self) -> SemaphorePermit<'_> {
        self.shared.sets.acquire().await.expect("it is never closed")
    }

    pub(crate) fn window(&self) -> Window {
        let config = &self.shared.config;
        Window { flights: config.flights_per_drive, bytes: config.flight_bytes }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("manager", &self.shared.config.manager).finish_non_exhaustive()
    }
}

/// The error of an answer that does not belong to the request.
pub(crate) fn unexpected(subject: &str, reply: &ControlReply) -> Error {
    Error::Answer { subject: subject.to_owned(), why: format!("{} was not asked for", reply.name()) }
}
