//! What was before a change that a snapshot covers: past rows.
//!
//! A row that changes is kept first, if a snapshot covers it that was made since the row's last change. So a
//! snapshot costs nothing when it is made, and each row is kept once for each snapshot at most. A row of `I`
//! has a file's attributes and names, one of `B` says which frozen file has its bytes, and one of `E` is a
//! name. Each says which snapshots see it: those above its epoch, up to the one in its key, whose roots it
//! names. Rows of `W` list them by that snapshot, for its removal.
//!
//! A snapshot *covers* a row if its root was above the row when it was made. To find that, the present tree
//! is climbed. A directory or file that leaves the places above it takes along how far it was covered there
//! (`moved`), and may then keep too much, never too little.

use std::collections::BTreeSet;

use braid_layout::{FileId, VolumeId};
use braid_wire::Wire;
use braid_wire::control::{EntryKind, Xattr};

use crate::records::kv::KvError;
use crate::records::schema::{
    EntryRecord, HistoryRecord, InodeRecord, PastBytes, PastEntry, PastInode, SCHEMA_VERSION, SnapshotRecord,
    XattrRecord, damaged, key, stored,
};
use crate::records::tx::Tx;

/// Stands in a list of roots for any root.
const ANY_ROOT: FileId = FileId(0);

/// The snapshots that see something as it is until now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cover {
    /// The newest of them.
    pub until: u32,
    /// Their roots; 0: any.
    pub roots: Vec<FileId>,
}

/// A snapshot that is there, with its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Live {
    pub number: u32,
    pub root: FileId,
}

/// The snapshots of a volume in all; `None` if it never had one.
pub fn history(tx: &Tx, volume: VolumeId) -> Result<Option<HistoryRecord>, KvError> {
    tx.record(&key::history(volume))
}

/// The newest number of a snapshot of the volume: what is made now has it as its epoch.
pub fn newest(tx: &Tx, volume: VolumeId) -> Result<u32, KvError> {
    Ok(history(tx, volume)?.map_or(0, |history| history.newest))
}

/// The snapshots of a volume that are there, above a number.
pub fn live(tx: &Tx, volume: VolumeId, above: u32) -> Result<Vec<Live>, KvError> {
    let rows = tx.records::<SnapshotRecord>(&key::snapshots_above(volume, above), usize::MAX)?;
    let there = rows.into_iter().filter(|(_, record)| !record.going);
    Ok(there.map(|(row, record)| Live { number: key::until_in(&row), root: record.root }).collect())
}

/// The snapshots above `epoch` that cover what is in these directories, or is one of them, and those up to
/// `moved`.
fn cover(
    tx: &Tx,
    volume: VolumeId,
    epoch: u32,
    moved: u32,
    from: impl FnOnce(&Tx) -> Result<Vec<FileId>, KvError>,
) -> Result<Option<Cover>, KvError> {
    if history(tx, volume)?.is_none_or(|history| history.snapshots == 0 || history.newest <= epoch) {
        return Ok(None);
    }
    let live = live(tx, volume, epoch)?;
    if live.is_empty() {
        return Ok(None);
    }
    let mut above = BTreeSet::new();
    let mut moved = moved;
    for first in from(tx)? {
        let mut at = first;
        while at != FileId(0) && above.insert(at) {
            let Some(directory) = tx.inode(at)? else { break };
            moved = moved.max(directory.moved);
            at = directory.parent;
        }
    }
    let covers = |one: &&Live| above.contains(&one.root) || one.number <= moved;
    let Some(until) = live.iter().filter(covers).map(|one| one.number).max() else { return Ok(None) };
    let mut roots: BTreeSet<FileId> =
        live.iter().map(|one| one.root).filter(|root| above.contains(root)).collect();
    if live.iter().any(|one| one.number <= moved) {
        roots.insert(ANY_ROOT);
    }
    Ok(Some(Cover { until, roots: roots.into_iter().collect() }))
}

/// The snapshots above `epoch` that cover a file, directory or node, by all of its names.
pub fn cover_of(tx: &Tx, file: FileId, inode: &InodeRecord, epoch: u32) -> Result<Option<Cover>, KvError> {
    cover(tx, inode.volume, epoch, inode.moved, |tx| {
        if inode.kind == EntryKind::Directory {
            return Ok(vec![file]);
        }
        let mut directories = vec![inode.parent];
        if inode.more_links > 0 {
            let (from, to) = key::more_names_of(file);
            let rows = tx.scan(&from, &to, usize::MAX)?;
            directories.extend(rows.iter().map(|(row, _)| key::more_name_in(row).0));
        }
        Ok(directories)
    })
}

/// Keeps a file, directory or node as it is, for the snapshots that cover it. Called before anything changes
/// that belongs to it and is not in its record. Changes of the record itself are found by
/// [`Tx::set_inode`].
pub fn keep(tx: &mut Tx, file: FileId) -> Result<(), KvError> {
    let Some(inode) = tx.inode(file)? else { return Ok(()) };
    let newest = newest(tx, inode.volume)?;
    if inode.epoch < newest {
        keep_inode(tx, file, &inode)?;
        tx.put_inode(file, &InodeRecord { epoch: newest, ..inode })?;
    }
    Ok(())
}

/// The epoch that a record gets which is set to `after`. Keeps the one `before` if a snapshot covers it and
/// users see the difference.
pub fn changed(
    tx: &mut Tx,
    file: FileId,
    before: Option<&InodeRecord>,
    after: &InodeRecord,
) -> Result<u32, KvError> {
    let newest = newest(tx, after.volume)?;
    let Some(before) = before else { return Ok(newest) };
    if before.epoch >= newest || before.seen() == after.seen() {
        return Ok(before.epoch);
    }
    keep_inode(tx, file, before)?;
    Ok(newest)
}

fn keep_inode(tx: &mut Tx, file: FileId, inode: &InodeRecord) -> Result<(), KvError> {
    let Some(Cover { until, roots }) = cover_of(tx, file, inode, inode.epoch)? else { return Ok(()) };
    let xattrs = match inode.xattr_bytes {
        0 => Vec::new(),
        _ => xattrs(tx, file)?,
    };
    let mut row = vec![SCHEMA_VERSION];
    row.append(&mut stored::encode(file, &inode.seen(), &[]));
    let record = PastInode { epoch: inode.epoch, roots, row, xattrs };
    set(tx, inode.volume, until, key::past_inode(file, until), &record);
    Ok(())
}

/// The extended attributes of a file, by name.
pub fn xattrs(tx: &Tx, file: FileId) -> Result<Vec<Xattr>, KvError> {
    let rows = tx.records::<XattrRecord>(&key::xattrs_of(file), usize::MAX)?;
    let xattr = |(row, record): (Vec<u8>, XattrRecord)| Xattr {
        name: row.get(9..).unwrap_or_default().to_vec(),
        value: record.value,
    };
    Ok(rows.into_iter().map(xattr).collect())
}

/// Keeps a name that is about to be taken out of its directory.
pub fn keep_entry(tx: &mut Tx, directory: FileId, name: &[u8], entry: &EntryRecord) -> Result<(), KvError> {
    let Some(inode) = tx.inode(directory)? else { return Ok(()) };
    let Some(Cover { until, roots }) = cover(tx, inode.volume, entry.since, 0, |_| Ok(vec![directory]))?
    else {
        return Ok(());
    };
    let &EntryRecord { kind, file, since } = entry;
    let record = PastEntry { kind, file, since, roots };
    set(tx, inode.volume, until, key::past_entry(directory, name, until), &record);
    Ok(())
}

/// Records that the bytes which a file had since its bytes' epoch are those of the frozen file `data`.
pub fn keep_bytes(tx: &mut Tx, file: FileId, inode: &InodeRecord, cover: Cover, data: FileId) {
    let Cover { until, roots } = cover;
    let record = PastBytes { epoch: inode.bytes_epoch, roots, data };
    set(tx, inode.volume, until, key::past_bytes(file, until), &record);
}

/// The rows of `B` of a file that name a frozen file, with their keys.
pub fn bytes_in(tx: &Tx, file: FileId, data: FileId) -> Result<Vec<(Vec<u8>, PastBytes)>, KvError> {
    let range = key::past_bytes_of(file);
    let mut rows = tx.records::<PastBytes>(&range, usize::MAX)?;
    rows.retain(|(_, record)| record.data == data);
    Ok(rows)
}

/// The newest snapshot below `number` that sees a past row of this epoch and these roots. `live`: the
/// snapshots that are there.
pub fn next_below(live: &[Live], number: u32, epoch: u32, roots: &[FileId]) -> Option<u32> {
    let sees = |one: &&Live| roots.contains(&one.root) || roots.contains(&ANY_ROOT);
    let in_range = live.iter().filter(|one| epoch < one.number && one.number < number);
    in_range.filter(sees).map(|one| one.number).max()
}

/// Sets a past row, and lists it with its snapshot.
pub fn set(tx: &mut Tx, volume: VolumeId, until: u32, row: Vec<u8>, record: &impl Wire) {
    tx.mark(key::kept_for(volume, until, &row));
    tx.set(row, record);
}

/// The record in a row of `I`.
pub fn inode_in(file: FileId, row: &[u8], past: &PastInode) -> Result<InodeRecord, KvError> {
    let (version, fields) = past.row.split_first().ok_or_else(|| damaged(row, "it has no row of a file"))?;
    let (inode, _) = stored::decode(file, *version, fields).map_err(|error| damaged(row, error))?;
    Ok(inode)
}

/// Counts frozen files that came to a volume or left it.
pub fn count(tx: &mut Tx, volume: VolumeId, change: impl FnOnce(&mut HistoryRecord)) -> Result<(), KvError> {
    let Some(mut record) = history(tx, volume)? else { return Ok(()) };
    change(&mut record);
    tx.set(key::history(volume), &record);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_past_is_passed_on_to_the_newest_older_snapshot_that_sees_it() {
        let root = FileId(2);
        let other = FileId(3);
        let live = [(1, root), (2, other), (3, root)].map(|(number, root)| Live { number, root });
        assert_eq!(next_below(&live, 3, 0, &[root]), Some(1), "2 is of another root");
        assert_eq!(next_below(&live, 3, 1, &[root]), None, "1 is as old as the row");
        assert_eq!(next_below(&live, 3, 0, &[ANY_ROOT]), Some(2));
    }
}
