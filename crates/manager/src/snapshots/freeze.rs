//! Freezing: what snapshots show of a file's bytes is kept before anyone writes the file.
//!
//! The frozen file's numbers are stored first (`frozen::begin`), so that no drive has an object of which this
//! state does not know. Then the procedure runs on the file: nobody has a capability of its generation, no
//! column joins, and all that was pending is judged. Then each ready column's drive takes a *still*: an
//! object of its own that shows what the column holds. Only then the frozen file is stored, with the columns
//! whose drives have answered. Until then nobody gets a capability to write (`files::opened`).
//!
//! All that is repeated with the same numbers if it is broken off: by the next who wants to write the file,
//! or by the job [`Snapshots`](crate::snapshots::names::Snapshots).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::{Column, ColumnMask, FileId};
use braid_meta::records::schema::{Freezing, InodeRecord, SegmentRecord};
use braid_meta::records::{frozen, inodes};
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;

use crate::columns::column_changes::{lease_of, run};
use crate::columns::fence::Target;
use crate::columns::live_out;
use crate::columns::procedure::{self, Cause, Lost, RecordedLease, hold_lapsed};
use crate::core::Core;
use crate::drive_calls::CallError;
use crate::files::sharing;

/// Maximum number of requests for one still. A drive that has something unsettled may have decided it soon.
const TAKES: u32 = 30;
/// Pause between two requests for a still.
const TAKE_AGAIN: Duration = Duration::from_millis(100);

/// Freezes what snapshots show of a file that has no lease and is to be written. The caller holds the file's
/// lock, and grants a lease next.
pub(crate) async fn before_writing(core: &Arc<Core>, file: FileId) -> Result<(), Refusal> {
    let is_due = move |_: &Core, tx: &braid_meta::records::tx::Tx| {
        let inode = inodes::get(tx, file)?;
        frozen::is_due(tx, file, &inode)
    };
    if core.read(is_due).await? && core.write(move |_, tx| frozen::begin(tx, file)).await?.is_some() {
        finish(core, file).await?;
    }
    Ok(())
}

/// Finishes the freeze of a file, if one was begun: its writers, if there are any, are fenced out first, and
/// refresh. The caller holds the file's lock.
pub(crate) async fn finish(core: &Arc<Core>, file: FileId) -> Result<(), Refusal> {
    let found = core.read(move |_, tx| Ok(inodes::find(tx, file)?)).await?;
    let Some(inode) = found.filter(|inode| inode.freezing.is_some()) else { return Ok(()) };
    match hold(core, file, &inode).await? {
        Some(held) => take(core, file, &held).await,
        // It was removed, and has become the frozen file itself.
        None => Ok(()),
    }
}

/// Runs the procedure after which nobody may write the file, no column of it joins, and all that was
/// acknowledged is on every ready column. Returns the file's record, or `None` if it is gone. The caller
/// holds the file's lock, and keeps it until the still was taken.
pub(crate) async fn hold(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
) -> Result<Option<InodeRecord>, Refusal> {
    let lost = without_joining(core, inode);
    match lease_of(core, file, inode) {
        RecordedLease::Live => sharing::renew_all(core, file, inode, lost).await.map(Some),
        lease => run(core, file, Cause { lease, lost, change: None }).await,
    }
}

/// The columns that go out: those of dead drives, and those that join. What the latter hold is not known to
/// be right. They join again after.
fn without_joining(core: &Core, inode: &InodeRecord) -> Vec<Lost> {
    let mut lost = hold_lapsed(core, inode);
    for segment in inode.in_force() {
        for column in segment.joining.iter() {
            if !lost.iter().any(|known| (known.segment, known.column) == (segment.number, column)) {
                lost.push(live_out::hold(core, inode, segment.number, column));
            }
        }
    }
    lost
}

/// Has the drives take the stills of a file that is held, and stores the frozen file.
pub(crate) async fn take(core: &Arc<Core>, file: FileId, inode: &InodeRecord) -> Result<(), Refusal> {
    let Some(begun) = inode.freezing.clone() else { return Ok(()) };
    let mut takes = JoinSet::new();
    for (segment, still) in stills(inode, &begun) {
        let number = segment.number;
        for column in segment.ready().iter() {
            let base = Target::new(core, file, inode, number, column);
            let frozen = Target::of_still(core, &begun, inode, &still, column);
            let core = Arc::clone(core);
            takes.spawn(async move {
                let taken = match (base, frozen) {
                    (Some(base), Some(frozen)) => take_one(&core, &base, &frozen).await,
                    _ => Err(CallError::Unreachable("the manager does not know its drive".to_owned())),
                };
                (number, column, taken)
            });
        }
    }
    let mut made: BTreeMap<u32, ColumnMask> = BTreeMap::new();
    let mut failures: BTreeMap<(u32, Column), String> = BTreeMap::new();
    let mut may_come_late = false;
    while let Some(done) = takes.join_next().await {
        match done {
            Ok((number, column, Ok(()))) => {
                let of = made.entry(number).or_default();
                *of = of.with(column);
            }
            Ok((number, column, Err(error))) => {
                // Nobody may write while a request that was given up can still arrive.
                may_come_late |= matches!(error, CallError::Unreachable(_));
                failures.insert((number, column), error.to_string());
            }
            Err(error) => tracing::error!(%error, "taking a still failed within the manager"),
        }
    }
    let is_enough = inode.in_force().all(|segment| {
        made.get(&segment.number).is_some_and(|made| made.count() >= u32::from(segment.shape.k))
    });
    if !is_enough {
        return Err(too_few(core, inode, &failures));
    }
    let data = begun.data;
    core.write(move |_, tx| frozen::end(tx, file, &begun, &made)).await?;
    if !failures.is_empty() {
        // The other columns are to be told which are out.
        core.unfinished().insert(data);
        core.wake.notify_waiters();
    }
    if may_come_late {
        let current = core.read(move |_, tx| inodes::get(tx, file)).await?;
        let lease = lease_of(core, file, &current);
        let lost = hold_lapsed(core, &current);
        procedure::run(core, file, Cause { lease, lost, change: None }).await?;
    }
    Ok(())
}

/// The segments of a file with those of the frozen file that is to be.
fn stills<'i>(
    inode: &'i InodeRecord,
    begun: &'i Freezing,
) -> impl Iterator<Item = (&'i SegmentRecord, SegmentRecord)> {
    inode.in_force().zip(&begun.objects).map(|(segment, &object)| {
        let still =
            SegmentRecord { object, set: segment.ready(), joining: ColumnMask::EMPTY, ..segment.clone() };
        (segment, still)
    })
}

/// Has one drive take a still.
async fn take_one(core: &Core, base: &Target, frozen: &Target) -> Result<(), CallError> {
    let mut left = TAKES;
    loop {
        left -= 1;
        match base.take(core, frozen).await {
            Err(CallError::Refused(refusal)) if left > 0 && is_passing(&refusal) => {}
            Err(CallError::Unreachable(why)) if left > 0 => {
                tracing::debug!(why, "a still is asked for again");
                // Each such call has waited.
                left = left.min(2);
            }
            done => return done,
        }
        tokio::time::sleep(TAKE_AGAIN).await;
    }
}

/// Returns true if the drive may say otherwise soon.
fn is_passing(refusal: &Refusal) -> bool {
    matches!(refusal.reason, Reason::Unsettled | Reason::Busy | Reason::NotServing | Reason::Closing)
}

/// The refusal if too few columns could be kept.
fn too_few(core: &Core, inode: &InodeRecord, failures: &BTreeMap<(u32, Column), String>) -> Refusal {
    let refusal = procedure::not_answering(core, inode, failures);
    let detail = format!(
        "a snapshot shows {:?}, and too few drives keep its bytes for that ({}): free space there, bring them back, \
         or remove snapshots",
        braid_meta::tree::names::show(&inode.name),
        refusal.detail
    );
    Refusal { detail, ..refusal }
}
