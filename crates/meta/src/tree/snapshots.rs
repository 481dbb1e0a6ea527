//! Snapshots: made, listed, removed. Each function is the work of one transaction.
//!
//! To make one is to store its name and number: what it shows is the present rows, until they change
//! ([`past`]). To remove one takes it out of sight, and then, page by page, looks at the past rows that are
//! kept for it: one that an older snapshot sees is kept for that one from then on, and others go.

use braid_layout::{FileId, VolumeId};
use braid_wire::control::{EntryKind, NamePlace, SnapshotRow};
use braid_wire::{Reason, Refusal};

use crate::records::kv::KvError;
use crate::records::past::{self, Live};
use crate::records::schema::{
    HistoryRecord, InodeRecord, PastBytes, PastEntry, PastInode, SnapshotRecord, key, table,
};
use crate::records::tx::Tx;
use crate::records::{frozen, inodes};
use crate::tokens::permissions::Act;
use crate::tree::directories::{Found, refuse_foreign, resolve_to_end};
use crate::tree::names::{check_label, show};
use crate::tree::seen::names_of;
use crate::tree::volumes;

/// Maximum number of snapshots of a volume, with those that are being removed.
pub const SNAPSHOTS_MAX: usize = 1000;

/// Maximum number of rows that are looked at to say what is kept for a snapshot.
const KEPT_LOOKED_AT: usize = 1000;

/// A snapshot that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub volume: VolumeId,
    pub root: FileId,
    pub number: u32,
    /// Files that are open for writing: their bytes are to be frozen before anyone writes on.
    pub open: Vec<FileId>,
}

/// The directory at a place, of which a snapshot is made or removed.
pub fn root_at(tx: &Tx, at: &NamePlace) -> Result<Found, Refusal> {
    let found = resolve_to_end(tx, at)?.changeable(at)?;
    if found.inode.kind != EntryKind::Directory {
        let detail =
            format!("{:?} is not a directory: a snapshot is of a directory or volume", show(&at.path));
        return Err(Refusal::new(Reason::NotDirectory, detail));
    }
    Ok(found)
}

/// The directory at a place, if a snapshot of this name can be made of it.
pub fn new_root(tx: &Tx, at: &NamePlace, name: &str) -> Result<Found, Refusal> {
    check_label("snapshot", name)?;
    let found = root_at(tx, at)?;
    refuse_foreign(tx, &found, "make snapshots of")?;
    let root = found.file;
    let volume = found.volume.volume;
    if tx.get(&key::snapshot_name(root, name))?.is_some() {
        let place = place_of(tx, root)?;
        let detail =
            format!("{place} has a snapshot {name:?} already: take another name, or remove that one");
        return Err(Refusal::new(Reason::Exists, detail));
    }
    if tx.scan_all(&key::snapshots_above(volume, 0))?.len() >= SNAPSHOTS_MAX {
        let detail = format!(
            "volume {:?} has {SNAPSHOTS_MAX} snapshots, the most that it may have: remove some first",
            found.volume.name
        );
        return Err(Refusal::new(Reason::TooManySnapshots, detail));
    }
    Ok(found)
}

/// Numbers that are passed over in each volume when a state was put back from a copy.
const PASSED_OVER: u32 = 1 << 16;

/// Passes over the numbers that snapshots may have been given since this state was copied. Clients know
/// snapshots by number, and would take another one for what they have open.
pub fn pass_over_numbers(tx: &mut Tx) -> Result<(), Refusal> {
    for volume in volumes::all(tx)? {
        let mut history = past::history(tx, volume.volume)?.unwrap_or(NO_HISTORY);
        history.newest = history.newest.saturating_add(PASSED_OVER);
        tx.set(key::history(volume.volume), &history);
    }
    Ok(())
}

/// The history of a volume that never had a snapshot.
const NO_HISTORY: HistoryRecord = HistoryRecord { newest: 0, snapshots: 0, past_files: 0, past_bytes: 0 };

/// Makes a snapshot of the directory at a place.
pub fn make(tx: &mut Tx, at: &NamePlace, name: &str, now_ms: u64) -> Result<Made, Refusal> {
    let found = new_root(tx, at, name)?;
    let root = found.file;
    let volume = found.volume.volume;
    let mut history = past::history(tx, volume)?.unwrap_or(NO_HISTORY);
    let worn_out = || Refusal::new(Reason::TooManySnapshots, "the volume has used up its 2^32 snapshots");
    history.newest = history.newest.checked_add(1).ok_or_else(worn_out)?;
    history.snapshots += 1;
    let number = history.newest;
    let record = SnapshotRecord {
        root,
        name: name.to_owned(),
        taken_ms: now_ms,
        going: false,
        late: 0,
        scheduled: false,
    };
    tx.set(key::history(volume), &history);
    tx.set(key::snapshot(volume, number), &record);
    tx.set(key::snapshot_name(root, name), &number);
    let mut open = Vec::new();
    for (file, _) in open_below(tx, volume, root)? {
        if frozen::begin(tx, file)?.is_some() {
            open.push(file);
        }
    }
    Ok(Made { volume, root, number, open })
}

/// Records how many files were not held at the moment of a snapshot. Returns its record.
pub fn note_late(tx: &mut Tx, made: &Made, late: u32) -> Result<SnapshotRecord, Refusal> {
    let row = key::snapshot(made.volume, made.number);
    let record: Option<SnapshotRecord> = tx.record(&row)?;
    let record = SnapshotRecord { late, ..record.ok_or_else(|| gone(made.number))? };
    tx.set(row, &record);
    Ok(record)
}

/// The refusal for a snapshot that was removed.
pub fn gone(number: u32) -> Refusal {
    Refusal::new(Reason::NoSnapshot, format!("snapshot {number} was removed"))
}

/// Files of a volume that are open for writing, or whose last lease is not over, below a directory.
pub fn open_below(tx: &Tx, volume: VolumeId, root: FileId) -> Result<Vec<(FileId, InodeRecord)>, Refusal> {
    let (from, to) = key::all(table::ATTENTION);
    let mut open = Vec::new();
    for (row, _) in tx.scan(&from, &to, usize::MAX)? {
        let file = FileId(key::number(&row, 1));
        let inode = tx.inode(file)?.filter(|inode| inode.held && inode.volume == volume && inode.is_named());
        if let Some(inode) = inode
            && is_below(tx, file, &inode, root)?
        {
            open.push((file, inode));
        }
    }
    Ok(open)
}

/// Returns true if a name of the file is somewhere below the directory.
fn is_below(tx: &Tx, file: FileId, inode: &InodeRecord, root: FileId) -> Result<bool, KvError> {
    let (from, to) = key::more_names_of(file);
    let more = if inode.more_links == 0 { Vec::new() } else { tx.scan(&from, &to, usize::MAX)? };
    let directories = more.iter().map(|(row, _)| key::more_name_in(row).0);
    for mut at in directories.chain([inode.parent]) {
        while at != FileId(0) {
            if at == root {
                return Ok(true);
            }
            at = tx.inode(at)?.map_or(FileId(0), |directory| directory.parent);
        }
    }
    Ok(false)
}

/// Takes a snapshot out of sight. What is kept for it is freed by [`free_some`].
pub fn remove(tx: &mut Tx, at: &NamePlace, name: &str) -> Result<(), Refusal> {
    let found = root_at(tx, at)?;
    let root = found.file;
    let volume = found.volume.volume;
    let Some(number) = tx.record::<u32>(&key::snapshot_name(root, name))? else {
        let place = place_of(tx, root)?;
        let there = names_of(tx, root)?;
        let others = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        let detail = format!("{place} has no snapshot {name:?} (it has: {others})");
        return Err(Refusal::new(Reason::NoSnapshot, detail));
    };
    let row = key::snapshot(volume, number);
    let record: Option<SnapshotRecord> = tx.record(&row)?;
    let record = record.ok_or_else(|| inodes::damaged(root, "its snapshot has a name and no record"))?;
    tx.set(row, &SnapshotRecord { going: true, ..record });
    tx.delete(key::snapshot_name(root, name));
    Ok(past::count(tx, volume, |all| all.snapshots = all.snapshots.saturating_sub(1))?)
}

/// A snapshot that was removed, and for which rows may still be kept: volume and number.
pub fn going(tx: &Tx) -> Result<Option<(VolumeId, u32)>, Refusal> {
    let rows = tx.records::<SnapshotRecord>(&key::all(table::SNAPSHOT), usize::MAX)?;
    let going = rows.iter().find(|(_, record)| record.going);
    Ok(going.map(|(row, _)| (VolumeId(key::number(row, 1)), key::until_in(row))))
}

/// Looks at `limit` past rows that are kept for a snapshot that was removed. Returns true when none is left:
/// the snapshot is gone then.
pub fn free_some(tx: &mut Tx, volume: VolumeId, number: u32, limit: usize) -> Result<bool, Refusal> {
    let (from, to) = key::all_kept_for(volume, number);
    let rows = tx.scan(&from, &to, limit)?;
    let live = past::live(tx, volume, 0)?;
    for (listed, _) in &rows {
        let row = key::kept_in(listed);
        match row.first() {
            Some(&table::PAST_INODE) => {
                if let Some(past) = tx.record::<PastInode>(row)? {
                    pass_on(tx, volume, number, row, &live, past.epoch, &past.roots)?;
                }
            }
            Some(&table::PAST_ENTRY) => {
                if let Some(past) = tx.record::<PastEntry>(row)? {
                    pass_on(tx, volume, number, row, &live, past.since, &past.roots)?;
                }
            }
            _ => {
                if let Some(past) = tx.record::<PastBytes>(row)?
                    && !pass_on(tx, volume, number, row, &live, past.epoch, &past.roots)?
                {
                    frozen::drop_data(tx, FileId(key::number(row, 1)), past.data)?;
                }
            }
        }
        tx.delete(listed.clone());
    }
    if rows.len() == limit {
        return Ok(false);
    }
    tx.delete(key::snapshot(volume, number));
    Ok(true)
}

/// Keeps a past row for the next older snapshot that sees it. Returns false if there is none: the row is
/// deleted.
fn pass_on(
    tx: &mut Tx,
    volume: VolumeId,
    number: u32,
    row: &[u8],
    live: &[Live],
    epoch: u32,
    roots: &[FileId],
) -> Result<bool, Refusal> {
    let next = past::next_below(live, number, epoch, roots);
    if let (Some(next), Some(value)) = (next, tx.get(row)?) {
        let mut moved = row.to_vec();
        moved.truncate(row.len().saturating_sub(4));
        moved.extend_from_slice(&next.to_be_bytes());
        tx.mark(key::kept_for(volume, next, &moved));
        tx.put(moved, value);
    }
    tx.delete(row.to_vec());
    Ok(next.is_some())
}

/// The snapshots of the directory at a place; those of all directories of a volume, if it is the root.
/// At most `limit` of them above `after`, and true if there are more.
pub fn rows(tx: &Tx, at: &NamePlace, after: u32, limit: usize) -> Result<(Vec<SnapshotRow>, bool), Refusal> {
    let found = root_at(tx, at)?;
    if let Some(access) = tx.access() {
        access.may(&found.inode, Act::Read)?;
    }
    let volume = found.volume.volume;
    let mut rows = Vec::new();
    for (row, record) in tx.records::<SnapshotRecord>(&key::snapshots_above(volume, after), usize::MAX)? {
        let is_asked = found.file == found.volume.root || found.file == record.root;
        if record.going || !is_asked {
            continue;
        }
        if rows.len() == limit {
            return Ok((rows, true));
        }
        let number = key::until_in(&row);
        let (files, bytes, more) = kept_for(tx, volume, number)?;
        let SnapshotRecord { root, name, taken_ms, late, .. } = record;
        let place = place_of(tx, root)?;
        rows.push(SnapshotRow { number, name, place, taken_ms, late, files, bytes, more });
    }
    Ok((rows, false))
}

/// Frozen files that are kept for a snapshot, their bytes, and true if there may be more.
fn kept_for(tx: &Tx, volume: VolumeId, number: u32) -> Result<(u64, u64, bool), Refusal> {
    let (from, to) = key::under(key::kept_for(volume, number, &[table::PAST_BYTES]));
    let rows = tx.scan(&from, &to, KEPT_LOOKED_AT)?;
    let mut files = 0;
    let mut bytes = 0u64;
    for (listed, _) in &rows {
        let Some(past) = tx.record::<PastBytes>(key::kept_in(listed))? else { continue };
        files += 1;
        bytes = bytes.saturating_add(inodes::find(tx, past.data)?.map_or(0, |inode| inode.size));
    }
    Ok((files, bytes, rows.len() == KEPT_LOOKED_AT))
}

/// URL of a directory, as users write it.
pub(super) fn place_of(tx: &Tx, root: FileId) -> Result<String, Refusal> {
    let inode = inodes::get(tx, root)?;
    let path = volumes::path_of(tx, &inode)?;
    Ok(path.trim_end_matches('/').to_owned())
}
