//! What still pins each segment.
//!
//! A segment may be freed when no unit refers to its payloads or holes, and its live metadata (newest attributes,
//! fences, partitions; tombstones that older segments still need) was written again elsewhere.
//! A segment in which damage was found is never freed: with it the knowledge would go of what was lost.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{ObjectId, PartitionId};

use super::Meta;
use super::extent::Extent;

/// A record that must be replayed after older ones as long as these exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tombstone {
    /// The object with this birth, or an older one, is gone.
    Object { partition: PartitionId, object: ObjectId, birth: u64 },
    /// The partition with this birth, or an older one, is gone.
    Partition { partition: PartitionId, birth: u64 },
}

/// One segment.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    /// The sequence number of its first record.
    pub(crate) first_sequence: u64,
    /// Bytes of its file.
    pub(crate) bytes: u64,
    /// Payload bytes that units refer to.
    pub(crate) payload: u64,
    /// Hole extents that units refer to.
    pub(crate) holes: u64,
    /// Bytes of live metadata records.
    pub(crate) meta_bytes: u64,
    /// Whose they are.
    pub(crate) meta: BTreeSet<(PartitionId, Option<ObjectId>)>,
    /// Tombstones in it, each with the sequence number it first had.
    pub(crate) tombstones: Vec<(u64, Tombstone)>,
    /// The highest of these numbers.
    pub(crate) newest_origin: u64,
    /// Segments with writes that verdicts in this one took back.
    pub(crate) victims: BTreeSet<u32>,
    /// Damage was found in it.
    pub(crate) damaged: bool,
}

/// All segments.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    pub(crate) all: BTreeMap<u32, Segment>,
    /// Segments to which no payload and no hole refers.
    idle: BTreeSet<u32>,
    live: u64,
    used: u64,
}

/// Bytes of a tombstone's record.
const TOMBSTONE_BYTES: u64 = 512;

impl Segments {
    pub(crate) fn add(&mut self, number: u32, first_sequence: u64, bytes: u64) {
        self.all.insert(number, Segment { first_sequence, bytes, ..Segment::default() });
        self.idle.insert(number);
        self.used += bytes;
    }

    pub(crate) fn remove(&mut self, number: u32) {
        if let Some(segment) = self.all.remove(&number) {
            self.used -= segment.bytes;
        }
        self.idle.remove(&number);
    }

    pub(crate) fn set_bytes(&mut self, number: u32, bytes: u64) {
        if let Some(segment) = self.all.get_mut(&number) {
            self.used = self.used - segment.bytes + bytes;
            segment.bytes = bytes;
        }
    }

    pub(crate) fn entry(&mut self, number: u32) -> &mut Segment {
        self.all.entry(number).or_default()
    }

    /// Bytes of all files of the log.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Payload bytes that units refer to.
    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    /// A unit refers to `extent`.
    pub(crate) fn charge(&mut self, extent: &Extent) {
        let segment = self.all.entry(extent.segment).or_default();
        segment.holes += u64::from(extent.is_hole());
        segment.payload += extent.stored_bytes();
        self.live += extent.stored_bytes();
        self.idle.remove(&extent.segment);
    }

    /// A unit no longer refers to `extent`.
    pub(crate) fn release(&mut self, extent: &Extent) {
        let segment = self.all.entry(extent.segment).or_default();
        segment.holes -= u64::from(extent.is_hole());
        segment.payload -= extent.stored_bytes();
        self.live -= extent.stored_bytes();
        if segment.payload == 0 && segment.holes == 0 {
            self.idle.insert(extent.segment);
        }
    }

    /// The newest metadata of `owner` moves from one place to another.
    pub(crate) fn move_meta(
        &mut self,
        owner: (PartitionId, Option<ObjectId>),
        old: impl IntoIterator<Item = Meta>,
        new: impl IntoIterator<Item = Meta>,
    ) {
        for meta in old {
            let segment = self.entry(meta.segment);
            segment.meta_bytes -= u64::from(meta.bytes);
            segment.meta.remove(&owner);
        }
        for meta in new {
            let segment = self.entry(meta.segment);
            segment.meta_bytes += u64::from(meta.bytes);
            segment.meta.insert(owner);
        }
    }

    /// A sealed segment that is worth freeing: nothing but metadata pins it, of at most half its size.
    pub(crate) fn freeable(&self, active: u32) -> Option<u32> {
        self.idle.iter().copied().find(|&number| number != active && self.worth_freeing(number))
    }

    /// Whether freeing `number` would give back more than it costs.
    pub(crate) fn worth_freeing(&self, number: u32) -> bool {
        let Some(segment) = self.all.get(&number) else { return false };
        // A verdict cannot be written again elsewhere: it must stand between what it took back and what came after.
        let stands = |victim: &u32| *victim != number && self.all.contains_key(victim);
        if segment.payload > 0 || segment.holes > 0 || segment.damaged || segment.victims.iter().any(stands) {
            return false;
        }
        // Counted from above, so that this takes no longer where there are many.
        let newest = segment.newest_origin;
        let needed = if self.is_needed(number, newest) { segment.tombstones.len() } else { 0 };
        let tombstones = u64::try_from(needed).unwrap_or(u64::MAX).saturating_mul(TOMBSTONE_BYTES);
        segment.meta_bytes.saturating_add(tombstones).saturating_mul(2) <= segment.bytes
    }

    /// Whether a tombstone of `number` that was first written as record `origin` still has older records to outlive in
    /// another segment.
    pub(crate) fn is_needed(&self, number: u32, origin: u64) -> bool {
        // First sequences rise with segment numbers, so that the first other segment has the lowest.
        let oldest = self.all.iter().find(|&(&other, _)| other != number);
        oldest.is_some_and(|(_, segment)| segment.first_sequence < origin)
    }
}
