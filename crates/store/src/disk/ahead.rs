//! Streams of long reads, kept ahead of by the system.
//!
//! Linux reads ahead in windows and marks a page of each, in a stream that goes on the first: when that is read, it asks the medium
//! for the next window (`mm/readahead.c`). A reader comes to the mark when it has read a whole window of what the medium gave last,
//! and if the medium had no more to do it has waited since. So the marked page is looked at a window earlier: the system then is up
//! to three windows ahead.

use std::fs::{self, File};
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::{ReadWriteFlags, preadv2};

use super::residency::resident_bytes;

/// A read that begins so soon after the one before follows it: a record's header that is known already lies between.
const GAP_BYTES: u64 = 4096;
/// Reads of at least so many bytes may be those of a stream.
const LONG_BYTES: u64 = 64 << 10;
/// So often in a window it is asked how far the system is: to ask may take a while where the cache has small pages.
const LOOKS: u64 = 4;
/// A system that reads ahead by more is far enough ahead.
const WINDOW_BYTES_MAX: u64 = 32 << 20;
/// No read follows this.
const NOWHERE: u64 = u64::MAX / 2;

/// The long reads of an open file.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The end of the last.
    end: AtomicU64,
    /// From here on it is time to look again.
    next_look: AtomicU64,
}

impl Default for Stream {
    fn default() -> Self {
        Stream { end: AtomicU64::new(NOWHERE), next_look: AtomicU64::new(0) }
    }
}

impl Stream {
    /// `bytes` from `offset` on are about to be read from `file`, for which the system reads `window` bytes ahead (0: unknown).
    /// Advice: it cannot fail.
    pub(crate) fn next(&self, file: &File, offset: u64, bytes: usize, window: u64) {
        if !self.is_look(offset, u64::try_from(bytes).unwrap_or(u64::MAX), window) {
            return;
        }
        let behind = offset.saturating_add(window);
        // What the system has asked for of the window behind this one; if of more, it needs nothing. The last window that it asked for
        // ends there.
        let asked = resident_bytes(file, behind, window + 1).unwrap_or(0);
        let mark = offset.saturating_add(asked);
        // What is not there would be read from there on, and not what comes before.
        if (1..=window).contains(&asked)
            && resident_bytes(file, mark, window).is_some_and(|all| all >= window)
        {
            let mut byte = [0];
            let _ = preadv2(file, &mut [IoSliceMut::new(&mut byte)], mark, ReadWriteFlags::NOWAIT);
        }
    }

    /// Whether the read goes on with a stream that is worth a look now.
    fn is_look(&self, offset: u64, bytes: u64, window: u64) -> bool {
        if !(LONG_BYTES..window).contains(&bytes) {
            return false;
        }
        let end = self.end.load(Ordering::Relaxed);
        self.end.store(offset.saturating_add(bytes), Ordering::Relaxed);
        let follows = offset.wrapping_sub(end) <= GAP_BYTES;
        let is_look = follows && offset >= self.next_look.load(Ordering::Relaxed);
        if is_look || !follows {
            self.next_look.store(offset.saturating_add(window / LOOKS), Ordering::Relaxed);
        }
        is_look
    }
}

/// How many bytes the system reads ahead at most on the disk of `file`; 0 where it does not tell, as of what is no disk, and where
/// it is so much that it needs no help.
pub(crate) fn window_bytes(file: &File) -> u64 {
    let Ok(stat) = rustix::fs::fstat(file) else { return 0 };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    // A partition's is its disk's, one directory above.
    let kib = ["queue", "../queue"].into_iter().find_map(|queue| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/read_ahead_kb");
        fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    });
    kib.and_then(|kib| kib.checked_mul(1024)).filter(|&bytes| bytes <= WINDOW_BYTES_MAX).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use rustix::fs::{Advice, fadvise};

    use super::super::DiskFile;
    use super::super::system::{Means, SystemFile};
    use super::*;

    /// Read the file at `path`, of which nothing is cached, in long reads `gap` bytes apart, as where the system is known to
    /// read `told` bytes ahead; how many KiB were cached ahead of each, in all.
    fn cached_ahead(path: &Path, gap: u64, window: u64, told: u64) -> u64 {
        // The system keeps with an open file what was read through it.
        let file = File::open(path).expect("opened");
        let length = file.metadata().expect("there").len();
        let cached = |from| resident_bytes(&file, from, length).unwrap_or(0);
        // What is read ahead just now cannot be dropped yet.
        let dropped = (0..10_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            fadvise(&file, 0, None, Advice::DontNeed).expect("dropped");
            cached(0) == 0
        });
        assert!(dropped, "the cache keeps the file");
        let system = File::open(path).expect("opened");
        let system = SystemFile::new(system, None, Arc::new(Means::new(None, told)));
        let mut to = vec![0; usize::try_from(LONG_BYTES).expect("memory")];
        let (mut at, mut sum) = (gap, 0);
        while at + 4 * window < length {
            assert_eq!(system.read_at(&mut to, at).expect("read"), to.len());
            at += LONG_BYTES;
            sum += cached(at) >> 10;
            at += gap;
        }
        sum
    }

    #[test]
    fn the_next_window_is_asked_for_a_window_earlier() {
        let file = tempfile::NamedTempFile::new_in(".").expect("a file");
        let window = window_bytes(file.as_file());
        if !(1 << 20..=16 << 20).contains(&window) {
            println!(
                "here {window} bytes are read ahead: no test of windows that are longer than reads, and not too long"
            );
            return;
        }
        file.as_file().set_len(window * 10).expect("lengthened");
        let some = vec![7; usize::try_from(window).expect("memory")];
        (0..10).for_each(|part| file.as_file().write_all_at(&some, part * window).expect("written"));
        file.as_file().sync_all().expect("synced");
        for gap in [0, GAP_BYTES] {
            let plain = cached_ahead(file.path(), gap, window, 0);
            if plain == 0 {
                println!("here it cannot be seen what is read ahead");
                return;
            }
            let early = cached_ahead(file.path(), gap, window, window);
            println!("gap {gap}: {plain} {early}");
            assert!(early > plain + plain / 4, "gap {gap}: {early} KiB after {plain} KiB");
        }
    }

    #[test]
    fn a_stream_is_looked_at_so_often_in_a_window() {
        const WINDOW: u64 = 8 << 20;
        const UNIT: u64 = 512 << 10;
        let looks = |step: u64, bytes: u64| {
            let stream = Stream::default();
            (0..100).filter(|read| stream.is_look(read * step, bytes, WINDOW)).count()
        };
        // 50 MiB are 25 quarters of windows, and the first read follows none.
        assert_eq!(looks(UNIT, UNIT), 24);
        assert_eq!(looks(UNIT + GAP_BYTES, UNIT), 24);
        assert_eq!(looks(UNIT + GAP_BYTES + 1, UNIT), 0, "no stream");
        assert_eq!(looks(UNIT - 1, UNIT), 0, "no stream");
        assert_eq!(looks(LONG_BYTES - 1, LONG_BYTES - 1), 0, "too short");
        assert_eq!(looks(WINDOW, WINDOW), 0, "as long as a window");
        let stream = Stream::default();
        let read = |at| stream.is_look(at, UNIT, WINDOW);
        let there = [0, 4, 8, 12].map(|units| read(units * UNIT));
        assert_eq!(there, [false; 4], "reads here and there");
        assert!((13..=16).any(|unit| read(unit * UNIT)), "a stream begins anywhere");
    }
}
