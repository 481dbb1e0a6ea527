//! The connection to the manager: a few sessions, reopened when they break, and requests that are retried
//! within the client's patience.
//!
//! A request may have been carried out although its answer was lost. Requests that would not find the same
//! state if repeated are operations: a repeat carries the number of the first try, and the manager answers it
//! from its memory.
//!
//! Requests of many callers at once go out together ([`crate::peers::lane`]). A request that takes the
//! manager long is sent again by itself, so that no other waits for it. Lease renewals have their own
//! sessions, so that they never wait for a slow request.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use braid_layout::ClientId;
use braid_transport::{ControlSession, Limits, TransportError};
use braid_wire::control::{ControlReply, ControlRequest, ENDED_WAIT_MS, Renew, RequestHead, Watch};
use braid_wire::{Reason, Refusal};
use tokio::time::timeout;

use crate::concurrent::Boxed;
use crate::config::{Config, WAIT_TOLD_AFTER};
use crate::error::{Error, Result};
use crate::peers::lane::{Failure, Lane};
use crate::peers::operations::{Begun, Operations};
use crate::peers::retry::Tries;

/// Sessions for renewals: two, so that one unresponsive session does not block all of them.
const RENEWAL_SESSIONS: usize = 2;

/// Sessions for requests that go out together. While one session's answers are awaited, the next requests
/// gather.
const SHARED_SESSIONS: usize = 2;

/// Sessions with the manager.
pub(crate) struct Control {
    config: Config,
    /// The client's number, for its operations.
    client: ClientId,
    calls: Lane,
    shared: Lane,
    renewals: Lane,
    news: Lane,
    operations: Operations,
    /// Manager time at a local instant, from the last answer.
    clock: Mutex<Option<(u64, Instant)>>,
}

/// Limits on the tries of a request.
struct Bounds {
    /// Bounds one try, including the wait for a session. If absent, the sessions' limits apply.
    one: Option<Duration>,
    /// True if the request is retried while the manager is busy.
    insists: bool,
}

impl Control {
    /// Creates the connection for the client with this number. Opens no session yet.
    pub(crate) fn new(config: Config, client: ClientId) -> Control {
        let calls = Lane::new(config.control_sessions);
        let shared = Lane::new(SHARED_SESSIONS);
        let renewals = Lane::new(RENEWAL_SESSIONS);
        let operations = Operations::new();
        let clock = Mutex::new(None);
        Control { config, client, calls, shared, renewals, news: Lane::new(1), operations, clock }
    }

    /// Messages sent so far; requests that went out together are one.
    pub(crate) fn asked(&self) -> u64 {
        [&self.calls, &self.shared, &self.renewals, &self.news].iter().map(|lane| lane.asked()).sum()
    }

    /// Opens the first session: manager and client prove to each other that they belong to the cluster.
    pub(crate) async fn greet(&self) -> Result<()> {
        self.told(WAIT_TOLD_AFTER, self.try_to_greet()).await
    }

    /// Does `work` that waits for the manager, and reports if it takes longer than this.
    async fn told<T>(&self, after: Duration, work: impl Future<Output = T>) -> T {
        let Some(tell) = self.config.on_wait else { return work.await };
        tokio::pin!(work);
        match timeout(after, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                tell(&self.config.managers.leading());
                work.await
            }
        }
    }

    async fn try_to_greet(&self) -> Result<()> {
        let mut tries = Tries::new(self.config.patience);
        loop {
            match self.connect().await {
                Ok(session) => {
                    self.hear(&session);
                    self.shared.keep(session);
                    return Ok(());
                }
                Err(error) if is_transient(&error) && tries.again().await => {}
                Err(TransportError::Refusal(refusal)) if is_away(&refusal) && tries.after(&refusal).await => {
                }
                Err(TransportError::Refusal(refusal)) => {
                    let subject = format!("manager at {}", self.config.managers.leading());
                    return Err(Error::Refused { subject, refusal });
                }
                Err(error) => return Err(self.unreachable(Arc::new(error))),
            }
        }
    }

    /// Manager time now, in milliseconds, from the last answer and this machine's monotonic clock. Never
    /// ahead of the true value.
    pub(crate) fn now_ms(&self) -> u64 {
        let clock = self.clock.lock().expect("no holder panics");
        clock.map_or(0, |(ms, at)| {
            ms.saturating_add(u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX))
        })
    }

    /// Sends a request, and retries it after a break; `subject` names it in errors. A refusal is
    /// [`Error::Refused`].
    pub(crate) async fn call(&self, subject: &str, request: &ControlRequest) -> Result<ControlReply> {
        let call = self.call_in(&self.calls, subject, request, Bounds { one: None, insists: true });
        self.told(told_after(request), call).await
    }

    /// Like [`Control::call`], but a temporary refusal is returned at once, for callers that have other work
    /// to do meanwhile.
    pub(crate) async fn call_for_now(&self, subject: &str, request: &ControlRequest) -> Result<ControlReply> {
        let call = self.call_in(&self.calls, subject, request, Bounds { one: None, insists: false });
        self.told(told_after(request), call).await
    }

    /// Sends a request once, on its own session, for work that may take up to `reply`: a repeat would start
    /// the work again.
    pub(crate) async fn call_once(
        &self,
        subject: &str,
        request: &ControlRequest,
        reply: Duration,
    ) -> Result<ControlReply> {
        let limits = Limits { reply, ..self.config.limits };
        let asked = async {
            let Config { managers, credentials, .. } = &self.config;
            ControlSession::find(managers, credentials.clone(), &limits).await?.call(request).await
        };
        asked.await.map_err(|error| match error {
            TransportError::Refusal(refusal) => Error::Refused { subject: subject.to_owned(), refusal },
            source => self.unreachable(Arc::new(source)),
        })
    }

    /// Renews leases. A session that gives no answer within `one` is abandoned for another.
    pub(crate) async fn renew(&self, subject: &str, renew: Renew, one: Duration) -> Result<ControlReply> {
        let bounds = Bounds { one: Some(one), insists: true };
        self.call_in(&self.renewals, subject, &renew.into(), bounds).await
    }

    /// Waits for news with one request, for at most `one`.
    pub(crate) async fn watch(&self, subject: &str, watch: Watch, one: Duration) -> Result<ControlReply> {
        let head = self.no_operation();
        let request = ControlRequest::from(watch);
        let hear = |session: &_| self.hear(session);
        let tried = timeout(one, self.news.once(&self.config, hear, &head, &request));
        match tried.await.unwrap_or_else(|_| Err(self.too_late())) {
            Ok(reply) => Ok(reply),
            Err(Failure::Refused(refusal)) => Err(Error::Refused { subject: subject.to_owned(), refusal }),
            Err(Failure::NotSent(source) | Failure::NoAnswer(source)) => Err(self.unreachable(source)),
        }
    }

    fn no_operation(&self) -> RequestHead {
        RequestHead { client: self.client, ..RequestHead::NONE }
    }

    /// Sends a request, and retries it after a break. The future is boxed: it is as large as all states of a
    /// connection, and every caller's future, and its callers', would contain it.
    fn call_in<'c>(
        &'c self,
        lane: &'c Lane,
        subject: &'c str,
        request: &'c ControlRequest,
        bounds: Bounds,
    ) -> Boxed<'c, Result<ControlReply>> {
        Box::pin(self.try_in(lane, subject, request, bounds))
    }

    async fn try_in(
        &self,
        lane: &Lane,
        subject: &str,
        request: &ControlRequest,
        bounds: Bounds,
    ) -> Result<ControlReply> {
        let mut tries = Tries::new(self.config.patience);
        let mut operation = self.begin(request);
        // True if an earlier try may have reached the manager without an answer.
        let mut sent = false;
        let mut together = bounds.one.is_none() && request.rules().in_batch;
        loop {
            let head = self.head(operation.as_ref());
            let tried = async {
                let config = &self.config;
                let hear = |session: &_| self.hear(session);
                if !together {
                    return lane.once(config, hear, &head, request).await;
                }
                self.shared.share(config, hear, || self.head_of_batch(), &head, request).await
            };
            let tried = match bounds.one {
                Some(one) => match timeout(one, tried).await {
                    Ok(tried) => tried,
                    Err(_) => Err(self.too_late()),
                },
                None => tried.await,
            };
            let failure = match tried {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            sent |= matches!(failure, Failure::NoAnswer(_));
            let transient = match &failure {
                // The operation's time was wrong: this machine slept, or the manager's time jumped. It was
                // not carried out.
                Failure::Refused(refusal) if refusal.reason == Reason::Outdated && !sent => {
                    operation = self.begin(request);
                    true
                }
                Failure::Refused(refusal) => {
                    is_away(refusal) || bounds.insists && refusal.reason == Reason::Busy
                }
                Failure::NotSent(error) | Failure::NoAnswer(error) => is_transient(error),
            };
            // The request takes the manager long: it is not sent together with others again.
            together &= !matches!(&failure, Failure::Refused(refusal) if refusal.reason == Reason::Busy);
            let again = match &failure {
                Failure::Refused(refusal) if transient => tries.after(refusal).await,
                _ => transient && tries.again().await,
            };
            if again {
                tracing::debug!(subject, "the manager's answer failed, trying again");
                continue;
            }
            return Err(match failure {
                Failure::Refused(refusal) => Error::Refused { subject: subject.to_owned(), refusal },
                Failure::NotSent(source) | Failure::NoAnswer(source) => self.unreachable(source),
            });
        }
    }

    fn begin(&self, request: &ControlRequest) -> Option<Begun<'_>> {
        request.rules().is_operation.then(|| self.operations.begin(self.now_ms()))
    }

    fn head(&self, operation: Option<&Begun<'_>>) -> RequestHead {
        let Some(begun) = operation else { return self.no_operation() };
        RequestHead {
            client: self.client,
            operation: begun.number,
            settled_below: self.operations.settled_below(),
            begun_ms: begun.at_ms,
        }
    }

    fn head_of_batch(&self) -> RequestHead {
        let settled_below = self.operations.settled_below();
        RequestHead { client: self.client, settled_below, ..RequestHead::NONE }
    }

    async fn connect(&self) -> std::result::Result<ControlSession, TransportError> {
        let Config { managers, credentials, limits, .. } = &self.config;
        ControlSession::find(managers, credentials.clone(), limits).await
    }

    /// Takes over the manager's time from a session that has an answer.
    fn hear(&self, session: &ControlSession) {
        *self.clock.lock().expect("no holder panics") = Some((session.head().now_ms, Instant::now()));
    }

    fn unreachable(&self, source: Arc<TransportError>) -> Error {
        Error::Manager { address: self.config.managers.to_string(), source }
    }

    fn too_late(&self) -> Failure {
        let address = self.config.managers.leading();
        Failure::NoAnswer(Arc::new(TransportError::Timeout { what: "to renew a lease", address }))
    }
}

/// Time after which it is reported that a request waits for the manager: longer if the manager may itself be
/// waiting for others.
fn told_after(request: &ControlRequest) -> Duration {
    match request {
        ControlRequest::ReserveRate(_) => WAIT_TOLD_AFTER + Duration::from_millis(ENDED_WAIT_MS),
        _ => WAIT_TOLD_AFTER,
    }
}

/// Returns true if the manager cannot answer for now, and it or another one will.
fn is_away(refusal: &Refusal) -> bool {
    matches!(refusal.reason, Reason::NotLeading | Reason::Closing)
}

/// Returns true if a later try may succeed: the manager is or went away, or bytes were damaged in transit.
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
