//! The two directions of a connection, as bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use braid_datagram::{EndReason, Incoming, SendError};
use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::datagrams::{Held, PIECE_BYTES, STREAM, in_words};

/// The receiving direction.
#[derive(Debug)]
pub(crate) struct DatagramRead {
    held: Arc<Held>,
    /// That which is left of the last message.
    left: Bytes,
}

/// The sending direction. The peer sees its end when it is dropped.
#[derive(Debug)]
pub(crate) struct DatagramWrite(Arc<Held>);

impl DatagramRead {
    pub(crate) fn new(held: Arc<Held>) -> DatagramRead {
        DatagramRead { held, left: Bytes::new() }
    }

    /// The connection, to steer it.
    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// Takes the next message; returns false at the end.
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut inner = self.held.port.lock();
        match inner.endpoint.receive(self.held.id, STREAM) {
            Some(Incoming::Message(message)) => {
                self.left = message.into();
                let is_credit_owed = inner.endpoint.has_ready();
                drop(inner);
                if is_credit_owed {
                    self.held.port.work.notify_one();
                }
                return Poll::Ready(Ok(true));
            }
            Some(Incoming::End) => return Poll::Ready(Ok(false)),
            None => {}
        }
        let Some(lane) = inner.lanes.get_mut(&self.held.id) else { return Poll::Ready(Ok(false)) };
        match &lane.ended {
            Some(why) => Poll::Ready(Err(in_words(why))),
            None => {
                lane.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncRead for DatagramRead {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.left.is_empty() && into.remaining() > 0 {
            match self.poll_message(context) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        let count = self.left.len().min(into.remaining());
        into.put_slice(&self.left[..count]);
        self.left.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl DatagramWrite {
    pub(crate) fn new(held: Arc<Held>) -> DatagramWrite {
        DatagramWrite(held)
    }

    /// The connection, to steer it.
    pub(crate) fn held(&self) -> &Held {
        &self.0
    }

    fn finish(&self) {
        // It may be finished or at its end already.
        let _ = self.0.port.lock().endpoint.finish(self.0.id, STREAM);
        self.0.port.work.notify_one();
    }
}

impl AsyncWrite for DatagramWrite {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if bytes == 0 {
            return Poll::Ready(Ok(0));
        }
        let Held { port, id, .. } = &*self.0;
        let mut inner = port.lock();
        // The peer's window may be small. Of a connection that has ended it is 0, which is found below.
        let count = bytes.min(PIECE_BYTES).min(inner.endpoint.message_bytes_max(*id).max(1));
        match inner.endpoint.check_send(*id, STREAM, count) {
            Ok(()) => {}
            Err(SendError::Full { .. }) => {
                if let Some(lane) = inner.lanes.get_mut(id) {
                    lane.writer = Some(context.waker().clone());
                }
                return Poll::Pending;
            }
            Err(_) => {
                let ended = inner.lanes.get(id).and_then(|lane| lane.ended.as_ref());
                return Poll::Ready(Err(in_words(ended.unwrap_or(&EndReason::Closed))));
            }
        }
        // Others need not wait for the copy; only this half sends on the stream.
        drop(inner);
        let mut piece = Vec::with_capacity(count);
        for slice in slices {
            let more = slice.len().min(count - piece.len());
            piece.extend_from_slice(&slice[..more]);
        }
        let sent = port.lock().endpoint.send(*id, STREAM, piece.into());
        port.work.notify_one();
        Poll::Ready(sent.map(|()| count).map_err(io::Error::other))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}

impl Drop for DatagramWrite {
    fn drop(&mut self) {
        self.finish();
    }
}
