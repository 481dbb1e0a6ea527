//! Folding: the committer merges settled deltas lazily into their parity unit's base (PROTOCOL R6).
//!
//! A fold reads the base's bytes and the deltas, verifies them, and appends a new base. It is an ordinary
//! record: until it is durable, the deltas stand. A unit with damage is marked lost, and reads of it fail.

use std::ops::Range;

use braid_layout::{EndBound, ObjectId, PartitionId};
use bytes::Bytes;

use crate::crc::block_crcs;
use crate::error::Error;
use crate::format::LOG_BLOCK_U64;
use crate::format::extent::LogPosition;
use crate::format::record::{Kind, Record, flags};
use crate::index::Index;
use crate::index::deciding::decision::object_record;
use crate::index::deciding::growth::ReservedChange;
use crate::index::extent::Few;
use crate::index::unit::Unit;
use crate::segments::log::Entry;
use crate::stored_extent::{self, Patience, Stored, Whose, stored};
use crate::threads::committer::{Committer, Heat};
use crate::threads::space_budget::NoSpace;

/// Number of units with settled deltas that may wait before all are folded: folding at once would rewrite the
/// base for every delta.
const WAITING_MAX: usize = 64;
/// A unit with this many deltas and layers is folded even if few units wait.
const DELTAS_LEN: usize = 32;
/// The most units folded between two commits.
const FOLD_LEN_MAX: usize = 4;

/// A base to write, and its sources.
struct Job {
    key: (PartitionId, ObjectId, u64),
    record: Record,
    range: Range<u32>,
    parts: Few<Stored>,
    layers: Few<Stored>,
}

impl Committer {
    /// Fold some units if enough wait.
    pub(crate) fn fold(&mut self) {
        let jobs = self.jobs();
        let mut entries: Vec<Entry> = Vec::new();
        for mut job in jobs {
            match bytes(&mut job, self.shared.superblock.salt) {
                Ok(payload) => entries.push((job.record, payload)),
                Err(error) => self.on_unreadable(job.key, &error),
            }
        }
        // If it fails, the deltas stand, and are folded later.
        let _ = self.commit_entries(Heat::Hot, &mut entries);
    }

    /// Marks a damaged unit lost (PROTOCOL R9). After another error it is tried again once the unit changes.
    fn on_unreadable(&self, key: (PartitionId, ObjectId, u64), error: &Error) {
        let (partition, object, unit) = key;
        tracing::error!(%error, %partition, %object, unit, "deltas of a parity unit cannot be folded in");
        let mut index = self.shared.index.write();
        index.foldable.remove(&key);
        let &Error::Damaged { segment, offset, .. } = error else { return };
        if let (Ok(segment), Ok(block)) = (u32::try_from(segment), u32::try_from(offset / LOG_BLOCK_U64)) {
            index.mark_lost(partition, object, Some(unit), LogPosition { segment, block });
            index.segments.entry(segment).damaged = true;
        }
    }

    fn jobs(&self) -> Vec<Job> {
        let index = self.shared.index.read();
        if index.foldable.is_empty() || self.shared.is_held() || self.log.rest.check().is_err() {
            return Vec::new();
        }
        let crowded = index.foldable.len() > WAITING_MAX;
        let is_due = |&(partition, object, unit): &(PartitionId, ObjectId, u64)| {
            let waiting =
                |unit: &Unit| unit.deltas.len() + unit.settled.as_ref().map_or(0, |base| base.layers.len());
            let found = || index.find_object(partition, object).ok().map(|found| waiting(&found.unit(unit)));
            crowded || found().is_some_and(|waiting| waiting >= DELTAS_LEN)
        };
        let mut jobs = Vec::new();
        let mut idle = Vec::new();
        for key in index.foldable.iter().copied().filter(is_due) {
            match self.job(&index, key) {
                Some(job) => jobs.push(job),
                None => idle.push(key),
            }
            if jobs.len() == FOLD_LEN_MAX {
                break;
            }
        }
        drop(index);
        if !idle.is_empty() {
            // The idle units are lost or gone. A unit that is repaired is queued again when it changes.
            let mut index = self.shared.index.write();
            index.foldable.retain(|key| !idle.contains(key));
        }
        let mut budget = if jobs.is_empty() { return jobs } else { self.space_budget() };
        let mut fits = |job: &Job| {
            let change = ReservedChange::default();
            budget.take(&job.record, change, NoSpace::Wait).is_ok()
        };
        jobs.into_iter().filter(|job| fits(job)).collect()
    }

    fn job(&self, index: &Index, key: (PartitionId, ObjectId, u64)) -> Option<Job> {
        let (partition, object, number) = key;
        let owner = index.whole_object(partition, object).ok()?;
        let unit = owner.unit(number);
        let fold = unit.fold()?;
        let mut record = object_record(Kind::ParityBase, partition, object, owner);
        record.flags = flags::FOLDED;
        (record.unit, record.units) = (number, 1);
        (record.from, record.to) = (fold.range.start, fold.range.end);
        record.payload_bytes = fold.range.end - fold.range.start;
        (record.version, record.previous, record.cover) = (fold.version, fold.previous, fold.cover);
        record.ends = fold.ends.iter().map(|&end| EndBound::exactly(end)).collect();
        record.columns = unit.settled.as_ref().map_or(record.columns, |base| base.columns);
        let parts = stored(&self.shared.files, &fold.extents, Patience::Waits).ok()?;
        let layers = stored(&self.shared.files, &fold.layers, Patience::Waits).ok()?;
        Some(Job { key, record, range: fold.range, parts, layers })
    }
}

/// Compute the new base's bytes.
fn bytes(job: &mut Job, salt: u64) -> Result<Bytes, Error> {
    let (partition, object, unit) = job.key;
    let whose = Whose { salt, partition, object, unit };
    let read = || {
        let parts = stored_extent::load(job.parts.iter().cloned(), whose, None)?;
        let layers = stored_extent::load(job.layers.iter().cloned(), whose, None)?;
        stored_extent::bytes_of(&parts, &layers, &job.range)
    };
    let bytes = read().or_else(|error| {
        // The page cache may be wrong: read again from the medium.
        stored_extent::drop_records(&job.parts);
        stored_extent::drop_records(&job.layers);
        if matches!(error, Error::Damaged { .. }) { read() } else { Err(error) }
    })?;
    job.record.crcs = block_crcs(job.range.start, &bytes);
    Ok(bytes.into())
}
