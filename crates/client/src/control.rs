//! The side towards the manager: a few sessions, made anew when they break, and requests tried again within the
//! client's patience.
//!
//! A request may have been carried out although its answer was lost. Most are harmless to repeat; for the others the asker
//! names the refusal that then means "done already": "not found" to an unlink, "exists" to a mkdir.

use std::sync::Mutex;
use std::time::Instant;

use braid_transport::{ControlSession, TransportError};
use braid_wire::control::{ControlReply, ControlRequest, Done};
use braid_wire::{Reason, Refusal};
use tokio::sync::Semaphore;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::retry::Tries;

/// Sessions with the manager.
pub(crate) struct Control {
    config: Config,
    /// One permit per session that may be in use.
    permits: Semaphore,
    idle: Mutex<Vec<ControlSession>>,
    /// Manager time at an instant: from the last answer.
    clock: Mutex<Option<(u64, Instant)>>,
}

/// Why a request has no answer.
enum Failure {
    Refused(Refusal),
    Transport(TransportError),
}

impl Control {
    /// No session is made yet.
    pub(crate) fn new(config: Config) -> Control {
        let permits = Semaphore::new(config.control_sessions.max(1));
        Control { config, permits, idle: Mutex::new(Vec::new()), clock: Mutex::new(None) }
    }

    /// Makes the first session: manager and client prove to each other that they belong to the cluster.
    pub(crate) async fn greet(&self) -> Result<()> {
        let mut tries = Tries::new(self.config.patience);
        loop {
            match self.connect().await {
                Ok(session) => {
                    self.keep(session);
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

    /// Manager time now, in milliseconds, by the last answer and this machine's monotonic clock.
    pub(crate) fn now_ms(&self) -> u64 {
        let clock = self.clock.lock().expect("no holder panics");
        clock.map_or(0, |(ms, at)| {
            ms.saturating_add(u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX))
        })
    }

    /// As [`Control::call`], but a refusal for now comes back at once: the asker has something to do in between.
    pub(crate) async fn call_for_now(&self, subject: &str, request: &ControlRequest) -> Result<ControlReply> {
        self.call_with(subject, request, None, false).await
    }

    /// Asks, and asks again after a break; `subject` is what the error names. A refusal is [`Error::Refused`]; but one for the
    /// reason `already`, to a request that may have been carried out before, is "done".
    pub(crate) async fn call(
        &self,
        subject: &str,
        request: &ControlRequest,
        already: Option<Reason>,
    ) -> Result<ControlReply> {
        self.call_with(subject, request, already, true).await
    }

    async fn call_with(
        &self,
        subject: &str,
        request: &ControlRequest,
        already: Option<Reason>,
        insists: bool,
    ) -> Result<ControlReply> {
        let mut tries = Tries::new(self.config.patience);
        let mut repeated = false;
        loop {
            let failure = match self.once(request, &mut repeated).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let transient = match &failure {
                Failure::Refused(refusal) => {
                    matches!(refusal.reason, Reason::NotLeading | Reason::Closing)
                        || insists && refusal.reason == Reason::Busy
                }
                Failure::Transport(error) => is_transient(error),
            };
            if transient && tries.again().await {
                tracing::debug!(subject, "the manager's answer failed, trying again");
                continue;
            }
            return Err(match failure {
                Failure::Refused(refusal) if repeated && Some(refusal.reason) == already => {
                    return Ok(ControlReply::Done(Done {}));
                }
                Failure::Refused(refusal) => Error::Refused { subject: subject.to_owned(), refusal },
                Failure::Transport(source) => Error::Manager { address: self.config.manager.clone(), source },
            });
        }
    }

    /// One try. Sets `repeated` when the request may have reached the manager without an answer coming back.
    async fn once(
        &self,
        request: &ControlRequest,
        repeated: &mut bool,
    ) -> std::result::Result<ControlReply, Failure> {
        let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
        let idle = self.idle.lock().expect("no holder panics").pop();
        let mut session = match idle {
            Some(session) => session,
            None => match self.connect().await {
                Ok(session) => session,
                Err(TransportError::Refusal(refusal)) => return Err(Failure::Refused(refusal)),
                Err(error) => return Err(Failure::Transport(error)),
            },
        };
        match session.call(request).await {
            Err(TransportError::Refusal(refusal)) => {
                self.keep(session);
                Err(Failure::Refused(refusal))
            }
            Ok(reply) => {
                self.keep(session);
                Ok(reply)
            }
            Err(error) => {
                *repeated = true;
                // The others are as old as this one: a manager that restarted has closed them all.
                self.idle.lock().expect("no holder panics").clear();
                Err(Failure::Transport(error))
            }
        }
    }

    async fn connect(&self) -> std::result::Result<ControlSession, TransportError> {
        ControlSession::connect(&self.config.manager, &self.config.token, &self.config.limits).await
    }

    fn keep(&self, session: ControlSession) {
        *self.clock.lock().expect("no holder panics") = Some((session.head().now_ms, Instant::now()));
        let mut idle = self.idle.lock().expect("no holder panics");
        if idle.len() < self.config.control_sessions {
            idle.push(session);
        }
    }
}

/// Whether a try that failed so may succeed later: the manager is away or went away.
fn is_transient(error: &TransportError) -> bool {
    matches!(
        error,
        TransportError::Connect { .. }
            | TransportError::Refused { .. }
            | TransportError::Timeout { .. }
            | TransportError::Closed { .. }
            | TransportError::Io { .. }
            | TransportError::Poisoned { .. }
    )
}
