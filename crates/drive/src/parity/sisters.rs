//! Addresses of this drive's sisters, and its rights to send them deltas: both are requested from the
//! manager, and kept for as long as the right lasts.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use braid_layout::{DriveId, PartitionId};
use braid_transport::{ControlSession, Credentials, Limits, Managers, TransportError};
use braid_wire::Reason;
use braid_wire::control::{ControlReply, SisterRow, Sisters as Asked};

/// Remaining validity, in milliseconds, below which a right is requested anew.
const EXPIRES_SOON_MS: u64 = 30_000;

/// The sisters known so far, and the way to ask for others.
#[derive(Debug)]
pub(crate) struct Sisters {
    managers: Managers,
    credentials: Credentials,
    limits: Limits,
    session: tokio::sync::Mutex<Option<ControlSession>>,
    known: Mutex<HashMap<(DriveId, PartitionId), SisterRow>>,
}

impl Sisters {
    /// Creates an empty table, for a drive that connects with these credentials to one of these managers.
    pub(crate) fn new(managers: Managers, credentials: Credentials, limits: Limits) -> Sisters {
        let (session, known) = Default::default();
        Sisters { managers, credentials, limits, session, known }
    }

    /// The sister `drive`, with the right to send deltas to its `partition`. An error says why there is none.
    pub(crate) async fn find(
        &self,
        drive: DriveId,
        partition: PartitionId,
        now_ms: u64,
    ) -> Result<SisterRow, String> {
        let lasts = |row: &&SisterRow| now_ms + EXPIRES_SOON_MS < row.grant.capability.expires_ms;
        if let Some(row) = self.known().get(&(drive, partition)).filter(lasts) {
            return Ok(row.clone());
        }
        let mut session = self.session.lock().await;
        let asked = Asked { partition, drives: vec![drive] };
        let reply = match self.ask(&mut session, asked).await {
            Ok(reply) => reply,
            Err(error) => {
                // A manager that leads no more ends its sessions.
                let is_kept = matches!(&error, TransportError::Refusal(refusal) if refusal.reason != Reason::NotLeading);
                if !is_kept {
                    *session = None;
                }
                return Err(format!("the manager does not say where drive {drive} is: {error}"));
            }
        };
        let ControlReply::Sisters(reply) = reply else {
            *session = None;
            return Err(format!("the manager answered {}", reply.name()));
        };
        let row = reply.sisters.into_iter().find(|row| row.drive == drive);
        let row = row.ok_or_else(|| format!("drive {drive} is away or has no partition {partition} yet"))?;
        self.known().insert((drive, partition), row.clone());
        Ok(row)
    }

    /// The sister was not reached at its known address, or did not accept the right: both are requested anew.
    pub(crate) fn forget(&self, drive: DriveId, partition: PartitionId) {
        self.known().remove(&(drive, partition));
    }

    async fn ask(
        &self,
        session: &mut Option<ControlSession>,
        asked: Asked,
    ) -> Result<ControlReply, TransportError> {
        if session.as_ref().is_none_or(ControlSession::is_outdated) {
            *session = None;
            *session =
                Some(ControlSession::find(&self.managers, self.credentials.clone(), &self.limits).await?);
        }
        let session = session.as_mut().expect("it was made above");
        session.call(&asked.into()).await
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<(DriveId, PartitionId), SisterRow>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
