//! A cache of the headers of recently read records: a read of a small part of a large record needs its
//! checksums, and would otherwise read and verify the whole header each time.
//!
//! A position in the log holds one record for as long as anything refers to it, and segment numbers are never
//! reused, so entries never become stale. They can hide that the medium has lost a header since: reads that
//! look for damage bypass the cache.

use std::ops::Range;

use crate::crc::{BLOCK_BYTES, crc32c};
use crate::error::Error;
use crate::format::extent::Extent;
use crate::index::extent::Few;
use crate::mutex::Mutex;

/// The number of headers kept.
const SLOTS: usize = 4096;
/// The number of locks.
const SHARDS: usize = 64;
/// Longer lists of checksums (units above 2 MiB) are not kept, which bounds the cache to 9 MiB.
const CRCS_MAX: usize = 512;

/// The part of a record's header that a read needs, except the checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CachedHeader {
    /// The record's segment.
    pub(crate) segment: u32,
    /// The record's block in the segment.
    pub(crate) block: u32,
    /// Byte offset of the payload in the segment's file.
    pub(crate) payload_offset: u64,
    /// The unit range of the payload.
    pub(crate) payload: Range<u32>,
}

impl CachedHeader {
    /// File offset of the unit's byte `at`.
    pub(crate) fn offset_of(&self, at: u32) -> u64 {
        self.payload_offset + u64::from(at - self.payload.start)
    }

    /// The stored block that holds the unit's byte `at`. It is shorter than 4 KiB at its record's ends.
    pub(crate) fn stored_block(&self, at: u32) -> Range<u32> {
        let from = at / BLOCK_BYTES * BLOCK_BYTES;
        from.max(self.payload.start)..from.saturating_add(BLOCK_BYTES).min(self.payload.end)
    }

    /// The stored blocks that hold the unit's `range`.
    pub(crate) fn stored_blocks(&self, range: &Range<u32>) -> Range<u32> {
        self.stored_block(range.start).start..self.stored_block(range.end - 1).end
    }

    /// The indexes of the record's checksums of the stored blocks that hold the unit's `range`.
    pub(crate) fn crcs_of(&self, range: &Range<u32>) -> Range<usize> {
        let first = self.payload.start / BLOCK_BYTES;
        let index = |at: u32| usize::try_from(at / BLOCK_BYTES - first).expect("at most 16385");
        index(range.start)..index(range.end - 1) + 1
    }

    /// Checks that `bytes`, the stored block that begins at the unit's byte `at`, have the checksum `crc`.
    pub(crate) fn verify(&self, at: u32, bytes: &[u8], crc: u32) -> Result<(), Error> {
        if crc32c(bytes) == crc {
            return Ok(());
        }
        Err(Error::Damaged {
            segment: u64::from(self.segment),
            offset: self.offset_of(at),
            what: "a stored block does not match its checksum",
        })
    }
}

/// The cached headers. A record's position determines its slot, and a newer header replaces the older one.
/// The slots are in shards, so that readers on different cores seldom wait for each other.
#[derive(Debug)]
pub(crate) struct HeaderCache(Vec<Mutex<Vec<Option<Cached>>>>);

/// A header, and the checksums of all its blocks.
type Cached = (CachedHeader, Box<[u32]>);

impl Default for HeaderCache {
    fn default() -> Self {
        HeaderCache((0..SHARDS).map(|_| Mutex::new(vec![None; SLOTS / SHARDS])).collect())
    }
}

impl HeaderCache {
    /// The header of the record that `extent` lies in, and the checksums of the stored blocks that hold the
    /// unit's `range`, a part of the extent. `None` if they are not cached.
    pub(crate) fn find(&self, extent: &Extent, range: &Range<u32>) -> Option<(CachedHeader, Few<u32>)> {
        let (shard, slot) = slot(extent.segment, extent.block);
        let shard = self.0[shard].lock();
        let (header, crcs) = shard[slot].as_ref()?;
        let is_it = (header.segment, header.block) == (extent.segment, extent.block)
            && header.payload.start <= extent.from
            && extent.to <= header.payload.end;
        is_it.then(|| (header.clone(), Few::from_slice(&crcs[header.crcs_of(range)])))
    }

    /// Keep a verified header with all of its checksums.
    pub(crate) fn keep(&self, header: &CachedHeader, crcs: &[u32]) {
        // Damage may leave a record with fewer checksums than blocks.
        if crcs.len() <= CRCS_MAX && crcs.len() == header.crcs_of(&header.payload).len() {
            let (shard, slot) = slot(header.segment, header.block);
            self.0[shard].lock()[slot] = Some((header.clone(), crcs.into()));
        }
    }
}

/// The shard and the slot in it. Records of one size have evenly spaced positions: the upper bits of a
/// product spread them.
fn slot(segment: u32, block: u32) -> (usize, usize) {
    let position = u64::from(segment) << 32 | u64::from(block);
    let spread = position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let slot = usize::try_from(spread).expect("32 bits") % SLOTS;
    (slot % SHARDS, slot / SHARDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Range<u32> = 100..200;

    fn header(segment: u32, block: u32) -> CachedHeader {
        CachedHeader { segment, block, payload_offset: 5000, payload: RANGE }
    }

    fn extent(segment: u32, block: u32) -> Extent {
        Extent { from: 100, to: 200, segment, block }
    }

    #[test]
    fn what_is_kept_is_found_under_its_own_place_only() {
        let headers = HeaderCache::default();
        for block in 0..10_000 {
            headers.keep(&header(3, block), &[block + 7]);
        }
        let find = |block| headers.find(&extent(3, block), &RANGE);
        let found: Vec<u32> = (0..10_000).filter(|&block| find(block).is_some()).collect();
        assert!(found.len() <= SLOTS, "{}", found.len());
        assert!(found.len() > SLOTS / 2, "the places are not spread: {}", found.len());
        assert_eq!(find(9999), Some((header(3, 9999), Few::from_slice(&[10_006]))), "the newest stays");
        assert!(headers.find(&extent(4, 9999), &RANGE).is_none());
        for (from, to) in [(99, 200), (100, 201)] {
            let other = Extent { from, to, ..extent(3, 9999) };
            assert!(headers.find(&other, &RANGE).is_none(), "it is not all there");
        }
    }

    #[test]
    fn checksums_are_those_of_the_blocks_asked_for() {
        let headers = HeaderCache::default();
        let crcs: Vec<u32> = (1..=u32::try_from(CRCS_MAX).expect("small")).collect();
        // Blocks 500 to 1011 of a unit.
        let payload = 500 * BLOCK_BYTES + 9..1012 * BLOCK_BYTES - 9;
        let long = CachedHeader { payload: payload.clone(), ..header(1, 1) };
        let extent = Extent { from: payload.start, to: payload.end, ..extent(1, 1) };
        headers.keep(&long, &crcs);
        for (from, to) in [(0, 512), (0, 1), (11, 12), (12, 13), (511, 512), (5, 400)] {
            let at = |block: u32| (500 + block) * BLOCK_BYTES;
            for range in [at(from)..at(to), at(from) + 10..at(to) - 10] {
                let range = range.start.max(payload.start)..range.end.min(payload.end);
                let (found, some) = headers.find(&extent, &range).expect("kept");
                let all = long.crcs_of(&range);
                assert_eq!((&found, &some[..]), (&long, &crcs[all.clone()]), "{range:?}");
                assert_eq!((all.start, all.end), (from as usize, to as usize));
            }
        }
    }

    #[test]
    fn the_longest_are_not_kept() {
        for (blocks, is_kept) in [(CRCS_MAX, true), (CRCS_MAX + 1, false)] {
            let headers = HeaderCache::default();
            let payload = 0..u32::try_from(blocks).expect("small") * BLOCK_BYTES;
            headers.keep(&CachedHeader { payload: payload.clone(), ..header(1, 1) }, &vec![7; blocks]);
            let extent = Extent { from: 0, to: payload.end, ..extent(1, 1) };
            assert_eq!(headers.find(&extent, &RANGE).is_some(), is_kept, "{blocks}");
        }
    }

    #[test]
    fn blocks_are_those_that_are_stored() {
        let header = CachedHeader { payload: 1000..9000, ..header(1, 1) };
        for (at, block) in [(1000, 1000..4096), (4096, 4096..8192), (8191, 4096..8192), (8999, 8192..9000)] {
            assert_eq!(header.stored_block(at), block);
        }
        for (range, blocks, crcs) in [
            (1000..9000, 1000..9000, 0..3),
            (1000..4096, 1000..4096, 0..1),
            (4096..9000, 4096..9000, 1..3),
            (1001..4096, 1000..4096, 0..1),
            (4095..4097, 1000..8192, 0..2),
            (4097..8192, 4096..8192, 1..2),
        ] {
            assert_eq!((header.stored_blocks(&range), header.crcs_of(&range)), (blocks, crcs), "{range:?}");
        }
    }
}
