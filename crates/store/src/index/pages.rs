//! The pages of a map that is more than one ([`super::paged`]).
//!
//! Where they are is kept in lists, too: chunks of pages, pages of entries. Memory is far away from the processor, and what a
//! lookup costs is how many places it must look at one after the other. A tree of single keys has many; here the keys of a
//! thousand pages are one list that stays in the cache, and a page is looked at about where the entry should be.

/// The most entries of a page.
pub(super) const PAGE_LEN: usize = 128;
/// The most pages of a chunk: few, so that one can be put between the others in no time.
const CHUNK_LEN: usize = if cfg!(test) { 8 } else { 1024 };

/// Sorted by key.
pub(super) type Page<K, V> = Vec<(K, V)>;
/// Pages, each under a key that is at most its first one's and above the page before. None is empty.
type Chunk<K, V> = Vec<(K, Page<K, V>)>;

/// The pages: chunks, each under a key in the same way. None is empty, and there is at least one.
#[derive(Debug, PartialEq)]
pub(crate) struct Pages<K, V>(Vec<(K, Chunk<K, V>)>);

/// What the entries are sorted by.
pub(crate) trait Key: Ord + Copy {
    /// About where the key is among entries from `first` at place 0 to `last` at place `most`, if they lie evenly.
    fn place(self, first: Self, last: Self, most: usize) -> usize;
}

impl Key for u64 {
    fn place(self, first: u64, last: u64, most: usize) -> usize {
        let (part, whole) = (self.saturating_sub(first), last.saturating_sub(first));
        if part >= whole {
            return if part == 0 { 0 } else { most };
        }
        // Lists are below 2^16 long: the product fits.
        let shift = 16_u32.saturating_sub(whole.leading_zeros());
        let place = (part >> shift) * u64::try_from(most).unwrap_or(0) / (whole >> shift);
        usize::try_from(place).unwrap_or(most)
    }
}

impl Key for (u32, u32, u64, u64) {
    /// Numbers of one lease mostly follow each other.
    fn place(self, first: Self, last: Self, most: usize) -> usize {
        if (first.0, first.1) == (last.0, last.1) { self.2.place(first.2, last.2, most) } else { most / 2 }
    }
}

/// Where a page is: its chunk, and its place there.
#[derive(Clone, Copy)]
struct At(usize, usize);

impl<K: Key, V> Pages<K, V> {
    /// Of a full page and one more entry, which goes to its place there.
    pub(super) fn new(page: Page<K, V>, place: usize, entry: (K, V)) -> Self {
        let first = page[0].0;
        let mut pages = Pages(vec![(first, vec![(first, page)])]);
        pages.insert(At(0, 0), place, entry);
        pages
    }

    pub(super) fn len(&self) -> usize {
        self.iter().map(Vec::len).sum()
    }

    /// The page, if there is one only.
    pub(super) fn only(&mut self) -> Option<&mut Page<K, V>> {
        match &mut self.0[..] {
            [(_, chunk)] => match &mut chunk[..] {
                [(_, page)] => Some(page),
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) fn last(&self) -> Option<&Page<K, V>> {
        Some(&self.0.last()?.1.last()?.1)
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Page<K, V>> {
        self.0.iter().flat_map(|(_, chunk)| chunk).map(|(_, page)| page)
    }

    /// Those that may have keys from `first` on, up to that of `last`.
    pub(super) fn between(&self, first: K, last: Option<K>) -> impl DoubleEndedIterator<Item = &Page<K, V>> {
        let At(from, page) = self.find(first);
        let end = last.map(|last| self.find(last));
        let to = end.map_or(self.0.len() - 1, |At(chunk, _)| chunk);
        (from..=to).flat_map(move |number| {
            let chunk = &self.0[number].1;
            let begin = if number == from { page } else { 0 };
            let end = end.filter(|end| end.0 == number).map_or(chunk.len(), |end| end.1 + 1);
            chunk[begin..end].iter().map(|(_, page)| page)
        })
    }

    pub(super) fn get(&self, key: K) -> Option<&V> {
        let at = self.find(key);
        let place = self.find_in(at, key).ok()?;
        Some(&self.0[at.0].1[at.1].1[place].1)
    }

    /// Change the value of `key`, a default one if there is none. It stays if `change` says so.
    pub(super) fn update(&mut self, key: K, change: impl FnOnce(&mut V) -> bool)
    where
        V: Default,
    {
        let at = self.find(key);
        match self.find_in(at, key) {
            Ok(place) => {
                let page = &mut self.0[at.0].1[at.1].1;
                if !change(&mut page[place].1) {
                    page.remove(place);
                    self.shrink(at);
                }
            }
            Err(place) => {
                let mut value = V::default();
                if change(&mut value) {
                    self.insert(at, place, (key, value));
                }
            }
        }
    }

    /// Put an entry behind all others.
    pub(super) fn push(&mut self, entry: (K, V)) {
        let chunk = self.0.len() - 1;
        let page = self.0[chunk].1.len() - 1;
        let place = self.0[chunk].1[page].1.len();
        self.insert(At(chunk, page), place, entry);
    }

    /// The page that `key` is in or belongs to.
    fn find(&self, key: K) -> At {
        let chunk = floor(&self.0, key);
        At(chunk, floor(&self.0[chunk].1, key))
    }

    /// Where it is in its page, or belongs.
    fn find_in(&self, At(chunk, page): At, key: K) -> Result<usize, usize> {
        let chunk = &self.0[chunk].1;
        let (first, page_after) = (chunk[page].0, chunk.get(page + 1));
        let page = &chunk[page].1;
        match page_after {
            // Its key tells as much as this one's last, and is at hand.
            Some((next, _)) => search(page, key, key.place(first, *next, page.len())),
            None => find(page, key),
        }
    }

    fn insert(&mut self, At(number, at): At, place: usize, entry: (K, V)) {
        let (first_of_chunk, chunk) = &mut self.0[number];
        let (first, page) = &mut chunk[at];
        *first = entry.0.min(*first);
        *first_of_chunk = entry.0.min(*first_of_chunk);
        let Some(tail) = put(page, place, entry, PAGE_LEN) else { return };
        if let Some(tail) = put(chunk, at + 1, (tail[0].0, tail), CHUNK_LEN) {
            self.0.insert(number + 1, (tail[0].0, tail));
        }
    }

    /// An entry left the page: an empty one goes, a small one joins the next.
    fn shrink(&mut self, At(number, at): At) {
        let chunk = &mut self.0[number].1;
        let length = chunk[at].1.len();
        if length == 0 {
            chunk.remove(at);
            if chunk.is_empty() && self.0.len() > 1 {
                self.0.remove(number);
            }
        } else if length <= PAGE_LEN / 4
            && chunk.get(at + 1).is_some_and(|(_, next)| next.len() + length <= PAGE_LEN / 2)
        {
            let (_, next) = chunk.remove(at + 1);
            chunk[at].1.extend(next);
        }
    }
}

/// Put an entry in its place. A list that is full is split, and the second part returned: where keys are appended the first stays
/// full, else it is a half.
fn put<K, V>(list: &mut Vec<(K, V)>, place: usize, entry: (K, V), most: usize) -> Option<Vec<(K, V)>> {
    if list.len() < most {
        grow(list, most);
        list.insert(place, entry);
        return None;
    }
    let middle = if place == most { most } else { most / 2 };
    let mut tail = Vec::with_capacity(2);
    tail.extend(list.drain(middle..));
    if place >= middle {
        grow(&mut tail, most);
        tail.insert(place - middle, entry);
    } else {
        list.insert(place, entry);
    }
    Some(tail)
}

/// Room for one more. Doubling would leave up to half of a page empty for good.
pub(super) fn grow<K, V>(list: &mut Vec<(K, V)>, most: usize) {
    if list.len() == list.capacity() {
        let more = (list.len() / 8).max(if list.is_empty() { 1 } else { 2 });
        list.reserve_exact(more.min(most - list.len()).max(1));
    }
}

/// Where the last key is that is at most `key`, or the first.
fn floor<K: Key, V>(list: &[(K, V)], key: K) -> usize {
    find(list, key).unwrap_or_else(|place| place.saturating_sub(1))
}

/// Where `key` is or belongs.
pub(super) fn find<K: Key, V>(list: &[(K, V)], key: K) -> Result<usize, usize> {
    let (Some(first), Some(last)) = (list.first(), list.last()) else { return Err(0) };
    search(list, key, key.place(first.0, last.0, list.len() - 1))
}

/// The same, from a guess outwards in steps that double.
fn search<K: Key, V>(list: &[(K, V)], key: K, guess: usize) -> Result<usize, usize> {
    let guess = guess.min(list.len().saturating_sub(1));
    // What is before `low` is below the key, what is at `high` and behind it is not.
    let (mut low, mut high, mut step) = (0, list.len(), 1);
    if list.get(guess).is_some_and(|entry| entry.0 < key) {
        low = guess + 1;
        while let Some(entry) = list.get(low + step - 1) {
            if entry.0 >= key {
                high = low + step - 1;
                break;
            }
            low += step;
            step *= 2;
        }
    } else {
        high = guess.min(high);
        while let Some(at) = high.checked_sub(step) {
            if list[at].0 < key {
                low = at + 1;
                break;
            }
            high = at;
            step *= 2;
        }
    }
    let at = low + list[low..high].partition_point(|entry| entry.0 < key);
    if list.get(at).is_some_and(|entry| entry.0 == key) { Ok(at) } else { Err(at) }
}

#[cfg(test)]
impl<K: Key, V> Pages<K, V> {
    /// The pages' lengths, and the entries that there is room for.
    pub(super) fn check(&self) -> (Vec<usize>, usize) {
        let mut last = None;
        for (first_of_chunk, chunk) in &self.0 {
            assert!((1..=CHUNK_LEN).contains(&chunk.len()));
            assert!(*first_of_chunk <= chunk[0].0 && last.is_none_or(|last| last < *first_of_chunk));
            for (first, page) in chunk {
                assert!((1..=PAGE_LEN).contains(&page.len()));
                assert!(
                    *first <= page[0].0 && last.is_none_or(|last| last < *first),
                    "a key bounds its page"
                );
                last = page.last().map(|entry| entry.0);
            }
        }
        (self.iter().map(Vec::len).collect(), self.iter().map(Vec::capacity).sum())
    }
}
