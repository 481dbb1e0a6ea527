//! The content of one version of a unit: a sorted list of ranges, each a hole or a piece of a record's
//! payload.
//!
//! Invariant: extents are non-empty, in order and do not overlap. Bytes outside all extents were never
//! written and read as zeros, as a hole does; a hole also records how far the unit was written.

use std::ops::Range;

use smallvec::SmallVec;

use crate::format::extent::{Extent, LogPosition};

/// A list with inline space for one item: most reads find one record, and so need no allocation.
pub(crate) type Few<T> = SmallVec<[T; 1]>;

impl Extent {
    /// Returns true if the extent is a hole: zeros without a payload.
    pub(crate) fn is_hole(&self) -> bool {
        self.block == 0
    }

    /// Length of the extent in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.to - self.from)
    }

    /// Payload bytes that the extent refers to; 0 for a hole.
    pub(crate) fn stored_bytes(&self) -> u64 {
        if self.is_hole() { 0 } else { self.bytes() }
    }

    /// The part of the extent inside `range`, if any.
    pub(crate) fn clip(&self, range: &Range<u32>) -> Option<Extent> {
        let from = self.from.max(range.start);
        let to = self.to.min(range.end);
        (from < to).then_some(Extent { from, to, ..*self })
    }
}

/// One past the last byte that is not in a hole; 0: there are only holes.
pub(crate) fn bytes_end(extents: &[Extent]) -> u32 {
    extents.iter().rfind(|extent| !extent.is_hole()).map_or(0, |last| last.to)
}

/// `under` with `top` laid over it. Adjacent extents of one record are merged.
pub(crate) fn overlay(under: &[Extent], top: Extent) -> Vec<Extent> {
    let before = under.iter().filter_map(|extent| extent.clip(&(0..top.from)));
    let after = under.iter().filter_map(|extent| extent.clip(&(top.to..u32::MAX)));
    let mut out = Vec::with_capacity(under.len() + 1);
    before.chain([top]).chain(after).for_each(|extent| push(&mut out, extent));
    out
}

/// Like [`overlay`], in place.
pub(crate) fn lay_over(under: &mut Few<Extent>, top: Extent) {
    let begins = under.first().is_none_or(|first| top.from <= first.from);
    if begins && under.last().is_none_or(|last| last.to <= top.to) {
        under.clear();
        under.push(top);
    } else {
        *under = overlay(under, top).into();
    }
}

/// Appends `extent`, or merges it into the last one if both are adjacent parts of one record.
fn push(extents: &mut Vec<Extent>, extent: Extent) {
    match extents.last_mut() {
        Some(last) if (last.to, last.segment, last.block) == (extent.from, extent.segment, extent.block) => {
            last.to = extent.to;
        }
        _ => extents.push(extent),
    }
}

/// `extents`, in which the parts that lie in `old` places now refer to the record at `new`. `old` is one
/// contiguous range of pieces, in order.
pub(crate) fn moved(extents: &[Extent], old: &[Extent], new: LogPosition) -> Vec<Extent> {
    let LogPosition { segment, block } = new;
    let mut out = Vec::with_capacity(extents.len());
    for extent in extents {
        let mut at = extent.from;
        let first = old.partition_point(|piece| piece.to <= extent.from);
        for piece in old[first..].iter().take_while(|piece| piece.from < extent.to) {
            if piece.position() != extent.position() {
                continue;
            }
            let Some(inner) = piece.clip(&(extent.from..extent.to)) else { continue };
            if at < inner.from {
                push(&mut out, Extent { from: at, to: inner.from, ..*extent });
            }
            push(&mut out, Extent { segment, block, ..inner });
            at = inner.to;
        }
        if at < extent.to {
            push(&mut out, Extent { from: at, ..*extent });
        }
    }
    out
}

/// The stored bytes of `extents`, each counted once, ordered by offset in the unit. Overlapping or adjacent
/// parts of one record are merged.
pub(crate) fn union(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.retain(|extent| !extent.is_hole());
    extents.sort_unstable_by_key(|extent| (extent.segment, extent.block, extent.from));
    let mut out: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        match out.last_mut() {
            Some(last)
                if (last.segment, last.block) == (extent.segment, extent.block) && last.to >= extent.from =>
            {
                last.to = last.to.max(extent.to);
            }
            _ => out.push(extent),
        }
    }
    out.sort_unstable_by_key(|extent| (extent.from, extent.to));
    out
}

/// The extents' parts inside `range`.
pub(crate) fn clip(extents: &[Extent], range: &Range<u32>) -> Vec<Extent> {
    extents.iter().filter_map(|extent| extent.clip(range)).collect()
}

/// Payload bytes inside `range`.
pub(crate) fn stored_bytes(extents: &[Extent], range: &Range<u32>) -> u64 {
    extents.iter().filter_map(|extent| extent.clip(range)).map(|extent| extent.stored_bytes()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hole(from: u32, to: u32, segment: u32) -> Extent {
        Extent { from, to, segment, block: 0 }
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

    #[test]
    fn neighbours_of_one_record_join() {
        let of = |from, to, block| Extent { from, to, segment: 1, block };
        assert_eq!(overlay(&[of(0, 4, 7), of(6, 10, 7)], of(4, 6, 7)), [of(0, 10, 7)]);
        assert_eq!(overlay(&[of(0, 4, 7), of(6, 10, 8)], of(4, 6, 7)), [of(0, 6, 7), of(6, 10, 8)]);
        assert_eq!(overlay(&[of(0, 3, 7)], of(4, 6, 7)), [of(0, 3, 7), of(4, 6, 7)]);
    }

    #[test]
    fn moves() {
        let of = |from, to, block| Extent { from, to, segment: 1, block };
        let new = |from, to| Extent { from, to, segment: 9, block: 5 };
        let check = |extents: &[Extent], old: &[Extent], expected: &[Extent]| {
            assert_eq!(moved(extents, old, LogPosition { segment: 9, block: 5 }), expected);
        };
        // Neighbours that were moved together are merged.
        check(&[of(0, 4, 7), of(4, 6, 8)], &[of(0, 4, 7), of(4, 6, 8)], &[new(0, 6)]);
        // Bytes that were overwritten since are not changed.
        check(&[of(0, 2, 7), of(2, 6, 8)], &[of(0, 6, 7)], &[new(0, 2), of(2, 6, 8)]);
        check(&[of(0, 6, 8)], &[of(0, 6, 7)], &[of(0, 6, 8)]);
        // Only the named pieces are moved.
        check(&[of(0, 6, 7)], &[of(2, 4, 7)], &[of(0, 2, 7), new(2, 4), of(4, 6, 7)]);
        check(
            &[of(0, 9, 7)],
            &[of(0, 2, 7), of(2, 3, 8), of(3, 4, 7)],
            &[new(0, 2), of(2, 3, 7), new(3, 4), of(4, 9, 7)],
        );
        check(&[of(4, 6, 7)], &[of(0, 4, 7)], &[of(4, 6, 7)]);
    }
}
