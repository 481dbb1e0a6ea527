//! A file's record and all the rows that follow from it, changed together: attention, columns, stale columns,
//! counts, usage.
//!
//! Invariant, kept by every function here and checked by [`check`](crate::records::check): the derived rows
//! agree with the records.

use std::collections::BTreeSet;

use braid_layout::{DriveId, FileId, ObjectId};
use braid_wire::{Reason, Refusal};

use crate::records::columns;
use crate::records::frozen;
use crate::records::kv::KvError;
use crate::records::past;
use crate::records::quotas;
use crate::records::schema::{
    ComponentPlace, DriveCount, DriveRecord, InodeRecord, MoveRecord, RemovalRecord, RemoveRecord,
    SegmentRecord, StaleRecord, VolumeRecord, key, table,
};
use crate::records::tx::Tx;

/// A file's record; `None` if it was removed.
pub fn find(tx: &Tx, file: FileId) -> Result<Option<InodeRecord>, KvError> {
    tx.inode(file)
}

/// A file's record; [`Reason::NotFound`] if it was removed.
pub fn get(tx: &Tx, file: FileId) -> Result<InodeRecord, Refusal> {
    find(tx, file)?.ok_or_else(|| Refusal::new(Reason::NotFound, format!("file {file} was removed")))
}

/// Stores a file's record, and the row of `h` that says that it needs attention, or deletes that row.
pub fn save(tx: &mut Tx, file: FileId, inode: &InodeRecord) -> Result<(), KvError> {
    tx.set_inode(file, inode)?;
    if inode.needs_attention() {
        tx.mark(key::attention(file))
    } else {
        tx.delete(key::attention(file))
    }
    Ok(())
}

/// Stores a new file's record, the places of its components, and the columns that are out from the start.
pub fn create(tx: &mut Tx, file: FileId, inode: &InodeRecord) -> Result<(), Refusal> {
    for place in inode.places(file).collect::<Vec<_>>() {
        occupy(tx, place)?;
    }
    for segment in &inode.segments {
        for column in segment.all().minus(segment.set).iter() {
            let drive = segment.drive(column);
            let segment = segment.number;
            let place = ComponentPlace { drive, file, segment, column };
            // No client has a capability for this column yet, so the drive need not be told.
            set_stale(tx, place, Some(StaleRecord { joining: false, told: true }))?;
        }
    }
    Ok(save(tx, file, inode)?)
}

/// Records that a component is placed on a drive.
pub fn occupy(tx: &mut Tx, place: ComponentPlace) -> Result<(), KvError> {
    if columns::add(tx, place)? {
        count(tx, place.drive, |count| count.components += 1)?;
    }
    Ok(())
}

/// Records that a component is no longer on its drive. The component's row in `s` is deleted too. The file's
/// record is changed after.
pub fn vacate(tx: &mut Tx, place: ComponentPlace) -> Result<(), KvError> {
    if let Some(inode) = tx.inode(place.file)? {
        frozen::column_left(tx, place, &inode)?;
    }
    if columns::remove(tx, place)? {
        count(tx, place.drive, |count| count.components = count.components.saturating_sub(1))?;
    }
    set_stale(tx, place, None)
}

/// Stores that a column is stale, and how; or, with `None`, that it is not.
pub fn set_stale(tx: &mut Tx, place: ComponentPlace, stale: Option<StaleRecord>) -> Result<(), KvError> {
    let key = key::place(table::STALE, place);
    let was = tx.get(&key)?.is_some();
    match &stale {
        Some(record) => tx.set(key, record),
        None if was => tx.delete(key),
        None => {}
    }
    match (was, stale.is_some()) {
        (false, true) => count(tx, place.drive, |count| count.stale += 1),
        (true, false) => count(tx, place.drive, |count| count.stale = count.stale.saturating_sub(1)),
        _ => Ok(()),
    }
}

/// The numbers of components and stale columns on a drive.
pub fn counts(tx: &Tx, drive: DriveId) -> Result<DriveCount, KvError> {
    Ok(tx.record(&key::drive_count(drive))?.unwrap_or(DriveCount { components: 0, stale: 0 }))
}

/// Changes a volume's totals by a file's share before and after: `(files, bytes)`.
pub fn recount(tx: &mut Tx, volume: &mut VolumeRecord, before: (u64, u64), after: (u64, u64)) {
    volume.files = volume.files.saturating_sub(before.0).saturating_add(after.0);
    volume.file_bytes = volume.file_bytes.saturating_sub(before.1).saturating_add(after.1);
    tx.set(key::volume(volume.volume), volume);
}

/// Removes a file without a name: its components go to the removal list. If it is frozen, or was to be, it
/// stays for the snapshots alone.
pub fn bury(tx: &mut Tx, file: FileId, inode: &InodeRecord) -> Result<(), Refusal> {
    if inode.freezing.is_none() && !inode.is_frozen() {
        return free(tx, file, inode);
    }
    let mut inode = InodeRecord { kept: false, ..inode.clone() };
    frozen::instead(tx, file, &mut inode)?;
    Ok(save(tx, file, &inode)?)
}

/// Removes a file that nobody needs: its components go to the removal list.
pub fn free(tx: &mut Tx, file: FileId, inode: &InodeRecord) -> Result<(), Refusal> {
    let moves = moves(tx, file)?;
    let has_moved = !moves.is_empty();
    forget(tx, file, inode)?;
    let mut components = Vec::new();
    for place in inode.places(file).chain(moves) {
        if !has_moved && !inode.holds(&place) || is_replaced(tx, place.drive)? {
            continue;
        }
        let object = inode.segment(place.segment).map(|segment| segment.object);
        components.push((place.drive, object.unwrap_or_default()));
    }
    let record = RemoveRecord { volume: inode.volume, g: inode.g };
    Ok(remove_later(tx, file, &components, &record)?)
}

/// Deletes the record of a file without a name and the rows derived from it. Its components on the drives
/// stay.
pub fn forget(tx: &mut Tx, file: FileId, inode: &InodeRecord) -> Result<(), KvError> {
    if inode.is_frozen() {
        frozen::uncount(tx, inode)?;
    } else if let Some(mut volume) = tx.record::<VolumeRecord>(&key::volume(inode.volume))? {
        recount(tx, &mut volume, (0, inode.size), (0, 0));
    }
    for place in moves(tx, file)? {
        vacate(tx, place)?;
        tx.delete(key::moving(file, place.segment));
    }
    inode.places(file).try_for_each(|place| vacate(tx, place))?;
    delete(tx, file)?;
    tx.delete(key::attention(file));
    Ok(())
}

/// Deletes a record that has no name and no components any more, and its extended attributes.
pub fn delete(tx: &mut Tx, file: FileId) -> Result<(), KvError> {
    past::keep(tx, file)?;
    let before = find(tx, file)?;
    if before.as_ref().is_some_and(|inode| inode.xattr_bytes > 0) {
        let (from, to) = key::xattrs_of(file);
        tx.scan(&from, &to, usize::MAX)?.into_iter().for_each(|(row, _)| tx.delete(row));
    }
    if let Some(before) = before {
        quotas::removed(tx, file, &before)?;
    }
    tx.delete(key::inode(file));
    Ok(())
}

/// The refusal when a file has used up its 2^32 leases or generations.
pub fn worn_out(file: FileId) -> Refusal {
    Refusal::new(Reason::Gone, format!("file {file} has used up its generations: copy it to a new file"))
}

/// The refusal for a file whose record does not agree with other rows.
pub fn damaged(file: FileId, what: &str) -> Refusal {
    KvError::Damaged { key: key::inode(file), what: what.to_owned() }.into()
}

/// Places of the successors of the file's columns.
pub fn moves(tx: &Tx, file: FileId) -> Result<Vec<ComponentPlace>, KvError> {
    let rows = tx.records::<MoveRecord>(&key::moves_of(file), usize::MAX)?;
    let place = |(row, MoveRecord { column, drive }): (Vec<u8>, MoveRecord)| ComponentPlace {
        drive,
        file,
        segment: key::moving_of(&row).1,
        column,
    };
    Ok(rows.into_iter().map(place).collect())
}

/// Returns true if a drive has no component of the file, and nothing to free of one that has moved. All
/// columns of a segment have the same object number on each drive, so any column of the file counts.
pub fn holds_nothing(tx: &Tx, drive: DriveId, file: FileId) -> Result<bool, KvError> {
    let (from, to) = key::of_file(table::LEFT, drive, file);
    Ok(!columns::has_any(tx, drive, file)? && tx.scan(&from, &to, 1)?.is_empty())
}

/// Puts components of a removed file on the removal list. None of them may be on it already.
pub fn remove_later(
    tx: &mut Tx,
    file: FileId,
    components: &[(DriveId, ObjectId)],
    record: &RemoveRecord,
) -> Result<(), KvError> {
    if components.is_empty() {
        return Ok(());
    }
    for &(drive, object) in components {
        tx.set(key::remove(drive, file, object), record);
    }
    let known: Option<RemovalRecord> = tx.record(&key::removal(file))?;
    if known.is_none() {
        let removing = tx.number("removing")? + 1;
        tx.set(key::meta("removing"), &removing);
    }
    let left = known.map_or(0, |known| known.left) + u32::try_from(components.len()).unwrap_or(u32::MAX);
    tx.set(key::removal(file), &RemovalRecord { volume: record.volume, left });
    Ok(())
}

/// Takes a component that was removed off the removal list; `key` is its row of `R`.
pub fn removed(tx: &mut Tx, key: &[u8]) -> Result<(), KvError> {
    if tx.get(key)?.is_none() {
        return Ok(());
    }
    tx.delete(key.to_vec());
    let file = FileId(key::number(key, 17));
    let Some(mut removal) = tx.record::<RemovalRecord>(&key::removal(file))? else { return Ok(()) };
    removal.left = removal.left.saturating_sub(1);
    if removal.left > 0 {
        tx.set(key::removal(file), &removal);
        return Ok(());
    }
    tx.delete(key::removal(file));
    let removing = tx.number("removing")?.saturating_sub(1);
    tx.set(key::meta("removing"), &removing);
    Ok(())
}

/// Returns true if the drive was replaced, or is unknown: nothing on it matters any more.
pub fn is_replaced(tx: &Tx, drive: DriveId) -> Result<bool, KvError> {
    Ok(tx.record::<DriveRecord>(&key::drive(drive))?.is_none_or(|record| record.replaced_by != DriveId(0)))
}

fn count(tx: &mut Tx, drive: DriveId, change: impl FnOnce(&mut DriveCount)) -> Result<(), KvError> {
    let mut counts = counts(tx, drive)?;
    change(&mut counts);
    tx.set(key::drive_count(drive), &counts);
    Ok(())
}

/// Returns true if a drive was not told of some of its columns that went out, or has not freed some that
/// moved.
pub fn has_untold(tx: &Tx, drive: DriveId) -> Result<bool, Refusal> {
    let (first, end) = key::of_drive(table::LEFT, drive);
    if !tx.scan(&first, &end, 1)?.is_empty() {
        return Ok(true);
    }
    let (mut from, to) = key::of_drive(table::STALE, drive);
    loop {
        let rows = tx.records::<StaleRecord>(&(from.clone(), to.clone()), 512)?;
        if rows.iter().any(|(_, stale)| !stale.told) {
            return Ok(true);
        }
        match rows.last() {
            Some((last, _)) if rows.len() == 512 => from = [last.as_slice(), &[0]].concat(),
            _ => return Ok(false),
        }
    }
}

/// Estimated bytes of `components` components, from the sample `some` of them.
pub fn bytes_of(tx: &Tx, some: &[ComponentPlace], components: u64) -> Result<u64, Refusal> {
    let mut sized = 0u64;
    let mut bytes = 0u64;
    for place in some {
        bytes = bytes.saturating_add(component_bytes(tx, place.file, place.segment)?);
        sized += 1;
    }
    let all = u128::from(bytes) * u128::from(components.max(sized)) / u128::from(sized.max(1));
    Ok(u64::try_from(all).unwrap_or(u64::MAX))
}

/// Estimated bytes of a component of this segment.
pub fn component_bytes(tx: &Tx, file: FileId, index: u32) -> Result<u64, Refusal> {
    let Some(inode) = find(tx, file)? else { return Ok(0) };
    let Some(segment) = inode.segment(index) else {
        return Ok(0);
    };
    let bytes = inode.size.max(inode.allocated).min(segment.end).saturating_sub(segment.start);
    Ok(bytes.div_ceil(u64::from(segment.shape.k.max(1))))
}

/// The segment that a column belongs to.
pub fn segment_of(inode: &InodeRecord, place: ComponentPlace) -> Option<&SegmentRecord> {
    inode.segment(place.segment)
}

/// Returns true if the layout has the column on that drive.
pub fn holds(inode: &InodeRecord, place: ComponentPlace) -> bool {
    segment_of(inode, place).is_some_and(|segment| segment.drive(place.column) == place.drive)
}

/// The subset of `files` that have successors which have not taken their columns' places yet.
pub fn still_moving(tx: &Tx, files: BTreeSet<FileId>) -> Result<BTreeSet<FileId>, Refusal> {
    let mut still = BTreeSet::new();
    for file in files {
        if !moves(tx, file)?.is_empty() {
            still.insert(file);
        }
    }
    Ok(still)
}
