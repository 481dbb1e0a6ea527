//! Reads of what is in the page cache: a copy from a [`Window`] takes no system call that copies, and most take none at all.
//!
//! Only pages that were read or written through the same file twice before are read so. For others an ordinary read is better: it
//! asks the medium for several at once, and for those that come next; and twice is what the system counts as in use, while it
//! does not see copies. It may have dropped pages since all the same, and a copy would wait for them one after the other. A read of
//! several pages therefore asks first; of fewer, one in so many, and whoever has asked by [`Mapped::are_cached`] and was told no
//! makes it known. That one in so many is an ordinary read, by which the system learns that its pages are still in use. Where pages
//! were missing, the reads that follow there are ordinary too: copies from what was read ahead would not have the system go on with it.

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::residency::{are_resident, resident_bytes};
use super::window::{WINDOW_BYTES, Window};

/// The unit of the page cache, or a part of it.
const PAGE_BYTES: u64 = 4096;
const WINDOW_BYTES_U64: u64 = WINDOW_BYTES as u64;
/// Of so few pages a copy takes less time than to ask whether they are there.
const FEW_PAGES: usize = 2;
/// Of so many reads of a thread one is ordinary.
const ORDINARY_OF: u32 = 16;
/// What is forgotten with a page that is not there any more: those near each other were often dropped together.
const NEAR_BYTES: u64 = 4 << 20;
/// Pages are dropped again as often, if some are left: a copy that was under way may have brought them back.
const DROPS_MAX: u32 = 3;

thread_local! {
    /// Reads of this thread that could be copies.
    static COPIES: Cell<u32> = const { Cell::new(0) };
}

/// A read that begins so soon after the one before follows it: headers of records lie between.
const GAP_BYTES: u64 = 64 << 10;
/// No read follows this.
const NOWHERE: u64 = u64::MAX / 2;

/// A file of which reads may be copies.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    /// Made with the second read: many files are read once. `None`: not offered by the system.
    known: OnceLock<Option<Known>>,
    was_read: AtomicBool,
    /// Somebody has pages dropped, so many times at once: nothing is copied meanwhile.
    dropping: AtomicU32,
}

/// What is known of a file's pages.
#[derive(Debug)]
struct Known {
    window: Window,
    /// By page, a bit of each word.
    uses: Box<[Uses]>,
    /// So much of the window is file at least: a copy would find zeros in the rest of the last page.
    end: AtomicU64,
    /// The end of the last read that found pages missing, or of the last that followed it.
    stream: AtomicU64,
}

/// Side by side: a read looks at both.
#[derive(Debug, Default)]
struct Uses {
    /// The page was read or written, and was not known to be dropped since,
    once: AtomicU64,
    /// and then once more.
    twice: AtomicU64,
}

impl Mapped {
    /// Fill `to` from `offset` on, if that is likely to be in the page cache. False: `to` may hold anything, and is to be read
    /// by an ordinary call.
    pub(crate) fn copy(&self, file: &File, to: &mut [u8], offset: u64) -> bool {
        let Some(known) = self.known() else { return false };
        self.dropping.load(Ordering::Acquire) == 0 && known.copy(file, to, offset)
    }

    /// These bytes of `file` were just read by an ordinary call, through the page cache.
    pub(crate) fn note_read(&self, file: &File, offset: u64, bytes: usize) {
        if self.known.get().is_none() {
            if !self.was_read.swap(true, Ordering::Relaxed) {
                return;
            }
            self.known.get_or_init(|| Known::of(file));
        }
        self.note_written(offset, bytes);
    }

    /// These bytes were just written through the page cache.
    pub(crate) fn note_written(&self, offset: u64, bytes: usize) {
        if let Some(known) = self.known() {
            known.note(offset, bytes);
        }
    }

    /// Whether all of `bytes` from `offset` on are in the page cache now.
    pub(crate) fn are_cached(&self, file: &File, offset: u64, bytes: u64) -> bool {
        let are_cached = are_resident(file, offset, bytes);
        if let (Some(false), Some(known)) = (are_cached, self.known()) {
            known.miss(offset, offset);
        }
        are_cached.unwrap_or(false)
    }

    /// Have `drop` drop the pages of `range`, which the system does not do while they are mapped.
    pub(crate) fn let_go(&self, file: &File, range: Range<u64>, drop: impl Fn()) {
        let Some(known) = self.known() else { return drop() };
        self.dropping.fetch_add(1, Ordering::SeqCst);
        let length = range.end.min(WINDOW_BYTES_U64).saturating_sub(range.start);
        for _ in 0..DROPS_MAX {
            known.release(range.clone());
            drop();
            if length == 0 || resident_bytes(file, range.start, length) == Some(0) {
                break;
            }
            std::thread::yield_now();
        }
        self.dropping.fetch_sub(1, Ordering::SeqCst);
    }

    /// Have `cut` make the file `length` bytes long.
    pub(crate) fn cut<R>(&self, length: u64, cut: impl FnOnce() -> R) -> R {
        let Some(known) = self.known() else { return cut() };
        self.dropping.fetch_add(1, Ordering::SeqCst);
        let result = cut();
        // A read of what was there before may have been noted until now.
        known.end.fetch_min(length, Ordering::Relaxed);
        known.release(length..u64::MAX);
        self.dropping.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Keep nothing mapped from now on.
    pub(crate) fn end(&self) {
        self.dropping.fetch_add(1, Ordering::SeqCst);
        if let Some(known) = self.known() {
            known.release(0..u64::MAX);
        }
    }

    fn known(&self) -> Option<&Known> {
        self.known.get()?.as_ref()
    }
}

impl Known {
    fn of(file: &File) -> Option<Known> {
        let window = Window::of(file)?;
        let words = page_of(WINDOW_BYTES_U64)? / WORD_PAGES;
        Some(Known {
            window,
            uses: (0..words).map(|_| Uses::default()).collect(),
            end: AtomicU64::new(0),
            stream: AtomicU64::new(NOWHERE),
        })
    }

    fn copy(&self, file: &File, to: &mut [u8], offset: u64) -> bool {
        let (Some(pages), Ok(from)) = (pages(offset, to.len()), usize::try_from(offset)) else {
            return false;
        };
        let bytes = u64::try_from(to.len()).unwrap_or(u64::MAX);
        if offset.wrapping_sub(self.stream.load(Ordering::Relaxed)) <= GAP_BYTES {
            self.stream.store(offset + bytes, Ordering::Relaxed);
            return false;
        }
        let is_known =
            |(word, mask): (usize, u64)| self.uses[word].twice.load(Ordering::Relaxed) & mask == mask;
        if offset + bytes > self.end.load(Ordering::Relaxed) || !words(pages.clone()).all(is_known) {
            return false;
        }
        if self.window.is_broken() {
            return false;
        }
        let is_ordinary = is_turn();
        if is_ordinary || pages.len() > FEW_PAGES {
            let are_resident = are_resident(file, offset, bytes);
            if are_resident == Some(false) {
                self.miss(offset, offset + bytes);
            }
            if is_ordinary || are_resident != Some(true) {
                return false;
            }
        }
        self.window.copy(to, from)
    }

    /// A page at `offset` is missing; reads that begin at `next` or soon after follow.
    fn miss(&self, offset: u64, next: u64) {
        self.forget(near(offset));
        self.stream.store(next, Ordering::Relaxed);
    }

    fn note(&self, offset: u64, bytes: usize) {
        let Some(pages) = pages(offset, bytes) else { return };
        let end = (offset + u64::try_from(bytes).unwrap_or(0)).min(WINDOW_BYTES_U64);
        if self.end.load(Ordering::Relaxed) < end {
            self.end.fetch_max(end, Ordering::Relaxed);
        }
        for (word, mask) in words(pages).take_while(|&(word, _)| word < self.uses.len()) {
            let Uses { once, twice } = &self.uses[word];
            let before = once.load(Ordering::Relaxed) & mask;
            // All that look are kept from a word that is written; most are what they are to be already.
            for (bits, more) in [(once, mask), (twice, before)] {
                if bits.load(Ordering::Relaxed) & more != more {
                    bits.fetch_or(more, Ordering::Relaxed);
                }
            }
        }
    }

    /// Keep no pages of `range` from being dropped.
    fn release(&self, range: Range<u64>) {
        let range = range.start / PAGE_BYTES * PAGE_BYTES..range.end.min(WINDOW_BYTES_U64);
        self.forget(range.clone());
        if let (Ok(from), Ok(to)) = (usize::try_from(range.start), usize::try_from(range.end)) {
            self.window.release(from..to);
        }
    }

    fn forget(&self, range: Range<u64>) {
        let Ok(bytes) = usize::try_from(range.end.saturating_sub(range.start)) else { return };
        let Some(pages) = pages(range.start, bytes) else { return };
        for (word, mask) in words(pages).take_while(|&(word, _)| word < self.uses.len()) {
            self.uses[word].once.fetch_and(!mask, Ordering::Relaxed);
            self.uses[word].twice.fetch_and(!mask, Ordering::Relaxed);
        }
    }
}

/// Whether it is an ordinary read's turn in this thread.
fn is_turn() -> bool {
    COPIES.set(COPIES.get().wrapping_add(1));
    COPIES.get().is_multiple_of(ORDINARY_OF)
}

/// The bytes around `offset` that were likely dropped when its page was.
fn near(offset: u64) -> Range<u64> {
    let from = offset / NEAR_BYTES * NEAR_BYTES;
    from..from.saturating_add(NEAR_BYTES)
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

    struct Test {
        file: File,
        mapped: Mapped,
        expected: Vec<u8>,
    }

    impl Test {
        fn filled(bytes: usize) -> Test {
            let file = tempfile::tempfile().expect("a temporary file");
            let expected: Vec<u8> = (0..bytes).map(|at| (at / 251 + at % 251).to_le_bytes()[0]).collect();
            file.write_all_at(&expected, 0).expect("written");
            COPIES.set(0);
            let mapped = Mapped::default();
            mapped.note_read(&file, 0, 0);
            mapped.note_read(&file, 0, 0);
            Test { file, mapped, expected }
        }

        fn note(&self, offset: u64, bytes: usize) {
            self.mapped.note_read(&self.file, offset, bytes);
            self.mapped.note_written(offset, bytes);
        }

        fn copy(&self, range: Range<usize>) -> Option<Vec<u8>> {
            let mut bytes = vec![0; range.len()];
            let offset = u64::try_from(range.start).expect("small");
            self.mapped.copy(&self.file, &mut bytes, offset).then_some(bytes)
        }

        fn is_copied(&self, range: Range<usize>) -> bool {
            let copied = self.copy(range.clone());
            assert!(copied.as_ref().is_none_or(|copied| *copied == self.expected[range]));
            copied.is_some()
        }

        fn drop_cache(&self) {
            rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed).expect("advised");
        }
    }

    #[test]
    fn what_was_noted_is_copied_and_nothing_else() {
        let test = Test::filled(1_000_000);
        assert!(!test.is_copied(0..10));
        test.mapped.note_written(8192, 60_000);
        assert!(!test.is_copied(8192..8193), "once is not enough");
        test.mapped.note_read(&test.file, 12_288, 65_904);
        assert!(test.is_copied(12_288..12_289) && !test.is_copied(8192..8193));
        test.note(8192, 70_000);
        for range in [8192..8193, 8200..12_000, 12_287..12_289, 70_000..78_192] {
            assert!(test.is_copied(range));
        }
        // A kernel that does not tell what is resident copies nothing long.
        let is_told = are_resident(&test.file, 8192, 70_000) == Some(true);
        assert_eq!(test.is_copied(8192..78_192), is_told);
        for range in [8191..8193, 78_191..78_193, 78_192..78_193, 0..0, 8192..8192, 8191..78_192] {
            assert!(!test.is_copied(range.clone()), "{range:?}");
        }
        // A page that was noted in part: the rest of it is no zeros.
        test.note(81_920, 4096);
        assert!(test.is_copied(79_000..79_010));
        test.note(WINDOW_BYTES_U64 - 4096, 1 << 20);
        test.note(WINDOW_BYTES_U64, 1 << 20);
        assert!(!test.is_copied(WINDOW_BYTES..WINDOW_BYTES + 1));
        assert!(!test.is_copied(WINDOW_BYTES - 1..WINDOW_BYTES + 1));
        test.mapped.let_go(&test.file, 12_288..16_384, || assert!(!test.is_copied(8192..8193), "not now"));
        assert!(!test.is_copied(12_288..12_289));
        assert!(test.is_copied(12_287..12_288) && test.is_copied(16_384..16_385));
        test.mapped.end();
        assert!(!test.is_copied(12_287..12_288));
    }

    #[test]
    fn a_file_that_is_read_once_is_not_mapped() {
        let (file, mapped) = (tempfile::tempfile().expect("a temporary file"), Mapped::default());
        mapped.note_written(0, 100);
        mapped.note_read(&file, 0, 100);
        assert!(mapped.known.get().is_none());
        mapped.note_read(&file, 0, 100);
        assert!(mapped.known().is_some());
    }

    #[test]
    fn no_zeros_come_from_behind_the_end() {
        let test = Test::filled(10_000);
        test.note(0, 10_000);
        assert!(test.is_copied(9000..10_000));
        assert_eq!(test.copy(9000..10_001), None);
        test.mapped.cut(9500, || test.file.set_len(9500)).expect("cut");
        assert_eq!(test.copy(8192..9501), None);
        test.note(8192, 9500 - 8192);
        assert!(test.is_copied(9000..9500));
        assert_eq!(test.copy(9000..9501), None);
    }

    /// As far as the system drops pages at all, and tells of it.
    #[test]
    fn what_is_let_go_of_can_be_dropped() {
        let test = Test::filled(1 << 20);
        test.file.sync_all().expect("synced");
        let is_cached = || are_resident(&test.file, 4096, 4096) == Some(true);
        test.drop_cache();
        if is_cached() || are_resident(&test.file, 0, 1 << 20).is_none() {
            return;
        }
        test.file.read_exact_at(&mut vec![0; 1 << 20], 0).expect("read");
        test.note(0, 1 << 20);
        assert!(test.is_copied(4096..8192));
        test.drop_cache();
        assert!(is_cached(), "what is mapped stays: the test tests something");
        test.mapped.let_go(&test.file, 0..u64::MAX, || test.drop_cache());
        assert!(!is_cached());
        // Who is told that something is not there makes it known.
        test.note(0, 1 << 20);
        assert!(!test.mapped.are_cached(&test.file, 4096, 4096));
        assert!(!test.is_copied(4096..4097) && !test.is_copied(9000..9001));
        // And what follows there is read as it was, until something else is.
        test.file.read_exact_at(&mut vec![0; 1 << 20], 0).expect("read");
        test.note(0, 1 << 20);
        assert!(
            !test.is_copied(9001..10_000)
                && !test.is_copied(20_000..30_000)
                && !test.is_copied(30_000..90_000)
        );
        assert!(test.is_copied(200_000..210_000) && test.is_copied(210_000..220_000));
    }

    /// Readers bring back what is dropped as fast as they can. One that the system stops in the middle of that can keep its page
    /// through all tries.
    #[test]
    fn pages_are_dropped_while_others_copy() {
        const ROUNDS: u32 = 200;
        let test = Test::filled(1 << 20);
        test.file.sync_all().expect("synced");
        test.drop_cache();
        if are_resident(&test.file, 0, 4096) != Some(false) {
            return;
        }
        let (stop, mut dropped) = (AtomicBool::new(false), 0);
        std::thread::scope(|scope| {
            for page in [3, 4, 200] {
                let (test, stop) = (&test, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        test.note(page * PAGE_BYTES, 4096);
                        let at = usize::try_from(page * PAGE_BYTES).expect("small");
                        test.is_copied(at..at + 4096);
                    }
                });
            }
            for _ in 0..ROUNDS {
                let is_dropped = AtomicBool::new(false);
                test.mapped.let_go(&test.file, 0..1 << 20, || {
                    test.drop_cache();
                    let is_gone = resident_bytes(&test.file, 0, 1 << 20) == Some(0);
                    is_dropped.fetch_or(is_gone, Ordering::Relaxed);
                });
                dropped += u32::from(is_dropped.into_inner());
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(dropped > ROUNDS * 3 / 4, "what is mapped came back in all but {dropped} rounds");
    }

    /// So that the system learns which pages are in use.
    #[test]
    fn some_reads_are_ordinary() {
        let test = Test::filled(10_000);
        test.note(0, 10_000);
        let copied = (0..1600).filter(|_| test.is_copied(4096..5000)).count();
        assert_eq!(copied, 1500);
    }
}
