//! The changes of the index by a record: one code path for records just committed and for those that recovery
//! replays.
//!
//! Replay is exact: each record is applied once, in order, to each key that it concerns. Only damage makes
//! replay meet records whose predecessors are missing. The objects of such records then have no attributes,
//! or are marked lost.

use std::collections::BTreeSet;

use braid_layout::{ClientId, ObjectId, OperationNumber, PartitionId, Version};
use smallvec::SmallVec;

use crate::format::body;
use crate::format::entry::LostRange;
use crate::format::extent::{Extent, LogPosition};
use crate::format::page::Key;
use crate::format::record::{Kind, Record, flags};
use crate::index::attributes::PackedAttributes;
use crate::index::dedup::Operation;
use crate::index::large_object::{self, Watched};
use crate::index::live::Segments;
use crate::index::owed::Doubt;
use crate::index::paged::PagedMap;
use crate::index::runs::Runs;
use crate::index::slot::Slot;
use crate::index::unit::Unit;
use crate::index::{Extra, Index, Object, Partition, PendingVersions, snapshots};
use crate::mutation::UnitVerdict;

impl Index {
    /// Applies `record`, which lies at the position that it names.
    pub(crate) fn apply(&mut self, record: &Record) {
        match record.kind {
            Kind::Data | Kind::ParityBase | Kind::StripeParity => self.apply_write(record),
            Kind::Move => self.apply_move(record),
            Kind::Delta => self.apply_delta(record),
            Kind::SettledTo => self.apply_settled(record),
            Kind::Verdict => self.apply_verdict(record),
            Kind::Fence => self.apply_fence(record),
            Kind::ObjectCreate | Kind::ObjectAttributes => self.apply_attributes(record),
            Kind::ObjectRemove => self.apply_remove(record),
            Kind::PartitionCreate | Kind::PartitionSet => self.apply_partition(record),
            Kind::PartitionRemove => self.apply_partition_remove(record),
            Kind::Snapshot | Kind::SnapshotDrop => self.apply_snapshot(record),
            Kind::Ready => self.apply_ready(record),
            Kind::Mark => {}
        }
    }

    fn apply_write(&mut self, record: &Record) {
        let doubt = if self.serving { Doubt::None } else { Doubt::Reopened };
        self.with_object(record, |object| {
            let unit_bytes = object.object.attributes.unit_bytes;
            if record.version.is_zero() && object.object.attributes.base().is_some() {
                object.unit(record.unit, |unit| {
                    unit.write(record, unit_bytes);
                    unit.hide();
                });
            } else if record.is(flags::OWED) {
                object.unit(record.unit, |unit| unit.owe(record, unit_bytes, doubt));
                object.done(record);
            } else if record.is(flags::FOLDED) {
                object.unit(record.unit, |unit| unit.folded(record));
            } else {
                object.unit(record.unit, |unit| unit.write(record, unit_bytes));
            }
            object.settle_below(record.settled_below);
        });
    }

    fn apply_move(&mut self, record: &Record) {
        let old = body::moved_pieces(record).unwrap_or_default();
        self.with_object(record, |object| {
            object.account(record.unit, |unit| unit.moved(&old, record.position()))
        });
    }

    fn apply_delta(&mut self, record: &Record) {
        self.with_object(record, |object| {
            let unit_bytes = object.object.attributes.unit_bytes;
            object.unit(record.unit, |unit| unit.count(record, unit_bytes));
            object.done(record);
        });
    }

    fn apply_settled(&mut self, record: &Record) {
        self.with_object(record, |object| {
            let unit_bytes = object.object.attributes.unit_bytes;
            if record.units == 1 {
                // A data unit has no deltas, and parity owes nothing.
                object.unit(record.unit, |unit| {
                    unit.settle_owed(record.version, unit_bytes);
                    unit.settle_deltas(record.data, record.version);
                });
            }
            object.settle_below(record.settled_below);
            object.settle_deltas_below(record.settled_below);
            object.retire(record.client, record.watermark);
        });
    }

    fn apply_verdict(&mut self, record: &Record) {
        let units = body::verdict(record).unwrap_or_default();
        self.with_object(record, |object| units.iter().for_each(|verdict| object.judge(verdict)));
    }

    fn apply_snapshot(&mut self, record: &Record) {
        let Ok(number) = body::snapshot(record) else { return };
        self.with_object(record, |object| match record.kind {
            Kind::Snapshot => object.take_snapshot(number, record.position()),
            _ => object.drop_snapshot(number),
        });
        let partition = record.partition;
        let object = record.object;
        let found = self.partitions.get(&partition).and_then(|owner| owner.objects.get(&object));
        if found.is_some_and(|found| found.husk && found.newest_snapshot() == 0) {
            self.drop_object(partition, object);
        }
    }

    fn apply_fence(&mut self, record: &Record) {
        let doubt = (self.lost_records && !self.serving).then(|| record.position());
        self.with_object(record, |object| {
            if record.is(flags::DROPPED) {
                object.drop_unsettled(doubt);
            }
            let attributes = &mut object.object.attributes;
            (attributes.g, attributes.set, attributes.joining) = (record.g, record.set, record.joining);
            // A joining column has no vote: the generation's verdict may take forward versions that it lacks.
            if let Some(extra) = object.object.extra.as_mut() {
                extra.ready = Runs::default();
            }
            object.object.tidy();
        });
    }

    fn apply_ready(&mut self, record: &Record) {
        self.with_object(record, |object| {
            let last = record.unit.saturating_add(u64::from(record.units.saturating_sub(1)));
            if !object.object.are_ready(record.unit, last) {
                object.object.extra.get_or_insert_default().ready.add(record.unit, last);
            }
        });
    }

    fn apply_attributes(&mut self, record: &Record) {
        let Ok(attributes) = body::attributes(record) else { return };
        self.with_object(record, |object| {
            object.object.attributes = attributes.packed();
            object.object.known = true;
        });
    }

    fn apply_remove(&mut self, record: &Record) {
        let partition = record.partition;
        let object = record.object;
        self.know(Key::At(partition, Some(object)));
        let found = self.partitions.get(&partition).and_then(|p| p.objects.get(&object));
        let Some(found) = found.filter(|found| found.birth <= record.birth) else { return };
        // What damage has hit as a whole is removed whatever it was: its stills are lost with it.
        if found.newest_snapshot() == 0 || record.birth == u64::MAX {
            self.drop_object(partition, object);
        } else if !found.husk {
            self.with_object(record, |object| object.hollow());
        }
    }

    fn apply_partition(&mut self, record: &Record) {
        let Ok((quota_bytes, key_epoch)) = body::partition(record) else { return };
        self.know(Key::At(record.partition, None));
        let partition = self.partitions.entry(record.partition).or_default();
        if record.birth < partition.birth {
            return;
        }
        (partition.quota_bytes, partition.key_epoch) = (quota_bytes, key_epoch);
        (partition.birth, partition.known) = (record.birth, true);
    }

    /// Removes a partition, which was empty. Objects found here belong to the next partition of this number
    /// (their checkpoint page was made after the removal), or damage hid that they were removed.
    fn apply_partition_remove(&mut self, record: &Record) {
        self.know(Key::At(record.partition, None));
        let Some(partition) = self.partitions.get_mut(&record.partition) else { return };
        if partition.birth > record.birth {
            return;
        }
        partition.known = false;
        let old = partition.objects.iter().filter(|(_, object)| object.birth < record.sequence);
        let old: Vec<ObjectId> = old.map(|(&object, _)| object).collect();
        for object in old {
            self.drop_object(record.partition, object);
        }
        if self.partitions.get(&record.partition).is_some_and(|partition| partition.objects.is_empty()) {
            self.partitions.remove(&record.partition);
        }
    }

    /// Notes that `key` is known from now on: earlier damage to it no longer matters.
    fn know(&mut self, key: Key) {
        self.lost.forget(key, key.next());
    }

    /// Runs `act` on the object that `record` belongs to. If damage hid the object's creation, it is created
    /// without attributes, and the parts of it that may be lost stay lost. A record of an older object with
    /// the same number is skipped; one of a newer object means that the older one is gone.
    fn with_object(&mut self, record: &Record, act: impl FnOnce(&mut Access<'_>)) {
        let partition = record.partition;
        let object = record.object;
        let key = Key::At(partition, Some(object));
        let is_made = record.kind == Kind::ObjectCreate;
        let mut lost = if is_made { None } else { self.lost.find(key).map(LostRange::place) };
        let known = self.partitions.get(&partition).and_then(|p| p.objects.get(&object)).map(|o| o.birth);
        match known {
            Some(birth) if birth > record.birth => return,
            // Damage hid the object's creation, but the loss is already noted.
            Some(0) if !is_made => {}
            Some(birth) if birth < record.birth => {
                let old = self.drop_object(partition, object).and_then(|old| old.lost);
                // Damage hid this object's creation. Other losses by it were noted on the old object.
                if !is_made {
                    lost = lost.or(old).or(Some(record.position()));
                }
            }
            _ => {}
        }
        self.know(key);
        let owner = self.partitions.entry(partition).or_default();
        let Partition { objects, used, reserved, .. } = owner;
        let entry = objects.entry(object).or_insert_with(|| Box::new(Object::unknown(record.birth)));
        entry.birth = record.birth;
        entry.lost = entry.lost.or(lost);
        let before = entry.outstanding();
        let segments = &mut self.segments;
        let foldable = &mut self.foldable;
        let owner = (partition, object);
        let watched = large_object::watched(&mut self.watched, owner);
        act(&mut Access { owner, object: &mut *entry, used, segments, foldable, watched });
        if !entry.known && !self.serving {
            self.unknown.insert((partition, object));
        }
        if record.kind != Kind::Move && entry.attributes.cluster() != 0 {
            self.clustered += 1;
        }
        let after = entry.outstanding();
        *reserved = *reserved - before + after;
        self.reserved = self.reserved - before + after;
    }

    pub(super) fn drop_object(&mut self, partition: PartitionId, object: ObjectId) -> Option<Box<Object>> {
        let owner = self.partitions.get_mut(&partition)?;
        let gone = owner.objects.remove(&object)?;
        let watched = large_object::watched(&mut self.watched, (partition, object));
        watched.into_iter().for_each(Watched::end);
        owner.used -= gone.bytes;
        owner.reserved -= gone.outstanding();
        self.reserved -= gone.outstanding();
        for (number, slot) in gone.units.iter() {
            let unit = slot.unit();
            unit.pins().iter().for_each(|extent| self.segments.release(extent));
            if unit.is_foldable() {
                self.foldable.remove(&(partition, object, number));
            }
        }
        Some(gone)
    }
}

/// An object and the accounts that must change along with it.
struct Access<'a> {
    owner: (PartitionId, ObjectId),
    object: &'a mut Object,
    used: &'a mut u64,
    segments: &'a mut Segments,
    foldable: &'a mut BTreeSet<(PartitionId, ObjectId, u64)>,
    watched: Option<&'a mut Watched>,
}

impl Access<'_> {
    /// Changes one unit and updates every account. Keeps the replaced content if a snapshot sees it. All
    /// changes are made this way, except those that change no content.
    fn unit(&mut self, number: u64, change: impl FnOnce(&mut Unit)) {
        let newest = self.object.newest_snapshot();
        if newest == 0 {
            return self.account(number, change);
        }
        self.account(number, |unit| {
            let before = unit.before();
            change(unit);
            unit.keep(before, newest);
        });
    }

    /// Changes one unit and updates every account.
    fn account(&mut self, number: u64, change: impl FnOnce(&mut Unit)) {
        let Access { owner, object, used, segments, foldable, watched } = self;
        if let Some(watched) = watched {
            watched.note(number);
        }
        let Object { units, pending, bytes, extra, .. } = &mut **object;
        units.update(number, |slot| {
            let mut unit = std::mem::take(slot).into_unit();
            let before = unit.pins();
            if let Some(old) = &unit.pending {
                forget_pending(pending, old.version, number);
            }
            change(&mut unit);
            let after = unit.pins();
            // Most changes only append, so the common start is skipped.
            let same = before.iter().zip(&after).take_while(|(old, new)| old == new).count();
            before[same..].iter().for_each(|extent| segments.release(extent));
            after[same..].iter().for_each(|extent| segments.charge(extent));
            if let Some(new) = &unit.pending {
                note_pending(pending, new.version, number);
            }
            let before = stored(&before[same..]);
            let after = stored(&after[same..]);
            *bytes = *bytes - before + after;
            **used = **used - before + after;
            note_unsettled(extra, number, &unit);
            snapshots::note(extra, number, &unit);
            let key = (owner.0, owner.1, number);
            if unit.is_foldable() {
                foldable.insert(key);
            } else if !foldable.is_empty() {
                foldable.remove(&key);
            }
            let keep = *unit != Unit::default();
            *slot = Slot::from(unit);
            keep
        });
        if pending.is_none() {
            // The object is at rest: free the list's unused capacity.
            units.trim();
        }
    }

    /// Takes a snapshot. Deltas are counted in first, so that snapshots see whole contents.
    fn take_snapshot(&mut self, number: u32, place: LogPosition) {
        // A snapshot is only taken while nothing is pending or owed. If something is, damage hid the decision
        // on it, and the content that the snapshot saw is unknown.
        for unit in self.object.unsettled() {
            self.account(unit, |unit| {
                if unit.pending.is_some() || !unit.owed.is_empty() {
                    unit.lost = Some(place);
                }
            });
        }
        let deltas = self.object.snapshots().into_iter().flat_map(|found| found.deltas.iter());
        let units: Vec<u64> = deltas.map(|(unit, ())| unit).collect();
        units.into_iter().for_each(|unit| self.unit(unit, Unit::count_in));
        let snapshots = &mut self.object.extra.get_or_insert_default().snapshots;
        snapshots.live.insert(number);
        snapshots.highest = snapshots.highest.max(number);
    }

    /// The object is removed, and lives for its stills.
    fn hollow(&mut self) {
        let newest = self.object.newest_snapshot();
        let units: Vec<u64> = self.object.units.iter().map(|(unit, _)| unit).collect();
        units.into_iter().for_each(|unit| self.account(unit, |unit| unit.hollow(newest)));
        let Object { extra, attributes, husk, .. } = &mut *self.object;
        if let Some(extra) = extra {
            (extra.dedup, extra.ready) = Default::default();
        }
        attributes.reserve_nothing();
        *husk = true;
    }

    fn drop_snapshot(&mut self, number: u32) {
        let Some(extra) = &mut self.object.extra else { return };
        if !extra.snapshots.live.remove(&number) {
            return;
        }
        let live = extra.snapshots.live.clone();
        let units: Vec<u64> = extra.snapshots.units.iter().map(|(unit, ())| unit).collect();
        units.into_iter().for_each(|unit| self.account(unit, |unit| unit.prune(&live)));
    }

    /// Applies one unit's part of a verdict.
    fn judge(&mut self, verdict: &UnitVerdict) {
        let number = verdict.unit;
        let unit_bytes = self.object.attributes.unit_bytes;
        let mut undone: Vec<(ClientId, Operation)> = Vec::new();
        self.unit(number, |unit| {
            let stamp = unit.pending.as_ref().map(|pending| pending.version);
            for &version in &verdict.forward {
                if stamp == Some(version) {
                    unit.settle(unit_bytes);
                }
                unit.settle_owed(version, unit_bytes);
            }
            for &version in &verdict.back {
                if unit.pending.as_ref().is_some_and(|pending| pending.version == version) {
                    unit.back();
                }
                undone.extend(unit.drop_owed(version).iter().map(|o| (o.client, (o.operation, number, 0))));
            }
            for &(column, version) in &verdict.cut_offs {
                let gone = unit.cut_off(column, version);
                undone.extend(gone.iter().map(|delta| (delta.client, (delta.operation, number, delta.data))));
            }
        });
        self.forget(undone);
    }

    /// Drops all that is not settled. `doubt`: records before the fence at this place were lost. What they
    /// settled may look unsettled, so the units count as lost.
    fn drop_unsettled(&mut self, doubt: Option<LogPosition>) {
        for number in self.object.unsettled() {
            let mut undone: Vec<(ClientId, Operation)> = Vec::new();
            self.unit(number, |unit| {
                unit.back();
                let owed = std::mem::take(&mut unit.owed);
                undone.extend(owed.iter().map(|owed| (owed.client, (owed.operation, number, 0))));
                let deltas = unit.drop_unsettled_deltas();
                let operations = deltas.iter().map(|delta| (delta.operation, number, delta.data));
                undone.extend(deltas.iter().map(|delta| delta.client).zip(operations));
                unit.lost = unit.lost.or(doubt);
            });
            self.forget(undone);
        }
    }

    /// Operations of unit writes and deltas that were taken back are not done any more.
    fn forget(&mut self, undone: Vec<(ClientId, Operation)>) {
        if let Some(extra) = &mut self.object.extra {
            undone.into_iter().for_each(|(client, operation)| extra.dedup.forget(client, operation));
        }
        self.object.tidy();
    }

    /// Records that the operation of a unit write or delta is done.
    fn done(&mut self, record: &Record) {
        let extra = self.object.extra.get_or_insert_default();
        extra.dedup.add(record.client, (record.operation, record.unit, record.data), record.version);
        extra.dedup.retire(record.client, record.watermark);
    }

    fn retire(&mut self, client: ClientId, watermark: OperationNumber) {
        if let Some(extra) = &mut self.object.extra {
            extra.dedup.retire(client, watermark);
        }
        self.object.tidy();
    }

    /// Settles everything of the stamp's lease below the stamp.
    fn settle_below(&mut self, stamp: Version) {
        let unit_bytes = self.object.attributes.unit_bytes;
        for unit in self.object.pending_below(stamp) {
            self.unit(unit, |unit| unit.settle(unit_bytes));
        }
    }

    /// Marks the deltas of the stamp's lease below the stamp as settled. Only for a writer that pauses or
    /// ends: while it writes, its next delta tells that they are settled.
    fn settle_deltas_below(&mut self, stamp: Version) {
        for unit in self.object.deltas_below(stamp) {
            self.unit(unit, |unit| unit.settle_deltas_below(stamp));
        }
    }
}

impl Object {
    /// An object whose attributes are unknown.
    pub(crate) fn unknown(birth: u64) -> Object {
        Object {
            birth,
            attributes: PackedAttributes::default(),
            known: false,
            lost: None,
            husk: false,
            units: PagedMap::default(),
            pending: None,
            bytes: 0,
            extra: None,
        }
    }

    fn tidy(&mut self) {
        if self.extra.as_deref() == Some(&Extra::default()) {
            self.extra = None;
        }
    }

    /// The units whose pending version is of the stamp's lease and below the stamp.
    pub(crate) fn pending_below(&self, stamp: Version) -> SmallVec<[u64; 8]> {
        if stamp.is_zero() {
            return SmallVec::new();
        }
        let lease = stamp.lease.0;
        let Some(pending) = &self.pending else { return SmallVec::new() };
        pending
            .range((lease, 0, 0, 0)..(lease, stamp.g.0, stamp.n, 0))
            .map(|((_, _, _, unit), ())| unit)
            .collect()
    }

    /// The units with deltas of the stamp's lease below the stamp that are not known to be settled.
    pub(crate) fn deltas_below(&self, stamp: Version) -> Vec<u64> {
        if stamp.is_zero() {
            return Vec::new();
        }
        let unsettled = self.extra.iter().flat_map(|extra| extra.unsettled.iter()).map(|(unit, ())| unit);
        unsettled.filter(|&unit| self.unit(unit).has_deltas_below(stamp)).collect()
    }
}

/// Updates the list of units with owed versions or unsettled deltas.
pub(crate) fn note_unsettled(extra: &mut Option<Box<Extra>>, number: u64, unit: &Unit) {
    let unsettled = !unit.owed.is_empty() || unit.deltas.iter().any(|delta| !delta.settled);
    if unsettled {
        extra.get_or_insert_default().unsettled.update(number, |()| true);
    } else if let Some(extra) = extra {
        extra.unsettled.update(number, |()| false);
    }
}

/// Adds a unit's version to the list of pending ones.
pub(crate) fn note_pending(pending: &mut Option<Box<PendingVersions>>, version: Version, unit: u64) {
    let key = (version.lease.0, version.g.0, version.n, unit);
    pending.get_or_insert_default().update(key, |()| true);
}

/// Removes a unit's version from the list of pending ones.
fn forget_pending(pending: &mut Option<Box<PendingVersions>>, version: Version, unit: u64) {
    let Some(versions) = pending else { return };
    versions.update((version.lease.0, version.g.0, version.n, unit), |()| false);
    if versions.is_empty() {
        *pending = None;
    }
}

fn stored(extents: &[Extent]) -> u64 {
    extents.iter().map(Extent::stored_bytes).sum()
}
