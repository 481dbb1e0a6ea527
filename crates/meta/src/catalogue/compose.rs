//! Makes a manager's state of carried rows: the rows that follow from others, and what drives know of
//! themselves.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{ClusterId, DriveId, FileId};
use braid_wire::capability::Key;
use braid_wire::control::KeyTurn;
use braid_wire::{Addresses, Refusal};

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

/// Drives that do not come back as they were, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Apart {
    /// They were not given: each has a key that nobody has, and may join anew.
    pub unheard: Vec<String>,
    /// They were given, and another drive has taken their place, or has their name: they are left out.
    pub replaced: Vec<String>,
    /// They were given and the names do not know them: they joined in the last seconds, or were removed. They
    /// come back behind, so that nothing they hold is believed unseen.
    pub unknown: Vec<String>,
}

/// Enters the drives' keys.
pub fn drives(
    tx: &mut Tx,
    known: &[Known],
    mut random: impl FnMut() -> Key,
    now_ms: u64,
) -> Result<Apart, KvError> {
    let mut by_drive: BTreeMap<DriveId, &Known> = known.iter().map(|known| (known.drive, known)).collect();
    let mut apart = Apart::default();
    let mut names = BTreeSet::new();
    let records = tx.records::<DriveRecord>(&key::all(table::DRIVE), usize::MAX)?;
    // Without any record all drives are alike, and what they hold is all that there is.
    let without_records = records.is_empty();
    for (row, record) in records {
        if record.replaced_by != DriveId(0) {
            apart.replaced.extend(by_drive.remove(&record.drive).map(|known| known.name.clone()));
            tx.set(row, &DriveRecord { master: random(), ..record });
            continue;
        }
        names.insert(record.name.clone());
        let Some(known) = by_drive.remove(&record.drive) else {
            let keys = DriveKeyRecord { may_rejoin: true, ..DriveKeyRecord::FIRST };
            tx.set(key::drive_key(record.drive), &keys);
            apart.unheard.push(record.name.clone());
            tx.set(row, &DriveRecord { master: random(), ..record });
            continue;
        };
        let instance = record.instance.max(known.instance);
        let stored = record.stored.max(known.instance);
        let master = known.master.clone();
        tx.set(row, &DriveRecord { master, confirmed: true, instance, stored, ..record });
        key_number(tx, known);
    }
    for known in by_drive.into_values() {
        if !names.insert(known.name.clone()) {
            apart.replaced.push(known.name.clone());
            continue;
        }
        if !without_records {
            apart.unknown.push(known.name.clone());
        }
        let record = DriveRecord {
            drive: known.drive,
            name: known.name.clone(),
            master: known.master.clone(),
            confirmed: true,
            replaced_by: DriveId(0),
            addresses: Addresses::default(),
            host: String::new(),
            rack: String::new(),
            directory: known.directory.clone(),
            capacity_bytes: 0,
            joined_ms: now_ms,
            instance: known.instance,
            stored: known.instance,
            start: 0,
            log: 0,
            behind: !without_records,
        };
        tx.set(key::drive(known.drive), &record);
        key_number(tx, known);
    }
    Ok(apart)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::records::db::Db;
    use crate::records::memory::MemoryKv;
    use crate::rules::drives::examples::record;

    fn known(drive: u128, name: &str) -> Known {
        Known {
            drive: DriveId(drive),
            name: name.to_owned(),
            master: Key::new([7; 32]),
            key_number: 1,
            instance: 3,
            directory: "/d".to_owned(),
            seen: Age::default(),
        }
    }

    #[test]
    fn without_any_record_the_drives_that_are_given_are_members() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let given = [known(1, "d1")];
        let apart = db.write(move |tx| Ok(drives(tx, &given, || Key::new([9; 32]), 5)?)).unwrap();
        assert_eq!(apart, Apart::default());
        let record: DriveRecord = db.read(|tx| Ok(tx.record(&key::drive(DriveId(1)))?.unwrap())).unwrap();
        assert!(!record.behind && record.confirmed);
    }

    #[test]
    fn a_drive_that_was_replaced_or_is_not_in_the_names_is_no_full_member() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let given = [known(1, "d1"), known(2, "d1"), known(3, "d3"), known(4, "d1")];
        let apart = db
            .write(move |tx| {
                tx.set(key::drive(DriveId(1)), &record(1, "d1"));
                let replaced = DriveRecord { replaced_by: DriveId(1), ..record(2, "d1") };
                tx.set(key::drive(DriveId(2)), &replaced);
                Ok(drives(tx, &given, || Key::new([9; 32]), 5)?)
            })
            .unwrap();
        assert_eq!(apart.replaced, ["d1", "d1"]);
        assert_eq!(apart.unknown, ["d3"]);
        assert!(apart.unheard.is_empty());
        db.read(|tx| {
            let of = |drive| tx.record::<DriveRecord>(&key::drive(DriveId(drive)));
            let one = of(1)?.unwrap();
            assert_eq!((one.master.secret(), one.confirmed), (&[7; 32], true));
            let two = of(2)?.unwrap();
            assert_eq!((two.replaced_by, two.master.secret()), (DriveId(1), &[9; 32]));
            assert!(of(3)?.unwrap().behind);
            assert!(of(4)?.is_none(), "its name is another's");
            Ok(())
        })
        .unwrap();
    }
}
