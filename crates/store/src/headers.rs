//! Headers of records that were read lately: a read of a small part of a large record needs its checksums, and would
//! read and verify the whole header each time.
//!
//! A place in the log holds one record for as long as anything refers to it, and a segment's number is never given
//! again, so what is kept here cannot grow old. It can hide that the medium has lost a header since: whoever looks for
//! damage reads past it.

use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::crc::{BLOCK_BYTES, crc32c};
use crate::error::Error;
use crate::index::extent::Extent;
use crate::seen::Seen;

/// Headers kept.
const PLACES: usize = 4096;
/// Longer lists of checksums (units above 2 MiB) are not kept, so that all of them are 8 MiB at most.
const CRCS_MAX: usize = 512;

/// What a read needs of a record's header.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    /// Where the record is.
    pub(crate) segment: u32,
    /// And at which of its blocks.
    pub(crate) block: u32,
    /// Where the payload begins in the file.
    pub(crate) payload_offset: u64,
    /// The unit range of the payload.
    pub(crate) payload: Range<u32>,
    /// The checksums of the payload's blocks.
    pub(crate) crcs: Vec<u32>,
}

impl Header {
    /// Where the unit's byte `at` lies in the file.
    pub(crate) fn offset_of(&self, at: u32) -> u64 {
        self.payload_offset + u64::from(at - self.payload.start)
    }

    /// The stored block that holds the unit's byte `at`: shorter than 4 KiB at its record's ends.
    pub(crate) fn stored_block(&self, at: u32) -> Range<u32> {
        let from = at / BLOCK_BYTES * BLOCK_BYTES;
        from.max(self.payload.start)..from.saturating_add(BLOCK_BYTES).min(self.payload.end)
    }

    /// The stored blocks that hold the unit's `range`.
    pub(crate) fn stored_blocks(&self, range: &Range<u32>) -> Range<u32> {
        self.stored_block(range.start).start..self.stored_block(range.end - 1).end
    }

    /// Whether `bytes` are the stored block that begins at the unit's byte `at`.
    pub(crate) fn verify(&self, at: u32, bytes: &[u8]) -> Result<(), Error> {
        if crc32c(bytes) == self.crcs[self.index_of(at)] {
            return Ok(());
        }
        Err(Error::Damaged {
            segment: u64::from(self.segment),
            offset: self.offset_of(at),
            what: "a stored block does not match its checksum",
        })
    }

    /// Which blocks the unit's `range` is, if each of them is one that is stored: what most reads need.
    pub(crate) fn whole_blocks(&self, range: &Range<u32>) -> Option<Range<usize>> {
        let is_whole = self.stored_blocks(range) == *range;
        is_whole.then(|| self.index_of(range.start)..self.index_of(range.end - 1) + 1)
    }

    /// Which block holds the unit's byte `at`.
    fn index_of(&self, at: u32) -> usize {
        usize::try_from(at / BLOCK_BYTES - self.payload.start / BLOCK_BYTES).expect("at most 16385")
    }
}

/// The headers kept, each in the one slot that its place falls on: the newer takes the older's.
#[derive(Debug)]
pub(crate) struct Headers {
    slots: Vec<ArcSwapOption<Header>>,
}

impl Default for Headers {
    fn default() -> Self {
        Headers { slots: (0..PLACES).map(|_| ArcSwapOption::empty()).collect() }
    }
}

impl Headers {
    /// The header of the record that `extent` lies in, if it is kept.
    pub(crate) fn find(&self, extent: &Extent) -> Option<Seen<Header>> {
        let &Extent { from, to, segment, block } = extent;
        Seen::of(self.slot(segment, block), |header| {
            let Range { start, end } = header.payload;
            (header.segment, header.block) == (segment, block) && start <= from && to <= end
        })
    }

    /// Keep a header that was read and verified.
    pub(crate) fn keep(&self, header: &Arc<Header>) {
        if header.crcs.len() <= CRCS_MAX {
            let slot = self.slot(header.segment, header.block);
            slot.store(Some(Arc::clone(header)));
        }
    }

    /// Places of records of one size follow each other at one distance: the upper bits of a product spread them.
    fn slot(&self, segment: u32, block: u32) -> &ArcSwapOption<Header> {
        let place = u64::from(segment) << 32 | u64::from(block);
        let spread = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.slots[usize::try_from(spread).expect("32 bits") % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(segment: u32, block: u32, crcs: usize) -> Arc<Header> {
        Arc::new(Header { segment, block, payload_offset: 0, payload: 100..200, crcs: vec![7; crcs] })
    }

    fn extent(segment: u32, block: u32) -> Extent {
        Extent { from: 100, to: 200, segment, block }
    }

    #[test]
    fn what_is_kept_is_found_under_its_own_place_only() {
        let headers = Headers::default();
        for block in 0..10_000 {
            headers.keep(&header(3, block, 1));
        }
        let find = |block| headers.find(&extent(3, block));
        let found: Vec<u32> = (0..10_000).filter_map(find).map(|header| header.block).collect();
        assert!(found.is_sorted() && found.len() <= PLACES, "{}", found.len());
        assert!(found.len() > PLACES / 2, "the places are not spread: {}", found.len());
        assert_eq!(found.last(), Some(&9999), "the newest stays");
        assert!(headers.find(&extent(4, 9999)).is_none());
        for (from, to) in [(99, 200), (100, 201)] {
            assert!(headers.find(&Extent { from, to, ..extent(3, 9999) }).is_none(), "it is not all there");
        }
    }

    #[test]
    fn the_largest_are_not_kept() {
        let headers = Headers::default();
        headers.keep(&header(1, 1, CRCS_MAX + 1));
        assert!(headers.find(&extent(1, 1)).is_none());
    }

    #[test]
    fn blocks_are_those_that_are_stored() {
        let header = Header { payload: 1000..9000, ..Arc::unwrap_or_clone(header(1, 1, 3)) };
        for (at, block) in [(1000, 1000..4096), (4096, 4096..8192), (8191, 4096..8192), (8999, 8192..9000)] {
            assert_eq!(header.stored_block(at), block);
        }
        for (range, blocks) in [
            (1000..9000, Some(0..3)),
            (1000..4096, Some(0..1)),
            (4096..9000, Some(1..3)),
            (1001..4096, None),
            (4096..8999, None),
            (4097..8192, None),
        ] {
            assert_eq!(header.whole_blocks(&range), blocks, "{range:?}");
        }
    }
}
