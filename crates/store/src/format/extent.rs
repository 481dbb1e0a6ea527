//! Where bytes of a unit lie in the log.

use super::{DecodeError, FieldReader, fields, put};

/// Bytes of an extent.
pub const EXTENT_BYTES: usize = 16;

fields! {
    /// An extent.
    EXTENT_FIELDS:
    E_FROM "from" 0..4,
    E_TO "to" 4..8,
    E_SEGMENT "segment" 8..12,
    E_BLOCK "block" 12..16,
}

/// A position in the log: where a record begins, or where damage was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogPosition {
    /// The segment.
    pub segment: u32,
    /// The log block.
    pub block: u32,
}

/// A range of a unit and the record that holds its bytes. It names only where the record begins: the length
/// of its header, its range and the checksums are read together with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// First byte.
    pub from: u32,
    /// One past the last.
    pub to: u32,
    /// The segment of the record; 0 for a hole.
    pub segment: u32,
    /// The log block of the record's header; 0 for a hole.
    pub block: u32,
}

const _: () = assert!(size_of::<Extent>() == 16, "the index's stated cost");

impl Extent {
    /// Where the record begins; zeros for a hole.
    pub fn position(&self) -> LogPosition {
        LogPosition { segment: self.segment, block: self.block }
    }

    pub(super) fn put(&self, to: &mut Vec<u8>) {
        let mut bytes = [0; EXTENT_BYTES];
        put(&mut bytes, E_FROM, self.from.to_le_bytes());
        put(&mut bytes, E_TO, self.to.to_le_bytes());
        put(&mut bytes, E_SEGMENT, self.segment.to_le_bytes());
        put(&mut bytes, E_BLOCK, self.block.to_le_bytes());
        to.extend_from_slice(&bytes);
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Extent, DecodeError> {
        let view = FieldReader(bytes);
        let (from, to) = (view.u32(E_FROM), view.u32(E_TO));
        let (segment, block) = (view.u32(E_SEGMENT), view.u32(E_BLOCK));
        if from >= to || (segment == 0) != (block == 0) {
            return Err(DecodeError::Malformed("an extent"));
        }
        Ok(Extent { from, to, segment, block })
    }
}
