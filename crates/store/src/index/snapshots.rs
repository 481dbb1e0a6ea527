//! Snapshots of an object, one for each of its stills: the content that was settled when one was taken stays
//! there, by copy on write.
//!
//! Taking a snapshot changes no unit, except that deltas become layers. Each settled content has an *epoch*:
//! the newest live snapshot when it became settled (0: none). A snapshot sees a content if it was taken after
//! the content's epoch and before the content was replaced. A content that is replaced while a live snapshot
//! sees it is *kept*; its `until` is the newest of those. Once no live snapshot is at or below the epoch, it
//! becomes 0, so that units without kept contents are stored in their small form again.
//!
//! The still is another object ([`shown`](crate::index::shown)), made in the same commit; when it is removed,
//! so is the snapshot. An object that is removed while it has snapshots becomes a *husk*: no request finds
//! it, and it goes with its last snapshot.

use std::collections::BTreeSet;

use braid_layout::{Generation, ObjectId, PartitionId};

use crate::error::Error;
use crate::format::body;
use crate::format::extent::{Extent, LogPosition};
use crate::format::record::{Kind, Record};
use crate::index::deciding::decision::{Decision, is_in, object_record};
use crate::index::extent::moved;
use crate::index::paged::PagedMap;
use crate::index::parity::Cut;
use crate::index::unit::{Content, Unit};
use crate::index::{Extra, Index, Object};
use crate::mutation::{Attributes, Base, MutationOutcome, STILLS_MAX, WriteKind};

/// The state of an object's snapshots.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Snapshots {
    /// The live snapshots.
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

    /// The content that a live snapshot sees; `None`: the unit had not been written then. The error is where
    /// damage has hit the unit.
    pub(crate) fn seen(&self, snapshot: u32) -> Result<Option<&Content>, LogPosition> {
        if let Some(place) = self.lost {
            return Err(place);
        }
        if self.shows_present(snapshot) {
            return Ok(self.settled.as_ref());
        }
        let kept = self.kept.iter().find(|kept| kept.is_seen_by(snapshot));
        kept.map(|kept| kept.content.as_ref().map_err(|place| *place)).transpose()
    }

    /// Returns true if a live snapshot sees the content that is settled now.
    pub(crate) fn shows_present(&self, snapshot: u32) -> bool {
        self.settled.is_some() && self.epoch < snapshot
    }

    /// The object is removed, and lives for its stills: what they see is kept, and all else goes.
    pub(crate) fn hollow(&mut self, newest: u32) {
        let Unit { settled, lost, epoch, mut kept, .. } = std::mem::take(self);
        if let Some(place) = lost {
            kept = vec![KeptContent { content: Err(place), epoch: 0, until: newest }];
        } else if let Some(content) = settled.filter(|_| epoch < newest) {
            kept.push(KeptContent { content: Ok(content), epoch, until: newest });
        }
        self.kept = kept;
    }

    /// Marks a still's own unit as one that was never written, whatever its base holds: without a mark it
    /// would be no unit of its own.
    pub(crate) fn hide(&mut self) {
        self.epoch = 1;
    }

    /// Returns true if nothing of the unit is there but what stills see, or the mark of [`Unit::hide`].
    pub(crate) fn is_hidden(&self) -> bool {
        let Unit { settled, pending, owed, deltas, lost, .. } = self;
        settled.is_none() && pending.is_none() && owed.is_empty() && deltas.is_empty() && lost.is_none()
    }

    /// Turns deltas into layers of the base, which then counts them in: the same bytes as after a fold.
    /// Whoever takes a still knows that all of them are settled.
    pub(crate) fn count_in(&mut self) {
        if self.pending.is_some() || self.deltas.is_empty() {
            return;
        }
        self.deltas.iter_mut().for_each(|delta| delta.settled = true);
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

    /// Returns true if `snapshot` is live.
    pub(crate) fn has_snapshot(&self, snapshot: u32) -> bool {
        self.snapshots().is_some_and(|snapshots| snapshots.live.contains(&snapshot))
    }

    /// The first unit with something pending or owed.
    fn undecided(&self) -> Option<u64> {
        let pending = self.pending.iter().flat_map(|pending| pending.iter().map(|((.., unit), ())| unit));
        let others = self.extra.iter().flat_map(|extra| extra.unsettled.iter()).map(|(unit, ())| unit);
        pending.chain(others.filter(|&unit| !self.unit(unit).owed.is_empty())).min()
    }

    /// Bytes that only this snapshot still sees.
    pub(crate) fn kept_for(&self, snapshot: u32) -> u64 {
        let Some(found) = self.snapshots() else { return 0 };
        let mut others = found.live.clone();
        others.remove(&snapshot);
        let bytes = |unit: &Unit| unit.pins().iter().map(Extent::stored_bytes).sum::<u64>();
        let kept = found.units.iter().map(|(unit, ())| {
            let unit = self.unit(unit);
            let mut without = unit.clone().into_owned();
            without.prune(&others);
            bytes(&unit).saturating_sub(bytes(&without))
        });
        kept.sum()
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

/// Decides on taking a still.
pub(super) fn take(
    index: &Index,
    partition: PartitionId,
    object: ObjectId,
    g: Generation,
    still: ObjectId,
    attributes: &Attributes,
) -> Result<Decision, Error> {
    let have = index.whole_object(partition, object)?;
    if let Some(found) = index.find_partition(partition)?.objects.get(&still) {
        let is_same = found.known && !found.husk && found.attributes.unpacked().same_object(attributes);
        let is_of_this = found.attributes.base().is_some_and(|base| have.keeps_for(&base));
        let exists = Error::Exists(partition, still);
        return if is_same && is_of_this {
            Ok(Decision::Answer(MutationOutcome::Already))
        } else {
            Err(exists)
        };
    }
    is_in(have, g)?;
    if have.attributes.base().is_some() {
        return Err(Error::Malformed("a still of a still"));
    }
    let like = &have.attributes;
    if (like.unit_bytes, like.column) != (attributes.unit_bytes, attributes.column) {
        return Err(Error::Malformed("a still of another column or unit size"));
    }
    let is_joining = like.joining.contains(like.column);
    if let Some(unit) = have.undecided().or(is_joining.then_some(0)) {
        return Err(Error::Unsettled { partition, object, unit });
    }
    let (highest, count) = have.snapshots().map_or((0, 0), |found| (found.highest, found.live.len()));
    let number = highest.checked_add(1).filter(|_| count < STILLS_MAX).ok_or(Error::Stills(count))?;
    let mut record = object_record(Kind::Snapshot, partition, object, have);
    record.inline = body::snapshot_body(number);
    let mut made = Record::new(Kind::ObjectCreate);
    (made.partition, made.object) = (partition, still);
    let base = Some(Base { object, birth: have.birth, number });
    body::put_attributes(&mut made, &Attributes { reserve_bytes: 0, base, ..attributes.clone() });
    Ok(Decision::AppendBoth(Box::new(record), Box::new(made)))
}

/// The record that drops the snapshot which a still was taken of, when the still is removed. `None`: it is
/// gone.
pub(super) fn release(index: &Index, partition: PartitionId, base: &Base) -> Option<Box<Record>> {
    let found = index.partitions.get(&partition)?.objects.get(&base.object)?;
    let mut record = object_record(Kind::SnapshotDrop, partition, base.object, found);
    record.inline = body::snapshot_body(base.number);
    found.keeps_for(base).then(|| Box::new(record))
}

impl Index {
    /// Drops the snapshots that no still names: damage has hit the still, or the store is of a version that
    /// had none. Called once, after loading and replay.
    pub(crate) fn drop_unnamed_snapshots(&mut self) {
        let mut unnamed = Vec::new();
        for (&partition, owner) in &self.partitions {
            let kept = |object: &Object| object.snapshots().is_some_and(|found| !found.live.is_empty());
            if !owner.objects.values().any(|object| kept(object)) {
                continue;
            }
            let bases = owner.objects.values().filter_map(|object| object.attributes.base());
            let named: BTreeSet<(ObjectId, u64, u32)> =
                bases.map(|base| (base.object, base.birth, base.number)).collect();
            for (&id, object) in &owner.objects {
                let live = object.snapshots().into_iter().flat_map(|found| found.live.iter().copied());
                let live = live.filter(|&number| !named.contains(&(id, object.birth, number)));
                unnamed.extend(live.map(|number| {
                    let mut record = object_record(Kind::SnapshotDrop, partition, id, object);
                    record.inline = body::snapshot_body(number);
                    record
                }));
            }
        }
        unnamed.iter().for_each(|record| self.apply(record));
    }
}

#[cfg(test)]
mod tests;
