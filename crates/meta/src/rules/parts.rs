//! Parts of a file that writers asked for by range, and those that were granted. Pure.
//!
//! A writer that says which stripes it writes can have an exclusive lease on these alone, while others have
//! theirs on other stripes. That is so as long as all writers of the file say so and no two name the same
//! stripe. The record keeps the ranges asked for also while they are not granted, so that they can be granted
//! later, and after a restart.

use std::collections::BTreeSet;

use braid_layout::HolderId;
use braid_layout::version::Lease;
use braid_wire::control::ByteRange;
use braid_wire::{Reason, Refusal};

use crate::records::schema::{InodeRecord, PartRecord, SegmentRecord};
use crate::rules::grants::Stripes;
use crate::tree::names::show;

/// Maximum number of parts of a file. The file's record holds them all.
const PARTS_MAX: usize = 1024;

impl PartRecord {
    /// The record of a range that a holder asks for, not yet granted.
    pub fn asked(holder: HolderId, range: ByteRange) -> PartRecord {
        PartRecord { holder, lease: Lease(0), from: range.from, to: range.to }
    }

    pub fn range(&self) -> ByteRange {
        ByteRange { from: self.from, to: self.to }
    }
}

impl InodeRecord {
    /// Returns true if the file's writers have a lease each, on stripes of their own.
    pub fn is_parted(&self) -> bool {
        self.parts.iter().any(|part| part.lease != Lease(0))
    }

    /// The part of the file that the holder has a lease on.
    pub fn part_of(&self, holder: HolderId) -> Option<&PartRecord> {
        self.parts.iter().find(|part| part.holder == holder && part.lease != Lease(0))
    }

    /// The lease that the holder works under; `None` if the file is divided and no part is the holder's.
    pub fn lease_of(&self, holder: HolderId) -> Option<Lease> {
        if self.is_parted() { self.part_of(holder).map(|part| part.lease) } else { Some(self.lease) }
    }

    /// Returns true if a holder may write under this lease now.
    pub fn is_current(&self, lease: Lease) -> bool {
        match self.is_parted() {
            true => lease != Lease(0) && self.parts.iter().any(|part| part.lease == lease),
            false => self.lease == lease,
        }
    }

    /// All leases under which a holder may write now.
    pub fn current_leases(&self) -> BTreeSet<Lease> {
        if !self.is_parted() {
            return BTreeSet::from([self.lease]);
        }
        self.parts.iter().map(|part| part.lease).filter(|lease| *lease != Lease(0)).collect()
    }
}

/// Refuses a range that is not of whole stripes of the file.
pub fn check(inode: &InodeRecord, range: ByteRange) -> Result<(), Refusal> {
    let is_edge = |at: u64| {
        let of = inode.in_force().find(|segment| (segment.start..segment.end).contains(&at));
        of.is_some_and(|segment| (at - segment.start).is_multiple_of(stripe_bytes(segment)))
    };
    if range.from < range.to && is_edge(range.from) && (range.to == u64::MAX || is_edge(range.to)) {
        return Ok(());
    }
    let mut sizes: Vec<String> = inode.in_force().map(|s| stripe_bytes(s).to_string()).collect();
    sizes.dedup();
    let detail = format!(
        "bytes {}..{} of {:?} are not whole stripes: a stripe has {} bytes",
        range.from,
        range.to,
        show(&inode.name),
        sizes.join(" or "),
    );
    Err(Refusal::new(Reason::Range, detail))
}

/// Refuses one more writer by range if there are too many.
pub fn check_count(parts: &[PartRecord]) -> Result<(), Refusal> {
    if parts.len() <= PARTS_MAX {
        return Ok(());
    }
    let detail = format!("{PARTS_MAX} clients already write the file by range: write it without a range");
    Err(Refusal::new(Reason::Leased, detail))
}

/// The stripes of a segment that lie in the range.
pub fn stripes_in(segment: &SegmentRecord, range: ByteRange) -> Stripes {
    let from = range.from.max(segment.start);
    let to = range.to.min(segment.end);
    if from >= to {
        return (0, 0);
    }
    let bytes = stripe_bytes(segment);
    // Bytes past the end of the segment are in none of its stripes.
    let end = if to == segment.end { u64::MAX } else { (to - segment.start) / bytes };
    ((from - segment.start) / bytes, end)
}

/// The parts of these holders, if each has asked for one and no two overlap.
pub fn apart(parts: &[PartRecord], holders: &BTreeSet<HolderId>) -> Option<Vec<PartRecord>> {
    let mut theirs: Vec<PartRecord> =
        parts.iter().filter(|part| holders.contains(&part.holder)).cloned().collect();
    theirs.sort_by_key(|part| part.from);
    let meet = theirs.windows(2).any(|two| two[0].to > two[1].from);
    (!meet && !theirs.is_empty() && theirs.len() == holders.len()).then_some(theirs)
}

fn stripe_bytes(segment: &SegmentRecord) -> u64 {
    u64::from(segment.shape.k) * u64::from(segment.shape.unit_bytes)
}

#[cfg(test)]
mod tests {
    use braid_layout::{ColumnMask, ObjectId};
    use braid_wire::control::ShapeSpec;

    use super::*;

    fn segment(start: u64, end: u64) -> SegmentRecord {
        let shape = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 };
        let set = ColumnMask::all(3);
        let joining = ColumnMask::EMPTY;
        let object = ObjectId(1);
        let drives = Vec::new();
        SegmentRecord { number: 0, start, end, shape, object, drives, set, joining, filling: None }
    }

    fn range(from: u64, to: u64) -> ByteRange {
        ByteRange { from, to }
    }

    #[test]
    fn a_range_is_of_whole_stripes() {
        let root =
            crate::records::schema::directory_record(Default::default(), Default::default(), Vec::new(), 0);
        let inode = InodeRecord { segments: vec![segment(0, u64::MAX)], ..root };
        for good in [range(0, 8192), range(8192, 81920), range(16384, u64::MAX)] {
            check(&inode, good).unwrap();
        }
        for bad in [range(0, 0), range(8192, 0), range(1, 8192), range(0, 4096), range(4096, u64::MAX)] {
            let refusal = check(&inode, bad).unwrap_err();
            assert!(refusal.reason == Reason::Range && refusal.detail.contains("8192 bytes"), "{refusal}");
        }
    }

    #[test]
    fn stripes_are_counted_from_their_segment() {
        let first = segment(0, 16384);
        let last = segment(16384, u64::MAX);
        let of = |from, to| (stripes_in(&first, range(from, to)), stripes_in(&last, range(from, to)));
        assert_eq!(of(0, 8192), ((0, 1), (0, 0)));
        assert_eq!(of(8192, 24576), ((1, u64::MAX), (0, 1)));
        assert_eq!(of(24576, u64::MAX), ((0, 0), (1, u64::MAX)));
    }

    #[test]
    fn parts_are_apart_if_all_have_one_and_none_meet() {
        let part = |holder, from, to| PartRecord::asked(holder, range(from, to));
        let parts = [
            part(HolderId(1), 20, 30),
            part(HolderId(2), 0, 10),
            part(HolderId(3), 10, 20),
            part(HolderId(4), 25, u64::MAX),
        ];
        let these = |holders: &[u64]| {
            let found = apart(&parts, &holders.iter().copied().map(HolderId).collect());
            found.map(|parts| parts.iter().map(|part| part.holder.0).collect::<Vec<_>>())
        };
        assert_eq!(these(&[1, 2, 3]), Some(vec![2, 3, 1]));
        assert_eq!(these(&[1]), Some(vec![1]));
        assert_eq!(these(&[1, 4]), None, "they meet");
        assert_eq!(these(&[1, 5]), None, "one wants all");
        assert_eq!(these(&[]), None);
    }
}
