//! Finds the live bytes of a segment and groups them for moving.
//!
//! The segment's headers tell which units it has bytes of; the index tells which of them are live. The live
//! pieces of a unit form *runs* without gaps, each moved as one record. Small neighbours in other segments
//! join their run, so that extents that small writes had cut up merge again.

use std::collections::BTreeSet;

use braid_layout::{ObjectId, PartitionId};

use super::victim::Candidate;
use crate::error::Error;
use crate::files::Files;
use crate::format::body::PIECES_MAX;
use crate::format::extent::{Extent, LogPosition};
use crate::format::record::{FIXED_BYTES, PAGE_BYTES, PAGED_BYTES_MIN, Record, flags};
use crate::format::subject::{self, TOGETHER_MAX};
use crate::format::{LOG_BLOCK, LOG_BLOCK_U64, padded_u64};
use crate::index::Index;
use crate::index::extent::union;
use crate::index::locked::Locked;
use crate::index::unit::Unit;
use crate::segments::scan::{Scanned, Scanner};

/// Live neighbours from other segments are moved along up to this part of the run's other bytes: they cost
/// space now, and free it only when their own segments are cleaned.
const JOIN_PART: u64 = 4;
/// The most bytes of a run, except for a single larger piece.
const RUN_BYTES_MAX: u64 = 1 << 20;

/// Treatment of the small neighbours that a run has in other segments: they join it or stay where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    Join,
    Stay,
}

/// The owner of moved bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) partition: PartitionId,
    pub(crate) object: ObjectId,
    pub(crate) birth: u64,
    pub(crate) unit: u64,
}

/// Bytes of a unit to move together: pieces in order, each beginning where the previous one ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MoveRun {
    pub(crate) owner: Owner,
    pub(crate) pieces: Vec<Extent>,
}

/// A segment's contents.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// The owners of its records, each once, in order, so that runs of one object are moved together.
    pub(crate) owners: BTreeSet<Owner>,
    /// Ranges of the file that hold no whole record: damage.
    pub(crate) bad: Vec<std::ops::Range<u64>>,
}

/// Read the headers of `segment`, up to its end: a failed write may have left bytes behind it.
pub(crate) fn scan(files: &Files, segment: &Candidate, salt: u64) -> Result<Contents, Error> {
    let file = files.get(segment.number)?;
    let length = file.length().map_err(|error| Error::io("look at a segment", error))?;
    let mut scanner = Scanner::new(&**file, length.min(segment.bytes), segment.number, salt);
    let mut contents = Contents::default();
    while let Some(found) = scanner.next()? {
        match found {
            Scanned::Record { record, whole, .. } => {
                if record.kind.has_range() && !record.is(flags::HOLE) {
                    contents.owners.insert(owner(&record));
                }
                if !whole {
                    let from = u64::from(record.block) * LOG_BLOCK_U64;
                    contents.bad.push(from..from + record.disk_bytes());
                }
            }
            Scanned::Bad { from, to, .. } => contents.bad.push(from..to),
        }
    }
    Ok(contents)
}

fn owner(record: &Record) -> Owner {
    let Record { partition, object, birth, unit, .. } = *record;
    Owner { partition, object, birth, unit }
}

/// The order in which to move the owners' bytes: objects of one cluster end up together, and in it the bytes
/// of one object.
pub(crate) fn in_order(index: &Locked, owners: &BTreeSet<Owner>) -> Vec<Owner> {
    let index = index.read();
    let cluster = |owner: &Owner| {
        let object =
            index.partitions.get(&owner.partition).and_then(|found| found.objects.get(&owner.object));
        object.map_or(0, |object| object.attributes.cluster())
    };
    let mut ordered: Vec<Owner> = owners.iter().copied().collect();
    ordered.sort_by_cached_key(|owner| (owner.partition, cluster(owner), *owner));
    ordered
}

/// The runs that move the bytes of `owner` in `segments`.
pub(crate) fn runs(index: &Locked, owner: Owner, segments: &BTreeSet<u32>, others: Others) -> Vec<MoveRun> {
    let index = index.read();
    let object = index.partitions.get(&owner.partition).and_then(|found| found.objects.get(&owner.object));
    let Some(object) = object.filter(|object| object.birth == owner.birth) else { return Vec::new() };
    let Some(slot) = object.units.get(owner.unit) else { return Vec::new() };
    let mut extents = extents(&slot.unit());
    // Bytes in damaged segments cannot be moved along.
    let whole = |extent: &Extent| index.segments.all.get(&extent.segment).is_some_and(|found| !found.damaged);
    extents.retain(|extent| segments.contains(&extent.segment) || (others == Others::Join && whole(extent)));
    drop(index);
    join(owner, &extents, segments)
}

/// The stored bytes that a unit refers to, each once, in the unit's order.
pub(crate) fn extents(unit: &Unit) -> Vec<Extent> {
    union(unit.pins().into_vec())
}

/// Group the `extents` in `segments` into runs, with small neighbours in other segments.
fn join(owner: Owner, extents: &[Extent], segments: &BTreeSet<u32>) -> Vec<MoveRun> {
    let mut runs: Vec<MoveRun> = Vec::new();
    let mut taken = vec![false; extents.len()];
    for first in 0..extents.len() {
        if taken[first] || !segments.contains(&extents[first].segment) {
            continue;
        }
        let mut pieces = Vec::new();
        let mut next = Some(first);
        let mut bytes = 0;
        let mut foreign = 0;
        while let Some(piece) = next {
            taken[piece] = true;
            pieces.push(extents[piece]);
            bytes += extents[piece].bytes();
            foreign += if segments.contains(&extents[piece].segment) { 0 } else { extents[piece].bytes() };
            let end = extents[piece].to;
            let joins = |extent: &Extent| {
                let own = segments.contains(&extent.segment);
                bytes + extent.bytes() <= RUN_BYTES_MAX
                    && (own || (foreign + extent.bytes()) * JOIN_PART <= bytes - foreign)
            };
            // Several extents may begin here, as a unit's versions overlap.
            let from = extents.partition_point(|extent| extent.from < end);
            next = (from..extents.len())
                .take_while(|&next| extents[next].from == end && pieces.len() < PIECES_MAX)
                .find(|&next| !taken[next] && joins(&extents[next]));
        }
        runs.push(MoveRun { owner, pieces });
    }
    runs
}

impl MoveRun {
    pub(crate) fn from(&self) -> u32 {
        self.pieces.first().map_or(0, |piece| piece.from)
    }

    pub(crate) fn to(&self) -> u32 {
        self.pieces.last().map_or(0, |piece| piece.to)
    }

    /// Bytes of its payload.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.to() - self.from())
    }

    /// Roughly the bytes that its record takes on the disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        disk_bytes(self.bytes(), self.pieces.len())
    }

    /// Returns true if at least one piece of the run is still in its place.
    pub(crate) fn is_there(&self, index: &Index) -> bool {
        let object = index
            .partitions
            .get(&self.owner.partition)
            .and_then(|found| found.objects.get(&self.owner.object));
        let slot = object
            .filter(|object| object.birth == self.owner.birth)
            .and_then(|object| object.units.get(self.owner.unit));
        let Some(slot) = slot else { return false };
        let unit = slot.unit();
        unit.pins().iter().any(|pin| self.pieces.iter().any(|piece| same_bytes(pin, piece)))
    }
}

/// Roughly the bytes that the record of a move takes on the disk, with a payload of `bytes` in so many
/// pieces.
pub(crate) fn disk_bytes(bytes: u64, pieces: usize) -> u64 {
    let pieces = u64::try_from(pieces).unwrap_or(u64::MAX);
    // A checksum for each block, also where pieces meet inside one, and the subjects of the preceding records
    // if several share a page.
    let before = if bytes < 4096 { (TOGETHER_MAX - 1) * subject::BYTES } else { 0 };
    let fixed = u64::try_from(FIXED_BYTES + before).expect("small");
    let header = fixed + 16 * pieces + 4 * (bytes / 4096 + 2);
    // A long payload begins at a page.
    let slack = if bytes >= u64::from(PAGED_BYTES_MIN) { PAGE_BYTES - LOG_BLOCK } else { 0 };
    padded_u64(header) + u64::try_from(slack).expect("a page") + padded_u64(bytes)
}

fn same_bytes(a: &Extent, b: &Extent) -> bool {
    (a.segment, a.block) == (b.segment, b.block) && a.from < b.to && b.from < a.to
}

/// The units that refer to bytes of `segment` in `range` of its file. For damage: it walks the whole index.
pub(crate) fn referring(
    index: &Index,
    segment: u32,
    range: &std::ops::Range<u64>,
) -> Vec<(Owner, LogPosition)> {
    let mut out = Vec::new();
    for (&partition, found) in &index.partitions {
        for (&object, found) in &found.objects {
            for (unit, slot) in found.units.iter() {
                let inside = |pin: &Extent| {
                    pin.segment == segment
                        && !pin.is_hole()
                        && range.contains(&(u64::from(pin.block) * LOG_BLOCK_U64))
                };
                if let Some(pin) = slot.unit().pins().into_iter().find(inside) {
                    let owner = Owner { partition, object, birth: found.birth, unit };
                    out.push((owner, LogPosition { segment, block: pin.block }));
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Object;
    use crate::mutation::Attributes;

    const OWNER: Owner = Owner { partition: PartitionId(1), object: ObjectId(2), birth: 3, unit: 4 };

    fn of(from: u32, to: u32, segment: u32, block: u32) -> Extent {
        Extent { from, to, segment, block }
    }

    fn check(extents: &[Extent], expected: &[&[Extent]]) {
        let runs = join(OWNER, extents, &BTreeSet::from([1]));
        let pieces: Vec<&[Extent]> = runs.iter().map(|run| &run.pieces[..]).collect();
        assert_eq!(pieces, expected);
    }

    #[test]
    fn neighbours_become_one_run() {
        let a = of(0, 4096, 1, 1);
        let b = of(4096, 5000, 1, 9);
        let c = of(6000, 7000, 1, 20);
        check(&[a, b, c], &[&[a, b], &[c]]);
    }

    #[test]
    fn a_small_neighbour_comes_along() {
        let own = of(0, 8192, 1, 1);
        let small = of(8192, 9000, 2, 1);
        let large = of(8192, 12_000, 2, 1);
        check(&[own, small], &[&[own, small]]);
        check(&[own, small, of(9000, 9100, 1, 90)], &[&[own, small, of(9000, 9100, 1, 90)]]);
        check(&[own, large], &[&[own]]);
        check(&[of(0, 100, 2, 1), of(100, 8192, 1, 1)], &[&[of(100, 8192, 1, 1)]]);
        check(&[small], &[]);
    }

    #[test]
    fn versions_that_overlap_have_runs_of_their_own() {
        let old = of(0, 4096, 1, 1);
        let new = of(0, 4096, 1, 9);
        check(&[old, new], &[&[old], &[new]]);
        let old = of(0, 8192, 1, 1);
        let left = of(0, 4096, 1, 30);
        let right = of(4096, 8192, 1, 40);
        check(&[left, old, right], &[&[left, right], &[old]]);
    }

    #[test]
    fn what_is_of_one_cluster_is_moved_together() {
        let mut index = Index::default();
        let owner = |object, unit| Owner { object: ObjectId(object), unit, ..OWNER };
        for (object, cluster) in [(1, 9), (2, 0), (3, 9), (4, 5), (5, 0)] {
            let mut found = Object::unknown(OWNER.birth);
            found.attributes = Attributes { cluster, ..Attributes::default() }.packed();
            let partition = index.partitions.entry(OWNER.partition).or_default();
            partition.objects.insert(ObjectId(object), Box::new(found));
        }
        let owners: BTreeSet<Owner> =
            (1..7).flat_map(|object| [owner(object, 8), owner(object, 7)]).collect();
        let ordered = in_order(&Locked::new(index), &owners);
        let expected = [2, 5, 6, 4, 1, 3].into_iter().flat_map(|object| [owner(object, 7), owner(object, 8)]);
        assert_eq!(ordered, expected.collect::<Vec<_>>());
    }

    #[test]
    fn a_run_is_bounded() {
        let megabyte = 1 << 20;
        let a = of(0, megabyte, 1, 1);
        let b = of(megabyte, 2 * megabyte, 1, 5000);
        check(&[a, b], &[&[a], &[b]]);
        let large = of(0, 8 * megabyte, 1, 1);
        check(&[large], &[&[large]]);
    }
}
