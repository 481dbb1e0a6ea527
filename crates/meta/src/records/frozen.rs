//! Frozen files: rows of `i` without a name, that have the bytes of past files.
//!
//! A file that is removed before it was written again becomes frozen itself: its bytes stay where they are. A
//! file that is to be written is *frozen* first: [`begin`] draws the numbers of the frozen file and of its
//! objects, and from then on nobody may write until the drives have made these objects and [`end`] has stored
//! the frozen file. A row of `B` names each frozen file, or the one that is to be.

use std::collections::BTreeMap;

use braid_layout::{ColumnMask, DriveId, FileId, ObjectId};
use braid_wire::control::EntryKind;
use braid_wire::{Reason, Refusal};

use crate::records::inodes;
use crate::records::kv::KvError;
use crate::records::past::{self, Cover};
use crate::records::schema::{
    ComponentPlace, Freezing, InodeRecord, PastBytes, RemoveRecord, SegmentRecord, VolumeRecord,
    directory_record, key, table,
};
use crate::records::tx::Tx;

/// Returns true if bytes of the file must be frozen before anyone writes it.
pub fn is_due(tx: &Tx, file: FileId, inode: &InodeRecord) -> Result<bool, Refusal> {
    let is_open = inode.freezing.is_some() || inode.is_frozen();
    Ok(is_open || past::cover_of(tx, file, inode, inode.bytes_epoch)?.is_some())
}

/// Returns true if drives may be making objects of a frozen file of this number, which has no row yet.
pub fn is_begun(tx: &Tx, data: FileId) -> Result<bool, KvError> {
    Ok(tx.get(&key::freezing(data))?.is_some())
}

/// Begins to freeze the bytes of a file, or goes on with what was begun. `None`: no snapshot needs them.
pub fn begin(tx: &mut Tx, file: FileId) -> Result<Option<Freezing>, Refusal> {
    let mut inode = inodes::get(tx, file)?;
    let newest = past::newest(tx, inode.volume)?;
    let segments = inode.in_force().count();
    let cover = past::cover_of(tx, file, &inode, inode.bytes_epoch)?;
    let before = match inode.freezing.take() {
        Some(begun) if begun.objects.len() == segments => {
            if let Some(cover) = cover {
                extend(tx, file, &inode, begun.data, cover)?;
                let inode = InodeRecord { bytes_epoch: newest, freezing: Some(begun.clone()), ..inode };
                inodes::save(tx, file, &inode)?;
            }
            return Ok(Some(begun));
        }
        // The file was laid out anew since.
        Some(begun) => {
            discard(tx, &inode, &begun)?;
            Some(begun.data)
        }
        None if inode.is_frozen() => Some(file),
        None => None,
    };
    if before.is_none() && cover.is_none() {
        return Ok(None);
    }
    let freezing = draw(tx, &inode)?;
    if let Some(before) = before {
        rename(tx, file, before, freezing.data)?;
    }
    match (before, cover) {
        (Some(_), Some(cover)) => extend(tx, file, &inode, freezing.data, cover)?,
        (None, Some(cover)) => past::keep_bytes(tx, file, &inode, cover, freezing.data),
        (_, None) => {}
    }
    if inode.is_frozen() {
        leave_past(tx, &inode)?;
        inode.frozen = FileId(0);
    }
    tx.set(key::freezing(freezing.data), &file);
    inode.bytes_epoch = newest;
    inode.freezing = Some(freezing.clone());
    inodes::save(tx, file, &inode)?;
    Ok(Some(freezing))
}

/// Has newer snapshots too see the bytes that are being frozen: nobody could freeze them between.
fn extend(tx: &mut Tx, file: FileId, inode: &InodeRecord, data: FileId, cover: Cover) -> Result<(), Refusal> {
    let mut roots = cover.roots.clone();
    let mut epoch = inode.bytes_epoch;
    for (row, known) in past::bytes_in(tx, file, data)? {
        epoch = epoch.min(known.epoch);
        roots.extend(known.roots);
        tx.delete(key::kept_for(inode.volume, key::until_in(&row), &row));
        tx.delete(row);
    }
    roots.sort_unstable();
    roots.dedup();
    let inode = InodeRecord { bytes_epoch: epoch, ..inode.clone() };
    past::keep_bytes(tx, file, &inode, Cover { roots, ..cover }, data);
    Ok(())
}

/// Ends a freeze: `made` has the columns of each segment whose drives have made their object, or need none.
/// Does nothing if the freeze was given up meanwhile.
pub fn end(
    tx: &mut Tx,
    file: FileId,
    freezing: &Freezing,
    made: &BTreeMap<u32, ColumnMask>,
) -> Result<(), Refusal> {
    let mut inode = inodes::get(tx, file)?;
    if inode.freezing.as_ref() != Some(freezing) {
        return Ok(());
    }
    let set = |segment: &SegmentRecord| made.get(&segment.number).copied().unwrap_or_default();
    // Drives were told that all ready columns are in the set.
    let is_whole = inode.in_force().all(|segment| set(segment) == segment.ready());
    let g = if is_whole { freezing.g } else { freezing.g.next().ok_or_else(|| inodes::worn_out(file))? };
    let mut segments: Vec<SegmentRecord> = inode.in_force().cloned().collect();
    for (segment, &object) in segments.iter_mut().zip(&freezing.objects) {
        segment.set = set(segment).and(segment.ready());
        segment.joining = ColumnMask::EMPTY;
        segment.object = object;
    }
    let record = InodeRecord {
        kind: EntryKind::File,
        size: inode.size,
        g,
        unfenced: !is_whole,
        frozen: file,
        sealed: inode.sealed,
        segments,
        ..directory_record(inode.volume, FileId(0), Vec::new(), inode.created_ms)
    };
    if let Some(few) = record.segments.iter().find(|segment| segment.set.count() < u32::from(segment.shape.k))
    {
        let detail = format!("segment {} of file {file} has too few columns to be frozen", few.number);
        return Err(Refusal::new(Reason::TooManyAway, detail));
    }
    tx.delete(key::freezing(freezing.data));
    inodes::create(tx, freezing.data, &record)?;
    past::count(tx, record.volume, |all| {
        all.past_files += 1;
        all.past_bytes = all.past_bytes.saturating_add(record.size);
    })?;
    inode.freezing = None;
    Ok(inodes::save(tx, file, &inode)?)
}

/// Gives all freezes that were begun other numbers. In a state that was put back from a copy, drives may have
/// made objects of the numbers on record, and the files may have been written since. Made again under the
/// same numbers, some columns of a frozen file would show what was before these writes, and others what is
/// now. What the drives have of the numbers from before stays there, without a name.
pub fn begin_anew(tx: &mut Tx) -> Result<(), Refusal> {
    for (row, file) in tx.records::<FileId>(&key::all(table::FREEZING), usize::MAX)? {
        tx.delete(row);
        let Some(mut inode) = inodes::find(tx, file)? else { continue };
        let Some(begun) = inode.freezing.take() else { continue };
        let freezing = draw(tx, &inode)?;
        rename(tx, file, begun.data, freezing.data)?;
        tx.set(key::freezing(freezing.data), &file);
        inode.freezing = Some(freezing);
        inodes::save(tx, file, &inode)?;
    }
    Ok(())
}

/// Draws the numbers of a freeze that begins in the file's present generation.
fn draw(tx: &mut Tx, inode: &InodeRecord) -> Result<Freezing, KvError> {
    let data = FileId(tx.next_number()?);
    let objects = inode.in_force().map(|_| tx.next_number().map(ObjectId)).collect::<Result<_, _>>()?;
    Ok(Freezing { data, g: inode.g, objects })
}

/// Makes a file that loses its last name the frozen file of its own bytes. If they are being frozen for older
/// snapshots, those that cover it now see the same.
pub fn in_place(tx: &mut Tx, file: FileId, inode: &mut InodeRecord, cover: Cover) -> Result<(), Refusal> {
    if let Some(begun) = &inode.freezing {
        extend(tx, file, inode, begun.data, cover)?;
        inode.bytes_epoch = past::newest(tx, inode.volume)?;
        return Ok(());
    }
    past::keep_bytes(tx, file, inode, cover, file);
    turn(tx, file, inode)
}

/// A file whose bytes were to be frozen is removed instead: it becomes the frozen file itself. If it was
/// written since, that is in it: the snapshot says that the file was late.
pub fn instead(tx: &mut Tx, file: FileId, inode: &mut InodeRecord) -> Result<(), Refusal> {
    let Some(begun) = inode.freezing.take() else { return Ok(()) };
    discard(tx, inode, &begun)?;
    rename(tx, file, begun.data, file)?;
    turn(tx, file, inode)
}

/// In a state that was put back from a copy, a file without a name whose bytes were to be frozen becomes the
/// frozen file itself: nobody has it open any more. What drives have of the numbers from before stays there,
/// without a name.
pub fn restored(tx: &mut Tx, file: FileId, inode: &mut InodeRecord) -> Result<(), Refusal> {
    let Some(begun) = inode.freezing.take() else { return Ok(()) };
    tx.delete(key::freezing(begun.data));
    rename(tx, file, begun.data, file)?;
    inode.kept = false;
    turn(tx, file, inode)
}

fn turn(tx: &mut Tx, file: FileId, inode: &mut InodeRecord) -> Result<(), Refusal> {
    if let Some(mut volume) = tx.record::<VolumeRecord>(&key::volume(inode.volume))? {
        inodes::recount(tx, &mut volume, (0, inode.size), (0, 0));
    }
    past::count(tx, inode.volume, |all| {
        all.past_files += 1;
        all.past_bytes = all.past_bytes.saturating_add(inode.size);
    })?;
    inode.bytes_epoch = past::newest(tx, inode.volume)?;
    inode.frozen = file;
    // Nobody writes it any more: a fence has the drives give back the room that they keep for it.
    inode.unfenced |= inode.allocated > 0;
    inode.allocated = 0;
    Ok(())
}

/// A frozen file is one no more: it is open somewhere, or is to be written.
fn leave_past(tx: &mut Tx, inode: &InodeRecord) -> Result<(), Refusal> {
    uncount(tx, inode)?;
    if let Some(mut volume) = tx.record::<VolumeRecord>(&key::volume(inode.volume))? {
        inodes::recount(tx, &mut volume, (0, 0), (0, inode.size));
    }
    Ok(())
}

/// A frozen file no longer counts as one.
pub fn uncount(tx: &mut Tx, inode: &InodeRecord) -> Result<(), KvError> {
    past::count(tx, inode.volume, |all| {
        all.past_files = all.past_files.saturating_sub(1);
        all.past_bytes = all.past_bytes.saturating_sub(inode.size);
    })
}

/// Frees the bytes of a past file that no snapshot sees any more.
pub fn drop_data(tx: &mut Tx, file: FileId, data: FileId) -> Result<(), Refusal> {
    if let Some(mut inode) = tx.inode(data)?.filter(InodeRecord::is_frozen) {
        if !inode.kept {
            return inodes::free(tx, data, &inode);
        }
        leave_past(tx, &inode)?;
        inode.frozen = FileId(0);
        return Ok(inodes::save(tx, data, &inode)?);
    }
    if let Some(mut inode) = tx.inode(file)?
        && let Some(begun) = inode.freezing.take_if(|begun| begun.data == data)
    {
        discard(tx, &inode, &begun)?;
        inodes::save(tx, file, &inode)?;
    }
    Ok(())
}

/// Puts what the drives may have made for a freeze that was given up on the removal list.
fn discard(tx: &mut Tx, inode: &InodeRecord, begun: &Freezing) -> Result<(), Refusal> {
    tx.delete(key::freezing(begun.data));
    let of = |(segment, &object): (&SegmentRecord, &ObjectId)| -> Vec<(DriveId, ObjectId)> {
        segment.drives.iter().map(|&drive| (drive, object)).collect()
    };
    let stills: Vec<(DriveId, ObjectId)> = inode.in_force().zip(&begun.objects).flat_map(of).collect();
    Ok(free_stills(tx, inode, begun, &stills)?)
}

/// Returns true if a drive may have a still of a file's object, or is to free one. A column of the file that
/// was there before may be a husk, and no object of its number can be made there.
pub fn has_stills(tx: &Tx, drive: DriveId, file: FileId) -> Result<bool, KvError> {
    for (_, past) in tx.records::<PastBytes>(&key::past_bytes_of(file), usize::MAX)? {
        let (from, to) = key::of_file(table::REMOVE, drive, past.data);
        if !inodes::holds_nothing(tx, drive, past.data)? || !tx.scan(&from, &to, 1)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if snapshots show bytes of the file as they were.
pub fn has_past_bytes(tx: &Tx, file: FileId) -> Result<bool, KvError> {
    let (from, to) = key::past_bytes_of(file);
    Ok(!tx.scan(&from, &to, 1)?.is_empty())
}

/// A column has left a drive that may have made its still, in a freeze that was broken off: the still is
/// freed. `inode`: the file's record before.
pub fn column_left(tx: &mut Tx, place: ComponentPlace, inode: &InodeRecord) -> Result<(), KvError> {
    let Some(begun) = &inode.freezing else { return Ok(()) };
    let mut stills = inode.in_force().zip(&begun.objects).filter(|_| inodes::holds(inode, place));
    match stills.find(|(segment, _)| segment.number == place.segment) {
        Some((_, &object)) => free_stills(tx, inode, begun, &[(place.drive, object)]),
        None => Ok(()),
    }
}

/// Puts stills that drives may have made on the removal list.
fn free_stills(
    tx: &mut Tx,
    inode: &InodeRecord,
    begun: &Freezing,
    stills: &[(DriveId, ObjectId)],
) -> Result<(), KvError> {
    let data = begun.data;
    let mut components = Vec::new();
    for &(drive, object) in stills {
        if !inodes::is_replaced(tx, drive)? && tx.get(&key::remove(drive, data, object))?.is_none() {
            components.push((drive, object));
        }
    }
    inodes::remove_later(tx, data, &components, &RemoveRecord { volume: inode.volume, g: begun.g })
}

/// Has rows of `B` name another frozen file.
fn rename(tx: &mut Tx, file: FileId, before: FileId, after: FileId) -> Result<(), Refusal> {
    for (row, mut record) in past::bytes_in(tx, file, before)? {
        record.data = after;
        tx.set(row, &record);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_layout::{Column, Generation, VolumeId};
    use braid_wire::control::ShapeSpec;

    use super::*;
    use crate::records::db::Db;
    use crate::records::memory::MemoryKv;
    use crate::records::successor_rows;
    use crate::rules::drives::examples;

    const FILE: FileId = FileId(8);
    const DATA: FileId = FileId(9);
    const STILL: ObjectId = ObjectId(11);

    fn place(drive: u128, file: FileId, column: u8) -> ComponentPlace {
        ComponentPlace { drive: DriveId(drive), file, segment: 0, column: Column(column) }
    }

    /// A file on drives 1 and 2, of three.
    fn file(tx: &mut Tx, number: FileId) -> Result<InodeRecord, Refusal> {
        for drive in 1..=3 {
            tx.set(key::drive(DriveId(drive)), &examples::record(drive, "one"));
        }
        let mut inode = directory_record(VolumeId(1), FileId(2), b"f".to_vec(), 0);
        inode.kind = EntryKind::File;
        inode.segments = vec![SegmentRecord {
            number: 0,
            start: 0,
            end: u64::MAX,
            shape: ShapeSpec { scheme: 1, k: 1, m: 1, unit_bytes: 4096 },
            object: ObjectId(number.0 + 100),
            drives: vec![DriveId(1), DriveId(2)],
            set: ColumnMask::all(2),
            joining: ColumnMask::EMPTY,
            filling: None,
        }];
        inodes::create(tx, number, &inode)?;
        Ok(inode)
    }

    #[test]
    fn a_column_that_moves_while_a_freeze_is_broken_off_leaves_no_still_behind() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let listed = |tx: &Tx, drive| tx.get(&key::remove(DriveId(drive), DATA, STILL));
        db.write(|tx| {
            let mut inode = file(tx, FILE)?;
            inode.freezing = Some(Freezing { data: DATA, g: Generation(3), objects: vec![STILL] });
            inodes::save(tx, FILE, &inode)?;
            successor_rows::plan(tx, place(1, FILE, 0), DriveId(3))?;
            let to = place(3, FILE, 0);
            successor_rows::take_place(tx, to, &mut inode, false)?;
            inodes::save(tx, FILE, &inode)?;
            let record: Option<RemoveRecord> = tx.record(&key::remove(DriveId(1), DATA, STILL))?;
            assert_eq!(record, Some(RemoveRecord { volume: VolumeId(1), g: Generation(3) }));
            assert!(listed(tx, 2)?.is_none() && listed(tx, 3)?.is_none());
            // A successor that is given up was never asked for a still.
            successor_rows::plan(tx, place(2, FILE, 1), DriveId(1))?;
            tx.delete(key::remove(DriveId(1), DATA, STILL));
            successor_rows::give_up(tx, place(1, FILE, 1), &inode)?;
            assert!(listed(tx, 1)?.is_none());
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn a_drive_has_stills_until_they_are_freed() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        db.write(|tx| {
            let inode = file(tx, DATA)?;
            let cover = Cover { until: 1, roots: vec![FileId(0)] };
            past::keep_bytes(tx, FILE, &inode, cover, DATA);
            assert!(has_stills(tx, DriveId(1), FILE)? && !has_stills(tx, DriveId(3), FILE)?);
            assert!(!has_stills(tx, DriveId(1), DATA)?, "a still is of a file that is no still");
            inodes::vacate(tx, place(1, DATA, 0))?;
            assert!(!has_stills(tx, DriveId(1), FILE)?);
            let still = [(DriveId(1), ObjectId(109))];
            let record = RemoveRecord { volume: VolumeId(1), g: Generation(1) };
            inodes::remove_later(tx, DATA, &still, &record)?;
            assert!(has_stills(tx, DriveId(1), FILE)?, "it is not freed yet");
            inodes::removed(tx, &key::remove(DriveId(1), DATA, ObjectId(109)))?;
            assert!(!has_stills(tx, DriveId(1), FILE)?);
            Ok(())
        })
        .unwrap();
    }
}
