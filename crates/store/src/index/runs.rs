//! A set of numbers that are mostly added in order, stored as runs of consecutive numbers.

use std::collections::BTreeMap;

/// The last number of each run, by its first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs(BTreeMap<u64, u64>);

impl Runs {
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, &last)| number <= last)
    }

    pub(crate) fn add(&mut self, number: u64) {
        if self.contains(number) {
            return;
        }
        let (mut first, mut last) = (number, number);
        if let Some((&before, &end)) = self.0.range(..number).next_back()
            && end.checked_add(1) == Some(number)
        {
            first = before;
        }
        if let Some(end) = number.checked_add(1).and_then(|next| self.0.remove(&next)) {
            last = end;
        }
        self.0.insert(first, last);
    }

    /// How many runs there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether `number` is in a run or next to one: adding it then makes no new run.
    pub(crate) fn touches(&self, number: u64) -> bool {
        let neighbours = [Some(number), number.checked_sub(1), number.checked_add(1)];
        neighbours.into_iter().flatten().any(|number| self.contains(number))
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
    /// From runs in order, with a gap between any two.
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
            runs.add(number);
        }
        assert_eq!(runs.iter().collect::<Vec<_>>(), [(0, 0), (3, 7), (u64::MAX - 1, u64::MAX)]);
        let held = [0, 3, 5, 7, u64::MAX];
        assert!(held.into_iter().all(|number| runs.contains(number)));
        assert_eq!(runs.len(), 3);
        assert!([0, 1, 2, 5, 8, u64::MAX - 2].into_iter().all(|number| runs.touches(number)));
        assert!(![9, u64::MAX - 3].into_iter().any(|number| runs.touches(number)));
        assert!(![1, 2, 8, u64::MAX - 2].into_iter().any(|number| runs.contains(number)));
        assert_eq!(runs.iter().collect::<Runs>(), runs);
    }
}
