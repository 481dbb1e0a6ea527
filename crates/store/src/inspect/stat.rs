//! A store's figures.

use std::path::Path;
use std::sync::Arc;

use super::{disk, recovered};
use crate::disk::Disk;
use crate::error::Error;
use crate::files::Files;
use crate::format::checkpoint::Appended;
use crate::format::extent::Extent;
use crate::index::Object;
use crate::index::slot::Slot;
use crate::index::unit::Unit;
use crate::recover::Recovery;
use crate::store::Identity;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentFacts {
    pub number: u32,
    /// Bytes of the segment's file.
    pub bytes: u64,
    /// Payload bytes that units refer to.
    pub live: u64,
    /// True if damage was found in the segment.
    pub damaged: bool,
}

#[derive(Debug, Clone)]
pub struct StoreFacts {
    pub identity: Identity,
    /// The store's segments, in order.
    pub segments: Vec<SegmentFacts>,
    /// Bytes of all checkpoints.
    pub checkpoint_bytes: u64,
    /// Bytes of the log that the next opening replays.
    pub tail_bytes: u64,
    pub partitions: u64,
    pub objects: u64,
    /// Units with a state.
    pub units: u64,
    /// Extents of these units.
    pub extents: u64,
    /// Units stored in full form: more than one settled version of data in one extent.
    pub whole_units: u64,
    /// Extents of the units stored in full form.
    pub whole_extents: u64,
    /// Bytes of the objects' maps and opaque bytes.
    pub opaque_bytes: u64,
    /// Bytes of all records that were ever written.
    pub appended: Appended,
    /// The findings of opening.
    pub recovery: Recovery,
}

impl StoreFacts {
    /// Bytes of memory per object in the index, with its place in the tree, without its map and opaque bytes.
    pub const OBJECT_BYTES: u64 = 144 + 24;
    /// Bytes of memory per unit, with its number. That is all for a unit with one settled version of data in
    /// one extent.
    pub const UNIT_BYTES: u64 = 48;
    /// Additional bytes of memory per unit stored in full form.
    pub const WHOLE_UNIT_BYTES: u64 = 208;
    /// Bytes of memory per extent of a unit stored in full form.
    pub const EXTENT_BYTES: u64 = 16;

    /// Bytes of memory of this store's index: the counts times their costs. Excludes the allocator's overhead
    /// (10 to 25 of 100) and versions that wait to be settled.
    pub fn index_bytes(&self) -> u64 {
        self.objects * Self::OBJECT_BYTES
            + self.opaque_bytes
            + self.units * Self::UNIT_BYTES
            + self.whole_units * Self::WHOLE_UNIT_BYTES
            + self.whole_extents * Self::EXTENT_BYTES
    }

    /// Payload bytes that units refer to.
    pub fn live(&self) -> u64 {
        self.segments.iter().map(|segment| segment.live).sum()
    }

    /// Bytes of all files of the log and of the checkpoints.
    pub fn used(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum::<u64>() + self.checkpoint_bytes
    }
}

const _: () = assert!(size_of::<(u64, Slot)>() == 48 && size_of::<Extent>() == 16, "the stated costs");
const _: () = assert!(size_of::<Object>() == 144 && size_of::<Unit>() == 208, "the stated costs");

/// The figures of the store in `dir` (or in its `store/`), as the next opening would find it.
pub fn stat(dir: &Path) -> Result<StoreFacts, Error> {
    let disk = disk(dir)?;
    let (files, superblock) = Files::open(Arc::clone(&disk) as Arc<dyn Disk>)?;
    let found = recovered(&files, superblock)?;
    let replay = found.kept.last().map(|kept| kept.replay).unwrap_or_default();
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let index = &found.index;
    let objects = || index.partitions.values().flat_map(|partition| partition.objects.values());
    let units = || objects().flat_map(|object| object.units.iter());
    let whole = || units().filter_map(|(_, slot)| slot.as_whole());
    let segments = index.segments.all.iter().map(|(&number, segment)| SegmentFacts {
        number,
        bytes: segment.bytes,
        live: segment.payload,
        damaged: segment.damaged,
    });
    Ok(StoreFacts {
        identity: Identity { cluster: superblock.cluster, drive: superblock.drive },
        segments: segments.collect(),
        checkpoint_bytes: found.kept.iter().map(|kept| kept.bytes).sum(),
        tail_bytes: index.segments.bytes_since(replay.segment, replay.offset()),
        partitions: count(index.partitions.len()),
        objects: count(objects().count()),
        units: count(units().count()),
        extents: units().map(|(_, slot)| count(slot.unit().pins().len())).sum(),
        whole_units: count(whole().count()),
        whole_extents: whole().map(|unit| count(unit.pins().len())).sum(),
        opaque_bytes: objects().map(|object| count(object.attributes.heap_bytes())).sum(),
        appended: index.appended,
        recovery: found.recovery,
    })
}
