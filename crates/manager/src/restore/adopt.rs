//! Files of a rebuilt state that drives hold and no name leads to: they were made in the last seconds before
//! the manager was lost, or no drive had a catalogue. Each gets a name in `lost+found` of its volume, so that
//! its bytes can be read, and nothing is freed that might be somebody's only copy.
//!
//! Its layout is that of its newest object, which names all drives. Its size is at first the least that its
//! objects show, so that a column that must have an object and has none counts as lost; then it is settled
//! as after a writer that died.

use std::sync::Arc;

use braid_layout::version::Lease;
use braid_layout::{FileId, PartitionId, VolumeId};
use braid_meta::records::schema::{
    EntryRecord, InodeRecord, SegmentRecord, VolumeRecord, directory_record, key, usual_mode,
};
use braid_meta::records::tx::Tx;
use braid_meta::records::{frozen, inodes};
use braid_meta::tree::entries::{self, Named};
use braid_meta::tree::volumes;
use braid_wire::Refusal;
use braid_wire::control::EntryKind;

use crate::columns::listing::{self, Listed};
use crate::core::Core;

/// The directory in a volume's root that the names are in.
pub const DIRECTORY: &str = "lost+found";
/// Rights of that directory: only its owner may look.
const MODE: u32 = 0o700;

/// A file to be adopted.
struct Found {
    file: FileId,
    layout: SegmentRecord,
    size: u64,
}

/// Gives names to the files among these that have none. Returns how many got one.
pub(crate) async fn adopt(
    core: &Arc<Core>,
    partition: PartitionId,
    batch: &[(FileId, Listed)],
) -> Result<u64, Refusal> {
    let files: Vec<FileId> = batch.iter().map(|(file, _)| *file).collect();
    let nameless = core
        .read(move |_, tx| {
            let mut nameless = Vec::new();
            for file in files {
                if is_nameless(tx, file)? {
                    nameless.push(file);
                }
            }
            Ok(nameless)
        })
        .await?;
    let mut found = Vec::new();
    for (file, listed) in batch.iter().filter(|(file, _)| nameless.contains(file)) {
        let newest = listed.values().max_by_key(|(_, object)| (object.g, object.object));
        let Some((drive, newest)) = newest else { continue };
        let Some((layout, reach)) = listing::layout_and_reach(core, *drive, partition, newest).await? else {
            continue;
        };
        let size = least_size(&layout, reach);
        found.push(Found { file: *file, layout, size });
    }
    let count = u64::try_from(found.len()).unwrap_or(u64::MAX);
    if count > 0 {
        let now_ms = core.now_ms();
        core.write(move |_, tx| found.into_iter().try_for_each(|found| name(tx, partition, found, now_ms)))
            .await?;
    }
    Ok(count)
}

fn is_nameless(tx: &Tx, file: FileId) -> Result<bool, Refusal> {
    if file == FileId(0) || tx.get(&key::removal(file))?.is_some() || frozen::is_begun(tx, file)? {
        return Ok(false);
    }
    Ok(inodes::find(tx, file)?.is_none_or(|inode| !inode.is_reached()))
}

/// The least size of a file of which one object reaches so far: its last stripe has a byte.
fn least_size(layout: &SegmentRecord, reach: u64) -> u64 {
    let unit_bytes = u64::from(layout.shape.unit_bytes.max(1));
    let stripe_bytes = u64::from(layout.shape.k) * unit_bytes;
    match reach.div_ceil(unit_bytes) {
        0 => 0,
        stripes => (stripes - 1).saturating_mul(stripe_bytes).saturating_add(1),
    }
}

fn name(tx: &mut Tx, partition: PartitionId, found: Found, now_ms: u64) -> Result<(), Refusal> {
    let Found { file, layout, size } = found;
    if let Some(inode) = inodes::find(tx, file)? {
        inodes::forget(tx, file, &inode)?;
    }
    let mut volume = volume(tx, VolumeId(partition.0), &layout, now_ms)?;
    let directory = directory(tx, &volume, now_ms)?;
    let name = format!("file-{:016x}", file.0);
    let inode = InodeRecord {
        kind: EntryKind::File,
        mode: usual_mode(EntryKind::File),
        size,
        // As of a writer that died: whatever drives hold counts for the size.
        lease: Lease(1),
        held: true,
        sealed: volumes::seal_of(tx, volume.volume)?.is_some(),
        segments: vec![layout],
        ..directory_record(volume.volume, directory, name.clone().into_bytes(), now_ms)
    };
    inodes::recount(tx, &mut volume, (0, 0), (1, size));
    inodes::create(tx, file, &inode)?;
    let at = Named { directory, name: name.as_bytes() };
    entries::put(tx, at, &EntryRecord::of(EntryKind::File, file), now_ms)
}

/// The volume, made anew if its name is lost too.
fn volume(
    tx: &mut Tx,
    volume: VolumeId,
    layout: &SegmentRecord,
    now_ms: u64,
) -> Result<VolumeRecord, Refusal> {
    if let Some(known) = tx.record(&key::volume(volume))? {
        return Ok(known);
    }
    let root = FileId(tx.next_number()?);
    let name = format!("recovered-{:016x}", volume.0);
    let record = VolumeRecord {
        volume,
        name: name.clone(),
        shape: layout.shape.clone(),
        quota_bytes: 0,
        files: 0,
        file_bytes: 0,
        created_ms: now_ms,
        root,
    };
    tx.set(key::volume(volume), &record);
    tx.set(key::volume_name(&name), &volume);
    tx.set_inode(root, &directory_record(volume, FileId(0), Vec::new(), now_ms))?;
    Ok(record)
}

/// The directory `lost+found` in the volume's root; under another name if that is taken by something else.
fn directory(tx: &mut Tx, volume: &VolumeRecord, now_ms: u64) -> Result<FileId, Refusal> {
    let mut name = DIRECTORY.to_owned();
    loop {
        let entry: Option<EntryRecord> = tx.record(&key::entry(volume.root, name.as_bytes()))?;
        match entry {
            Some(entry) if entry.kind == EntryKind::Directory => return Ok(entry.file),
            Some(_) => name.push('+'),
            None => break,
        }
    }
    let directory = FileId(tx.next_number()?);
    let record = directory_record(volume.volume, volume.root, name.clone().into_bytes(), now_ms);
    tx.set_inode(directory, &InodeRecord { mode: MODE, ..record })?;
    let at = Named { directory: volume.root, name: name.as_bytes() };
    entries::put(tx, at, &EntryRecord::of(EntryKind::Directory, directory), now_ms)?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_layout::{ColumnMask, DriveId, ObjectId};
    use braid_meta::records::check::check;
    use braid_meta::records::db::Db;
    use braid_meta::records::memory::MemoryKv;
    use braid_meta::rules::drives::examples::record;
    use braid_wire::control::ShapeSpec;

    use super::*;

    fn layout() -> SegmentRecord {
        SegmentRecord {
            number: 0,
            start: 0,
            end: u64::MAX,
            shape: ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 },
            object: ObjectId(9),
            drives: vec![DriveId(1), DriveId(2), DriveId(3)],
            set: ColumnMask::all(3),
            joining: ColumnMask::EMPTY,
            filling: None,
        }
    }

    #[test]
    fn the_least_size_has_a_byte_in_the_last_stripe() {
        for (reach, size) in [(0, 0), (1, 1), (4096, 1), (4097, 8193), (12_288, 16_385)] {
            assert_eq!(least_size(&layout(), reach), size, "{reach}");
        }
    }

    #[test]
    fn a_file_whose_name_and_volume_are_lost_gets_both_and_the_state_holds_together() {
        let db = Db::new(Arc::new(MemoryKv::new()));
        db.write(|tx| {
            for drive in 1..=3 {
                tx.set(key::drive(DriveId(drive)), &record(drive, &format!("d{drive}")));
            }
            for file in [5, 6] {
                let found = Found { file: FileId(file), layout: layout(), size: 1 };
                assert!(is_nameless(tx, FileId(file))?);
                name(tx, PartitionId(77), found, 700)?;
                assert!(!is_nameless(tx, FileId(file))?);
            }
            let volume: VolumeRecord = tx.record(&key::volume(VolumeId(77)))?.unwrap();
            assert_eq!((volume.files, volume.file_bytes), (2, 2));
            assert_eq!(volume.name, "recovered-000000000000004d");
            Ok(())
        })
        .unwrap();
        let violations = check(&db).unwrap();
        assert!(violations.is_empty(), "{violations:?}");
    }
}
