//! The state that the store's three threads and its readers share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clean::trigger::Cleaning;
use crate::disk::Syncing;
use crate::files::Files;
use crate::format::superblock::Superblock;
use crate::header_cache::HeaderCache;
use crate::index::locked::Locked;
use crate::queue::Queue;
use crate::threads::checkpointer::Checkpointer;

/// Everything of an open store but the log, which is the committer's alone.
pub(crate) struct Shared {
    pub(crate) files: Files,
    pub(crate) index: Locked,
    pub(crate) queue: Queue,
    pub(crate) headers: HeaderCache,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) cleaning: Cleaning,
    /// True if the store may write nothing yet: see [`crate::Options::held`].
    pub(crate) held: AtomicBool,
    /// Commits that began and that ended: odd while one is under way.
    pub(crate) commits: AtomicU64,
    pub(crate) superblock: Superblock,
    /// Bytes the store may use: see [`crate::Options::capacity`].
    pub(crate) capacity: Option<u64>,
    /// The bytes after which a segment is sealed.
    pub(crate) segment_bytes: u64,
    /// Sync policy: see [`crate::Options::sync`].
    pub(crate) syncing: Syncing,
}

impl Shared {
    /// Returns true if the store may write nothing yet.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }
}
