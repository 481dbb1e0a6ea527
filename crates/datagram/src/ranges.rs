//! A set of numbers as a sorted list of ranges.

use std::ops::Range;

/// A set of numbers. Its ranges are not empty, and do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of ranges.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let at = self.0.partition_point(|range| range.end <= number);
        self.0.get(at).is_some_and(|range| range.start <= number)
    }

    /// The ranges, lowest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Range<u64>> {
        self.0.iter()
    }

    /// The lowest range.
    pub(crate) fn first(&self) -> Option<&Range<u64>> {
        self.0.first()
    }

    /// Takes the lowest range out.
    pub(crate) fn pop_first(&mut self) -> Option<Range<u64>> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // Those that touch the new one become part of it.
        let begin = self.0.partition_point(|other| other.end < range.start);
        let end = self.0.partition_point(|other| other.start <= range.end);
        if begin == end {
            self.0.insert(begin, range);
            return;
        }
        let start = self.0[begin].start.min(range.start);
        let stop = self.0[end - 1].end.max(range.end);
        self.0[begin] = start..stop;
        self.0.drain(begin + 1..end);
    }

    pub(crate) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let begin = self.0.partition_point(|other| other.end <= range.start);
        let end = self.0.partition_point(|other| other.start < range.end);
        if begin >= end {
            return;
        }
        let before = self.0[begin].start..range.start;
        let after = range.end..self.0[end - 1].end;
        self.0.splice(begin..end, [before, after].into_iter().filter(|range| !range.is_empty()));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_a_set(steps in prop::collection::vec((any::<bool>(), 0..60u64, 0..20u64), 0..60)) {
            let mut ranges = Ranges::default();
            let mut model = BTreeSet::new();
            for (inserts, start, length) in steps {
                let range = start..start + length;
                if inserts {
                    model.extend(range.clone());
                    ranges.insert(range);
                } else {
                    range.clone().for_each(|number| { model.remove(&number); });
                    ranges.remove(range);
                }
                let all: Vec<u64> = ranges.iter().cloned().flatten().collect();
                prop_assert_eq!(&all, &model.iter().copied().collect::<Vec<_>>());
                prop_assert!(ranges.0.windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert!((0..100).all(|number| ranges.contains(number) == model.contains(&number)));
            }
        }
    }
}
