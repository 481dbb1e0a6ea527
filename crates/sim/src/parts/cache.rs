//! A drive's cache: the pages read or written last.

use std::collections::{HashMap, VecDeque};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Pages of objects; the one that was used longest ago goes first.
#[derive(Debug)]
pub(crate) struct Cache {
    pages_max: u64,
    /// When each page was used last.
    used: HashMap<(u32, u64), u64>,
    /// Uses in their order; those that are not a page's last one count for nothing.
    order: VecDeque<((u32, u64), u64)>,
    uses: u64,
}

impl Cache {
    pub(crate) fn new(bytes: u64) -> Cache {
        Cache { pages_max: bytes / PAGE, used: HashMap::new(), order: VecDeque::new(), uses: 0 }
    }

    /// Whether all of these bytes are there. If so, they are used.
    pub(crate) fn has(&mut self, object: u32, offset: u64, bytes: u64) -> bool {
        let there =
            self.pages_max > 0 && pages(offset, bytes).all(|page| self.used.contains_key(&(object, page)));
        if there {
            self.touch(object, offset, bytes);
        }
        there
    }

    /// These bytes were read or written.
    pub(crate) fn touch(&mut self, object: u32, offset: u64, bytes: u64) {
        if self.pages_max == 0 {
            return;
        }
        for page in pages(offset, bytes) {
            self.uses += 1;
            self.used.insert((object, page), self.uses);
            self.order.push_back(((object, page), self.uses));
        }
        while u64::try_from(self.used.len()).is_ok_and(|count| count > self.pages_max) {
            let Some((page, use_)) = self.order.pop_front() else { break };
            if self.used.get(&page) == Some(&use_) {
                self.used.remove(&page);
            }
        }
        // Pages that are used again and again leave their earlier uses behind, also behind one that is used
        // no more. Half of the order is thrown away each time, so a use costs the same however often that is.
        if self.order.len() > 2 * self.used.len() {
            let used = &self.used;
            self.order.retain(|(page, use_)| used.get(page) == Some(use_));
        }
    }
}

/// The pages that these bytes are in.
fn pages(offset: u64, bytes: u64) -> std::ops::Range<u64> {
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

    #[test]
    fn what_is_remembered_of_uses_is_bounded() {
        let mut cache = Cache::new(4 * PAGE);
        cache.touch(0, 0, PAGE);
        for _ in 0..1000 {
            cache.touch(0, PAGE, 2 * PAGE);
        }
        assert!(cache.order.len() <= 2 * 3, "{}", cache.order.len());
        cache.touch(0, 3 * PAGE, 2 * PAGE);
        assert!(!cache.has(0, 0, PAGE) && cache.has(0, PAGE, 4 * PAGE), "the one used longest ago went");
    }

    #[test]
    fn without_memory_nothing_is_kept() {
        let mut cache = Cache::new(0);
        cache.touch(0, 0, PAGE);
        assert!(!cache.has(0, 0, PAGE));
    }
}
