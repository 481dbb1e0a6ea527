//! A session with a drive that many callers share, for small requests: requests that several of them make at
//! about the same time go in one system call, and so do the answers that have come.
//!
//! One task has the connection ([`driver`]). A caller seals its request under a lock, adds the frame to those
//! that are not sent yet, and waits for its answer, whose bytes the task copies for the caller. The caller
//! checks the answer itself: MACs are made and verified where the callers run.
//!
//! A wait needs no timer of its own: while answers are awaited, the task looks from time to time which are
//! overdue. An answer that comes late or has lost its caller is dropped; an answer to no request ends the
//! session.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use braid_wire::capability::Protection;
use braid_wire::control::Grant;
use braid_wire::data::{DriveReply, DriveRequest, ReplyHead};
use braid_wire::frame::{FrameHeader, HEADER_BYTES};
use braid_wire::seal::{self, Asked};

use crate::bodies::STRANGER_BODY_BYTES_MAX;
use crate::drive_session::{DriveSession, Parts, in_clear};
use crate::error::{Result, TransportError};
use crate::limits::Limits;

mod driver;

/// Maximum payload in bytes of a request, or of a read, for which a session is shared.
pub const SHARED_PAYLOAD_BYTES_MAX: u32 = 16 << 10;
/// Maximum number of unanswered requests on one session. It is below the number that a drive takes before it
/// lets a peer wait.
const ASKED_MAX: usize = 192;
/// Number of looks for overdue answers during the longest wait.
const LOOKS_PER_WAIT: u32 = 8;
/// Maximum number of answer buffers that are kept for reuse, and maximum capacity in bytes of each.
const BUFFERS_KEPT: usize = 64;
const BUFFER_KEPT_BYTES: usize = 32 << 10;

/// A shared session. After it is dropped, it ends once no caller waits for an answer.
#[derive(Debug)]
pub struct SharedSession {
    line: Arc<Line>,
}

/// State that callers and the session's task share.
#[derive(Debug)]
struct Line {
    address: Arc<str>,
    limits: Limits,
    /// True if nobody can read along.
    is_private: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    seal: seal::Asker,
    /// The number of the last request.
    request: u64,
    /// Whole frames that the task has not taken yet.
    unsent: Vec<u8>,
    places: BTreeMap<u64, AnswerPlace>,
    /// Buffers kept for later answers.
    spare: Vec<Vec<u8>>,
    /// Waker of the session's task; `None` while the task runs.
    driver: Option<Waker>,
    /// Number of looks of the task for overdue answers.
    looks: u64,
    /// True if no more requests will come.
    is_closing: bool,
    ended: Option<Ended>,
}

/// Place for the answer to a request.
#[derive(Debug)]
enum AnswerPlace {
    /// The caller has waited since the look number `since`.
    Waiting { since: u64, waker: Option<Waker> },
    /// The answer has come: header, then body and payload in one buffer.
    Came(FrameHeader, Vec<u8>),
    /// The answer is overdue.
    Late,
    /// The caller no longer waits.
    Abandoned,
}

/// Reason that a session has ended.
#[derive(Debug, Clone)]
enum Ended {
    Closed,
    Stalled,
    Misbehaved(String),
}

/// A request whose answer is awaited. If it is dropped, its answer is discarded.
#[derive(Debug)]
pub struct Asking {
    line: Arc<Line>,
    asked: Asked,
}

/// An answer with its payload.
#[derive(Debug)]
pub struct SmallAnswer {
    /// The drive's generation of the object.
    pub head: ReplyHead,
    /// The drive's reply, which may be a refusal.
    pub reply: DriveReply,
    /// The whole payload of the answer.
    pub payload: SmallPayload,
}

/// An answer's payload. Its buffer is used again after the drop.
#[derive(Debug)]
pub struct SmallPayload {
    line: Arc<Line>,
    /// Body of the answer, then the payload from `from` on.
    bytes: Vec<u8>,
    from: usize,
}

impl DriveSession {
    /// Makes this a session that many callers share; returns it unchanged if a request is in flight. Must be
    /// called in a runtime.
    pub fn share(self) -> std::result::Result<SharedSession, Box<DriveSession>> {
        if !self.is_at_rest() {
            return Err(Box::new(self));
        }
        let Parts { reading, writing, sent, address, limits, seal, request, is_private } = self.into_parts();
        let state = State {
            seal,
            request,
            unsent: Vec::new(),
            places: BTreeMap::new(),
            spare: Vec::new(),
            driver: None,
            looks: 0,
            is_closing: false,
            ended: None,
        };
        let line = Arc::new(Line { address, limits, is_private, state: Mutex::new(state) });
        let (read, received) = reading;
        let driver = driver::Driver::new(Arc::clone(&line), read, received, writing, sent);
        tokio::spawn(driver.run());
        Ok(SharedSession { line })
    }
}

impl SharedSession {
    /// Returns true if the session takes no more requests.
    pub fn has_ended(&self) -> bool {
        self.line.lock().ended.is_some()
    }

    /// Sends a request, with at most [`SHARED_PAYLOAD_BYTES_MAX`] of payload either way. `None` if the
    /// request is too large for a shared session, or the maximum number of requests is unanswered: then ask
    /// in another session.
    pub fn ask(&self, grant: &Grant, request: &DriveRequest, payload: &[u8]) -> Result<Option<Asking>> {
        let payload_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        if !self.line.is_private && grant.capability.protection == Protection::Privacy {
            return Err(in_clear(&self.line.address));
        }
        let mut guard = self.line.lock();
        let state = &mut *guard;
        if let Some(ended) = &state.ended {
            return Err(self.line.error(ended));
        }
        if payload_bytes > SHARED_PAYLOAD_BYTES_MAX || state.places.len() >= ASKED_MAX {
            return Ok(None);
        }
        let begin = state.unsent.len();
        let number = state.request + 1;
        let body = begin + HEADER_BYTES;
        state.unsent.resize(body, 0);
        let asked = state.seal.seal(grant, number, request, payload_bytes, &mut state.unsent);
        if u32::try_from(state.unsent.len() - body).is_ok_and(|bytes| bytes > STRANGER_BODY_BYTES_MAX) {
            // The sequence number of this request is left out, which the drive accepts.
            state.unsent.truncate(begin);
            return Ok(None);
        }
        state.request = number;
        let header = FrameHeader::new(request.kind(), number, &state.unsent[body..], payload_bytes);
        state.unsent[begin..body].copy_from_slice(&header.emit());
        state.unsent.extend_from_slice(payload);
        state.places.insert(number, AnswerPlace::Waiting { since: state.looks, waker: None });
        let driver = if begin == 0 { state.driver.take() } else { None };
        drop(guard);
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(Some(Asking { line: Arc::clone(&self.line), asked }))
    }
}

impl Drop for SharedSession {
    fn drop(&mut self) {
        let driver = {
            let mut state = self.line.lock();
            state.is_closing = true;
            state.driver.take()
        };
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session and wakes all callers that wait.
    fn end(&self, why: Ended) {
        let wakers: Vec<Waker> = {
            let mut state = self.lock();
            state.ended.get_or_insert(why);
            let waiting = state.places.values_mut().filter_map(|place| match place {
                AnswerPlace::Waiting { waker, .. } => waker.take(),
                AnswerPlace::Came(..) | AnswerPlace::Late | AnswerPlace::Abandoned => None,
            });
            let mut wakers: Vec<Waker> = waiting.collect();
            wakers.extend(state.driver.take());
            wakers
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn error(&self, ended: &Ended) -> TransportError {
        let address = self.address.to_string();
        match ended {
            Ended::Closed => TransportError::Closed { address },
            Ended::Stalled => TransportError::Timeout { what: "in the middle of a frame", address },
            Ended::Misbehaved(what) => TransportError::Unexpected { address, what: what.clone() },
        }
    }

    /// Checks and decodes an answer. An answer that is not the drive's ends the session.
    fn open(self: &Arc<Line>, asked: &Asked, header: &FrameHeader, bytes: Vec<u8>) -> Result<SmallAnswer> {
        let payload_from = usize::try_from(header.body_bytes).expect("a body is at most 1 MiB");
        let body = &bytes[..payload_from];
        let opened = match header.check_body(body) {
            Ok(()) => asked.open(header, body).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let opened = opened.and_then(|(head, reply)| match &reply {
            DriveReply::Read(_) => Ok((head, reply)),
            _ if header.payload_bytes == 0 => Ok((head, reply)),
            _ => Err(format!("payload with {}", reply.name())),
        });
        match opened {
            Ok((head, reply)) => {
                let payload = SmallPayload { line: Arc::clone(self), bytes, from: payload_from };
                Ok(SmallAnswer { head, reply, payload })
            }
            Err(what) => {
                let ended = Ended::Misbehaved(what);
                let error = self.error(&ended);
                self.end(ended);
                Err(error)
            }
        }
    }
}

impl Future for Asking {
    type Output = Result<SmallAnswer>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<SmallAnswer>> {
        let mut guard = self.line.lock();
        let state = &mut *guard;
        let Entry::Occupied(mut place) = state.places.entry(self.asked.request()) else {
            return Poll::Ready(Err(self.line.error(&Ended::Closed)));
        };
        match place.get_mut() {
            AnswerPlace::Came(..) => {
                let AnswerPlace::Came(header, bytes) = place.remove() else {
                    unreachable!("it was looked at")
                };
                drop(guard);
                Poll::Ready(self.line.open(&self.asked, &header, bytes))
            }
            AnswerPlace::Late | AnswerPlace::Abandoned => {
                *place.get_mut() = AnswerPlace::Abandoned;
                let address = self.line.address.to_string();
                Poll::Ready(Err(TransportError::Timeout { what: "for an answer", address }))
            }
            AnswerPlace::Waiting { waker, .. } => match &state.ended {
                Some(ended) => Poll::Ready(Err(self.line.error(ended))),
                None => {
                    if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                        *waker = Some(context.waker().clone());
                    }
                    Poll::Pending
                }
            },
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut state = self.line.lock();
        match state.places.get_mut(&self.asked.request()) {
            None => {}
            Some(AnswerPlace::Came(..)) => drop(state.places.remove(&self.asked.request())),
            Some(place) => *place = AnswerPlace::Abandoned,
        }
    }
}

impl SmallPayload {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..]
    }
}

impl Drop for SmallPayload {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() <= BUFFER_KEPT_BYTES {
            let mut state = self.line.lock();
            if state.spare.len() < BUFFERS_KEPT {
                state.spare.push(bytes);
            }
        }
    }
}
