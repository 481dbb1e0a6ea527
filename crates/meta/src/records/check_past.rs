//! Checks that past rows, snapshots and frozen files agree with each other.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{FileId, VolumeId};
use braid_wire::Refusal;
use braid_wire::control::EntryKind;

use crate::records::check::Violation;
use crate::records::schema::{
    HistoryRecord, InodeRecord, PastBytes, PastEntry, PastInode, SnapshotRecord, key, table,
};
use crate::records::tx::Tx;
use crate::tree::seen::{self, Within};

/// Checks the tables `H`, `S`, `T`, `I`, `B`, `E` and `W`, the frozen files among `inodes`, and that all that
/// each snapshot shows is there.
pub(super) fn rows(
    tx: &Tx,
    inodes: &BTreeMap<FileId, InodeRecord>,
    found: &mut Vec<Violation>,
) -> Result<(), Refusal> {
    let snapshots: BTreeMap<(VolumeId, u32), SnapshotRecord> = tx
        .records(&key::all(table::SNAPSHOT), usize::MAX)?
        .into_iter()
        .map(|(row, record)| ((VolumeId(key::number(&row, 1)), key::until_in(&row)), record))
        .collect();
    names(tx, &snapshots, found)?;
    histories(tx, &snapshots, inodes, found)?;
    listed(tx, &snapshots, found)?;
    frozen(tx, inodes, found)?;
    for (&(_, number), record) in snapshots.iter().filter(|(_, record)| !record.going) {
        shown(tx, Within { root: record.root, number }, inodes, found)?;
    }
    Ok(())
}

fn names(
    tx: &Tx,
    snapshots: &BTreeMap<(VolumeId, u32), SnapshotRecord>,
    found: &mut Vec<Violation>,
) -> Result<(), Refusal> {
    let listed: BTreeMap<Vec<u8>, u32> =
        tx.records(&key::all(table::SNAPSHOT_NAME), usize::MAX)?.into_iter().collect();
    let there = snapshots.iter().filter(|(_, record)| !record.going);
    let expected: BTreeMap<Vec<u8>, u32> =
        there.map(|((_, number), it)| (key::snapshot_name(it.root, &it.name), *number)).collect();
    if listed != expected {
        found.push(format!("names of snapshots are {listed:?}, and should be {expected:?}"));
    }
    Ok(())
}

fn histories(
    tx: &Tx,
    snapshots: &BTreeMap<(VolumeId, u32), SnapshotRecord>,
    inodes: &BTreeMap<FileId, InodeRecord>,
    found: &mut Vec<Violation>,
) -> Result<(), Refusal> {
    let rows = tx.records::<HistoryRecord>(&key::all(table::HISTORY), usize::MAX)?;
    let histories: BTreeMap<VolumeId, HistoryRecord> =
        rows.into_iter().map(|(row, record)| (VolumeId(key::number(&row, 1)), record)).collect();
    for (volume, number) in snapshots.keys() {
        if histories.get(volume).is_none_or(|history| history.newest < *number) {
            found.push(format!("snapshot {number} of volume {volume} is above the newest"));
        }
    }
    for (volume, history) in &histories {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let there = snapshots.iter().filter(|((of, _), record)| of == volume && !record.going).count();
        let past = || inodes.values().filter(|inode| inode.volume == *volume && inode.is_frozen());
        let bytes: u64 = past().map(|inode| inode.size).sum();
        let counted = (u64::from(history.snapshots), history.past_files, history.past_bytes);
        if counted != (count(there), count(past().count()), bytes) {
            found.push(format!(
                "volume {volume} counts {history:?}, and has {there} snapshots, {bytes} bytes"
            ));
        }
    }
    let epochs =
        inodes.iter().map(|(file, it)| (file, it.volume, it.epoch.max(it.bytes_epoch).max(it.moved)));
    for (file, volume, epoch) in epochs {
        if epoch > histories.get(&volume).map_or(0, |history| history.newest) {
            found.push(format!("file {file} has an epoch that was not yet"));
        }
    }
    Ok(())
}

/// Checks that `W` has exactly the past rows, each under a snapshot of its number, and that no two ranges of
/// one file or name meet.
fn listed(
    tx: &Tx,
    snapshots: &BTreeMap<(VolumeId, u32), SnapshotRecord>,
    found: &mut Vec<Violation>,
) -> Result<(), Refusal> {
    let mut epochs: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let mut roots: BTreeMap<Vec<u8>, Vec<FileId>> = BTreeMap::new();
    for (row, past) in tx.records::<PastInode>(&key::all(table::PAST_INODE), usize::MAX)? {
        epochs.insert(row.clone(), past.epoch);
        roots.insert(row, past.roots);
    }
    for (row, past) in tx.records::<PastBytes>(&key::all(table::PAST_BYTES), usize::MAX)? {
        epochs.insert(row.clone(), past.epoch);
        roots.insert(row, past.roots);
    }
    for (row, past) in tx.records::<PastEntry>(&key::all(table::PAST_ENTRY), usize::MAX)? {
        epochs.insert(row.clone(), past.since);
        roots.insert(row, past.roots);
    }
    let mut kept = BTreeSet::new();
    for (row, _) in tx.scan_all(&key::all(table::KEPT_FOR))? {
        let of = (VolumeId(key::number(&row, 1)), key::until_in(row.get(..13).unwrap_or_default()));
        let past = key::kept_in(&row).to_vec();
        let sees = |root: FileId| {
            roots.get(&past).is_none_or(|roots| roots.contains(&root) || roots.contains(&FileId(0)))
        };
        let is_seen = snapshots.get(&of).is_some_and(|snapshot| sees(snapshot.root));
        if !is_seen || key::until_in(&past) != of.1 {
            found.push(format!("{row:02x?} is kept for no snapshot"));
        }
        kept.insert(past);
    }
    let rows: BTreeSet<Vec<u8>> = epochs.keys().cloned().collect();
    let odd = rows.symmetric_difference(&kept);
    found.extend(odd.map(|row| format!("past row {row:02x?} is not listed, or is listed and not there")));
    let mut before: Option<&Vec<u8>> = None;
    for (row, epoch) in &epochs {
        let until = key::until_in(row);
        let of = |row: &[u8]| row[..row.len().saturating_sub(4)].to_vec();
        let meets = before.is_some_and(|before| of(before) == of(row) && *epoch < key::until_in(before));
        if *epoch >= until || meets {
            found.push(format!("past row {row:02x?} with epoch {epoch} has no range of its own"));
        }
        before = Some(row);
    }
    Ok(())
}

/// Checks that each frozen file is named by one row of `B`, each row of `B` names one or one to be, and that
/// nobody can write one.
fn frozen(
    tx: &Tx,
    inodes: &BTreeMap<FileId, InodeRecord>,
    found: &mut Vec<Violation>,
) -> Result<(), Refusal> {
    let mut named: BTreeMap<FileId, FileId> = BTreeMap::new();
    for (row, past) in tx.records::<PastBytes>(&key::all(table::PAST_BYTES), usize::MAX)? {
        let file = FileId(key::number(&row, 1));
        if named.insert(past.data, file).is_some() {
            found.push(format!("frozen file {} has the bytes of two past files", past.data));
        }
        let begun = inodes.get(&file).and_then(|inode| inode.freezing.as_ref());
        let is_begun = begun.is_some_and(|begun| begun.data == past.data);
        let is_there = inodes.get(&past.data).is_some_and(|data| data.frozen == file);
        if is_begun == is_there {
            found.push(format!("the bytes of past file {file} are to be in {}, which is not so", past.data));
        }
    }
    let rows = tx.records::<FileId>(&key::all(table::FREEZING), usize::MAX)?;
    let begun: BTreeMap<FileId, FileId> =
        rows.into_iter().map(|(row, file)| (FileId(key::number(&row, 1)), file)).collect();
    let expected = inodes.iter().filter_map(|(file, inode)| Some((inode.freezing.as_ref()?.data, *file)));
    if begun != expected.collect() {
        found.push(format!("freezes are listed as {begun:?}, which files do not say"));
    }
    for (&file, inode) in inodes {
        if inode.is_frozen() {
            let is_free = !inode.held && !inode.is_named() && inode.kind == EntryKind::File;
            if named.get(&file) != Some(&inode.frozen) || !is_free || inode.freezing.is_some() {
                found.push(format!("frozen file {file} is of no snapshot, or is open or named"));
            }
        }
        if let Some(begun) = &inode.freezing
            && named.get(&begun.data) != Some(&file)
        {
            found.push(format!("file {file} is to be frozen for no snapshot"));
        }
    }
    Ok(())
}

/// Checks that what a snapshot shows can be reached, and that the bytes of each file in it are those of a
/// frozen file, of one to be, or of one that nobody may write.
fn shown(
    tx: &Tx,
    within: Within,
    inodes: &BTreeMap<FileId, InodeRecord>,
    found: &mut Vec<Violation>,
) -> Result<(), Refusal> {
    let mut left = vec![within.root];
    let mut seen_files = BTreeSet::new();
    while let Some(file) = left.pop() {
        let Some(inode) = seen::find(tx, file, Some(within))? else {
            found.push(format!("snapshot {} lacks {file}", within.number));
            continue;
        };
        match inode.kind {
            EntryKind::Directory => {
                let entries = seen::entries(tx, file, Some(within), b"", usize::MAX)?;
                left.extend(entries.into_iter().map(|(_, entry)| entry.file));
            }
            EntryKind::File if seen_files.insert(file) => {
                let begun = inodes.get(&file).is_some_and(|inode| inode.freezing.is_some());
                match seen::bytes(tx, file, within.number) {
                    Ok((data, record)) if data == file && record.held && !record.is_frozen() => {
                        found.push(format!("snapshot {} shows file {file}, which is open", within.number));
                    }
                    Ok(_) => {}
                    Err(_) if begun => {}
                    Err(refusal) => found.push(refusal.detail),
                }
            }
            _ => {}
        }
    }
    Ok(())
}
