//! Rows of successors: components that are to take the place of a file's columns on other drives.

use braid_layout::{DriveId, FileId};
use braid_wire::{Reason, Refusal};

use crate::records::inodes::{self, occupy, set_stale, vacate};
use crate::records::kv::KvError;
use crate::records::schema::{ComponentPlace, InodeRecord, LeftRecord, MoveRecord, StaleRecord, key, table};
use crate::records::tx::Tx;

/// Gives the column a successor on the drive.
pub fn plan(tx: &mut Tx, of: ComponentPlace, drive: DriveId) -> Result<(), KvError> {
    let to = ComponentPlace { drive, ..of };
    occupy(tx, to)?;
    set_stale(tx, to, Some(StaleRecord { joining: false, told: true }))?;
    tx.set(key::moving(of.file, of.segment), &MoveRecord { column: of.column, drive });
    tracing::debug!(file = %of.file, column = %of.column, from = %of.drive.short(), to = %drive.short(), "a column moves");
    Ok(())
}

/// Gives up a successor: its drive frees what it holds of it. Does nothing, and returns false, if `at` is not
/// the segment's successor.
pub fn give_up(tx: &mut Tx, at: ComponentPlace, inode: &InodeRecord) -> Result<bool, KvError> {
    if find(tx, at.file, at.segment)? != Some(at) {
        return Ok(false);
    }
    tx.delete(key::moving(at.file, at.segment));
    tracing::debug!(file = %at.file, column = %at.column, to = %at.drive.short(), "a move is given up");
    leave(tx, at, inode)?;
    Ok(true)
}

/// The successor of a column of the segment, if there is one.
pub fn find(tx: &Tx, file: FileId, segment: u32) -> Result<Option<ComponentPlace>, KvError> {
    let record: Option<MoveRecord> = tx.record(&key::moving(file, segment))?;
    Ok(record.map(|MoveRecord { column, drive }| ComponentPlace { drive, file, segment, column }))
}

/// Records that the column is not on this drive any more, and that the drive is to free it.
pub fn leave(tx: &mut Tx, at: ComponentPlace, inode: &InodeRecord) -> Result<(), KvError> {
    vacate(tx, at)?;
    let segment = inode.segment(at.segment);
    if let Some(segment) = segment
        && !inodes::is_replaced(tx, at.drive)?
    {
        let left = LeftRecord { volume: inode.volume, object: segment.object, g: inode.g };
        tx.set(key::place(table::LEFT, at), &left);
    }
    Ok(())
}

/// Puts the successor in its column's place. The column must be fenced in the next generation before it is
/// read or written.
pub fn take_place(
    tx: &mut Tx,
    to: ComponentPlace,
    inode: &mut InodeRecord,
    joining: bool,
) -> Result<(), Refusal> {
    if find(tx, to.file, to.segment)? != Some(to) {
        return Err(nothing_moves(to.file));
    }
    let Some(segment) = inode.segment_mut(to.segment) else {
        return Err(nothing_moves(to.file));
    };
    let from = ComponentPlace { drive: segment.drive(to.column), ..to };
    if let Some(drive) = segment.drives.get_mut(to.column.index()) {
        *drive = to.drive;
    }
    segment.set = segment.set.with(to.column);
    if joining {
        segment.joining = segment.joining.with(to.column);
    }
    tx.delete(key::moving(to.file, to.segment));
    tracing::debug!(file = %to.file, column = %to.column, from = %from.drive.short(), to = %to.drive.short(), joining, "a column has moved");
    set_stale(tx, to, joining.then_some(StaleRecord { joining: true, told: true }))?;
    Ok(leave(tx, from, inode)?)
}

/// Returns true if a column of the segment has a successor.
pub fn moves(tx: &Tx, file: FileId, segment: u32) -> Result<bool, KvError> {
    Ok(tx.get(&key::moving(file, segment))?.is_some())
}

pub fn nothing_moves(file: FileId) -> Refusal {
    Refusal::new(Reason::NotFound, format!("a column of file {file} is no longer moving there"))
}
