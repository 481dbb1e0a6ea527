//! Sessions with drives: calls that are bounded in time, a few at a time for each drive.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_layout::{ClusterId, DriveId};
use braid_transport::{DriveSession, Limits, TransportError};
use braid_wire::Refusal;
use braid_wire::control::Grant;
use braid_wire::data::{DriveReply, DriveRequest};
use tokio::sync::Semaphore;

/// Most calls at a time to one drive; as many sessions are kept.
const CALLS_PER_DRIVE: usize = 4;

/// Why a drive did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReachError {
    /// Nobody listens at its address: its process is gone.
    #[error("its address refuses connections")]
    Gone,
    /// It did not answer, or not as a drive should.
    #[error("{0}")]
    Unreachable(String),
    /// It said no.
    #[error("{0}")]
    Refused(Refusal),
}

/// Sessions with drives.
pub struct Reach {
    cluster: ClusterId,
    limits: Limits,
    pools: Mutex<BTreeMap<DriveId, Arc<Pool>>>,
}

struct Pool {
    calls: Semaphore,
    idle: Mutex<Vec<(String, DriveSession)>>,
}

impl Reach {
    /// To drives of this cluster.
    pub fn new(cluster: ClusterId) -> Reach {
        let limits = Limits {
            connect: Duration::from_secs(1),
            stall: Duration::from_secs(4),
            reply: Duration::from_secs(4),
            ..Limits::default()
        };
        Reach { cluster, limits, pools: Mutex::default() }
    }

    /// One request and its answer. Requests are idempotent: over a session that turns out to be dead, it is sent again.
    pub async fn call(
        &self,
        drive: DriveId,
        address: &str,
        grant: &Grant,
        request: &DriveRequest,
    ) -> Result<DriveReply, ReachError> {
        let pool = self.pool(drive);
        let _turn = pool.calls.acquire().await.map_err(|_| ReachError::Unreachable("closing".to_owned()))?;
        if let Some(mut session) = pool.take(address) {
            match session.call(grant, request, &[]).await {
                Ok((reply, _)) => {
                    pool.keep(address, session);
                    return Ok(reply);
                }
                Err(TransportError::Refusal(refusal)) => {
                    pool.keep(address, session);
                    return Err(ReachError::Refused(refusal));
                }
                Err(_) => {}
            }
        }
        let mut session =
            DriveSession::connect(address, drive, self.cluster, &self.limits).await.map_err(reach_error)?;
        match session.call(grant, request, &[]).await {
            Ok((reply, _)) => {
                pool.keep(address, session);
                Ok(reply)
            }
            Err(error) => {
                if matches!(error, TransportError::Refusal(_)) {
                    pool.keep(address, session);
                }
                Err(reach_error(error))
            }
        }
    }

    /// Whether the drive is there: its hello is the proof.
    pub async fn probe(&self, drive: DriveId, address: &str) -> Result<(), ReachError> {
        DriveSession::connect(address, drive, self.cluster, &self.limits)
            .await
            .map(|_| ())
            .map_err(reach_error)
    }

    fn pool(&self, drive: DriveId) -> Arc<Pool> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Arc::new(Pool { calls: Semaphore::new(CALLS_PER_DRIVE), idle: Mutex::default() });
        Arc::clone(pools.entry(drive).or_insert_with(fresh))
    }
}

impl Pool {
    /// A session kept from before. Those to an earlier address of the drive are dropped.
    fn take(&self, address: &str) -> Option<DriveSession> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(to, _)| to == address);
        idle.pop().map(|(_, session)| session)
    }

    fn keep(&self, address: &str, session: DriveSession) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < CALLS_PER_DRIVE {
            idle.push((address.to_owned(), session));
        }
    }
}

fn reach_error(error: TransportError) -> ReachError {
    match error {
        TransportError::Refused { .. } => ReachError::Gone,
        TransportError::Refusal(refusal) => ReachError::Refused(refusal),
        other => ReachError::Unreachable(other.to_string()),
    }
}
