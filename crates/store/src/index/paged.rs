//! A sorted map in pages: dense where keys are appended, small where there are few.
//!
//! A B-tree of single entries is half empty after appends, and a node for one entry has room for eleven. Here up to
//! [`PAGE_LEN`] entries are one sorted list, which a map of one page owns without a tree. A full page at the end stays
//! full; one in the middle is split in half, and a page that shrank to a quarter joins its neighbour.

use std::collections::BTreeMap;
use std::ops::Range;

/// The most entries of a page.
const PAGE_LEN: usize = 128;

/// The map.
#[derive(Debug, PartialEq)]
pub(crate) enum PagedMap<K, V> {
    /// At most one page.
    One(Vec<(K, V)>),
    /// Pages, each under a key that is at most its first one's and above the page before. None is empty.
    #[expect(
        clippy::box_collection,
        reason = "it would make every map a third bigger, and few are of this kind"
    )]
    Many(Box<BTreeMap<K, Vec<(K, V)>>>),
}

/// Keys to append are not in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfOrder;

impl<K, V> Default for PagedMap<K, V> {
    fn default() -> Self {
        PagedMap::One(Vec::new())
    }
}

/// What the entries are sorted by.
pub(crate) trait Key: Ord + Copy {
    /// At what place of a page that begins with `first` the key is, if no key between is missing.
    fn place_after(self, first: Self) -> usize;
}

impl Key for u64 {
    fn place_after(self, first: u64) -> usize {
        usize::try_from(self.wrapping_sub(first)).unwrap_or(usize::MAX)
    }
}

impl Key for (u32, u32, u64, u64) {
    fn place_after(self, _: (u32, u32, u64, u64)) -> usize {
        0
    }
}

impl<K: Key, V> PagedMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        match self {
            PagedMap::One(page) => page.len(),
            PagedMap::Many(pages) => pages.values().map(Vec::len).sum(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, PagedMap::One(page) if page.is_empty())
    }

    /// The first entry's key.
    pub(crate) fn first_key(&self) -> Option<K> {
        match self {
            PagedMap::One(page) => page.first().map(|(key, _)| *key),
            PagedMap::Many(pages) => pages.first_key_value().map(|(key, _)| *key),
        }
    }

    /// Keep no room for more entries, where one page is all.
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
        let at = find(page, key).ok()?;
        Some(&page[at].1)
    }

    /// The entries with keys in `range`, in order.
    pub(crate) fn range(&self, range: Range<K>) -> impl DoubleEndedIterator<Item = (K, &V)> {
        let range = if range.start < range.end { range } else { range.end..range.end };
        let (one, many) = match self {
            PagedMap::One(page) => (Some(page), None),
            PagedMap::Many(pages) => {
                let first = pages.range(..=range.start).next_back().map_or(range.start, |(&first, _)| first);
                (None, Some(pages.range(first..range.end).map(|(_, page)| page)))
            }
        };
        let pages = one.into_iter().chain(many.into_iter().flatten());
        pages.flat_map(move |page| inside(page, &range)).map(|(key, value)| (*key, value))
    }

    /// The entries with keys from `first` on, in order.
    pub(crate) fn from(&self, first: K) -> impl Iterator<Item = (K, &V)> {
        let (one, many) = match self {
            PagedMap::One(page) => (Some(page), None),
            PagedMap::Many(pages) => {
                let page = pages.range(..=first).next_back().map_or(first, |(&page, _)| page);
                (None, Some(pages.range(page..).map(|(_, page)| page)))
            }
        };
        let pages = one.into_iter().chain(many.into_iter().flatten());
        pages.flatten().map(|(key, value)| (*key, value)).skip_while(move |(key, _)| *key < first)
    }

    /// All entries, in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &V)> {
        let (one, many) = match self {
            PagedMap::One(page) => (Some(page), None),
            PagedMap::Many(pages) => (None, Some(pages.values())),
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
            let (page_key, page) = match self {
                PagedMap::One(page) => (key, &*page),
                PagedMap::Many(pages) => {
                    let (&first, page) = pages.last_key_value().expect("none is empty");
                    (first, page)
                }
            };
            if page.last().is_some_and(|(last, _)| *last >= key) {
                return Err(OutOfOrder);
            }
            let at = page.len();
            self.insert(page_key, at, (key, value));
        }
        Ok(())
    }

    /// Change the value of `key`, a default one if there is none. It stays if `change` says so.
    pub(crate) fn update(&mut self, key: K, change: impl FnOnce(&mut V) -> bool)
    where
        V: Default,
    {
        let page_key = self.page_for(key);
        let page = match self {
            PagedMap::One(page) => page,
            PagedMap::Many(pages) => pages.get_mut(&page_key).expect("the page of the key"),
        };
        match find(page, key) {
            Ok(at) => {
                if !change(&mut page[at].1) {
                    page.remove(at);
                    self.shrink(page_key);
                }
            }
            Err(at) => {
                let mut value = V::default();
                if change(&mut value) {
                    self.insert(page_key, at, (key, value));
                }
            }
        }
    }

    /// The page that `key` is in or belongs to. A key below all others lowers the first page's.
    fn page_for(&mut self, key: K) -> K {
        let PagedMap::Many(pages) = self else { return key };
        if let Some((&page, _)) = pages.range(..=key).next_back() {
            return page;
        }
        if let Some((_, first)) = pages.pop_first() {
            pages.insert(key, first);
        }
        key
    }

    fn insert(&mut self, page_key: K, at: usize, entry: (K, V)) {
        let page = match self {
            PagedMap::One(page) => page,
            PagedMap::Many(pages) => pages.get_mut(&page_key).expect("the page of the key"),
        };
        if page.len() < PAGE_LEN {
            grow(page);
            page.insert(at, entry);
            return;
        }
        // Where keys are appended the page stays full; else it is split in half.
        let middle = if at == PAGE_LEN { PAGE_LEN } else { PAGE_LEN / 2 };
        let mut tail = Vec::with_capacity(2);
        tail.extend(page.drain(middle..));
        if at >= middle {
            grow(&mut tail);
            tail.insert(at - middle, entry);
        } else {
            page.insert(at, entry);
        }
        let second = tail[0].0;
        if let PagedMap::One(page) = self {
            let page = std::mem::take(page);
            let first = page[0].0;
            *self = PagedMap::Many(Box::new(BTreeMap::from([(first, page)])));
        }
        if let PagedMap::Many(pages) = self {
            pages.insert(second, tail);
        }
    }

    /// An entry left the page: an empty one goes, a small one joins the next.
    fn shrink(&mut self, page_key: K) {
        let PagedMap::Many(pages) = self else {
            if let PagedMap::One(page) = self
                && page.capacity() > 2 * page.len() + 8
            {
                page.shrink_to_fit();
            }
            return;
        };
        let length = pages[&page_key].len();
        if length == 0 {
            pages.remove(&page_key);
        } else if length <= PAGE_LEN / 4 {
            let next = pages.range((std::ops::Bound::Excluded(page_key), std::ops::Bound::Unbounded)).next();
            if let Some((&next, page)) = next
                && page.len() + length <= PAGE_LEN / 2
                && let (Some(tail), Some(page)) = (pages.remove(&next), pages.get_mut(&page_key))
            {
                page.extend(tail);
            }
        }
        if pages.len() == 1
            && let Some((_, page)) = pages.pop_first()
        {
            *self = PagedMap::One(page);
        } else if pages.is_empty() {
            *self = PagedMap::default();
        }
    }
}

/// Where `key` is in the page or belongs. Keys without gaps are found at once.
fn find<K: Key, V>(page: &[(K, V)], key: K) -> Result<usize, usize> {
    if let Some(first) = page.first() {
        let place = key.place_after(first.0);
        if page.get(place).is_some_and(|entry| entry.0 == key) {
            return Ok(place);
        }
    }
    page.binary_search_by_key(&key, |entry| entry.0)
}

fn inside<'a, K: Key, V>(page: &'a [(K, V)], range: &Range<K>) -> &'a [(K, V)] {
    let from = page.partition_point(|entry| entry.0 < range.start);
    let to = page.partition_point(|entry| entry.0 < range.end);
    &page[from..to]
}

/// Room for one more. Doubling would leave up to half of a page empty for good.
fn grow<K, V>(page: &mut Vec<(K, V)>) {
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
            assert!(pages.len() > 1, "one page needs no tree");
            let mut last = None;
            for (&first, page) in pages.iter() {
                assert!((1..=PAGE_LEN).contains(&page.len()));
                assert!(first <= page[0].0 && last < Some(first), "a page's key bounds it");
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
