//! Messages about what a command waits for, printed once: silence looks like a hang.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_wire::control::ENDED_WAIT_MS;
use tokio::time::timeout;

use crate::output::report::complain;

/// Length of a wait after which it is announced.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// Runs `work`. If it takes long, prints on standard error what the command waits for.
pub(crate) async fn telling<T>(what: impl FnOnce() -> String, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    if let Ok(done) = timeout(TOLD_AFTER, &mut work).await {
        return done;
    }
    complain(&format!("waiting {}", what()));
    work.await
}

/// Asks for a rate. If that takes long, prints what the answer may wait for.
pub(crate) async fn for_rate<T>(asked: impl Future<Output = T>) -> T {
    let seconds = ENDED_WAIT_MS / 1000;
    let what =
        || format!("for the rate: the share of reservations that have just ended is free within {seconds} s");
    telling(what, asked).await
}

/// Prints that the manager does not answer. Printed once, though a command may ask it many times at once.
pub(crate) fn for_manager(address: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        complain(&format!("waiting for the manager at {address}, which has not answered yet"));
    }
}
