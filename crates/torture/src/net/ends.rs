//! The processes' handles of the network: listeners, connections being made, and the ends of pipes.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use braid_transport::host::simulated::{Listener, Socket};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Item, Net, WINDOW};

#[derive(Debug)]
pub(super) struct Listening {
    pub(super) net: Net,
    pub(super) address: SocketAddr,
}

impl Listener for Listening {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Socket>> {
        let mut state = self.net.lock();
        let Some(backlog) = state.listeners.get_mut(&self.address) else { return Poll::Pending };
        match backlog.waiting.pop_front() {
            Some(socket) => Poll::Ready(Ok(socket)),
            None => {
                backlog.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The sockets that wait are closed after the lock is free.
        let _backlog = self.net.lock().listeners.remove(&self.address);
    }
}

/// A connection being made.
pub(super) struct Connection {
    pub(super) net: Net,
    pub(super) id: u64,
}

impl Future for Connection {
    type Output = io::Result<Socket>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<Socket>> {
        let mut state = self.net.lock();
        let Some(attempt) = state.attempts.get_mut(&self.id) else { return Poll::Pending };
        match attempt.result.take() {
            Some(result) => {
                state.attempts.remove(&self.id);
                Poll::Ready(result)
            }
            None => {
                attempt.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _attempt = self.net.lock().attempts.remove(&self.id);
    }
}

#[derive(Debug)]
pub(super) struct ReadEnd {
    pub(super) net: Net,
    pub(super) id: u64,
}

#[derive(Debug)]
pub(super) struct WriteEnd {
    pub(super) net: Net,
    pub(super) id: u64,
}

fn was_reset<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
}

impl AsyncRead for ReadEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.net.lock();
        let Some(pipe) = state.pipes.get_mut(&self.id) else { return was_reset() };
        if !pipe.arrived.is_empty() {
            let count = into.remaining().min(pipe.arrived.len());
            let bytes: Vec<u8> = pipe.arrived.drain(..count).collect();
            into.put_slice(&bytes);
            let writer = pipe.writer.take();
            drop(state);
            writer.into_iter().for_each(Waker::wake);
            return Poll::Ready(Ok(()));
        }
        if pipe.reset {
            return was_reset();
        }
        if pipe.ended {
            return Poll::Ready(Ok(()));
        }
        pipe.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for ReadEnd {
    fn drop(&mut self) {
        let mut state = self.net.lock();
        state.shed = true;
        if let Some(pipe) = state.pipes.get_mut(&self.id) {
            pipe.reader_gone = true;
        }
    }
}

impl AsyncWrite for WriteEnd {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.net.lock();
        let Some(pipe) = state.pipes.get_mut(&self.id) else { return was_reset() };
        if pipe.reset {
            return was_reset();
        }
        let count = bytes.len().min(WINDOW.saturating_sub(pipe.flight_bytes + pipe.arrived.len()));
        if count == 0 && !bytes.is_empty() {
            pipe.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        state.send(self.id, Item::Bytes(bytes[..count].to_vec()));
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.net.lock().send(self.id, Item::End);
        Poll::Ready(Ok(()))
    }
}

impl Drop for WriteEnd {
    fn drop(&mut self) {
        let mut state = self.net.lock();
        state.send(self.id, Item::End);
        state.shed = true;
        if let Some(pipe) = state.pipes.get_mut(&self.id) {
            pipe.writer_gone = true;
        }
    }
}
