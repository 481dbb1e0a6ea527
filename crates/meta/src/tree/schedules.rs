//! Schedules of snapshots: set, listed, and what the job does in its transactions.

use braid_layout::FileId;
use braid_wire::control::{EntryKind, KeepCounts, NamePlace, ScheduleRow};
use braid_wire::{Reason, Refusal};

use crate::records::inodes;
use crate::records::schema::{InodeRecord, ScheduleRecord, SnapshotRecord, key, table};
use crate::records::tx::Tx;
use crate::rules::schedules::{KEPT_MAX, Made, unkept};
use crate::tree::{snapshots, volumes};

/// Keeps nothing: ends a schedule.
pub const NONE: KeepCounts = KeepCounts { hours: 0, days: 0, weeks: 0 };

/// Gives a directory a schedule, or ends the one that it has.
pub fn set(tx: &mut Tx, at: &NamePlace, keep: KeepCounts) -> Result<(), Refusal> {
    let found = snapshots::root_at(tx, at)?;
    let root = found.file;
    let row = key::schedule(root);
    if keep == NONE {
        if tx.get(&row)?.is_none() {
            let place = snapshots::place_of(tx, root)?;
            let detail = format!("{place} has no schedule of snapshots");
            return Err(Refusal::new(Reason::NotFound, detail));
        }
        tx.delete(row);
        // They stay: a schedule that comes later has nothing to do with them.
        for (row, record) in own(tx, root, &found.inode)? {
            tx.set(row, &SnapshotRecord { scheduled: false, ..record });
        }
        return Ok(());
    }
    let sum = [keep.hours, keep.days, keep.weeks].iter().fold(0u32, |sum, count| sum.saturating_add(*count));
    if sum > KEPT_MAX {
        let detail = format!("a schedule keeps at most {KEPT_MAX} snapshots, and this one would keep {sum}");
        return Err(Refusal::new(Reason::BadName, detail));
    }
    tx.set(row, &ScheduleRecord { keep, next_ms: 0, problem: String::new() });
    Ok(())
}

/// All schedules, by directory. A directory that was removed loses its own.
pub fn all(tx: &Tx) -> Result<Vec<(FileId, ScheduleRecord)>, Refusal> {
    let rows = tx.records::<ScheduleRecord>(&key::all(table::SCHEDULE), usize::MAX)?;
    Ok(rows.into_iter().map(|(row, record)| (FileId(key::number(&row, 1)), record)).collect())
}

/// The directory of a schedule; `None` if it was removed.
fn root(tx: &Tx, root: FileId) -> Result<Option<InodeRecord>, Refusal> {
    let inode = inodes::find(tx, root)?;
    // A volume's root has no name.
    Ok(inode.filter(|inode| inode.kind == EntryKind::Directory && !inode.is_past()))
}

/// The schedules of a volume, or of all if its name is empty.
pub fn rows(tx: &Tx, volume: &str) -> Result<Vec<ScheduleRow>, Refusal> {
    let of = if volume.is_empty() { None } else { Some(volumes::find(tx, volume)?.volume) };
    let mut rows = Vec::new();
    for (directory, record) in all(tx)? {
        let Some(inode) = root(tx, directory)?.filter(|inode| of.is_none_or(|of| inode.volume == of)) else {
            continue;
        };
        let there = u32::try_from(made(tx, directory, &inode)?.len()).unwrap_or(u32::MAX);
        let ScheduleRecord { keep, next_ms, problem } = record;
        rows.push(ScheduleRow { place: snapshots::place_of(tx, directory)?, keep, there, next_ms, problem });
    }
    rows.sort_by(|one, other| one.place.cmp(&other.place));
    Ok(rows)
}

/// The snapshots of a directory that its schedule made and that are there, with their names.
fn made(tx: &Tx, directory: FileId, inode: &InodeRecord) -> Result<Vec<(Made, String)>, Refusal> {
    let made = |(row, record): (Vec<u8>, SnapshotRecord)| {
        (Made { number: key::until_in(&row), taken_ms: record.taken_ms }, record.name)
    };
    Ok(own(tx, directory, inode)?.into_iter().map(made).collect())
}

/// The rows of these snapshots.
fn own(tx: &Tx, directory: FileId, inode: &InodeRecord) -> Result<Vec<(Vec<u8>, SnapshotRecord)>, Refusal> {
    let mut rows = tx.records::<SnapshotRecord>(&key::snapshots_above(inode.volume, 0), usize::MAX)?;
    rows.retain(|(_, it)| it.root == directory && it.scheduled && !it.going);
    Ok(rows)
}

/// Drops the schedule of a directory that was removed. Returns true if it was.
pub fn drop_gone(tx: &mut Tx, directory: FileId) -> Result<bool, Refusal> {
    if root(tx, directory)?.is_some() {
        return Ok(false);
    }
    tx.delete(key::schedule(directory));
    Ok(true)
}

/// Notes when the next snapshot is due, and why the last one could not be made, if so.
pub fn wait(tx: &mut Tx, directory: FileId, next_ms: u64, problem: &str) -> Result<(), Refusal> {
    let row = key::schedule(directory);
    if let Some(record) = tx.record::<ScheduleRecord>(&row)? {
        tx.set(row, &ScheduleRecord { next_ms, problem: problem.to_owned(), ..record });
    }
    Ok(())
}

/// Notes that a snapshot is the schedule's, in the transaction that makes it.
pub fn made_now(tx: &mut Tx, made: &snapshots::Made, next_ms: u64) -> Result<(), Refusal> {
    let row = key::snapshot(made.volume, made.number);
    let record: Option<SnapshotRecord> = tx.record(&row)?;
    let record = record.ok_or_else(|| snapshots::gone(made.number))?;
    tx.set(row, &SnapshotRecord { scheduled: true, ..record });
    wait(tx, made.root, next_ms, "")
}

/// Removes the snapshots that the directory's schedule made and keeps no more. Returns their names.
pub fn remove_unkept(tx: &mut Tx, directory: FileId) -> Result<Vec<String>, Refusal> {
    let Some(record) = tx.record::<ScheduleRecord>(&key::schedule(directory))? else { return Ok(Vec::new()) };
    let Some(inode) = root(tx, directory)? else { return Ok(Vec::new()) };
    let there = made(tx, directory, &inode)?;
    let numbers: Vec<Made> = there.iter().map(|(made, _)| *made).collect();
    let unkept = unkept(record.keep, &numbers);
    let mut removed = Vec::new();
    for (made, name) in there {
        if unkept.contains(&made.number) {
            snapshots::remove(tx, &NamePlace::number(directory), &name)?;
            removed.push(name);
        }
    }
    Ok(removed)
}
