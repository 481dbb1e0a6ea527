//! The way to the kernel: it drops what it has cached when it is told to.

use std::io;
use std::sync::Arc;

use braid_transport::host;
use fuser::{INodeNo, Notifier};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::expiry::Expiry;

/// Threads that tell the kernel something at a time. Each may wait for a read that is slow.
const THREADS_MAX: usize = 64;

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

/// Tells the kernel things on threads of their own, as it may have to wait for requests under way.
pub(crate) struct Teller {
    runtime: Handle,
    threads: Arc<Semaphore>,
}

impl Teller {
    pub(crate) fn new(runtime: Handle) -> Teller {
        Teller { runtime, threads: Arc::new(Semaphore::new(THREADS_MAX)) }
    }

    /// Done when the kernel was told.
    pub(crate) fn tell(&self, telling: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        let _here = self.runtime.enter();
        let threads = Arc::clone(&self.threads);
        match Arc::clone(&threads).try_acquire_owned() {
            Ok(thread) => begin(thread, telling),
            // The others wait for requests, each of which ends.
            Err(_) => self.runtime.spawn(async move {
                let thread = threads.acquire_owned().await.expect("it is never closed");
                drop(begin(thread, telling).await);
            }),
        }
    }
}

fn begin(thread: OwnedSemaphorePermit, telling: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    host::spawn_blocking(move || {
        telling();
        drop(thread);
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::RwLock;

    use super::*;

    #[tokio::test]
    async fn while_the_kernel_waits_only_so_many_threads_do() {
        const TOLD: usize = THREADS_MAX + 10;
        let (teller, gate) = (Teller::new(Handle::current()), Arc::new(RwLock::new(())));
        let (begun, closed) = (Arc::new(AtomicUsize::new(0)), gate.write().await);
        let telling = |_| {
            let (gate, begun) = (Arc::clone(&gate), Arc::clone(&begun));
            teller.tell(move || {
                begun.fetch_add(1, Ordering::AcqRel);
                drop(gate.blocking_read());
            })
        };
        let all: Vec<_> = (0..TOLD).map(telling).collect();
        while begun.load(Ordering::Acquire) < THREADS_MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!((begun.load(Ordering::Acquire), teller.threads.available_permits()), (THREADS_MAX, 0));
        drop(closed);
        for one in all {
            one.await.expect("told");
        }
        assert_eq!(begun.load(Ordering::Acquire), TOLD);
    }
}
