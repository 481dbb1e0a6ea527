//! The committer: the one thread that writes to the log.
//!
//! The committer takes the queued requests and decides on each mutation in order. It appends the records of
//! those that pass as one commit, syncs once, applies the records to the index, and answers. Between commits
//! it frees segments ([`crate::threads::reclaim`]) and requests checkpoints.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use braid_layout::{ObjectId, PartitionId};
use bytes::Bytes;

use crate::clean::move_batch::MoveBatch;
use crate::commit_delay::CommitDelay;
use crate::error::Error;
use crate::format::LOG_BLOCK_U64;
use crate::format::record::{Kind, Record, flags};
use crate::index::Index;
use crate::index::deciding::bounds::COMMIT_LEN_MAX;
use crate::index::deciding::check::check;
use crate::index::deciding::decision::Decision;
use crate::index::deciding::growth::Growth;
use crate::index::deciding::touched::Touched;
use crate::mutation::MutationOutcome;
use crate::queue::{CleanRound, Help, Reply, Request};
use crate::segments::lengths::sealed_at;
use crate::segments::log::{AppendError, Entry, Log};
use crate::threads::OnEnd;
use crate::threads::shared::Shared;
use crate::threads::space_budget::{NoSpace, SpaceBudget};

/// A commit takes no further request once it has this many payload bytes.
const COMMIT_BYTES_MAX: u64 = 32 << 20;

/// The most times that the cleaner is called for one request.
const HELPS_MAX: u32 = 16;

/// Moved and newly written bytes share a segment as long as it is shorter than its full length divided by
/// this: otherwise there would be many tiny segments.
const SHARED_PART: u64 = 4;

/// Expected lifetime of bytes. Bytes that live long are kept apart from those that soon die, so that segments
/// die as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heat {
    Hot,
    /// Moved by the cleaner.
    Cold,
}

/// The committer's own state.
pub(crate) struct Committer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Log,
    /// The heat of the segment being written.
    pub(crate) heat: Heat,
    /// The delay in which the next commit waits for more requests.
    pub(crate) delay: CommitDelay,
}

/// A commit that was gathered.
#[derive(Default)]
struct Gathered {
    entries: Vec<Entry>,
    /// For each request, the number of its entries, and the reply.
    replies: Vec<(usize, Reply)>,
    barriers: Vec<Reply>,
    /// There is no space for the next mutation, which still waits.
    stalled: bool,
    /// Bytes that writes may still take after this commit.
    free: u64,
}

/// A commit being gathered.
struct Gathering {
    gathered: Gathered,
    /// The state that the mutations so far changed: the decision on the next one may not depend on it.
    touched: Touched,
    growth: Growth,
    budget: SpaceBudget,
    no_space: NoSpace,
    /// Payload bytes of the mutations looked at.
    bytes: u64,
    /// Answers that need no record.
    answers: Vec<(Reply, Result<MutationOutcome, Error>)>,
}

impl Gathering {
    fn new(budget: SpaceBudget, no_space: NoSpace) -> Gathering {
        let (gathered, touched, growth) = Default::default();
        Gathering { gathered, touched, growth, budget, no_space, bytes: 0, answers: Vec::new() }
    }

    /// Take requests from `waiting` and decide on them, up to the first that cannot be in the same commit.
    fn admit(&mut self, index: &Index, waiting: &mut VecDeque<Request>, most: u64) {
        while let Some((mutation, _)) = waiting.front() {
            if self.gathered.stalled || self.bytes >= most || !self.touched.admit(mutation) {
                break;
            }
            self.bytes += mutation.payload_bytes();
            let Some((mutation, reply)) = waiting.pop_front() else { break };
            let entries: Vec<Entry> = match check(index, &mut self.growth, &mutation) {
                Ok(Decision::Append(record, payload)) => vec![(*record, payload)],
                Ok(Decision::AppendBoth(first, second)) => {
                    vec![(*first, Bytes::new()), (*second, Bytes::new())]
                }
                Ok(Decision::Barrier) => {
                    self.gathered.barriers.push(reply);
                    continue;
                }
                Ok(Decision::Answer(outcome)) => {
                    self.answers.push((reply, Ok(outcome)));
                    continue;
                }
                Err(error) => {
                    self.answers.push((reply, Err(error)));
                    continue;
                }
            };
            let change = self.growth.change;
            let mut taken = entries.iter().map(|(record, _)| self.budget.take(record, change, self.no_space));
            match taken.find(Result::is_err).unwrap_or(Ok(())) {
                Ok(()) => {
                    self.gathered.replies.push((entries.len(), reply));
                    self.gathered.entries.extend(entries);
                }
                Err(_) if self.no_space == NoSpace::Wait => {
                    waiting.push_front((mutation, reply));
                    self.gathered.stalled = true;
                    break;
                }
                Err(error) => {
                    entries.iter().for_each(|(made, _)| self.growth.forget((made.partition, made.object)));
                    self.answers.push((reply, Err(error)));
                }
            }
        }
    }
}

impl Committer {
    /// Serve until the queue is closed and empty, then mark the log as cleanly closed.
    pub(crate) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        // No caller must wait for an answer that cannot come, also after a panic.
        let _ending = OnEnd(|| {
            shared.queue.abandon();
            shared.checkpointer.close();
            shared.cleaning.close();
            shared.folding.close();
        });
        let mut waiting: VecDeque<Request> = VecDeque::new();
        while self.turn(&mut waiting) {}
        self.end();
    }

    /// Serve the requests that wait, or wait for one. False: the queue is closed and empty.
    pub(crate) fn turn(&mut self, waiting: &mut VecDeque<Request>) -> bool {
        let bytes = COMMIT_BYTES_MAX.min(self.log.segment_bytes);
        if !self.shared.queue.take(waiting, COMMIT_LEN_MAX, bytes, self.delay) {
            return false;
        }
        if let Some(batch) = self.shared.queue.take_move_batch() {
            self.commit_moves(batch);
        }
        let folded = self.shared.queue.take_fold();
        let may_fold = folded.is_none_or(|folded| self.commit_folds(folded));
        self.serve(waiting);
        if may_fold {
            self.fold();
        }
        self.reclaim();
        true
    }

    /// Mark the log as cleanly closed, after the queue was closed and emptied.
    pub(crate) fn end(&mut self) {
        self.mark_closed();
        self.last_checkpoint();
        self.shared.files.give_up_all();
    }

    /// Commit the requests that wait. If there is no space for one, the cleaner frees some; if it cannot, the
    /// request is refused.
    fn serve(&mut self, waiting: &mut VecDeque<Request>) {
        while !self.commit_some(waiting, NoSpace::Wait) {
            if !self.gain() {
                self.shared.checkpointer.forget_older(&self.shared);
                self.commit_some(waiting, NoSpace::Refuse);
                return;
            }
        }
    }

    /// Free space; false if nothing can be freed.
    fn gain(&mut self) -> bool {
        // Checkpoints are not counted: one that is written meanwhile would hide the bytes that were freed.
        let before = self.log_bytes();
        self.free_space();
        // One round may not be enough: an earlier one, still under way, may take more than this one frees.
        for _ in 0..HELPS_MAX {
            if self.log_bytes() < before || !self.call_cleaner() {
                break;
            }
            self.free_space();
        }
        self.log_bytes() < before
    }

    fn log_bytes(&self) -> u64 {
        self.shared.index.read().segments.used()
    }

    /// Writes a checkpoint at the close, so that the next opening has nothing to replay.
    fn last_checkpoint(&self) {
        let head = self.shared.index.read().head;
        let newest = self.shared.checkpointer.newest();
        if self.log.rest.check().is_err() || newest.map_or(1, |kept| kept.replay.sequence) == head.sequence {
            return;
        }
        if let Err(error) = self.shared.checkpointer.make(&self.shared) {
            tracing::warn!(%error, "no checkpoint could be written at the close: the next opening replays the log's tail");
        }
    }

    /// Append a mark that everything before it is durable. The next opening then knows that damage in the
    /// tail is not a torn write.
    fn mark_closed(&mut self) {
        if self.log.file.is_none()
            || self.shared.is_held()
            || self.log.recent.newest().kind == Some(Kind::Mark)
            || self.log.certify().is_err()
        {
            return;
        }
        // Without the mark the next opening takes longer to be sure, and that is all.
        let _ = self.commit_entries(Heat::Hot, &mut [(Record::new(Kind::Mark), Bytes::new())]);
    }

    /// Make one commit of the first of `waiting`, as many as can be together. False: there is no space for
    /// the next one, which still waits.
    fn commit_some(&mut self, waiting: &mut VecDeque<Request>, no_space: NoSpace) -> bool {
        let mut gathered = self.gather(waiting, no_space);
        let fits = !gathered.stalled;
        let began = Instant::now();
        if let Err(error) = self.commit_entries(Heat::Hot, &mut gathered.entries) {
            self.refuse(gathered, error);
            return fits;
        }
        self.delay = CommitDelay::default();
        if !gathered.entries.is_empty() {
            let bytes = gathered.entries.iter().map(|(record, _)| record.disk_bytes()).sum();
            self.shared.cleaning.on_written(bytes, gathered.free);
            if self.shared.syncing.is_on() {
                let requests = gathered.entries.len() + waiting.len() + self.shared.queue.len();
                let took = began.elapsed();
                self.shared.commit_totals.lock().count(bytes, took);
                self.delay = CommitDelay::after(bytes, requests, took);
            }
        }
        let mut entries = gathered.entries.iter();
        for (count, reply) in gathered.replies {
            if let Some((record, _)) = entries.by_ref().take(count).last() {
                reply(Ok(outcome(record)));
            }
        }
        for reply in gathered.barriers {
            reply(Ok(MutationOutcome::Applied));
        }
        if !gathered.entries.is_empty() {
            while let Some(segment) = self.shared.files.recycled().surplus(gathered.free) {
                self.shared.files.give_up(&segment);
            }
        }
        fits
    }

    /// Have the cleaner do a round, and serve only the cleaner meanwhile. False if it found no segment to
    /// empty.
    fn call_cleaner(&mut self) -> bool {
        self.shared.cleaning.stall();
        loop {
            match self.shared.queue.wait_for_help() {
                Help::MoveBatch(batch) => self.commit_moves(batch),
                Help::Over(round) => return round == CleanRound::Emptied,
            }
        }
    }

    /// Commit the bytes that the cleaner has read, apart from those that were just written.
    fn commit_moves(&mut self, batch: MoveBatch) {
        let MoveBatch { moves, reply } = batch;
        let index = self.shared.index.read();
        let mut entries: Vec<Entry> =
            moves.into_iter().filter_map(|moved| moved.into_entry(&index)).collect();
        drop(index);
        let bytes = entries.iter().map(|(record, _)| record.disk_bytes()).sum();
        let done = self.commit_entries(Heat::Cold, &mut entries);
        let _ = reply.send(done.map(|()| bytes).map_err(|error| self.told(error)));
    }

    /// Gather a commit of the requests that wait.
    fn gather(&self, waiting: &mut VecDeque<Request>, no_space: NoSpace) -> Gathered {
        let mut gathering = Gathering::new(self.space_budget(), no_space);
        gathering.admit(&self.shared.index.read(), waiting, COMMIT_BYTES_MAX.min(self.log.segment_bytes));
        // These answers do not depend on this commit: they report state that is durable already, or they are
        // errors.
        for (reply, answer) in gathering.answers {
            reply(answer);
        }
        Gathered { free: gathering.budget.free(), ..gathering.gathered }
    }

    /// Answer the requests of a commit that failed. If it failed for lack of space, each request is first
    /// tried alone, so that a remove among writes gets through on a full disk.
    fn refuse(&mut self, gathered: Gathered, error: AppendError) {
        let alone = gathered.replies.len() == 1;
        let mut births: BTreeMap<(PartitionId, ObjectId), Option<u64>> = BTreeMap::new();
        let mut entries = gathered.entries.into_iter();
        for (count, reply) in gathered.replies {
            let mut own: Vec<Entry> = entries.by_ref().take(count).collect();
            let Some(last) = own.len().checked_sub(1) else { continue };
            let outcome = outcome(&own[last].0);
            let key = (own[last].0.partition, own[last].0.object);
            let is_creation = own[last].0.kind == Kind::ObjectCreate;
            let is_possible = match births.get(&key) {
                // The commit was to create its object.
                Some(&created) if !is_creation => {
                    own[last].0.birth = created.unwrap_or_default();
                    created.is_some()
                }
                _ => true,
            };
            let again = match &error {
                AppendError::NoSpace if !alone && is_possible => self.commit_entries(Heat::Hot, &mut own),
                error => Err(error.clone()),
            };
            if is_creation {
                births.insert(key, again.is_ok().then_some(own[last].0.birth));
            }
            reply(again.map(|()| outcome).map_err(|error| self.told(error)));
        }
        for reply in gathered.barriers {
            reply(match &error {
                AppendError::NoSpace => Ok(MutationOutcome::Applied),
                AppendError::Failed(error) => Err(error.clone()),
            });
        }
    }

    /// The error to answer for a request that was not appended.
    fn told(&self, error: AppendError) -> Error {
        match error {
            AppendError::NoSpace => self.space_budget().full(),
            AppendError::Failed(error) => error,
        }
    }

    /// Append `entries` as one commit, and show them to readers once they are durable.
    pub(crate) fn commit_entries(&mut self, heat: Heat, entries: &mut [Entry]) -> Result<(), AppendError> {
        if entries.is_empty() {
            return Ok(());
        }
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        let appended = self.append(heat, entries);
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        appended?;
        let mut index = self.shared.index.write();
        for (record, _) in entries {
            index.apply(record);
            index.appended.count(record.kind, record.disk_bytes());
        }
        index.segments.set_bytes(self.log.number, self.log.end);
        index.head = self.log.head();
        Ok(())
    }

    /// Append `entries`, in a new segment if the current one is full, or long enough already and of the other
    /// heat. If there is no space, once more without the recycled segments: not every limit on space can be
    /// asked for, as there may be a quota, or another user.
    fn append(&mut self, heat: Heat, entries: &mut [Entry]) -> Result<(), AppendError> {
        let mut may_retry = true;
        loop {
            let is_begun = self.log.end >= self.log.segment_bytes / SHARED_PART;
            let wants_segment = self.log.wants_segment() || (is_begun && self.heat != heat);
            let rolled = if wants_segment { self.roll() } else { Ok(()) };
            let done = rolled.and_then(|()| {
                self.heat = heat;
                self.log.append(entries)
            });
            let is_full = matches!(done, Err(AppendError::NoSpace));
            if !(is_full && std::mem::take(&mut may_retry) && self.shared.files.recycled().bytes() > 0) {
                return done;
            }
            self.shared.files.give_up_all();
        }
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

    pub(crate) fn space_budget(&self) -> SpaceBudget {
        let mut budget = self.shared.space_budget();
        budget.used += if self.log.wants_segment() { LOG_BLOCK_U64 } else { 0 };
        budget
    }
}

/// The answer to a mutation whose `record` is durable.
fn outcome(record: &Record) -> MutationOutcome {
    match record.kind {
        Kind::Data if record.is(flags::OWED) => {
            MutationOutcome::Owed { from: record.previous, version: record.version }
        }
        Kind::Delta => MutationOutcome::Counted { tip: record.version },
        _ => MutationOutcome::Applied,
    }
}
