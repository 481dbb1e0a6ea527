//! Ranges of bytes within a unit: differences, unions and splits.

use std::ops::Range;

/// The bytes that lie in both ranges.
pub(super) fn and(a: &Range<u32>, b: &Range<u32>) -> Range<u32> {
    let from = a.start.max(b.start);
    from..a.end.min(b.end).max(from)
}

/// Returns true if `outer` holds all of `inner`.
pub(super) fn holds(outer: &Range<u32>, inner: &Range<u32>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// The bytes of `range` that lie in none of `others`, as disjoint ranges in order.
pub(super) fn minus<'a>(range: &Range<u32>, others: impl Iterator<Item = &'a Range<u32>>) -> Vec<Range<u32>> {
    let mut left = if range.is_empty() { Vec::new() } else { vec![range.clone()] };
    for other in others {
        left = left
            .into_iter()
            .flat_map(|part| [part.start..part.end.min(other.start), part.start.max(other.end)..part.end])
            .filter(|part| !part.is_empty())
            .collect();
    }
    left.sort_unstable_by_key(|part| part.start);
    left
}

/// The bytes that lie in any of `ranges`, as disjoint ranges in order that do not touch.
pub(super) fn union(ranges: impl Iterator<Item = Range<u32>>) -> Vec<Range<u32>> {
    let mut sorted: Vec<Range<u32>> = ranges.filter(|range| !range.is_empty()).collect();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u32>> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// `range`, split wherever one of `ranges` begins or ends inside it.
pub(super) fn cut<'a>(range: &Range<u32>, ranges: impl Iterator<Item = &'a Range<u32>>) -> Vec<Range<u32>> {
    let mut points = vec![range.start, range.end];
    points.extend(ranges.flat_map(|other| [other.start, other.end]).filter(|point| range.contains(point)));
    points.sort_unstable();
    points.dedup();
    points.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// Number of bytes in disjoint ranges.
pub(super) fn total(ranges: &[Range<u32>]) -> u64 {
    ranges.iter().map(|range| u64::from(range.end - range.start)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case<'a> = (Range<u32>, &'a [Range<u32>], &'a [Range<u32>]);

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one range")]
    fn minus_leaves_what_no_other_holds() {
        let cases: &[Case<'_>] = &[
            (0..10, &[], &[0..10]),
            (0..10, &[3..5], &[0..3, 5..10]),
            (0..10, &[0..4, 8..12], &[4..8]),
            (0..10, &[0..10], &[]),
            (0..10, &[20..30], &[0..10]),
            (4..4, &[], &[]),
        ];
        for (range, others, left) in cases {
            assert_eq!(&minus(range, others.iter()), left, "{range:?} minus {others:?}");
        }
    }

    #[test]
    fn union_and_cut_agree_on_bytes() {
        assert_eq!(union([5..7, 0..2, 1..5, 9..9, 11..12].into_iter()), vec![0..7, 11..12]);
        assert_eq!(union([5..7, 0..2].into_iter()), vec![0..2, 5..7]);
        assert_eq!(cut(&(0..10), [2..4, 4..20].iter()), vec![0..2, 2..4, 4..10]);
        assert_eq!(total(&[0..2, 5..7]), 4);
    }
}
