//! Keys whose state is unknown because a checkpoint page or records that may have described them are damaged.
//!
//! A key in such a range that is not in the index is damaged, not absent, until it is made anew or removed.

use std::collections::BTreeMap;

use braid_layout::{ObjectId, PartitionId};

use crate::format::LOG_BLOCK_U64;
use crate::format::entry::LostRange;
use crate::format::extent::LogPosition;
use crate::format::page::Key;
use crate::index::{Index, Object, Partition};

/// Keys whose state is unknown: records or a checkpoint page about them are damaged. A lookup in the range
/// that finds nothing fails with [`Error::Damaged`](crate::Error::Damaged) until the key is created again or
/// removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostKeys {
    /// The first key.
    pub from: Key,
    /// The first key after the range.
    pub to: Key,
    /// Description of the damage and of its place.
    pub what: String,
}

impl From<LostRange> for LostKeys {
    fn from(range: LostRange) -> LostKeys {
        let LostRange { from, to, checkpoint, segment, offset } = range;
        let what = if segment > 0 {
            format!("damaged: segment {segment}, offset {offset}: records are lost that may belong to these")
        } else {
            format!("damaged: checkpoint {checkpoint}, offset {offset}: the page that listed these is lost")
        };
        LostKeys { from, to, what }
    }
}

impl Index {
    /// Everything lost as a whole: first existing partitions whose values are lost, then ranges of keys.
    pub(crate) fn lost_keys(&self) -> impl Iterator<Item = LostKeys> {
        let values = self.without_values().map(|partition| LostKeys {
            from: Key::At(partition, None),
            to: Key::At(partition, None).next(),
            what: "damaged: its values may be older ones, so nothing of it is served".to_owned(),
        });
        values.chain(self.lost.within(Key::FIRST, Key::End).map(LostKeys::from))
    }

    /// Treats everything that is lost as a whole as absent from now on: ranges of keys, objects, and
    /// partitions that have lost their values, with the objects in them, of which nothing could be served.
    pub(crate) fn forget_lost(&mut self) {
        self.lost.forget(Key::FIRST, Key::End);
        let of = |(&partition, owner): (&PartitionId, &Partition)| {
            let is_lost = |object: &Object| !owner.known || object.lost.is_some() || !object.known;
            let lost = owner.objects.iter().filter(|(_, object)| is_lost(object));
            lost.map(|(&object, _)| (partition, object)).collect::<Vec<_>>()
        };
        let lost: Vec<(PartitionId, ObjectId)> = self.partitions.iter().flat_map(of).collect();
        lost.into_iter().for_each(|(partition, object)| drop(self.drop_object(partition, object)));
        self.partitions.retain(|_, partition| partition.known);
    }

    /// Number of items of [`Index::lost_keys`].
    pub(crate) fn lost_count(&self) -> u64 {
        u64::try_from(self.without_values().count() + self.lost.len()).unwrap_or(u64::MAX)
    }

    /// Existing partitions whose values are lost, except those that have a lost range of just that key.
    fn without_values(&self) -> impl Iterator<Item = PartitionId> {
        let told = |itself: Key| {
            let range = self.lost.find(itself);
            range.is_some_and(|range| (range.from, range.to) == (itself, itself.next()))
        };
        let unknown = self.partitions.iter().filter(|(_, partition)| !partition.known);
        unknown.map(|(&number, _)| number).filter(move |&number| !told(Key::At(number, None)))
    }
}

impl LostRange {
    /// Position of the damage, as objects store it.
    pub(crate) fn place(&self) -> LogPosition {
        let block = u32::try_from(self.offset / LOG_BLOCK_U64).unwrap_or(u32::MAX);
        LogPosition { segment: self.segment, block }
    }
}

/// Lost ranges, which do not overlap, by their first key.
#[derive(Debug, Default)]
pub(crate) struct Lost(BTreeMap<Key, LostRange>);

impl Lost {
    /// Adds a range. Parts of it that are lost already are left as they are.
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

    /// Removes the keys from `from` up to `to`: they are known now.
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

    /// Number of lost ranges.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The range that contains `key`.
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
    use braid_layout::ObjectId;

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
