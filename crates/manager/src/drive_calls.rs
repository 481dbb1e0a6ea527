//! Sessions with drives: calls that are bounded in time, a few at a time for each drive.
//!
//! The bound counts from when a call is requested: it covers the wait for a slot, connecting, and the answer.
//! So many calls to a mute drive fail together, not one after another. Calls beyond the queue's length fail
//! at once. For the caller both mean that the drive does not answer: the procedure checks whether the drive
//! lives, and tries again or does without it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_layout::DriveId;
use braid_transport::{DriveSession, Home, Limits, TransportError};
use braid_wire::addresses::IN_TLS;
use braid_wire::capability::Protection;
use braid_wire::control::Grant;
use braid_wire::data::{DriveReply, DriveRequest};
use braid_wire::{Addresses, Refusal};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum number of calls at a time to one drive; as many sessions are kept.
pub(crate) const CALLS_PER_DRIVE: usize = 32;

/// Maximum number of calls to one drive that wait for a slot.
const WAITING_PER_DRIVE: usize = 1024;
/// Maximum duration of a call, including the wait for its slot.
const CALL_WAIT: Duration = Duration::from_secs(8);

/// Failure of a call to a drive.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The drive did not answer, or not as a drive should.
    #[error("{0}")]
    Unreachable(String),
    /// The drive refused the request.
    #[error("{0}")]
    Refused(Refusal),
}

/// Sessions with drives.
pub struct DriveCalls {
    home: Home,
    limits: Limits,
    call_wait: Duration,
    pools: Mutex<BTreeMap<DriveId, Arc<Pool>>>,
}

struct Pool {
    /// Limits the calls that are in progress or wait: those beyond fail at once.
    queue: Semaphore,
    /// Limits the calls in progress.
    calls: Semaphore,
    idle: Mutex<Vec<DriveSession>>,
}

impl DriveCalls {
    /// A table without sessions, for drives of this cluster.
    pub fn new(home: impl Into<Home>) -> DriveCalls {
        let limits = Limits {
            connect: Duration::from_secs(1),
            stall: Duration::from_secs(4),
            reply: Duration::from_secs(4),
            ..Limits::default()
        };
        DriveCalls { home: home.into(), limits, call_wait: CALL_WAIT, pools: Mutex::default() }
    }

    /// Sends one request and returns the answer. Requests are idempotent: if a kept session turns out to be
    /// dead, the request is sent again over a new one.
    pub async fn call(
        &self,
        drive: DriveId,
        addresses: &Addresses,
        grant: &Grant,
        request: &DriveRequest,
    ) -> Result<DriveReply, CallError> {
        self.call_with(drive, addresses, grant, request, &[]).await
    }

    /// Sends one request with its payload, as [`DriveCalls::call`] does.
    pub async fn call_with(
        &self,
        drive: DriveId,
        addresses: &Addresses,
        grant: &Grant,
        request: &DriveRequest,
        payload: &[&[u8]],
    ) -> Result<DriveReply, CallError> {
        let pool = self.pool(drive);
        let Ok(_place) = pool.queue.try_acquire() else {
            return Err(CallError::Unreachable("too many calls wait for it".to_owned()));
        };
        let covered = covered(addresses, grant);
        let call = self.call_in_turn(&pool, drive, &covered, grant, request, payload);
        timeout(self.call_wait, call).await.unwrap_or_else(|_| Err(self.too_late()))
    }

    async fn call_in_turn(
        &self,
        pool: &Pool,
        drive: DriveId,
        addresses: &Addresses,
        grant: &Grant,
        request: &DriveRequest,
        payload: &[&[u8]],
    ) -> Result<DriveReply, CallError> {
        let _turn = pool.calls.acquire().await.map_err(|_| CallError::Unreachable("closing".to_owned()))?;
        if let Some(mut session) = pool.take(addresses) {
            match session.call(grant, request, payload).await {
                Ok((reply, _)) => {
                    pool.keep(session);
                    return Ok(reply);
                }
                Err(TransportError::Refusal(refusal)) => {
                    pool.keep(session);
                    return Err(CallError::Refused(refusal));
                }
                Err(_) => {}
            }
        }
        let mut session = DriveSession::connect_first(addresses, drive, self.home, &self.limits)
            .await
            .map_err(call_error)?;
        match session.call(grant, request, payload).await {
            Ok((reply, _)) => {
                pool.keep(session);
                Ok(reply)
            }
            Err(error) => {
                if matches!(error, TransportError::Refusal(_)) {
                    pool.keep(session);
                }
                Err(call_error(error))
            }
        }
    }

    /// Sends several requests together in one session, and returns an outcome for each, in their order.
    /// Requests are idempotent: those without an answer when a kept session turns out to be dead are sent
    /// again.
    pub async fn call_all(
        &self,
        drive: DriveId,
        addresses: &Addresses,
        requests: &[(Grant, DriveRequest)],
    ) -> Vec<Result<DriveReply, CallError>> {
        let pool = self.pool(drive);
        let mut outcomes = Vec::new();
        outcomes.resize_with(requests.len(), || None);
        let ended = match pool.queue.try_acquire() {
            Ok(_place) => {
                let private = requests.iter().find(|(grant, _)| is_private(grant));
                let addresses = private.map_or(addresses.clone(), |(grant, _)| covered(addresses, grant));
                let calls = self.call_all_in_turn(&pool, drive, &addresses, requests, &mut outcomes);
                timeout(self.call_wait, calls).await.unwrap_or_else(|_| Err(self.too_late()))
            }
            Err(_) => Err(CallError::Unreachable("too many calls wait for it".to_owned())),
        };
        let why = ended.err().unwrap_or_else(|| CallError::Unreachable("it did not answer".to_owned()));
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(why.clone()))).collect()
    }

    async fn call_all_in_turn(
        &self,
        pool: &Pool,
        drive: DriveId,
        addresses: &Addresses,
        requests: &[(Grant, DriveRequest)],
        outcomes: &mut [Option<Result<DriveReply, CallError>>],
    ) -> Result<(), CallError> {
        let _turn = pool.calls.acquire().await.map_err(|_| CallError::Unreachable("closing".to_owned()))?;
        if let Some(mut session) = pool.take(addresses)
            && exchange(&mut session, requests, outcomes).await.is_ok()
        {
            pool.keep(session);
            return Ok(());
        }
        let mut session = DriveSession::connect_first(addresses, drive, self.home, &self.limits)
            .await
            .map_err(call_error)?;
        exchange(&mut session, requests, outcomes).await.map_err(call_error)?;
        pool.keep(session);
        Ok(())
    }

    fn too_late(&self) -> CallError {
        CallError::Unreachable(format!("no answer within {} ms", self.call_wait.as_millis()))
    }

    /// Checks that the drive answers: its hello is the proof.
    pub async fn probe(&self, drive: DriveId, addresses: &Addresses) -> Result<(), CallError> {
        DriveSession::connect_first(addresses, drive, self.home, &self.limits)
            .await
            .map(|_| ())
            .map_err(call_error)
    }

    fn pool(&self, drive: DriveId) -> Arc<Pool> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || {
            Arc::new(Pool {
                queue: Semaphore::new(CALLS_PER_DRIVE + WAITING_PER_DRIVE),
                calls: Semaphore::new(CALLS_PER_DRIVE),
                idle: Mutex::default(),
            })
        };
        Arc::clone(pools.entry(drive).or_insert_with(fresh))
    }
}

impl Pool {
    /// Takes an idle session. Sessions to an earlier address of the drive are dropped.
    fn take(&self, addresses: &Addresses) -> Option<DriveSession> {
        fn plain(address: &str) -> &str {
            address.strip_prefix(IN_TLS).unwrap_or(address)
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|session| addresses.iter().any(|address| plain(address) == plain(session.address())));
        let is_one = |session: &DriveSession| addresses.iter().any(|address| address == session.address());
        let at = idle.iter().rposition(is_one)?;
        Some(idle.remove(at))
    }

    fn keep(&self, session: DriveSession) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < CALLS_PER_DRIVE {
            idle.push(session);
        }
    }
}

/// The addresses for a session that requests under this grant may go over.
fn covered(addresses: &Addresses, grant: &Grant) -> Addresses {
    if is_private(grant) { addresses.in_tls() } else { addresses.clone() }
}

fn is_private(grant: &Grant) -> bool {
    grant.capability.protection != Protection::Integrity
}

/// Sends all requests that have no outcome yet, and takes the answers.
async fn exchange(
    session: &mut DriveSession,
    requests: &[(Grant, DriveRequest)],
    outcomes: &mut [Option<Result<DriveReply, CallError>>],
) -> Result<(), TransportError> {
    let waiting: Vec<usize> = (0..requests.len()).filter(|&at| outcomes[at].is_none()).collect();
    let (asker, answers) = session.halves();
    let asking = async {
        for (nth, &at) in waiting.iter().enumerate() {
            let (grant, request) = &requests[at];
            let tag = u64::try_from(at).expect("a count");
            if nth == 0 {
                asker.ask(tag, grant, request, &[]).await?;
            } else {
                asker.put(tag, grant, request, &[])?;
            }
        }
        asker.send_put().await
    };
    let answering = async {
        for _ in &waiting {
            let answer = answers.next().await?;
            let place = usize::try_from(answer.tag).ok().and_then(|at| outcomes.get_mut(at));
            if let Some(place) = place {
                *place = Some(match answer.reply {
                    DriveReply::Refused(refusal) => Err(CallError::Refused(refusal)),
                    reply => Ok(reply),
                });
            }
        }
        Ok(())
    };
    tokio::try_join!(asking, answering)?;
    Ok(())
}

fn call_error(error: TransportError) -> CallError {
    match error {
        TransportError::Refused { .. } => {
            CallError::Unreachable("its address refuses connections".to_owned())
        }
        TransportError::Refusal(refusal) => CallError::Refused(refusal),
        other => CallError::Unreachable(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::ClusterId;
    use braid_wire::capability::Key;
    use braid_wire::data::{Address, Remove};
    use tokio::task::JoinSet;
    use tokio::time::Instant;

    use super::*;
    use braid_meta::rules::grants;

    #[tokio::test]
    async fn calls_to_a_mute_drive_fail_together_and_at_once_beyond_the_queue() {
        let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Addresses::from(mute.local_addr().unwrap().to_string());
        let reach = DriveCalls { call_wait: Duration::from_millis(300), ..DriveCalls::new(ClusterId(1)) };
        let reach = Arc::new(reach);
        let drive = DriveId(2);
        let grant = grants::for_drive(&Key::new([3; 32]), drive, u64::MAX);
        let request =
            DriveRequest::from(Remove { at: Address::of_partition(braid_layout::PartitionId(4)), term: 1 });
        let began = Instant::now();
        let mut calls = JoinSet::new();
        for _ in 0..CALLS_PER_DRIVE + WAITING_PER_DRIVE + 10 {
            let reach = Arc::clone(&reach);
            let address = address.clone();
            let grant = grant.clone();
            let request = request.clone();
            calls.spawn(async move { reach.call(drive, &address, &grant, &request).await });
        }
        let mut late = 0;
        let mut refused = 0;
        while let Some(done) = calls.join_next().await {
            match done.unwrap() {
                Err(CallError::Unreachable(why)) if why.starts_with("no answer") => late += 1,
                Err(CallError::Unreachable(why)) if why.starts_with("too many") => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((late, refused), (CALLS_PER_DRIVE + WAITING_PER_DRIVE, 10));
        // If the calls failed one after another, they would take minutes.
        assert!(began.elapsed() < Duration::from_secs(20));
    }

    #[tokio::test]
    async fn of_calls_made_together_each_has_an_outcome() {
        let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Addresses::from(mute.local_addr().unwrap().to_string());
        let calls = DriveCalls { call_wait: Duration::from_millis(300), ..DriveCalls::new(ClusterId(1)) };
        let drive = DriveId(2);
        let grant = grants::for_drive(&Key::new([3; 32]), drive, u64::MAX);
        let request =
            DriveRequest::from(Remove { at: Address::of_partition(braid_layout::PartitionId(4)), term: 1 });
        let requests = vec![(grant, request); 64];
        let outcomes = calls.call_all(drive, &address, &requests).await;
        assert_eq!(outcomes.len(), 64);
        let late = |why: &str| why.starts_with("no answer within 300 ms");
        assert!(outcomes.iter().all(|o| matches!(o, Err(CallError::Unreachable(why)) if late(why))));
        drop(mute);
        let outcomes = calls.call_all(drive, &address, &requests[..2]).await;
        let refuses = |why: &str| why.contains("refuses connections");
        assert!(outcomes.iter().all(|o| matches!(o, Err(CallError::Unreachable(why)) if refuses(why))));
        assert!(calls.call_all(drive, &address, &[]).await.is_empty());
    }
}
