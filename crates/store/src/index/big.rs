//! The pages of a big object, made in slices: who changes the index waits for one slice at most.
//!
//! While they are made, the index notes which units of the object change ([`Watched`]). Parts with such units are made again,
//! until few are left; these, and the entries of the object itself, are made in one go. So all parts are of one moment.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{ObjectId, PartitionId};

use super::image::{Image, Sink};
use super::locked::Locked;
use super::{Index, Object};
use crate::format::page::{Key, TARGET_BYTES};

/// About the most bytes of entries that are made while nothing changes: some 5000 plain units.
const SLICE_BYTES: usize = 4 * TARGET_BYTES;
/// The most parts that are left for the end.
const LAST_PARTS: usize = 8;
/// How often parts that changed are made again before the end; then all that are left are made in one go.
const ROUNDS_MAX: usize = 8;

/// An object whose pages are being made, and what has changed in it since it was looked at.
#[derive(Debug)]
pub(crate) struct Watched {
    place: (PartitionId, ObjectId),
    units: BTreeSet<u64>,
    /// It was removed.
    gone: bool,
}

/// What is noted of the object at `place`, if it is watched.
pub(super) fn watched(
    watched: &mut Option<Box<Watched>>,
    place: (PartitionId, ObjectId),
) -> Option<&mut Watched> {
    watched.as_deref_mut().filter(|watched| watched.place == place)
}

impl Watched {
    /// A unit has changed.
    pub(super) fn note(&mut self, unit: u64) {
        self.units.insert(unit);
    }

    /// The object is removed.
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

/// A range of units, up to the end of all if it has none.
type Units = (u64, Option<u64>);

/// Its pages, while they are made.
#[derive(Debug)]
struct Making {
    place: (PartitionId, ObjectId),
    /// Entries by the first unit that the part is for; it goes on to the next one's.
    parts: BTreeMap<u64, Vec<u8>>,
    /// Ranges to be made.
    left: Vec<Units>,
    rounds: usize,
}

impl Making {
    fn begin(index: &mut Index, place: (PartitionId, ObjectId)) -> Making {
        index.watched = Some(Box::new(Watched { place, units: BTreeSet::new(), gone: false }));
        Making { place, parts: BTreeMap::new(), left: vec![(0, None)], rounds: 0 }
    }

    /// Make some parts. Whether there are more to make before any can be known to have changed.
    fn slice(&mut self, index: &Index) -> bool {
        let (Some(object), Some(range)) = (self.object(index), self.left.pop()) else { return false };
        let rest = self.make(object, range, SLICE_BYTES);
        self.left.extend(rest);
        !self.left.is_empty()
    }

    /// Look at what has changed. Whether it is made again now; else the end has come.
    fn again(&mut self, index: &mut Index) -> bool {
        let Some(watched) = watched(&mut index.watched, self.place).filter(|watched| !watched.gone) else {
            return false;
        };
        let units = std::mem::take(&mut watched.units);
        self.left = self.parts_of(&units);
        self.rounds += 1;
        self.left.len() > LAST_PARTS && self.rounds <= ROUNDS_MAX
    }

    /// Make what is left, and the object's own entries: all is as it is now.
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

    /// The ranges of the parts that `units` are in.
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

    /// Make the parts of a range of units, until they have about `most` bytes. What is left of the range.
    fn make(&mut self, object: &Object, (first, end): Units, most: usize) -> Option<Units> {
        let mut sink = Sink::default();
        let (mut part, mut made) = (first, 0);
        for (unit, slot) in object.units.from(first).take_while(|(unit, _)| end.is_none_or(|end| *unit < end))
        {
            if sink.bytes.len() >= TARGET_BYTES {
                made += sink.bytes.len();
                self.parts.insert(part, std::mem::take(&mut sink).bytes);
                part = unit;
                if made >= most {
                    // Known from here on, so that what changes in it is found.
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
