//! Simulated hosts: the interface that one must offer, and the host of the current thread.

use std::cell::RefCell;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use braid_wire::control::ProcessMark;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::process::Presence;

/// One simulated machine with one process on it.
pub trait Host: Debug + Send + Sync {
    /// Host's part of [`super::boot_ms`].
    fn boot_ms(&self) -> u64;
    /// Host's part of [`super::wall_ms`].
    fn wall_ms(&self) -> u64;
    /// Duration of the next step of work that waits for the disk.
    fn disk_wait(&self) -> Duration;
    /// Host's part of [`super::own_mark`].
    fn own_mark(&self) -> ProcessMark;
    /// Host's part of [`super::presence`].
    fn presence(&self, mark: &ProcessMark) -> Presence;
    /// Listens on an address; port 0 takes a free one.
    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>>;
    /// Connects to an address.
    fn connect(&self, address: &str) -> Connecting;
    /// A socket for datagrams at an address; port 0 takes a free one. With a peer it hears that one alone,
    /// and also that nothing listens there.
    fn datagrams(&self, address: SocketAddr, peer: Option<SocketAddr>)
    -> io::Result<Box<dyn DatagramSocket>>;
}

/// A connection that is being made.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Socket>> + Send>>;

/// Listener on an address of a simulated network.
pub trait Listener: Debug + Send + Sync {
    /// Address that the listener listens on.
    fn address(&self) -> SocketAddr;
    /// Polls for the next connection.
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Socket>>;
}

/// One end of a connection of a simulated network.
#[derive(Debug)]
pub struct Socket {
    pub local: SocketAddr,
    pub peer: SocketAddr,
    /// Bytes that come from the peer.
    pub read: Box<dyn Read>,
    /// Bytes that go to the peer.
    pub write: Box<dyn Write>,
}

/// A socket for datagrams of a simulated network.
pub trait DatagramSocket: Debug + Send + Sync {
    /// Address that the socket is at.
    fn address(&self) -> SocketAddr;
    /// Sends a datagram, which may never arrive.
    fn send(&self, to: SocketAddr, bytes: &[u8]);
    /// Polls until there is something to receive.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()>;
    /// Takes the next datagram. Returns its length and its sender.
    fn receive(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
}

/// The receiving direction of a simulated connection.
pub trait Read: AsyncRead + Debug + Send + Sync + Unpin {}
/// The sending direction of a simulated connection.
pub trait Write: AsyncWrite + Debug + Send + Sync + Unpin {}

impl<T: AsyncRead + Debug + Send + Sync + Unpin> Read for T {}
impl<T: AsyncWrite + Debug + Send + Sync + Unpin> Write for T {}

thread_local! {
    static HOST: RefCell<Option<Arc<dyn Host>>> = const { RefCell::new(None) };
}

/// The simulated host that this thread is on; `None` on the real one.
pub fn host() -> Option<Arc<dyn Host>> {
    HOST.with_borrow(Clone::clone)
}

/// Runs `act` on this host.
pub fn on<T>(host: Arc<dyn Host>, act: impl FnOnce() -> T) -> T {
    /// Restores the former host on drop, also after a panic.
    struct Back(Option<Arc<dyn Host>>);
    impl Drop for Back {
        fn drop(&mut self) {
            HOST.set(self.0.take());
        }
    }
    let _back = Back(HOST.replace(Some(host)));
    act()
}
