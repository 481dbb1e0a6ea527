//! The content of a write: bytes with their checksums, or a hole.

use std::ops::Range;

use bytes::Bytes;

use crate::crc::{block_count, verify_blocks};
use crate::error::Error;

/// The content of a write.
#[derive(Debug, Clone)]
pub enum Body {
    /// `to - from` bytes, with the CRC32C of each 4 KiB block, cut at multiples of 4096 of the unit's offset.
    Bytes {
        payload: Bytes,
        /// The checksums, checked at submission and stored unchanged.
        crcs: Vec<u32>,
    },
    /// Zeros that take no space.
    Hole,
}

impl Body {
    /// Payload length in bytes; 0 for a hole.
    pub(crate) fn payload_bytes(&self) -> u64 {
        match self {
            Body::Bytes { payload, .. } => u64::try_from(payload.len()).unwrap_or(u64::MAX),
            Body::Hole => 0,
        }
    }

    /// Checks that the payload fits `range` and matches its checksums.
    pub(crate) fn validate(&self, range: &Range<u32>) -> Result<(), Error> {
        if range.start >= range.end || range.end > braid_layout::scheme::UNIT_BYTES_MAX {
            return Err(Error::Malformed("a write's range is empty or past the largest unit"));
        }
        let Body::Bytes { payload, crcs } = self else { return Ok(()) };
        if self.payload_bytes() != u64::from(range.end - range.start) {
            return Err(Error::Malformed("the payload is not as long as the range"));
        }
        if u32::try_from(crcs.len()) != Ok(block_count(range.start, range.end)) {
            return Err(Error::Malformed("the checksums are not one per block"));
        }
        verify_blocks(range.start, payload, crcs).map_err(|at| Error::Checksum { at })
    }
}
