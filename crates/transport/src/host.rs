//! Services that a role gets from its host: clocks, threads for work that blocks, its process mark.

use std::time::{SystemTime, UNIX_EPOCH};

use braid_wire::control::ProcessMark;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinHandle;

use crate::process::{self, Presence};

#[cfg(feature = "simulated")]
pub mod simulated;

/// Returns true on a simulated host: its streams are memory of this process, and need no TLS.
pub fn is_simulated() -> bool {
    #[cfg(feature = "simulated")]
    if simulated::host().is_some() {
        return true;
    }
    false
}

/// Milliseconds since an arbitrary moment. The clock also runs while the machine is suspended, and never goes
/// back.
pub fn boot_ms() -> u64 {
    #[cfg(feature = "simulated")]
    if let Some(host) = simulated::host() {
        return host.boot_ms();
    }
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 1000 + nanos / 1_000_000
}

/// Milliseconds since 1970 by the wall clock, which may be wrong, and may jump.
pub fn wall_ms() -> u64 {
    #[cfg(feature = "simulated")]
    if let Some(host) = simulated::host() {
        return host.wall_ms();
    }
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_millis()).unwrap_or(0)
}

/// Runs `work`, which may block, on a thread of its own.
pub fn spawn_blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
    #[cfg(feature = "simulated")]
    if simulated::host().is_some() {
        return tokio::spawn(async move { work() });
    }
    tokio::task::spawn_blocking(work)
}

/// Calls `step` until it returns false, which means that nothing is left; each call is work that waits for
/// the disk. It runs on this thread, which may block; simulated, in a task of its own, in which every step
/// takes a moment.
pub fn repeat(mut step: impl FnMut() -> bool + Send + 'static) {
    #[cfg(feature = "simulated")]
    if let Some(host) = simulated::host() {
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(host.disk_wait()).await;
                if !step() {
                    return;
                }
            }
        });
        return;
    }
    while step() {}
}

/// Process id of this process.
pub fn process_id() -> u32 {
    #[cfg(feature = "simulated")]
    if let Some(host) = simulated::host() {
        return host.own_mark().pid;
    }
    std::process::id()
}

/// Mark of this process: see [`process`].
pub fn own_mark() -> ProcessMark {
    #[cfg(feature = "simulated")]
    if let Some(host) = simulated::host() {
        return host.own_mark();
    }
    process::own_mark()
}

/// Tells whether the process with this mark is gone: see [`process`].
pub fn presence(mark: &ProcessMark) -> Presence {
    #[cfg(feature = "simulated")]
    if let Some(host) = simulated::host() {
        return host.presence(mark);
    }
    process::presence(mark)
}
