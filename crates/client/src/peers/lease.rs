//! The task that keeps a writer's lease while its file is open. It has the lease renewed (`renewals`), gets
//! new capabilities before the old ones expire, and retires settled writes when the writer pauses. The three
//! run independently. It ends when the file is closed. If the file is dropped instead, the task releases the
//! lease as unclean, so that the manager settles what the writer left.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{Column, Lease, Version};
use braid_wire::control::{Backing, Ended, Ending, Release, Sized};
use tokio::sync::oneshot;

use crate::data::retire;
use crate::data::write::WriteSide;
use crate::error::Error;
use crate::handle::Handle;
use crate::peers::renewals::{self, period};

/// Longest interval between two checks of the task.
const TICK: Duration = Duration::from_secs(1);

/// The handle of the task: dropped without [`LeaseRenewer::end`], it has the lease released as unclean.
#[derive(Debug)]
pub(crate) struct LeaseRenewer {
    end: Option<oneshot::Sender<()>>,
}

impl LeaseRenewer {
    /// Starts the task.
    pub(crate) fn start(handle: Arc<Handle>, side: Arc<WriteSide>) -> LeaseRenewer {
        let (end, ended) = oneshot::channel();
        tokio::spawn(task(handle, side, ended));
        LeaseRenewer { end: Some(end) }
    }

    /// Ends the task; the caller then releases the lease.
    pub(crate) fn end(mut self) {
        if let Some(end) = self.end.take() {
            // Fails only if the task has ended already because the lease was lost.
            let _ = end.send(());
        }
    }
}

/// The task of one file that is open for writing. It waits most of the time. So the futures of its rare work
/// are on the heap, and only while they run: otherwise each open file would hold memory for all of them all
/// the time.
async fn task(handle: Arc<Handle>, side: Arc<WriteSide>, ended: oneshot::Receiver<()>) {
    keep(&handle, &side, ended).await;
}

async fn keep(handle: &Arc<Handle>, side: &WriteSide, ended: oneshot::Receiver<()>) {
    let why = tokio::select! {
        end = ended => {
            if end.is_err() {
                Box::pin(give_up(handle, side)).await;
            }
            return;
        }
        why = renewals::keep(handle) => why,
        why = keep_capabilities(handle) => why,
        never = keep_retired(handle, side) => match never {},
        never = give_back(handle, side) => match never {},
    };
    if side.is_over(why.clone()) {
        tracing::warn!(file = %handle.subject, why, "the write lease is lost");
    }
}

/// Gets new capabilities when the old ones would expire within a lease's term, until the lease is lost.
/// Returns why.
async fn keep_capabilities(handle: &Handle) -> String {
    loop {
        let view = handle.view();
        tokio::time::sleep(TICK.min(period(&view))).await;
        let soon = handle.client.shared.control.now_ms().saturating_add(u64::from(view.lease_ms));
        if soon < view.expires_ms {
            continue;
        }
        match Box::pin(handle.refresh(&view)).await {
            Ok(_) => {}
            Err(Error::LeaseLost { why, .. }) => return why,
            Err(error) => {
                tracing::warn!(file = %handle.subject, %error, "the capabilities could not be renewed")
            }
        }
    }
}

/// Gives back what the handle was given of a quota and does not need, whenever others wait for it.
async fn give_back(handle: &Handle, side: &WriteSide) -> Infallible {
    loop {
        handle.wanted_back.notified().await;
        if let Err(error) = Box::pin(give_back_now(handle, side)).await {
            tracing::debug!(file = %handle.subject, %error, "room under a quota was not given back");
        }
    }
}

async fn give_back_now(handle: &Handle, side: &WriteSide) -> Result<(), Error> {
    let _no_writes = side.cuts.write().await;
    let needed = handle.size().bytes;
    if handle.view().reach.is_none_or(|reach| reach <= needed) {
        return Ok(());
    }
    handle.give_back(needed).await
}

/// Retires what is settled when the writer pauses.
async fn keep_retired(handle: &Handle, side: &WriteSide) -> Infallible {
    let mut seen = None;
    let mut retired = None;
    loop {
        tokio::time::sleep(TICK.min(period(&handle.view()))).await;
        // Under a shared lease, this handle's settled writes say nothing about those of others.
        let alone = side.stamps.is_used() && !handle.view().shared;
        let settled = side.stamps.all_settled().filter(|_| alone);
        if settled.is_some() && settled == seen && settled != retired {
            // If it fails, it is tried again: a column that is being brought up to date may wait for it.
            if Box::pin(retire_idle(handle, settled)).await {
                retired = settled;
            }
        }
        seen = settled;
    }
}

/// Tells the drives of a pausing writer that they need not keep earlier content. Returns true if all have
/// been told.
async fn retire_idle(handle: &Handle, settled: Option<Version>) -> bool {
    let Some(settled_to) = settled else { return true };
    let told = retire::retire(handle, settled_to, retire::Occasion::Pause).await;
    if !told {
        tracing::debug!(file = %handle.subject, "not every drive was told which writes are settled");
    }
    told
}

/// Releases the lease of a file that was dropped without being closed.
async fn give_up(handle: &Handle, side: &WriteSide) {
    let retired = match side.stamps.all_settled() {
        Some(_) if !side.stamps.is_used() && handle.view().has_others() => true,
        Some(none) if !side.stamps.is_used() => {
            retire::retire(handle, none, retire::Occasion::LeaseEnd).await
        }
        _ => false,
    };
    let ending = if retired { Ending::Retired } else { Ending::Unclean };
    if let Err(error) = release(handle, ending, side, None).await {
        tracing::info!(file = %handle.subject, %error, "the lease could not be given up; it ends by itself");
    }
}

/// Facts about the lease that its end carries to the manager.
pub(crate) fn ended(handle: &Handle, ending: Ending, side: &WriteSide) -> Ended {
    let first = |&(segment, column): &(usize, Column)| (segment == 0).then_some(column);
    let columns = handle.touched().iter().filter_map(first).collect();
    Ended { ending, end: side.stamps.written_end(), columns }
}

/// A size that a release commits.
pub(crate) struct LastSize {
    /// The lease under which the file has this size: if another lease has followed, the whole release is
    /// refused.
    pub(crate) lease: Lease,
    pub(crate) sized: Sized,
    /// All writes with stamps below this one lie within the size.
    pub(crate) within: Version,
}

/// Ends the lease, after the commit of a size, if one is given.
pub(crate) async fn release(
    handle: &Handle,
    ending: Ending,
    side: &WriteSide,
    last: Option<LastSize>,
) -> Result<(), Error> {
    let view = handle.view();
    let lease = last.as_ref().map_or(view.lease, |last| last.lease);
    let within = last.as_ref().map_or(Version::ZERO, |last| last.within);
    let backing = Backing { within, receipts: handle.receipts.all() };
    let file = view.file;
    let holder = handle.holder;
    let commit = last.map(|last| last.sized);
    let request = Release { file, lease, holder, ended: ended(handle, ending, side), commit, backing };
    let answer = handle.client.ask_done(&handle.subject, request).await;
    answer.map_err(|error| handle.lease_error(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_open_file_costs_while_nothing_happens_is_little() {
        fn bytes<F>(_: impl Fn(Arc<Handle>, Arc<WriteSide>, oneshot::Receiver<()>) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = bytes(task);
        assert!(bytes <= 1024, "{bytes} bytes");
    }
}
