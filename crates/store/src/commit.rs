//! The committer: the one thread that writes.
//!
//! It takes what is queued, decides on each mutation in order, appends the records of those that pass as one commit,
//! syncs once, takes the records into the index and answers. Between commits it frees segments ([`crate::reclaim`]) and asks
//! for checkpoints.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use crate::checkpoint::keeper::Keeper;
use crate::error::Error;
use crate::files::Files;
use crate::format::LOG_BLOCK_U64;
use crate::format::record::{HEADER_BYTES_MAX, Kind, Record, flags};
use crate::format::superblock::Superblock;
use crate::index::Index;
use crate::index::check::{Decision, Growth, Touched, check};
use crate::log::{AppendError, Entry, Log};
use crate::mutation::Outcome;
use crate::queue::{Queue, Reply, Request};

/// The most mutations of one commit.
const COMMIT_LEN_MAX: usize = 1024;
/// About the most payload bytes of one commit.
const COMMIT_BYTES_MAX: u64 = 32 << 20;
/// What stays free for mutations that help a full store, in bytes; of a small capacity, an eighth.
pub(crate) const RESERVE_BYTES: u64 = 1 << 20;

/// What the committer and the readers share.
pub(crate) struct Shared {
    pub(crate) files: Files,
    pub(crate) index: RwLock<Index>,
    pub(crate) queue: Queue,
    pub(crate) keeper: Keeper,
    pub(crate) superblock: Superblock,
    /// As in `Options`.
    pub(crate) capacity: Option<u64>,
    /// As in `Options`.
    pub(crate) sync: bool,
}

/// The committer's own.
pub(crate) struct Committer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Log,
}

/// A commit being gathered.
#[derive(Default)]
struct Gathered {
    entries: Vec<Entry>,
    replies: Vec<Reply>,
    barriers: Vec<Reply>,
}

/// Bytes a commit may still take.
struct Room {
    used: u64,
    capacity: u64,
    reserve: u64,
}

/// Closes the queue when the committer ends, however it ends: nobody waits for an answer that cannot come.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.queue.abandon();
        self.0.keeper.close();
    }
}

impl Committer {
    /// Serve until the queue is closed and empty, then mark the log as cleanly closed.
    pub(crate) fn run(mut self) {
        let ending = Ending(Arc::clone(&self.shared));
        let mut waiting: VecDeque<Request> = VecDeque::new();
        while self.shared.queue.take(&mut waiting, COMMIT_LEN_MAX, COMMIT_BYTES_MAX) {
            if self.is_short(&waiting) && self.idle_segments() {
                self.make_space();
            }
            self.commit_some(&mut waiting);
            self.reclaim();
        }
        self.mark_closed();
        self.last_checkpoint();
        drop(ending);
    }

    /// Whether there may be no room for what waits first.
    fn is_short(&self, waiting: &VecDeque<Request>) -> bool {
        let Some((mutation, _)) = waiting.front() else { return false };
        let header = u64::try_from(HEADER_BYTES_MAX).expect("bounded");
        self.room().free() < mutation.payload_bytes().saturating_add(header)
    }

    /// So that the next opening has nothing to replay.
    fn last_checkpoint(&self) {
        let head = self.shared.index.read().unwrap_or_else(PoisonError::into_inner).head;
        let newest = self.shared.keeper.newest();
        if self.log.failed || newest.map_or(1, |kept| kept.replay.sequence) == head.sequence {
            return;
        }
        if let Err(error) = self.shared.keeper.make() {
            tracing::warn!(%error, "no checkpoint at the close: the next opening replays the log's tail");
        }
    }

    /// Say durably that all is durable, so that the next opening takes no damage in the tail for a torn write.
    fn mark_closed(&mut self) {
        if self.log.file.is_none() || self.log.prior.kind == Some(Kind::Mark) || self.log.certify().is_err() {
            return;
        }
        let mut mark = vec![(Record::new(Kind::Mark), bytes::Bytes::new())];
        if self.append(&mut mark).is_ok() {
            self.publish(&mark);
        }
    }

    /// One commit with the first of `waiting`, as many as can go together.
    fn commit_some(&mut self, waiting: &mut VecDeque<Request>) {
        let mut gathered = self.gather(waiting);
        if !gathered.entries.is_empty()
            && let Err(error) = self.append(&mut gathered.entries)
        {
            return self.refuse(gathered, error);
        }
        self.publish(&gathered.entries);
        for reply in gathered.replies.into_iter().chain(gathered.barriers) {
            reply(Ok(Outcome::Applied));
        }
    }

    fn gather(&mut self, waiting: &mut VecDeque<Request>) -> Gathered {
        let mut gathered = Gathered::default();
        let mut room = self.room();
        let (mut touched, mut growth) = (Touched::default(), Growth::new());
        let mut answers: Vec<(Reply, Result<Outcome, Error>)> = Vec::new();
        let index = self.shared.index.read().unwrap_or_else(PoisonError::into_inner);
        while let Some((mutation, _)) = waiting.front() {
            if !touched.admit(mutation) {
                break;
            }
            let Some((mutation, reply)) = waiting.pop_front() else { break };
            match check(&index, &mut growth, &mutation) {
                Ok(Decision::Append(record, payload)) => match room.take(&record) {
                    Ok(()) => {
                        gathered.entries.push((*record, payload));
                        gathered.replies.push(reply);
                    }
                    Err(error) => answers.push((reply, Err(error))),
                },
                Ok(Decision::Barrier) => gathered.barriers.push(reply),
                Ok(Decision::Answer(outcome)) => answers.push((reply, Ok(outcome))),
                Err(error) => answers.push((reply, Err(error))),
            }
        }
        drop(index);
        // What an answer tells is durable already, or nothing: it need not wait for this commit.
        for (reply, answer) in answers {
            reply(answer);
        }
        gathered
    }

    /// The commit did not fit or failed. What fits by itself is let through: a remove among writes on a full disk.
    fn refuse(&mut self, gathered: Gathered, error: AppendError) {
        let alone = gathered.entries.len() == 1;
        for (entry, reply) in gathered.entries.into_iter().zip(gathered.replies) {
            let again = match &error {
                AppendError::NoSpace if alone => Err(self.room().full()),
                AppendError::NoSpace => self.append_alone(entry),
                AppendError::Failed(error) => Err(error.clone()),
            };
            reply(again.map(|()| Outcome::Applied));
        }
        for reply in gathered.barriers {
            reply(match &error {
                AppendError::NoSpace => Ok(Outcome::Applied),
                AppendError::Failed(error) => Err(error.clone()),
            });
        }
    }

    fn append_alone(&mut self, entry: Entry) -> Result<(), Error> {
        let mut entries = vec![entry];
        match self.append(&mut entries) {
            Ok(()) => {
                self.publish(&entries);
                Ok(())
            }
            Err(AppendError::NoSpace) => Err(self.room().full()),
            Err(AppendError::Failed(error)) => Err(error),
        }
    }

    /// Append `entries` as one commit, in a new segment if the current one is full.
    pub(crate) fn append(&mut self, entries: &mut [Entry]) -> Result<(), AppendError> {
        if self.log.wants_segment() {
            self.roll()?;
        }
        self.log.append(entries)
    }

    /// Begin a new segment.
    pub(crate) fn roll(&mut self) -> Result<(), AppendError> {
        self.log.roll(&self.shared.files)?;
        let mut index = self.shared.index.write().unwrap_or_else(PoisonError::into_inner);
        index.segments.add(self.log.number, self.log.next, self.log.end);
        index.head = self.log.head();
        Ok(())
    }

    /// Show readers what is durable now.
    pub(crate) fn publish(&self, entries: &[Entry]) {
        if entries.is_empty() {
            return;
        }
        let mut index = self.shared.index.write().unwrap_or_else(PoisonError::into_inner);
        for (record, _) in entries {
            index.apply(record);
        }
        index.segments.set_bytes(self.log.number, self.log.end);
        index.head = self.log.head();
    }

    fn room(&self) -> Room {
        let log = self.shared.index.read().unwrap_or_else(PoisonError::into_inner).segments.used();
        let used = log.saturating_add(self.shared.keeper.bytes());
        Room::new(
            used,
            self.shared.capacity,
            self.shared.files.space().map(|space| space.free),
            self.log.wants_segment(),
        )
    }
}

impl Room {
    fn new(used: u64, capacity: Option<u64>, free: Option<u64>, new_segment: bool) -> Room {
        let capacity = capacity.unwrap_or(u64::MAX);
        let disk = free.map_or(u64::MAX, |free| used.saturating_add(free));
        let capacity = capacity.min(disk);
        let header = if new_segment { LOG_BLOCK_U64 } else { 0 };
        Room { used: used + header, capacity, reserve: RESERVE_BYTES.min(capacity / 8) }
    }

    /// Take what `record` needs. The reserve is for records that lead to freed space or keep order.
    fn take(&mut self, record: &Record) -> Result<(), Error> {
        let bytes = record.disk_bytes();
        let reserve = if may_use_reserve(record) { 0 } else { self.reserve };
        if self.used.saturating_add(bytes).saturating_add(reserve) > self.capacity {
            return Err(self.full());
        }
        self.used += bytes;
        Ok(())
    }

    /// Bytes that ordinary mutations may still take.
    fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used).saturating_sub(self.reserve)
    }

    fn full(&self) -> Error {
        Error::Full { used: self.used, capacity: self.capacity }
    }
}

fn may_use_reserve(record: &Record) -> bool {
    match record.kind {
        Kind::ObjectRemove | Kind::PartitionRemove | Kind::Fence | Kind::Verdict | Kind::SettledTo => true,
        kind => kind.writes() && record.is(flags::HOLE),
    }
}
