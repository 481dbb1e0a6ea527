//! Reads of what is in the page cache: a copy from a [`Window`] takes no system call that copies, and most take none at all.
//!
//! Only pages that were read or written through the same file lately are read so. For others an ordinary read is better: it
//! asks the medium for several at once, and for those that come next. The system may drop pages meanwhile, and a copy would
//! wait for the medium page by page. A read of several pages therefore asks first; of fewer, how long some copies take shows
//! it.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::window::{WINDOW_BYTES, Window};
use crate::residency::is_resident;

const WINDOW_BYTES_U64: u64 = WINDOW_BYTES as u64;
/// The unit of the page cache, or a part of it.
const PAGE_BYTES: u64 = 4096;
/// Of so few pages a copy takes less time than to ask whether they are there.
const FEW_PAGES: usize = 2;
/// Nor does it pay to look at the clock each time: copies from every so many pages are watched.
const WATCHED_EVERY: usize = 16;
/// A copy that takes longer waited for something.
const SLOW: Duration = Duration::from_micros(50);
/// What is asked about then, and forgotten: pages near each other were often dropped together.
const NEAR_BYTES: u64 = 1 << 20;

/// A file of which reads may be copies.
#[derive(Debug)]
pub(crate) struct Mapped {
    window: Window,
    /// By page, a bit: it was in the page cache when it was last read or written.
    cached: Box<[AtomicU64]>,
    /// So much of the window is file at least: a copy would find zeros in the rest of the last page.
    end: AtomicU64,
}

impl Mapped {
    /// `None` where the system does not offer it.
    pub(crate) fn of(file: &File) -> Option<Mapped> {
        let window = Window::of(file)?;
        let words = page_of(WINDOW_BYTES_U64)? / WORD_PAGES;
        Some(Mapped {
            window,
            cached: (0..words).map(|_| AtomicU64::new(0)).collect(),
            end: AtomicU64::new(0),
        })
    }

    /// Fill `to` from `offset` on, if that is likely to be in the page cache. False: `to` may hold anything, and is to be read
    /// by an ordinary call.
    pub(crate) fn copy(&self, file: &File, to: &mut [u8], offset: u64) -> bool {
        let (Some(pages), Ok(from)) = (pages(offset, to.len()), usize::try_from(offset)) else {
            return false;
        };
        let bytes = u64::try_from(to.len()).unwrap_or(u64::MAX);
        let is_known = |(word, mask): (usize, u64)| self.cached[word].load(Ordering::Relaxed) & mask == mask;
        if offset + bytes > self.end.load(Ordering::Relaxed) || !words(pages.clone()).all(is_known) {
            return false;
        }
        if pages.len() > FEW_PAGES {
            if !is_resident(file, offset, bytes) {
                self.forget(near(offset));
                return false;
            }
            return self.window.copy(to, from);
        }
        let began = pages.start.is_multiple_of(WATCHED_EVERY).then(Instant::now);
        let copied = self.window.copy(to, from);
        if began.is_some_and(|began| began.elapsed() > SLOW) {
            let near = near(offset);
            let end = near.end.min(self.end.load(Ordering::Relaxed));
            if !is_resident(file, near.start, end.saturating_sub(near.start)) {
                self.forget(near);
            }
        }
        copied
    }

    /// These bytes were just read or written by an ordinary call, through the page cache.
    pub(crate) fn note(&self, offset: u64, bytes: usize) {
        let Some(pages) = pages(offset, bytes) else { return };
        let end = (offset + u64::try_from(bytes).unwrap_or(0)).min(WINDOW_BYTES_U64);
        if self.end.load(Ordering::Relaxed) < end {
            self.end.fetch_max(end, Ordering::Relaxed);
        }
        for (word, mask) in words(pages).take_while(|&(word, _)| word < self.cached.len()) {
            // All that look are kept from a word that is written; most are what they are to be already.
            if self.cached[word].load(Ordering::Relaxed) & mask != mask {
                self.cached[word].fetch_or(mask, Ordering::Relaxed);
            }
        }
    }

    /// The file is about to become this long.
    pub(crate) fn cut(&self, length: u64) {
        self.end.fetch_min(length, Ordering::Relaxed);
        self.release(length..u64::MAX);
    }

    /// Keep no pages of `range` from being dropped.
    pub(crate) fn release(&self, range: Range<u64>) {
        let range = range.start / PAGE_BYTES * PAGE_BYTES..range.end.min(WINDOW_BYTES_U64);
        self.forget(range.clone());
        if let (Ok(from), Ok(to)) = (usize::try_from(range.start), usize::try_from(range.end)) {
            self.window.release(from..to);
        }
    }

    fn forget(&self, range: Range<u64>) {
        let Ok(bytes) = usize::try_from(range.end.saturating_sub(range.start)) else { return };
        let Some(pages) = pages(range.start, bytes) else { return };
        for (word, mask) in words(pages).take_while(|&(word, _)| word < self.cached.len()) {
            self.cached[word].fetch_and(!mask, Ordering::Relaxed);
        }
    }
}

/// The bytes around `offset` that were likely dropped when its page was.
fn near(offset: u64) -> Range<u64> {
    let from = offset / NEAR_BYTES * NEAR_BYTES;
    from..from + NEAR_BYTES
}

/// Pages of a word of bits.
const WORD_PAGES: usize = 64;

fn page_of(offset: u64) -> Option<usize> {
    usize::try_from(offset / PAGE_BYTES).ok()
}

/// The pages that the bytes lie in; `None` for none, and for what no file has.
fn pages(offset: u64, bytes: usize) -> Option<Range<usize>> {
    let last = offset.checked_add(u64::try_from(bytes).ok()?.checked_sub(1)?)?;
    Some(page_of(offset)?..page_of(last)? + 1)
}

/// The words that have the bits of `pages`, each with a mask of those.
fn words(pages: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let (first, last) = (pages.start / WORD_PAGES, (pages.end - 1) / WORD_PAGES);
    (first..=last).map(move |word| {
        let begin = word * WORD_PAGES;
        let from = pages.start.saturating_sub(begin);
        let to = (pages.end - begin).min(WORD_PAGES);
        (word, u64::MAX << from & u64::MAX >> (WORD_PAGES - to))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn filled(bytes: usize) -> (File, Mapped, Vec<u8>) {
        let file = tempfile::tempfile().expect("a temporary file");
        let expected: Vec<u8> = (0..bytes).map(|at| (at / 251 + at % 251).to_le_bytes()[0]).collect();
        file.write_all_at(&expected, 0).expect("written");
        let mapped = Mapped::of(&file).expect("a window");
        (file, mapped, expected)
    }

    fn copy(file: &File, mapped: &Mapped, range: Range<usize>) -> Option<Vec<u8>> {
        let mut bytes = vec![0; range.len()];
        mapped.copy(file, &mut bytes, u64::try_from(range.start).expect("small")).then_some(bytes)
    }

    #[test]
    fn what_was_noted_is_copied_and_nothing_else() {
        let (file, mapped, expected) = filled(1_000_000);
        let copy = |range| copy(&file, &mapped, range);
        assert_eq!(copy(0..10), None);
        mapped.note(8192, 70_000);
        for range in [8192..8193, 8200..12_000, 12_287..12_289, 70_000..78_192] {
            assert_eq!(copy(range.clone()).as_deref(), Some(&expected[range]));
        }
        let long = 8192..78_192;
        if is_resident(&file, 8192, 70_000) {
            assert_eq!(copy(long.clone()).as_deref(), Some(&expected[long]));
        }
        for range in [8191..8193, 78_191..78_193, 78_192..78_193, 0..0, 8192..8192, 8191..78_192] {
            assert_eq!(copy(range.clone()), None, "{range:?}");
        }
        // A page that was noted in part: the rest of it is no zeros.
        mapped.note(81_920, 4096);
        assert_eq!(copy(79_000..79_010).as_deref(), Some(&expected[79_000..79_010]));
        mapped.note(WINDOW_BYTES_U64 - 4096, 1 << 20);
        mapped.note(WINDOW_BYTES_U64, 1 << 20);
        assert_eq!(copy(WINDOW_BYTES..WINDOW_BYTES + 1), None);
        assert_eq!(copy(WINDOW_BYTES - 1..WINDOW_BYTES + 1), None);
        mapped.release(12_288..16_384);
        assert_eq!(copy(12_288..12_289), None);
        assert!(copy(12_287..12_288).is_some() && copy(16_384..16_385).is_some());
    }

    #[test]
    fn no_zeros_come_from_behind_the_end() {
        let (file, mapped, expected) = filled(10_000);
        mapped.note(0, 10_000);
        assert_eq!(copy(&file, &mapped, 9000..10_000).as_deref(), Some(&expected[9000..]));
        assert_eq!(copy(&file, &mapped, 9000..10_001), None);
        mapped.cut(9500);
        file.set_len(9500).expect("cut");
        assert_eq!(copy(&file, &mapped, 8192..9501), None);
        mapped.note(8192, 9500 - 8192);
        assert_eq!(copy(&file, &mapped, 9000..9500).as_deref(), Some(&expected[9000..9500]));
        assert_eq!(copy(&file, &mapped, 9000..9501), None);
    }

    /// As far as the system drops pages at all.
    #[test]
    fn what_is_released_can_be_dropped() {
        let (file, mapped, _) = filled(1 << 20);
        file.sync_all().expect("synced");
        let drop_cache =
            || rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advised");
        drop_cache();
        if !is_resident(&file, 0, 1 << 20) {
            file.read_exact_at(&mut vec![0; 1 << 20], 0).expect("read");
            mapped.note(0, 1 << 20);
            assert!(copy(&file, &mapped, 4096..8192).is_some());
            drop_cache();
            assert!(is_resident(&file, 4096, 4096), "what is mapped stays: the test tests something");
            mapped.release(0..u64::MAX);
            drop_cache();
            assert!(!is_resident(&file, 4096, 4096));
        }
    }
}
