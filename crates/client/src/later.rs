//! Work that nobody waits for, such as telling drives that what was written to a closed file is settled. It
//! is ended before the client is.

use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use tokio::task::JoinSet;

/// Most pieces of it at a time: more are not begun, as a drive that hangs would let them pile up.
const RUNNING_MAX: usize = 1024;

/// How long its end is waited for.
const END_MAX: Duration = Duration::from_secs(5);

/// The work under way.
#[derive(Debug, Default)]
pub(crate) struct Later(Mutex<JoinSet<()>>);

impl Later {
    /// Begins it, unless too much is under way.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.0.lock().expect("no holder panics");
        while running.try_join_next().is_some() {}
        if running.len() < RUNNING_MAX {
            running.spawn(work);
        }
    }

    /// Waits until all that has begun is done, or gives it up after a while.
    pub(crate) async fn end(&self) {
        let mut running = std::mem::take(&mut *self.0.lock().expect("no holder panics"));
        let ended = tokio::time::timeout(END_MAX, async { while running.join_next().await.is_some() {} });
        if ended.await.is_err() {
            tracing::debug!(left = running.len(), "work that nobody waits for is given up");
        }
    }
}
