//! A sorted map in pages: compact both where keys are appended and where there are few.
//!
//! A B-tree of single entries is half empty after appends, and a node for one entry has space for eleven.
//! Here up to [`PAGE_LEN`] entries form one sorted list. A map of one page owns just that; larger maps keep
//! pages in a B-tree. A full page that is appended to stays full, else it is split in half. A page that
//! shrank to a quarter is merged with the next.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

/// The most entries of a page.
const PAGE_LEN: usize = 128;

/// Entries sorted by key.
type Page<K, V> = Vec<(K, V)>;

#[derive(Debug, PartialEq)]
pub(crate) enum PagedMap<K, V> {
    /// At most one page.
    One(Page<K, V>),
    /// Several non-empty pages, each under a key at most its first one's and above the page before.
    #[expect(clippy::box_collection, reason = "most maps are one page, and as small as its list like this")]
    Many(Box<BTreeMap<K, Page<K, V>>>),
}

/// Error: the keys to append are not in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfOrder;

impl<K, V> Default for PagedMap<K, V> {
    fn default() -> Self {
        PagedMap::One(Vec::new())
    }
}

impl<K: Ord + Copy, V> PagedMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.pages(None, None).map(Vec::len).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first_key().is_none()
    }

    /// The first entry's key.
    pub(crate) fn first_key(&self) -> Option<K> {
        self.iter().next().map(|(key, _)| key)
    }

    /// Frees unused capacity if there is only one page.
    pub(crate) fn trim(&mut self) {
        if let PagedMap::One(page) = self {
            page.shrink_to_fit();
        }
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        let page = match self {
            PagedMap::One(page) => page,
            PagedMap::Many(pages) => pages.range(..=key).next_back()?.1,
        };
        find(page, key).ok().map(|at| &page[at].1)
    }

    /// The entries with keys in `range`, in order.
    pub(crate) fn range(&self, range: Range<K>) -> impl DoubleEndedIterator<Item = (K, &V)> {
        let range = if range.start < range.end { range } else { range.end..range.end };
        self.pages(Some(range.start), Some(range.end))
            .flat_map(move |page| &page[place(page, range.start)..place(page, range.end)])
            .map(|(key, value)| (*key, value))
    }

    /// The entries with keys from `first` on, in order.
    pub(crate) fn from(&self, first: K) -> impl Iterator<Item = (K, &V)> {
        self.pages(Some(first), None)
            .flat_map(move |page| &page[place(page, first)..])
            .map(|(key, value)| (*key, value))
    }

    /// All entries, in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &V)> {
        self.pages(None, None).flatten().map(|(key, value)| (*key, value))
    }

    /// The pages that may have keys from `first` on and below `end`.
    fn pages(&self, first: Option<K>, end: Option<K>) -> impl DoubleEndedIterator<Item = &Page<K, V>> {
        let (one, many) = match self {
            PagedMap::One(page) => (Some(page), None),
            PagedMap::Many(pages) => {
                let first = first.and_then(|first| Some(*pages.range(..=first).next_back()?.0));
                let from = first.map_or(Bound::Unbounded, Bound::Included);
                let to = end.map_or(Bound::Unbounded, Bound::Included);
                (None, Some(pages.range((from, to)).map(|(_, page)| page)))
            }
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Appends entries in order, with keys above all existing ones. Fails at the first key that is not.
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
                PagedMap::Many(pages) => pages.last_key_value().map(|(_, page)| page),
            };
            if page.and_then(|page| page.last()).is_some_and(|(last, _)| *last >= key) {
                return Err(OutOfOrder);
            }
            self.insert(key, value);
        }
        Ok(())
    }

    /// Changes the value of `key`, at first a default one. The entry is kept if `change` returns true.
    pub(crate) fn update(&mut self, key: K, change: impl FnOnce(&mut V) -> bool)
    where
        V: Default,
    {
        let page = match self {
            PagedMap::One(page) => Some(page),
            PagedMap::Many(pages) => pages.range_mut(..=key).next_back().map(|(_, page)| page),
        };
        match page.and_then(|page| Some((find(page, key).ok()?, page))) {
            Some((at, page)) => {
                if !change(&mut page[at].1) {
                    page.remove(at);
                    self.shrink(key);
                }
            }
            None => {
                let mut value = V::default();
                if change(&mut value) {
                    self.insert(key, value);
                }
            }
        }
    }

    /// Inserts a new entry.
    fn insert(&mut self, key: K, value: V) {
        match self {
            PagedMap::One(page) => {
                if let Some(tail) = put(page, (key, value)) {
                    let pages = [std::mem::take(page), tail].map(|page| (page[0].0, page));
                    *self = PagedMap::Many(Box::new(pages.into()));
                }
            }
            PagedMap::Many(pages) => {
                if pages.first_key_value().is_some_and(|(first, _)| key < *first)
                    && let Some((_, page)) = pages.pop_first()
                {
                    pages.insert(key, page);
                }
                let page = pages.range_mut(..=key).next_back();
                let tail = page.and_then(|(_, page)| put(page, (key, value)));
                pages.extend(tail.map(|tail| (tail[0].0, tail)));
            }
        }
    }

    /// Called after the entry at `key` left its page: removes an empty page, merges a small one with the
    /// next.
    fn shrink(&mut self, key: K) {
        match self {
            PagedMap::One(page) => {
                if page.capacity() > 2 * page.len() + 8 {
                    page.shrink_to_fit();
                }
            }
            PagedMap::Many(pages) => {
                let Some((&first, page)) = pages.range(..=key).next_back() else { return };
                let length = page.len();
                let next = pages.range((Bound::Excluded(key), Bound::Unbounded)).next();
                let joins = |next: &Page<K, V>| length <= PAGE_LEN / 4 && next.len() + length <= PAGE_LEN / 2;
                if length == 0 {
                    pages.remove(&first);
                } else if let Some((&next, _)) = next.filter(|(_, next)| joins(next)) {
                    let next = pages.remove(&next).unwrap_or_default();
                    pages.entry(first).or_default().extend(next);
                }
                if pages.len() == 1
                    && let Some((_, page)) = pages.pop_first()
                {
                    *self = PagedMap::One(page);
                }
            }
        }
    }
}

/// The index of `key`, or as the error the index where it belongs.
fn find<K: Ord + Copy, V>(page: &[(K, V)], key: K) -> Result<usize, usize> {
    page.binary_search_by_key(&key, |entry| entry.0)
}

/// The index of the first entry from `key` on.
fn place<K: Ord + Copy, V>(page: &[(K, V)], key: K) -> usize {
    page.partition_point(|entry| entry.0 < key)
}

/// Inserts an entry. A full page is split and its second part returned. If the entry comes last, the first
/// part stays full, else each part gets half.
fn put<K: Ord + Copy, V>(page: &mut Page<K, V>, entry: (K, V)) -> Option<Page<K, V>> {
    let at = place(page, entry.0);
    if page.len() < PAGE_LEN {
        grow(page);
        page.insert(at, entry);
        return None;
    }
    let middle = if at == PAGE_LEN { PAGE_LEN } else { PAGE_LEN / 2 };
    let mut tail = page.split_off(middle);
    if at >= middle {
        grow(&mut tail);
        tail.insert(at - middle, entry);
    } else {
        page.insert(at, entry);
    }
    Some(tail)
}

/// Reserves space for one more entry. Doubling would leave up to half of a page empty for good.
fn grow<K, V>(page: &mut Page<K, V>) {
    if page.len() == page.capacity() {
        let more = (page.len() / 8).max(if page.is_empty() { 1 } else { 2 });
        page.reserve_exact(more.min(PAGE_LEN - page.len()).max(1));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(map: &PagedMap<u64, u32>, model: &BTreeMap<u64, u32>, range: Range<u64>) {
        let pairs = |map: &PagedMap<u64, u32>| map.iter().map(|(k, &v)| (k, v)).collect::<Vec<_>>();
        assert_eq!(pairs(map), model.iter().map(|(&k, &v)| (k, v)).collect::<Vec<_>>());
        assert_eq!(map.len(), model.len());
        let from = range.start.min(range.end);
        let to = range.end.max(range.start);
        let expected: Vec<_> = model.range(from..to).map(|(&k, &v)| (k, v)).collect();
        assert_eq!(map.range(from..to).map(|(k, &v)| (k, v)).collect::<Vec<_>>(), expected);
        let mut back: Vec<_> = map.range(from..to).rev().map(|(k, &v)| (k, v)).collect();
        back.reverse();
        assert_eq!(back, expected);
        let above: Vec<_> = model.range(from..).map(|(&k, &v)| (k, v)).collect();
        assert_eq!(map.from(from).map(|(k, &v)| (k, v)).collect::<Vec<_>>(), above);
        assert_eq!(map.range(to..from).count(), 0, "a backward range is empty");
        if let PagedMap::Many(pages) = map {
            assert!(pages.len() > 1, "one page is enough");
            let mut last = None;
            for (first, page) in &**pages {
                assert!((1..=PAGE_LEN).contains(&page.len()));
                assert!(
                    *first <= page[0].0 && last.is_none_or(|last| last < *first),
                    "a key bounds its page"
                );
                last = page.last().map(|entry| entry.0);
            }
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
            let mut map = PagedMap::default();
            let mut model = BTreeMap::new();
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
        assert_eq!(pages.len(), 10_000_usize.div_ceil(PAGE_LEN));
        let room: usize = pages.values().map(Vec::capacity).sum();
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
