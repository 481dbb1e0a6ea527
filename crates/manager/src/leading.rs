//! Pauses of background work, and its wait until the state is known to be the current one.

use std::time::Duration;

use tokio::time::timeout;

use crate::core::Core;

/// Pause between two rounds when nothing wakes a loop.
pub(crate) const ROUND: Duration = Duration::from_millis(500);
/// Pause of a loop that was woken. Every request that changes a file wakes all loops: without the pause each
/// would look through all its work for each request while there are many.
const GATHER: Duration = Duration::from_millis(10);

/// Waits until the background loops are woken, or a round has passed.
pub(crate) async fn pause(core: &Core) {
    if timeout(ROUND, core.wake.notified()).await.is_ok() {
        tokio::time::sleep(GATHER).await;
    }
}

/// Returns once the state is known to be current: an old state must not end, free or take out anything.
pub(crate) async fn until_leading(core: &Core) {
    while core.leadership().serving().is_err() {
        pause(core).await;
    }
}
