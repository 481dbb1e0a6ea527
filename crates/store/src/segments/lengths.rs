//! The length at which a segment is sealed.

use std::ops::RangeInclusive;

use crate::format::checkpoint::ROWS_MAX;

/// The least and the most bytes after which a segment may be sealed.
const SEGMENT_BYTES: RangeInclusive<u64> = (64 << 10)..=(1 << 30);
/// The least number of segments of a full store. Space is freed by whole segments, and a write that waits for
/// space may wait until one was emptied.
const SEGMENTS_MIN: u64 = 64;

/// The length at which a segment is sealed, with the setting `asked` and a store of `capacity` bytes.
pub(crate) fn segment_bytes(asked: u64, capacity: u64) -> u64 {
    asked.min(capacity / SEGMENTS_MIN).clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end())
}

/// From this many segments on they become longer: a checkpoint names them all, at most [`ROWS_MAX`].
const MANY_SEGMENTS: usize = ROWS_MAX / 4;
/// The length doubles with every further group of this many segments.
const DOUBLING: usize = ROWS_MAX / 64;
/// The greatest length in bytes that a segment grows to.
const GROWN_BYTES_MAX: u64 = 1 << 30;

/// The length at which a segment is sealed, with the setting `asked` and `count` segments.
pub(crate) fn sealed_at(asked: u64, count: usize) -> u64 {
    let doublings = (count.saturating_sub(MANY_SEGMENTS) / DOUBLING).min(20);
    asked.saturating_mul(1 << doublings).min(GROWN_BYTES_MAX.max(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_many_segments() {
        let asked = 512 << 20;
        for (capacity_gib, mib) in [(1, 16), (8, 128), (32, 512), (4096, 512)] {
            assert_eq!(segment_bytes(asked, capacity_gib << 30), mib << 20, "{capacity_gib} GiB");
        }
        assert_eq!(segment_bytes(asked, 0), 64 << 10);
        assert_eq!(segment_bytes(1, u64::MAX), 64 << 10);
        assert_eq!(segment_bytes(u64::MAX, u64::MAX), 1 << 30);
    }

    #[test]
    fn segments_become_longer_before_there_are_more_than_a_checkpoint_can_name() {
        assert_eq!(sealed_at(64 << 10, MANY_SEGMENTS), 64 << 10);
        assert_eq!(sealed_at(64 << 10, MANY_SEGMENTS + DOUBLING), 128 << 10);
        assert_eq!(sealed_at(64 << 10, ROWS_MAX / 2), 1 << 30);
        assert_eq!(sealed_at(1 << 30, ROWS_MAX), 1 << 30);
    }
}
