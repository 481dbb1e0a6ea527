//! A large object's checkpoint pages, made in slices: writers of the index mostly wait for one slice only.
//!
//! Meanwhile the index notes which units of the object change ([`Watched`]). Parts with changed units are
//! made again until few are left. These, and the object's own entries, are then made under one lock, so that
//! all parts show the same moment.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{ObjectId, PartitionId};

use crate::format::page::{Key, TARGET_BYTES};
use crate::index::image::{Image, Sink};
use crate::index::locked::Locked;
use crate::index::{Index, Object};

/// About the most bytes of entries that are made under one lock: some 5000 plain units.
const SLICE_BYTES: usize = 4 * TARGET_BYTES;
/// The most parts that are left for the last step.
const LAST_PARTS: usize = 8;
/// Number of rounds that make changed parts again; after them, all parts that are left are made under one
/// lock.
const ROUNDS_MAX: usize = 8;

/// An object whose pages are being made, and the units that have changed since they were last looked at.
#[derive(Debug)]
pub(crate) struct Watched {
    place: (PartitionId, ObjectId),
    units: BTreeSet<u64>,
    /// True if the object was removed.
    gone: bool,
}

/// The notes on the object at `place`, if it is watched.
pub(super) fn watched(
    watched: &mut Option<Box<Watched>>,
    place: (PartitionId, ObjectId),
) -> Option<&mut Watched> {
    watched.as_deref_mut().filter(|watched| watched.place == place)
}

impl Watched {
    /// Notes that a unit has changed.
    pub(super) fn note(&mut self, unit: u64) {
        self.units.insert(unit);
    }

    /// Notes that the object is removed.
    pub(super) fn end(&mut self) {
        self.gone = true;
    }
}

/// The pages of the object at `from`; `None`: it was removed meanwhile.
pub(crate) fn image(index: &Locked, from: Key) -> Option<Image> {
    let Key::At(partition, Some(object)) = from else { return None };
    let mut making = Making::begin(&mut index.write(), (partition, object));
    loop {
        let goes_on = making.slice(&index.read());
        if !goes_on && !making.again(&mut index.write()) {
            break;
        }
    }
    let image = making.finish(&index.read());
    index.write().watched = None;
    image
}

/// First unit and end of a range; `None`: up to the last unit.
type Units = (u64, Option<u64>);

/// The state of making an object's pages.
#[derive(Debug)]
struct Making {
    place: (PartitionId, ObjectId),
    /// Entries of each part, by its first unit. A part extends to the first unit of the next.
    parts: BTreeMap<u64, Vec<u8>>,
    /// Ranges still to be made.
    left: Vec<Units>,
    rounds: usize,
}

impl Making {
    fn begin(index: &mut Index, place: (PartitionId, ObjectId)) -> Making {
        index.watched = Some(Box::new(Watched { place, units: BTreeSet::new(), gone: false }));
        Making { place, parts: BTreeMap::new(), left: vec![(0, None)], rounds: 0 }
    }

    /// Makes some parts. Returns true if ranges of this round are left.
    fn slice(&mut self, index: &Index) -> bool {
        let (Some(object), Some(range)) = (self.object(index), self.left.pop()) else { return false };
        let rest = self.make(object, range, SLICE_BYTES);
        self.left.extend(rest);
        !self.left.is_empty()
    }

    /// Collects the parts that have changed. Returns true if they are to be made in another round; if not,
    /// the last step follows.
    fn again(&mut self, index: &mut Index) -> bool {
        let Some(watched) = watched(&mut index.watched, self.place).filter(|watched| !watched.gone) else {
            return false;
        };
        let units = std::mem::take(&mut watched.units);
        self.left = self.parts_of(&units);
        self.rounds += 1;
        self.left.len() > LAST_PARTS && self.rounds <= ROUNDS_MAX
    }

    /// Makes the parts that are left and the object's own entries. The result is the object as it is now.
    fn finish(mut self, index: &Index) -> Option<Image> {
        let watched =
            index.watched.as_ref().filter(|watched| watched.place == self.place && !watched.gone)?;
        let object = self.object(index)?;
        let mut stale: BTreeSet<Units> = self.parts_of(&watched.units).into_iter().collect();
        stale.extend(std::mem::take(&mut self.left));
        for range in stale {
            self.make(object, range, usize::MAX);
        }
        let key = Key::At(self.place.0, Some(self.place.1));
        let mut own = Sink::default();
        own.own(key, object);
        let units = self.parts.into_values().filter(|part| !part.is_empty());
        let parts = std::iter::once(own.bytes).chain(units).collect();
        Some(Image { to: key.next(), as_of: index.head.sequence - 1, parts })
    }

    fn object<'a>(&self, index: &'a Index) -> Option<&'a Object> {
        Some(index.partitions.get(&self.place.0)?.objects.get(&self.place.1)?)
    }

    /// The ranges of the parts that contain `units`.
    fn parts_of(&self, units: &BTreeSet<u64>) -> Vec<Units> {
        let mut out = Vec::new();
        let mut next = units.first().copied();
        while let Some(unit) = next {
            let first = self.parts.range(..=unit).next_back().map_or(0, |(&first, _)| first);
            let end = unit.checked_add(1).and_then(|after| Some(*self.parts.range(after..).next()?.0));
            out.push((first, end));
            next = end.and_then(|end| units.range(end..).next().copied());
        }
        out
    }

    /// Makes parts from a range of units until they have about `most` bytes. Returns the rest of the range.
    fn make(&mut self, object: &Object, units: Units, most: usize) -> Option<Units> {
        let (first, end) = units;
        let mut sink = Sink::default();
        let mut part = first;
        let mut made = 0;
        for (unit, slot) in object.units.from(first).take_while(|(unit, _)| end.is_none_or(|end| *unit < end))
        {
            if sink.bytes.len() >= TARGET_BYTES {
                made += sink.bytes.len();
                self.parts.insert(part, std::mem::take(&mut sink).bytes);
                part = unit;
                if made >= most {
                    // An empty part for the rest, so that changes in it are attributed to it.
                    self.parts.insert(part, Vec::new());
                    return Some((unit, end));
                }
            }
            sink.slot(unit, slot);
        }
        self.parts.insert(part, sink.bytes);
        None
    }
}

#[cfg(test)]
mod tests;
