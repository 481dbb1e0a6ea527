//! The task of a shared session: it sends what callers have asked and hands out the answers.
//!
//! Before the task sends, it yields to the tasks that can run: a caller that has just got an answer may make
//! its next request, which is then sent along.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use braid_wire::frame::{FrameHeader, HEADER_BYTES};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::{AnswerPlace, Ended, LOOKS_PER_WAIT, Line, State};
use crate::limits::Limits;
use crate::net::{ReadHalf, WriteHalf};

/// Maximum number of bytes of one read: a dozen answers of 4 KiB.
const AHEAD_BYTES: usize = 64 << 10;
/// Maximum length of an answer's frame. One with 16 KiB of payload has a few hundred bytes more, or a list of
/// extents.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// The connection of a shared session.
pub(super) struct Driver {
    line: Arc<Line>,
    read: ReadHalf,
    write: WriteHalf,
    /// Received bytes; those not yet handed out lie at `taken..filled`.
    ahead: Vec<u8>,
    taken: usize,
    filled: usize,
    /// Frames to send, of which the first `written` bytes are sent.
    sending: Vec<u8>,
    written: usize,
    /// True if bytes that were taken may wait for a flush, within TLS.
    unflushed: bool,
    /// Counter of the bytes sent, if any.
    sent: Option<Arc<AtomicU64>>,
    /// Timer of the next look for overdue answers, which runs while some are awaited.
    look: Pin<Box<Sleep>>,
    is_looking: bool,
    /// `has_moved` is true if bytes went either way since the last look; `unmoved` is the number of looks in
    /// a row that found a frame begun and none moved.
    has_moved: bool,
    unmoved: u32,
}

/// Outcome of a poll.
enum Step {
    /// Callers have made requests.
    Asked,
    Ended(Ended),
}

/// Ends the session when its task ends, also when the runtime stops.
struct EndOnDrop(Arc<Line>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(Ended::Closed);
    }
}

impl Driver {
    /// Makes the driver of a connection. `received` was already read from it.
    pub(super) fn new(
        line: Arc<Line>,
        read: ReadHalf,
        received: Vec<u8>,
        write: WriteHalf,
        sent: Option<Arc<AtomicU64>>,
    ) -> Driver {
        let filled = received.len();
        let mut ahead = received;
        ahead.resize(AHEAD_BYTES.max(filled), 0);
        Driver {
            look: Box::pin(sleep(between_looks(&line.limits))),
            line,
            read,
            write,
            ahead,
            taken: 0,
            filled,
            sending: Vec::new(),
            written: 0,
            unflushed: false,
            sent,
            is_looking: false,
            has_moved: false,
            unmoved: 0,
        }
    }

    /// Runs until the session ends.
    pub(super) async fn run(mut self) {
        let line = Arc::clone(&self.line);
        let _end = EndOnDrop(Arc::clone(&line));
        loop {
            match poll_fn(|context| self.poll(context)).await {
                Step::Asked => {
                    tokio::task::yield_now().await;
                    self.sending.clear();
                    self.written = 0;
                    std::mem::swap(&mut self.sending, &mut line.lock().unsent);
                }
                Step::Ended(why) => return line.end(why),
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        if let Err(why) = self.receive(context).and_then(|()| self.send(context)) {
            return Poll::Ready(Step::Ended(why));
        }
        let is_awaited = {
            let mut state = self.line.lock();
            if let Some(why) = &state.ended {
                return Poll::Ready(Step::Ended(why.clone()));
            }
            if self.written == self.sending.len() && !state.unsent.is_empty() {
                return Poll::Ready(Step::Asked);
            }
            let is_over = |place| matches!(place, &AnswerPlace::Abandoned);
            if state.is_closing && state.places.values().all(is_over) {
                return Poll::Ready(Step::Ended(Ended::Closed));
            }
            if !state.driver.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                state.driver = Some(context.waker().clone());
            }
            !state.places.is_empty()
        };
        self.look(context, is_awaited).map(Step::Ended)
    }

    /// Takes the bytes that have come, and hands out the answers in them.
    fn receive(&mut self, context: &mut Context<'_>) -> Result<(), Ended> {
        loop {
            let mut into = ReadBuf::new(&mut self.ahead[self.filled..]);
            match Pin::new(&mut self.read).poll_read(context, &mut into) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) => return Err(ended(&error)),
                Poll::Ready(Ok(())) if into.filled().is_empty() => return Err(Ended::Closed),
                Poll::Ready(Ok(())) => {
                    self.filled += into.filled().len();
                    self.has_moved = true;
                    self.hand_out()?;
                }
            }
        }
    }

    fn hand_out(&mut self) -> Result<(), Ended> {
        let mut wakers: Vec<Waker> = Vec::new();
        let mut guard = self.line.lock();
        let State { places, spare, .. } = &mut *guard;
        let ended = loop {
            let rest = &self.ahead[self.taken..self.filled];
            let Some(header) = rest.first_chunk::<HEADER_BYTES>() else { break Ok(HEADER_BYTES) };
            let header = match FrameHeader::parse(header) {
                Ok(header) => header,
                Err(error) => break Err(error.to_string()),
            };
            let bytes = HEADER_BYTES + wide(header.body_bytes) + wide(header.payload_bytes);
            if bytes > FRAME_BYTES_MAX {
                break Err(format!("a frame of {bytes} bytes for a small request"));
            }
            let Some(frame) = rest.get(HEADER_BYTES..bytes) else { break Ok(bytes) };
            self.taken += bytes;
            if let Err(why) = place(&mut *places, &mut *spare, header, frame, &mut wakers) {
                break Err(why);
            }
        };
        drop(guard);
        wakers.into_iter().for_each(Waker::wake);
        let needed = ended.map_err(Ended::Misbehaved)?;
        self.make_room(needed);
        Ok(())
    }

    /// Makes room for a frame of so many bytes, of which the first have come.
    fn make_room(&mut self, frame_bytes: usize) {
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
        } else if self.ahead.len() - self.taken < frame_bytes.max(AHEAD_BYTES / 4) {
            self.ahead.copy_within(self.taken..self.filled, 0);
            (self.taken, self.filled) = (0, self.filled - self.taken);
            if self.ahead.len() < frame_bytes {
                self.ahead.resize(frame_bytes, 0);
            }
        }
    }

    /// Sends as many bytes as the connection takes.
    fn send(&mut self, context: &mut Context<'_>) -> Result<(), Ended> {
        while self.written < self.sending.len() {
            match Pin::new(&mut self.write).poll_write(context, &self.sending[self.written..]) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Err(ended(&error)),
                Poll::Ready(Ok(0)) => return Err(Ended::Closed),
                Poll::Ready(Ok(bytes)) => {
                    self.written += bytes;
                    self.has_moved = true;
                    self.unflushed = self.write.needs_flush();
                    if let Some(sent) = &self.sent {
                        sent.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
                    }
                }
            }
        }
        if self.unflushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.write).poll_flush(context)
        {
            flushed.map_err(|error| ended(&error))?;
            self.unflushed = false;
        }
        Ok(())
    }

    /// Looks from time to time for overdue answers, and for a frame that has begun and goes no further.
    fn look(&mut self, context: &mut Context<'_>, is_awaited: bool) -> Poll<Ended> {
        let between = between_looks(&self.line.limits);
        loop {
            if !self.is_looking {
                if !is_awaited {
                    return Poll::Pending;
                }
                self.look.as_mut().reset(Instant::now() + between);
                self.is_looking = true;
            }
            if self.look.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.is_looking = false;
            let is_midway = self.taken < self.filled || self.written < self.sending.len();
            self.unmoved = if is_midway && !self.has_moved { self.unmoved + 1 } else { 0 };
            self.has_moved = false;
            if between * self.unmoved > self.line.limits.stall {
                return Poll::Ready(Ended::Stalled);
            }
            self.tell_overdue();
        }
    }

    fn tell_overdue(&self) {
        let mut state = self.line.lock();
        state.looks += 1;
        let looks = state.looks;
        let mut wakers: Vec<Waker> = Vec::new();
        for place in state.places.values_mut() {
            if let AnswerPlace::Waiting { since, waker } = place
                && looks - *since > u64::from(LOOKS_PER_WAIT)
            {
                wakers.extend(waker.take());
                *place = AnswerPlace::Late;
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Puts an answer where its caller finds it, or discards it if no caller waits for it.
fn place(
    places: &mut BTreeMap<u64, AnswerPlace>,
    spare: &mut Vec<Vec<u8>>,
    header: FrameHeader,
    frame: &[u8],
    wakers: &mut Vec<Waker>,
) -> Result<(), String> {
    let number = header.request;
    match places.get_mut(&number) {
        None | Some(AnswerPlace::Came(..)) => {
            Err(format!("answer to request {number}, which is not waiting for one"))
        }
        Some(AnswerPlace::Abandoned | AnswerPlace::Late) => {
            places.remove(&number);
            Ok(())
        }
        Some(place) => {
            let mut bytes = spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(frame);
            let came = AnswerPlace::Came(header, bytes);
            if let AnswerPlace::Waiting { waker: Some(waker), .. } = std::mem::replace(place, came) {
                wakers.push(waker);
            }
            Ok(())
        }
    }
}

fn between_looks(limits: &Limits) -> Duration {
    (limits.reply / LOOKS_PER_WAIT).max(Duration::from_millis(1))
}

fn ended(error: &io::Error) -> Ended {
    tracing::debug!(%error, "a shared session ends");
    Ended::Closed
}

fn wide(bytes: u32) -> usize {
    usize::try_from(bytes).expect("this runs on 32 bits and up")
}
