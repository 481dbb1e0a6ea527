//! For benchmarks: generates a large store in seconds, to measure how fast it opens.

use std::path::Path;
use std::sync::Arc;

use braid_layout::{Column, ColumnMask, Generation, Lease, ObjectId, PartitionId, Version};
use bytes::Bytes;

use crate::checkpoint::write::write;
use crate::crc::block_crcs;
use crate::disk::{Directory, Syncing, write_full};
use crate::error::Error;
use crate::files::{self, Files, SPARE};
use crate::format::record::{Kind, Record};
use crate::format::superblock::Superblock;
use crate::format::{LOG_BLOCK_U64, body};
use crate::index::Index;
use crate::index::deciding::decision::{object_record, partition_record};
use crate::index::locked::Locked;
use crate::mutation::Attributes;
use crate::segments::log::{AppendError, Entry, Log};
use crate::segments::recycled::RecycledSegment;
use crate::store::Identity;
use crate::threads::checkpointer::Checkpointer;

/// The partition with the objects.
pub const PARTITION: PartitionId = PartitionId(1);
/// Bytes of a segment.
const SEGMENT_BYTES: u64 = 512 << 20;
/// Bytes of a unit.
const UNIT_BYTES: u32 = 512 << 10;
/// Bytes of a write in the tail.
const TAIL_WRITE_BYTES: u32 = 4096;
/// Records of a commit in the tail.
const COMMIT_LEN: usize = 16;

/// Sizes of a generated store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generated {
    /// Bytes of the checkpoint.
    pub checkpoint_bytes: u64,
    /// Bytes of the log after it.
    pub tail_bytes: u64,
    /// Bytes behind the log's end that its last segment's file held before it was reused.
    pub stale_bytes: u64,
}

/// Byte that fills the recycled files. A block of it is no record, and telling it from one takes as long as
/// for any other byte.
pub const STALE: u8 = 0x5a;

/// Make a store in `dir`, which must be absent or empty, in the state that a killed process leaves. It has
/// `objects` objects spread over about `log_bytes` of log, a checkpoint, and `tail_bytes` of 4 KiB writes
/// after it (`None`: the most there can be before the next checkpoint is due). The tail's segments reuse
/// files that had `earlier_bytes` before (0: new files), as in a store that is overwritten. The log before
/// the tail consists of holes in files, without space or records, so only the tail's units can be read.
/// Nothing is synced.
pub fn generate(
    dir: &Path,
    identity: Identity,
    objects: u64,
    log_bytes: u64,
    tail_bytes: Option<u64>,
    earlier_bytes: u64,
) -> Result<Generated, Error> {
    std::fs::create_dir_all(dir).map_err(|error| Error::io("make the store's directory", error))?;
    let disk = Directory::lock(dir)?;
    let superblock = Superblock { cluster: identity.cluster, drive: identity.drive, salt: 1 };
    files::format(&disk, &superblock)?;
    let (files, superblock) = Files::open(Arc::new(disk))?;
    let mut log = Log { segment_bytes: SEGMENT_BYTES, syncing: Syncing::Off, ..Log::new(superblock) };
    let mut index = Index::default();
    fill(&files, &mut log, &mut index, objects, log_bytes)?;
    index.head = log.head();
    let index = Locked::new(index);
    let kept = write(&files, &index, &superblock, 1, Syncing::Off, &|_| None);
    let kept = kept.map_err(|error| Error::io("write a checkpoint", error))?;
    let tail_bytes =
        tail_bytes.unwrap_or_else(|| Checkpointer::new(vec![kept], Vec::new()).tail_bytes_max(None));
    let mut index = std::mem::take(&mut *index.write());
    if earlier_bytes > 0 {
        (0..=tail_bytes / SEGMENT_BYTES).try_for_each(|number| set_aside(&files, number, earlier_bytes))?;
    }
    tail(&files, &mut log, &mut index, objects, tail_bytes)?;
    files.give_up_all();
    let stale_bytes = log.earlier.saturating_sub(log.end);
    Ok(Generated { checkpoint_bytes: kept.bytes, tail_bytes, stale_bytes })
}

/// Makes a recycled segment of `bytes` bytes.
fn set_aside(files: &Files, number: u64, bytes: u64) -> Result<(), Error> {
    let failed = |error| Error::io("make a file to be used again", error);
    let name = format!("log/{number:08}{SPARE}");
    let file = files.disk().create(&name).map_err(failed)?;
    let part = vec![STALE; 1 << 20];
    let mut at = 0;
    while at < bytes {
        let length = usize::try_from(bytes - at).map_or(part.len(), |left| left.min(part.len()));
        write_full(&*file, &[&part[..length]], at).map_err(failed)?;
        at += u64::try_from(length).expect("small");
    }
    files.recycled().put(RecycledSegment { name, file, bytes });
    Ok(())
}

/// Objects in a log of holes. Each has as many whole units as fit its share of the log, or a part of one.
fn fill(files: &Files, log: &mut Log, index: &mut Index, objects: u64, log_bytes: u64) -> Result<(), Error> {
    let per_object = (log_bytes / objects.max(1)).max(4096);
    let place = |log: &mut Log, index: &mut Index, mut record: Record| -> Result<(), Error> {
        if log.wants_segment() {
            finish_segment(log, index)?;
            begin_segment(files, log, index)?;
        }
        record.sequence = log.next;
        if matches!(record.kind, Kind::ObjectCreate | Kind::PartitionCreate) {
            record.birth = record.sequence;
        }
        let block = u32::try_from(log.end / LOG_BLOCK_U64).expect("a segment is below 2 TiB");
        (record.segment, record.block) = (log.number, block);
        let bytes = record.disk_bytes();
        log.end += bytes;
        log.next += 1;
        log.recent.push(&record, bytes);
        index.apply(&record);
        Ok(())
    };
    place(log, index, partition_record(Kind::PartitionCreate, PARTITION, None, 1, 0))?;
    for object in 0..objects {
        let mut record = Record::new(Kind::ObjectCreate);
        (record.partition, record.object) = (PARTITION, ObjectId(object));
        body::put_attributes(&mut record, &attributes());
        place(log, index, record)?;
        let mut left = per_object;
        let mut unit = 0;
        while left > 0 {
            let bytes = u32::try_from(left.min(u64::from(UNIT_BYTES))).expect("a unit");
            let record = data(index, object, unit, bytes, version(1));
            place(log, index, Record { settled_below: version(u64::MAX), ..record })?;
            left -= u64::from(bytes);
            unit += 1;
        }
    }
    finish_segment(log, index)
}

fn finish_segment(log: &Log, index: &mut Index) -> Result<(), Error> {
    let Some(file) = &log.file else { return Ok(()) };
    index.segments.set_bytes(log.number, log.end);
    file.set_length(log.end).map_err(|error| Error::io("lengthen a segment", error))
}

fn begin_segment(files: &Files, log: &mut Log, index: &mut Index) -> Result<(), Error> {
    log.roll(files).map_err(failed)?;
    index.segments.add(log.number, log.next, log.end);
    Ok(())
}

fn tail(files: &Files, log: &mut Log, index: &mut Index, objects: u64, tail_bytes: u64) -> Result<(), Error> {
    let payload = Bytes::from(vec![7; usize::try_from(TAIL_WRITE_BYTES).expect("small")]);
    let crcs = block_crcs(0, &payload);
    begin_segment(files, log, index)?;
    let mut written = 0;
    let mut n = 2_u64;
    while written < tail_bytes {
        if log.wants_segment() {
            begin_segment(files, log, index)?;
        }
        let mut entries: Vec<Entry> = Vec::with_capacity(COMMIT_LEN);
        while entries.len() < COMMIT_LEN {
            // A stride that is coprime to any plausible number of objects.
            let object = n.wrapping_mul(7_368_787) % objects.max(1);
            let mut record = data(index, object, 0, TAIL_WRITE_BYTES, version(n));
            record.crcs.clone_from(&crcs);
            written += record.disk_bytes();
            entries.push((record, payload.clone()));
            n += 1;
        }
        log.append(&mut entries).map_err(failed)?;
        entries.iter().for_each(|(record, _)| index.apply(record));
    }
    Ok(())
}

fn failed(error: AppendError) -> Error {
    match error {
        AppendError::NoSpace => Error::io("write the log", std::io::ErrorKind::StorageFull.into()),
        AppendError::Failed(error) => error,
    }
}

fn version(n: u64) -> Version {
    Version { g: Generation(1), lease: Lease(1), n }
}

/// Attributes as long as those of a file's component on five drives.
fn attributes() -> Attributes {
    Attributes {
        unit_bytes: UNIT_BYTES,
        column: Column(0),
        g: Generation(1),
        set: ColumnMask::all(5),
        map: vec![0; 160],
        ..Attributes::default()
    }
}

fn data(index: &Index, object: u64, unit: u64, bytes: u32, version: Version) -> Record {
    let owner = index.partitions.get(&PARTITION).expect("it was made");
    let have = owner.objects.get(&ObjectId(object)).expect("it was made");
    let mut record = object_record(Kind::Data, PARTITION, ObjectId(object), have);
    (record.unit, record.units, record.to, record.payload_bytes) = (unit, 1, bytes, bytes);
    record.version = version;
    record.previous = have.units.get(unit).map_or(Version::ZERO, |slot| slot.unit().tip_version());
    record.columns = ColumnMask(1);
    // Only their number matters here. The tail fills in the values.
    record.crcs = vec![0; usize::try_from(bytes.div_ceil(4096)).expect("small")];
    record
}

#[cfg(test)]
mod tests {
    use braid_layout::{ClusterId, DriveId};

    use super::*;
    use crate::Options;
    use crate::Store;
    use crate::Want;

    #[test]
    fn what_is_made_up_opens() {
        let dir = tempfile::tempdir().expect("a directory");
        let identity = Identity { cluster: ClusterId(1), drive: DriveId(2) };
        let made = generate(dir.path(), identity, 3000, 1 << 30, Some(1 << 20), 3 << 20).expect("made");
        assert_eq!(made.tail_bytes, 1 << 20);
        assert!((1 << 20..2 << 20).contains(&made.stale_bytes), "{made:?}");
        let (store, recovery) = Store::open(dir.path(), Some(identity), Options::default()).expect("open");
        assert_eq!((recovery.checkpoint, recovery.damaged_count), (1, 0), "{:?}", recovery.damaged);
        assert!(recovery.records > 200, "{} records in the tail", recovery.records);
        let stat = store.stat().expect("stat");
        assert_eq!((stat.objects, stat.partitions), (3000, 1));
        assert!(stat.live > 1 << 29, "{} live bytes", stat.live);
        let written = ObjectId(2 * 7_368_787 % 3000);
        let view = store.read(PARTITION, written, 0, 0..4096, Want::Newest).expect("view");
        let mut bytes = [0; 4096];
        view.read_exact_into(&mut bytes).expect("read");
        assert_eq!(bytes, [7; 4096]);
    }
}
