//! How a record changes the index: the one road, for what was just committed and for what recovery replays.
//!
//! Replay is exact: a record is taken in once, in order, by each key that it is about. Only damage makes it meet records
//! whose forerunners are missing; what they are about then stands without attributes, or as lost.

use braid_layout::{ObjectId, PartitionId, Version};

use super::extent::Extent;
use super::live::Segments;
use super::paged::PagedMap;
use super::slot::Slot;
use super::unit::{Place, Unit};
use super::{Index, Object, Partition};
use crate::format::body;
use crate::format::page::Key;
use crate::format::record::{Kind, Record};
use crate::mutation::Attributes;

impl Index {
    /// Take in `record`, which lies where it says.
    pub(crate) fn apply(&mut self, record: &Record) {
        let place = Place { segment: record.segment, block: record.block };
        match record.kind {
            Kind::Data | Kind::ParityBase | Kind::StripeParity => self.apply_write(record, place),
            Kind::Move => self.apply_move(record, place),
            Kind::SettledTo => self.with_object(record, |object| object.settle_below(record.settled)),
            Kind::Verdict => self.apply_verdict(record),
            Kind::Fence => self.apply_fence(record),
            Kind::ObjectCreate | Kind::ObjectAttributes => self.apply_attributes(record),
            Kind::ObjectRemove => self.apply_remove(record),
            Kind::PartitionCreate | Kind::PartitionSet => self.apply_partition(record),
            Kind::PartitionRemove => self.apply_partition_remove(record),
            Kind::Mark | Kind::Delta | Kind::Ready => {}
        }
    }

    fn apply_write(&mut self, record: &Record, place: Place) {
        self.with_object(record, |object| {
            let unit_bytes = object.object.attributes.unit_bytes;
            object.unit(record.unit, |unit| unit.write(record, place, unit_bytes));
            object.settle_below(record.settled);
        });
    }

    fn apply_move(&mut self, record: &Record, place: Place) {
        let old: Vec<Extent> =
            body::moved_pieces(record).unwrap_or_default().into_iter().map(Extent::from).collect();
        self.with_object(record, |object| object.unit(record.unit, |unit| unit.moved(&old, place)));
    }

    fn apply_verdict(&mut self, record: &Record) {
        let units = body::verdict(record).unwrap_or_default();
        self.with_object(record, |object| {
            let unit_bytes = object.object.attributes.unit_bytes;
            for verdict in &units {
                let unit = object.object.units.get(verdict.unit).map(Slot::unit);
                let Some(pending) = unit.as_ref().and_then(|unit| unit.pending.as_ref()) else { continue };
                let version = pending.version;
                if verdict.forward.contains(&version) {
                    object.unit(verdict.unit, |unit| unit.settle(unit_bytes));
                } else if verdict.back.contains(&version) {
                    object.unit(verdict.unit, Unit::back);
                }
            }
        });
    }

    fn apply_fence(&mut self, record: &Record) {
        self.with_object(record, |object| {
            let attributes = &mut object.object.attributes;
            (attributes.g, attributes.set, attributes.joining) = (record.g, record.set, record.joining);
        });
    }

    fn apply_attributes(&mut self, record: &Record) {
        let Ok(attributes) = body::attributes(record) else { return };
        self.with_object(record, |object| {
            object.object.attributes = attributes;
            object.object.known = true;
        });
    }

    fn apply_remove(&mut self, record: &Record) {
        let (partition, object) = (record.partition, record.object);
        self.know(Key::At(partition, Some(object)));
        let found = self.partitions.get(&partition).and_then(|p| p.objects.get(&object));
        if found.is_some_and(|found| found.birth <= record.birth) {
            self.drop_object(partition, object);
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

    /// The partition was empty. Objects that are there nevertheless are of the next partition of this number: their page
    /// of a checkpoint was made after it; or damage hid that they were removed.
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

    /// Whatever was lost of `key` no longer matters.
    fn know(&mut self, key: Key) {
        self.lost.forget(key, key.next());
    }

    /// Run `act` on the object that `record` belongs to. If damage hid its making, it is made without attributes. A
    /// record of an older object of the same number is passed over; one of a newer means that the older is gone.
    fn with_object(&mut self, record: &Record, act: impl FnOnce(&mut Access<'_>)) {
        let (partition, object) = (record.partition, record.object);
        let known = self.partitions.get(&partition).and_then(|p| p.objects.get(&object)).map(|o| o.birth);
        match known {
            Some(birth) if birth > record.birth => return,
            Some(birth) if birth < record.birth => self.drop_object(partition, object),
            _ => {}
        }
        self.know(Key::At(partition, Some(object)));
        let owner = self.partitions.entry(partition).or_default();
        let Partition { objects, used, .. } = owner;
        let entry = objects.entry(object).or_insert_with(|| Box::new(Object::unknown(record.birth)));
        act(&mut Access { object: entry, used, segments: &mut self.segments });
    }

    fn drop_object(&mut self, partition: PartitionId, object: ObjectId) {
        let Some(owner) = self.partitions.get_mut(&partition) else { return };
        let Some(gone) = owner.objects.remove(&object) else { return };
        owner.used -= gone.bytes;
        for (_, slot) in gone.units.iter() {
            slot.unit().pins().for_each(|extent| self.segments.release(extent));
        }
    }
}

/// An object with what must change along with it.
struct Access<'a> {
    object: &'a mut Object,
    used: &'a mut u64,
    segments: &'a mut Segments,
}

impl Access<'_> {
    /// Change one unit, keeping every account.
    fn unit(&mut self, number: u64, change: impl FnOnce(&mut Unit)) {
        let Access { object, used, segments } = self;
        let Object { units, pending, bytes, .. } = &mut **object;
        units.update(number, |slot| {
            let mut unit = std::mem::take(slot).into_unit();
            let before = stored(unit.pins());
            unit.pins().for_each(|extent| segments.release(extent));
            if let Some(old) = &unit.pending {
                pending.update(pending_key(old.version, number), |()| false);
            }
            change(&mut unit);
            let after = stored(unit.pins());
            unit.pins().for_each(|extent| segments.charge(extent));
            if let Some(new) = &unit.pending {
                pending.update(pending_key(new.version, number), |()| true);
            }
            *bytes = *bytes - before + after;
            **used = **used - before + after;
            let keep = *unit != Unit::default();
            *slot = Slot::from(unit);
            keep
        });
    }

    /// Everything of the stamp's lease below the stamp is settled.
    fn settle_below(&mut self, stamp: Version) {
        let unit_bytes = self.object.attributes.unit_bytes;
        for unit in self.object.pending_below(stamp) {
            self.unit(unit, |unit| unit.settle(unit_bytes));
        }
    }
}

impl Object {
    /// An object of which no attributes were seen.
    pub(crate) fn unknown(birth: u64) -> Object {
        Object {
            birth,
            attributes: Attributes::default(),
            known: false,
            lost: None,
            units: PagedMap::default(),
            pending: PagedMap::default(),
            bytes: 0,
        }
    }

    /// The units whose pending version is of the stamp's lease and below the stamp.
    pub(crate) fn pending_below(&self, stamp: Version) -> Vec<u64> {
        if stamp.is_zero() {
            return Vec::new();
        }
        let lease = stamp.lease.0;
        self.pending
            .range((lease, 0, 0, 0)..(lease, stamp.g.0, stamp.n, 0))
            .map(|((_, _, _, unit), ())| unit)
            .collect()
    }
}

/// As it stands in [`Object::pending`].
pub(crate) fn pending_key(version: Version, unit: u64) -> (u32, u32, u64, u64) {
    (version.lease.0, version.g.0, version.n, unit)
}

fn stored<'a>(extents: impl Iterator<Item = &'a Extent>) -> u64 {
    extents.map(Extent::stored_bytes).sum()
}
