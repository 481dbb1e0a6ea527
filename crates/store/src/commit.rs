//! The committer: the one thread that writes.
//!
//! It takes what is queued, decides on each mutation in order, appends the records of those that pass as one commit,
//! syncs once, takes the records into the index and answers. Between commits it frees segments ([`crate::reclaim`]) and asks
//! for checkpoints.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::checkpoint::keeper::Keeper;
use crate::clean::burst::Burst;
use crate::clean::turn::Cleaning;
use crate::error::Error;
use crate::files::Files;
use crate::format::LOG_BLOCK_U64;
use crate::format::record::{Kind, Record, flags};
use crate::format::superblock::Superblock;
use crate::headers::Headers;
use crate::hope::{Hope, Trust};
use crate::index::Index;
use crate::index::check::{Decision, Touched, check};
use crate::index::growth::Growth;
use crate::index::locked::Locked;
use crate::lengths::sealed_at;
use crate::log::{AppendError, Entry, Log};
use crate::mutation::Outcome;
use crate::queue::{Came, Help, Queue, Reply, Request};
use crate::room::Room;

/// The most mutations of one commit.
pub(crate) const COMMIT_LEN_MAX: usize = 1024;
/// About the most payload bytes of one commit.
const COMMIT_BYTES_MAX: u64 = 32 << 20;

/// Small commits take about as long as their sync: there the committer waits for the writers that it has just answered, this
/// part of what the last one took, at most. Larger ones are better begun while their other writers still make checksums.
const PATIENCE_PART: u32 = 4;
/// And at most so long.
const PATIENCE_MAX: Duration = Duration::from_millis(2);
/// A small commit.
const HOPE_BYTES_MAX: u64 = 512 << 10;

/// The most times in a row that the cleaner is called for help with one request.
const HELPS_MAX: u32 = 16;

/// Moved bytes and others share a segment up to this part of it: that many tiny ones would not be worth their files.
const SHARED_PART: u64 = 4;

/// What the committer and the readers share.
pub(crate) struct Shared {
    pub(crate) files: Files,
    pub(crate) index: Locked,
    pub(crate) queue: Queue,
    pub(crate) headers: Headers,
    pub(crate) keeper: Keeper,
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

/// The committer's own.
pub(crate) struct Committer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Log,
    /// Whether the segment being written holds moved bytes, and nothing else.
    pub(crate) cold: bool,
    /// What is to come soon.
    pub(crate) hope: Hope,
    /// Whether anything is.
    pub(crate) trust: Trust,
}

/// A commit that was gathered.
#[derive(Default)]
struct Gathered {
    entries: Vec<Entry>,
    replies: Vec<Reply>,
    barriers: Vec<Reply>,
    /// The next mutation did not fit, and was left where it was.
    stalled: bool,
    /// What writes may still take with it.
    free: u64,
}

/// A commit being gathered.
struct Gathering {
    gathered: Gathered,
    /// What the next mutation's decision could depend on, and what it may take.
    touched: Touched,
    growth: Growth,
    room: Room,
    /// What does not fit waits until space was gained.
    patient: bool,
    /// Mutations looked at, and their payload bytes.
    count: usize,
    bytes: u64,
    /// To those that need no record.
    answers: Vec<(Reply, Result<Outcome, Error>)>,
}

impl Gathering {
    fn new(room: Room, patient: bool) -> Gathering {
        let (gathered, touched, growth) = Default::default();
        Gathering { gathered, touched, growth, room, patient, count: 0, bytes: 0, answers: Vec::new() }
    }

    /// Decide on the first of `waiting`, as many as can go together with what there is already.
    fn admit(&mut self, index: &Index, waiting: &mut VecDeque<Request>, most: u64) {
        while let Some((mutation, _)) = waiting.front() {
            if self.gathered.stalled || self.bytes >= most || !self.touched.admit(mutation) {
                break;
            }
            self.bytes += mutation.payload_bytes();
            self.count += 1;
            let Some((mutation, reply)) = waiting.pop_front() else { break };
            match check(index, &mut self.growth, &mutation) {
                Ok(Decision::Append(record, payload)) => {
                    match if self.patient {
                        self.room.take(&record, self.growth.change)
                    } else {
                        self.room.take_at_last(&record, self.growth.change)
                    } {
                        Ok(()) => {
                            self.gathered.entries.push((*record, payload));
                            self.gathered.replies.push(reply);
                        }
                        Err(_) if self.patient => {
                            waiting.push_front((mutation, reply));
                            self.gathered.stalled = true;
                            break;
                        }
                        Err(error) => self.answers.push((reply, Err(error))),
                    }
                }
                Ok(Decision::Barrier) => self.gathered.barriers.push(reply),
                Ok(Decision::Answer(outcome)) => self.answers.push((reply, Ok(outcome))),
                Err(error) => self.answers.push((reply, Err(error))),
            }
        }
    }
}

/// Closes the queue when the committer ends, however it ends: nobody waits for an answer that cannot come.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.queue.abandon();
        self.0.keeper.close();
        self.0.cleaning.close();
    }
}

impl Committer {
    /// Serve until the queue is closed and empty, then mark the log as cleanly closed.
    pub(crate) fn run(mut self) {
        let ending = Ending(Arc::clone(&self.shared));
        let mut waiting: VecDeque<Request> = VecDeque::new();
        let bytes = COMMIT_BYTES_MAX.min(self.log.segment_bytes);
        while self.shared.queue.take(&mut waiting, COMMIT_LEN_MAX, bytes, &self.hope) {
            if let Some(burst) = self.shared.queue.take_burst() {
                self.commit_burst(burst);
            }
            self.serve(&mut waiting);
            if !waiting.is_empty() {
                // They have waited already.
                self.hope = Hope::none();
            }
            self.fold();
            self.reclaim();
        }
        self.mark_closed();
        self.last_checkpoint();
        self.shared.files.give_up_all();
        drop(ending);
    }

    /// Commit what waits first. What does not fit waits until space was gained, and is refused when there is none to gain.
    fn serve(&mut self, waiting: &mut VecDeque<Request>) {
        while !self.commit_some(waiting, true) {
            if !self.gain() {
                self.shared.keeper.forget_older(&self.shared);
                self.commit_some(waiting, false);
                return;
            }
        }
    }

    /// Gain space; false if there is none to gain.
    fn gain(&mut self) -> bool {
        // Checkpoints aside: one that was under way and is there now is no sign that nothing was gained.
        let before = self.log_bytes();
        self.make_space();
        // What the cleaner was busy with may have taken more than the first help gives back.
        for _ in 0..HELPS_MAX {
            if self.log_bytes() < before || !self.make_room() {
                break;
            }
            self.make_space();
        }
        self.log_bytes() < before
    }

    fn log_bytes(&self) -> u64 {
        self.shared.index.read().segments.used()
    }

    /// So that the next opening has nothing to replay.
    fn last_checkpoint(&self) {
        let head = self.shared.index.read().head;
        let newest = self.shared.keeper.newest();
        if self.log.rest.check().is_err() || newest.map_or(1, |kept| kept.replay.sequence) == head.sequence {
            return;
        }
        if let Err(error) = self.shared.keeper.make() {
            tracing::warn!(%error, "no checkpoint at the close: the next opening replays the log's tail");
        }
    }

    /// Say durably that all is durable, so that the next opening takes no damage in the tail for a torn write.
    fn mark_closed(&mut self) {
        if self.log.file.is_none()
            || self.shared.is_held()
            || self.log.recent.newest().kind == Some(Kind::Mark)
            || self.log.certify().is_err()
        {
            return;
        }
        let mut mark = vec![(Record::new(Kind::Mark), bytes::Bytes::new())];
        if self.append(&mut mark).is_ok() {
            self.publish(&mark);
        }
    }

    /// One commit with the first of `waiting`, as many as can go together. False: the next one does not fit. It stays
    /// where it is if `patient`, else it is refused.
    fn commit_some(&mut self, waiting: &mut VecDeque<Request>, patient: bool) -> bool {
        let mut gathered = self.gather(waiting, patient);
        let fits = !gathered.stalled;
        let began = Instant::now();
        if !gathered.entries.is_empty()
            && let Err(error) = self.append(&mut gathered.entries)
        {
            self.refuse(gathered, error);
            return fits;
        }
        self.publish(&gathered.entries);
        let mut patience = None;
        if !gathered.entries.is_empty() {
            let bytes = gathered.entries.iter().map(|(record, _)| record.disk_bytes()).sum();
            self.shared.cleaning.on_written(bytes, gathered.free);
            let is_small = self.shared.sync && bytes <= HOPE_BYTES_MAX;
            patience = is_small.then(|| (began.elapsed() / PATIENCE_PART).min(PATIENCE_MAX));
        }
        let waits = waiting.len() + self.shared.queue.len();
        for ((record, _), reply) in gathered.entries.iter().zip(gathered.replies) {
            reply(Ok(outcome(record)));
        }
        for reply in gathered.barriers {
            reply(Ok(Outcome::Applied));
        }
        if !gathered.entries.is_empty() {
            while let Some(spare) = self.shared.files.spares().surplus(gathered.free) {
                self.shared.files.give_up(&spare);
            }
        }
        let patience = patience.filter(|_| self.trust.may_hope());
        let count = waits + gathered.entries.len();
        self.hope = patience.map_or_else(Hope::none, |patience| Hope::new(count, patience, Instant::now()));
        fits
    }

    /// Let the cleaner work alone until it has emptied something, or found nothing to empty: then false.
    fn make_room(&mut self) -> bool {
        self.shared.cleaning.stall();
        loop {
            match self.shared.queue.wait_for_help() {
                Help::Burst(burst) => self.commit_burst(burst),
                Help::Over(emptied) => return emptied,
            }
        }
    }

    /// Commit what the cleaner has read, in a segment of its own.
    fn commit_burst(&mut self, burst: Burst) {
        let Burst { moves, reply } = burst;
        let index = self.shared.index.read();
        let mut entries: Vec<Entry> =
            moves.into_iter().filter_map(|moved| moved.into_entry(&index)).collect();
        drop(index);
        let bytes = entries.iter().map(|(record, _)| record.disk_bytes()).sum();
        let done = if entries.is_empty() { Ok(()) } else { self.append_apart(&mut entries, true) };
        if done.is_ok() {
            self.publish(&entries);
        }
        let _ = reply.send(match done {
            Ok(()) => Ok(bytes),
            Err(AppendError::NoSpace) => Err(self.room().full()),
            Err(AppendError::Failed(error)) => Err(error),
        });
    }

    /// Gather a commit of what waits, and of what is hoped for: one is looked at while the next is still on its way.
    fn gather(&mut self, waiting: &mut VecDeque<Request>, patient: bool) -> Gathered {
        let mut hope = std::mem::replace(&mut self.hope, Hope::none());
        hope.begin(waiting.len(), Instant::now());
        let hoped = hope.count;
        let mut gathering = Gathering::new(self.room(), patient);
        let most = COMMIT_BYTES_MAX.min(self.log.segment_bytes);
        loop {
            gathering.admit(&self.shared.index.read(), waiting, most);
            // What an answer tells is durable already, or nothing: it need not wait for this commit.
            for (reply, answer) in gathering.answers.drain(..) {
                reply(answer);
            }
            let (count, bytes) =
                (COMMIT_LEN_MAX.saturating_sub(gathering.count), most.saturating_sub(gathering.bytes));
            if !waiting.is_empty() {
                break;
            }
            match self.shared.queue.take_hoped(waiting, count, bytes, &hope) {
                Came::Some => hope.come(waiting.len()),
                Came::None => {
                    self.trust.learn(hoped, hope.count);
                    break;
                }
                Came::Enough => break,
            }
            if hope.count == 0 {
                self.trust.learn(hoped, 0);
            }
        }
        let mut gathered = gathering.gathered;
        gathered.free = gathering.room.free();
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
            reply(again);
        }
        for reply in gathered.barriers {
            reply(match &error {
                AppendError::NoSpace => Ok(Outcome::Applied),
                AppendError::Failed(error) => Err(error.clone()),
            });
        }
    }

    fn append_alone(&mut self, entry: Entry) -> Result<Outcome, Error> {
        let outcome = outcome(&entry.0);
        let mut entries = vec![entry];
        match self.append(&mut entries) {
            Ok(()) => {
                self.publish(&entries);
                Ok(outcome)
            }
            Err(AppendError::NoSpace) => Err(self.room().full()),
            Err(AppendError::Failed(error)) => Err(error),
        }
    }

    /// Append `entries` as one commit, in a new segment if the current one is full.
    pub(crate) fn append(&mut self, entries: &mut [Entry]) -> Result<(), AppendError> {
        self.append_apart(entries, false)
    }

    /// The same; moved bytes (`cold`) and others share a segment only as long as it is short.
    fn append_apart(&mut self, entries: &mut [Entry], cold: bool) -> Result<(), AppendError> {
        match self.append_to(entries, cold) {
            // Not all that bounds space can be asked: a quota, another user of the file system.
            Err(AppendError::NoSpace) if self.shared.files.spares().bytes() > 0 => {
                self.shared.files.give_up_all();
                self.append_to(entries, cold)
            }
            done => done,
        }
    }

    fn append_to(&mut self, entries: &mut [Entry], cold: bool) -> Result<(), AppendError> {
        let begun = self.log.end >= self.log.segment_bytes / SHARED_PART;
        if self.log.wants_segment() || (begun && self.cold != cold) {
            self.roll()?;
        }
        self.cold = cold;
        self.log.append(entries)
    }

    /// Begin a new segment.
    pub(crate) fn roll(&mut self) -> Result<(), AppendError> {
        self.log.roll(&self.shared.files)?;
        let mut index = self.shared.index.write();
        index.segments.add(self.log.number, self.log.next, self.log.end);
        self.log.segment_bytes = sealed_at(self.shared.segment_bytes, index.segments.all.len());
        index.head = self.log.head();
        Ok(())
    }

    /// Show readers what is durable now.
    pub(crate) fn publish(&self, entries: &[Entry]) {
        if entries.is_empty() {
            return;
        }
        let mut index = self.shared.index.write();
        for (record, _) in entries {
            index.apply(record);
            index.appended.count(record.kind, record.disk_bytes());
        }
        index.segments.set_bytes(self.log.number, self.log.end);
        index.head = self.log.head();
    }

    pub(crate) fn room(&self) -> Room {
        let mut room = self.shared.room();
        room.used += if self.log.wants_segment() { LOG_BLOCK_U64 } else { 0 };
        room
    }
}

/// What is answered when `record` is durable.
fn outcome(record: &Record) -> Outcome {
    match record.kind {
        Kind::Data if record.is(flags::OWED) => {
            Outcome::Owed { from: record.previous, version: record.version }
        }
        Kind::Delta => Outcome::Counted { tip: record.version },
        _ => Outcome::Applied,
    }
}
