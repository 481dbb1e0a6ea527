//! The receiving direction of a connection.
//!
//! A read for a header takes what has come, up to [`AHEAD_BYTES`], so that a small frame costs one system call and a
//! burst of small ones less. The rest of a payload is read straight to its place.

use std::sync::Arc;
use std::time::Duration;

use braid_wire::FrameHeader;
use braid_wire::frame::HEADER_BYTES;
use bytes::BufMut;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use crate::bodies::{Bodies, STRANGER_BODY_BYTES_MAX, Share};
use crate::error::{Result, TransportError};
use crate::limits::Limits;
use crate::places::{Place, Work};

/// What a read for a header may take beyond it. Small, as what is a payload's of it is copied.
const AHEAD_BYTES: usize = 4096;
/// Bodies up to this capacity are kept for the next frame.
const BODY_KEPT_BYTES: usize = 8 << 10;
/// Skipped payloads are read in pieces of this size.
const SKIP_BYTES: usize = 64 << 10;

/// Receives frames. After an error, or a call that was dropped midway, it is poisoned.
#[derive(Debug)]
pub struct Receiver {
    inner: OwnedReadHalf,
    address: Arc<str>,
    limits: Limits,
    /// Bytes that came with the last header, from `taken` on not yet used.
    ahead: Vec<u8>,
    taken: usize,
    /// Bytes of the last frame's payload that were not taken yet.
    payload_left: u32,
    /// A body to use again.
    spare: Vec<u8>,
    /// False while bytes are under way whose loss would leave the stream out of step.
    sound: bool,
    /// What it holds at its listener, if it was accepted.
    held: Option<Held>,
}

/// What an accepted connection holds.
#[derive(Debug)]
pub(crate) struct Held {
    /// Its part of all connections; the sender has it too.
    pub(crate) slot: Arc<OwnedSemaphorePermit>,
    /// A stranger's place, or one of those who have proved themselves.
    pub(crate) place: Place,
    /// Until when it must have proved itself; `None`: it has.
    pub(crate) stranger_until: Option<Instant>,
    pub(crate) bodies: Bodies,
    /// Its share of the memory of bodies, until the next frame.
    pub(crate) share: Option<Share>,
    /// Kept from a frame's first byte until the next frame is waited for.
    pub(crate) work: Option<Work>,
}

/// Whether a wait is for a frame to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Begin,
    Middle,
}

impl Receiver {
    pub(crate) fn new(
        inner: OwnedReadHalf,
        address: Arc<str>,
        limits: Limits,
        held: Option<Held>,
    ) -> Receiver {
        let ahead = Vec::with_capacity(AHEAD_BYTES);
        Receiver {
            inner,
            address,
            limits,
            ahead,
            taken: 0,
            payload_left: 0,
            spare: Vec::new(),
            sound: true,
            held,
        }
    }

    /// The peer has proved itself: it has this place instead of a stranger's, and the usual bounds.
    pub fn admit(&mut self, place: Place) {
        if let Some(held) = &mut self.held {
            held.work = Some(place.work());
            (held.place, held.stranger_until) = (place, None);
        }
    }

    /// Work for the peer that goes on when its next frame is waited for: until it is dropped, the connection is not idle.
    pub fn work(&self) -> Option<Work> {
        self.held.as_ref().map(|held| held.place.work())
    }

    /// The peer, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The next frame's header and body, waiting at most `limits.idle` for its first byte. `None`: the peer closed
    /// between frames. What is left of the last payload is skipped. Its own payload is to be taken next. Cancel-safe as long as
    /// nothing of the frame has come.
    pub async fn frame(&mut self) -> Result<Option<(FrameHeader, Vec<u8>)>> {
        self.frame_within(self.limits.idle, "for the next request").await
    }

    /// As [`Receiver::frame`], with a bound of its own; `what` names the wait in the error.
    pub async fn frame_within(
        &mut self,
        wait: Duration,
        what: &'static str,
    ) -> Result<Option<(FrameHeader, Vec<u8>)>> {
        self.require_sound()?;
        if self.payload_left > 0 {
            self.skip(self.payload_left).await?;
        }
        if let Some(held) = &mut self.held {
            (held.share, held.work) = (None, None);
        }
        if !self.wait_for_first_byte(wait, what).await? {
            return Ok(None);
        }
        self.sound = false;
        if let Some(held) = &mut self.held {
            held.work = Some(held.place.work());
        }
        let deadline = Instant::now() + self.limits.stall;
        while self.ahead.len() - self.taken < HEADER_BYTES {
            self.read_ahead(deadline).await?;
        }
        let header = self.ahead[self.taken..].first_chunk::<HEADER_BYTES>().expect("a header has come");
        let header = FrameHeader::parse(header).map_err(|source| self.frame_error(source))?;
        self.taken += HEADER_BYTES;
        self.take_share(header.body_bytes).await?;
        let mut body = std::mem::take(&mut self.spare);
        body.clear();
        body.reserve_exact(usize::try_from(header.body_bytes).expect("a body is at most 1 MiB"));
        self.take_into(&mut body, header.body_bytes).await?;
        header.check_body(&body).map_err(|source| self.frame_error(source))?;
        self.payload_left = header.payload_bytes;
        self.sound = true;
        Ok(Some((header, body)))
    }

    /// Gives a body back to be used for a later frame.
    pub fn recycle(&mut self, body: Vec<u8>) {
        if body.capacity() <= BODY_KEPT_BYTES && body.capacity() > self.spare.capacity() {
            self.spare = body;
        }
    }

    /// Bytes of the last frame's payload that were not taken yet.
    pub fn payload_left(&self) -> u32 {
        self.payload_left
    }

    /// Takes the next `into.len()` bytes of the last frame's payload. A payload may be taken in several pieces; to ask for
    /// more than is left is an error.
    pub async fn payload(&mut self, mut into: &mut [u8]) -> Result<()> {
        let bytes = u32::try_from(into.len()).unwrap_or(u32::MAX);
        self.payload_into(&mut into, bytes).await
    }

    /// Takes the next `bytes` of the last frame's payload into spare capacity, which need not be initialised.
    pub async fn payload_into(&mut self, into: &mut impl BufMut, bytes: u32) -> Result<()> {
        self.require_sound()?;
        if bytes > self.payload_left {
            let what = format!("payload: {} bytes are left, {bytes} were expected", self.payload_left);
            return Err(TransportError::Unexpected { address: self.address.to_string(), what });
        }
        self.sound = false;
        self.take_into(into, bytes).await?;
        self.payload_left -= bytes;
        self.sound = true;
        Ok(())
    }

    /// Passes over the next `bytes` of the last frame's payload.
    pub async fn skip(&mut self, bytes: u32) -> Result<()> {
        let mut scrap = Vec::with_capacity(SKIP_BYTES.min(usize::try_from(bytes).unwrap_or(SKIP_BYTES)));
        let mut left = bytes;
        while left > 0 {
            scrap.clear();
            let piece = left.min(u32::try_from(SKIP_BYTES).expect("it is 64 KiB"));
            self.payload_into(&mut scrap, piece).await?;
            left -= piece;
        }
        Ok(())
    }

    /// What a body of `bytes` needs before a byte of it is taken.
    async fn take_share(&mut self, bytes: u32) -> Result<()> {
        let Some(held) = &mut self.held else { return Ok(()) };
        let (address, most) = (|| self.address.to_string(), STRANGER_BODY_BYTES_MAX);
        if held.stranger_until.is_some() && bytes > most {
            return Err(TransportError::TooMuch { address: address(), bytes, most });
        }
        let what = "for memory: too many large requests at a time";
        held.share = timeout(self.limits.stall, held.bodies.share(bytes))
            .await
            .map_err(|_| TransportError::Timeout { what, address: address() })?;
        Ok(())
    }

    fn require_sound(&self) -> Result<()> {
        if self.sound { Ok(()) } else { Err(TransportError::Poisoned { address: self.address.to_string() }) }
    }

    fn frame_error(&self, source: braid_wire::FrameError) -> TransportError {
        TransportError::Frame { address: self.address.to_string(), source }
    }

    /// False if the stream ended here instead.
    async fn wait_for_first_byte(&mut self, wait: Duration, what: &'static str) -> Result<bool> {
        if self.taken < self.ahead.len() {
            return Ok(true);
        }
        self.ahead.clear();
        self.taken = 0;
        let mut into = (&mut self.ahead).limit(AHEAD_BYTES);
        match read(&mut self.inner, &mut into, wait, self.held.as_ref(), At::Begin).await {
            Read::Late => Err(TransportError::Timeout { what, address: self.address.to_string() }),
            Read::Done(Err(source)) => Err(TransportError::io(&self.address, source)),
            Read::Done(Ok(read)) => Ok(read > 0),
            Read::GaveWay => Err(TransportError::GaveWay { address: self.address.to_string() }),
        }
    }

    async fn read_ahead(&mut self, deadline: Instant) -> Result<()> {
        if self.taken > 0 {
            self.ahead.drain(..self.taken);
            self.taken = 0;
        }
        let room = AHEAD_BYTES - self.ahead.len();
        let wait = self.limits.stall.min(deadline.saturating_duration_since(Instant::now()));
        let mut into = (&mut self.ahead).limit(room);
        let read = read(&mut self.inner, &mut into, wait, self.held.as_ref(), At::Middle).await;
        self.progress(read).map(drop)
    }

    async fn take_into(&mut self, into: &mut impl BufMut, bytes: u32) -> Result<()> {
        let deadline = Instant::now() + self.limits.whole(u64::from(bytes));
        let mut left = usize::try_from(bytes).expect("payloads are at most 64 MiB");
        let from_ahead = left.min(self.ahead.len() - self.taken);
        into.put_slice(&self.ahead[self.taken..self.taken + from_ahead]);
        self.taken += from_ahead;
        left -= from_ahead;
        while left > 0 {
            let wait = self.limits.stall.min(deadline.saturating_duration_since(Instant::now()));
            let mut into = (&mut *into).limit(left);
            let read = read(&mut self.inner, &mut into, wait, self.held.as_ref(), At::Middle).await;
            left -= self.progress(read)?;
        }
        Ok(())
    }

    fn progress(&self, read: Read) -> Result<usize> {
        let address = || self.address.to_string();
        match read {
            Read::Late => {
                Err(TransportError::Timeout { what: "in the middle of a frame", address: address() })
            }
            Read::Done(Err(source)) => Err(TransportError::io(&self.address, source)),
            Read::Done(Ok(0)) => Err(TransportError::Closed { address: address() }),
            Read::Done(Ok(read)) => Ok(read),
            Read::GaveWay => Err(TransportError::GaveWay { address: address() }),
        }
    }
}

/// How a read ended.
enum Read {
    Done(std::io::Result<usize>),
    Late,
    GaveWay,
}

/// One read within its bounds. A stranger's ends when its time is up or its place is another's; one that has proved itself gives way
/// between frames only.
async fn read(
    inner: &mut OwnedReadHalf,
    into: &mut impl BufMut,
    wait: Duration,
    held: Option<&Held>,
    at: At,
) -> Read {
    let (mut wait, mut place) = (wait, None);
    if let Some(held) = held {
        if let Some(until) = held.stranger_until {
            wait = wait.min(until.saturating_duration_since(Instant::now()));
        }
        place = (at == At::Begin || held.stranger_until.is_some()).then_some(&held.place);
    }
    let given_away = async {
        match place {
            Some(place) => place.given_away().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = given_away => Read::GaveWay,
        read = timeout(wait, inner.read_buf(into)) => read.map_or(Read::Late, Read::Done),
    }
}
