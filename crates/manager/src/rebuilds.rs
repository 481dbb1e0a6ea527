//! Stale columns come back: which files have some, letting them join, listing them as ready (PROTOCOL section
//! 7).
//!
//! A drive that returned and an empty one that replaces another are handled alike. While a file is rebuilt
//! its columns on the drive are in the set and joining: they take writes, answer no reads and vote on
//! nothing. They become ready only at the end of the same lease under which they joined. A rebuild that was
//! broken off starts over.

use std::collections::{BTreeSet, btree_set};
use std::sync::Arc;

use braid_layout::placement::{Candidate, PlacementVersion, choose_beside};
use braid_layout::version::Lease;
use braid_layout::{Column, DriveId, FileId};
use braid_wire::control::{BeginRebuild, DriveState, EndRebuild, Opened, StaleFiles, StaleFilesReply};
use braid_wire::{Reason, Refusal};

use crate::core::Core;
use crate::drives::Drive;
use crate::files::{lease_lost, leased, worn_out};
use crate::inodes::{occupy, set_stale, vacate};
use crate::kv::Tx;
use crate::members::no_drive;
use crate::opens::{grant, make_free, still_open};
use crate::operations::{Operation, Outcome, recall};
use crate::procedure::{self, Cause, RecordedLease};

use crate::schema::{ComponentPlace, InodeRecord, StaleRecord, key, table};
use crate::space::{candidate, has_room};

/// Most files in one reply.
const FILES_PER_PAGE_MAX: usize = 4096;

/// Files with stale columns on a drive, or on drives that it has replaced. Refused for a drive that is away:
/// what it misses is known when it is back, and an empty list would be taken for "up to date".
pub async fn stale_files(core: &Arc<Core>, request: StaleFiles) -> Result<StaleFilesReply, Refusal> {
    let (target, olds) = target_of(core, &request.drive)?;
    must_be_up(core, target)?;
    let limit = match usize::try_from(request.limit).unwrap_or(usize::MAX) {
        0 => FILES_PER_PAGE_MAX,
        limit => limit.min(FILES_PER_PAGE_MAX),
    };
    core.read(move |_, tx| {
        let mut files = BTreeSet::new();
        files_in(tx, table::STALE, target, request.after, limit, &mut files)?;
        for old in olds {
            files_in(tx, table::COLUMN, old, request.after, limit, &mut files)?;
        }
        Ok(StaleFilesReply { files: btree_set::IntoIter::take(files.into_iter(), limit).collect() })
    })
    .await
}

/// Leases a file and lets its stale columns on the drive join.
pub async fn begin(core: &Arc<Core>, operation: Operation, request: BeginRebuild) -> Result<Opened, Refusal> {
    let file = request.file;
    let (target, olds) = target_of(core, &request.drive)?;
    must_be_up(core, target)?;
    let _turn = core.lock_file(file).await?;
    if let Some(opened) = still_open(core, operation).await? {
        return Ok(opened);
    }
    let inode = make_free(core, file).await?;
    let columns = joining_columns(&inode, target, &olds);
    if columns.is_empty() {
        let name = core.drives().name(target);
        let detail = format!("file {file} has no stale column on {name}: nothing is to be rebuilt");
        return Err(Refusal::new(Reason::NotFound, detail));
    }
    let lease = inode.lease.0.checked_add(1).map(Lease).ok_or_else(|| worn_out(file))?;
    let change: procedure::Change = Arc::new(move |core, tx, file, inode| {
        columns
            .iter()
            .try_for_each(|&(index, column)| join(core, tx, file, inode, index, column, target, lease))
    });
    let cause = Cause { change: Some(change), ..Cause::nothing() };
    procedure::run(core, file, cause).await?.ok_or_else(|| lease_lost(file, lease))?;
    grant(core, operation, file, request.client).await
}

/// Makes the columns ready that joined under this lease, and ends the lease. Refused if the lease is over
/// already, as its columns may not have become ready.
pub async fn end(core: &Arc<Core>, operation: Operation, request: EndRebuild) -> Result<(), Refusal> {
    let EndRebuild { file, lease } = request;
    if core.read(move |core, tx| recall(core, tx, operation)).await?.is_some() {
        return Ok(());
    }
    if !core.leases().renew(file, lease, core.running_ms()) {
        return Err(lease_lost(file, lease));
    }
    let _turn = core.lock_file(file).await?;
    core.read(move |_, tx| leased(tx, file, lease)).await?;
    let change: procedure::Change = Arc::new(move |_, tx, file, inode| ready(tx, file, inode, lease));
    let cause = Cause { lease: RecordedLease::Live, change: Some(change), ..Cause::nothing() };
    procedure::run(core, file, cause).await?.ok_or_else(|| lease_lost(file, lease))?;
    core.once(operation, move |_, tx| {
        crate::files::release(tx, file, lease)?;
        Ok((Outcome::DONE, ()))
    })
    .await?;
    core.leases().end(file);
    Ok(())
}

/// The drive that a name refers to, and those that it has replaced.
fn target_of(core: &Core, name: &str) -> Result<(DriveId, Vec<DriveId>), Refusal> {
    let table = core.drives();
    let named = table.find(name).map(|drive| drive.record.drive).ok_or_else(|| no_drive(name))?;
    let target = table.successor(named);
    let olds = table.iter().map(|drive| drive.record.drive).filter(|&old| old != target);
    Ok((target, olds.filter(|&old| table.successor(old) == target).collect()))
}

fn must_be_up(core: &Core, target: DriveId) -> Result<(), Refusal> {
    let (now_ms, table) = (core.now_ms(), core.drives());
    if table.state(target, now_ms) == DriveState::Up {
        return Ok(());
    }
    let name = table.name(target);
    Err(Refusal::new(Reason::NoDrive, format!("{name} is away: start it, then rebuild")))
}

fn files_in(
    tx: &Tx,
    of: u8,
    drive: DriveId,
    after: FileId,
    limit: usize,
    files: &mut BTreeSet<FileId>,
) -> Result<(), Refusal> {
    let (_, to) = key::of_drive(of, drive);
    let mut from =
        key::place(of, ComponentPlace { drive, file: after, segment: u32::MAX, column: Column(u8::MAX) });
    let mut found = BTreeSet::new();
    while found.len() < limit {
        let rows = tx.scan(&from, &to, limit)?;
        found.extend(rows.iter().map(|(key, _)| key::place_of(key).file));
        match rows.last() {
            Some((last, _)) if rows.len() == limit => from = [last.as_slice(), &[0]].concat(),
            _ => break,
        }
    }
    files.extend(found);
    Ok(())
}

/// Columns that are to join: on the drive and out or joining, or on a drive that it has replaced.
fn joining_columns(inode: &InodeRecord, target: DriveId, olds: &[DriveId]) -> Vec<(u32, Column)> {
    let mut columns = Vec::new();
    for (segment, index) in inode.segments.iter().zip(0u32..) {
        let stale = segment.columns(|drive| drive == target).minus(segment.ready());
        let orphaned = segment.columns(|drive| olds.contains(&drive));
        columns.extend(stale.or(orphaned).iter().map(|column| (index, column)));
    }
    columns
}

/// Lets one column join, on the drive it is on, or on a new one if its drive was replaced.
#[expect(clippy::too_many_arguments, reason = "one call, and each argument is a different thing")]
fn join(
    core: &Core,
    tx: &mut Tx,
    file: FileId,
    inode: &mut InodeRecord,
    index: u32,
    column: Column,
    target: DriveId,
    lease: Lease,
) -> Result<(), Refusal> {
    let name = inode.name.clone();
    let Some(segment) = usize::try_from(index).ok().and_then(|index| inode.segments.get_mut(index)) else {
        return Ok(());
    };
    let old = segment.drive(column);
    let new = if old == target { old } else { new_home(core, file, &name, &segment.drives, target)? };
    if new != old {
        vacate(tx, ComponentPlace { drive: old, file, segment: index, column })?;
        if let Some(place) = segment.drives.get_mut(column.index()) {
            *place = new;
        }
    }
    let place = ComponentPlace { drive: new, file, segment: index, column };
    occupy(tx, place)?;
    set_stale(tx, place, Some(StaleRecord { joining: true, lease, told: true }))?;
    segment.set = segment.set.with(column);
    segment.joining = segment.joining.with(column);
    Ok(())
}

/// The new drive for a column of a replaced one: the replacement, unless the file has a column there already;
/// then one that placement chooses among those that are up and have room. A full one would refuse the column.
fn new_home(
    core: &Core,
    file: FileId,
    name: &[u8],
    drives: &[DriveId],
    target: DriveId,
) -> Result<DriveId, Refusal> {
    if !drives.contains(&target) {
        return Ok(target);
    }
    let (now_ms, table) = (core.now_ms(), core.drives());
    let known = |ids: &[DriveId], which: fn(&Drive) -> bool| -> Vec<Candidate> {
        let those = ids.iter().filter_map(|&drive| table.drive(drive));
        those.filter(|drive| which(drive)).map(candidate).collect()
    };
    let (kept, roomy) = (known(drives, |_| true), known(&table.up(now_ms), has_room));
    let chosen = choose_beside(PlacementVersion::V1, file.0, &kept, 1, &roomy);
    chosen.ok().and_then(|drives| drives.first().copied()).ok_or_else(|| {
        let detail = format!(
            "{:?} (file {file}) has a column on {} already, and no drive without one is up and has room: add a drive",
            crate::names::show(name),
            table.name(target),
        );
        Refusal::new(Reason::TooFewDrives, detail)
    })
}

fn ready(tx: &mut Tx, file: FileId, inode: &mut InodeRecord, lease: Lease) -> Result<(), Refusal> {
    for (segment, index) in inode.segments.iter_mut().zip(0u32..) {
        for column in segment.joining.iter() {
            let place = ComponentPlace { drive: segment.drive(column), file, segment: index, column };
            let stale: Option<StaleRecord> = tx.record(&key::place(table::STALE, place))?;
            if stale.is_some_and(|stale| stale.joining && stale.lease == lease) {
                set_stale(tx, place, None)?;
                segment.joining = segment.joining.without(column);
            }
        }
    }
    Ok(())
}
