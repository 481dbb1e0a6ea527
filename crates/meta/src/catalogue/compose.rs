//! Makes a manager's state of carried rows: the rows that follow from others, and what drives know of
//! themselves.

use std::collections::BTreeMap;

use braid_layout::{ClusterId, DriveId, FileId};
use braid_wire::Refusal;
use braid_wire::capability::Key;
use braid_wire::control::KeyTurn;

use crate::catalogue::frame::Age;
use crate::records::inodes::{self, occupy};
use crate::records::kv::KvError;
use crate::records::schema::{
    ClusterRecord, DriveCount, DriveKeyRecord, DriveRecord, EntryRecord, StaleRecord, key, table,
};
use crate::records::tx::Tx;
use braid_wire::control::EntryKind;

/// Contents of a drive's own directory.
#[derive(Debug, Clone)]
pub struct Known {
    pub drive: DriveId,
    pub name: String,
    pub master: Key,
    /// Number of the master key.
    pub key_number: u32,
    /// Number of the last process that was admitted as this drive.
    pub instance: u64,
    pub directory: String,
    /// Age of the manager's state that the drive last heard of.
    pub seen: Age,
}

/// Secrets of the cluster anew: those of the lost manager are known to nobody.
pub fn cluster(
    tx: &mut Tx,
    cluster: ClusterId,
    client_secret: Key,
    join_secret: Key,
    now_ms: u64,
) -> Result<(), KvError> {
    let before: Option<ClusterRecord> = tx.record(&key::meta("cluster"))?;
    let created_ms = before.map_or(now_ms, |before| before.created_ms);
    tx.set(key::meta("cluster"), &ClusterRecord { cluster, client_secret, join_secret, created_ms });
    Ok(())
}

/// Marks the state as one that is to be compared with what the drives hold, above all that was seen.
pub fn mark(tx: &mut Tx, seen: Age, time_ms: u64) -> Result<(), KvError> {
    let term = tx.number("term")?.max(seen.term);
    tx.set(key::meta("term"), &term);
    tx.set(key::meta("changes"), &seen.changes);
    tx.set(key::meta("time"), &time_ms);
    for word in ["restored", "unnamed", "rebuilt"] {
        tx.set(key::meta(word), &1u64);
    }
    tx.set(key::meta("older"), &0u64);
    Ok(())
}

/// Enters the drives' keys. A drive of which nothing is known but its record gets a key that nobody has, and
/// may join anew. Returns the names of those.
pub fn drives(
    tx: &mut Tx,
    known: &[Known],
    mut random: impl FnMut() -> Key,
    now_ms: u64,
) -> Result<Vec<String>, KvError> {
    let mut by_drive: BTreeMap<DriveId, &Known> = known.iter().map(|known| (known.drive, known)).collect();
    let mut unheard = Vec::new();
    for (row, record) in tx.records::<DriveRecord>(&key::all(table::DRIVE), usize::MAX)? {
        if record.replaced_by != DriveId(0) {
            tx.set(row, &DriveRecord { master: random(), ..record });
            continue;
        }
        let Some(known) = by_drive.remove(&record.drive) else {
            let keys = DriveKeyRecord { may_rejoin: true, ..DriveKeyRecord::FIRST };
            tx.set(key::drive_key(record.drive), &keys);
            unheard.push(record.name.clone());
            tx.set(row, &DriveRecord { master: random(), ..record });
            continue;
        };
        let instance = record.instance.max(known.instance);
        let stored = record.stored.max(known.instance);
        let master = known.master.clone();
        tx.set(row, &DriveRecord { master, confirmed: true, instance, stored, ..record });
        key_number(tx, known);
    }
    // Drives that had joined in the last seconds.
    for known in by_drive.into_values() {
        let record = DriveRecord {
            drive: known.drive,
            name: known.name.clone(),
            master: known.master.clone(),
            confirmed: true,
            replaced_by: DriveId(0),
            address: String::new(),
            host: String::new(),
            rack: String::new(),
            directory: known.directory.clone(),
            capacity_bytes: 0,
            joined_ms: now_ms,
            instance: known.instance,
            stored: known.instance,
            start: 0,
            log: 0,
            behind: false,
        };
        tx.set(key::drive(known.drive), &record);
        key_number(tx, known);
    }
    Ok(unheard)
}

fn key_number(tx: &mut Tx, known: &Known) {
    if known.key_number > 1 {
        let turn = KeyTurn { number: known.key_number, ..KeyTurn::FIRST };
        tx.set(key::drive_key(known.drive), &DriveKeyRecord { turn, ..DriveKeyRecord::FIRST });
    }
}

/// Makes the rows that follow from the records of up to `limit` files after `after`. Returns the last of
/// them; `None` at the end.
pub fn follow(tx: &mut Tx, after: Option<FileId>, limit: usize) -> Result<Option<FileId>, Refusal> {
    let some = tx.inodes(after, limit)?;
    for (file, inode) in &some {
        for place in inode.places(*file).chain(inodes::moves(tx, *file)?) {
            occupy(tx, place)?;
        }
    }
    Ok(some.last().map(|(file, _)| *file))
}

/// Counts the stale components of each drive.
pub fn count_stale(tx: &mut Tx) -> Result<(), KvError> {
    let mut stale: BTreeMap<DriveId, u64> = BTreeMap::new();
    for (row, _) in tx.records::<StaleRecord>(&key::all(table::STALE), usize::MAX)? {
        *stale.entry(key::drive_of(&row)).or_default() += 1;
    }
    for (drive, stale) in stale {
        let DriveCount { components, .. } = inodes::counts(tx, drive)?;
        tx.set(key::drive_count(drive), &DriveCount { components, stale });
    }
    Ok(())
}

/// Numbers of a state's names, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Names {
    pub volumes: u64,
    pub files: u64,
    pub directories: u64,
    pub others: u64,
}

/// Counts the names, and the volumes.
pub fn names(tx: &Tx) -> Result<Names, KvError> {
    const PAGE: usize = 4096;
    let volumes = tx.scan_all(&key::all(table::VOLUME))?.len();
    let mut names = Names { volumes: u64::try_from(volumes).unwrap_or(u64::MAX), ..Names::default() };
    let (mut from, to) = key::all(table::ENTRY);
    loop {
        let rows = tx.records::<EntryRecord>(&(from.clone(), to.clone()), PAGE)?;
        for (_, entry) in &rows {
            match entry.kind {
                EntryKind::File => names.files += 1,
                EntryKind::Directory => names.directories += 1,
                _ => names.others += 1,
            }
        }
        match rows.last() {
            Some((last, _)) if rows.len() == PAGE => from = [last.as_slice(), &[0]].concat(),
            _ => return Ok(names),
        }
    }
}
