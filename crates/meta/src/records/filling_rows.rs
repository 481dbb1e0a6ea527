//! Rows of a segment that is being filled to take the place of a file's others.

use braid_layout::{ColumnMask, FileId, Generation, ObjectId};
use braid_wire::{Reason, Refusal};

use crate::records::inodes::{occupy, set_stale};
use crate::records::kv::KvError;
use crate::records::schema::{
    ComponentPlace, DriveRecord, InodeRecord, LeftRecord, RelayoutRecord, SegmentRecord, key, table,
};
use crate::records::tx::Tx;
use crate::records::{relayouts, successor_rows};

/// After a restore: puts a segment that the drives know in the place of those on record, which it had
/// replaced or was about to. The components of those on record are freed.
pub fn adopt(
    tx: &mut Tx,
    file: FileId,
    inode: &mut InodeRecord,
    segment: SegmentRecord,
) -> Result<(), KvError> {
    for old in inode.segments.clone() {
        remove(tx, file, inode, &old)?;
    }
    for place in places(file, &segment) {
        occupy(tx, place)?;
    }
    keep(tx, file, segment.object, inode.g)?;
    inode.segments.push(segment);
    relayouts::take_off(tx, file)?;
    Ok(())
}

/// Takes an object of the file off the lists of what drives are to free, as far as it was put there in this
/// generation or an earlier one.
pub fn keep(tx: &mut Tx, file: FileId, object: ObjectId, g: Generation) -> Result<(), KvError> {
    for (_, drive) in tx.records::<DriveRecord>(&key::all(table::DRIVE), usize::MAX)? {
        let of_file = key::of_file(table::LEFT, drive.drive, file);
        for (row, left) in tx.records::<LeftRecord>(&of_file, usize::MAX)? {
            if left.object == object && left.g <= g {
                tx.delete(row);
            }
        }
    }
    Ok(())
}

pub fn places(file: FileId, segment: &SegmentRecord) -> Vec<ComponentPlace> {
    let of = |column| ComponentPlace { drive: segment.drive(column), file, segment: segment.number, column };
    segment.all().iter().map(of).collect()
}

/// Gives up the segment that is being filled, if there is one. The caller stores the record.
pub fn drop_segment(tx: &mut Tx, file: FileId, inode: &mut InodeRecord) -> Result<(), KvError> {
    let Some(segment) = inode.filling().cloned() else { return Ok(()) };
    remove(tx, file, inode, &segment)
}

/// Removes a segment from the file: what drives hold of it, and of successors of its columns, is to be freed.
pub fn remove(
    tx: &mut Tx,
    file: FileId,
    inode: &mut InodeRecord,
    segment: &SegmentRecord,
) -> Result<(), KvError> {
    if let Some(successor) = successor_rows::find(tx, file, segment.number)? {
        successor_rows::give_up(tx, successor, inode)?;
    }
    for place in places(file, segment) {
        successor_rows::leave(tx, place, inode)?;
    }
    inode.segments.retain(|other| other.number != segment.number);
    Ok(())
}

/// Records that columns of the segment are filled. The drives are told under a new generation, as of any
/// change of the ready columns: for each generation a drive knows one set of joining columns.
pub fn ready(tx: &mut Tx, file: FileId, inode: &mut InodeRecord, columns: ColumnMask) -> Result<(), KvError> {
    let Some(number) = inode.filling().map(|segment| segment.number) else { return Ok(()) };
    let Some(segment) = inode.segment_mut(number) else { return Ok(()) };
    for column in columns.iter() {
        let place = ComponentPlace { drive: segment.drive(column), file, segment: number, column };
        set_stale(tx, place, None)?;
    }
    segment.joining = segment.joining.minus(columns);
    Ok(())
}

/// Puts the filled segment in the place of the others, which are removed.
pub fn take_place(tx: &mut Tx, file: FileId, inode: &mut InodeRecord) -> Result<(), Refusal> {
    let filled = inode.filling().filter(|segment| segment.ready() == segment.all());
    let Some((number, version)) = filled.and_then(|segment| Some((segment.number, segment.filling?))) else {
        let detail = format!("file {file} has no new layout that is filled: compare again");
        return Err(Refusal::new(Reason::StaleGeneration, detail));
    };
    if inode.held || inode.lease != version.lease {
        // This cannot happen, as an open of the file gives the segment up. Bytes are at stake, so it is
        // checked all the same.
        let detail = format!("file {file} was written since its new layout was begun");
        return Err(Refusal::new(Reason::Leased, detail));
    }
    for old in inode.in_force().cloned().collect::<Vec<_>>() {
        remove(tx, file, inode, &old)?;
    }
    let Some(segment) = inode.segment_mut(number) else { return Ok(()) };
    segment.filling = None;
    // Another shape may have been asked for since.
    let wanted: Option<RelayoutRecord> = tx.record(&key::relayout(file))?;
    if wanted.is_some_and(|wanted| wanted.shape == segment.shape) {
        relayouts::take_off(tx, file)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_layout::version::Lease;
    use braid_layout::{DriveId, Version, VolumeId};
    use braid_wire::control::ShapeSpec;

    use super::*;
    use crate::records::db::Db;
    use crate::records::memory::MemoryKv;
    use crate::records::schema::directory_record;

    #[test]
    fn what_was_asked_for_last_is_still_to_be_done_when_an_earlier_shape_takes_the_place() {
        let mirror = ShapeSpec { scheme: 1, k: 1, m: 1, unit_bytes: 4096 };
        for (wanted, stays) in [(mirror.clone(), false), (ShapeSpec::DEFAULT, true)] {
            let db = Db::new(Arc::new(MemoryKv::new()));
            let is_listed = db.write(|tx| {
                let file = FileId(8);
                let of = |number, filling| SegmentRecord {
                    number,
                    start: 0,
                    end: u64::MAX,
                    shape: mirror.clone(),
                    object: ObjectId(u64::from(number) + 10),
                    drives: vec![DriveId(1), DriveId(2)],
                    set: ColumnMask::all(2),
                    joining: ColumnMask::EMPTY,
                    filling,
                };
                let mut inode = directory_record(VolumeId(1), FileId(2), b"f".to_vec(), 0);
                let version = Version { g: Generation(1), lease: Lease(0), n: 1 };
                inode.segments = vec![of(0, None), of(1, Some(version))];
                relayouts::put_on(tx, file, wanted.clone())?;
                take_place(tx, file, &mut inode)?;
                assert_eq!(inode.in_force().map(|on| on.number).collect::<Vec<_>>(), [1]);
                Ok(tx.get(&key::relayout(file))?.is_some())
            });
            assert_eq!(is_listed.unwrap(), stays);
        }
    }
}
