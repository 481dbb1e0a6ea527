//! Work done for a mount from time to time without a request: bytes that have waited long are written, sizes
//! are committed, bytes that cannot be written are tried again and in the end dropped.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use braid_transport::host;
use fuser::INodeNo;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::files::inode::Inode;
use crate::files::write_back::{AGE_MAX, KEPT_FOR};
use crate::kernel_side::memory::{self, Memory};
use crate::shared::Shared;

/// Interval between two looks at the open files.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Pause after a failed try.
const TRY_EVERY: Duration = Duration::from_secs(5);
/// Number of looks between two requests whether the volume has a quota.
const QUOTA_EVERY: u32 = 40;

/// Minimum time between two looks, suspended time included, after which leases that seem to be held may be
/// over.
const AWAY_MIN_MS: u64 = 3_000;

/// Runs until the mount is gone.
pub(crate) async fn run(shared: Weak<Shared>) {
    let mut rounds = 0_u32;
    let mut memory = Memory::default();
    let mut looked_at = host::boot_ms();
    loop {
        let Some(context) = shared.upgrade().map(|shared| Arc::clone(&shared.context)) else { return };
        let is_full = timeout(LOOK_EVERY, context.budget.wanted()).await.is_ok();
        drop(context);
        let Some(shared) = shared.upgrade() else { return };
        let now = host::boot_ms();
        let was_away = now.saturating_sub(std::mem::replace(&mut looked_at, now)) >= AWAY_MIN_MS;
        for inode in shared.inodes.all_written().into_iter().filter(|_| was_away) {
            shared.context.runtime.spawn(async move { inode.ask_for_lease().await });
        }
        for inode in shared.inodes.all() {
            look(&inode, is_full);
        }
        for file in shared.context.said.old(Instant::now()) {
            shared.inodes.unless_open(file, || shared.context.closed(file));
        }
        if memory.is_due(shared.inodes.closed() + shared.lookups.forgotten()) {
            drop(shared.context.teller.tell(INodeNo(0), memory::give_back));
        }
        rounds = rounds.wrapping_add(1);
        if rounds % QUOTA_EVERY == 1 {
            let runtime = shared.context.runtime.clone();
            runtime.spawn(async move {
                if let Ok(room) = shared.space.room(&shared.context).await {
                    shared.context.has_quota.store(room.has_quota, Ordering::Relaxed);
                }
            });
        }
    }
}

/// Looks after a file. `is_full` is true if the mount can take no more bytes until some are written.
fn look(inode: &Arc<Inode>, is_full: bool) {
    if inode.slot.try_read().is_ok_and(|slot| slot.is_lost()) {
        // The bytes that programs and the kernel have of the file are from before the loss.
        let inode = Arc::clone(inode);
        inode.context.runtime.clone().spawn(async move { inode.reading().await.map(drop) });
        return;
    }
    let (is_due, is_over) = {
        let state = inode.state();
        let is_old = state.since.is_some_and(|since| since.elapsed() >= AGE_MAX);
        let is_over = state.failing.is_some_and(|since| since.elapsed() >= KEPT_FOR);
        // One try at a time, and a pause after one that failed.
        let flies = !state.flights.is_empty();
        let rests = state.tended || state.failed_at.is_some_and(|at| at.elapsed() < TRY_EVERY);
        let is_due = !rests && if state.stopped.is_some() { !flies } else { is_old };
        (is_due, is_over && !flies && state.stopped.is_some())
    };
    if is_over {
        let inode = Arc::clone(inode);
        inode.context.runtime.clone().spawn(async move {
            let Some(why) = inode.state().stopped else { return };
            inode.drop_waiting(why).await;
        });
    } else if is_due {
        inode.state().tended = true;
        let inode = Arc::clone(inode);
        inode.context.runtime.clone().spawn(async move {
            let synced = inode.sync().await;
            let mut state = inode.state();
            (state.tended, state.failed_at) = (false, synced.err().map(|_| Instant::now()));
            if let Err(why) = synced {
                tracing::warn!(file = %inode.file, errno = i32::from(why), "written bytes could not be stored yet: trying again");
            }
        });
    } else if is_full && inode.state().stopped.is_none() {
        inode.start_all();
        if !inode.state().tail.is_empty() {
            let inode = Arc::clone(inode);
            inode.context.runtime.clone().spawn(async move { inode.drain().await });
        }
    }
}

/// Writes all that waits, of all files, within a time. Returns the number of files that could not be written.
pub(crate) async fn settle(shared: &Shared, within: Duration) -> usize {
    let mut syncs = JoinSet::new();
    for inode in shared.inodes.all() {
        syncs.spawn_on(async move { inode.sync().await.is_ok() }, &shared.context.runtime);
    }
    let mut unwritten = syncs.len();
    let all = async {
        while let Some(done) = syncs.join_next().await {
            unwritten -= usize::from(matches!(done, Ok(true)));
        }
    };
    let _ = timeout(within, all).await;
    unwritten
}

/// Waits until all handles that were given back are closed.
pub(crate) async fn closed(shared: &Shared, within: Duration) -> bool {
    let end = Instant::now() + within;
    while !shared.inodes.is_empty() {
        if Instant::now() >= end {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    true
}

/// Ends the leases of all files that are open for writing, within a time: the kernel asks for nothing more.
pub(crate) async fn close_all(shared: &Shared, within: Duration) {
    let mut closes = JoinSet::new();
    for inode in shared.inodes.all_written() {
        let close = async move {
            let _ending = inode.ending.lock().await;
            inode.finish().await;
        };
        closes.spawn_on(close, &shared.context.runtime);
    }
    let all = async { while closes.join_next().await.is_some() {} };
    let _ = timeout(within, all).await;
}
