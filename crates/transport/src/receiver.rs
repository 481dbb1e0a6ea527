//! The receiving direction of a connection.
//!
//! A read for a header takes up to [`AHEAD_BYTES`] of what has arrived, so a small frame costs one system
//! call and a burst of them less than one each. The rest of a payload is read straight to its destination.

use std::sync::Arc;
use std::time::Duration;

use braid_wire::FrameHeader;
use braid_wire::frame::HEADER_BYTES;
use bytes::BufMut;
use tokio::io::AsyncReadExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use crate::allowance::Allowance;
use crate::bodies::{Bodies, STRANGER_BODY_BYTES_MAX, Share};
use crate::datagrams::Kept;
use crate::error::{Result, TransportError};
use crate::limits::Limits;
use crate::losses;
use crate::net::{ReadHalf, WriteHalf};
use crate::sender::Sender;
use crate::slots::{ConnectionSlot, Work};

/// Maximum number of bytes of a read for a header. Small, since payload bytes in it are copied.
const AHEAD_BYTES: usize = 16 << 10;
/// Maximum capacity in bytes of a body buffer that is kept for reuse.
const BODY_KEPT_BYTES: usize = 8 << 10;
/// Size in bytes of the pieces in which skipped payloads are read.
const SKIP_BYTES: usize = 64 << 10;

/// Receives frames. The receiver is poisoned after an error or a call that was dropped midway.
#[derive(Debug)]
pub struct Receiver {
    inner: ReadHalf,
    address: Arc<str>,
    limits: Limits,
    /// Bytes that were read with the last header; those before `taken` are used up.
    ahead: Vec<u8>,
    taken: usize,
    /// Bytes of the last frame's payload that were not taken yet.
    payload_left: u32,
    /// A body buffer kept for reuse.
    spare: Vec<u8>,
    /// False while a partly done read, if lost, would leave the stream out of step.
    sound: bool,
    /// Resources of the listener that the connection holds, if it was accepted.
    held: Option<ConnectionResources>,
    /// When losses were last looked for, and the segments that had come out of order until then.
    looked: (Instant, u32),
}

/// Resources that an accepted connection holds.
#[derive(Debug)]
pub(crate) struct ConnectionResources {
    /// The connection's permit among all connections; the sender shares it.
    pub(crate) slot: Arc<OwnedSemaphorePermit>,
    /// The connection's slot: one for unauthenticated peers, or later one for its kind of peer.
    pub(crate) place: Arc<ConnectionSlot>,
    /// The deadline for authentication; `None` once it has succeeded.
    pub(crate) stranger_until: Option<Instant>,
    /// The frames and bytes that the peer may still send until it is authenticated.
    pub(crate) allowance: Allowance,
    pub(crate) bodies: Bodies,
    /// The connection's share of the memory for bodies, until the next frame.
    pub(crate) share: Option<Share>,
    /// Mark of work in progress, held from a frame's first byte until the wait for the next frame.
    pub(crate) work: Option<Work>,
}

impl ConnectionResources {
    /// A connection of datagrams goes on after its receiver and sender: it keeps its places until it is over.
    pub(crate) fn share_with(&self, inner: &ReadHalf) {
        if let Some(held) = inner.as_datagrams() {
            held.keep(Kept { _permit: Arc::clone(&self.slot), place: Arc::clone(&self.place) });
        }
    }
}

/// A receiver whose socket was taken out, to put another in its place.
pub(crate) struct Detached {
    address: Arc<str>,
    limits: Limits,
    held: Option<ConnectionResources>,
}

/// Position of a wait in the stream: before the first byte of a frame, or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Begin,
    Middle,
}

impl Receiver {
    pub(crate) fn new(
        inner: ReadHalf,
        address: Arc<str>,
        limits: Limits,
        held: Option<ConnectionResources>,
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
            looked: (Instant::now(), 0),
        }
    }

    /// Returns true if segments of the connection were lost on their way here since the last call, if that
    /// was lately: else nobody knows when. Costs a system call.
    pub fn has_lost(&mut self) -> bool {
        let Some(count) = self.inner.as_tcp().and_then(losses::out_of_order) else { return false };
        losses::is_recent(&mut self.looked, Instant::now(), count)
    }

    /// By datagrams: paces what this side sends by this rate, in bytes per second; `None`: as the policy
    /// does.
    pub fn pace(&self, rate: Option<u64>) {
        if let Some(held) = self.inner.as_datagrams() {
            held.set_rate(rate);
        }
    }

    /// By datagrams: tells the peer how many bytes may be on their way here; `None`: no bound.
    pub fn tell_window(&self, bytes: Option<u64>) {
        if let Some(held) = self.inner.as_datagrams() {
            held.set_window(bytes);
        }
    }

    /// Admits an authenticated peer: it gets `place` instead of its first slot, and the usual bounds.
    pub fn admit(&mut self, place: ConnectionSlot) {
        if let Some(held) = &mut self.held {
            held.work = Some(place.work());
            (held.place, held.stranger_until) = (Arc::new(place), None);
            held.share_with(&self.inner);
        }
    }

    /// Marks work for the peer that continues while its next frame is awaited: the connection is not idle
    /// until the value is dropped.
    pub fn work(&self) -> Option<Work> {
        self.held.as_ref().map(|held| held.place.work())
    }

    /// Counts the connection as idle until its next frame, as its peer only waits.
    pub(crate) fn rest(&mut self) {
        if let Some(held) = &mut self.held {
            held.work = None;
        }
    }

    /// The peer's address, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The next frame's header and body, waiting at most `limits.idle` for its first byte. `None` if the peer
    /// closed between frames. Unread payload of the last frame is skipped; the new payload is to be taken
    /// next. Cancel-safe until the first byte of the frame has arrived.
    pub async fn frame(&mut self) -> Result<Option<(FrameHeader, Vec<u8>)>> {
        self.frame_within(self.limits.idle, "for the next request").await
    }

    /// Like [`Receiver::frame`], with an explicit bound; `what` names the wait in the error.
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
        self.count(&header)?;
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

    /// The next frame, if all of its header and body came with the last one: this never waits. If `None`,
    /// call [`Receiver::frame`].
    pub fn frame_at_hand(&mut self) -> Result<Option<(FrameHeader, Vec<u8>)>> {
        if !self.sound || self.payload_left > 0 {
            return Ok(None);
        }
        let Some((header, rest)) = self.ahead[self.taken..].split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let parsed = FrameHeader::parse(header);
        self.sound = parsed.is_ok();
        let header = parsed.map_err(|source| self.frame_error(source))?;
        let bytes = usize::try_from(header.body_bytes).expect("a body is at most 1 MiB");
        if header.body_bytes > STRANGER_BODY_BYTES_MAX || rest.len() < bytes {
            return Ok(None);
        }
        if let Some(held) = &mut self.held {
            held.share = None;
        }
        let mut body = std::mem::take(&mut self.spare);
        body.clear();
        body.extend_from_slice(&rest[..bytes]);
        self.taken += HEADER_BYTES + bytes;
        self.sound = false;
        self.count(&header)?;
        let checked = header.check_body(&body);
        self.sound = checked.is_ok();
        checked.map_err(|source| self.frame_error(source))?;
        self.payload_left = header.payload_bytes;
        Ok(Some((header, body)))
    }

    /// Waits for the first byte of the connection, within the bounds of an unauthenticated peer, and returns
    /// true if it is this one. Takes nothing.
    pub(crate) async fn begins_with(&self, first: u8) -> Result<bool> {
        let Some(socket) = self.inner.as_tcp().filter(|_| !self.has_more()) else { return Ok(false) };
        let address = || self.address.to_string();
        let until = self.held.as_ref().and_then(|held| held.stranger_until);
        let left = until.map_or(self.limits.proof, |until| until.saturating_duration_since(Instant::now()));
        let given_away = async {
            match &self.held {
                Some(held) => held.place.given_away().await,
                None => std::future::pending().await,
            }
        };
        let mut byte = [0];
        tokio::select! {
            biased;
            () = given_away => Err(TransportError::GaveWay { address: address() }),
            peeked = timeout(left, socket.peek(&mut byte)) => match peeked {
                Err(_) => Err(TransportError::Timeout { what: "for its first request", address: address() }),
                Ok(Err(source)) => Err(TransportError::io(&self.address, source)),
                Ok(Ok(bytes)) => Ok(bytes == 1 && byte[0] == first),
            }
        }
    }

    /// Returns true if the next byte is a frame's first.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.sound && self.payload_left == 0
    }

    /// Returns true if bytes were read that were not used yet.
    pub(crate) fn has_more(&self) -> bool {
        self.taken < self.ahead.len()
    }

    /// The bounds of this connection's waits.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes out the socket of a receiver that is between frames and has no more bytes.
    pub(crate) fn detach(self) -> (ReadHalf, Detached) {
        let Receiver { inner, address, limits, held, .. } = self;
        (inner, Detached { address, limits, held })
    }

    /// The socket, and the bytes that were read from it and not used.
    pub(crate) fn into_parts(mut self) -> (ReadHalf, Vec<u8>) {
        self.ahead.drain(..self.taken);
        (self.inner, self.ahead)
    }

    /// Returns a body's buffer for reuse in a later frame.
    pub fn recycle(&mut self, body: Vec<u8>) {
        if body.capacity() <= BODY_KEPT_BYTES && body.capacity() > self.spare.capacity() {
            self.spare = body;
        }
    }

    /// Number of bytes of the last frame's payload that were not taken yet.
    pub fn payload_left(&self) -> u32 {
        self.payload_left
    }

    /// Reads the next `into.len()` bytes of the last frame's payload, which may be read in several pieces.
    /// Reading beyond its end is an error.
    pub async fn payload(&mut self, mut into: &mut [u8]) -> Result<()> {
        let bytes = u32::try_from(into.len()).unwrap_or(u32::MAX);
        self.payload_into(&mut into, bytes).await
    }

    /// Reads the next `bytes` of the last frame's payload into spare, possibly uninitialised capacity.
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

    /// Skips the next `bytes` of the last frame's payload.
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

    /// Counts a frame of a peer that is not authenticated.
    fn count(&mut self, header: &FrameHeader) -> Result<()> {
        let Some(held) = self.held.as_mut().filter(|held| held.stranger_until.is_some()) else {
            return Ok(());
        };
        let header_bytes = u64::try_from(HEADER_BYTES).expect("it is short");
        let bytes = header_bytes + u64::from(header.body_bytes) + u64::from(header.payload_bytes);
        held.allowance.take(bytes).map_err(|spent| TransportError::TooManyBefore {
            address: self.address.to_string(),
            what: spent.to_string(),
        })
    }

    /// Reserves memory for a body of `bytes` before any of it is read.
    async fn take_share(&mut self, bytes: u32) -> Result<()> {
        let Some(held) = &mut self.held else { return Ok(()) };
        let address = || self.address.to_string();
        let most = STRANGER_BODY_BYTES_MAX;
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

    /// Waits for the first byte of a frame. Returns false if the stream ended instead.
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

impl Detached {
    /// Does `work` on the connection within `wait`, which `what` names in the error. An unauthenticated
    /// peer's work ends at its deadline too, or when its slot goes to another.
    pub(crate) async fn within<T>(
        &self,
        wait: Duration,
        what: &'static str,
        work: impl Future<Output = T>,
    ) -> Result<T> {
        let until = self.held.as_ref().and_then(|held| held.stranger_until);
        let left = until.map_or(wait, |until| until.saturating_duration_since(Instant::now()));
        let given_away = async {
            match &self.held {
                Some(held) => held.place.given_away().await,
                None => std::future::pending().await,
            }
        };
        let address = || self.address.to_string();
        tokio::select! {
            biased;
            () = given_away => Err(TransportError::GaveWay { address: address() }),
            done = timeout(wait.min(left), work) => {
                done.map_err(|_| TransportError::Timeout { what, address: address() })
            }
        }
    }

    /// A sender on this connection.
    pub(crate) fn sender(&self, inner: WriteHalf) -> Sender {
        let slot = self.held.as_ref().map(|held| Arc::clone(&held.slot));
        Sender::new(inner, Arc::clone(&self.address), self.limits, slot)
    }

    /// The receiver with this socket.
    pub(crate) fn attach(self, inner: ReadHalf) -> Receiver {
        Receiver::new(inner, self.address, self.limits, self.held)
    }
}

/// The outcome of a read.
enum Read {
    Done(std::io::Result<usize>),
    Late,
    GaveWay,
}

/// Does one bounded read. For an unauthenticated peer the read ends at the deadline or when the peer's slot
/// goes to another. An authenticated peer gives up its slot only between frames.
async fn read(
    inner: &mut ReadHalf,
    into: &mut impl BufMut,
    wait: Duration,
    held: Option<&ConnectionResources>,
    at: At,
) -> Read {
    let mut wait = wait;
    let mut place = None;
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
