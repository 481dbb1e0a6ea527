//! The store's on-disk format: `docs/format-store.md` in code. Pure: bytes in, values out.
//!
//! Everything is little-endian and of fixed width. Each structure is one table of named fields; the code and
//! the test of the document both take their offsets from it. Reserved bytes are zero and checked.

pub mod body;
pub mod checkpoint;
pub mod dedup;
pub mod entry;
pub mod extent;
pub mod page;
pub mod ready;
pub mod record;
mod rules;
pub mod segment;
pub mod snapshots;
pub mod subject;
pub mod superblock;
pub mod unit;

use std::ops::Range;

use braid_layout::{Generation, Lease, Version};

/// The format's version, stored in the superblock, each segment and each record.
pub const FORMAT_VERSION: u16 = 1;
/// The log block: records and payloads begin at multiples of it. It is one sector, which a disk writes either
/// completely or not at all.
pub const LOG_BLOCK: usize = 512;
/// [`LOG_BLOCK`] as a file offset.
pub const LOG_BLOCK_U64: u64 = 512;

const _: () = assert!(LOG_BLOCK as u64 == LOG_BLOCK_U64, "one constant in two widths");

/// The log's directory.
pub(crate) const LOG_DIR: &str = "log";
/// The checkpoints' directory.
pub(crate) const CHECKPOINT_DIR: &str = "checkpoint";
/// All directories.
pub(crate) const DIRS: [&str; 2] = [LOG_DIR, CHECKPOINT_DIR];

/// A field of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name in `docs/format-store.md`.
    pub name: &'static str,
    /// Its byte range in the structure.
    pub bytes: Range<usize>,
}

/// Why bytes cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Too few bytes: this many are needed.
    #[error("{0} bytes are needed")]
    Short(usize),
    /// The disk cannot read the bytes.
    #[error("the disk cannot read it")]
    Unreadable,
    /// Another magic number: this is not such a structure.
    #[error("no magic number")]
    Magic,
    /// The checksum does not match.
    #[error("the checksum does not match")]
    Checksum,
    /// A format version that this release does not know.
    #[error("unknown format version {0}")]
    Version(u16),
    /// The checksum is right but a value is impossible: a faulty or foreign program wrote it.
    #[error("malformed: {0}")]
    Malformed(&'static str),
}

macro_rules! fields {
    ($(#[$doc:meta])* $table:ident: $($name:ident $text:literal $from:literal .. $to:literal,)*) => {
        $(pub(crate) const $name: std::ops::Range<usize> = $from..$to;)*
        $(#[$doc])*
        pub const $table: &[$crate::format::Field] =
            &[$($crate::format::Field { name: $text, bytes: $from..$to }),*];
    };
}
pub(crate) use fields;

/// Rounds up to whole log blocks.
pub fn padded(bytes: usize) -> usize {
    bytes.div_ceil(LOG_BLOCK) * LOG_BLOCK
}

/// [`padded`] for file offsets.
pub fn padded_u64(bytes: u64) -> u64 {
    bytes.div_ceil(LOG_BLOCK_U64) * LOG_BLOCK_U64
}

/// Reads fields of a structure whose length was checked.
pub(crate) struct FieldReader<'a>(pub(crate) &'a [u8]);

impl FieldReader<'_> {
    fn array<const N: usize>(&self, field: Range<usize>) -> [u8; N] {
        self.0[field].try_into().expect("a field's width is its type's")
    }
    pub(crate) fn u8(&self, field: Range<usize>) -> u8 {
        u8::from_le_bytes(self.array(field))
    }
    pub(crate) fn u16(&self, field: Range<usize>) -> u16 {
        u16::from_le_bytes(self.array(field))
    }
    pub(crate) fn u32(&self, field: Range<usize>) -> u32 {
        u32::from_le_bytes(self.array(field))
    }
    pub(crate) fn u64(&self, field: Range<usize>) -> u64 {
        u64::from_le_bytes(self.array(field))
    }
    pub(crate) fn u128(&self, field: Range<usize>) -> u128 {
        u128::from_le_bytes(self.array(field))
    }
    pub(crate) fn version(&self, field: Range<usize>) -> Version {
        version_at(&self.0[field])
    }
    pub(crate) fn is_zero(&self, field: Range<usize>) -> bool {
        // Without an early exit: testing all bytes at once is several times as fast.
        self.0[field].iter().fold(0, |all, byte| all | byte) == 0
    }
}

/// Writes a field.
pub(crate) fn put<const N: usize>(to: &mut [u8], field: Range<usize>, bytes: [u8; N]) {
    to[field].copy_from_slice(&bytes);
}

/// A version's 16 bytes: g u32, lease u32, n u64.
pub(crate) const VERSION_BYTES: usize = 16;

pub(crate) fn version_bytes(version: Version) -> [u8; VERSION_BYTES] {
    let mut bytes = [0; VERSION_BYTES];
    put(&mut bytes, 0..4, version.g.0.to_le_bytes());
    put(&mut bytes, 4..8, version.lease.0.to_le_bytes());
    put(&mut bytes, 8..16, version.n.to_le_bytes());
    bytes
}

/// The version in the first 16 bytes.
pub(crate) fn version_at(bytes: &[u8]) -> Version {
    let view = FieldReader(bytes);
    Version { g: Generation(view.u32(0..4)), lease: Lease(view.u32(4..8)), n: view.u64(8..16) }
}
