//! Seats: the small numbers that stand for drives in the rows of files and components.
//!
//! A drive's identity has 16 bytes, and a file names five drives or more; with identities a file's record was
//! twice as long. So a drive gets a seat when it is first named in a file's layout, whether the cluster knows
//! the drive then or not: a restored state may find files on drives that joined after the backup. A seat
//! belongs to one drive for ever, also when that has left the cluster. It has no meaning outside of this
//! state.
//!
//! Most requests need some seats, so durable ones are kept in memory. A seat that was decided on and is not
//! durable is not: its transaction may still fail, and the seat be given to another drive.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use braid_layout::{DriveId, FileId};

use crate::records::kv::KvError;
use crate::records::schema::{InodeRecord, SCHEMA_VERSION, damaged, fields, key, stored};
use crate::records::tx::Tx;
use crate::records::{past, quotas};

/// The word under which the last seat that was given is stored.
const LAST: &str = "seats";

/// Cache of a store's seats: durable ones only.
#[derive(Debug, Default)]
pub struct Seats(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    drives: BTreeMap<u32, DriveId>,
    seats: BTreeMap<DriveId, u32>,
}

impl Seats {
    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, seat: u32, drive: DriveId) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.drives.insert(seat, drive);
        known.seats.insert(drive, seat);
    }
}

impl Tx {
    /// The drive that a seat stands for.
    pub fn drive_on(&self, seat: u32) -> Result<DriveId, KvError> {
        if let Some(drive) = self.seats.known().drives.get(&seat) {
            return Ok(*drive);
        }
        let row = key::seat(seat);
        let drive: Option<DriveId> = self.record(&row)?;
        let drive = drive.ok_or_else(|| damaged(&row, "a file names this seat, and it is of no drive"))?;
        if self.durable(&row)?.is_some() {
            self.seats.keep(seat, drive);
        }
        Ok(drive)
    }

    /// The drive's seat. `None`: the drive has no seat, and so no file names it.
    pub fn seat_of(&self, drive: DriveId) -> Result<Option<u32>, KvError> {
        if let Some(seat) = self.seats.known().seats.get(&drive) {
            return Ok(Some(*seat));
        }
        let row = key::seat_of(drive);
        let seat: Option<u32> = self.record(&row)?;
        if let Some(seat) = seat
            && self.durable(&row)?.is_some()
        {
            self.seats.keep(seat, drive);
        }
        Ok(seat)
    }

    /// The drive's seat. A drive without one is given the next.
    pub fn seat(&mut self, drive: DriveId) -> Result<u32, KvError> {
        if let Some(seat) = self.seat_of(drive)? {
            return Ok(seat);
        }
        let word = key::meta(LAST);
        let last: u32 = self.record(&word)?.unwrap_or_default();
        let seat = last.checked_add(1).ok_or_else(|| damaged(&word, "all seats were given"))?;
        self.set(word, &seat);
        self.set(key::seat_of(drive), &seat);
        self.set(key::seat(seat), &drive);
        Ok(seat)
    }

    /// A file's record; `None` if there is none.
    pub fn inode(&self, file: FileId) -> Result<Option<InodeRecord>, KvError> {
        let row = key::inode(file);
        self.get(&row)?.map(|bytes| self.inode_from(&row, &bytes)).transpose()
    }

    /// The first `limit` records of files after `after`; `None`: from the first file.
    pub fn inodes(&self, after: Option<FileId>, limit: usize) -> Result<Vec<(FileId, InodeRecord)>, KvError> {
        let (first, to) = key::all(crate::records::schema::table::INODE);
        let from = after.map_or(first, |file| [key::inode(file).as_slice(), &[0]].concat());
        let rows = self.scan(&from, &to, limit)?;
        let record = |(row, bytes): (Vec<u8>, Vec<u8>)| {
            Ok((FileId(key::number(&row, 1)), self.inode_from(&row, &bytes)?))
        };
        rows.into_iter().map(record).collect()
    }

    /// Sets a file's record. What follows from the change is done too: a snapshot that covers the file keeps
    /// it as it was, and accounts are changed.
    pub fn set_inode(&mut self, file: FileId, inode: &InodeRecord) -> Result<(), KvError> {
        let has_quotas = quotas::has(self, inode.volume)?;
        if !has_quotas && past::history(self, inode.volume)?.is_none() {
            return self.put_inode(file, inode);
        }
        let before = self.inode(file)?;
        if has_quotas {
            quotas::changed(self, before.as_ref(), Some(inode))?;
        }
        let epoch = past::changed(self, file, before.as_ref(), inode)?;
        self.put_inode(file, &InodeRecord { epoch, ..inode.clone() })
    }

    /// Puts a file's row, and gives seats to drives that it names first.
    pub fn put_inode(&mut self, file: FileId, inode: &InodeRecord) -> Result<(), KvError> {
        let mut seats = Vec::new();
        for segment in &inode.segments {
            for &drive in &segment.drives {
                seats.push(self.seat(drive)?);
            }
        }
        let mut bytes = vec![SCHEMA_VERSION];
        bytes.append(&mut stored::encode(file, inode, &seats));
        self.put(key::inode(file), bytes);
        Ok(())
    }

    fn inode_from(&self, row: &[u8], bytes: &[u8]) -> Result<InodeRecord, KvError> {
        let file = FileId(key::number(row, 1));
        let decoded = stored::decode(file, bytes.first().copied().unwrap_or_default(), fields(row, bytes)?);
        let (mut inode, seats) = decoded.map_err(|error| damaged(row, error))?;
        for (segment, seats) in inode.segments.iter_mut().zip(seats) {
            segment.drives = seats.into_iter().map(|seat| self.drive_on(seat)).collect::<Result<_, _>>()?;
        }
        Ok(inode)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_wire::Refusal;

    use super::*;
    use crate::records::db::Db;
    use crate::records::memory::{Disk, MemoryKv};

    fn seat(db: &Db, drive: u128) -> Result<u32, Refusal> {
        db.write(move |tx| Ok(tx.seat(DriveId(drive))?))
    }

    fn drive(db: &Db, seat: u32) -> Result<u128, Refusal> {
        db.read(|tx| Ok(tx.drive_on(seat)?.0))
    }

    #[test]
    fn a_seat_that_was_refused_is_given_to_another_drive_and_one_that_was_stored_never() {
        let kv = MemoryKv::new();
        let db = Db::new(Arc::new(kv.clone()));
        assert_eq!(seat(&db, 7).unwrap(), 1);
        kv.set_disk(Disk::Full);
        seat(&db, 8).unwrap_err();
        kv.set_disk(Disk::Sound);
        assert_eq!(seat(&db, 9).unwrap(), 2);
        for db in [&db, &Db::new(Arc::new(kv.restarted()))] {
            assert_eq!((drive(db, 1).unwrap(), drive(db, 2).unwrap()), (7, 9));
            assert!(drive(db, 3).unwrap_err().detail.contains("of no drive"));
            assert_eq!(seat(db, 7).unwrap(), 1, "it keeps its seat");
            assert_eq!(db.read(|tx| Ok(tx.seat_of(DriveId(8))?)).unwrap(), None);
        }
    }

    #[test]
    fn what_was_decided_and_is_not_durable_is_found_and_not_kept() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let refused = db.write(|tx| {
            assert_eq!(tx.seat(DriveId(5))?, 1);
            assert_eq!((tx.drive_on(1)?, tx.seat_of(DriveId(5))?), (DriveId(5), Some(1)));
            Err::<(), _>(Refusal::new(braid_wire::Reason::Busy, "no"))
        });
        refused.unwrap_err();
        assert_eq!(seat(&db, 6).unwrap(), 1);
        assert_eq!(drive(&db, 1).unwrap(), 6);
    }
}
