//! Background work that no request waits for, such as telling drives that the writes to a closed file are
//! settled. [`Client::finish`](crate::Client::finish) waits for its end.

use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use tokio::task::JoinSet;

/// Maximum number of pieces of background work at a time. More are not begun, as a drive that hangs would let
/// them pile up.
const RUNNING_MAX: usize = 1024;

/// Longest wait for the end of the background work.
const END_MAX: Duration = Duration::from_secs(5);

/// The background work under way.
#[derive(Debug, Default)]
pub(crate) struct Later(Mutex<JoinSet<()>>);

impl Later {
    /// Begins a piece of work, unless [`RUNNING_MAX`] are under way: then it is dropped.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.0.lock().expect("no holder panics");
        while running.try_join_next().is_some() {}
        if running.len() < RUNNING_MAX {
            running.spawn(work);
        }
    }

    /// Waits until all work that has begun is done; gives it up after [`END_MAX`].
    pub(crate) async fn end(&self) {
        let mut running = std::mem::take(&mut *self.0.lock().expect("no holder panics"));
        let ended = tokio::time::timeout(END_MAX, async { while running.join_next().await.is_some() {} });
        if ended.await.is_err() {
            tracing::debug!(left = running.len(), "work that nobody waits for is given up");
        }
    }
}
