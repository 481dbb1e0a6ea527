//! The side towards the manager: a few sessions, made anew when they break, and requests tried again within the
//! client's patience.
//!
//! A request may have been carried out although its answer was lost. Those that change what their own repeat would find are
//! operations: a repeat carries the number of the first try, and the manager answers it from what it remembers.
//!
//! Renewals of leases have sessions of their own, so that none waits for a request that takes long.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use braid_transport::{ControlSession, Limits, TransportError};
use braid_wire::control::{ControlReply, ControlRequest, Renew, RequestHead};
use braid_wire::{Reason, Refusal};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::config::{Config, WAIT_TOLD_AFTER};
use crate::error::{Error, Result};
use crate::operations::{Begun, Operations};
use crate::retry::Tries;

/// Sessions for renewals: two, so that one that is mute does not hold up all.
const RENEWAL_SESSIONS: usize = 2;

/// Sessions with the manager.
pub(crate) struct Control {
    config: Config,
    /// The client's number, for its operations.
    client: u64,
    calls: Lane,
    renewals: Lane,
    operations: Operations,
    /// Manager time at an instant: from the last answer.
    clock: Mutex<Option<(u64, Instant)>>,
}

/// Sessions for one kind of request.
struct Lane {
    sessions: usize,
    /// One permit per session that may be in use.
    permits: Semaphore,
    idle: Mutex<Vec<ControlSession>>,
}

/// How long a request goes on.
struct Bounds {
    /// One try, with the wait for a session; without: what the sessions' limits say.
    one: Option<Duration>,
    /// Whether a manager that is busy is asked again.
    insists: bool,
}

/// Why a request has no answer.
enum Failure {
    Refused(Refusal),
    Transport(TransportError),
}

impl Control {
    /// For the client of this number. No session is made yet.
    pub(crate) fn new(config: Config, client: u64) -> Control {
        let (calls, renewals) = (Lane::new(config.control_sessions), Lane::new(RENEWAL_SESSIONS));
        let (operations, clock) = (Operations::new(), Mutex::new(None));
        Control { config, client, calls, renewals, operations, clock }
    }

    /// Makes the first session: manager and client prove to each other that they belong to the cluster.
    pub(crate) async fn greet(&self) -> Result<()> {
        self.told(self.try_to_greet()).await
    }

    /// Does what waits for the manager, and tells of it when it takes long.
    async fn told<T>(&self, work: impl Future<Output = T>) -> T {
        let Some(tell) = self.config.on_wait else { return work.await };
        tokio::pin!(work);
        match timeout(WAIT_TOLD_AFTER, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                tell(&self.config.manager);
                work.await
            }
        }
    }

    async fn try_to_greet(&self) -> Result<()> {
        let mut tries = Tries::new(self.config.patience);
        loop {
            match self.connect().await {
                Ok(session) => {
                    self.keep(&self.calls, session);
                    return Ok(());
                }
                Err(error) if is_transient(&error) && tries.again().await => {}
                Err(TransportError::Refusal(refusal)) => {
                    let subject = format!("manager at {}", self.config.manager);
                    return Err(Error::Refused { subject, refusal });
                }
                Err(source) => return Err(Error::Manager { address: self.config.manager.clone(), source }),
            }
        }
    }

    /// Manager time now, in milliseconds, by the last answer and this machine's monotonic clock: never later than it is.
    pub(crate) fn now_ms(&self) -> u64 {
        let clock = self.clock.lock().expect("no holder panics");
        clock.map_or(0, |(ms, at)| {
            ms.saturating_add(u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX))
        })
    }

    /// Asks, and asks again after a break; `subject` is what the error names. A refusal is [`Error::Refused`].
    pub(crate) async fn call(&self, subject: &str, request: &ControlRequest) -> Result<ControlReply> {
        self.told(self.call_in(&self.calls, subject, request, Bounds { one: None, insists: true })).await
    }

    /// As [`Control::call`], but a refusal for now comes back at once: the asker has something to do in between.
    pub(crate) async fn call_for_now(&self, subject: &str, request: &ControlRequest) -> Result<ControlReply> {
        self.told(self.call_in(&self.calls, subject, request, Bounds { one: None, insists: false })).await
    }

    /// Asks once, on a session of its own, for what may take as long as `reply`: a repeat would begin it anew.
    pub(crate) async fn call_once(
        &self,
        subject: &str,
        request: &ControlRequest,
        reply: Duration,
    ) -> Result<ControlReply> {
        let limits = Limits { reply, ..self.config.limits };
        let asked = async {
            let (manager, token) = (&self.config.manager, &self.config.token);
            ControlSession::connect(manager, token, &limits).await?.call(request).await
        };
        asked.await.map_err(|error| match error {
            TransportError::Refusal(refusal) => Error::Refused { subject: subject.to_owned(), refusal },
            source => Error::Manager { address: self.config.manager.clone(), source },
        })
    }

    /// Renews a lease. A session on which no answer comes within `one` is given up for another.
    pub(crate) async fn renew(&self, subject: &str, renew: Renew, one: Duration) -> Result<ControlReply> {
        let bounds = Bounds { one: Some(one), insists: true };
        self.call_in(&self.renewals, subject, &renew.into(), bounds).await
    }

    async fn call_in(
        &self,
        lane: &Lane,
        subject: &str,
        request: &ControlRequest,
        bounds: Bounds,
    ) -> Result<ControlReply> {
        let mut tries = Tries::new(self.config.patience);
        let mut operation = self.begin(request);
        // Whether a try may have reached the manager without an answer coming back.
        let mut sent = false;
        loop {
            let head = self.head(operation.as_ref());
            let tried = self.once(lane, &head, request, &mut sent);
            let tried = match bounds.one {
                Some(one) => match timeout(one, tried).await {
                    Ok(tried) => tried,
                    Err(_) => {
                        sent = true;
                        Err(self.too_late())
                    }
                },
                None => tried.await,
            };
            let failure = match tried {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let transient = match &failure {
                // Its time was wrong: this machine slept, or the manager's time leapt. Nobody has carried it out.
                Failure::Refused(refusal) if refusal.reason == Reason::Outdated && !sent => {
                    operation = self.begin(request);
                    true
                }
                Failure::Refused(refusal) => {
                    matches!(refusal.reason, Reason::NotLeading | Reason::Closing)
                        || bounds.insists && refusal.reason == Reason::Busy
                }
                Failure::Transport(error) => is_transient(error),
            };
            if transient && tries.again().await {
                tracing::debug!(subject, "the manager's answer failed, trying again");
                continue;
            }
            return Err(match failure {
                Failure::Refused(refusal) => Error::Refused { subject: subject.to_owned(), refusal },
                Failure::Transport(source) => Error::Manager { address: self.config.manager.clone(), source },
            });
        }
    }

    fn begin(&self, request: &ControlRequest) -> Option<Begun<'_>> {
        request.is_operation().then(|| self.operations.begin(self.now_ms()))
    }

    fn head(&self, operation: Option<&Begun<'_>>) -> RequestHead {
        let Some(begun) = operation else { return RequestHead::NONE };
        RequestHead {
            client: self.client,
            operation: begun.number,
            settled_below: self.operations.settled_below(),
            begun_ms: begun.at_ms,
        }
    }

    /// One try. Sets `sent` when the request may have reached the manager without an answer coming back.
    async fn once(
        &self,
        lane: &Lane,
        head: &RequestHead,
        request: &ControlRequest,
        sent: &mut bool,
    ) -> std::result::Result<ControlReply, Failure> {
        let _permit = lane.permits.acquire().await.expect("the semaphore is never closed");
        let idle = lane.idle.lock().expect("no holder panics").pop();
        let mut session = match idle {
            Some(session) => session,
            None => match self.connect().await {
                Ok(session) => session,
                Err(TransportError::Refusal(refusal)) => return Err(Failure::Refused(refusal)),
                Err(error) => return Err(Failure::Transport(error)),
            },
        };
        match session.call_as(head, request).await {
            Err(TransportError::Refusal(refusal)) => {
                self.keep(lane, session);
                Err(Failure::Refused(refusal))
            }
            Ok(reply) => {
                self.keep(lane, session);
                Ok(reply)
            }
            Err(error) => {
                *sent = true;
                // The others are as old as this one: a manager that restarted has closed them all.
                lane.idle.lock().expect("no holder panics").clear();
                Err(Failure::Transport(error))
            }
        }
    }

    async fn connect(&self) -> std::result::Result<ControlSession, TransportError> {
        ControlSession::connect(&self.config.manager, &self.config.token, &self.config.limits).await
    }

    fn keep(&self, lane: &Lane, session: ControlSession) {
        *self.clock.lock().expect("no holder panics") = Some((session.head().now_ms, Instant::now()));
        let mut idle = lane.idle.lock().expect("no holder panics");
        if idle.len() < lane.sessions {
            idle.push(session);
        }
    }

    fn too_late(&self) -> Failure {
        let address = self.config.manager.clone();
        Failure::Transport(TransportError::Timeout { what: "to renew a lease", address })
    }
}

impl Lane {
    fn new(sessions: usize) -> Lane {
        let sessions = sessions.max(1);
        Lane { sessions, permits: Semaphore::new(sessions), idle: Mutex::new(Vec::new()) }
    }
}

/// Whether a try that failed so may succeed later: the manager is away or went away, or bytes were damaged on their way.
fn is_transient(error: &TransportError) -> bool {
    matches!(
        error,
        TransportError::Connect { .. }
            | TransportError::Refused { .. }
            | TransportError::Timeout { .. }
            | TransportError::Closed { .. }
            | TransportError::Io { .. }
            | TransportError::Poisoned { .. }
            | TransportError::Damaged { .. }
    )
}

#[cfg(test)]
mod tests;
