//! Facts about objects, for the requests of one connection.
//!
//! An object's column map is decoded once. The last maps are kept with the bytes that they were decoded from,
//! and a map counts only as long as the store has the same bytes. So no notice is needed when a map changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_layout::{ColumnMask, Generation};
use braid_store::ObjectState;
use braid_wire::data::ColumnMap;
use braid_wire::{DecodeError, Reason, Refusal, Wire};

use crate::connections::convert::ObjectRef;
use crate::connections::reply::refusal;
use crate::core::Core;

/// Number of maps that are kept; an object's number determines its map's place.
const MAPS: usize = 64;

/// Facts about an object, against which its requests are checked.
#[derive(Debug, Clone)]
pub(crate) struct StoredFacts {
    pub(crate) g: Generation,
    /// The columns of the set that are ready.
    pub(crate) ready: ColumnMask,
    pub(crate) map: Arc<ColumnMap>,
    /// True if it is read together with others: it has a cluster.
    pub(crate) is_clustered: bool,
}

/// An object whose creation is on its way to the disk.
struct Creating {
    place: ObjectRef,
    facts: StoredFacts,
    /// Set when the store has answered and shows the object itself.
    answered: Arc<AtomicBool>,
}

/// The objects that a connection's requests are about.
#[derive(Default)]
pub(crate) struct Objects {
    creating: Vec<Creating>,
    maps: Maps,
}

/// The maps that were decoded last, each in the place of its object.
#[derive(Default)]
struct Maps(Vec<Option<Decoded>>);

/// A map, with the bytes that it was decoded from.
type Decoded = (Box<[u8]>, Arc<ColumnMap>);

impl Objects {
    /// Makes the facts of an object that is being created count at once.
    pub(crate) fn is_creating(&mut self, place: ObjectRef, facts: StoredFacts, answered: Arc<AtomicBool>) {
        self.creating.push(Creating { place, facts, answered });
    }

    /// Facts about an object; `None`: there is no such object.
    pub(crate) fn facts(&mut self, core: &Core, place: ObjectRef) -> Result<Option<StoredFacts>, Refusal> {
        self.creating.retain(|creating| !creating.answered.load(Ordering::Acquire));
        if let Some(creating) = self.creating.iter().find(|creating| creating.place == place) {
            return Ok(Some(creating.facts.clone()));
        }
        let maps = &mut self.maps;
        let looked = core.store.with_object(place.0, place.1, |state: &ObjectState<'_>| {
            let ObjectState { g, set, joining, map, is_clustered } = *state;
            let map = maps.decoded(place, map)?;
            let ready = set.minus(joining);
            Ok::<_, DecodeError>(StoredFacts { g, ready, map, is_clustered })
        });
        match looked {
            Ok(facts) => facts
                .map(Some)
                .map_err(|error| Refusal::new(Reason::Damaged, format!("the object's map: {error}"))),
            Err(braid_store::Error::NoObject(..)) => Ok(None),
            Err(error) => Err(refusal(core.damage.of_object(place, &error))),
        }
    }
}

impl Maps {
    /// The object's map, of which `bytes` is the stored form.
    fn decoded(&mut self, place: ObjectRef, bytes: &[u8]) -> Result<Arc<ColumnMap>, DecodeError> {
        self.0.resize(MAPS, None);
        let at = usize::try_from((place.0.0 ^ place.1.0) % 64).expect("small");
        let kept = &mut self.0[at];
        if let Some((_, map)) = kept.as_ref().filter(|(from, _)| **from == *bytes) {
            return Ok(Arc::clone(map));
        }
        let map = Arc::new(ColumnMap::from_bytes(bytes)?);
        *kept = Some((bytes.into(), Arc::clone(&map)));
        Ok(map)
    }
}

const _: () = assert!(MAPS == 64, "a place is a number's rest by it");

#[cfg(test)]
mod tests {
    use braid_layout::{Column, DriveId, FileId, ObjectId, PartitionId};

    use super::*;

    #[test]
    fn a_map_is_decoded_once_and_anew_when_its_bytes_change() {
        let map = |file| ColumnMap {
            file: FileId(file),
            segment: 0,
            scheme: 5,
            k: 2,
            m: 1,
            unit_bytes: 4096,
            column: Column(1),
            drives: vec![DriveId(1), DriveId(2), DriveId(3)],
            objects: vec![ObjectId(7); 3],
        };
        let mut maps = Maps::default();
        let place = (PartitionId(3), ObjectId(7));
        let first = maps.decoded(place, &map(1).to_bytes()).expect("a map");
        let again = maps.decoded(place, &map(1).to_bytes()).expect("a map");
        assert!(Arc::ptr_eq(&first, &again));
        let other = maps.decoded(place, &map(2).to_bytes()).expect("a map");
        assert_eq!((&*first, &*other), (&map(1), &map(2)));
        assert!(maps.decoded(place, &[1, 2, 3]).is_err(), "damaged");
        assert_eq!(*maps.decoded(place, &map(2).to_bytes()).expect("a map"), map(2));
        // Another object in the same place.
        let far = (PartitionId(3), ObjectId(7 + 64));
        assert_eq!(*maps.decoded(far, &map(3).to_bytes()).expect("a map"), map(3));
        assert_eq!(*maps.decoded(place, &map(2).to_bytes()).expect("a map"), map(2));
    }
}
