//! Snapshots of an object: the content that was settled when a snapshot was taken stays readable, by copy on
//! write.
//!
//! Taking a snapshot changes no unit, except that settled deltas become layers. Each settled content has an
//! *epoch*: the newest live snapshot when it became settled (0: none). A snapshot sees a content if it was
//! taken after the content's epoch and before the content was replaced. A content that is replaced while a
//! live snapshot sees it is *kept*; its `until` is the newest of those. Once no live snapshot is at or below
//! the epoch, it becomes 0, so that units without kept contents are stored in their small form again.

use std::collections::BTreeSet;
use std::ops::Range;

use braid_layout::{ObjectId, PartitionId};

use crate::error::Error;
use crate::format::body;
use crate::format::extent::{Extent, LogPosition};
use crate::format::record::Kind;
use crate::index::deciding::decision::{Decision, damaged, object_record, to_append};
use crate::index::extent::moved;
use crate::index::found::Found;
use crate::index::paged::PagedMap;
use crate::index::parity::Cut;
use crate::index::unit::{Content, Unit};
use crate::index::{Extra, Object};
use crate::mutation::{MutationOutcome, SNAPSHOTS_MAX, WriteKind};

/// The state of an object's snapshots.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Snapshots {
    /// Snapshots that can be read.
    pub(crate) live: BTreeSet<u32>,
    /// The highest number ever taken. Numbers are never reused.
    pub(crate) highest: u32,
    /// Units with kept contents, or with an epoch.
    pub(crate) units: PagedMap<u64, ()>,
    /// Units with deltas, which are counted in when a snapshot is taken.
    pub(crate) deltas: PagedMap<u64, ()>,
}

/// A replaced content that snapshots still see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptContent {
    /// The content, or the position of damage that had hit the unit before it was made whole again.
    pub(crate) content: Result<Content, LogPosition>,
    /// The snapshots above this number, up to `until`, see the content.
    pub(crate) epoch: u32,
    /// The last snapshot that can see the content.
    pub(crate) until: u32,
}

impl KeptContent {
    fn is_seen_by(&self, snapshot: u32) -> bool {
        self.epoch < snapshot && snapshot <= self.until
    }
}

/// The parts of a unit's state that a change may replace.
#[derive(Debug)]
pub(crate) struct Before {
    settled: Option<Content>,
    lost: Option<LogPosition>,
}

impl Unit {
    /// The state before a change, for [`Unit::keep`].
    pub(crate) fn before(&self) -> Before {
        Before { settled: self.settled.clone(), lost: self.lost }
    }

    /// Called after a change: keeps the replaced content, if the object's newest live snapshot sees it.
    pub(crate) fn keep(&mut self, before: Before, newest: u32) {
        if let (Some(place), None) = (before.lost, self.lost) {
            // The earlier content is unknown, so no snapshot may show it.
            self.kept = vec![KeptContent { content: Err(place), epoch: 0, until: newest }];
            self.epoch = newest;
            return;
        }
        let Some(now) = &self.settled else { return };
        let Some(content) = before.settled else {
            self.epoch = newest;
            return;
        };
        // A fold that counts in nothing new leaves the same bytes, which need not be kept.
        if (content.version, &content.cover) == (now.version, &now.cover) {
            return;
        }
        if self.epoch < newest {
            self.kept.push(KeptContent { content: Ok(content), epoch: self.epoch, until: newest });
        }
        self.epoch = newest;
    }

    /// Called after a snapshot was dropped: frees the contents that none of the `live` ones sees.
    pub(crate) fn prune(&mut self, live: &BTreeSet<u32>) {
        self.kept.retain(|kept| live.iter().any(|&snapshot| kept.is_seen_by(snapshot)));
        if live.range(..=self.epoch).next().is_none() {
            self.epoch = 0;
        }
    }

    /// The cleaner has moved the bytes at the `old` places to `new`: updates kept contents too.
    pub(super) fn moved_kept(&mut self, old: &[Extent], new: LogPosition) {
        for content in self.kept.iter_mut().filter_map(|kept| kept.content.as_mut().ok()) {
            content.extents = moved(&content.extents, old, new).into();
            content.layers = moved(&content.layers, old, new);
        }
    }

    /// `range` of the content that a live snapshot sees; `None`: the unit had not been written then.
    pub(crate) fn seen_by(&self, snapshot: u32, range: &Range<u32>) -> Result<Option<Found>, Error> {
        if let Some(place) = self.lost {
            return Err(damaged(place));
        }
        let settled = self.settled.as_ref().filter(|_| self.epoch < snapshot);
        let kept = || self.kept.iter().find(|kept| kept.is_seen_by(snapshot));
        let content = match (settled, kept()) {
            (Some(settled), _) => settled,
            (None, Some(KeptContent { content: Ok(content), .. })) => content,
            (None, Some(KeptContent { content: Err(place), .. })) => return Err(damaged(*place)),
            (None, None) => return Ok(None),
        };
        Ok(Some(content.found(range)))
    }

    /// Turns settled deltas into layers of the base, which then counts them in: the same bytes as after a
    /// fold.
    pub(crate) fn count_in(&mut self) {
        if self.pending.is_some() || self.deltas.is_empty() {
            return;
        }
        let Some(found) = self.cut(Cut::Settled, &(0..u32::MAX)) else { return };
        self.keep_above(&found.cover);
        self.settled = Some(Content {
            version: found.version,
            kind: WriteKind::ParityBase,
            columns: found.columns,
            cover: found.cover.into_boxed_slice(),
            ends: found.ends.to_vec().into_boxed_slice(),
            extents: found.extents,
            layers: found.layers.into_vec(),
        });
    }
}

impl Object {
    /// The newest live snapshot; 0: there is none.
    pub(crate) fn newest_snapshot(&self) -> u32 {
        self.extra.as_ref().and_then(|extra| extra.snapshots.live.last().copied()).unwrap_or(0)
    }

    /// The live snapshots.
    pub(crate) fn snapshots(&self) -> Option<&Snapshots> {
        self.extra.as_ref().map(|extra| &extra.snapshots)
    }

    /// Returns true if `snapshot` can be read.
    pub(crate) fn has_snapshot(&self, snapshot: u32) -> bool {
        self.snapshots().is_some_and(|snapshots| snapshots.live.contains(&snapshot))
    }

    /// Returns true if the settled content of `unit` will be kept when it is replaced.
    pub(crate) fn keeps(&self, unit: &Unit) -> bool {
        unit.settled.is_some() && unit.epoch < self.newest_snapshot()
    }
}

/// Updates the lists of units that change when a snapshot is taken or dropped.
pub(crate) fn note(extra: &mut Option<Box<Extra>>, number: u64, unit: &Unit) {
    let kept = unit.epoch > 0 || !unit.kept.is_empty();
    let deltas = !unit.deltas.is_empty();
    if kept || deltas {
        let snapshots = &mut extra.get_or_insert_default().snapshots;
        snapshots.units.update(number, |()| kept);
        snapshots.deltas.update(number, |()| deltas);
    } else if let Some(extra) = extra {
        extra.snapshots.units.update(number, |()| false);
        extra.snapshots.deltas.update(number, |()| false);
    }
}

/// Decides on taking a snapshot.
pub(super) fn take(
    have: &Object,
    partition: PartitionId,
    object: ObjectId,
    number: u32,
) -> Result<Decision, Error> {
    if have.has_snapshot(number) {
        return Ok(Decision::Answer(MutationOutcome::Already));
    }
    let (highest, count) = have.snapshots().map_or((0, 0), |found| (found.highest, found.live.len()));
    if number <= highest {
        return Err(Error::SnapshotUsed { highest, asked: number });
    }
    if let Some(&unit) = have.unsettled().first() {
        return Err(Error::Unsettled { partition, object, unit });
    }
    if count >= SNAPSHOTS_MAX {
        return Err(Error::Snapshots(count));
    }
    let mut record = object_record(Kind::Snapshot, partition, object, have);
    record.inline = body::snapshot_body(number);
    to_append(record)
}

/// Decides on dropping a snapshot.
pub(super) fn release(
    have: &Object,
    partition: PartitionId,
    object: ObjectId,
    number: u32,
) -> Result<Decision, Error> {
    if !have.has_snapshot(number) {
        return Ok(Decision::Answer(MutationOutcome::Already));
    }
    let mut record = object_record(Kind::SnapshotDrop, partition, object, have);
    record.inline = body::snapshot_body(number);
    to_append(record)
}

#[cfg(test)]
mod tests;
