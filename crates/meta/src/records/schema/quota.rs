//! The holders of quotas, and their records.

use braid_layout::FileId;
use braid_wire::record;

/// The holder of a quota, within a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Account {
    Volume,
    /// This directory, with all below it.
    Tree(FileId),
    /// The files of this user.
    User(u32),
}

record! {
    /// A quota, and what is held under it.
    pub struct QuotaRecord {
        /// Maximum number of bytes; 0: any.
        limit_bytes: u64,
        /// Maximum number of files; 0: any.
        limit_files: u64,
        /// Bytes that count: of each file its size, or its reach if that is more.
        bytes: u64,
        /// Files with a name.
        files: u64,
        /// In the volume's own account: number of its directories with a quota.
        trees: u64,
    }
}
