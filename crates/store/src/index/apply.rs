//! How a record changes the index: the one road, for what was just committed and for what recovery replays.
//!
//! During replay a record may come before the one that made its object or partition (whose values were written again
//! later, when their segment was freed); the object then stands without attributes until these come.

use std::collections::BTreeSet;

use braid_layout::{ObjectId, PartitionId, Version};

use super::extent::Extent;
use super::live::{Segments, Tombstone};
use super::paged::PagedMap;
use super::slot::Slot;
use super::unit::{Place, Unit};
use super::{Index, Meta, Object, Partition};
use crate::format::body;
use crate::format::record::{Kind, Record, flags};
use crate::mutation::Attributes;

impl Index {
    /// Take in `record`, which lies where it says.
    pub(crate) fn apply(&mut self, record: &Record) {
        let place = Place { segment: record.segment, block: record.block };
        let meta = Meta {
            segment: record.segment,
            bytes: u32::try_from(record.disk_bytes()).expect("a metadata record has no payload"),
        };
        match record.kind {
            Kind::Data | Kind::ParityBase | Kind::StripeParity => self.apply_write(record, place),
            Kind::SettledTo => self.with_object(record, |object| object.settle_below(record.settled)),
            Kind::Verdict => self.apply_verdict(record),
            Kind::Fence => self.apply_fence(record, meta),
            Kind::ObjectCreate | Kind::ObjectAttributes => self.apply_attributes(record, meta),
            Kind::ObjectRemove => self.apply_remove(record),
            Kind::PartitionCreate | Kind::PartitionSet => self.apply_partition(record, meta),
            Kind::PartitionRemove => self.apply_partition_remove(record),
            Kind::Mark | Kind::Delta | Kind::Ready => {}
        }
    }

    fn apply_write(&mut self, record: &Record, place: Place) {
        let incomplete = self.incomplete;
        self.with_object(record, |object| {
            let unit_bytes = object.object.attributes.unit_bytes;
            object.unit(record.unit, |unit| unit.write(record, place, unit_bytes, incomplete));
            object.settle_below(record.settled);
        });
    }

    fn apply_verdict(&mut self, record: &Record) {
        let units = body::verdict(record).unwrap_or_default();
        let mut victims = BTreeSet::new();
        self.with_object(record, |object| {
            let unit_bytes = object.object.attributes.unit_bytes;
            for verdict in &units {
                let unit = object.object.units.get(verdict.unit).map(Slot::unit);
                let Some(pending) = unit.as_ref().and_then(|unit| unit.pending.as_ref()) else { continue };
                let (version, victim) = (pending.version, pending.own.segment);
                if verdict.forward.contains(&version) {
                    object.unit(verdict.unit, |unit| unit.settle(unit_bytes));
                } else if verdict.back.contains(&version) {
                    victims.insert(victim);
                    object.unit(verdict.unit, Unit::back);
                }
            }
        });
        self.segments.entry(record.segment).victims.extend(victims);
    }

    fn apply_fence(&mut self, record: &Record, meta: Meta) {
        self.with_object(record, |object| {
            let attributes = &mut object.object.attributes;
            (attributes.g, attributes.set, attributes.joining) = (record.g, record.set, record.joining);
            let kept = object.object.meta;
            object.place(kept, Some(meta));
        });
    }

    fn apply_attributes(&mut self, record: &Record, meta: Meta) {
        let Ok(attributes) = body::attributes(record) else { return };
        self.with_object(record, |object| {
            let size_was_unknown = object.object.meta.is_none();
            let unit_bytes = attributes.unit_bytes;
            object.object.attributes = attributes;
            object.place(Some(meta), None);
            if size_was_unknown {
                let units: Vec<u64> = object.object.units.iter().map(|(unit, _)| unit).collect();
                for unit in units {
                    object.unit(unit, |unit| unit.clip(unit_bytes));
                }
            }
        });
    }

    fn apply_remove(&mut self, record: &Record) {
        let (partition, object) = (record.partition, record.object);
        self.bury(record, Tombstone::Object { partition, object, birth: record.birth });
        let found = self.partitions.get(&partition).and_then(|p| p.objects.get(&object));
        if found.is_some_and(|found| found.birth <= record.birth) {
            self.drop_object(partition, object);
        }
    }

    fn apply_partition(&mut self, record: &Record, meta: Meta) {
        let Ok((quota_bytes, key_epoch)) = body::partition(record) else { return };
        let partition = self.partitions.entry(record.partition).or_default();
        if record.birth < partition.birth {
            return;
        }
        self.segments.move_meta((record.partition, None), partition.meta, [meta]);
        partition.quota_bytes = quota_bytes;
        partition.key_epoch = key_epoch;
        partition.birth = record.birth;
        partition.meta = Some(meta);
    }

    /// The partition was empty when it was removed: what replay finds in it then is older than that.
    fn apply_partition_remove(&mut self, record: &Record) {
        let number = record.partition;
        self.bury(record, Tombstone::Partition { partition: number, birth: record.birth });
        let Some(partition) = self.partitions.get(&number) else { return };
        let removed_at = if record.is(flags::MOVED) { record.origin } else { record.sequence };
        let old: Vec<ObjectId> = partition
            .objects
            .iter()
            .filter(|(_, object)| object.birth < removed_at)
            .map(|(&id, _)| id)
            .collect();
        for object in old {
            self.drop_object(number, object);
        }
        let gone = |partition: &Partition| partition.birth <= record.birth && partition.objects.is_empty();
        if self.partitions.get(&number).is_some_and(gone)
            && let Some(partition) = self.partitions.remove(&number)
        {
            self.segments.move_meta((number, None), partition.meta, []);
        }
    }

    fn bury(&mut self, record: &Record, tombstone: Tombstone) {
        let origin = if record.is(flags::MOVED) { record.origin } else { record.sequence };
        let segment = self.segments.entry(record.segment);
        segment.tombstones.push((origin, tombstone));
        segment.newest_origin = segment.newest_origin.max(origin);
    }

    /// Run `act` on the object that `record` belongs to. If replay has not met it yet, it is made, but only by a record
    /// of its bytes or attributes: a verdict that was written again may outlive its object. A record of an older object
    /// of the same number is passed over; one of a newer means that the older is gone.
    fn with_object(&mut self, record: &Record, act: impl FnOnce(&mut Access<'_>)) {
        let (partition, object) = (record.partition, record.object);
        let known = self.partitions.get(&partition).and_then(|p| p.objects.get(&object)).map(|o| o.birth);
        match known {
            Some(birth) if birth > record.birth => return,
            Some(birth) if birth < record.birth => self.drop_object(partition, object),
            None if !makes_object(record.kind) => return,
            _ => {}
        }
        let owner = self.partitions.entry(partition).or_default();
        let Partition { objects, used, .. } = owner;
        let entry = objects.entry(object).or_insert_with(|| Box::new(Object::unknown(record.birth)));
        act(&mut Access {
            object: entry,
            owner: (partition, Some(object)),
            used,
            segments: &mut self.segments,
        });
    }

    fn drop_object(&mut self, partition: PartitionId, object: ObjectId) {
        let Some(owner) = self.partitions.get_mut(&partition) else { return };
        let Some(gone) = owner.objects.remove(&object) else { return };
        owner.used -= gone.bytes;
        for (_, slot) in gone.units.iter() {
            slot.unit().pins().for_each(|extent| self.segments.release(extent));
        }
        self.segments.move_meta((partition, Some(object)), gone.meta.into_iter().chain(gone.fence), []);
    }

    /// Replay is over: a pending version whose predecessor never appeared was settled.
    pub(crate) fn finish_replay(&mut self) {
        for (&partition, owner) in &mut self.partitions {
            let Partition { objects, used, .. } = owner;
            for (&number, object) in objects {
                let unit_bytes = object.attributes.unit_bytes;
                let units: Vec<u64> = object.pending.iter().map(|((_, _, _, unit), ())| unit).collect();
                let segments = &mut self.segments;
                let mut access = Access { object, owner: (partition, Some(number)), used, segments };
                for unit in units {
                    access.unit(unit, |unit| unit.settle_orphan(unit_bytes));
                }
            }
        }
    }

    /// Damage hit a unit, or, without one, may have hit any unit of the object.
    pub(crate) fn mark_lost(
        &mut self,
        partition: PartitionId,
        object: ObjectId,
        unit: Option<u64>,
        place: Place,
    ) {
        let partition = self.partitions.entry(partition).or_default();
        let object = partition.objects.entry(object).or_insert_with(|| Box::new(Object::unknown(0)));
        match unit {
            Some(unit) => object.units.update(unit, |slot| {
                let mut unit = std::mem::take(slot).into_unit();
                unit.lost = Some(place);
                *slot = Slot::from(unit);
                true
            }),
            None => object.lost = Some(place),
        }
    }

    /// Damage that cannot be told: any object so far may have been hit.
    pub(crate) fn mark_all_lost(&mut self, place: Place) {
        for object in self.partitions.values_mut().flat_map(|partition| partition.objects.values_mut()) {
            object.lost.get_or_insert(place);
        }
    }
}

/// An object with what must change along with it.
struct Access<'a> {
    object: &'a mut Object,
    owner: (PartitionId, Option<ObjectId>),
    used: &'a mut u64,
    segments: &'a mut Segments,
}

impl Access<'_> {
    /// The newest records of its attributes are these.
    fn place(&mut self, meta: Option<Meta>, fence: Option<Meta>) {
        let old = self.object.meta.into_iter().chain(self.object.fence);
        self.segments.move_meta(self.owner, old, meta.into_iter().chain(fence));
        (self.object.meta, self.object.fence) = (meta, fence);
    }

    /// Change one unit, keeping every account.
    fn unit(&mut self, number: u64, change: impl FnOnce(&mut Unit)) {
        let Access { object, used, segments, .. } = self;
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
    /// An object of which no attributes were seen yet.
    fn unknown(birth: u64) -> Object {
        Object {
            birth,
            attributes: Attributes::default(),
            meta: None,
            fence: None,
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

fn makes_object(kind: Kind) -> bool {
    kind.writes() || matches!(kind, Kind::ObjectCreate | Kind::ObjectAttributes)
}

fn pending_key(version: Version, unit: u64) -> (u32, u32, u64, u64) {
    (version.lease.0, version.g.0, version.n, unit)
}

fn stored<'a>(extents: impl Iterator<Item = &'a Extent>) -> u64 {
    extents.map(Extent::stored_bytes).sum()
}
