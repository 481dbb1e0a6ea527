//! `.snapshots`: a name in each directory that has snapshots, below which these are found by path.
//!
//! No entry has this name, and no listing shows it. A path that has it leads to a *door*: a directory that no
//! record stands for, and whose names are those of the snapshots. A door's number is its directory's with
//! the highest bit set, which no other number has. Nothing can be changed in it. New entries cannot have the
//! name; where an older one has it, that one is found.

use braid_layout::FileId;
use braid_wire::control::Entry;
use braid_wire::{Reason, Refusal};

use crate::records::schema::{InodeRecord, SnapshotRecord, Times, directory_record, key};
use crate::records::tx::Tx;
use crate::tree::names::show;
use crate::tree::seen::{self, Within};

/// The name of a directory's door.
pub const DOOR: &[u8] = b".snapshots";

/// Bit of a file number that only doors have.
const DOOR_BIT: u64 = 1 << 63;
/// Permissions of a door.
const MODE: u32 = 0o555;

/// The number of a directory's door.
pub fn of(directory: FileId) -> FileId {
    FileId(directory.0 | DOOR_BIT)
}

/// The directory whose door has this number; `None` if it is no door's.
pub fn behind(file: FileId) -> Option<FileId> {
    (file.0 & DOOR_BIT != 0).then_some(FileId(file.0 & !DOOR_BIT))
}

/// The place of a door: in a snapshot, as nothing in it can be changed, and in none that exists.
pub(super) fn within(directory: FileId) -> Within {
    Within { root: directory, number: 0 }
}

/// The record that stands for a directory's door; `None` if the directory has no snapshots.
pub(super) fn record(
    tx: &Tx,
    directory: FileId,
    inode: &InodeRecord,
) -> Result<Option<InodeRecord>, Refusal> {
    let (from, to) = key::under(key::snapshot_name(directory, ""));
    let numbers = tx.records::<u32>(&(from, to), usize::MAX)?;
    let Some(newest) = numbers.into_iter().map(|(_, number)| number).max() else { return Ok(None) };
    let newest: Option<SnapshotRecord> = tx.record(&key::snapshot(inode.volume, newest))?;
    let times = Times::at(newest.map_or(inode.created_ms, |newest| newest.taken_ms));
    let blank = directory_record(inode.volume, directory, DOOR.to_vec(), inode.created_ms);
    Ok(Some(InodeRecord { mode: MODE, uid: inode.uid, gid: inode.gid, times, ..blank }))
}

/// The snapshot that a name in a door stands for.
pub(super) fn snapshot(tx: &Tx, directory: FileId, name: &[u8]) -> Result<Within, Refusal> {
    let named = match std::str::from_utf8(name) {
        Ok(name) => seen::named(tx, directory, name)?,
        Err(_) => None,
    };
    if let Some(within) = named {
        return Ok(within);
    }
    let there = seen::names_of(tx, directory)?.join(", ");
    let detail = format!("the directory has no snapshot {:?} (it has: {there})", show(name));
    Err(Refusal::new(Reason::NoSnapshot, detail))
}

/// At most `limit` names of a door after one, and true if there are more.
pub(super) fn list(
    tx: &Tx,
    directory: FileId,
    after: &[u8],
    limit: usize,
) -> Result<(Vec<Entry>, bool), Refusal> {
    let (mut from, to) = key::under(key::snapshot_name(directory, ""));
    if !after.is_empty() {
        from = [&from[..], after, &[0]].concat();
    }
    let mut rows = tx.records::<u32>(&(from, to), limit + 1)?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let entry = |(row, number): (Vec<u8>, u32)| -> Result<Entry, Refusal> {
        let inode = seen::get(tx, directory, Some(Within { root: directory, number }))?;
        let name = row.get(9..).unwrap_or_default().to_vec();
        Ok(Entry { name, file: directory, attributes: inode.attributes() })
    };
    Ok((rows.into_iter().map(entry).collect::<Result<_, _>>()?, more))
}

/// The refusal to give an entry a door's name.
pub(super) fn reserved(path: &[u8]) -> Refusal {
    let detail = format!(
        "{:?}: the name {:?} is kept for a directory's snapshots: take another",
        show(path),
        show(DOOR)
    );
    Refusal::new(Reason::BadName, detail)
}
