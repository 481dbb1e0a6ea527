//! The units that an object shows: its own and, of a still, else those that its base held at the take.
//!
//! A still is an object of its own. A unit that was installed in it is its own, and hides the base's. It
//! never shows a base that damage may have hit as a whole, nor another object that has the base's number by
//! now: then it is damaged as a whole itself.

use std::borrow::Cow;
use std::iter::Peekable;
use std::ops::{Deref, Range};

use braid_layout::{ObjectId, PartitionId};

use crate::error::Error;
use crate::index::list::{Direction, Holes, Listed, Listing};
use crate::index::query::chain;
use crate::index::slot::Slot;
use crate::index::unit::Unit;
use crate::index::{Chain, Index, Object, ObjectUsage};
use crate::mutation::Base;

/// An object that damage has not hit as a whole, with its base if it is a still.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub(crate) own: &'a Object,
    id: ObjectId,
    base: Option<(Base, &'a Object)>,
}

/// A unit that is shown.
pub(crate) struct ShownUnit<'a> {
    slot: ShownSlot<'a>,
    /// The object that the unit's records name.
    pub(crate) holder: ObjectId,
}

enum ShownSlot<'a> {
    Stored(&'a Slot),
    /// A content that was replaced in the base, or of which a part only is shown.
    Past(Slot),
}

impl Deref for ShownUnit<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        match &self.slot {
            ShownSlot::Stored(slot) => slot,
            ShownSlot::Past(slot) => slot,
        }
    }
}

impl Index {
    /// An object, unless damage has made it doubtful as a whole.
    pub(crate) fn shown(&self, partition: PartitionId, object: ObjectId) -> Result<Shown<'_>, Error> {
        let own = self.sound_object(partition, object)?;
        let Some(base) = own.attributes.base() else { return Ok(Shown { own, id: object, base: None }) };
        let found = self.partitions.get(&partition).and_then(|found| found.objects.get(&base.object));
        let found = found.filter(|found| found.lost.is_none() && found.keeps_for(&base));
        let lost = Error::Damaged { segment: 0, offset: 0, what: "what the still was taken of is lost" };
        Ok(Shown { own, id: object, base: Some((base, found.ok_or(lost)?)) })
    }
}

impl Object {
    /// Returns true if the object has the snapshot that a still was taken of.
    pub(crate) fn keeps_for(&self, base: &Base) -> bool {
        self.birth == base.birth && self.has_snapshot(base.number)
    }
}

impl<'a> Shown<'a> {
    /// A unit; `None`: it was never written.
    pub(crate) fn slot(&self, unit: u64) -> Option<ShownUnit<'a>> {
        let own = self.own.units.get(unit);
        let base = self.base.filter(|_| own.is_none());
        self.resolve(own, base.and_then(|(_, base)| base.units.get(unit)))
    }

    /// As [`Shown::slot`], in its full form; an empty one if it was never written.
    pub(crate) fn unit(&self, unit: u64) -> Cow<'a, Unit> {
        match self.slot(unit).map(|found| found.slot) {
            None => Cow::Owned(Unit::default()),
            Some(ShownSlot::Stored(slot)) => slot.unit(),
            Some(ShownSlot::Past(slot)) => Cow::Owned(*slot.into_unit()),
        }
    }

    fn resolve(&self, own: Option<&'a Slot>, base: Option<&'a Slot>) -> Option<ShownUnit<'a>> {
        let stored = |slot, holder| Some(ShownUnit { slot: ShownSlot::Stored(slot), holder });
        let Some((Base { object, number, .. }, _)) = self.base else { return stored(own?, self.id) };
        if let Some(slot) = own {
            return stored(slot, self.id).filter(|slot| slot.as_whole().is_none_or(|unit| !unit.is_hidden()));
        }
        let slot = base?;
        // What was written since the take has an epoch, and so is not plain.
        if slot.as_plain().is_some() {
            return stored(slot, object);
        }
        let unit = match slot.as_whole()?.seen(number) {
            Ok(None) => return None,
            Ok(Some(content)) => Unit { settled: Some(content.clone()), ..Unit::default() },
            Err(place) => Unit { lost: Some(place), ..Unit::default() },
        };
        Some(ShownUnit { slot: ShownSlot::Past(Slot::from(Box::new(unit))), holder: object })
    }

    /// Returns true if the column is not joining, or has caught up with the unit, and the unit is not known
    /// to be damaged.
    pub(crate) fn is_ready(&self, unit: u64) -> bool {
        self.own.is_ready(unit) && self.slot(unit).is_none_or(|slot| slot.unit().lost.is_none())
    }

    /// The units from `range`, in order.
    fn up(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Option<ShownUnit<'a>>)> {
        let base = self.base.into_iter().flat_map({
            let range = range.clone();
            move |(_, base)| base.units.range(range.clone())
        });
        let both = Merged { own: self.own.units.range(range).peekable(), base: base.peekable(), down: false };
        let shown = *self;
        both.map(move |(unit, own, base)| (unit, shown.resolve(own, base)))
    }

    /// The units from `range`, highest first.
    fn down(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Option<ShownUnit<'a>>)> {
        let base = self.base.into_iter().flat_map({
            let range = range.clone();
            move |(_, base)| base.units.range(range.clone()).rev()
        });
        let own = self.own.units.range(range).rev();
        let both = Merged { own: own.peekable(), base: base.peekable(), down: true };
        let shown = *self;
        both.map(move |(unit, own, base)| (unit, shown.resolve(own, base)))
    }

    /// Lists at most `limit` units. Examines at most `looked_at`.
    pub(crate) fn list(&self, list: Listing, limit: usize, looked_at: usize) -> Listed {
        match list.direction {
            Direction::Up => self.collect(self.up(list.from..u64::MAX), list.holes, limit, looked_at),
            Direction::Down => {
                self.collect(self.down(0..list.from.saturating_add(1)), list.holes, limit, looked_at)
            }
        }
    }

    fn collect(
        &self,
        slots: impl Iterator<Item = (u64, Option<ShownUnit<'a>>)>,
        holes: Holes,
        limit: usize,
        looked_at: usize,
    ) -> Listed {
        let mut units = Vec::new();
        for (looked, (number, slot)) in slots.enumerate() {
            if looked >= looked_at || units.len() >= limit {
                return Listed { units, next: Some(number) };
            }
            let Some(slot) = slot else { continue };
            let has_none = match slot.as_plain() {
                Some((extent, ..)) => extent.is_hole(),
                None => slot.as_whole().is_some_and(|unit| unit.lost.is_none() && unit.bytes_end() == 0),
            };
            if !(has_none && holes == Holes::PassedOver) {
                units.push(chain(number, &slot.unit(), self.own.attributes.unit_bytes));
            }
        }
        Listed { units, next: None }
    }

    pub(crate) fn chains(&self, units: Range<u64>) -> Vec<Chain> {
        let unit_bytes = self.own.attributes.unit_bytes;
        let shown = self.up(units).filter_map(|(number, slot)| Some((number, slot?)));
        shown.map(|(number, slot)| chain(number, &slot.unit(), unit_bytes)).collect()
    }

    /// Up to `limit` units from `from` on, in order. Of a still not those whose content is the base's present
    /// one too.
    pub(crate) fn own_units(&self, from: u64, limit: usize) -> Vec<u64> {
        let shown = self.up(from..u64::MAX).filter_map(|(number, slot)| Some((number, slot?)));
        let own = shown.filter(|(number, slot)| slot.holder == self.id || self.is_past(*number));
        own.map(|(number, _)| number).take(limit).collect()
    }

    /// Returns true if the still shows a content of its base that was replaced there, or damaged.
    fn is_past(&self, unit: u64) -> bool {
        let slot = self.base.and_then(|(base, found)| Some((base.number, found.units.get(unit)?)));
        let past = |number, unit: &Unit| unit.lost.is_some() || !unit.shows_present(number);
        slot.is_some_and(|(number, slot)| slot.as_whole().is_some_and(|unit| past(number, unit)))
    }

    pub(crate) fn usage(&self) -> ObjectUsage {
        let units = match self.base {
            None => self.own.units.len(),
            Some(_) => self.up(0..u64::MAX).filter(|(_, slot)| slot.is_some()).count(),
        };
        let last = |holes| {
            self.down(0..u64::MAX).find_map(|(number, slot)| Some((number, slot?.unit().end(holes)?)))
        };
        let alone = self.base.map_or(0, |(base, found)| found.kept_for(base.number));
        ObjectUsage {
            bytes: self.own.bytes + alone,
            units: u64::try_from(units).unwrap_or(u64::MAX),
            end: last(Holes::Listed),
            size: last(Holes::PassedOver),
        }
    }
}

/// The units of a still and of its base, in one order.
struct Merged<A: Iterator, B: Iterator> {
    own: Peekable<A>,
    base: Peekable<B>,
    down: bool,
}

impl<'a, A, B> Iterator for Merged<A, B>
where
    A: Iterator<Item = (u64, &'a Slot)>,
    B: Iterator<Item = (u64, &'a Slot)>,
{
    type Item = (u64, Option<&'a Slot>, Option<&'a Slot>);

    fn next(&mut self) -> Option<Self::Item> {
        let own = self.own.peek().map(|&(unit, _)| unit);
        let base = self.base.peek().map(|&(unit, _)| unit);
        let unit = match (own, base) {
            (Some(own), Some(base)) if self.down => own.max(base),
            (Some(own), Some(base)) => own.min(base),
            (own, base) => own.or(base)?,
        };
        let own = self.own.next_if(|&(own, _)| own == unit).map(|(_, slot)| slot);
        let base = self.base.next_if(|&(base, _)| base == unit).map(|(_, slot)| slot);
        Some((unit, own, base))
    }
}
