//! A view of one version of a unit.
use std::fs::File;
use std::sync::Arc;

use braid_layout::{ColumnMask, Generation, Version};

use crate::error::Error;
use crate::mutation::WriteKind;

/// Which version of a unit is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// The tip, pending or settled.
    Newest,
    /// The newest that is known here to be settled.
    Settled,
    /// This one: [`Error::Gone`] if the chain does not hold it.
    Exactly(Version),
}

/// A stretch of the asked range, in order; neighbours differ in kind, and together they are the asked range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewExtent {
    /// Reads as zeros; not sent.
    Hole {
        /// First byte in the unit.
        from: u32,
        /// One past the last.
        to: u32,
    },
    /// Stored bytes.
    Stored {
        /// First byte in the unit.
        from: u32,
        /// One past the last.
        to: u32,
    },
}

/// Bytes of a stored extent as they lie in a file, for the kernel's zero-copy.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The file: it stays readable as long as this is held.
    pub file: Arc<File>,
    /// Offset in it.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// What a read found. It stays valid whatever is written or removed after.
#[derive(Debug, Clone)]
pub struct View {
    /// The version's name; zero: never written.
    pub version: Version,
    /// Whether this version is pending.
    pub pending: bool,
    /// What the version is; `Data` for a unit that was never written.
    pub kind: WriteKind,
    /// The columns its write touched.
    pub columns: ColumnMask,
    /// Parity kinds: per data column the version counted in.
    pub cover: Vec<Version>,
    /// The asked range, cut into holes and stored bytes.
    pub extents: Vec<ViewExtent>,
    /// The object's generation.
    pub g: Generation,
    /// The object's set.
    pub set: ColumnMask,
    /// The object's joining columns.
    pub joining: ColumnMask,
}

impl View {
    /// The CRC32C of each block of the stored extents, extent by extent; blocks are cut at multiples of 4096 of the
    /// unit's offset and at the extent's ends. A block stored as it is asked for has its stored checksum, unverified:
    /// the reader at the far end verifies. Of any other the stored blocks were read and verified.
    pub fn blocks(&self) -> &[u32] {
        &[]
    }

    /// Bytes of all stored extents.
    pub fn stored_bytes(&self) -> u32 {
        0
    }

    /// Append the stored extents' bytes to `to` (holes are left out).
    pub fn read_into(&self, to: &mut Vec<u8>) -> Result<(), Error> {
        let _ = to;
        Err(Error::Closed)
    }

    /// Fill `to`, which must be exactly [`View::stored_bytes`] long.
    pub fn read_exact_into(&self, to: &mut [u8]) -> Result<(), Error> {
        let _ = to;
        Err(Error::Closed)
    }

    /// Where the stored bytes lie, in order.
    pub fn pieces(&self) -> &[Piece] {
        &[]
    }
}
