//! Keys of which nothing is known: what a damaged page of a checkpoint, or lost records, may have said of them.
//!
//! What is in such a range and not in the index is damaged, not absent, until it is made anew or removed.

use std::collections::BTreeMap;

use super::unit::Place;
use crate::format::LOG_BLOCK_U64;
use crate::format::entry::LostRange;
use crate::format::page::Key;

impl LostRange {
    /// Where the damage is, as an object tells it.
    pub(crate) fn place(&self) -> Place {
        let block = u32::try_from(self.offset / LOG_BLOCK_U64).unwrap_or(u32::MAX);
        Place { segment: self.segment, block }
    }
}

/// Ranges that do not overlap, by their first key.
#[derive(Debug, Default)]
pub(crate) struct Lost(BTreeMap<Key, LostRange>);

impl Lost {
    /// Add a range. What is in it already stays as it is.
    pub(crate) fn add(&mut self, range: LostRange) {
        let mut from = range.from;
        let known: Vec<LostRange> = self.within(range.from, range.to).collect();
        for part in known {
            if from < part.from {
                self.0.insert(from, LostRange { from, to: part.from, ..range });
            }
            from = part.to;
        }
        if from < range.to {
            self.0.insert(from, LostRange { from, ..range });
        }
    }

    /// The keys from `from` up to `to` are known now.
    pub(crate) fn forget(&mut self, from: Key, to: Key) {
        if self.0.is_empty() {
            return;
        }
        let first = self.0.range(..=from).next_back().map_or(from, |(&first, _)| first);
        let hit: Vec<LostRange> = self.0.range(first..to).map(|(_, &range)| range).collect();
        for range in hit.into_iter().filter(|range| range.to > from) {
            self.0.remove(&range.from);
            if range.from < from {
                self.0.insert(range.from, LostRange { to: from, ..range });
            }
            if to < range.to {
                self.0.insert(to, LostRange { from: to, ..range });
            }
        }
    }

    /// The range that `key` is in.
    pub(crate) fn find(&self, key: Key) -> Option<&LostRange> {
        self.0.range(..=key).next_back().map(|(_, range)| range).filter(|range| key < range.to)
    }

    /// The parts of ranges inside `from..to`, in order.
    pub(crate) fn within(&self, from: Key, to: Key) -> impl Iterator<Item = LostRange> {
        let first = self.0.range(..=from).next_back().map_or(from, |(&first, _)| first);
        let clip =
            move |range: &LostRange| LostRange { from: range.from.max(from), to: range.to.min(to), ..*range };
        let range = if first < to { first..to } else { to..to };
        self.0.range(range).map(move |(_, range)| clip(range)).filter(|range| range.from < range.to)
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::{ObjectId, PartitionId};

    use super::*;

    fn key(object: u64) -> Key {
        Key::At(PartitionId(1), Some(ObjectId(object)))
    }

    fn range(from: u64, to: u64, offset: u64) -> LostRange {
        LostRange { from: key(from), to: key(to), checkpoint: 1, segment: 0, offset }
    }

    #[test]
    fn ranges_are_added_and_forgotten_in_parts() {
        let mut lost = Lost::default();
        lost.add(range(10, 20, 1));
        lost.add(range(5, 30, 2));
        let all = |lost: &Lost| lost.within(Key::FIRST, Key::End).collect::<Vec<_>>();
        assert_eq!(all(&lost), [range(5, 10, 2), range(10, 20, 1), range(20, 30, 2)]);
        lost.forget(key(12), key(13));
        lost.forget(key(18), key(25));
        assert_eq!(all(&lost), [range(5, 10, 2), range(10, 12, 1), range(13, 18, 1), range(25, 30, 2)]);
        assert!(lost.find(key(12)).is_none() && lost.find(key(30)).is_none() && lost.find(key(4)).is_none());
        assert_eq!(lost.find(key(13)).map(|range| range.offset), Some(1));
        assert_eq!(lost.within(key(11), key(14)).collect::<Vec<_>>(), [range(11, 12, 1), range(13, 14, 1)]);
        assert_eq!(lost.within(key(14), key(14)).count(), 0);
        lost.forget(Key::FIRST, Key::End);
        assert_eq!(all(&lost), []);
    }
}
