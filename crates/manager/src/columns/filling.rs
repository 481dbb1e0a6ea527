//! The segment that is being filled to take the place of a file's others, when the file is laid out anew.
//!
//! The segment is one more of the file that no reader or writer knows of. All its columns are joining, and
//! each drive makes its own, as in any heal; but from the file's bytes, which it reads from the segments in
//! force. All units get one version, the segment's `filling`, so a heal that was broken off goes on where it
//! was, and each drive can tell alone what the others have.
//!
//! The copy is equal to the file, because the filling begins when no client holds a lease on the file and no
//! stamp of the last lease is left to judge; and an open of the file for writing first gives the segment up.
//! So while the segment is there, nothing can have been written since it was made. When all of its columns
//! are ready it takes the others' place in one durable step, in which the generation rises; what drives hold
//! of the others is freed before any client gets a capability of the new generation.
//!
//! So a relayout makes no writer wait, and a relayout that is disturbed begins anew.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_layout::{ColumnMask, DriveId, FileId, ObjectId, Version};
use braid_meta::records::filling_rows::{drop_segment, places, ready, take_place};
use braid_meta::records::inodes::{self, occupy, set_stale};
use braid_meta::records::kv::KvError;
use braid_meta::records::schema::{InodeRecord, SegmentRecord, StaleRecord, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::tree::shapes::from_spec;
use braid_meta::tree::view::Opener;
use braid_wire::control::{Access, EndHeal, Opened, Refresh, ShapeSpec};
use braid_wire::{Reason, Refusal};

use crate::columns::column_changes::{lease_of, must_be_up, nothing, olds_of, run};
use crate::columns::heal::join;
use crate::columns::procedure::{self, Cause, hold_lapsed};
use crate::core::Core;
use crate::files::opened::opened_by;
use crate::files::opens::{make_free, reader};
use crate::snapshots::freeze;

/// Gives the file a segment of this shape that is to be filled. Refused while the file is open for writing.
/// The caller holds the file's lock.
pub(crate) async fn make(core: &Arc<Core>, file: FileId, shape: ShapeSpec) -> Result<(), Refusal> {
    // What was begun is of the present layout.
    freeze::finish(core, file).await?;
    let inode = make_free(core, file).await?;
    let lease = lease_of(core, file, &inode);
    let lost = hold_lapsed(core, &inode);
    let change: procedure::Change =
        Arc::new(move |core, tx, file, inode| add_segment(core, tx, file, inode, &shape));
    run(core, file, Cause { lease, lost, change: Some(change) }).await.map(drop)
}

fn add_segment(
    core: &Core,
    tx: &mut Tx,
    file: FileId,
    inode: &mut InodeRecord,
    shape: &ShapeSpec,
) -> Result<(), Refusal> {
    let shape = from_spec(shape, shape)?;
    let with_leftovers = drives_with_leftovers(core, tx, file)?;
    let (drives, out) = core.place(file.0, &shape, &with_leftovers)?;
    let names = |which: &dyn Fn(DriveId) -> bool| {
        core.drives().names(drives.iter().copied().filter(|&drive| which(drive)))
    };
    if !out.is_empty() {
        let away: Vec<DriveId> =
            out.iter().filter_map(|column| drives.get(column.index()).copied()).collect();
        let detail = format!(
            "{shape} needs {} drives that are up: {} are away",
            shape.width(),
            names(&|drive| away.contains(&drive))
        );
        return Err(Refusal::new(Reason::TooManyAway, detail));
    }
    if drives.iter().any(|drive| with_leftovers.contains(drive)) {
        let names = names(&|drive| with_leftovers.contains(&drive));
        let detail = format!("old objects of file {file} on {names} must be freed first");
        return Err(Refusal::new(Reason::Busy, detail));
    }
    let all = ColumnMask::all(shape.width());
    let segment = SegmentRecord {
        number: (0..).find(|number| inode.segment(*number).is_none()).unwrap_or(u32::MAX),
        start: 0,
        end: u64::MAX,
        shape: shape.into(),
        object: ObjectId(tx.next_number()?),
        drives,
        set: all,
        joining: all,
        filling: Some(Version { g: inode.g, lease: inode.lease, n: 1 }),
    };
    for place in places(file, &segment) {
        occupy(tx, place)?;
        set_stale(tx, place, Some(StaleRecord { joining: true, told: true }))?;
    }
    inode.segments.push(segment);
    Ok(())
}

/// Drives that still have components of the file to be freed. Their rows are keyed by drive, file, segment
/// and column, and the new segment may get the same.
fn drives_with_leftovers(core: &Core, tx: &Tx, file: FileId) -> Result<BTreeSet<DriveId>, KvError> {
    let drives: Vec<DriveId> = core.drives().iter().map(|drive| drive.record.drive).collect();
    let mut with = BTreeSet::new();
    for drive in drives {
        let (from, to) = key::of_file(table::LEFT, drive, file);
        if !tx.scan(&from, &to, 1)?.is_empty() {
            with.insert(drive);
        }
    }
    Ok(with)
}

/// Gives the segment up, if there is one: what drives hold of it is freed. The caller holds the file's lock.
///
/// If the segment can be read, and drives may know that, the generation rises: should this manager's state be
/// lost before all of the segment is freed, it is not taken for the file (`layouts`).
pub(crate) async fn give_up(core: &Arc<Core>, file: FileId) -> Result<(), Refusal> {
    let has_one =
        core.read(move |_, tx| Ok(inodes::find(tx, file)?.is_some_and(|inode| inode.filling().is_some())));
    if !has_one.await? {
        return Ok(());
    }
    let give_up = move |_: &Core, tx: &mut Tx| {
        let Some(mut inode) = inodes::find(tx, file)? else { return Ok(false) };
        let can_be_read = |on: &SegmentRecord| on.ready().count() >= u32::from(on.shape.k);
        let rises = inode.filling().is_some_and(can_be_read);
        drop_segment(tx, file, &mut inode)?;
        if rises {
            inode.g = inode.g.next().ok_or_else(|| braid_meta::tree::files::worn_out(file))?;
            inode.unfenced = true;
        }
        inodes::save(tx, file, &inode)?;
        Ok(rises)
    };
    let unfinished = move |core: &Core, rises: &bool| {
        if *rises {
            core.unfinished().insert(file);
        }
    };
    core.write_then(give_up, unfinished).await?;
    tracing::debug!(%file, "the new layout of a file is given up");
    core.wake.notify_waiters();
    Ok(())
}

/// Handles a drive that begins to fill its columns, or goes on.
pub(crate) async fn begin(core: &Arc<Core>, asker: DriveId, file: FileId) -> Result<Opened, Refusal> {
    let olds = olds_of(core, asker);
    must_be_up(core, asker)?;
    let _turn = core.lock_file(file).await?;
    let inode = core.read(move |_, tx| inodes::get(tx, file)).await?;
    let Some(segment) = inode.filling() else { return Err(nothing(core, file, asker)) };
    if segment.drives.iter().any(|drive| olds.contains(drive)) {
        // The relayout begins anew, with another set of drives.
        give_up(core, file).await?;
        return Err(nothing(core, file, asker));
    }
    let number = segment.number;
    let own = segment.columns(|drive| drive == asker).minus(segment.ready());
    if own.is_empty() {
        return Err(nothing(core, file, asker));
    }
    let lost = hold_lapsed(core, &inode);
    if own.minus(segment.joining).is_empty() && lost.is_empty() && !inode.unfenced {
        return opened_by(core, file, inode, Opener::Filler(asker)).await;
    }
    let lease = lease_of(core, file, &inode);
    let change: procedure::Change = Arc::new(move |core, tx, file, inode| {
        own.iter().try_for_each(|column| join(core, tx, file, inode, number, column, asker))
    });
    let inode = run(core, file, Cause { lease, lost, change: Some(change) }).await?;
    opened_by(core, file, inode.ok_or_else(|| nothing(core, file, asker))?, Opener::Filler(asker)).await
}

/// Opens a file for reading, for a drive that fills columns of it. The drive may read no other file.
pub(crate) async fn source(core: &Arc<Core>, asker: DriveId, request: &Refresh) -> Result<Opened, Refusal> {
    let file = request.file;
    let fills = move |inode: InodeRecord| inode.filling().is_some_and(|on| on.drives.contains(&asker));
    let may = core.read(move |_, tx| Ok(inodes::find(tx, file)?.is_some_and(fills))).await?;
    match request.access {
        Access::Read if may => reader(core, file).await,
        Access::Read => Err(nothing(core, file, asker)),
        Access::Write => Err(Refusal::new(Reason::NotAllowed, "a drive may not open a file for writing")),
    }
}

/// Handles a drive that has filled its columns, in generation `g`. With the last columns, the segment takes
/// the others' place.
pub(crate) async fn end(
    core: &Arc<Core>,
    asker: DriveId,
    EndHeal { file, g, .. }: EndHeal,
) -> Result<(), Refusal> {
    must_be_up(core, asker)?;
    let _turn = core.lock_file(file).await?;
    let inode = core.read(move |_, tx| inodes::get(tx, file)).await?;
    // If there is no such segment, this is a repeat, or the segment was given up.
    let Some(segment) = inode.filling() else { return Ok(()) };
    if inode.g != g || inode.unfenced {
        let detail = format!("file {file} is in generation {} now: compare again", inode.g);
        return Err(Refusal::new(Reason::StaleGeneration, detail));
    }
    let own = segment.joining.and(segment.columns(|drive| drive == asker));
    let change: procedure::Change = Arc::new(move |_, tx, file, inode| Ok(ready(tx, file, inode, own)?));
    if !step(core, file, Some(change)).await? {
        let detail = format!("a drive of file {file} went out meanwhile: compare again");
        return Err(Refusal::new(Reason::StaleGeneration, detail));
    }
    finish(core, file).await.map(drop)
}

/// Puts the segment in the others' place, if all of its columns are ready. Returns true if that is done. The
/// caller holds the file's lock.
///
/// By then the drives were told that all columns are ready: so they know it, should this manager's state be
/// lost after the others' objects were freed (`layouts`).
pub(crate) async fn finish(core: &Arc<Core>, file: FileId) -> Result<bool, Refusal> {
    let inode = core.read(move |_, tx| inodes::get(tx, file)).await?;
    if !inode.filling().is_some_and(|segment| segment.ready() == segment.all()) {
        return Ok(false);
    }
    if inode.unfenced && !step(core, file, None).await? {
        return Ok(false);
    }
    let change: procedure::Change = Arc::new(|_, tx, file, inode| take_place(tx, file, inode));
    if !step(core, file, Some(change)).await? {
        return Ok(false);
    }
    tracing::info!(%file, "a file has its new layout");
    core.wake.notify_waiters();
    Ok(true)
}

/// Runs the procedure with a change; or without it, if a drive is found dead, whose column then goes out and
/// is filled again. Returns true if the change was made.
async fn step(core: &Arc<Core>, file: FileId, change: Option<procedure::Change>) -> Result<bool, Refusal> {
    let inode = core.read(move |_, tx| inodes::get(tx, file)).await?;
    let lease = lease_of(core, file, &inode);
    let lost = hold_lapsed(core, &inode);
    let is_whole = lost.is_empty();
    let change = change.filter(|_| is_whole);
    Ok(run(core, file, Cause { lease, lost, change }).await?.is_some() && is_whole)
}
