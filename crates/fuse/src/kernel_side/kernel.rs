//! Notifications to the kernel, which drops what it has cached when it is told to.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_transport::host;
use fuser::{INodeNo, Notifier};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::kernel_side::expiry::Expiry;

/// Maximum number of threads that notify the kernel at a time. Each may wait for a slow read.
const THREADS_MAX: usize = 64;
/// Maximum number of these threads for one file or directory, so that one which waits for long does not hold
/// up others.
const THREADS_EACH: usize = 2;

/// A kernel that caches.
pub(crate) trait Kernel: Send + Sync {
    /// Has the kernel ask for a name before it next uses the name.
    fn expire_name(&self, directory: INodeNo, name: &[u8]) -> io::Result<()>;
    /// Has the kernel drop a file's attributes, and its pages from an offset on; if that is below 0, no
    /// pages.
    fn inval_inode(&self, number: INodeNo, from: i64, length: i64) -> io::Result<()>;
}

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

/// Notifies the kernel on threads of its own, as the kernel may have to wait for requests under way.
pub(crate) struct Teller {
    runtime: Handle,
    threads: Arc<Semaphore>,
    /// Permits of each file or directory for which the kernel is being notified.
    of: Arc<Mutex<HashMap<u64, Arc<Semaphore>>>>,
}

/// Permits for one thread.
struct ThreadPermits {
    number: u64,
    own: Option<OwnedSemaphorePermit>,
    of: Arc<Mutex<HashMap<u64, Arc<Semaphore>>>>,
    _any: OwnedSemaphorePermit,
}

impl Teller {
    pub(crate) fn new(runtime: Handle) -> Teller {
        Teller { runtime, threads: Arc::new(Semaphore::new(THREADS_MAX)), of: Arc::default() }
    }

    /// Notifies the kernel about a file or directory. The handle is done when the kernel was told.
    pub(crate) fn tell(&self, of: INodeNo, telling: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        let _here = self.runtime.enter();
        let number = of.0;
        let threads = Arc::clone(&self.threads);
        let of = Arc::clone(&self.of);
        let own = {
            let mut all = lock(&of);
            Arc::clone(all.entry(number).or_insert_with(|| Arc::new(Semaphore::new(THREADS_EACH))))
        };
        let now = Arc::clone(&own).try_acquire_owned().and_then(|own| {
            let any = Arc::clone(&threads).try_acquire_owned();
            any.map(|any| (own, any))
        });
        let place = move |own, any| ThreadPermits { number, own: Some(own), of, _any: any };
        match now {
            Ok((one, any)) => {
                drop(own);
                begin(place(one, any), telling)
            }
            // The threads that hold the permits wait for requests, each of which ends.
            Err(_) => self.runtime.spawn(async move {
                let own = own.acquire_owned().await.expect("it is never closed");
                let any = threads.acquire_owned().await.expect("it is never closed");
                drop(begin(place(own, any), telling).await);
            }),
        }
    }
}

fn lock(of: &Mutex<HashMap<u64, Arc<Semaphore>>>) -> MutexGuard<'_, HashMap<u64, Arc<Semaphore>>> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for ThreadPermits {
    fn drop(&mut self) {
        let mut of = lock(&self.of);
        self.own = None;
        // No other thread holds or awaits a permit of this file.
        if of.get(&self.number).is_some_and(|own| Arc::strong_count(own) == 1) {
            of.remove(&self.number);
        }
    }
}

fn begin(place: ThreadPermits, telling: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    host::spawn_blocking(move || {
        telling();
        drop(place);
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::RwLock;

    use super::*;

    /// Notifies the kernel about `files` files in turn while it waits, and checks that this takes `most`
    /// threads, after `meanwhile`.
    async fn waiting(files: u64, most: usize, meanwhile: impl AsyncFnOnce(&Teller)) {
        const TOLD: u64 = THREADS_MAX as u64 + 10;
        let teller = Teller::new(Handle::current());
        let gate = Arc::new(RwLock::new(()));
        let begun = Arc::new(AtomicUsize::new(0));
        let closed = gate.write().await;
        let telling = |number: u64| {
            let gate = Arc::clone(&gate);
            let begun = Arc::clone(&begun);
            teller.tell(INodeNo(number % files), move || {
                begun.fetch_add(1, Ordering::AcqRel);
                drop(gate.blocking_read());
            })
        };
        let all: Vec<_> = (0..TOLD).map(telling).collect();
        while begun.load(Ordering::Acquire) < most {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        meanwhile(&teller).await;
        assert_eq!(begun.load(Ordering::Acquire), most);
        assert_eq!(teller.threads.available_permits(), THREADS_MAX - most);
        drop(closed);
        let told = all.len();
        for one in all {
            one.await.expect("told");
        }
        assert_eq!(begun.load(Ordering::Acquire), told);
        assert!(lock(&teller.of).is_empty(), "nothing is kept of them");
    }

    #[tokio::test]
    async fn while_the_kernel_waits_only_so_many_threads_do() {
        waiting(1000, THREADS_MAX, async |_| ()).await;
    }

    #[tokio::test]
    async fn a_file_for_which_the_kernel_waits_holds_up_no_other() {
        waiting(1, THREADS_EACH, async |teller| {
            teller.tell(INodeNo(5), || ()).await.expect("told at once");
        })
        .await;
    }
}
