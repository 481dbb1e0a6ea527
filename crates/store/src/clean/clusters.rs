//! Brings the small objects of a cluster together: which of them to move.
//!
//! The cluster of an object is a hint of the manager: objects of one are read together. They lie where they
//! were written, often among those of others. The log is seen as *areas*. An area is *thin*
//! for a cluster if less than half of it is the cluster's. A cluster is gathered if its bytes in thin areas
//! lie in more than twice as many areas as they would fill: they are then moved, one after the other. So an
//! object that was gathered is moved again only if its cluster has grown, and one that lies well is never
//! moved.
//!
//! Large objects stay where they are: each is long enough to be read in one sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use braid_layout::{ObjectId, PartitionId};

use super::gather::{Owner, disk_bytes, extents};
use crate::format::LOG_BLOCK_U64;
use crate::format::extent::Extent;
use crate::index::Index;
use crate::index::locked::Locked;

/// Bytes of an area: what a slow disk reads in about half the time of a move of its head. Areas of a log with
/// short segments are shorter: a batch of moves has several.
const AREA_BYTES: u64 = 256 << 10;
/// An area is at most this part of a segment.
const SEGMENT_PART: u64 = 16;
/// Larger objects are not gathered.
pub(crate) const OBJECT_BYTES_MAX: u64 = 128 << 10;
/// The most bytes that are gathered at a time, but for a single area.
const GATHERED_BYTES_MAX: u64 = 16 << 20;
/// Objects that are looked at under one lock.
const SLICE: usize = 4096;
/// Areas of clusters that are counted at most: beyond, some scattered objects stay where they are.
const COUNTED_MAX: usize = 1 << 20;

/// A cluster, in its partition.
type Cluster = (PartitionId, u64);
/// A part of the log: the segment, and the number of the area in it.
type Area = (u32, u64);

/// Objects to be moved together.
#[derive(Debug, Default)]
pub(crate) struct Scattered {
    /// The units to move, and the segments that they lie in.
    pub(crate) owners: BTreeSet<Owner>,
    pub(crate) segments: BTreeSet<u32>,
    /// Bytes of the log that moving them takes, with headers.
    pub(crate) bytes: u64,
    /// Number of times that this much is to be moved, with this one, until all is gathered.
    pub(crate) passes: u64,
}

/// The objects to be gathered next. Looks at all objects, some at a time.
pub(crate) fn scattered(index: &Locked, segment_bytes: u64, is_usable: impl Fn(u32) -> bool) -> Scattered {
    let area_bytes = AREA_BYTES.min(segment_bytes / SEGMENT_PART).max(LOG_BLOCK_U64);
    let area = |extent: &Extent| (extent.segment, u64::from(extent.block) * LOG_BLOCK_U64 / area_bytes);
    let mut areas = BTreeMap::new();
    for_each(index, |cluster, _, extent| {
        let key = (cluster, area(extent));
        if is_usable(extent.segment) && (areas.len() < COUNTED_MAX || areas.contains_key(&key)) {
            *areas.entry(key).or_default() += disk_bytes(extent.bytes(), 1);
        }
    });
    let Chosen { areas, bytes } = choose(&areas, area_bytes);
    let mut found = Scattered { passes: bytes.div_ceil(GATHERED_BYTES_MAX), ..Scattered::default() };
    if areas.is_empty() {
        return found;
    }
    for_each(index, |cluster, owner, extent| {
        if areas.contains(&(cluster, area(extent))) {
            found.owners.insert(owner);
            found.segments.insert(extent.segment);
            found.bytes += disk_bytes(extent.bytes(), 1);
        }
    });
    found
}

/// Shows `see` each stored piece of each small object that has a cluster.
fn for_each(index: &Locked, mut see: impl FnMut(Cluster, Owner, &Extent)) {
    let partitions: Vec<PartitionId> = index.read().partitions.keys().copied().collect();
    for partition in partitions {
        let mut after = None;
        while let Some(last) = slice(&index.read(), partition, after, &mut see) {
            after = Some(last);
        }
    }
}

/// Looks at the next objects. Returns the last of them, if there may be more.
fn slice(
    index: &Index,
    partition: PartitionId,
    after: Option<ObjectId>,
    see: &mut impl FnMut(Cluster, Owner, &Extent),
) -> Option<ObjectId> {
    let objects = &index.partitions.get(&partition)?.objects;
    let mut last = None;
    for (&number, object) in objects.range((after.map_or(Unbounded, Excluded), Unbounded)).take(SLICE) {
        last = Some(number);
        let cluster = object.attributes.cluster();
        if cluster == 0 || object.bytes > OBJECT_BYTES_MAX {
            continue;
        }
        for (unit, slot) in object.units.iter() {
            let owner = Owner { partition, object: number, birth: object.birth, unit };
            for extent in extents(&slot.unit()).iter().filter(|extent| !extent.is_hole()) {
                see((partition, cluster), owner, extent);
            }
        }
    }
    last
}

/// Areas to be emptied of a cluster each.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chosen {
    areas: BTreeSet<(Cluster, Area)>,
    /// Bytes in all areas to be emptied, now and later.
    bytes: u64,
}

/// Chooses from the bytes of the log that clusters have in areas.
fn choose(bytes: &BTreeMap<(Cluster, Area), u64>, area_bytes: u64) -> Chosen {
    let mut thin: BTreeMap<Cluster, BTreeMap<Area, u64>> = BTreeMap::new();
    for (&(cluster, area), &bytes) in bytes.iter().filter(|(_, bytes)| **bytes < area_bytes / 2) {
        thin.entry(cluster).or_default().insert(area, bytes);
    }
    let mut chosen = Chosen::default();
    let mut left = GATHERED_BYTES_MAX;
    for (cluster, areas) in thin {
        let sum: u64 = areas.values().sum();
        let filled = usize::try_from(sum.div_ceil(area_bytes)).unwrap_or(usize::MAX);
        if areas.len() <= filled.saturating_mul(2) {
            continue;
        }
        chosen.bytes += sum;
        for (area, bytes) in areas {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(bytes);
            chosen.areas.insert((cluster, area));
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(7);

    fn check(bytes: &[(u64, u64, u64)], expected: &[(u64, u64)]) -> u64 {
        let of = |cluster, area| ((P, cluster), (1, area));
        let bytes = bytes.iter().map(|&(cluster, area, bytes)| (of(cluster, area), bytes)).collect();
        let chosen = choose(&bytes, AREA_BYTES);
        let expected: BTreeSet<_> = expected.iter().map(|&(cluster, area)| of(cluster, area)).collect();
        assert_eq!(chosen.areas, expected);
        chosen.bytes
    }

    #[test]
    fn what_lies_among_others_is_gathered() {
        let thin = AREA_BYTES / 10;
        check(&[], &[]);
        check(&[(1, 0, thin), (1, 1, thin), (1, 2, thin)], &[(1, 0), (1, 1), (1, 2)]);
        // Two areas may be the two ends of what was gathered.
        check(&[(1, 0, thin), (1, 1, thin)], &[]);
        check(&[(1, 0, thin), (1, 1, AREA_BYTES - 1), (1, 2, AREA_BYTES), (1, 3, thin)], &[]);
        // Of two clusters only one is scattered.
        check(&[(1, 0, thin), (2, 0, thin), (2, 5, thin), (2, 9, thin)], &[(2, 0), (2, 5), (2, 9)]);
        // What was gathered stays if the cluster grows.
        check(&[(1, 0, AREA_BYTES), (1, 4, thin), (1, 6, thin), (1, 8, thin)], &[(1, 4), (1, 6), (1, 8)]);
    }

    #[test]
    fn a_cluster_that_is_too_large_is_gathered_piece_by_piece() {
        let thin = AREA_BYTES / 4;
        let areas = GATHERED_BYTES_MAX / thin;
        let bytes: Vec<_> = (0..areas + 10).map(|area| (1, area, thin)).collect();
        let first: Vec<_> = (0..areas).map(|area| (1, area)).collect();
        assert_eq!(check(&bytes, &first), GATHERED_BYTES_MAX + 10 * thin, "there is more");
        assert_eq!(check(&bytes[..usize::try_from(areas).unwrap()], &first), GATHERED_BYTES_MAX);
    }
}
