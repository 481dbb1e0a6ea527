//! Columns that move off drives that serve them: the old column stays in its file's set, read and written,
//! until its *successor* on another drive holds the same.
//!
//! The successor is a component that no reader or writer knows of. Its drive heals it as if it were the
//! column and joining there: it is made from the file's other columns. When nothing differed, and nothing can
//! have been written since the comparison began, it takes the column's place in one durable step, in which
//! the generation rises; what the old drive holds is fenced off and freed. So the file never lacks a column.
//!
//! Beside a writer there is no such moment. Then the successor takes the column's place as a joining one,
//! which gets all writes, and is brought up to date with the writes since the comparison: until then the file
//! has one ready column less. That is done only while it lacks no other.

use std::sync::Arc;

use braid_layout::{DriveId, FileId};
use braid_meta::records::schema::{ComponentPlace, InodeRecord};
use braid_meta::records::successor_rows::{find, give_up, take_place};
use braid_meta::rules::leases::LeaseState;
use braid_meta::tree::view::Opener;
use braid_wire::control::{BeginHeal, EndHeal, Opened};
use braid_wire::{Reason, Refusal};

use crate::columns::column_changes::{lease_of, nothing, run};
use crate::columns::fence;
use crate::columns::procedure::{self, Cause, RecordedLease, hold_lapsed};
use crate::core::Core;
use crate::files::opened::opened_by;

/// Gives a successor up in a new generation, in which another one may come to the same drive: a late request
/// that frees the first one does not touch that. The caller holds the file's lock. Returns true if there was
/// one.
pub(crate) async fn abandon(
    core: &Arc<Core>,
    at: ComponentPlace,
    inode: &InodeRecord,
) -> Result<bool, Refusal> {
    let file = at.file;
    let segment = at.segment;
    if core.read(move |_, tx| Ok(find(tx, file, segment)?)).await? != Some(at) {
        return Ok(false);
    }
    let lease = lease_of(core, file, inode);
    let lost = hold_lapsed(core, inode);
    let change: procedure::Change = Arc::new(move |_, tx, _, inode| Ok(give_up(tx, at, inode).map(drop)?));
    run(core, file, Cause { lease, lost, change: Some(change) }).await.map(|_| true)
}

/// Handles a drive that begins to heal its successors of the file, or goes on. Successors of a column that is
/// not ready take its place at once.
pub(crate) async fn begin(
    core: &Arc<Core>,
    BeginHeal { file, comparison, .. }: BeginHeal,
    inode: InodeRecord,
    own: Vec<ComponentPlace>,
) -> Result<Opened, Refusal> {
    let lease = lease_of(core, file, &inode);
    let lost = hold_lapsed(core, &inode);
    let drive = own.first().map_or(DriveId(0), |at| at.drive);
    let mut inode = inode;
    if inode.unfenced || !lost.is_empty() || lease == RecordedLease::Ended {
        let cause = Cause { lease, lost, change: None };
        inode = run(core, file, cause).await?.ok_or_else(|| nothing(core, file, drive))?;
    }
    let orphans: Vec<ComponentPlace> = own.iter().filter(|at| !is_ready(&inode, at)).copied().collect();
    if !orphans.is_empty() {
        let inode = take_places(core, file, &inode, orphans, true).await?;
        let inode = inode.ok_or_else(|| nothing(core, file, drive))?;
        return opened_by(core, file, inode, Opener::Healer(drive)).await;
    }
    own.iter().try_for_each(|at| can_be_made(core, &inode, at))?;
    core.comparisons().begin((drive, file), comparison, &inode);
    let shown = as_joining(&inode, &own);
    for at in &own {
        // After that the successor's object exists in this generation, and units can be installed on it.
        fence::tell(core, file, &shown, at.segment, at.column).await.map_err(|error| {
            Refusal::new(Reason::Busy, format!("{} cannot be told: {error}", core.drives().name(drive)))
        })?;
    }
    opened_by(core, file, shown, Opener::Healer(drive)).await
}

/// Handles a drive that found no difference in generation `g`, except in `left` stripes that are being
/// written.
pub(crate) async fn end(
    core: &Arc<Core>,
    asked: EndHeal,
    inode: InodeRecord,
    own: Vec<ComponentPlace>,
) -> Result<(), Refusal> {
    let (file, Some(first)) = (asked.file, own.first().copied()) else { return Ok(()) };
    let undisturbed = core.comparisons().end((first.drive, file), asked.comparison, &inode);
    own.iter().try_for_each(|at| can_be_made(core, &inode, at))?;
    let ready = own.iter().all(|at| is_ready(&inode, at));
    if undisturbed && ready && asked.left == 0 {
        return take_places(core, file, &inode, own, false).await.map(drop);
    }
    if !ready || (inode.held && is_live(core, file)) {
        if ready {
            must_be_whole(&inode, file, &own)?;
        }
        take_places(core, file, &inode, own, true).await?;
    }
    if asked.left > 0 && !inode.held {
        settle(core, file, &inode).await?;
    }
    Err(Refusal::new(Reason::StaleGeneration, format!("file {file} was written meanwhile: compare again")))
}

/// Runs the procedure on a file that is not written: its pending stamps are settled writes whose drives have
/// forgotten in a restart that they are settled.
pub(crate) async fn settle(core: &Arc<Core>, file: FileId, inode: &InodeRecord) -> Result<(), Refusal> {
    let lost = hold_lapsed(core, inode);
    run(core, file, Cause { lease: RecordedLease::None, lost, change: None }).await.map(drop)
}

async fn take_places(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
    own: Vec<ComponentPlace>,
    joining: bool,
) -> Result<Option<InodeRecord>, Refusal> {
    let lease = lease_of(core, file, inode);
    let lost = hold_lapsed(core, inode);
    let change: procedure::Change =
        Arc::new(move |_, tx, _, inode| own.iter().try_for_each(|&at| take_place(tx, at, inode, joining)));
    run(core, file, Cause { lease, lost, change: Some(change) }).await
}

fn is_live(core: &Core, file: FileId) -> bool {
    matches!(core.leases().state(file, core.now_ms()), LeaseState::Live(_))
}

/// Refuses to take a column out of a file that lacks another, or that could not be read without it.
fn must_be_whole(inode: &InodeRecord, file: FileId, own: &[ComponentPlace]) -> Result<(), Refusal> {
    for at in own {
        let segment = inode.segment(at.segment);
        let lacks = segment.is_some_and(|segment| !segment.all().minus(segment.ready()).is_empty());
        if lacks || segment.is_some_and(|segment| segment.shape.m == 0) {
            let detail = format!(
                "file {file} is open for writing and cannot spare a column: its columns move once it is closed, or has all of them"
            );
            return Err(Refusal::new(Reason::Busy, detail));
        }
    }
    Ok(())
}

/// Refuses if fewer than `k` other columns are ready: a successor is made from, and compared with, those.
fn can_be_made(core: &Core, inode: &InodeRecord, at: &ComponentPlace) -> Result<(), Refusal> {
    let segment = inode.segment(at.segment);
    match segment {
        Some(segment) if segment.ready().without(at.column).count() < u32::from(segment.shape.k) => {
            let missing = segment.all().minus(segment.ready());
            Err(procedure::too_many_away(core, inode, missing, segment))
        }
        _ => Ok(()),
    }
}

fn is_ready(inode: &InodeRecord, at: &ComponentPlace) -> bool {
    let segment = inode.segment(at.segment);
    segment.is_some_and(|segment| segment.ready().contains(at.column))
}

/// The file's record as shown to the drive of its successors: they are in their columns' places, and joining.
fn as_joining(inode: &InodeRecord, own: &[ComponentPlace]) -> InodeRecord {
    let mut shown = inode.clone();
    for &ComponentPlace { drive, segment, column, .. } in own {
        let Some(segment) = shown.segment_mut(segment) else { continue };
        if let Some(at) = segment.drives.get_mut(column.index()) {
            *at = drive;
        }
        segment.joining = segment.joining.with(column);
    }
    shown
}
