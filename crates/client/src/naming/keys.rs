//! Keys that turn, and capabilities that end before they expire.

use braid_layout::ClientId;
use braid_wire::control::{ControlReply, KeyRotate, KeyTurning, Keys, KeysReply, RevokeClient, RevokeFile};

use crate::client::{Client, unexpected};
use crate::error::Result;
use crate::naming::name::Name;

impl Client {
    /// Turns the working keys of a volume on all drives, or a drive's master key, or lets a drive join anew.
    /// `name` is the volume's name, or the drive's name or identity. With `at_once` capabilities under the
    /// keys before end now; clients get new ones as they go on.
    pub async fn rotate_keys(&self, of: KeyTurning, name: &str, at_once: bool) -> Result<()> {
        let subject = if of == KeyTurning::Volume { "volume" } else { "drive" };
        let request = KeyRotate { of, name: name.to_owned(), at_once };
        self.ask_done(&format!("{subject} {name}"), request).await
    }

    /// The states of all keys, and the clients that were heard lately.
    pub async fn keys(&self) -> Result<KeysReply> {
        let subject = "the cluster";
        match self.ask_manager(subject, Keys {}).await? {
            ControlReply::Keys(reply) => Ok(reply),
            other => Err(unexpected(subject, &other)),
        }
    }

    /// Ends the capabilities and the lease of a file. Who may open it can open it again.
    pub async fn revoke_file(&self, name: &Name) -> Result<()> {
        let at = self.place(name).await?;
        self.ask_done(&name.to_string(), RevokeFile { at }).await
    }

    /// Shuts a client out: its leases, locks and capabilities end now.
    pub async fn revoke_client(&self, client: ClientId) -> Result<()> {
        self.ask_done(&format!("client {client}"), RevokeClient { client }).await
    }
}
