//! Opening a store: from a disk to all that its threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::clean::pace::Pacer;
use crate::clean::trigger::Cleaning;
use crate::commit_delay::CommitDelay;
use crate::disk::Disk;
use crate::error::Error;
use crate::files::Files;
use crate::header_cache::HeaderCache;
use crate::index::locked::Locked;
use crate::options::Options;
use crate::queue::Queue;
use crate::recover::{Recovered, Recovery, recover};
use crate::segments::lengths::segment_bytes;
use crate::store::{Identity, refuse_foreign};
use crate::threads::checkpointer::Checkpointer;
use crate::threads::cleaner::move_batch_bytes;
use crate::threads::committer::{Committer, Heat};
use crate::threads::folding::Folding;
use crate::threads::shared::Shared;

/// A store before its threads run.
pub(crate) struct Opened {
    pub(crate) identity: Identity,
    pub(crate) shared: Arc<Shared>,
    pub(crate) committer: Committer,
    pub(crate) recovery: Recovery,
}

/// Recover the store on `disk`, and build the state that its threads share.
pub(crate) fn open_parts(
    disk: Arc<dyn Disk>,
    expect: Option<Identity>,
    options: Options,
) -> Result<Opened, Error> {
    options.validate()?;
    let (files, superblock) = Files::open(disk)?;
    let identity = refuse_foreign(expect, superblock)?;
    let Recovered { index, mut log, recovery, kept, doubtful } =
        recover(&files, superblock, options.syncing())?;
    let of_disk = files.space().map_or(u64::MAX, |space| space.free.saturating_add(index.segments.used()));
    let capacity = options.capacity.unwrap_or(u64::MAX).min(of_disk);
    let segment_bytes = segment_bytes(options.segment_bytes, capacity);
    log.segment_bytes = segment_bytes;
    let checkpointer = Checkpointer::new(kept, doubtful);
    if recovery.damaged_count > 0 {
        // A checkpoint records the losses, so that they are known without meeting the damage again.
        checkpointer.request();
    }
    let pacer =
        Pacer::new(options.clean_share_percent, capacity, segment_bytes, move_batch_bytes(segment_bytes));
    let shared = Arc::new(Shared {
        files,
        index: Locked::new(index),
        queue: Queue::default(),
        headers: HeaderCache::default(),
        checkpointer,
        cleaning: Cleaning::new(pacer, options.give_back),
        folding: Folding::default(),
        superblock,
        capacity: options.capacity,
        held: AtomicBool::new(options.held),
        commits: AtomicU64::new(0),
        commit_totals: Default::default(),
        segment_bytes,
        syncing: options.syncing(),
        turns: options.turns,
    });
    let committer =
        Committer { shared: Arc::clone(&shared), log, heat: Heat::Hot, delay: CommitDelay::default() };
    Ok(Opened { identity, shared, committer, recovery })
}
