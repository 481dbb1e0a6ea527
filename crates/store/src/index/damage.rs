//! Changes of the index by damage found at opening: units and objects that it may have hit read as damaged,
//! never as an older version.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{ObjectId, PartitionId};

use crate::format::extent::{Extent, LogPosition};
use crate::format::page::Key;
use crate::index::large_object::watched;
use crate::index::slot::Slot;
use crate::index::{Index, Object};

impl Index {
    /// Marks a unit as lost; without a unit, damage may have hit any unit of the object.
    pub(crate) fn mark_lost(
        &mut self,
        partition: PartitionId,
        object: ObjectId,
        unit: Option<u64>,
        place: LogPosition,
    ) {
        if let (Some(watched), Some(unit)) = (watched(&mut self.watched, (partition, object)), unit) {
            watched.note(unit);
        }
        let owner = self.partitions.entry(partition).or_default();
        let found = owner.objects.entry(object);
        if matches!(found, Entry::Vacant(_)) {
            self.unknown.insert((partition, object));
        }
        let object = found.or_insert_with(|| Box::new(Object::unknown(0)));
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

    /// Marks as lost the values of every partition and every object with a key from `from` up to `to`.
    pub(crate) fn mark_range_lost(&mut self, from: Key, to: Key, place: LogPosition) {
        for (&partition, owner) in &mut self.partitions {
            let itself = Key::At(partition, None);
            owner.known &= itself < from || to <= itself;
            let hit = owner.objects.iter_mut().filter(|(object, _)| {
                let key = Key::At(partition, Some(**object));
                from <= key && key < to
            });
            hit.for_each(|(_, object)| {
                object.lost.get_or_insert(place);
            });
        }
    }

    /// Marks units that refer to a missing segment as lost. Returns those segments and their unit counts.
    pub(crate) fn lose_missing_segments(&mut self) -> Vec<(u32, u64)> {
        let missing: BTreeSet<u32> = self.segments.missing().collect();
        if missing.is_empty() {
            return Vec::new();
        }
        let mut hit = BTreeMap::new();
        for (&partition, owner) in &self.partitions {
            for (&id, object) in &owner.objects {
                for (number, slot) in object.units.iter() {
                    let unit = slot.unit();
                    let gone = |extent: &Extent| missing.contains(&extent.segment);
                    if let Some(extent) = unit.pins().into_iter().find(gone) {
                        let place = extent.position();
                        hit.insert((partition, id, number), place);
                    }
                }
            }
        }
        let mut counts: BTreeMap<u32, u64> = missing.into_iter().map(|segment| (segment, 0)).collect();
        for ((partition, object, unit), place) in hit {
            *counts.entry(place.segment).or_default() += 1;
            self.mark_lost(partition, object, Some(unit), place);
        }
        counts.into_iter().collect()
    }

    /// Objects whose attributes are lost. Called once, after loading and replay.
    pub(crate) fn without_attributes(&mut self) -> Vec<(PartitionId, ObjectId)> {
        let mut unknown: Vec<_> = std::mem::take(&mut self.unknown).into_iter().collect();
        unknown.retain(|&(partition, id)| {
            let found = self.partitions.get(&partition).and_then(|owner| owner.objects.get(&id));
            found.is_some_and(|object| !object.known)
        });
        unknown
    }
}
