//! The content of one version of a unit: a sorted list of ranges, each a hole or a piece of a record's payload.
//!
//! Invariant: extents are non-empty, in order and do not overlap. What no extent covers was never written and reads as
//! zeros, just as a hole does; a hole is kept apart because its record must stay until nothing older lies beneath it.

use std::ops::Range;

/// Where a write's record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The segment.
    pub(crate) segment: u32,
    /// The log block of the record's header.
    pub(crate) block: u32,
    /// Log blocks of the header: the payload comes right after.
    pub(crate) header_blocks: u16,
    /// Versions in the cover: they stand between the fixed part and the checksums.
    pub(crate) cover_count: u8,
    /// First byte of the record's range in the unit.
    pub(crate) from: u32,
    /// One past its last.
    pub(crate) to: u32,
}

/// What an extent's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Zeros, by a record in this segment.
    Hole {
        /// The segment.
        segment: u32,
    },
    /// Part of a payload.
    Stored(Stored),
}

/// A range of a unit and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First byte.
    pub(crate) from: u32,
    /// One past the last.
    pub(crate) to: u32,
    /// What is there.
    pub(crate) source: Source,
}

impl Source {
    /// The segment of its record.
    pub(crate) fn segment(self) -> u32 {
        match self {
            Source::Hole { segment } => segment,
            Source::Stored(stored) => stored.segment,
        }
    }
}

impl Extent {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.to - self.from)
    }

    /// The part of it inside `range`, if any.
    pub(crate) fn clip(&self, range: &Range<u32>) -> Option<Extent> {
        let (from, to) = (self.from.max(range.start), self.to.min(range.end));
        (from < to).then_some(Extent { from, to, ..*self })
    }
}

/// `under` with `top` laid over it.
pub(crate) fn overlay(under: &[Extent], top: Extent) -> Vec<Extent> {
    let mut out: Vec<Extent> = under.iter().filter_map(|extent| extent.clip(&(0..top.from))).collect();
    out.push(top);
    out.extend(under.iter().filter_map(|extent| extent.clip(&(top.to..u32::MAX))));
    out
}

/// The extents' parts inside `range`.
pub(crate) fn clip(extents: &[Extent], range: &Range<u32>) -> Vec<Extent> {
    extents.iter().filter_map(|extent| extent.clip(range)).collect()
}

/// Stored bytes inside `range`.
pub(crate) fn stored_bytes(extents: &[Extent], range: &Range<u32>) -> u64 {
    let stored = |extent: &Extent| matches!(extent.source, Source::Stored(_));
    extents
        .iter()
        .filter(|extent| stored(extent))
        .filter_map(|extent| extent.clip(range))
        .map(|e| e.bytes())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hole(from: u32, to: u32, segment: u32) -> Extent {
        Extent { from, to, source: Source::Hole { segment } }
    }

    fn check(under: &[(u32, u32)], top: (u32, u32), expected: &[(u32, u32, u32)]) {
        let under: Vec<Extent> = under.iter().map(|&(from, to)| hole(from, to, 1)).collect();
        let expected: Vec<Extent> = expected.iter().map(|&(from, to, s)| hole(from, to, s)).collect();
        assert_eq!(overlay(&under, hole(top.0, top.1, 2)), expected);
    }

    #[test]
    fn overlays() {
        check(&[], (3, 5), &[(3, 5, 2)]);
        check(&[(0, 10)], (3, 5), &[(0, 3, 1), (3, 5, 2), (5, 10, 1)]);
        check(&[(0, 10)], (0, 10), &[(0, 10, 2)]);
        check(&[(0, 4), (6, 10)], (2, 8), &[(0, 2, 1), (2, 8, 2), (8, 10, 1)]);
        check(&[(0, 4), (6, 10)], (4, 6), &[(0, 4, 1), (4, 6, 2), (6, 10, 1)]);
        check(&[(4, 6)], (0, 2), &[(0, 2, 2), (4, 6, 1)]);
    }
}
