//! The places of a unit's bytes in the log.

use super::DecodeError;
use super::field::fields;

/// Bytes of an extent.
pub const EXTENT_BYTES: usize = 16;

fields! {
    /// A position in the log.
    POSITION_FIELDS of LogPosition:
    .segment "segment" 0..4,
    .block "block" 4..8,
}

fields! {
    EXTENT_FIELDS of Extent:
    .from "from" 0..4,
    .to "to" 4..8,
    .segment "segment" 8..12,
    .block "block" 12..16,
}

/// A position in the log: where a record begins, or where damage was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogPosition {
    pub segment: u32,
    /// The log block.
    pub block: u32,
}

/// A range of a unit and the record that holds its bytes. Only the record's position is given: the length of
/// its header, its range and the checksums are read together with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    pub from: u32,
    /// One past the last byte in the unit.
    pub to: u32,
    /// The segment of the record; 0 for a hole.
    pub segment: u32,
    /// The log block of the record's header; 0 for a hole.
    pub block: u32,
}

const _: () = assert!(size_of::<Extent>() == 16, "the index's stated cost");

impl Extent {
    /// Position of the record; zeros for a hole.
    pub fn position(&self) -> LogPosition {
        LogPosition { segment: self.segment, block: self.block }
    }

    /// Checks a decoded extent: it is not empty, and it has a record or is a hole.
    pub(super) fn check(&self) -> Result<(), DecodeError> {
        if self.from >= self.to || (self.segment == 0) != (self.block == 0) {
            return Err(DecodeError::Malformed("an extent"));
        }
        Ok(())
    }
}
