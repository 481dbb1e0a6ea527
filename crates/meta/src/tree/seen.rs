//! Look-ups at a snapshot: what it shows is the past rows that it sees, and else the present ones.

use std::collections::BTreeMap;

use braid_layout::{FileId, VolumeId};
use braid_wire::control::Xattr;
use braid_wire::{Reason, Refusal};

use crate::records::schema::{
    EntryRecord, InodeRecord, PastBytes, PastEntry, PastInode, SnapshotRecord, VolumeRecord, key,
};
use crate::records::tx::Tx;
use crate::records::{inodes, past};
use crate::tree::names::show;
use crate::tree::volumes;

/// Number of rows of a directory that are read at a time. A name has at most one past row for each snapshot.
const ROWS: usize = 4096;

/// A snapshot in which names are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Within {
    /// The directory that the snapshot shows.
    pub root: FileId,
    pub number: u32,
}

/// The snapshot of this number of a volume.
pub fn snapshot(tx: &Tx, volume: VolumeId, number: u32) -> Result<Within, Refusal> {
    let record: Option<SnapshotRecord> = tx.record(&key::snapshot(volume, number))?;
    let record = record.filter(|record| !record.going).ok_or_else(|| {
        Refusal::new(Reason::NoSnapshot, "the snapshot was removed: look for another with braid snapshot ls")
    })?;
    Ok(Within { root: record.root, number })
}

/// The volume of a file in a snapshot of this number.
pub fn volume_of(tx: &Tx, file: FileId, number: u32) -> Result<VolumeId, Refusal> {
    // No snapshot has number 0, and the root is of no account for one row.
    let inode = find(tx, file, Some(Within { root: FileId(0), number }))?;
    let inode = inode.ok_or_else(|| {
        Refusal::new(
            Reason::NotFound,
            format!("file {file} is not in snapshot {number}, or that was removed"),
        )
    })?;
    Ok(inode.volume)
}

/// Names of the snapshots of a directory.
pub fn names_of(tx: &Tx, root: FileId) -> Result<Vec<String>, Refusal> {
    let (from, to) = key::under(key::snapshot_name(root, ""));
    let rows = tx.scan(&from, &to, usize::MAX)?;
    Ok(rows.iter().map(|(row, _)| show(row.get(9..).unwrap_or_default())).collect())
}

/// Refuses to remove a volume that has snapshots, or had some for which rows are kept.
pub fn refuse_any(tx: &Tx, volume: &VolumeRecord) -> Result<(), Refusal> {
    let rows = tx.records::<SnapshotRecord>(&key::snapshots_above(volume.volume, 0), usize::MAX)?;
    let names: Vec<&str> =
        rows.iter().filter(|(_, it)| !it.going).map(|(_, record)| record.name.as_str()).collect();
    let detail = match (rows.is_empty(), names.is_empty()) {
        (true, _) => return Ok(()),
        (_, true) => {
            let detail = format!("snapshots of volume {:?} are being removed: try again", volume.name);
            return Err(Refusal::new(Reason::Busy, detail));
        }
        _ => format!(
            "volume {:?} has snapshots ({}): remove them first, with braid snapshot rm",
            volume.name,
            names.join(", ")
        ),
    };
    Err(Refusal::new(Reason::NotEmpty, detail))
}

/// The snapshot of this name of a directory.
pub fn named(tx: &Tx, directory: FileId, name: &str) -> Result<Option<Within>, Refusal> {
    let number: Option<u32> = tx.record(&key::snapshot_name(directory, name))?;
    Ok(number.map(|number| Within { root: directory, number }))
}

/// A file, directory or node as it is, or as a snapshot shows it, without its bytes.
pub fn find(tx: &Tx, file: FileId, within: Option<Within>) -> Result<Option<InodeRecord>, Refusal> {
    let Some(Within { number, .. }) = within else { return Ok(inodes::find(tx, file)?) };
    let range = upwards(key::past_inode(file, number));
    if let Some((row, past)) = tx.records::<PastInode>(&range, 1)?.into_iter().next()
        && past.epoch < number
    {
        return Ok(Some(past::inode_in(file, &row, &past)?));
    }
    let live = inodes::find(tx, file)?.filter(|inode| inode.epoch < number && !inode.is_frozen());
    Ok(live.map(|inode| inode.seen()))
}

/// As [`find`]; refused if there is no such file.
pub fn get(tx: &Tx, file: FileId, within: Option<Within>) -> Result<InodeRecord, Refusal> {
    match within {
        None => {
            let inode = inodes::get(tx, file)?;
            if inode.is_past() {
                return Err(Refusal::new(Reason::NotFound, format!("file {file} was removed")));
            }
            Ok(inode)
        }
        Some(_) => {
            find(tx, file, within)?.ok_or_else(|| inodes::damaged(file, "a snapshot lacks its past row"))
        }
    }
}

/// A frozen file as users name it: the place of its file in the newest snapshot that shows its bytes.
pub fn place_of_frozen(tx: &Tx, data: FileId, inode: &InodeRecord) -> Result<String, Refusal> {
    let file = inode.frozen;
    for (row, _) in past::bytes_in(tx, file, data)?.iter().rev() {
        let number = key::until_in(row);
        let record: Option<SnapshotRecord> = tx.record(&key::snapshot(inode.volume, number))?;
        let Some(record) = record.filter(|record| !record.going) else { continue };
        let within = Within { root: record.root, number };
        let mut path = String::new();
        let mut at = file;
        while at != record.root {
            let Some(seen) = find(tx, at, Some(within))?.filter(|seen| seen.parent != FileId(0)) else {
                break;
            };
            path = format!("/{}{path}", show(&seen.name));
            at = seen.parent;
        }
        let directory = volumes::path_of(tx, &inodes::get(tx, record.root)?)?;
        return Ok(format!("{}/.snapshots/{}{path}", directory.trim_end_matches('/'), record.name));
    }
    volumes::path_of(tx, inode)
}

/// The extended attributes of a file, by name.
pub fn xattrs(tx: &Tx, file: FileId, within: Option<Within>) -> Result<Vec<Xattr>, Refusal> {
    if let Some(Within { number, .. }) = within {
        let range = upwards(key::past_inode(file, number));
        let first = tx.records::<PastInode>(&range, 1)?.into_iter().next();
        if let Some((_, past)) = first.filter(|(_, past)| past.epoch < number) {
            return Ok(past.xattrs);
        }
    }
    Ok(past::xattrs(tx, file)?)
}

/// The frozen or live file that has the bytes of a file in a snapshot, with its record.
pub fn bytes(tx: &Tx, file: FileId, number: u32) -> Result<(FileId, InodeRecord), Refusal> {
    let range = upwards(key::past_bytes(file, number));
    let first = tx.records::<PastBytes>(&range, 1)?.into_iter().next();
    let live = inodes::find(tx, file)?;
    let Some((_, past)) = first.filter(|(_, past)| past.epoch < number) else {
        let live = live.filter(|live| live.bytes_epoch < number && !live.is_frozen());
        let live = live.ok_or_else(|| inodes::damaged(file, "a snapshot lacks its bytes"))?;
        return Ok((file, live));
    };
    if let Some(data) = inodes::find(tx, past.data)?.filter(InodeRecord::is_frozen) {
        return Ok((past.data, data));
    }
    let is_begun =
        live.as_ref().and_then(|live| live.freezing.as_ref()).is_some_and(|it| it.data == past.data);
    if is_begun {
        let name = live.map(|live| show(&live.name)).unwrap_or_default();
        let detail = format!("the bytes of {name:?} are being kept for the snapshot: try again");
        return Err(Refusal::new(Reason::Busy, detail));
    }
    Err(inodes::damaged(past.data, "a snapshot lacks its frozen file"))
}

/// A file in a snapshot, with the layout that has its bytes: that of the frozen or live file which is
/// returned with it.
pub fn with_bytes(
    tx: &Tx,
    file: FileId,
    inode: &InodeRecord,
    number: u32,
) -> Result<(FileId, InodeRecord), Refusal> {
    let (data, record) = bytes(tx, file, number)?;
    let segments = record.in_force().cloned().collect();
    Ok((data, InodeRecord { g: record.g, segments, unfenced: record.unfenced, ..inode.clone() }))
}

/// The entry of a name in a directory.
pub fn entry(
    tx: &Tx,
    directory: FileId,
    name: &[u8],
    within: Option<Within>,
) -> Result<Option<EntryRecord>, Refusal> {
    let live: Option<EntryRecord> = tx.record(&key::entry(directory, name))?;
    let Some(Within { number, .. }) = within else { return Ok(live) };
    let from = key::past_entry(directory, name, number);
    let to = [&key::past_entry(directory, name, u32::MAX)[..], &[0]].concat();
    let past = tx.records::<PastEntry>(&(from, to), 1)?.into_iter().next();
    let past = past.map(|(_, past)| past).filter(|past| past.since < number);
    Ok(past
        .map(|past| EntryRecord { kind: past.kind, file: past.file, since: past.since })
        .or(live.filter(|live| live.since < number)))
}

/// The first `limit` entries of a directory after a name.
pub fn entries(
    tx: &Tx,
    directory: FileId,
    within: Option<Within>,
    after: &[u8],
    limit: usize,
) -> Result<Vec<(Vec<u8>, EntryRecord)>, Refusal> {
    let live_range = |after: &[u8]| {
        let (from, to) = key::under(key::entry(directory, b""));
        // Names hold no zero: this is the first key after the name.
        let next = [&key::entry(directory, after)[..], &[0]].concat();
        if after.is_empty() { (from, to) } else { (next, to) }
    };
    let named = |(row, entry): (Vec<u8>, EntryRecord)| (key::name_in(&row).to_vec(), entry);
    let Some(Within { number, .. }) = within else {
        return Ok(tx.records(&live_range(after), limit)?.into_iter().map(named).collect());
    };
    let mut found = Vec::new();
    let mut after = after.to_vec();
    loop {
        let live = tx.records::<EntryRecord>(&live_range(&after), ROWS)?;
        let (mut from, to) = key::under(key::past_entry(directory, b"", 0)[..9].to_vec());
        if !after.is_empty() {
            from = [&from[..], &after, &[1]].concat();
        }
        let past = tx.records::<PastEntry>(&(from, to), ROWS)?;
        // What both pages have in full. The last name of a page of past rows may have more of them.
        let mut end: Option<Vec<u8>> = None;
        if let Some((row, _)) = live.last().filter(|_| live.len() == ROWS) {
            end = Some(key::name_in(row).to_vec());
        }
        if let Some((row, _)) = past.last().filter(|_| past.len() == ROWS) {
            let last = key::name_in(row);
            let whole = past.iter().map(|(row, _)| key::name_in(row)).rfind(|name| *name < last);
            let whole = whole.unwrap_or_default().to_vec();
            end = Some(end.map_or(whole.clone(), |end| end.min(whole)));
        }
        let mut names: BTreeMap<Vec<u8>, EntryRecord> = live.into_iter().map(named).collect();
        names.retain(|_, entry| entry.since < number);
        // The lowest number comes last, and counts.
        for (row, PastEntry { kind, file, since, .. }) in past.into_iter().rev() {
            if since < number && number <= key::until_in(&row) {
                names.insert(key::name_in(&row).to_vec(), EntryRecord { kind, file, since });
            }
        }
        found.extend(names.into_iter().filter(|(name, _)| end.as_ref().is_none_or(|end| name <= end)));
        match end {
            Some(end) if found.len() < limit => after = end,
            _ => break,
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// The rows from this one to the last of the same file.
fn upwards(row: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let (_, to) = key::under(row[..9].to_vec());
    (row, to)
}
