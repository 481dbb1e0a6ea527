//! A host that is simulated: what it must offer, and which one the current thread is on.

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
    /// See [`super::boot_ms`].
    fn boot_ms(&self) -> u64;
    /// See [`super::wall_ms`].
    fn wall_ms(&self) -> u64;
    /// How long the next step of work takes that waits for the disk.
    fn disk_wait(&self) -> Duration;
    /// See [`super::own_mark`].
    fn own_mark(&self) -> ProcessMark;
    /// See [`super::presence`].
    fn presence(&self, mark: &ProcessMark) -> Presence;
    /// Listens on an address; port 0 takes a free one.
    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>>;
    /// Connects to an address.
    fn connect(&self, address: &str) -> Connecting;
}

/// A connection being made.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Socket>> + Send>>;

/// What listens on an address of a simulated network.
pub trait Listener: Debug + Send + Sync {
    /// Where it listens.
    fn address(&self) -> SocketAddr;
    /// The next connection.
    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Socket>>;
}

/// One end of a connection of a simulated network.
#[derive(Debug)]
pub struct Socket {
    pub local: SocketAddr,
    pub peer: SocketAddr,
    /// What comes from there.
    pub read: Box<dyn Read>,
    /// What goes there.
    pub write: Box<dyn Write>,
}

/// The receiving direction.
pub trait Read: AsyncRead + Debug + Send + Sync + Unpin {}
/// The sending direction.
pub trait Write: AsyncWrite + Debug + Send + Sync + Unpin {}

impl<T: AsyncRead + Debug + Send + Sync + Unpin> Read for T {}
impl<T: AsyncWrite + Debug + Send + Sync + Unpin> Write for T {}

thread_local! {
    static HOST: RefCell<Option<Arc<dyn Host>>> = const { RefCell::new(None) };
}

/// The host that this thread is on; `None`: the real one.
pub fn host() -> Option<Arc<dyn Host>> {
    HOST.with_borrow(Clone::clone)
}

/// Runs `act` on this host.
pub fn on<T>(host: Arc<dyn Host>, act: impl FnOnce() -> T) -> T {
    /// Goes back, also after a panic.
    struct Back(Option<Arc<dyn Host>>);
    impl Drop for Back {
        fn drop(&mut self) {
            HOST.set(self.0.take());
        }
    }
    let _back = Back(HOST.replace(Some(host)));
    act()
}
