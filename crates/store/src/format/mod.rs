//! The store's on-disk format: `docs/format-store.md` in code. Pure: bytes in, values out.
//!
//! Everything is little-endian and of fixed width. Each structure is one table of named fields (`field`): its
//! encoding follows from it, and a test compares it with the document. Reserved bytes are zero and checked.

pub mod base;
pub mod body;
pub mod checkpoint;
pub mod dedup;
pub mod entry;
pub mod extent;
pub mod field;
pub mod page;
pub mod ready;
pub mod record;
mod rules;
pub mod segment;
pub mod snapshots;
pub mod subject;
pub mod superblock;
pub mod unit;

pub use field::Field;

/// The format's version, stored in the superblock, each segment and each record.
pub const FORMAT_VERSION: u16 = 4;
/// The oldest version that is read as well. Version 2 has no stills, version 3 no fences that drop anything;
/// they are the same in all else.
pub const FORMAT_VERSION_MIN: u16 = 2;
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
pub(crate) const DIRS: [&str; 2] = [LOG_DIR, CHECKPOINT_DIR];

/// Reason why bytes cannot be decoded.
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

/// Rounds up to whole log blocks.
pub fn padded(bytes: usize) -> usize {
    bytes.div_ceil(LOG_BLOCK) * LOG_BLOCK
}

/// [`padded`] for file offsets.
pub fn padded_u64(bytes: u64) -> u64 {
    bytes.div_ceil(LOG_BLOCK_U64) * LOG_BLOCK_U64
}

/// Bytes of a version.
pub(crate) const VERSION_BYTES: usize = 16;
/// Bytes of a version in a cover, with the bounds of the end of that unit's bytes.
pub(crate) const COUNTED_BYTES: usize = VERSION_BYTES + 8;
