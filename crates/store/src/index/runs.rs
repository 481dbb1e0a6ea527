//! A set of numbers that are mostly added in order, stored as runs of consecutive numbers.

use std::collections::BTreeMap;

/// The last number of each run, by its first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs(BTreeMap<u64, u64>);

impl Runs {
    /// Returns true if one run has all numbers from `first` to `last`.
    pub(crate) fn contains_run(&self, first: u64, last: u64) -> bool {
        self.0.range(..=first).next_back().is_some_and(|(_, &end)| last <= end)
    }

    /// Adds the numbers from `first` to `last`.
    pub(crate) fn add(&mut self, mut first: u64, mut last: u64) {
        // Every run that this one overlaps or adjoins becomes a part of it.
        while let Some((&before, &end)) = self.0.range(..=last.saturating_add(1)).next_back()
            && end.saturating_add(1) >= first
        {
            self.0.remove(&before);
            (first, last) = (first.min(before), last.max(end));
        }
        self.0.insert(first, last);
    }

    /// Number of runs.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if one of the numbers from `first` to `last` is in a run or next to one: adding them then
    /// makes no new run.
    pub(crate) fn touches(&self, first: u64, last: u64) -> bool {
        let before = self.0.range(..=last.saturating_add(1)).next_back();
        before.is_some_and(|(_, &end)| end.saturating_add(1) >= first)
    }

    /// The runs, in order: first and last of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(&first, &last)| (first, last))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(u64, u64)> for Runs {
    /// The set of these runs, which are in order with a gap between any two.
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(runs: T) -> Runs {
        Runs(runs.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join() {
        let mut runs = Runs::default();
        for number in [5, 3, 7, 4, 4, 0, u64::MAX, 6, u64::MAX - 1] {
            runs.add(number, number);
        }
        assert_eq!(runs.iter().collect::<Vec<_>>(), [(0, 0), (3, 7), (u64::MAX - 1, u64::MAX)]);
        let held = [0, 3, 5, 7, u64::MAX];
        assert!(held.into_iter().all(|number| runs.contains_run(number, number)));
        assert_eq!(runs.len(), 3);
        assert!([0, 1, 2, 5, 8, u64::MAX - 2].into_iter().all(|number| runs.touches(number, number)));
        assert!(![9, u64::MAX - 3].into_iter().any(|number| runs.touches(number, number)));
        assert!(![1, 2, 8, u64::MAX - 2].into_iter().any(|number| runs.contains_run(number, number)));
        assert_eq!(runs.iter().collect::<Runs>(), runs);
    }

    #[test]
    fn a_run_takes_in_all_that_it_meets() {
        let check = |first, last, expected: &[(u64, u64)]| {
            let mut runs: Runs = [(2, 4), (8, 9), (20, 30)].into_iter().collect();
            let touches = runs.touches(first, last);
            let held = runs.contains_run(first, last);
            runs.add(first, last);
            assert_eq!(runs.iter().collect::<Vec<_>>(), expected, "{first} to {last}");
            assert_eq!(touches, expected.len() <= 3, "{first} to {last}");
            assert_eq!(held, expected == [(2, 4), (8, 9), (20, 30)], "{first} to {last}");
            assert!(runs.contains_run(first, last));
        };
        check(0, 0, &[(0, 0), (2, 4), (8, 9), (20, 30)]);
        check(0, 1, &[(0, 4), (8, 9), (20, 30)]);
        check(3, 4, &[(2, 4), (8, 9), (20, 30)]);
        check(3, 7, &[(2, 9), (20, 30)]);
        check(6, 6, &[(2, 4), (6, 6), (8, 9), (20, 30)]);
        check(0, u64::MAX, &[(0, u64::MAX)]);
        check(22, 25, &[(2, 4), (8, 9), (20, 30)]);
        check(32, u64::MAX, &[(2, 4), (8, 9), (20, 30), (32, u64::MAX)]);
        check(10, 18, &[(2, 4), (8, 18), (20, 30)]);
        check(10, 19, &[(2, 4), (8, 30)]);
    }
}
