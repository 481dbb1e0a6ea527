//! The way to the kernel: it drops what it has cached when it is told to.

use std::io;

use braid_transport::host;
use fuser::{INodeNo, Notifier};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::expiry::Expiry;

/// A kernel that caches.
pub(crate) trait Kernel: Send + Sync {
    /// What a name stands for is asked for before it is next used.
    fn expire_name(&self, directory: INodeNo, name: &[u8]) -> io::Result<()>;
    /// Attributes are dropped, and pages from an offset on; if it is below 0, no pages.
    fn inval_inode(&self, number: INodeNo, from: i64, length: i64) -> io::Result<()>;
}

/// The system's.
pub(crate) struct System {
    pub(crate) notifier: Notifier,
    pub(crate) expiry: Expiry,
}

impl Kernel for System {
    fn expire_name(&self, directory: INodeNo, name: &[u8]) -> io::Result<()> {
        self.expiry.expire(directory, name)
    }

    fn inval_inode(&self, number: INodeNo, from: i64, length: i64) -> io::Result<()> {
        self.notifier.inval_inode(number, from, length)
    }
}

/// Tells the kernel something on a thread of its own, as it may have to wait for requests under way.
pub(crate) fn tell(runtime: &Handle, telling: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let _here = runtime.enter();
    host::spawn_blocking(telling)
}
