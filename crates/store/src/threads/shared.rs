//! The state that the store's threads and its readers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clean::trigger::Cleaning;
use crate::commit_delay::CommitTotals;
use crate::disk::Syncing;
use crate::files::Files;
use crate::format::superblock::Superblock;
use crate::header_cache::HeaderCache;
use crate::index::locked::Locked;
use crate::mutex::Mutex;
use crate::queue::Queue;
use crate::threads::checkpointer::Checkpointer;
use crate::threads::folding::Folding;
use crate::turns::{OwnWork, Turns};

/// Everything of an open store but the log, which is the committer's alone.
pub(crate) struct Shared {
    pub(crate) files: Files,
    pub(crate) index: Locked,
    pub(crate) queue: Queue,
    pub(crate) headers: HeaderCache,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) cleaning: Cleaning,
    pub(crate) folding: Folding,
    /// True if the store may write nothing yet: see [`crate::Options::held`].
    pub(crate) held: AtomicBool,
    /// Commits that began and that ended: odd while one is under way.
    pub(crate) commits: AtomicU64,
    /// Time of synced commits.
    pub(crate) commit_totals: Mutex<CommitTotals>,
    pub(crate) superblock: Superblock,
    /// Bytes the store may use: see [`crate::Options::capacity`].
    pub(crate) capacity: Option<u64>,
    /// The bytes after which a segment is sealed.
    pub(crate) segment_bytes: u64,
    /// Sync policy: see [`crate::Options::sync`].
    pub(crate) syncing: Syncing,
    /// Turns at the disk: see [`crate::Options::turns`].
    pub(crate) turns: Option<Arc<dyn Turns>>,
}

impl Shared {
    /// Waits for a turn at the disk, unless `gives_up` becomes true. The turn ends when the result is
    /// dropped.
    pub(crate) fn turn(
        &self,
        work: OwnWork,
        read: u64,
        written: u64,
        gives_up: &dyn Fn() -> bool,
    ) -> Option<Box<dyn Send>> {
        self.turns.as_ref().map(|turns| turns.wait(work, read, written, gives_up))
    }

    /// Returns true if the store may write nothing yet.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }
}
