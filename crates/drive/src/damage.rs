//! Units of which the stored bytes are doubted or damaged, until they are whole again.
//!
//! Any sign of damage only raises a doubt: a scrub, a read that failed here, or a reader that was sent bytes
//! which do not match their checksums. The drive then verifies the unit itself, so that no mistake and no
//! false report makes a good unit count as bad. A unit that it finds damaged is given to the healer in its
//! process, which has the unit made anew from the file's other columns, under the version that it has. Until
//! then the unit's other blocks are served as before, and a whole write to the unit repairs it as well.
//!
//! A unit that cannot be repaired is verified and tried again after a pause, which doubles each time. All of
//! this is in memory: after a restart a scrub finds the damage again. [`Units`] makes the decisions and is
//! pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use braid_layout::{FileId, ObjectId, PartitionId};
use braid_store::Error;
use tokio::sync::Notify;

use crate::life::clock::{Clock, Moment};

/// Maximum number of doubted and damaged units known at a time. A scrub finds the others later.
const UNITS_MAX: usize = 1024;
/// Maximum number of objects known to be lost as a whole.
const OBJECTS_MAX: usize = 1024;
/// Pause before a unit that could not be repaired is verified and tried again, in milliseconds: the first
/// one, and the longest.
const AGAIN_MIN_MS: u64 = 1000;
const AGAIN_MAX_MS: u64 = 60_000;
/// A unit's place on the drive.
pub(crate) type UnitPlace = (PartitionId, ObjectId, u64);

/// A unit that the drive has verified and found damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedPart {
    pub partition: PartitionId,
    pub object: ObjectId,
    pub unit: u64,
    /// File of the unit's object.
    pub file: FileId,
}

impl DamagedPart {
    fn place(&self) -> UnitPlace {
        (self.partition, self.object, self.unit)
    }
}

/// Doubted and damaged units of a drive, and its lost objects; shared with the healer in the drive's process.
#[derive(Debug)]
pub struct Damage {
    units: Mutex<Units>,
    objects: Mutex<BTreeSet<(PartitionId, ObjectId)>>,
    clock: Clock,
    /// Notified when there is a unit to verify.
    pub(crate) doubted: Notify,
    /// Notified when there is a unit to repair.
    pub(crate) found: Notify,
    repaired: AtomicU64,
}

impl Damage {
    pub(crate) fn new(clock: Clock) -> Damage {
        let (units, objects, doubted, found, repaired) = Default::default();
        Damage { units, objects, clock, doubted, found, repaired }
    }

    /// Waits until there are damaged units that the healer was not given yet, and returns them.
    pub async fn wanted(&self) -> Vec<DamagedPart> {
        loop {
            let found = self.units().take_damaged();
            if !found.is_empty() {
                return found;
            }
            self.found.notified().await;
        }
    }

    /// The healer has tried to have the unit made anew. A unit that is still damaged is tried again later.
    pub fn tried(&self, part: &DamagedPart) {
        self.units().handle_tried(part.place(), self.clock.now());
        self.doubted.notify_one();
    }

    /// Number of units that were made anew since the start.
    pub fn repaired(&self) -> u64 {
        self.repaired.load(Ordering::Relaxed)
    }

    /// Number of units known to be damaged.
    pub fn damaged(&self) -> u64 {
        self.units().damaged()
    }

    /// Raises a doubt: the unit may be damaged.
    pub(crate) fn doubt(&self, place: UnitPlace) {
        if self.units().handle_doubt(place, self.clock.now()) {
            self.doubted.notify_one();
        }
    }

    /// The object's record was found damaged.
    pub(crate) fn doubt_object(&self, place: (PartitionId, ObjectId)) {
        let mut objects = self.objects();
        if objects.len() < OBJECTS_MAX {
            objects.insert(place);
        }
    }

    /// Returns `error`, with which the lookup of the object failed. If it means damage, the object counts as
    /// lost.
    pub(crate) fn of_object<'a>(&self, place: (PartitionId, ObjectId), error: &'a Error) -> &'a Error {
        if matches!(error, Error::Damaged { .. }) {
            self.doubt_object(place);
        }
        error
    }

    /// Returns true if the drive itself has found the unit damaged.
    pub(crate) fn is_damaged(&self, place: UnitPlace) -> bool {
        self.units().is_damaged(place)
    }

    /// The unit was made anew.
    pub(crate) fn handle_repaired(&self, place: UnitPlace) {
        if self.units().forget(place) {
            self.repaired.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn units(&self) -> MutexGuard<'_, Units> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn objects(&self) -> MutexGuard<'_, BTreeSet<(PartitionId, ObjectId)>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The units that are doubted or damaged.
#[derive(Debug, Default)]
pub(crate) struct Units(BTreeMap<UnitPlace, Unit>);

#[derive(Debug)]
pub(crate) struct Unit {
    state: DoubtState,
    /// Number of failed attempts to repair the unit.
    tries: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DoubtState {
    /// The unit is to be verified from this moment on.
    Doubted(Moment),
    /// The unit was verified and found damaged, and is to be repaired.
    Damaged(FileId),
    /// The healer is repairing the unit.
    Given,
}

impl Units {
    /// Adds a doubted unit. Returns false if the unit is known already, or if there is no room for it.
    fn handle_doubt(&mut self, place: UnitPlace, now: Moment) -> bool {
        if self.0.contains_key(&place) || self.0.len() >= UNITS_MAX {
            return false;
        }
        self.0.insert(place, Unit { state: DoubtState::Doubted(now), tries: 0 });
        true
    }

    /// The next unit to verify.
    pub(crate) fn due(&self, now: Moment) -> Option<UnitPlace> {
        let is_due = |unit: &Unit| matches!(unit.state, DoubtState::Doubted(from) if from <= now);
        self.0.iter().find(|(_, unit)| is_due(unit)).map(|(place, _)| *place)
    }

    /// The unit was verified, and is damaged. Returns true if no attempt to repair it has failed yet.
    pub(crate) fn handle_damaged(&mut self, place: UnitPlace, file: FileId) -> bool {
        let Some(unit) = self.0.get_mut(&place) else { return false };
        unit.state = DoubtState::Damaged(file);
        unit.tries == 0
    }

    fn take_damaged(&mut self) -> Vec<DamagedPart> {
        let mut taken = Vec::new();
        for (&(partition, object, number), unit) in &mut self.0 {
            if let DoubtState::Damaged(file) = unit.state {
                unit.state = DoubtState::Given;
                taken.push(DamagedPart { partition, object, unit: number, file });
            }
        }
        taken
    }

    /// An attempt to repair the unit has ended. A unit that is still known was not repaired, and is verified
    /// again after a pause.
    fn handle_tried(&mut self, place: UnitPlace, now: Moment) {
        if let Some(unit) = self.0.get_mut(&place).filter(|unit| unit.state == DoubtState::Given) {
            let pause_ms = (AGAIN_MIN_MS << unit.tries.min(16)).min(AGAIN_MAX_MS);
            unit.state = DoubtState::Doubted(Moment(now.0 + pause_ms));
            unit.tries = unit.tries.saturating_add(1);
        }
    }

    /// The unit is whole. Returns true if it was known.
    pub(crate) fn forget(&mut self, place: UnitPlace) -> bool {
        self.0.remove(&place).is_some()
    }

    fn is_damaged(&self, place: UnitPlace) -> bool {
        self.0.get(&place).is_some_and(|unit| !matches!(unit.state, DoubtState::Doubted(_)))
    }

    /// Number of damaged units, including those that are to be verified again after a failed attempt to
    /// repair them.
    fn damaged(&self) -> u64 {
        let is = |unit: &&Unit| unit.tries > 0 || !matches!(unit.state, DoubtState::Doubted(_));
        u64::try_from(self.0.values().filter(is).count()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(unit: u64) -> UnitPlace {
        (PartitionId(1), ObjectId(2), unit)
    }

    #[test]
    fn only_what_was_verified_is_repaired_and_a_failure_is_tried_later_and_later() {
        let mut units = Units::default();
        assert!(units.handle_doubt(place(7), Moment(100)) && !units.handle_doubt(place(7), Moment(100)));
        assert!(!units.is_damaged(place(7)) && units.take_damaged().is_empty() && units.damaged() == 0);
        let mut now = 100;
        let mut pauses = Vec::new();
        for tries in 0..8 {
            assert_eq!(units.due(Moment(now)), Some(place(7)));
            assert_eq!(units.handle_damaged(place(7), FileId(3)), tries == 0);
            let taken = units.take_damaged();
            assert_eq!(
                (taken[0].place(), taken[0].file, units.take_damaged().len()),
                (place(7), FileId(3), 0)
            );
            assert!(units.is_damaged(place(7)));
            units.handle_tried(place(7), Moment(now));
            assert!(!units.handle_doubt(place(7), Moment(now)), "it is known, and has to wait");
            let next = (now..).find(|&at| units.due(Moment(at)).is_some()).unwrap();
            pauses.push(next - now);
            now = next;
            assert_eq!(units.damaged(), 1);
        }
        assert_eq!(pauses, [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        assert!(units.forget(place(7)) && !units.forget(place(7)));
        units.handle_tried(place(7), Moment(now));
        assert_eq!((units.due(Moment(u64::MAX)), units.damaged()), (None, 0));
    }

    #[test]
    fn the_number_is_bounded() {
        let mut units = Units::default();
        let known = (0..2000).filter(|&unit| units.handle_doubt(place(unit), Moment(0))).count();
        assert_eq!(known, UNITS_MAX);
    }
}
