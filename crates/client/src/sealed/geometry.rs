//! Bytes of a file and their places in sealed blocks. Pure arithmetic.
//!
//! Block number `n` holds the file's bytes from `n * 4064` on, and lies at byte `n * 4096` of what drives
//! hold. The last block is stored shortened: its head and as many bytes as it has. So sizes and stored sizes
//! follow from each other.

use std::ops::Range;

/// Bytes of a sealed block at a drive. Units are whole multiples of it.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Bytes of a block's head.
pub(crate) const HEAD_BYTES: u64 = 32;
/// The most bytes of the file that a block holds.
pub(crate) const PLAIN_BYTES: u64 = BLOCK_BYTES - HEAD_BYTES;

/// Bytes that drives hold of a file with this size.
pub(crate) fn stored_size(plain: u64) -> u64 {
    match plain % PLAIN_BYTES {
        0 => plain / PLAIN_BYTES * BLOCK_BYTES,
        rest => plain / PLAIN_BYTES * BLOCK_BYTES + HEAD_BYTES + rest,
    }
}

/// Size of a file of which drives hold so many bytes. A head without bytes behind it holds nothing.
pub(crate) fn plain_size(stored: u64) -> u64 {
    stored / BLOCK_BYTES * PLAIN_BYTES + (stored % BLOCK_BYTES).saturating_sub(HEAD_BYTES)
}

/// The blocks that hold these bytes of the file.
pub(crate) fn blocks(plain: &Range<u64>) -> Range<u64> {
    plain.start / PLAIN_BYTES..plain.end.div_ceil(PLAIN_BYTES)
}

/// The bytes of the file in these blocks.
pub(crate) fn plain_of(blocks: &Range<u64>) -> Range<u64> {
    blocks.start * PLAIN_BYTES..blocks.end * PLAIN_BYTES
}

/// The stored bytes from the first block of these bytes of the file on, up to where they end.
pub(crate) fn stored_range(plain: &Range<u64>) -> Range<u64> {
    plain.start / PLAIN_BYTES * BLOCK_BYTES..stored_size(plain.end)
}

/// The bytes of the file in the blocks that stored bytes touch.
pub(crate) fn plain_range(stored: &Range<u64>) -> Range<u64> {
    plain_of(&(stored.start / BLOCK_BYTES..stored.end.div_ceil(BLOCK_BYTES)))
}

/// A length as a number of bytes in memory.
pub(crate) fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a piece fits memory")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_at_the_edges_of_blocks() {
        for (plain, stored) in
            [(0, 0), (1, 33), (4063, 4095), (4064, 4096), (4065, 4129), (8127, 8191), (8128, 8192)]
        {
            assert_eq!((stored_size(plain), plain_size(stored)), (stored, plain));
        }
        for (stored, plain) in [(1, 0), (32, 0), (4097, 4064), (4128, 4064)] {
            assert_eq!(plain_size(stored), plain, "a head alone holds nothing");
        }
        assert_eq!(blocks(&(0..0)), 0..0);
        assert_eq!(blocks(&(4063..4065)), 0..2);
        assert_eq!(stored_range(&(5000..8128)), 4096..8192);
        assert_eq!(plain_range(&(4096..8193)), 4064..3 * 4064);
    }

    proptest! {
        #[test]
        fn sizes_and_stored_sizes_follow_from_each_other(plain in 0..u64::MAX / 4, more in 1..10_000_u64) {
            let stored = stored_size(plain);
            prop_assert_eq!(plain_size(stored), plain);
            prop_assert!(stored_size(plain + more) > stored && plain_size(stored + more) >= plain);
            prop_assert!(stored_size(plain_size(stored + more)) <= stored + more);
        }
    }
}
