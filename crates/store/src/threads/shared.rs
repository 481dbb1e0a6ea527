//! What the store's threads share: the committer, the checkpointer of checkpoints, the cleaner, and who
//! reads.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::clean::trigger::Cleaning;
use crate::files::Files;
use crate::format::superblock::Superblock;
use crate::header_cache::HeaderCache;
use crate::index::locked::Locked;
use crate::queue::Queue;
use crate::threads::checkpointer::Checkpointer;

/// What they share.
pub(crate) struct Shared {
    pub(crate) files: Files,
    pub(crate) index: Locked,
    pub(crate) queue: Queue,
    pub(crate) headers: HeaderCache,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) cleaning: Cleaning,
    /// As in `Options`.
    pub(crate) held: AtomicBool,
    pub(crate) superblock: Superblock,
    /// As in `Options`.
    pub(crate) capacity: Option<u64>,
    /// The bytes after which a segment is sealed.
    pub(crate) segment_bytes: u64,
    /// As in `Options`.
    pub(crate) sync: bool,
}

impl Shared {
    /// Whether nothing of the store's own may be written yet.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }
}
