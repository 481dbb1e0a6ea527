//! CRC32C (Castagnoli, as iSCSI uses it, RFC 3720) of bodies, headers and the 4 KiB blocks of a unit.

/// Length of a checksummed block, in bytes. Blocks are cut at multiples of this length, counted from the
/// start of the *unit*, so that one block has one checksum from the client's buffer to the drive's log and
/// back.
pub const BLOCK_BYTES: u32 = 4096;

/// Computes the CRC32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(crc).expect("a CRC32C has 32 bits")
}

/// A CRC32C that is computed over bytes that arrive in pieces.
#[derive(Debug)]
pub struct RunningCrc(crc_fast::Digest);

impl RunningCrc {
    /// Starts with the checksum of no bytes.
    #[expect(clippy::new_without_default, reason = "there is nothing default about it")]
    pub fn new() -> RunningCrc {
        RunningCrc(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds `bytes` to the checksum.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn value(&self) -> u32 {
        u32::try_from(self.0.clone().finalize()).expect("a CRC32C has 32 bits")
    }
}

/// The lengths of the blocks of the unit range `from..to`: the first and the last may be short.
pub fn block_lengths(from: u32, to: u32) -> impl Iterator<Item = usize> {
    let mut at = from;
    std::iter::from_fn(move || {
        if at >= to {
            return None;
        }
        let next = ((at / BLOCK_BYTES + 1) * BLOCK_BYTES).min(to);
        let length = next - at;
        at = next;
        Some(usize::try_from(length).expect("a block is 4 KiB"))
    })
}

/// Number of blocks in the unit range `from..to`.
pub fn block_count(from: u32, to: u32) -> usize {
    if from >= to {
        return 0;
    }
    usize::try_from(to.div_ceil(BLOCK_BYTES) - from / BLOCK_BYTES).expect("a unit has at most 16384 blocks")
}

/// The checksum of each block of `bytes`, which begin at offset `from` in their unit.
pub fn block_crcs(from: u32, bytes: &[u8]) -> Vec<u32> {
    let to = from + u32::try_from(bytes.len()).expect("a unit is at most 64 MiB");
    let mut rest = bytes;
    block_lengths(from, to)
        .map(|length| {
            let (block, tail) = rest.split_at(length);
            rest = tail;
            crc32c(block)
        })
        .collect()
}

/// Checks `bytes`, which begin at offset `from` in their unit, against the checksums of their blocks. The
/// error is the unit offset of the first block that differs.
pub fn verify_blocks(from: u32, bytes: &[u8], crcs: &[u32]) -> Result<(), u32> {
    let to = from + u32::try_from(bytes.len()).expect("a unit is at most 64 MiB");
    if crcs.len() != block_count(from, to) {
        return Err(from);
    }
    let mut rest = bytes;
    let mut at = from;
    for (length, &crc) in block_lengths(from, to).zip(crcs) {
        let (block, tail) = rest.split_at(length);
        if crc32c(block) != crc {
            return Err(at);
        }
        rest = tail;
        at += u32::try_from(length).expect("a block is 4 KiB");
    }
    Ok(())
}
