//! The cleaner's thread.
//!
//! A round empties some segments, the victims. Their live bytes are read, verified and handed to the
//! committer in batches of moves, until about one batch was moved. Then empty segments are freed, except
//! those that a reader, a checkpoint or a replay may still need. So after a crash at any step the bytes are
//! at their old place, at the new one, or at both.
//!
//! Damage is never moved. A segment in which it is found is kept for good, and the units that it hit are lost
//! (PROTOCOL R9).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use super::OnEnd;
use super::idle::{self, GivingBack};
use crate::clean::clusters::scattered;
use crate::clean::gather::{MoveRun, Others, Owner, in_order, referring, runs, scan};
use crate::clean::move_batch::{Move, MoveBatch};
use crate::clean::trigger::{CleanTrigger, Effort};
use crate::clean::victim::{Candidate, choose};
use crate::error::Error;
use crate::format::LOG_BLOCK_U64;
use crate::format::extent::{Extent, LogPosition};
use crate::index::extent::Few;
use crate::queue::CleanRound;
use crate::stored_extent::{self, Patience, Stored, stored};
use crate::threads::shared::Shared;
use crate::turns::OwnWork;

/// The most bytes of a batch of moves. A foreground commit may have to wait for one.
const MOVE_BATCH_BYTES_MAX: u64 = 8 << 20;

/// The most bytes of a batch of moves where others need the disk as well: so long it is not theirs.
const TURN_BYTES_MAX: u64 = 2 << 20;

/// The most segments that are emptied together.
const VICTIMS_MAX: usize = 16;
/// The most segments whose headers a paced round reads. Reading them may be in vain: a segment that looks
/// mostly dead by its payload may be full of the headers of small records.
const LOOKS_MAX: usize = 4;

/// A look at all objects takes at most this part of the time.
const LOOK_PART: u32 = 20;

/// About how many bytes a batch of moves has where segments have `segment_bytes`.
pub(crate) fn move_batch_bytes(segment_bytes: u64) -> u64 {
    (segment_bytes / 4).min(MOVE_BATCH_BYTES_MAX)
}

/// The cleaner's own state.
pub(crate) struct Cleaner {
    shared: Arc<Shared>,
    batch_bytes: u64,
    /// For segments whose headers were read: the bytes that moving their live records would have written, and
    /// their live payload at that time. The payload alone leaves out headers and padding.
    costs: BTreeMap<u32, (u64, u64)>,
    /// Segments that could not be read. They are not tried again while the store is open.
    aside: BTreeSet<u32>,
    rest: GivingBack,
    gathering: Gathering,
}

/// The state of bringing objects of clusters together.
#[derive(Debug, Clone, Copy, Default)]
struct Gathering {
    /// The changes of clustered objects that are taken care of; `None`: none since the store was opened.
    changes: Option<u64>,
    /// Passes that are left for these.
    passes: u64,
    /// The time before which is not looked again.
    not_before: Option<Instant>,
}

/// Segments to be emptied together, so that the bytes of one object end up together.
#[derive(Debug, Default)]
struct Victims {
    numbers: BTreeSet<u32>,
    /// The units of which the victims hold bytes.
    owners: BTreeSet<Owner>,
    /// Bytes that moving the victims' live records writes.
    cost: u64,
    /// Bytes that moving them frees, less the bytes written.
    gain: u64,
}

impl Cleaner {
    pub(crate) fn new(shared: Arc<Shared>) -> Cleaner {
        let most = if shared.turns.is_some() { TURN_BYTES_MAX } else { MOVE_BATCH_BYTES_MAX };
        let batch_bytes = move_batch_bytes(shared.segment_bytes).min(most);
        let rest = GivingBack::default();
        Cleaner {
            shared,
            batch_bytes,
            costs: BTreeMap::new(),
            aside: BTreeSet::new(),
            rest,
            gathering: Gathering::default(),
        }
    }

    /// Clean until the store is closed.
    pub(crate) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        // The committer, and a caller that asked for a round, must not wait for a cleaner that is gone.
        let _ending = OnEnd(|| {
            shared.queue.end_help();
            shared.cleaning.close();
        });
        while let Some(trigger) = self.shared.cleaning.wait() {
            if trigger == CleanTrigger::Idle {
                self.rest();
                continue;
            }
            let given = self.round(trigger.effort());
            match trigger {
                // The committer waits, and frees the empty segments itself.
                CleanTrigger::Stalled => {
                    self.shared.cleaning.end_stall();
                    self.shared.queue.end_stall(if given > 0 {
                        CleanRound::Emptied
                    } else {
                        CleanRound::Nothing
                    });
                }
                CleanTrigger::Asked(number) => self.shared.cleaning.answer(number),
                CleanTrigger::Paced if given == 0 => self.shared.cleaning.rest(),
                CleanTrigger::Paced | CleanTrigger::Idle => self.free(),
            }
        }
    }

    /// Free what an idle store does not need, a little at a time.
    fn rest(&mut self) {
        let shared = Arc::clone(&self.shared);
        if shared.is_held() {
            return;
        }
        if !self.rest.give_back(&shared) && self.round(Effort::Idle) == 0 {
            self.gather();
        }
    }

    /// Brings small objects of the same clusters together, some at a time. As many passes are made for the
    /// present changes as were found to be due at first, and no more, whatever is found then. A look takes
    /// little of the time: the next one waits.
    fn gather(&mut self) {
        let changes = self.shared.index.read().clustered;
        let Gathering { changes: of, passes, not_before } = self.gathering;
        if (of == Some(changes) && passes == 0) || not_before.is_some_and(|time| Instant::now() < time) {
            return;
        }
        let damaged: BTreeSet<u32> = {
            let index = self.shared.index.read();
            let damaged = index.segments.all.iter().filter(|(_, segment)| segment.damaged);
            damaged.map(|(&number, _)| number).collect()
        };
        let is_usable = |segment| !damaged.contains(&segment) && !self.aside.contains(&segment);
        let began = Instant::now();
        let found = scattered(&self.shared.index, self.shared.segment_bytes, is_usable);
        let not_before = Some(began + LOOK_PART * began.elapsed());
        let due = if of == Some(changes) { passes } else { found.passes };
        self.gathering = Gathering { changes: Some(changes), passes: due.saturating_sub(1), not_before };
        // The old places are free only after a checkpoint and another round.
        if !self.shared.space_budget().fits_moves(found.bytes.saturating_mul(2)) {
            self.gathering.passes = 0;
            return;
        }
        let runs = |owner| runs(&self.shared.index, owner, &found.segments, Others::Stay);
        let runs = in_order(&self.shared.index, &found.owners).into_iter().flat_map(runs).collect();
        if let Err(error) = self.carry(runs, Effort::Idle) {
            tracing::warn!(%error, "objects of a cluster are not gathered now");
        }
    }

    /// Empty some victims. Returns the bytes that are gained once the victims are freed.
    fn round(&mut self, effort: Effort) -> u64 {
        let urgent = effort == Effort::Urgent;
        let mut passed = BTreeSet::new();
        let mut moved = 0;
        let mut given = 0;
        let mut looks = if urgent { usize::MAX } else { LOOKS_MAX };
        // More is freed than a waiting write needs, as other writes will follow.
        let goal = if urgent { self.batch_bytes / 2 } else { 0 };
        while moved < self.batch_bytes || given < goal {
            let victims = self.victims(&mut passed, effort, &mut looks);
            if victims.numbers.is_empty() {
                break;
            }
            match self.empty(&victims, effort) {
                Ok(bytes) => moved += bytes,
                Err(error) => {
                    // The moves could not be written. The segments are not to blame: a later round tries
                    // again.
                    tracing::warn!(%error, segments = ?victims.numbers, "segments are not cleaned now");
                    return given;
                }
            }
            let index = self.shared.index.read();
            if victims.numbers.iter().all(|&number| index.segments.is_idle(number)) {
                given += victims.gain;
            }
        }
        given
    }

    /// The best segments that are worth cleaning, for about one batch. Adds those looked at to `passed`, and
    /// does not look at any of them again in this round.
    fn victims(&mut self, passed: &mut BTreeSet<u32>, effort: Effort, looks: &mut usize) -> Victims {
        let mut victims = Victims::default();
        let budget = self.shared.space_budget();
        while victims.cost < self.batch_bytes && victims.numbers.len() < VICTIMS_MAX {
            if *looks == 0 || self.shared.cleaning.is_wanted_elsewhere(effort) {
                break;
            }
            let Some(victim) = self.victim(passed, effort) else { break };
            passed.insert(victim.number);
            *looks -= 1;
            match self.look(&victim, effort) {
                Ok(Some((owners, cost))) if budget.fits_moves(victims.cost + cost) => {
                    victims.numbers.insert(victim.number);
                    victims.owners.extend(owners);
                    victims.cost += cost;
                    victims.gain += victim.bytes.saturating_sub(cost);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, segment = victim.number, "a segment cannot be read, and is not cleaned");
                    self.aside.insert(victim.number);
                }
            }
        }
        victims
    }

    /// The best segment that is not in `passed`.
    fn victim(&mut self, passed: &BTreeSet<u32>, effort: Effort) -> Option<Candidate> {
        let index = self.shared.index.read();
        let segments = &index.segments.all;
        self.costs.retain(|number, _| segments.contains_key(number));
        self.aside.retain(|number| segments.contains_key(number));
        let (&head, newest) = segments.last_key_value()?;
        let candidates = segments.range(..head).filter_map(|(&number, segment)| {
            let usable = segment.payload > 0
                && !segment.damaged
                && !self.aside.contains(&number)
                && !passed.contains(&number);
            // Bytes that have died since the segment's headers were read need not be moved any more.
            let live = self.costs.get(&number).map_or(segment.payload, |&(cost, payload)| {
                cost.saturating_sub(payload.saturating_sub(segment.payload))
            });
            let age = newest.first_sequence.saturating_sub(segment.first_sequence);
            let candidate = Candidate { number, bytes: segment.bytes, live, age };
            (usable && is_wanted(&candidate, effort)).then_some(candidate)
        });
        choose(candidates)
    }

    /// Read the headers of `victim`. Returns the units of which it holds bytes, and the bytes that moving
    /// them writes; `None` if it is not worth it, or damaged.
    fn look(&mut self, victim: &Candidate, effort: Effort) -> Result<Option<(BTreeSet<Owner>, u64)>, Error> {
        let payload = {
            let index = self.shared.index.read();
            index.segments.all.get(&victim.number).map_or(0, |segment| segment.payload)
        };
        let contents = scan(&self.shared.files, victim, self.shared.superblock.salt)?;
        if !contents.bad.is_empty() {
            for range in &contents.bad {
                self.lose_range(victim.number, range);
            }
            return Ok(None);
        }
        let alone = BTreeSet::from([victim.number]);
        let runs = |&owner| runs(&self.shared.index, owner, &alone, Others::Stay);
        let cost = contents.owners.iter().flat_map(runs).map(|run| run.disk_bytes()).sum();
        self.costs.insert(victim.number, (cost, payload));
        Ok(is_wanted(&Candidate { live: cost, ..*victim }, effort).then_some((contents.owners, cost)))
    }

    /// Move all that is live in `victims`, in the order of clusters, objects and units. Returns the bytes
    /// written. Unless cleaning is urgent, small neighbours in other segments are moved along, which takes
    /// more space for now.
    fn empty(&mut self, victims: &Victims, effort: Effort) -> Result<u64, Error> {
        let join =
            effort != Effort::Urgent && self.shared.space_budget().fits_moves(victims.cost.saturating_mul(2));
        let others = if join { Others::Join } else { Others::Stay };
        let runs = |owner| runs(&self.shared.index, owner, &victims.numbers, others);
        let runs = in_order(&self.shared.index, &victims.owners).into_iter().flat_map(runs).collect();
        self.carry(runs, effort)
    }

    /// Move the runs, batch by batch. Returns the bytes written. A run that cannot be read stays where it is;
    /// a batch that cannot be written is an error.
    fn carry(&mut self, runs: Vec<MoveRun>, effort: Effort) -> Result<u64, Error> {
        let mut moved = 0;
        let mut moves = Vec::new();
        let mut bytes = 0;
        let mut turn = None;
        for run in runs {
            if turn.is_none() {
                turn = self.turn(effort);
            }
            let Some(read) = self.read(&run) else { continue };
            bytes += run.disk_bytes();
            moves.push(read);
            if bytes >= self.batch_bytes {
                let written = self.commit(std::mem::take(&mut moves), effort)?;
                moved += written;
                turn = None;
                self.rest_after(written, effort);
                bytes = 0;
            }
        }
        if !moves.is_empty() {
            let written = self.commit(moves, effort)?;
            moved += written;
            drop(turn);
            self.rest_after(written, effort);
        }
        Ok(moved)
    }

    /// Waits for the disk, as long as nobody waits for the cleaner.
    fn turn(&self, effort: Effort) -> Option<Box<dyn Send>> {
        let bytes = self.batch_bytes;
        let is_awaited = || effort == Effort::Urgent || self.shared.cleaning.is_wanted_elsewhere(effort);
        self.shared.turn(OwnWork::Cleaning, bytes, bytes, &is_awaited)
    }

    /// Read and verify a run. `None` if it is not live any more, or cannot be read.
    fn read(&mut self, run: &MoveRun) -> Option<Move> {
        let salt = self.shared.superblock.salt;
        let first = self.stored(run)?;
        let read = first.and_then(|stored| {
            let read = Move::read(run, stored.clone(), salt);
            if !matches!(read, Err(Error::Damaged { .. })) {
                return read;
            }
            // Perhaps only the page cache is wrong: read again from the medium.
            stored_extent::drop_records(&stored);
            Move::read(run, stored, salt)
        });
        match read {
            Ok(read) => Some(read),
            Err(error @ Error::Damaged { segment, offset, .. }) => {
                tracing::error!(%error, owner = ?run.owner, "damage found while cleaning");
                self.lose(run, segment, offset);
                None
            }
            Err(error) => {
                tracing::warn!(%error, owner = ?run.owner, "a unit cannot be read, and its segments are not cleaned");
                self.aside.extend(run.pieces.iter().map(|piece| piece.segment));
                None
            }
        }
    }

    /// The run's pieces with their files. `None`: the run was overwritten or removed meanwhile.
    fn stored(&self, run: &MoveRun) -> Option<Result<Few<Stored>, Error>> {
        // While the index is locked, no segment that it refers to is freed.
        let index = self.shared.index.read();
        run.is_there(&index).then(|| {
            let there = |piece: &&Extent| index.segments.all.contains_key(&piece.segment);
            if !run.pieces.iter().all(|piece| there(&piece)) {
                return Err(Error::io("open a segment", std::io::ErrorKind::NotFound.into()));
            }
            stored(&self.shared.files, &run.pieces, Patience::Waits)
        })
    }

    /// Mark the unit as lost, as the piece of `run` at this position is damaged, unless the unit does not
    /// need the piece any more.
    fn lose(&self, run: &MoveRun, segment: u64, offset: u64) {
        let here = |piece: &&Extent| {
            u64::from(piece.segment) == segment && u64::from(piece.block) * LOG_BLOCK_U64 <= offset
        };
        let Some(&hit) = run.pieces.iter().filter(here).max_by_key(|piece| piece.block) else { return };
        let mut index = self.shared.index.write();
        if !(MoveRun { owner: run.owner, pieces: vec![hit] }).is_there(&index) {
            return;
        }
        let Owner { partition, object, unit, .. } = run.owner;
        index.mark_lost(
            partition,
            object,
            Some(unit),
            LogPosition { segment: hit.segment, block: hit.block },
        );
        index.segments.entry(hit.segment).damaged = true;
    }

    /// Mark the units as lost that refer to a range of `segment` without a whole record. The segment stays.
    fn lose_range(&self, segment: u32, range: &Range<u64>) {
        let mut index = self.shared.index.write();
        let hit: Vec<(Owner, LogPosition)> = referring(&index, segment, range);
        for (owner, position) in &hit {
            index.mark_lost(owner.partition, owner.object, Some(owner.unit), *position);
        }
        index.segments.entry(segment).damaged = true;
        drop(index);
        tracing::error!(
            segment,
            offset = range.start,
            units = hit.len(),
            "damage found while cleaning: units are lost"
        );
    }

    /// Hand moves to the committer. Returns the bytes of their records.
    fn commit(&self, moves: Vec<Move>, effort: Effort) -> Result<u64, Error> {
        let (reply, answer) = sync_channel(1);
        self.shared.queue.push_move_batch(MoveBatch { moves, reply });
        let bytes = answer.recv().unwrap_or(Err(Error::Closed))?;
        self.shared.cleaning.on_moved(bytes, effort);
        Ok(bytes)
    }

    /// Rests after moves in an idle store, in which nothing is to be noticed of them.
    fn rest_after(&self, bytes: u64, effort: Effort) {
        if effort == Effort::Idle {
            self.shared.cleaning.pause(idle::time_for(bytes));
        }
    }

    /// Request the checkpoint after which empty segments can be freed, if they are worth one.
    fn free(&self) {
        let bytes = self.shared.index.read().segments.idle_bytes();
        if bytes > self.batch_bytes && self.shared.checkpointer.is_worth(bytes) {
            self.shared.checkpointer.request();
        }
    }
}

/// Returns true if a segment is worth cleaning. In an idle store at least half of it must be dead, so that
/// not more is moved than is given back.
fn is_wanted(candidate: &Candidate, effort: Effort) -> bool {
    let mostly_dead = candidate.live <= candidate.bytes / 2;
    candidate.is_worth_it() && (effort != Effort::Idle || mostly_dead)
}

#[cfg(test)]
mod tests;
