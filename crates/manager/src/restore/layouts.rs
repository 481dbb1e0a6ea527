//! Layouts that a restored state does not know, as files were laid out anew since the backup: they are found
//! on the drives, and it is judged if they are the files' now (`compare`).
//!
//! Drives were told that the columns of a new layout are ready before what they held of the old one was
//! freed, and only after that the new layout got a higher generation than the old one had. Before a new
//! layout that can be read is given up, the old one gets the higher generation. So the higher generation says
//! which of two layouts counts. If the generations are equal, both have the same bytes, unless the old one
//! was being freed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_layout::{DriveId, FileId, Generation, ObjectId, PartitionId};
use braid_meta::records::inodes;
use braid_meta::records::schema::{InodeRecord, SegmentRecord};
use braid_wire::Refusal;
use braid_wire::data::ListedObject;

use crate::columns::listing::{self, Listed};
use crate::core::Core;
use crate::restore::present::present_set;

/// Objects of a file on drives: of the layout on record, or of one that is not on record.
pub(crate) struct OnDrives {
    pub listed: Listed,
    /// The objects' layout, if it is not on record, as a drive was last told of it.
    pub layout: Option<SegmentRecord>,
}

/// Separates objects of the layouts on record from those of others. For each file the layout on record comes
/// first, then others in the order in which they were made.
pub(crate) async fn sort_out(
    core: &Arc<Core>,
    partition: PartitionId,
    batch: Vec<(FileId, Listed)>,
) -> Result<Vec<(FileId, OnDrives)>, Refusal> {
    let files: Vec<FileId> = batch.iter().map(|(file, _)| *file).collect();
    let known = core
        .read(move |_, tx| {
            Ok(files.iter().map(|file| inodes::find(tx, *file)).collect::<Result<Vec<_>, _>>()?)
        })
        .await?;
    let mut all = Vec::with_capacity(batch.len());
    for ((file, listed), inode) in batch.into_iter().zip(known) {
        let is_known = |object: &ListedObject| {
            let inode = inode.as_ref().filter(|inode| inode.is_reached());
            inode.is_none_or(|inode| inode.in_force().any(|segment| segment.object == object.object))
        };
        let (on_record, others): (Listed, Listed) =
            listed.into_iter().partition(|(_, (_, object))| is_known(object));
        if !on_record.is_empty() {
            all.push((file, OnDrives { listed: on_record, layout: None }));
        }
        let mut layouts: BTreeMap<ObjectId, Listed> = BTreeMap::new();
        for (place, (drive, object)) in others {
            layouts.entry(object.object).or_default().insert(place, (drive, object));
        }
        for listed in layouts.into_values() {
            let Some((drive, newest)) = listed.values().max_by_key(|(_, object)| object.g) else { continue };
            if let Some(layout) = listing::layout(core, *drive, partition, newest).await? {
                all.push((file, OnDrives { listed, layout: Some(layout) }));
            }
        }
    }
    Ok(all)
}

/// Returns true if a layout that is not on record is the file's now. The layout on record was compared
/// before, if drives that are up hold any of its objects.
pub(crate) fn is_in_force(
    inode: &InodeRecord,
    layout: &SegmentRecord,
    listed: &Listed,
    away: &BTreeSet<DriveId>,
) -> bool {
    // Numbers only rise: a layout with a lower number is the rest of one that was replaced before the backup.
    let is_newer = inode.in_force().all(|on| on.object < layout.object);
    let can_be_read =
        present_set(layout, None, inode.size, listed, away).count() >= u32::from(layout.shape.k);
    // Otherwise drives that are away may have a higher generation of the layout on record.
    let is_heard = inode.in_force().all(|on| {
        let heard = on.columns(|drive| !away.contains(&drive));
        heard.count() > u32::from(on.shape.m)
    });
    let newest = listed.values().map(|(_, object)| object.g).max().unwrap_or_default();
    // A comparison leaves a file one generation above all that it has found.
    let is_equal = newest.next().is_some_and(|next: Generation| next == inode.g);
    is_newer && can_be_read && is_heard && (newest >= inode.g || is_equal && !is_whole(inode))
}

fn is_whole(inode: &InodeRecord) -> bool {
    inode.in_force().all(|segment| segment.ready().count() >= u32::from(segment.shape.k))
}

#[cfg(test)]
mod tests {
    use braid_layout::{Column, ColumnMask, VolumeId};
    use braid_wire::control::{EntryKind, ShapeSpec};

    use super::*;
    use crate::restore::compare::settle_all;
    use braid_meta::records::db::Db;
    use braid_meta::records::inodes::create;
    use braid_meta::records::memory::MemoryKv;
    use braid_meta::records::schema::directory_record;
    use braid_meta::records::schema::{LeftRecord, VolumeRecord, key, table};
    use braid_meta::records::tx::Tx;
    use braid_meta::rules::drives::examples::record;

    const FILE: FileId = FileId(8);
    const OLD: u64 = 10;
    const NEW: u64 = 20;

    fn mask(columns: &[u8]) -> ColumnMask {
        columns.iter().copied().map(Column).collect()
    }

    /// A segment of two data columns and a parity column: the old one on drives 1 to 3, the new one on 4 to
    /// 6.
    fn segment(object: u64) -> SegmentRecord {
        let is_new = object == NEW;
        let first = if is_new { 4 } else { 1 };
        SegmentRecord {
            number: u32::from(is_new),
            start: 0,
            end: u64::MAX,
            shape: ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 },
            object: ObjectId(object),
            drives: (first..first + 3).map(DriveId).collect(),
            set: ColumnMask::all(3),
            joining: ColumnMask::EMPTY,
            filling: None,
        }
    }

    /// Objects of a layout on drives: columns with their generations, with this set and these joining
    /// columns.
    fn held(object: u64, columns: &[(u8, u32)], set: &[u8], joining: &[u8]) -> (FileId, OnDrives) {
        let of = SegmentRecord { set: mask(set), joining: mask(joining), ..segment(object) };
        let one = |&(column, g): &(u8, u32)| {
            let column = Column(column);
            let file = FILE;
            let object = of.object;
            let segment = of.number;
            let g = Generation(g);
            let set = of.set;
            let joining = of.joining;
            let listed = ListedObject { object, file, segment, column, g, set, joining };
            ((segment, column), (of.drive(column), listed))
        };
        let listed = columns.iter().map(one).collect();
        (FILE, OnDrives { listed, layout: Some(of) })
    }

    /// A file whose layout on record is the one of these objects, in generation 5; `set` of it on record.
    fn restored(on_record: u64, set: &[u8]) -> Db {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let set = mask(set);
        let store = move |tx: &mut Tx| -> Result<(), Refusal> {
            for drive in 1..=6 {
                tx.set(key::drive(DriveId(drive)), &record(drive, "d"));
            }
            let volume = VolumeId(1);
            let root = FileId(2);
            let shape = segment(OLD).shape;
            let name = "main".to_owned();
            let quota_bytes = 0;
            let files = 1;
            let file_bytes = 1 << 20;
            let created_ms = 0;
            let of = VolumeRecord { volume, name, shape, quota_bytes, files, file_bytes, created_ms, root };
            tx.set(key::volume(volume), &of);
            let mut inode = directory_record(volume, root, b"f".to_vec(), 0);
            (inode.kind, inode.size, inode.g) = (EntryKind::File, 1 << 20, Generation(5));
            inode.segments = vec![SegmentRecord { set, ..segment(on_record) }];
            create(tx, FILE, &inode)
        };
        db.write(store).unwrap();
        db
    }

    /// Compares these, in turn, and returns the file's record. Objects of the layout on record have no
    /// `layout`.
    fn compared(db: &Db, found: Vec<(FileId, OnDrives)>, away: &[u128]) -> InodeRecord {
        let away: BTreeSet<DriveId> = away.iter().copied().map(DriveId).collect();
        for (file, mut on_drives) in found {
            let away = away.clone();
            db.write(move |tx| {
                let inode = inodes::get(tx, FILE)?;
                let layout = on_drives.layout.take();
                let is_known = |of: &SegmentRecord| inode.in_force().any(|on| on.object == of.object);
                on_drives.layout = layout.filter(|of| !is_known(of));
                settle_all(tx, vec![(file, on_drives)], &away).map(drop)
            })
            .unwrap();
        }
        db.read(|tx| inodes::get(tx, FILE)).unwrap()
    }

    fn left(db: &Db) -> usize {
        db.read(|tx| {
            let (from, to) = key::all(table::LEFT);
            Ok::<_, Refusal>(tx.records::<LeftRecord>(&(from, to), usize::MAX)?.len())
        })
        .unwrap()
    }

    #[track_caller]
    fn is_on(inode: &InodeRecord, object: u64, set: &[u8]) {
        assert_eq!(inode.segments.len(), 1, "{inode:?}");
        assert_eq!(
            (inode.segments[0].object, inode.segments[0].set),
            (ObjectId(object), mask(set)),
            "{inode:?}"
        );
    }

    const ALL: &[u8] = &[0, 1, 2];

    #[test]
    fn the_new_layout_counts_also_if_columns_of_it_were_out_or_joining() {
        for (set, joining, ready) in
            [(ALL, &[][..], ALL), (ALL, &[1][..], &[0, 2][..]), (&[0, 2], &[], &[0, 2])]
        {
            let db = restored(OLD, ALL);
            let found = vec![held(NEW, &[(0, 9), (1, 9), (2, 9)], set, joining)];
            let inode = compared(&db, found, &[]);
            is_on(&inode, NEW, ready);
            assert!(inode.g > Generation(9) && inode.held && inode.unfenced);
            assert_eq!(left(&db), 3, "the old one's are freed");
        }
    }

    #[test]
    fn of_two_the_higher_generation_counts_and_of_equals_the_old_one_while_it_is_whole() {
        let old = |columns: &[u8], g| {
            let columns: Vec<(u8, u32)> = columns.iter().map(|&column| (column, g)).collect();
            held(OLD, &columns, ALL, &[])
        };
        let new = |g, joining| held(NEW, &[(0, g), (1, g), (2, g)], ALL, joining);
        for (of_old, of_new, expected) in [
            (old(ALL, 7), new(7, &[]), OLD),
            (old(ALL, 7), new(8, &[]), NEW),
            (old(ALL, 7), new(6, &[]), OLD),
            (old(&[1], 7), new(7, &[]), NEW),
            // The new layout was given up, and the old one was written since.
            (old(&[1], 8), new(7, &[]), OLD),
            // The new layout cannot be read.
            (old(&[1], 7), new(7, &[0, 1]), OLD),
            (old(&[1], 7), new(8, &[0, 1]), OLD),
        ] {
            let db = restored(OLD, ALL);
            let inode = compared(&db, vec![of_old, of_new], &[]);
            assert_eq!(inode.segments[0].object, ObjectId(expected), "{inode:?}");
            assert_eq!(left(&db), if expected == NEW { 3 } else { 0 });
        }
    }

    #[test]
    fn the_rest_of_a_layout_from_before_is_not_taken_for_the_file() {
        // Too few columns of the file are ready on record, and its drives may come back.
        let db = restored(NEW, &[0]);
        let inode = compared(&db, vec![held(OLD, &[(0, 4)], ALL, &[])], &[5, 6]);
        is_on(&inode, NEW, &[0]);
        assert_eq!(left(&db), 0);
    }

    #[test]
    fn nothing_is_decided_over_the_heads_of_drives_that_are_away() {
        let db = restored(OLD, ALL);
        let inode = compared(&db, vec![held(NEW, &[(0, 9), (1, 9), (2, 9)], ALL, &[])], &[1, 2]);
        is_on(&inode, OLD, ALL);
        // Too few of the new layout's own drives answer.
        let inode = compared(&db, vec![held(NEW, &[(0, 9)], ALL, &[])], &[5, 6]);
        is_on(&inode, OLD, ALL);
        assert_eq!(left(&db), 0);
    }
}
