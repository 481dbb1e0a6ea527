//! Sessions with the manager for one kind of request, and requests that share messages.
//!
//! A request that may share messages goes out at once if a session is free. Otherwise it waits, and the first
//! caller to get a free session sends all waiting requests in one message. So the more requests there are,
//! the fewer messages each costs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use braid_transport::{ControlSession, TransportError};
use braid_wire::control::{Batch, BatchItem, BatchReply, ControlReply, ControlRequest, RequestHead};
use braid_wire::{Reason, Refusal};
use tokio::sync::{Semaphore, oneshot};

use crate::config::Config;

/// Maximum number of requests in a message. Their answers have to fit into one message too.
const ITEMS_MAX: usize = 64;
/// Bytes of requests in a message after which no further one is added.
const ITEMS_BYTES_MAX: usize = 256 << 10;

/// Sessions for one kind of request.
pub(crate) struct Lane {
    sessions: usize,
    /// One permit per session that may be in use.
    permits: Semaphore,
    idle: Mutex<Vec<ControlSession>>,
    /// Requests that wait for a session, to go out together.
    waiting: Mutex<VecDeque<Waiting>>,
    /// Number of messages sent; requests that went out together are one.
    asked: AtomicU64,
}

/// A request that waits to go out with others.
struct Waiting {
    item: BatchItem,
    answer: oneshot::Sender<Tried>,
}

/// Outcome of one try of a request.
pub(crate) type Tried = Result<ControlReply, Failure>;

/// Reason for which one try of a request failed.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    Refused(Refusal),
    /// The request was not sent.
    NotSent(Arc<TransportError>),
    /// The request may have reached the manager.
    NoAnswer(Arc<TransportError>),
}

impl Lane {
    pub(crate) fn new(sessions: usize) -> Lane {
        let sessions = sessions.max(1);
        let (idle, waiting, asked) = Default::default();
        Lane { sessions, permits: Semaphore::new(sessions), idle, waiting, asked }
    }

    /// Messages sent so far.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Sends a request once, by itself. `hear` is called with the session of every answer.
    pub(crate) async fn once(
        &self,
        config: &Config,
        hear: impl Fn(&ControlSession),
        head: &RequestHead,
        request: &ControlRequest,
    ) -> Tried {
        let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
        self.ask(config, hear, head, request).await
    }

    /// Sends a request once, in one message with others that wait. `of_batch` gives the head of a message of
    /// several requests: the caller's own request may be no operation.
    pub(crate) async fn share(
        &self,
        config: &Config,
        hear: impl Fn(&ControlSession),
        of_batch: impl Fn() -> RequestHead,
        head: &RequestHead,
        request: &ControlRequest,
    ) -> Tried {
        if self.waiting.lock().expect("no holder panics").is_empty()
            && let Ok(_permit) = self.permits.try_acquire()
        {
            if !request.rules().may_wait {
                return self.ask(config, &hear, head, request).await;
            }
            // Sent outside a batch, the request could keep the session from others for as long as a fence
            // takes.
            let (answer, answered) = oneshot::channel();
            let only = Waiting { item: BatchItem::new(head, request), answer };
            self.carry(config, &hear, &of_batch(), vec![only]).await;
            return answered.await.unwrap_or_else(|_| unreachable!("it was told"));
        }
        let (answer, mut answered) = oneshot::channel();
        let item = BatchItem::new(head, request);
        self.waiting.lock().expect("no holder panics").push_back(Waiting { item, answer });
        // The caller that sent the request was dropped before the answer came.
        let lost = |_| {
            let address = config.managers.leading();
            Err(Failure::NoAnswer(Arc::new(TransportError::Closed { address })))
        };
        loop {
            let permit = tokio::select! {
                biased;
                told = &mut answered => return told.unwrap_or_else(lost),
                permit = self.permits.acquire() => permit.expect("the semaphore is never closed"),
            };
            let together = self.take();
            if together.is_empty() {
                // Another caller has sent the request.
                drop(permit);
                return answered.await.unwrap_or_else(lost);
            }
            self.carry(config, &hear, &of_batch(), together).await;
        }
    }

    /// Takes the requests that have waited longest, as many as fit into a message.
    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock().expect("no holder panics");
        let mut taken = Vec::new();
        let mut bytes = 0;
        while taken.len() < ITEMS_MAX
            && bytes < ITEMS_BYTES_MAX
            && let Some(next) = waiting.pop_front()
        {
            if !next.answer.is_closed() {
                bytes += next.item.body.len();
                taken.push(next);
            }
        }
        taken
    }

    /// Sends these requests in one message, and hands out the answers.
    async fn carry(
        &self,
        config: &Config,
        hear: impl Fn(&ControlSession),
        head: &RequestHead,
        together: Vec<Waiting>,
    ) {
        let (items, answers): (Vec<_>, Vec<_>) =
            together.into_iter().map(|Waiting { item, answer }| (item, answer)).unzip();
        let asked = self.ask(config, hear, head, &Batch { items }.into()).await;
        let mut told = match asked {
            Ok(ControlReply::Batch(BatchReply { answers: replies })) if replies.len() == answers.len() => {
                replies.into_iter().map(|reply| self.told(config, reply.reply())).collect()
            }
            Ok(other) => {
                vec![Err(self.damaged(config, format!("{} to a batch", other.name()))); answers.len()]
            }
            Err(failure) => vec![Err(failure); answers.len()],
        };
        for answer in answers.into_iter().rev() {
            // Fails if the caller has been dropped: then the answer is not needed.
            let _ = answer.send(told.pop().expect("there is one for each"));
        }
    }

    fn told(&self, config: &Config, reply: Result<ControlReply, braid_wire::DecodeError>) -> Tried {
        match reply {
            Ok(ControlReply::Refused(refusal)) => Err(Failure::Refused(refusal)),
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.damaged(config, error.to_string())),
        }
    }

    fn damaged(&self, config: &Config, what: String) -> Failure {
        Failure::NoAnswer(Arc::new(TransportError::Unexpected { address: config.managers.leading(), what }))
    }

    /// Sends one message and receives its answer. The caller has a permit.
    async fn ask(
        &self,
        config: &Config,
        hear: impl Fn(&ControlSession),
        head: &RequestHead,
        request: &ControlRequest,
    ) -> Tried {
        let idle = self.idle.lock().expect("no holder panics").pop();
        let mut session = match idle {
            Some(session) => session,
            None => {
                let Config { managers, credentials, limits, .. } = config;
                match ControlSession::find(managers, credentials.clone(), limits).await {
                    Ok(session) => session,
                    Err(TransportError::Refusal(refusal)) => return Err(Failure::Refused(refusal)),
                    Err(error) => return Err(Failure::NotSent(Arc::new(error))),
                }
            }
        };
        self.asked.fetch_add(1, Ordering::Relaxed);
        let answer = session.call_as(head, request).await;
        match answer {
            Err(TransportError::Refusal(refusal)) => {
                hear(&session);
                if refusal.reason == Reason::NotLeading && config.managers.are_several() {
                    // Another one leads now: the idle sessions are of use no more either.
                    self.idle.lock().expect("no holder panics").clear();
                } else {
                    self.keep(session);
                }
                Err(Failure::Refused(refusal))
            }
            Ok(reply) => {
                hear(&session);
                self.keep(session);
                Ok(reply)
            }
            Err(error) => {
                // The idle sessions are as old as this one: if the manager restarted, they are all dead.
                self.idle.lock().expect("no holder panics").clear();
                Err(Failure::NoAnswer(Arc::new(error)))
            }
        }
    }

    /// Keeps a session for the next request, unless a new one would tell another list of managers.
    pub(crate) fn keep(&self, session: ControlSession) {
        if session.is_outdated() {
            return;
        }
        let mut idle = self.idle.lock().expect("no holder panics");
        if idle.len() < self.sessions {
            idle.push(session);
        }
    }
}
