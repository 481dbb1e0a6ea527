//! Recycled segments: files of freed segments, kept for new ones.
//!
//! A commit to blocks that were written before is durable when the disk has its bytes. A commit to new blocks
//! also waits for the file system's journal, which must record that the blocks are the file's: the sync then
//! takes about twice as long. So some files of freed segments are kept, and new segments reuse them. Their
//! old contents do no harm: a record names its segment, so an old record is never taken for one of the new
//! segment.
//!
//! A file is recycled only if it is not open elsewhere, and if no bytes of it were sent from the page cache:
//! the network may use these pages long after the call.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::disk::DiskFile;
use crate::mutex::Mutex;

/// The most recycled segments.
const SEGMENTS_MAX: usize = 16;
/// The recycled segments have at most the bytes that writes may take, divided by this, ...
const PART: u64 = 16;
/// ... but a single one may have those bytes divided by this.
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
    /// Returns true if one more segment of `bytes` may be kept, in addition to `coming` bytes that are about
    /// to be added, if writes may take `free`.
    pub(crate) fn wants(&self, bytes: u64, coming: u64, free: u64) -> bool {
        let segments = self.0.lock();
        let others = total(&segments).saturating_add(coming);
        let is_one = others == 0 && bytes <= free / ONE_PART;
        is_one || (segments.len() < SEGMENTS_MAX && others.saturating_add(bytes) <= free / PART)
    }

    /// Total bytes of the recycled segments.
    pub(crate) fn bytes(&self) -> u64 {
        total(&self.0.lock())
    }

    /// Add a segment whose new name is durable.
    pub(crate) fn put(&self, segment: RecycledSegment) {
        self.0.lock().push_back(segment);
    }

    /// Take the oldest segment.
    pub(crate) fn take(&self) -> Option<RecycledSegment> {
        self.0.lock().pop_front()
    }

    /// Take the newest segment if there are more than `count`.
    pub(crate) fn beyond(&self, count: usize) -> Option<RecycledSegment> {
        let mut segments = self.0.lock();
        if segments.len() > count { segments.pop_back() } else { None }
    }

    /// Take the newest segment if all together exceed their share of `free`, the bytes that writes may take.
    pub(crate) fn surplus(&self, free: u64) -> Option<RecycledSegment> {
        let mut segments = self.0.lock();
        let part = if segments.len() == 1 { ONE_PART } else { PART };
        if total(&segments) <= free / part { None } else { segments.pop_back() }
    }
}

fn total(segments: &VecDeque<RecycledSegment>) -> u64 {
    segments.iter().map(|segment| segment.bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::disk::memory::Memory;

    fn segment(bytes: u64) -> RecycledSegment {
        let name = bytes.to_string();
        let file = Memory::new(1).create(&name).expect("made");
        RecycledSegment { name, file, bytes }
    }

    #[test]
    fn there_are_few_and_they_are_a_small_part_of_what_is_free() {
        let segments = RecycledSegments::default();
        assert!(segments.wants(100, 0, 400) && !segments.wants(100, 0, 399), "one");
        assert!(segments.wants(100, 100, 3200) && !segments.wants(100, 100, 3199), "others are coming");
        segments.put(segment(100));
        segments.put(segment(200));
        assert!(segments.wants(300, 0, 9600) && !segments.wants(300, 0, 9599));
        assert_eq!(segments.bytes(), 300);
        assert!(segments.surplus(4800).is_none(), "as many as there may be");
        assert_eq!(
            segments.surplus(4799).map(|segment| segment.bytes),
            Some(200),
            "the last is the first to go"
        );
        assert!(segments.surplus(400).is_none());
        assert_eq!(segments.surplus(399).map(|segment| segment.bytes), Some(100), "not even one");
        segments.put(segment(100));
        segments.put(segment(50));
        assert_eq!(
            segments.take().map(|segment| segment.bytes),
            Some(100),
            "the first is the first to be used"
        );
        assert_eq!(segments.take().map(|segment| segment.bytes), Some(50));
        assert!(segments.take().is_none() && segments.surplus(0).is_none());
        (0..SEGMENTS_MAX).for_each(|_| segments.put(segment(1)));
        assert!(!segments.wants(1, 0, u64::MAX));
    }
}
