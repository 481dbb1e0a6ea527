//! Headers of records that were read lately: a read of a small part of a large record needs its checksums, and would
//! read and verify the whole header each time.
//!
//! A place in the log holds one record for as long as anything refers to it, and a segment's number is never given
//! again, so what is kept here cannot grow old. It can hide that the medium has lost a header since: whoever looks for
//! damage reads past it.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::crc::BLOCK_BYTES;
use crate::index::extent::Extent;
use crate::part::Few;

/// Headers kept.
const PLACES: usize = 4096;
/// Longer lists of checksums (units above 2 MiB) are not kept, so that all of them are 8 MiB at most.
const CRCS_MAX: usize = 512;

/// What a read needs of a record's header.
#[derive(Debug)]
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

/// The headers kept, each in the one slot that its place falls on: the newer takes the older's.
#[derive(Debug)]
pub(crate) struct Headers {
    slots: Vec<Mutex<Option<Arc<Header>>>>,
}

impl Default for Headers {
    fn default() -> Self {
        Headers { slots: (0..PLACES).map(|_| Mutex::default()).collect() }
    }
}

impl Headers {
    /// The header of the record at this place, if it is kept.
    pub(crate) fn find(&self, segment: u32, block: u32) -> Option<Arc<Header>> {
        let slot = self.slot(segment, block).lock().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().filter(|header| (header.segment, header.block) == (segment, block)).map(Arc::clone)
    }

    /// Where `extent` lies in its file, and its checksums, if the header is kept and each of the blocks is one that is stored:
    /// what most reads need, without a second holder of the header.
    pub(crate) fn locate(&self, extent: &Extent) -> Option<(u64, Few<u32>)> {
        let slot = self.slot(extent.segment, extent.block).lock().unwrap_or_else(PoisonError::into_inner);
        let header = slot.as_ref()?;
        if (header.segment, header.block) != (extent.segment, extent.block) {
            return None;
        }
        let Range { start, end } = header.payload;
        let begins = extent.from == start || (extent.from > start && extent.from.is_multiple_of(BLOCK_BYTES));
        let ends = extent.to == end || (extent.to < end && extent.to.is_multiple_of(BLOCK_BYTES));
        if !begins || !ends {
            return None;
        }
        let block = |at: u32| usize::try_from(at / BLOCK_BYTES - start / BLOCK_BYTES).expect("at most 16385");
        let crcs = header.crcs.get(block(extent.from)..=block(extent.to - 1))?;
        Some((header.payload_offset + u64::from(extent.from - start), crcs.into()))
    }

    /// Keep a header that was read and verified.
    pub(crate) fn keep(&self, header: &Arc<Header>) {
        if header.crcs.len() <= CRCS_MAX {
            let slot = self.slot(header.segment, header.block);
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(header));
        }
    }

    /// Places of records of one size follow each other at one distance: the upper bits of a product spread them.
    fn slot(&self, segment: u32, block: u32) -> &Mutex<Option<Arc<Header>>> {
        let place = u64::from(segment) << 32 | u64::from(block);
        let spread = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.slots[usize::try_from(spread).expect("32 bits") % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(segment: u32, block: u32, crcs: usize) -> Arc<Header> {
        Arc::new(Header { segment, block, payload_offset: 0, payload: 0..1, crcs: vec![7; crcs] })
    }

    #[test]
    fn what_is_kept_is_found_under_its_own_place_only() {
        let headers = Headers::default();
        for block in 0..10_000 {
            headers.keep(&header(3, block, 1));
        }
        let found: Vec<u32> =
            (0..10_000).filter_map(|block| headers.find(3, block)).map(|header| header.block).collect();
        assert!(found.is_sorted() && found.len() <= PLACES, "{}", found.len());
        assert!(found.len() > PLACES / 2, "the places are not spread: {}", found.len());
        assert_eq!(found.last(), Some(&9999), "the newest stays");
        assert!(headers.find(4, 9999).is_none());
    }

    #[test]
    fn the_largest_are_not_kept() {
        let headers = Headers::default();
        headers.keep(&header(1, 1, CRCS_MAX + 1));
        assert!(headers.find(1, 1).is_none());
    }
}
