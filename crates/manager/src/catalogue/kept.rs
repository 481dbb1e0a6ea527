//! The catalogue's state at the drives, as status shows it.

use braid_layout::DriveId;

/// State of the catalogue at the drives.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    /// Drives that have all that was written.
    pub(crate) drives: Vec<DriveId>,
    /// Time from which on changes are at fewer than two drives, or than there are.
    pub(crate) behind_since_ms: Option<u64>,
    /// Bytes of the stream at each drive.
    pub(crate) bytes: u64,
}
