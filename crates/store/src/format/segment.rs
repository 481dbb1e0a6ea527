//! A segment's header: the first log block of each file of the log.

use braid_layout::DriveId;

use super::{DecodeError, FORMAT_VERSION, FieldReader, LOG_BLOCK, fields, put};
use crate::crc::crc32c;

/// "BRAIDSEG".
pub const MAGIC: [u8; 8] = *b"BRAIDSEG";
/// Its length: one log block.
pub const BYTES: usize = LOG_BLOCK;

fields! {
    /// The segment header's fields.
    FIELDS:
    F_MAGIC "magic" 0..8,
    F_VERSION "format version" 8..10,
    F_RESERVED_1 "reserved" 10..12,
    F_NUMBER "segment" 12..16,
    F_DRIVE "drive" 16..32,
    F_SALT "salt" 32..40,
    F_FIRST "first sequence" 40..48,
    F_PREVIOUS_END "previous end" 48..56,
    F_EARLIER "earlier bytes" 56..64,
    F_RESERVED_2 "reserved" 64..508,
    F_CRC "crc" 508..512,
}

/// A decoded segment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The segment's number, from 1; also in its file's name.
    pub number: u32,
    /// The drive.
    pub drive: DriveId,
    /// The store's salt.
    pub salt: u64,
    /// The sequence number of its first record. All earlier records were durable when the segment was made.
    pub first_sequence: u64,
    /// Byte offset where the valid records of the segment before it end; 0 for the first segment.
    pub previous_end: u64,
    /// The length that the file had when it was recycled from a freed segment: up to there, bytes after the
    /// records may be that segment's. 0: the file was new.
    pub earlier_bytes: u64,
}

impl SegmentHeader {
    /// Encodes it.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        put(&mut bytes, F_MAGIC, MAGIC);
        put(&mut bytes, F_VERSION, FORMAT_VERSION.to_le_bytes());
        put(&mut bytes, F_NUMBER, self.number.to_le_bytes());
        put(&mut bytes, F_DRIVE, self.drive.0.to_le_bytes());
        put(&mut bytes, F_SALT, self.salt.to_le_bytes());
        put(&mut bytes, F_FIRST, self.first_sequence.to_le_bytes());
        put(&mut bytes, F_PREVIOUS_END, self.previous_end.to_le_bytes());
        put(&mut bytes, F_EARLIER, self.earlier_bytes.to_le_bytes());
        let crc = crc32c(&bytes[..F_CRC.start]);
        put(&mut bytes, F_CRC, crc.to_le_bytes());
        bytes
    }

    /// Decodes `bytes` and checks all of them.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, DecodeError> {
        let view = FieldReader(bytes.get(..BYTES).ok_or(DecodeError::Short(BYTES))?);
        if view.0[F_MAGIC] != MAGIC {
            return Err(DecodeError::Magic);
        }
        if crc32c(&view.0[..F_CRC.start]) != view.u32(F_CRC) {
            return Err(DecodeError::Checksum);
        }
        if view.u16(F_VERSION) != FORMAT_VERSION {
            return Err(DecodeError::Version(view.u16(F_VERSION)));
        }
        if !view.is_zero(F_RESERVED_1) || !view.is_zero(F_RESERVED_2) {
            return Err(DecodeError::Malformed("reserved bytes are not zero"));
        }
        Ok(SegmentHeader {
            number: view.u32(F_NUMBER),
            drive: DriveId(view.u128(F_DRIVE)),
            salt: view.u64(F_SALT),
            first_sequence: view.u64(F_FIRST),
            previous_end: view.u64(F_PREVIOUS_END),
            earlier_bytes: view.u64(F_EARLIER),
        })
    }
}
