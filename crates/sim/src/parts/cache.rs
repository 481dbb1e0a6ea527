//! A drive's cache: the pages read or written last.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Pages of objects, of which the least recently used go first. Pages that were used together are kept as
/// one extent, so that the cost of a use depends on the number of extents that it meets, not on the number
/// of its pages.
#[derive(Debug)]
pub(crate) struct Cache {
    pages_max: u64,
    pages: u64,
    /// Extents of each object, which do not overlap: from the first page to the end and the last use.
    extents: HashMap<u32, BTreeMap<u64, (u64, u64)>>,
    /// Object of each extent, by the extent's last use and first page.
    by_use: BTreeMap<(u64, u64), u32>,
    uses: u64,
}

impl Cache {
    pub(crate) fn new(bytes: u64) -> Cache {
        Cache { pages_max: bytes / PAGE, pages: 0, extents: HashMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// Returns true if all of these bytes are cached, and then notes a use of them.
    pub(crate) fn has(&mut self, object: u32, offset: u64, bytes: u64) -> bool {
        let Range { start, end } = pages(offset, bytes);
        let Some(extents) = self.extents.get(&object) else { return false };
        let mut there = end;
        for (&first, &(past, _)) in extents.range(..end).rev() {
            if past < there {
                break;
            }
            there = first;
            if there <= start {
                self.touch(object, offset, bytes);
                return true;
            }
        }
        start >= end
    }

    /// Notes that these bytes were read or written: they are cached and used.
    pub(crate) fn touch(&mut self, object: u32, offset: u64, bytes: u64) {
        if self.pages_max == 0 {
            return;
        }
        let pages = pages(offset, bytes);
        self.cut(object, &pages);
        self.uses += 1;
        self.add(object, pages, self.uses);
        while self.pages > self.pages_max {
            let Some((&(use_, first), &object)) = self.by_use.first_key_value() else { break };
            let past = self.remove(object, first, use_);
            let kept = past.min(first + (self.pages + past - first - self.pages_max))..past;
            self.add(object, kept, use_);
        }
    }

    /// Removes pages from the extents that hold them.
    fn cut(&mut self, object: u32, pages: &Range<u64>) {
        while let Some(extents) = self.extents.get(&object)
            && let Some((&first, &(past, use_))) = extents.range(..pages.end).next_back()
            && past > pages.start
        {
            self.remove(object, first, use_);
            self.add(object, first..pages.start, use_);
            self.add(object, pages.end..past, use_);
        }
    }

    /// Adds an extent, unless it is empty.
    fn add(&mut self, object: u32, pages: Range<u64>, use_: u64) {
        if !pages.is_empty() {
            self.pages += pages.end - pages.start;
            self.extents.entry(object).or_default().insert(pages.start, (pages.end, use_));
            self.by_use.insert((use_, pages.start), object);
        }
    }

    /// Removes an extent, and returns its end.
    fn remove(&mut self, object: u32, first: u64, use_: u64) -> u64 {
        self.by_use.remove(&(use_, first));
        let removed = self.extents.get_mut(&object).and_then(|extents| extents.remove(&first));
        let past = removed.map_or(first, |(past, _)| past);
        self.pages -= past - first;
        past
    }
}

/// The pages that these bytes lie in.
fn pages(offset: u64, bytes: u64) -> Range<u64> {
    offset / PAGE..(offset + bytes).div_ceil(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_used_longest_ago_goes() {
        let mut cache = Cache::new(3 * PAGE);
        for page in 0..3 {
            cache.touch(0, page * PAGE, PAGE);
        }
        assert!(cache.has(0, 0, PAGE), "and is used by that");
        cache.touch(1, 0, 1);
        assert!(!cache.has(0, PAGE, PAGE));
        assert!(cache.has(0, 0, PAGE) && cache.has(1, 0, PAGE) && !cache.has(0, 0, 2 * PAGE));
    }

    /// Equivalent of [`Cache`] that keeps a list of single pages.
    #[derive(Default)]
    struct Plain {
        /// Pages in use, the least recently used one first.
        used: Vec<(u32, u64)>,
    }

    impl Plain {
        fn touch(&mut self, object: u32, range: Range<u64>, pages_max: usize) {
            self.used.retain(|(other, page)| *other != object || !range.contains(page));
            self.used.extend(range.map(|page| (object, page)));
            self.used.drain(..self.used.len().saturating_sub(pages_max));
        }

        fn has(&self, object: u32, mut range: Range<u64>) -> bool {
            range.all(|page| self.used.contains(&(object, page)))
        }
    }

    #[test]
    fn extents_hold_the_pages_that_a_list_of_pages_holds() {
        let mut stream = crate::random::Stream::new(3, crate::random::Source::Disk(0));
        for pages_max in [1, 7, 40] {
            let mut cache = Cache::new(PAGE * pages_max);
            let mut plain = Plain::default();
            let most = usize::try_from(pages_max).expect("few");
            for turn in 0..20_000 {
                let object = u32::from(stream.below(3) == 0);
                let first = stream.below(30);
                let range = first..first + stream.below(9);
                let bytes = (range.end - range.start) * PAGE;
                if turn % 2 == 0 {
                    cache.touch(object, first * PAGE, bytes);
                    plain.touch(object, range, most);
                } else {
                    let has = cache.has(object, first * PAGE, bytes);
                    assert_eq!(has, plain.has(object, range.clone()), "{object} {range:?} at {turn}");
                    if has {
                        plain.touch(object, range, most);
                    }
                }
                assert_eq!(cache.pages, plain.used.len() as u64);
                assert!(cache.by_use.len() as u64 <= cache.pages);
                assert_eq!(cache.by_use.len(), cache.extents.values().map(BTreeMap::len).sum::<usize>());
            }
        }
    }

    #[test]
    fn without_memory_nothing_is_kept() {
        let mut cache = Cache::new(0);
        cache.touch(0, 0, PAGE);
        assert!(!cache.has(0, 0, PAGE));
    }
}
