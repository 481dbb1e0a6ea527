//! Opening a store: loads the newest checkpoint and replays the log's tail on top of it.
//!
//! A record is skipped if the checkpoint's page with its key counts it in, so that each is applied exactly
//! once. A record *was* durable if its number is at most the `synced_to` of a later record, or if a
//! checkpoint counts it in, or if it lies in a sealed segment. If such a record is bad, that is damage: it is
//! reported, and everything that it may have hit reads as lost. Any other bad record was never acknowledged:
//! it is a torn tail, which is cut at the last whole commit. Payloads after the last `synced_to` are verified
//! here, all others by readers.

mod begin;
mod prefetch;
mod replay;
pub(crate) mod tail;

use std::time::{Duration, Instant};

use crate::checkpoint::KeptCheckpoint;
use crate::disk::{DiskFile, Syncing, WHOLE};
use crate::error::Error;
use crate::files::Files;
use crate::format::checkpoint::ReplayPoint;
use crate::format::superblock::Superblock;
use crate::format::{LOG_BLOCK_U64, padded_u64};
use crate::index::Index;
use crate::segments::log::Log;
use begin::Begin;
use replay::Replay;

/// Damage found before the log's tail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The segment's number; 0: the damage is in a checkpoint.
    pub segment: u64,
    /// Byte offset in the segment's or checkpoint's file.
    pub offset: u64,
    /// Description of the damage and of what it has hit.
    pub what: String,
}

/// Findings of opening a store.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// The checkpoint that was loaded. 0: none, so the log was read from its first record.
    pub checkpoint: u32,
    pub segments: u64,
    pub records: u64,
    /// Bytes of a torn tail that were cut. None of them was ever acknowledged.
    pub torn_bytes: u64,
    /// Damage before the tail, at most 1000 entries.
    pub damaged: Vec<Damage>,
    /// Total number of places of damage.
    pub damaged_count: u64,
    /// Time that opening took.
    pub took: Duration,
}

/// The result of opening.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) index: Index,
    pub(crate) log: Log,
    pub(crate) recovery: Recovery,
    /// The usable checkpoints, oldest first.
    pub(crate) kept: Vec<KeptCheckpoint>,
    /// Other checkpoints, to be removed once there is a new one.
    pub(crate) doubtful: Vec<u32>,
}

/// Recovers the state from `files`.
pub(crate) fn recover(files: &Files, superblock: Superblock, syncing: Syncing) -> Result<Recovered, Error> {
    let began = Instant::now();
    files.remove_recycled()?;
    let mut numbers = files.list()?;
    files.begin_own(numbers.last().map_or(1, |last| last.saturating_add(1)));
    if let Some(&last) = numbers.last() {
        // After a failed sync, the page cache may hold bytes that the disk does not: read from the disk.
        files.get(last)?.drop_cache(WHOLE);
    }
    let mut begin = Begin::find(files, &superblock, &numbers)?;
    let kept = std::mem::take(&mut begin.kept);
    let doubtful = std::mem::take(&mut begin.doubtful);
    let from = begin.replay;
    let mut replay = Replay::new(files, superblock, begin);
    replay.recovery.checkpoint = kept.last().map_or(0, |kept| kept.number);
    if let Some(&last) = numbers.last()
        && last > from.segment
        && replay.is_torn_creation(last)?
    {
        numbers.pop();
        if let Some(&last) = numbers.last() {
            files.get(last)?.drop_cache(WHOLE);
        }
    }
    let tail = numbers.split_off(numbers.partition_point(|&number| number < from.segment));
    replay.settled_segments(&numbers)?;
    if from.segment > 0 && tail.first() != Some(&from.segment) {
        replay.begin_without(from.segment);
    }
    let mut log = Log { number: from.segment, end: from.offset(), syncing, ..Log::new(superblock) };
    for (i, &number) in tail.iter().enumerate() {
        replay.begin_segment(number)?;
        let file = files.get(number)?;
        let end = match tail.get(i + 1) {
            Some(&next) => replay.sealed_end(number, &**file, next)?,
            None => replay.cut_tail(number, &**file)?,
        };
        log.earlier = replay.earlier;
        replay.segment(number, &**file, end)?;
        // Nothing may be written before the position at which a later replay would begin again.
        let least = if number == from.segment { from.offset() } else { LOG_BLOCK_U64 };
        (log.file, log.number, log.end) = (Some(file), number, padded_u64(end).max(least));
    }
    if syncing.is_on() {
        // State that readers see from now on must not be lost again, nor may the files that it is based on: a
        // killed process may have left file names that were not made durable.
        if let Some(file) = &log.file {
            file.sync_all().map_err(|error| Error::io("sync the log's tail", error))?;
        }
        files.sync_names().map_err(|error| Error::io("sync the store's directories", error))?;
    }
    let (mut index, mut recovery, recent, ends_early) = replay.end();
    // Only the header of a new segment can confirm a sequence number that does not follow the last one.
    log.sealed = ends_early;
    index.serving = true;
    (log.next, log.synced_to, log.recent) = (index.head.sequence, index.head.sequence - 1, recent);
    let block = u32::try_from(log.end / LOG_BLOCK_U64).expect("a segment is below 2 TiB");
    index.head = ReplayPoint { segment: log.number, block, ..index.head };
    recovery.took = began.elapsed();
    Ok(Recovered { index, log, recovery, kept, doubtful })
}

fn length(file: &dyn DiskFile) -> Result<u64, Error> {
    file.length().map_err(|error| Error::io("stat a segment", error))
}
