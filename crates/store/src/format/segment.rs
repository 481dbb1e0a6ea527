//! A segment's header: the first log block of each file of the log.

use braid_layout::DriveId;

use super::field::{Value as _, decode, fields, seal, unseal};
use super::{DecodeError, LOG_BLOCK};

pub const MAGIC: [u8; 8] = *b"BRAIDSEG";
/// Length of the header in bytes: one log block.
pub const BYTES: usize = LOG_BLOCK;

fields! {
    /// The segment header's fields.
    FIELDS of SegmentHeader:
    "magic" 0..8,
    "format version" 8..10,
    "reserved" 10..12,
    .number "segment" 12..16,
    .drive "drive" 16..32,
    .salt "salt" 32..40,
    .first_sequence "first sequence" 40..48,
    .previous_end "previous end" 48..56,
    .earlier_bytes "earlier bytes" 56..64,
    "reserved" 64..508,
    "crc" 508..512,
}

/// A decoded segment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentHeader {
    /// The segment's number, from 1; also in its file's name.
    pub number: u32,
    pub drive: DriveId,
    /// The store's salt.
    pub salt: u64,
    /// The sequence number of the segment's first record. All earlier records were durable when the segment
    /// was made.
    pub first_sequence: u64,
    /// Byte offset where the valid records of the segment before it end; 0 for the first segment.
    pub previous_end: u64,
    /// The length that the file had when it was recycled from a freed segment: up to there, bytes after the
    /// records may be that segment's. 0: the file was new.
    pub earlier_bytes: u64,
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        self.put(&mut bytes);
        seal(&mut bytes, MAGIC);
        bytes
    }

    /// Decodes `bytes` and checks all of them.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, DecodeError> {
        decode(unseal(bytes, MAGIC)?)
    }
}
