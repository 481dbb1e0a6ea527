//! The way to the kernel: it drops what it has cached when it is told to.

use std::ffi::OsStr;
use std::io;

use braid_transport::host;
use fuser::{INodeNo, Notifier};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A kernel that caches.
pub(crate) trait Kernel: Send + Sync {
    /// What a name stands for is dropped.
    fn inval_entry(&self, directory: INodeNo, name: &OsStr) -> io::Result<()>;
    /// Attributes are dropped, and pages from an offset on; if it is below 0, no pages.
    fn inval_inode(&self, number: INodeNo, from: i64, length: i64) -> io::Result<()>;
}

impl Kernel for Notifier {
    fn inval_entry(&self, directory: INodeNo, name: &OsStr) -> io::Result<()> {
        Notifier::inval_entry(self, directory, name)
    }

    fn inval_inode(&self, number: INodeNo, from: i64, length: i64) -> io::Result<()> {
        Notifier::inval_inode(self, number, from, length)
    }
}

/// Tells the kernel something on a thread of its own, as it may have to wait for requests under way.
pub(crate) fn tell(runtime: &Handle, telling: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let _here = runtime.enter();
    host::spawn_blocking(telling)
}
