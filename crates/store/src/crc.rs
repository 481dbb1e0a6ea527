//! CRC32C (Castagnoli, RFC 3720) of headers and of a unit's 4 KiB blocks.
//!
//! Blocks are cut at multiples of [`BLOCK_BYTES`] of the *unit's* offset, so that a block keeps one checksum
//! from the client's buffer to the log and back. The wire uses the same rule, in code of its own.

use std::ops::Range;

/// Bytes per checksummed block.
pub const BLOCK_BYTES: u32 = 4096;

/// CRC32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(crc).expect("a CRC32C has 32 bits")
}

/// CRC32C of the concatenation of `pieces`.
pub(crate) fn crc32c_of(pieces: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    pieces.iter().for_each(|piece| digest.update(piece));
    u32::try_from(digest.finalize()).expect("a CRC32C has 32 bits")
}

/// The unit ranges of the blocks of `range`. The first and the last may be short.
pub(crate) fn blocks(range: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let from = at;
        at = (at / BLOCK_BYTES + 1).saturating_mul(BLOCK_BYTES).min(range.end);
        Some(from..at)
    })
}

/// Number of blocks in the unit range `from..to`.
pub fn block_count(from: u32, to: u32) -> u32 {
    if from >= to { 0 } else { to.div_ceil(BLOCK_BYTES) - from / BLOCK_BYTES }
}

/// The checksum of each block of `bytes`, which begin at `from` in their unit.
pub fn block_crcs(from: u32, bytes: &[u8]) -> Vec<u32> {
    let length = u32::try_from(bytes.len()).expect("a unit is at most 64 MiB");
    let mut rest = bytes;
    blocks(from..from + length)
        .map(|block| {
            let (head, tail) = rest.split_at(block.len());
            rest = tail;
            crc32c(head)
        })
        .collect()
}

/// Checks that `crcs` are the checksums of `bytes`, which begin at `from` in their unit. The error is the
/// unit offset of the first block that differs.
pub(crate) fn verify_blocks(from: u32, bytes: &[u8], crcs: &[u32]) -> Result<(), u32> {
    let Ok(length) = u32::try_from(bytes.len()) else { return Err(from) };
    let Some(to) = from.checked_add(length) else { return Err(from) };
    if crcs.len() != usize::try_from(block_count(from, to)).unwrap_or(usize::MAX) {
        return Err(from);
    }
    let mut rest = bytes;
    for (block, &crc) in blocks(from..to).zip(crcs) {
        let (head, tail) = rest.split_at(block.len());
        if crc32c(head) != crc {
            return Err(block.start);
        }
        rest = tail;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_an_independent_implementation() {
        let bytes: Vec<u8> = (0..70_000_u32).map(|i| (i * 31 % 251).to_le_bytes()[0]).collect();
        for length in [0, 1, 3, 255, 4096, 65_535, 70_000] {
            assert_eq!(crc32c(&bytes[..length]), ::crc32c::crc32c(&bytes[..length]), "{length} bytes");
        }
        assert_eq!(crc32c(b"123456789"), 0xe306_9283, "the check value of RFC 3720's polynomial");
    }

    #[test]
    fn blocks_are_cut_at_the_units_offsets() {
        let cut: Vec<_> = blocks(4000..12_289).collect();
        assert_eq!(cut, [4000..4096, 4096..8192, 8192..12_288, 12_288..12_289]);
        assert_eq!(block_count(4000, 12_289), 4);
        assert_eq!(block_count(5, 5), 0);
    }

    #[test]
    fn a_changed_block_is_named() {
        let mut bytes = vec![7; 10_000];
        let crcs = block_crcs(100, &bytes);
        assert_eq!(verify_blocks(100, &bytes, &crcs), Ok(()));
        bytes[5000] ^= 1;
        assert_eq!(verify_blocks(100, &bytes, &crcs), Err(4096));
        assert_eq!(verify_blocks(100, &bytes, &crcs[1..]), Err(100));
    }
}
