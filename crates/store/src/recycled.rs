//! Recycled segments: files of freed segments, kept for new ones.
//!
//! A commit to blocks that were written before is durable when the disk has its bytes. A commit to new blocks
//! also waits for the file system's journal, which must record that the blocks are the file's: the sync then
//! takes about twice as long. So some files of freed segments are kept, and new segments reuse them. Their
//! old contents do no harm: a record names its segment, so an old record is never taken for one of the new
//! segment.
//!
//! A file is recycled only if nobody else has it open, and if no bytes of it were sent from the page cache:
//! the network may use these pages long after the call.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::disk::DiskFile;
use crate::mutex::Mutex;

/// The most recycled segments.
const SPARES_MAX: usize = 16;
/// Their total is at most this part of the bytes that writes may take, ...
const SPARE_PART: u64 = 16;
/// ... but a single one may have this part.
const ONE_PART: u64 = 4;

/// A file of a freed segment, for reuse.
#[derive(Debug)]
pub(crate) struct RecycledSegment {
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) bytes: u64,
}

/// All recycled segments, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RecycledSegments(Mutex<VecDeque<RecycledSegment>>);

impl RecycledSegments {
    /// Whether one more of `bytes` may be kept, in addition to `coming` bytes that are about to be added, if
    /// writes may take `free`.
    pub(crate) fn wants(&self, bytes: u64, coming: u64, free: u64) -> bool {
        let spares = self.0.lock();
        let others = total(&spares).saturating_add(coming);
        let is_one = others == 0 && bytes <= free / ONE_PART;
        is_one || (spares.len() < SPARES_MAX && others.saturating_add(bytes) <= free / SPARE_PART)
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> u64 {
        total(&self.0.lock())
    }

    /// Add one whose name is durable.
    pub(crate) fn put(&self, spare: RecycledSegment) {
        self.0.lock().push_back(spare);
    }

    /// Take the oldest.
    pub(crate) fn take(&self) -> Option<RecycledSegment> {
        self.0.lock().pop_front()
    }

    /// Take the newest if there are more than `count`.
    pub(crate) fn beyond(&self, count: usize) -> Option<RecycledSegment> {
        let mut spares = self.0.lock();
        if spares.len() > count { spares.pop_back() } else { None }
    }

    /// Take the newest if they exceed their share of `free`, the bytes that writes may take.
    pub(crate) fn surplus(&self, free: u64) -> Option<RecycledSegment> {
        let mut spares = self.0.lock();
        let part = if spares.len() == 1 { ONE_PART } else { SPARE_PART };
        if total(&spares) <= free / part { None } else { spares.pop_back() }
    }
}

fn total(spares: &VecDeque<RecycledSegment>) -> u64 {
    spares.iter().map(|spare| spare.bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::disk::memory::Memory;

    fn spare(bytes: u64) -> RecycledSegment {
        let name = bytes.to_string();
        let file = Memory::new(1).create(&name).expect("made");
        RecycledSegment { name, file, bytes }
    }

    #[test]
    fn there_are_few_and_they_are_a_small_part_of_what_is_free() {
        let spares = RecycledSegments::default();
        assert!(spares.wants(100, 0, 400) && !spares.wants(100, 0, 399), "one");
        assert!(spares.wants(100, 100, 3200) && !spares.wants(100, 100, 3199), "others are coming");
        spares.put(spare(100));
        spares.put(spare(200));
        assert!(spares.wants(300, 0, 9600) && !spares.wants(300, 0, 9599));
        assert_eq!(spares.bytes(), 300);
        assert!(spares.surplus(4800).is_none(), "as many as there may be");
        assert_eq!(spares.surplus(4799).map(|spare| spare.bytes), Some(200), "the last is the first to go");
        assert!(spares.surplus(400).is_none());
        assert_eq!(spares.surplus(399).map(|spare| spare.bytes), Some(100), "not even one");
        spares.put(spare(100));
        spares.put(spare(50));
        assert_eq!(spares.take().map(|spare| spare.bytes), Some(100), "the first is the first to be used");
        assert_eq!(spares.take().map(|spare| spare.bytes), Some(50));
        assert!(spares.take().is_none() && spares.surplus(0).is_none());
        (0..SPARES_MAX).for_each(|_| spares.put(spare(1)));
        assert!(!spares.wants(1, 0, u64::MAX));
    }
}
