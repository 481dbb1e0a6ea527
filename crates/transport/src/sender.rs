//! The sending direction of a connection.

use std::io::IoSlice;
use std::sync::Arc;

use braid_wire::FrameHeader;
use braid_wire::frame::{BODY_BYTES_MAX, PAYLOAD_BYTES_MAX};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use crate::error::{Result, TransportError};
use crate::limits::Limits;

/// Sends frames. A send that failed or was dropped midway leaves it poisoned.
#[derive(Debug)]
pub struct Sender {
    inner: OwnedWriteHalf,
    address: Arc<str>,
    limits: Limits,
    /// False while a frame is under way, and for ever after one that was not finished.
    sound: bool,
    /// The connection's slot at the listener.
    _slot: Option<Arc<OwnedSemaphorePermit>>,
}

impl Sender {
    pub(crate) fn new(
        inner: OwnedWriteHalf,
        address: Arc<str>,
        limits: Limits,
        slot: Option<Arc<OwnedSemaphorePermit>>,
    ) -> Sender {
        Sender { inner, address, limits, sound: true, _slot: slot }
    }

    /// The peer, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends one frame by vectored writes: nothing is copied. A body over 1 MiB, or pieces of payload over 64 MiB together,
    /// are [`TransportError::TooLong`], and nothing is sent.
    pub async fn send(&mut self, kind: u16, request: u64, body: &[u8], payload: &[&[u8]]) -> Result<()> {
        if !self.sound {
            return Err(TransportError::Poisoned { address: self.address.to_string() });
        }
        let payload_bytes: usize = payload.iter().map(|piece| piece.len()).sum();
        let payload_fits = u32::try_from(payload_bytes).ok().filter(|&bytes| bytes <= PAYLOAD_BYTES_MAX);
        let body_fits = u32::try_from(body.len()).is_ok_and(|bytes| bytes <= BODY_BYTES_MAX);
        let (Some(payload_bytes), true) = (payload_fits, body_fits) else {
            let bytes = body.len() + payload_bytes;
            return Err(TransportError::TooLong { address: self.address.to_string(), bytes });
        };
        let header = FrameHeader::new(kind, request, body, payload_bytes).emit();
        self.sound = false;
        let mut slices = Vec::with_capacity(2 + payload.len());
        slices.push(IoSlice::new(&header));
        slices.push(IoSlice::new(body));
        slices.extend(payload.iter().map(|piece| IoSlice::new(piece)));
        self.write_all(&mut slices).await?;
        self.sound = true;
        Ok(())
    }

    async fn write_all(&mut self, mut slices: &mut [IoSlice<'_>]) -> Result<()> {
        let bytes: u64 = slices.iter().map(|slice| u64::try_from(slice.len()).unwrap_or(u64::MAX)).sum();
        let deadline = Instant::now() + self.limits.whole(bytes);
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
            IoSlice::advance_slices(&mut slices, written);
        }
        Ok(())
    }

    /// Ends this direction: the peer sees a clean end after the frames sent.
    pub async fn shutdown(&mut self) -> Result<()> {
        self.sound = false;
        match timeout(self.limits.stall, self.inner.shutdown()).await {
            Err(_) => Err(TransportError::Timeout { what: "to close", address: self.address.to_string() }),
            Ok(ended) => ended.map_err(|source| TransportError::io(&self.address, source)),
        }
    }
}
