//! The sending direction of a connection.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use braid_wire::FrameHeader;
use braid_wire::frame::{BODY_BYTES_MAX, HEADER_BYTES, PAYLOAD_BYTES_MAX};
use rustix::io::Errno;
use socket2::SockRef;
use tokio::io::{AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use crate::error::{Result, TransportError};
use crate::limits::Limits;
use crate::net::WriteHalf;

/// Sends frames. The sender is poisoned after a send that failed or was dropped midway.
#[derive(Debug)]
pub struct Sender {
    inner: WriteHalf,
    address: Arc<str>,
    limits: Limits,
    /// False while a frame is being sent, and for ever after a frame that was not finished.
    sound: bool,
    /// Rest of the frames that [`Sender::send_now`] took and the connection has not taken yet. It goes before
    /// anything else.
    rest: Vec<u8>,
    /// True if bytes that were taken may wait for a flush, within TLS.
    unflushed: bool,
    /// Counter of the bytes sent, if any.
    sent: Option<Arc<AtomicU64>>,
    /// Payload bytes that are still to come of the frame that [`Sender::begin`] began.
    payload_left: usize,
    /// The connection's slot at the listener.
    _slot: Option<Arc<OwnedSemaphorePermit>>,
}

/// A piece of a payload that lies in a file.
#[derive(Debug, Clone, Copy)]
pub struct FilePiece<'a> {
    /// File that holds the piece. This part of it must not change until the peer has received the bytes:
    /// pages are sent without a copy.
    pub file: &'a File,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

impl Sender {
    pub(crate) fn new(
        inner: WriteHalf,
        address: Arc<str>,
        limits: Limits,
        slot: Option<Arc<OwnedSemaphorePermit>>,
    ) -> Sender {
        Sender {
            inner,
            address,
            limits,
            sound: true,
            rest: Vec::new(),
            unflushed: false,
            sent: None,
            payload_left: 0,
            _slot: slot,
        }
    }

    /// The peer's address, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The peer's address, shared.
    pub(crate) fn shared_address(&self) -> &Arc<str> {
        &self.address
    }

    /// By datagrams: paces what is sent by this rate, in bytes per second; `None`: as the policy does.
    pub(crate) fn pace(&self, rate: Option<u64>) {
        if let Some(held) = self.inner.as_datagrams() {
            held.set_rate(rate);
        }
    }

    /// By datagrams: tells the peer how many bytes may be on their way here; `None`: no bound.
    pub(crate) fn tell_window(&self, bytes: Option<u64>) {
        if let Some(held) = self.inner.as_datagrams() {
            held.set_window(bytes);
        }
    }

    /// Returns true if it sends by datagrams.
    pub(crate) fn is_by_datagrams(&self) -> bool {
        self.inner.as_datagrams().is_some()
    }

    /// From now on counts the bytes that this sender sends: headers, bodies and payloads.
    pub(crate) fn count_into(&mut self, sent: Arc<AtomicU64>) {
        self.sent = Some(sent);
    }

    /// Returns true if all frames so far have been sent as a whole.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.sound && self.rest.is_empty() && !self.unflushed
    }

    /// The socket, the peer's address, and the counter of the bytes sent.
    pub(crate) fn into_parts(self) -> (WriteHalf, Arc<str>, Option<Arc<AtomicU64>>) {
        (self.inner, self.address, self.sent)
    }

    fn count(&self, bytes: usize) {
        if let Some(sent) = &self.sent {
            sent.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Sends one frame by vectored writes, without copying. A body over 1 MiB, or a payload over 64 MiB in
    /// total, gives [`TransportError::TooLong`], and nothing is sent.
    pub async fn send(&mut self, kind: u16, request: u64, body: &[u8], payload: &[&[u8]]) -> Result<()> {
        let header = self.header(kind, request, body, payload.iter().map(|piece| piece.len()).sum())?;
        self.send_rest().await?;
        self.sound = false;
        let mut slices = Vec::with_capacity(2 + payload.len());
        slices.push(IoSlice::new(&header));
        slices.push(IoSlice::new(body));
        slices.extend(payload.iter().map(|piece| IoSlice::new(piece)));
        self.write_all(&mut slices).await?;
        self.sound = true;
        Ok(())
    }

    /// Sends one frame whose payload is in files, by `sendfile`: the payload is not copied in user space. The
    /// call may block on the disk if pages are not cached. Limits as for [`Sender::send`].
    ///
    /// The header is sent before a file turns out to be unreadable or short. Zeros then replace the missing
    /// bytes, so that the connection stays in step; the peer sees checksum mismatches. Returns the number of
    /// missing bytes.
    pub async fn send_files(
        &mut self,
        kind: u16,
        request: u64,
        body: &[u8],
        payload: &[FilePiece<'_>],
    ) -> Result<u32> {
        let bytes = payload.iter().map(|piece| usize::try_from(piece.length).unwrap_or(usize::MAX)).sum();
        let header = self.header(kind, request, body, bytes)?;
        self.send_rest().await?;
        self.sound = false;
        let deadline = self.deadline(header.len() + body.len() + bytes);
        let mut slices = [IoSlice::new(&header), IoSlice::new(body)];
        let mut slices = slices.as_mut_slice();
        while !slices.is_empty() {
            let more = i32::try_from(rustix::net::SendFlags::MORE.bits()).expect("a small flag");
            let sent =
                self.by(deadline, |socket| SockRef::from(socket).send_vectored_with_flags(slices, more));
            let sent = sent.await?;
            self.count(sent);
            IoSlice::advance_slices(&mut slices, sent);
        }
        let mut missing = 0;
        for piece in payload {
            missing += self.send_file(deadline, piece).await?;
        }
        self.sound = true;
        Ok(missing)
    }

    /// Begins a frame whose payload of `payload_bytes` bytes follows in parts, by [`Sender::part`] and
    /// [`Sender::file_part`]. Nothing else can be sent before all of it. Limits as for [`Sender::send`].
    pub async fn begin(&mut self, kind: u16, request: u64, body: &[u8], payload_bytes: usize) -> Result<()> {
        let header = self.header(kind, request, body, payload_bytes)?;
        self.send_rest().await?;
        self.sound = false;
        self.write_all(&mut [IoSlice::new(&header), IoSlice::new(body)]).await?;
        self.part_sent(payload_bytes, 0);
        Ok(())
    }

    /// Sends the next part of the payload of a frame that was begun. More than is left of it gives
    /// [`TransportError::Poisoned`], and nothing is sent.
    pub async fn part(&mut self, bytes: &[u8]) -> Result<()> {
        let left = self.take_part(bytes.len())?;
        self.write_all(&mut [IoSlice::new(bytes)]).await?;
        self.part_sent(left, bytes.len());
        Ok(())
    }

    /// As [`Sender::part`], of bytes in a file, by `sendfile`. Zeros replace bytes that cannot be read, as
    /// for [`Sender::send_files`]. Returns their number.
    pub async fn file_part(&mut self, piece: &FilePiece<'_>) -> Result<u32> {
        let bytes = usize::try_from(piece.length).unwrap_or(usize::MAX);
        let left = self.take_part(bytes)?;
        let missing = self.send_file(self.deadline(bytes), piece).await?;
        self.part_sent(left, bytes);
        Ok(missing)
    }

    /// Takes the begun frame to send this many bytes of it: if that is not finished, it never will be.
    /// Returns the number of bytes that were left.
    fn take_part(&mut self, bytes: usize) -> Result<usize> {
        match std::mem::take(&mut self.payload_left) {
            left if left >= bytes && left > 0 => Ok(left),
            _ => Err(TransportError::Poisoned { address: self.address.to_string() }),
        }
    }

    /// This many bytes have been sent of those that were left of a frame.
    fn part_sent(&mut self, left: usize, sent: usize) {
        self.payload_left = left - sent;
        self.sound = self.payload_left == 0;
    }

    /// Sends whole frames that the caller has put together, as far as the connection takes them now: never
    /// waits. Empties `frames`. Returns true if the connection took all; if not, the rest goes before
    /// whatever is sent next, and [`Sender::send_frames`] waits for it. While there is such a rest, nothing
    /// is taken.
    pub async fn send_now(&mut self, frames: &mut Vec<u8>) -> Result<bool> {
        self.require_sound()?;
        if !self.rest.is_empty() {
            return Ok(false);
        }
        self.unflushed = self.inner.needs_flush();
        let mut written = 0;
        while written < frames.len() {
            let left = &frames[written..];
            let now = poll_fn(|context| match Pin::new(&mut self.inner).poll_write(context, left) {
                Poll::Pending => Poll::Ready(None),
                Poll::Ready(done) => Poll::Ready(Some(done)),
            });
            match now.await {
                None => break,
                Some(Ok(bytes)) if bytes > 0 => {
                    self.count(bytes);
                    written += bytes;
                }
                Some(done) => {
                    self.sound = false;
                    let source = done.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                    return Err(TransportError::io(&self.address, source));
                }
            }
        }
        self.rest.extend_from_slice(&frames[written..]);
        frames.clear();
        let is_out = self.rest.is_empty() && self.is_flushed_now().await?;
        Ok(is_out)
    }

    /// Sends whole frames that the caller has put together, after the rest of earlier frames, and empties
    /// `frames`.
    pub async fn send_frames(&mut self, frames: &mut Vec<u8>) -> Result<()> {
        self.require_sound()?;
        self.send_rest().await?;
        self.sound = false;
        self.write_all(&mut [IoSlice::new(frames)]).await?;
        self.sound = true;
        frames.clear();
        Ok(())
    }

    /// Flushes what TLS holds, as far as the connection takes it now. Returns true if that is all.
    async fn is_flushed_now(&mut self) -> Result<bool> {
        if !self.unflushed {
            return Ok(true);
        }
        let flushed = poll_fn(|context| match Pin::new(&mut self.inner).poll_flush(context) {
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(done) => Poll::Ready(Some(done)),
        });
        match flushed.await {
            None => Ok(false),
            Some(Ok(())) => {
                self.unflushed = false;
                Ok(true)
            }
            Some(Err(source)) => {
                self.sound = false;
                Err(TransportError::io(&self.address, source))
            }
        }
    }

    async fn send_rest(&mut self) -> Result<()> {
        if self.rest.is_empty() && !self.unflushed {
            return Ok(());
        }
        // If this call is dropped midway, it is not known how much of the rest was sent.
        self.sound = false;
        let rest = std::mem::take(&mut self.rest);
        self.write_all(&mut [IoSlice::new(&rest)]).await?;
        self.sound = true;
        Ok(())
    }

    /// Sends one piece. Returns the number of its bytes that could not be read.
    async fn send_file(&mut self, deadline: Instant, piece: &FilePiece<'_>) -> Result<u32> {
        let mut at = piece.offset;
        let end = piece.offset + u64::from(piece.length);
        while at < end {
            let left = usize::try_from(end - at).expect("a piece is at most 64 MiB");
            let sent = self.by(deadline, |socket| {
                match rustix::fs::sendfile(socket, piece.file, Some(&mut at), left) {
                    Err(Errno::IO) => Ok(0),
                    sent => sent.map_err(io::Error::from),
                }
            });
            let sent = sent.await?;
            if sent == 0 {
                break;
            }
            self.count(sent);
        }
        let missing = u32::try_from(end - at).expect("at most the piece");
        let zeros = [0; 4096];
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(zeros.len()).min(zeros.len());
            self.write_all(&mut [IoSlice::new(&zeros[..left])]).await?;
            at += u64::try_from(left).expect("at most 4096");
        }
        Ok(missing)
    }

    fn header(
        &self,
        kind: u16,
        request: u64,
        body: &[u8],
        payload_bytes: usize,
    ) -> Result<[u8; HEADER_BYTES]> {
        self.require_sound()?;
        let payload_fits = u32::try_from(payload_bytes).ok().filter(|&bytes| bytes <= PAYLOAD_BYTES_MAX);
        let body_fits = u32::try_from(body.len()).is_ok_and(|bytes| bytes <= BODY_BYTES_MAX);
        let (Some(payload_bytes), true) = (payload_fits, body_fits) else {
            let bytes = body.len() + payload_bytes;
            return Err(TransportError::TooLong { address: self.address.to_string(), bytes });
        };
        Ok(FrameHeader::new(kind, request, body, payload_bytes).emit())
    }

    fn require_sound(&self) -> Result<()> {
        if self.sound { Ok(()) } else { Err(TransportError::Poisoned { address: self.address.to_string() }) }
    }

    fn deadline(&self, bytes: usize) -> Instant {
        Instant::now() + self.limits.whole(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Runs a system call when the socket is writable, within the stall bound and the deadline.
    async fn by(
        &self,
        deadline: Instant,
        mut call: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Result<usize> {
        let wait = self.limits.stall.min(deadline.saturating_duration_since(Instant::now()));
        let Some(socket) = self.inner.as_tcp() else {
            let source = io::ErrorKind::Unsupported.into();
            return Err(TransportError::io(&self.address, source));
        };
        match timeout(wait, socket.async_io(Interest::WRITABLE, || call(socket))).await {
            Err(_) => {
                Err(TransportError::Timeout { what: "to take a frame", address: self.address.to_string() })
            }
            Ok(sent) => sent.map_err(|source| TransportError::io(&self.address, source)),
        }
    }

    async fn write_all(&mut self, mut slices: &mut [IoSlice<'_>]) -> Result<()> {
        let deadline = self.deadline(slices.iter().map(|slice| slice.len()).sum());
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let wait = self.limits.stall.min(deadline.saturating_duration_since(Instant::now()));
            let written = match timeout(wait, self.inner.write_vectored(slices)).await {
                Err(_) => {
                    return Err(TransportError::Timeout {
                        what: "to take a frame",
                        address: self.address.to_string(),
                    });
                }
                Ok(Err(source)) => return Err(TransportError::io(&self.address, source)),
                Ok(Ok(0)) => return Err(TransportError::Closed { address: self.address.to_string() }),
                Ok(Ok(written)) => written,
            };
            self.count(written);
            IoSlice::advance_slices(&mut slices, written);
        }
        if !self.inner.needs_flush() {
            return Ok(());
        }
        self.unflushed = true;
        let wait = self.limits.stall.min(deadline.saturating_duration_since(Instant::now()));
        match timeout(wait, self.inner.flush()).await {
            Err(_) => {
                Err(TransportError::Timeout { what: "to take a frame", address: self.address.to_string() })
            }
            Ok(flushed) => {
                self.unflushed = false;
                flushed.map_err(|source| TransportError::io(&self.address, source))
            }
        }
    }

    /// Closes this direction: the peer sees a clean end after the frames sent.
    pub async fn shutdown(&mut self) -> Result<()> {
        if self.sound {
            self.send_rest().await?;
        }
        self.sound = false;
        match timeout(self.limits.stall, self.inner.shutdown()).await {
            Err(_) => Err(TransportError::Timeout { what: "to close", address: self.address.to_string() }),
            Ok(ended) => ended.map_err(|source| TransportError::io(&self.address, source)),
        }
    }
}
