//! A sorted map in pages: dense where keys are appended, small where there are few.
//!
//! A B-tree of single entries is half empty after appends, and a node for one entry has room for eleven. Here up to
//! [`PAGE_LEN`] entries are one sorted list, which a map of one page owns without anything else. A full page at the end stays
//! full; one in the middle is split in half, and a page that shrank to a quarter joins its neighbour ([`super::pages`]).

use std::ops::Range;

use super::pages::{Key, PAGE_LEN, Page, Pages, find, grow};

/// The map.
#[derive(Debug, PartialEq)]
pub(crate) enum PagedMap<K, V> {
    /// At most one page.
    One(Page<K, V>),
    /// More.
    Many(Box<Pages<K, V>>),
}

/// Keys to append are not in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfOrder;

impl<K, V> Default for PagedMap<K, V> {
    fn default() -> Self {
        PagedMap::One(Vec::new())
    }
}

impl<K: Key, V> PagedMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        match self {
            PagedMap::One(page) => page.len(),
            PagedMap::Many(pages) => pages.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, PagedMap::One(page) if page.is_empty())
    }

    /// The first entry's key.
    pub(crate) fn first_key(&self) -> Option<K> {
        match self {
            PagedMap::One(page) => page.first().map(|(key, _)| *key),
            PagedMap::Many(pages) => pages.iter().next()?.first().map(|(key, _)| *key),
        }
    }

    /// Keep no room for more entries, where one page is all.
    pub(crate) fn trim(&mut self) {
        if let PagedMap::One(page) = self {
            page.shrink_to_fit();
        }
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        match self {
            PagedMap::One(page) => find(page, key).ok().map(|at| &page[at].1),
            PagedMap::Many(pages) => pages.get(key),
        }
    }

    /// The entries with keys in `range`, in order.
    pub(crate) fn range(&self, range: Range<K>) -> impl DoubleEndedIterator<Item = (K, &V)> {
        let range = if range.start < range.end { range } else { range.end..range.end };
        let (one, many) = match self {
            PagedMap::One(page) => (Some(page), None),
            PagedMap::Many(pages) => (None, Some(pages.between(range.start, Some(range.end)))),
        };
        let pages = one.into_iter().chain(many.into_iter().flatten());
        pages.flat_map(move |page| inside(page, &range)).map(|(key, value)| (*key, value))
    }

    /// The entries with keys from `first` on, in order.
    pub(crate) fn from(&self, first: K) -> impl Iterator<Item = (K, &V)> {
        let (one, many) = match self {
            PagedMap::One(page) => (Some(page), None),
            PagedMap::Many(pages) => (None, Some(pages.between(first, None))),
        };
        let pages = one.into_iter().chain(many.into_iter().flatten());
        pages.flatten().map(|(key, value)| (*key, value)).skip_while(move |(key, _)| *key < first)
    }

    /// All entries, in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &V)> {
        let (one, many) = match self {
            PagedMap::One(page) => (Some(page), None),
            PagedMap::Many(pages) => (None, Some(pages.iter())),
        };
        let pages = one.into_iter().chain(many.into_iter().flatten());
        pages.flatten().map(|(key, value)| (*key, value))
    }

    /// Append entries with keys above all that are there, in order; an error at the first that is not.
    pub(crate) fn append_sorted(
        &mut self,
        entries: impl ExactSizeIterator<Item = (K, V)>,
    ) -> Result<(), OutOfOrder> {
        if let PagedMap::One(page) = self {
            page.reserve_exact(entries.len().min(PAGE_LEN - page.len()));
        }
        for (key, value) in entries {
            let page = match self {
                PagedMap::One(page) => Some(&*page),
                PagedMap::Many(pages) => pages.last(),
            };
            if page.and_then(|page| page.last()).is_some_and(|(last, _)| *last >= key) {
                return Err(OutOfOrder);
            }
            match self {
                PagedMap::One(page) => {
                    let at = page.len();
                    self.insert(at, (key, value));
                }
                PagedMap::Many(pages) => pages.push((key, value)),
            }
        }
        Ok(())
    }

    /// Change the value of `key`, a default one if there is none. It stays if `change` says so.
    pub(crate) fn update(&mut self, key: K, change: impl FnOnce(&mut V) -> bool)
    where
        V: Default,
    {
        let page = match self {
            PagedMap::One(page) => page,
            PagedMap::Many(pages) => {
                pages.update(key, change);
                if let Some(page) = pages.only() {
                    *self = PagedMap::One(std::mem::take(page));
                }
                return;
            }
        };
        match find(page, key) {
            Ok(at) => {
                if !change(&mut page[at].1) {
                    page.remove(at);
                    if page.capacity() > 2 * page.len() + 8 {
                        page.shrink_to_fit();
                    }
                }
            }
            Err(at) => {
                let mut value = V::default();
                if change(&mut value) {
                    self.insert(at, (key, value));
                }
            }
        }
    }

    /// Put an entry in its place, where there is one page only.
    fn insert(&mut self, at: usize, entry: (K, V)) {
        let PagedMap::One(page) = self else { return };
        if page.len() < PAGE_LEN {
            grow(page, PAGE_LEN);
            page.insert(at, entry);
            return;
        }
        *self = PagedMap::Many(Box::new(Pages::new(std::mem::take(page), at, entry)));
    }
}

fn inside<'a, K: Key, V>(page: &'a [(K, V)], range: &Range<K>) -> &'a [(K, V)] {
    let from = page.partition_point(|entry| entry.0 < range.start);
    let to = page.partition_point(|entry| entry.0 < range.end);
    &page[from..to]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn check(map: &PagedMap<u64, u32>, model: &BTreeMap<u64, u32>, range: Range<u64>) {
        let pairs = |map: &PagedMap<u64, u32>| map.iter().map(|(k, &v)| (k, v)).collect::<Vec<_>>();
        assert_eq!(pairs(map), model.iter().map(|(&k, &v)| (k, v)).collect::<Vec<_>>());
        assert_eq!(map.len(), model.len());
        let (from, to) = (range.start.min(range.end), range.end.max(range.start));
        let expected: Vec<_> = model.range(from..to).map(|(&k, &v)| (k, v)).collect();
        assert_eq!(map.range(from..to).map(|(k, &v)| (k, v)).collect::<Vec<_>>(), expected);
        let mut back: Vec<_> = map.range(from..to).rev().map(|(k, &v)| (k, v)).collect();
        back.reverse();
        assert_eq!(back, expected);
        let above: Vec<_> = model.range(from..).map(|(&k, &v)| (k, v)).collect();
        assert_eq!(map.from(from).map(|(k, &v)| (k, v)).collect::<Vec<_>>(), above);
        assert_eq!(map.range(to..from).count(), 0, "a backward range is empty");
        if let PagedMap::Many(pages) = map {
            assert!(pages.check().0.len() > 1, "one page is enough");
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Append(u8),
        Put(u64),
        Remove(u64),
        RemoveRun(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => any::<u8>().prop_map(Step::Append),
            6 => (0..3000_u64).prop_map(Step::Put),
            3 => (0..3000_u64).prop_map(Step::Remove),
            1 => (0..3000_u64, 0..800_u64).prop_map(|(from, count)| Step::RemoveRun(from, count)),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_tree(steps in prop::collection::vec(step(), 1..200), range in (0..3000_u64, 0..3000_u64)) {
            let (mut map, mut model) = (PagedMap::default(), BTreeMap::new());
            let remove = |map: &mut PagedMap<u64, u32>, model: &mut BTreeMap<u64, u32>, key| {
                map.update(key, |_| false);
                model.remove(&key);
            };
            for (i, step) in (1_u32..).zip(&steps) {
                let mut put = |key| {
                    map.update(key, |value| { *value += i; true });
                    *model.entry(key).or_insert(0) += i;
                };
                match *step {
                    Step::Append(count) => {
                        (0..u64::from(count)).for_each(|j| put(3000 + 256 * u64::from(i) + j));
                    }
                    Step::Put(key) => put(key),
                    Step::Remove(key) => remove(&mut map, &mut model, key),
                    Step::RemoveRun(from, count) => {
                        (from..from + count).for_each(|key| remove(&mut map, &mut model, key));
                    }
                }
                prop_assert!(model.iter().all(|(&key, &value)| map.get(key) == Some(&value)));
                prop_assert_eq!(map.get(range.0).is_some(), model.contains_key(&range.0));
            }
            check(&map, &model, range.0..range.1);
        }
    }

    #[test]
    fn sorted_entries_are_appended() {
        let mut map = PagedMap::default();
        for run in [0..1_u32, 1..100, 100..1000] {
            map.append_sorted(run.map(|key| (u64::from(key), key))).expect("in order");
        }
        let model = (0..1000).map(|key| (key, u32::try_from(key).expect("small"))).collect();
        check(&map, &model, 90..300);
        assert_eq!(map.append_sorted([(999, 0)].into_iter()), Err(OutOfOrder));
    }

    #[test]
    fn appended_pages_are_full() {
        let mut map = PagedMap::default();
        for key in 0..10_000_u64 {
            map.update(key, |value: &mut u64| {
                *value = key;
                true
            });
        }
        let PagedMap::Many(pages) = &map else { panic!("many pages") };
        let (lengths, room) = pages.check();
        assert_eq!(lengths.len(), 10_000_usize.div_ceil(PAGE_LEN));
        assert!(room <= 10_000 + PAGE_LEN, "room for {room} entries");
    }

    #[test]
    fn a_small_map_has_little_room_to_spare() {
        for count in 1..40_u64 {
            let mut map = PagedMap::default();
            for key in 0..count {
                map.update(key, |value: &mut u64| {
                    *value = key;
                    true
                });
            }
            let PagedMap::One(page) = &map else { panic!("one page") };
            assert!(page.capacity() <= page.len() + (page.len() / 8).max(2), "{count}");
        }
    }
}
