//! Folding: settled deltas are merged lazily into their parity unit's base (PROTOCOL R6).
//!
//! A fold reads the base's bytes and the deltas, verifies them, and appends a new base. It is an ordinary
//! record: until it is durable, the deltas stand. A unit with damage is marked lost, and reads of it fail.
//!
//! The reads take the disk as long as those of a user. Where others need the disk as well, a thread of its
//! own makes them, in turns ([`crate::threads::folder`]): a committer that read would hold up all writes.

use std::ops::Range;
use std::time::{Duration, Instant};

use braid_layout::EndBound;
use bytes::Bytes;

use crate::crc::block_crcs;
use crate::error::Error;
use crate::folded::{Base, Folded, Key};
use crate::format::LOG_BLOCK_U64;
use crate::format::extent::{Extent, LogPosition};
use crate::format::record::{Kind, Record, flags};
use crate::index::Index;
use crate::index::deciding::decision::object_record;
use crate::index::deciding::growth::ReservedChange;
use crate::index::extent::Few;
use crate::index::parity::Fold;
use crate::index::unit::Unit;
use crate::segments::log::Entry;
use crate::stored_extent::{self, Part, Patience, Stored, Whose, stored};
use crate::threads::committer::{Committer, Heat};
use crate::threads::shared::Shared;
use crate::threads::space_budget::NoSpace;
use crate::turns::OwnWork;

/// Number of units with settled deltas that may wait before all are folded: folding at once would rewrite the
/// base for every delta.
const WAITING_MAX: usize = 64;
/// A unit with this many deltas and layers is folded even if few units wait.
const DELTAS_LEN: usize = 32;
/// So is one whose deltas and layers have this many bytes: a read of the unit reads them all.
const DELTA_BYTES: u64 = 2 << 20;
/// The most units that the committer folds between two commits.
const FOLD_LEN_MAX: usize = 4;
/// With this many units waiting no turn at the disk is waited for: the log would fill up.
const CROWD_MAX: usize = 16 * WAITING_MAX;
/// Nor for a unit with this many bytes of deltas and layers: a read of it would hold up the disk for longer
/// than its fold, which reads a little at a time.
const CROWD_BYTES: u64 = 2 * DELTA_BYTES;
/// Time within which bases are made that share a commit: the units of the first ones may change meanwhile.
const TOGETHER: Duration = Duration::from_millis(5);
/// Bytes that are read in one turn at the disk.
const TURN_BYTES: u64 = 1 << 20;
/// The least bytes that are read of each source in a turn: less would be mostly positioning.
const PIECE_MIN: u64 = 64 << 10;

/// A base to write, and its sources.
pub(crate) struct Job {
    key: Key,
    fold: Fold,
    record: Record,
    parts: Few<Stored>,
    layers: Few<Stored>,
}

impl Committer {
    /// Folds some units if enough wait; where others need the disk as well, the folder's thread does.
    pub(crate) fn fold(&mut self) {
        let shared = &self.shared;
        if shared.folding.has_thread() {
            if self.log.rest.check().is_ok() && is_any_due(shared) {
                shared.folding.call();
            }
            return;
        }
        if self.log.rest.check().is_err() {
            return;
        }
        let mut entries: Vec<Entry> = Vec::new();
        for mut job in jobs(shared, FOLD_LEN_MAX) {
            match job.bytes(shared, None) {
                Ok(payload) => entries.push((job.record, payload)),
                Err(error) => on_unreadable(shared, &job, &error),
            }
        }
        // If it fails, the deltas stand, and are folded later.
        let _ = self.commit_entries(Heat::Hot, &mut entries);
    }

    /// Writes bases that the folder's thread has made, in one commit, but for those of which what they were
    /// made of has changed meanwhile. Returns false if they cannot be written now: they would be made again
    /// in vain at once.
    pub(crate) fn commit_folds(&mut self, folded: Folded) -> bool {
        let Folded { bases, reply } = folded;
        let made = bases.len();
        let mut entries: Vec<Entry> = {
            let index = self.shared.index.read();
            let is_as_read = |base: &Base| is_as_read(&index, base.key, &base.entry.0, &base.fold);
            bases.into_iter().filter(is_as_read).map(|base| base.entry).collect()
        };
        let as_read = entries.len();
        {
            let mut budget = self.space_budget();
            entries.retain(|entry| budget.take(&entry.0, ReservedChange::default(), NoSpace::Wait).is_ok());
        }
        let fit = entries.len();
        let is_written =
            fit > 0 && self.log.rest.check().is_ok() && self.commit_entries(Heat::Hot, &mut entries).is_ok();
        // This fails if the folder's thread has ended.
        let _ = reply.send(is_written && fit == made);
        as_read == 0 || is_written && fit == as_read
    }
}

/// Makes the bases of the next units that are due, in turns at the disk: several, as long as that is quick,
/// so that they share a commit. Returns none if none is due now, or none can be folded.
pub(crate) fn next(shared: &Shared, gives_up: &dyn Fn() -> bool) -> Vec<Base> {
    let began = Instant::now();
    let mut bases = Vec::new();
    loop {
        let jobs = jobs(shared, FOLD_LEN_MAX);
        if jobs.is_empty() {
            return bases;
        }
        for mut job in jobs {
            let is_crowded = shared.index.read().foldable.len() > CROWD_MAX
                || job.fold.layers.iter().map(extent_bytes).sum::<u64>() >= CROWD_BYTES;
            let gives_up = || is_crowded || gives_up();
            match job.bytes(shared, Some(&gives_up)) {
                Ok(payload) => {
                    let Job { key, fold, record, .. } = job;
                    bases.push(Base { key, fold, entry: (record, payload) });
                }
                Err(error) => on_unreadable(shared, &job, &error),
            }
            if !bases.is_empty() && began.elapsed() > TOGETHER {
                return bases;
            }
        }
        if !bases.is_empty() {
            return bases;
        }
    }
}

/// Returns true if a unit still has what a base of it was made of.
fn is_as_read(index: &Index, key: Key, base: &Record, fold: &Fold) -> bool {
    let (partition, object, number) = key;
    index.whole_object(partition, object).is_ok_and(|owner| {
        owner.birth == base.birth && owner.unit(number).fold_to(&fold.cover).as_ref() == Some(fold)
    })
}

/// Marks a damaged unit lost (PROTOCOL R9), unless it was written meanwhile. After another error it is tried
/// again once the unit changes.
fn on_unreadable(shared: &Shared, job: &Job, error: &Error) {
    let (partition, object, unit) = job.key;
    let mut index = shared.index.write();
    if !is_as_read(&index, job.key, &job.record, &job.fold) {
        return;
    }
    tracing::error!(%error, %partition, %object, unit, "deltas of a parity unit cannot be folded in");
    index.foldable.remove(&job.key);
    let &Error::Damaged { segment, offset, .. } = error else { return };
    if let (Ok(segment), Ok(block)) = (u32::try_from(segment), u32::try_from(offset / LOG_BLOCK_U64)) {
        index.mark_lost(partition, object, Some(unit), LogPosition { segment, block });
        index.segments.entry(segment).damaged = true;
    }
}

/// Returns true if a unit is to be folded.
fn is_any_due(shared: &Shared) -> bool {
    let index = shared.index.read();
    !shared.is_held() && index.foldable.iter().any(|key| is_due(&index, key))
}

/// Returns true if a unit is to be folded: too many wait, or it has many deltas.
fn is_due(index: &Index, key: &Key) -> bool {
    let &(partition, object, unit) = key;
    let is_long = |unit: &Unit| {
        let layers = unit.settled.as_ref().map_or(&[][..], |base| &base.layers);
        let extents = || unit.deltas.iter().map(|delta| &delta.own).chain(layers);
        let bytes: u64 = extents().map(extent_bytes).sum();
        extents().count() >= DELTAS_LEN || bytes >= DELTA_BYTES
    };
    index.foldable.len() > WAITING_MAX
        || index.find_object(partition, object).is_ok_and(|found| is_long(&found.unit(unit)))
}

fn extent_bytes(extent: &Extent) -> u64 {
    u64::from(extent.to - extent.from)
}

/// At most `most` units that are to be folded, and for which there is space.
fn jobs(shared: &Shared, most: usize) -> Vec<Job> {
    let index = shared.index.read();
    if index.foldable.is_empty() || shared.is_held() {
        return Vec::new();
    }
    let mut jobs = Vec::new();
    let mut idle = Vec::new();
    for key in index.foldable.iter().copied().filter(|key| is_due(&index, key)) {
        match job(shared, &index, key) {
            Some(job) => jobs.push(job),
            None => idle.push(key),
        }
        if jobs.len() == most {
            break;
        }
    }
    drop(index);
    if !idle.is_empty() {
        // The idle units are lost or gone. A unit that is repaired is queued again when it changes.
        let mut index = shared.index.write();
        for key in idle {
            if job(shared, &index, key).is_none() {
                index.foldable.remove(&key);
            }
        }
    }
    let mut budget = if jobs.is_empty() { return jobs } else { shared.space_budget() };
    let mut fits = |job: &Job| {
        let change = ReservedChange::default();
        budget.take(&job.record, change, NoSpace::Wait).is_ok()
    };
    jobs.into_iter().filter(|job| fits(job)).collect()
}

fn job(shared: &Shared, index: &Index, key: Key) -> Option<Job> {
    let (partition, object, number) = key;
    let owner = index.whole_object(partition, object).ok()?;
    let unit = owner.unit(number);
    let fold = unit.fold()?;
    let mut record = object_record(Kind::ParityBase, partition, object, owner);
    record.flags = flags::FOLDED;
    (record.unit, record.units) = (number, 1);
    (record.from, record.to) = (fold.range.start, fold.range.end);
    record.payload_bytes = fold.range.end - fold.range.start;
    (record.version, record.previous, record.cover) = (fold.version, fold.previous, fold.cover.clone());
    record.ends = fold.ends.iter().map(|&end| EndBound::exactly(end)).collect();
    record.columns = unit.settled.as_ref().map_or(record.columns, |base| base.columns);
    let parts = stored(&shared.files, &fold.extents, Patience::Waits).ok()?;
    let layers = stored(&shared.files, &fold.layers, Patience::Waits).ok()?;
    Some(Job { key, fold, record, parts, layers })
}

impl Job {
    /// Computes the new base's bytes. With `gives_up` it is done in turns at the disk.
    fn bytes(&mut self, shared: &Shared, gives_up: Option<&dyn Fn() -> bool>) -> Result<Bytes, Error> {
        let bytes = self.read(shared, gives_up).or_else(|error| {
            // The page cache may be wrong: read again from the medium.
            stored_extent::drop_records(&self.parts);
            stored_extent::drop_records(&self.layers);
            if matches!(error, Error::Damaged { .. }) { self.read(shared, gives_up) } else { Err(error) }
        })?;
        self.record.crcs = block_crcs(self.fold.range.start, &bytes);
        Ok(bytes.into())
    }

    fn read(&self, shared: &Shared, gives_up: Option<&dyn Fn() -> bool>) -> Result<Vec<u8>, Error> {
        let (partition, object, unit) = self.key;
        let whose = Whose { salt: shared.superblock.salt, partition, object, unit };
        let turn = |bytes| gives_up.map(|gives_up| shared.turn(OwnWork::Folding, bytes, 0, gives_up));
        let sources = u64::try_from(self.parts.len() + self.layers.len()).unwrap_or(u64::MAX).max(1);
        let headers = turn(sources.saturating_mul(LOG_BLOCK_U64).min(TURN_BYTES));
        let parts: Few<Part> = stored_extent::load(self.parts.iter().cloned(), whose, None)?;
        let layers: Few<Part> = stored_extent::load(self.layers.iter().cloned(), whose, None)?;
        drop(headers);
        let Range { start, end } = self.fold.range;
        let all = u64::from(end - start);
        let piece =
            if gives_up.is_some() { TURN_BYTES / sources / LOG_BLOCK_U64 * LOG_BLOCK_U64 } else { all };
        let piece = u32::try_from(piece.max(PIECE_MIN)).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(usize::try_from(all).expect("at most a unit"));
        let mut from = start;
        while from < end {
            let to = from.saturating_add(piece).min(end);
            let within =
                |stored: &Stored| stored.extent.to.min(to).saturating_sub(stored.extent.from.max(from));
            let of_piece = self.parts.iter().chain(self.layers.iter()).map(within).map(u64::from).sum();
            let _turn = turn(of_piece);
            bytes.extend(stored_extent::bytes_of(&parts, &layers, &(from..to))?);
            from = to;
        }
        Ok(bytes)
    }
}
