//! Debts of the drive to parity drives (PROTOCOL R3, R4): for each unit its owed versions, the ones that each
//! parity column has acknowledged, and the waiters for them. A pure state machine.
//!
//! All of this is soft state. After a restart the owed versions are found in the store, and are sent again.
//! Acknowledgements count only in the generation in which they were given, and a fence makes them void: a
//! column may have moved to a drive that has nothing yet.

use std::collections::{BTreeMap, VecDeque};

use braid_layout::{Column, ColumnMask, Generation, ObjectId, OperationNumber, PartitionId, Version};

/// A unit: its partition, its object, and its number in the object.
pub(crate) type UnitRef = (PartitionId, ObjectId, u64);

/// The parity columns of one stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Creditors {
    /// Columns that must have a version before it is settled: those in the set, including joining ones.
    pub(crate) all: ColumnMask,
    /// Columns of `all` that are ready. A fence is drained when they have every owed version.
    pub(crate) ready: ColumnMask,
    /// Generation of the object in which the masks are valid.
    pub(crate) g: Generation,
}

/// All debts of the drive. `W` is the type of a waiter for a version.
#[derive(Debug)]
pub(crate) struct Debts<W> {
    units: BTreeMap<UnitRef, Debt<W>>,
}

#[derive(Debug)]
struct Debt<W> {
    /// The owed versions, oldest first.
    steps: VecDeque<Step<W>>,
    creditors: Creditors,
    /// The newest version that each column has acknowledged in this generation.
    acknowledged: BTreeMap<Column, Version>,
    /// The newest version that the store was told is settled.
    settling: Version,
    /// True if the owed data could not be read here.
    unreadable: bool,
    /// The newest version that reads show: its writer was told that it is settled, or every ready column had
    /// it when a fence was drained. No fence takes it back.
    shown: Version,
}

#[derive(Debug)]
struct Step<W> {
    version: Version,
    /// The writer repeats none of its operations below this number; 0: not known.
    watermark: OperationNumber,
    waiters: Vec<W>,
}

impl<W> Default for Debts<W> {
    fn default() -> Debts<W> {
        Debts { units: BTreeMap::new() }
    }
}

impl<W> Debts<W> {
    /// A version is owed; `waiter` waits until it is settled. A version that is known already only gets one
    /// more waiter.
    pub(crate) fn handle_owed(
        &mut self,
        unit: UnitRef,
        version: Version,
        watermark: OperationNumber,
        creditors: Creditors,
        waiter: Option<W>,
    ) {
        let debt = self.units.entry(unit).or_insert_with(|| Debt {
            steps: VecDeque::new(),
            creditors,
            acknowledged: BTreeMap::new(),
            settling: Version::ZERO,
            unreadable: false,
            shown: Version::ZERO,
        });
        let at = debt.steps.partition_point(|step| step.version < version);
        if debt.steps.get(at).is_none_or(|step| step.version != version) {
            debt.steps.insert(at, Step { version, watermark, waiters: Vec::new() });
        }
        debt.steps[at].waiters.extend(waiter);
    }

    /// The versions that a column has not acknowledged, oldest first, with their writers' watermarks.
    pub(crate) fn unacknowledged(&self, unit: UnitRef, column: Column) -> Vec<(Version, OperationNumber)> {
        let Some(debt) = self.units.get(&unit).filter(|debt| debt.creditors.all.contains(column)) else {
            return Vec::new();
        };
        let steps = debt.steps.iter().filter(|step| step.version > debt.has(column));
        steps.map(|step| (step.version, step.watermark)).collect()
    }

    /// The column has all versions up to `tip`, in generation `g`.
    pub(crate) fn handle_acknowledged(&mut self, unit: UnitRef, column: Column, tip: Version, g: Generation) {
        if let Some(debt) = self.units.get_mut(&unit).filter(|debt| debt.creditors.g == g) {
            let has = debt.acknowledged.entry(column).or_insert(tip);
            *has = tip.max(*has);
        }
    }

    /// Notes whether the unit's owed data could be read.
    pub(crate) fn handle_read(&mut self, unit: UnitRef, readable: bool) {
        if let Some(debt) = self.units.get_mut(&unit) {
            debt.unreadable = !readable;
        }
    }

    /// The newest owed version that all creditors have, with the generation in which they have it, if the
    /// store was not told of it yet: from now on it counts as told.
    pub(crate) fn take_settled(&mut self, unit: UnitRef) -> Option<(Version, Generation)> {
        let debt = self.units.get_mut(&unit)?;
        let low = debt.creditors.all.iter().map(|column| debt.has(column)).min();
        let reached = |version: &Version| low.is_none_or(|low| *version <= low);
        let newest = debt.steps.iter().map(|step| step.version).take_while(reached).last()?;
        (newest > debt.settling).then(|| {
            debt.settling = newest;
            (newest, debt.creditors.g)
        })
    }

    /// All versions up to `up_to` are settled: from now on reads show them. Returns the waiters, each with
    /// its version.
    pub(crate) fn handle_settled(&mut self, unit: UnitRef, up_to: Version) -> Vec<(Version, W)> {
        let Some(debt) = self.units.get_mut(&unit) else { return Vec::new() };
        debt.shown = debt.shown.max(up_to);
        let done = debt.steps.iter_mut().take_while(|step| step.version <= up_to);
        let waiters = done.flat_map(|step| {
            let version = step.version;
            std::mem::take(&mut step.waiters).into_iter().map(move |one| (version, one))
        });
        waiters.collect()
    }

    /// The store has noted that all versions up to `up_to` are settled. Returns the waiters that came since.
    pub(crate) fn handle_noted(&mut self, unit: UnitRef, up_to: Version) -> Vec<(Version, W)> {
        let waiters = self.handle_settled(unit, up_to);
        if let Some(debt) = self.units.get_mut(&unit) {
            debt.steps.retain(|step| step.version > up_to);
            if debt.shown <= up_to {
                debt.shown = Version::ZERO;
            }
            if debt.steps.is_empty() {
                self.units.remove(&unit);
            }
        }
        waiters
    }

    /// The store could not note that a version is settled, and must be told again.
    pub(crate) fn handle_unsettled(&mut self, unit: UnitRef) {
        if let Some(debt) = self.units.get_mut(&unit) {
            debt.settling = Version::ZERO;
        }
    }

    /// A version is not owed any more, for a reason other than that all creditors have it. Returns its
    /// waiters.
    pub(crate) fn handle_dropped(&mut self, unit: UnitRef, version: Version) -> Vec<W> {
        let Some(debt) = self.units.get_mut(&unit) else { return Vec::new() };
        let Some(at) = debt.steps.iter().position(|step| step.version == version) else { return Vec::new() };
        let waiters = debt.steps.remove(at).map(|step| step.waiters).unwrap_or_default();
        if debt.steps.is_empty() {
            self.units.remove(&unit);
        }
        waiters
    }

    /// The object was fenced: acknowledgements are void, and each unit has new creditors. Returns the units
    /// with debts.
    pub(crate) fn handle_fence(
        &mut self,
        place: (PartitionId, ObjectId),
        creditors: impl Fn(u64) -> Creditors,
    ) -> Vec<UnitRef> {
        let all = (place.0, place.1, 0)..=(place.0, place.1, u64::MAX);
        let mut found = Vec::new();
        for (&unit, debt) in self.units.range_mut(all) {
            debt.creditors = creditors(unit.2);
            debt.acknowledged.clear();
            debt.settling = Version::ZERO;
            found.push(unit);
        }
        found
    }

    /// The object is gone, or its column is out or joining and drops its debts. Returns the waiters.
    pub(crate) fn handle_removed(&mut self, place: (PartitionId, ObjectId)) -> Vec<W> {
        let all = (place.0, place.1, 0)..=(place.0, place.1, u64::MAX);
        let units: Vec<UnitRef> = self.units.range(all).map(|(unit, _)| *unit).collect();
        let debts = units.iter().filter_map(|unit| self.units.remove(unit));
        debts.flat_map(|debt| debt.steps.into_iter().flat_map(|step| step.waiters)).collect()
    }

    /// Takes the waiters that `is_late` selects, each with its version and the columns that lack it.
    pub(crate) fn take_late(&mut self, is_late: impl Fn(&W) -> bool) -> Vec<Late<W>> {
        self.units.values_mut().flat_map(|debt| debt.take_waiters(&is_late)).collect()
    }

    /// Takes all waiters for versions of the unit, each with its version and the columns that lack it.
    pub(crate) fn take_waiters(&mut self, unit: UnitRef) -> Vec<Late<W>> {
        self.units.get_mut(&unit).map_or_else(Vec::new, |debt| debt.take_waiters(&|_| true))
    }

    /// Parity columns to which the unit's versions are owed; empty if the unit owes nothing.
    pub(crate) fn creditors(&self, unit: UnitRef) -> ColumnMask {
        self.units.get(&unit).map_or(ColumnMask::EMPTY, |debt| debt.creditors.all)
    }

    /// The newest version that reads show though the store has not noted yet that it is settled; zero if
    /// there is none. `None`: the unit owes nothing.
    pub(crate) fn shown(&self, unit: UnitRef) -> Option<Version> {
        self.units.get(&unit).map(|debt| debt.shown)
    }

    /// Returns true if the object is drained (PROTOCOL R7). If so, reads from now on show the versions that
    /// it still owes to joining columns: their writer may be gone, and clients that have the file after this
    /// fence must not see them appear later.
    pub(crate) fn show_drained(&mut self, partition: PartitionId, object: ObjectId) -> bool {
        if !self.owed_to((partition, object)).is_drained() {
            return false;
        }
        let all = (partition, object, 0)..=(partition, object, u64::MAX);
        for debt in self.units.range_mut(all).map(|(_, debt)| debt) {
            let newest = debt.steps.back().map_or(Version::ZERO, |step| step.version);
            debt.shown = debt.shown.max(newest);
        }
        true
    }

    /// Debts that keep the object from being drained.
    pub(crate) fn owed_to(&self, place: (PartitionId, ObjectId)) -> Owing {
        let (partition, object) = place;
        let all = (partition, object, 0)..=(partition, object, u64::MAX);
        let mut owing = Owing::default();
        for debt in self.units.range(all).map(|(_, debt)| debt) {
            let newest = debt.steps.back().map_or(Version::ZERO, |step| step.version);
            let lacks = |column: &Column| debt.has(*column) < newest;
            let lacking: ColumnMask = debt.creditors.ready.iter().filter(lacks).collect();
            owing.columns = owing.columns.or(lacking);
            owing.is_unreadable |= debt.unreadable && !lacking.is_empty();
            owing.is_noted &= debt.creditors.all.iter().any(|column| lacks(&column));
        }
        owing
    }
}

/// A version, the columns that lack it, and a waiter for it. `None` in place of the columns: the owed data
/// cannot be read here.
pub(crate) type Late<W> = (Version, Option<ColumnMask>, W);

/// Debts of an object to ready parity columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owing {
    /// Ready parity columns that lack an owed version.
    pub(crate) columns: ColumnMask,
    /// True if some of the owed data cannot be read here.
    pub(crate) is_unreadable: bool,
    /// True if the store has noted as settled every version that all columns have.
    pub(crate) is_noted: bool,
}

impl Default for Owing {
    fn default() -> Owing {
        Owing { columns: ColumnMask::EMPTY, is_unreadable: false, is_noted: true }
    }
}

impl Owing {
    pub(crate) fn is_drained(&self) -> bool {
        self.columns.is_empty() && self.is_noted
    }
}

impl<W> Debt<W> {
    /// Takes the waiters that `which` selects, each with its version and the columns that lack it.
    fn take_waiters(&mut self, which: &impl Fn(&W) -> bool) -> Vec<Late<W>> {
        let Debt { steps, acknowledged, creditors, unreadable, .. } = self;
        let mut taken = Vec::new();
        for step in steps {
            let lacks = |column: &Column| acknowledged.get(column).is_none_or(|has| *has < step.version);
            let owed_to: ColumnMask = creditors.all.iter().filter(lacks).collect();
            let waiters = step.waiters.extract_if(.., |waiter| which(waiter));
            let owed_to = (!*unreadable).then_some(owed_to);
            taken.extend(waiters.map(|waiter| (step.version, owed_to, waiter)));
        }
        taken
    }

    /// The newest version that the column has acknowledged.
    fn has(&self, column: Column) -> Version {
        self.acknowledged.get(&column).copied().unwrap_or(Version::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::{Generation, Lease};

    use super::*;

    const UNIT: UnitRef = (PartitionId(1), ObjectId(2), 3);
    const OBJECT: (PartitionId, ObjectId) = (PartitionId(1), ObjectId(2));
    const P: Column = Column(4);
    const Q: Column = Column(5);
    const G: Generation = Generation(1);

    fn v(n: u64) -> Version {
        Version { g: Generation(1), lease: Lease(1), n }
    }

    fn two() -> Creditors {
        let both = ColumnMask::EMPTY.with(P).with(Q);
        Creditors { all: both, ready: both, g: G }
    }

    fn owed(versions: &[u64]) -> Debts<u64> {
        let mut debts = Debts::default();
        versions.iter().for_each(|&n| debts.handle_owed(UNIT, v(n), OperationNumber::NONE, two(), Some(n)));
        debts
    }

    #[test]
    fn a_version_is_settled_when_every_parity_column_has_it_and_in_order() {
        let mut debts = owed(&[1, 2, 3]);
        assert_eq!(debts.unacknowledged(UNIT, P), [1, 2, 3].map(|n| (v(n), OperationNumber::NONE)));
        debts.handle_acknowledged(UNIT, P, v(2), G);
        assert_eq!(debts.take_settled(UNIT), None, "the other has none");
        let unacknowledged = |column| debts.unacknowledged(UNIT, column).len();
        assert_eq!((unacknowledged(P), unacknowledged(Q)), (1, 3));
        debts.handle_acknowledged(UNIT, Q, v(3), G);
        assert_eq!(debts.take_settled(UNIT), Some((v(2), G)));
        assert_eq!(debts.take_settled(UNIT), None, "told once");
        assert_eq!(debts.handle_settled(UNIT, v(2)), [(v(1), 1), (v(2), 2)]);
        assert_eq!(debts.shown(UNIT), Some(v(2)), "until the store has noted it");
        assert_eq!(debts.handle_noted(UNIT, v(2)), []);
        assert_eq!(debts.shown(UNIT), Some(Version::ZERO), "it owes another");
        assert!(!debts.owed_to(OBJECT).is_drained());
        debts.handle_acknowledged(UNIT, P, v(3), G);
        assert!(!debts.owed_to(OBJECT).is_drained(), "the store was not told yet");
        assert_eq!(debts.take_settled(UNIT), Some((v(3), G)));
        assert_eq!(debts.handle_settled(UNIT, v(3)), [(v(3), 3)]);
        assert!(!debts.owed_to(OBJECT).is_drained(), "nor now");
        assert_eq!(debts.handle_noted(UNIT, v(3)), []);
        assert!(debts.owed_to(OBJECT).is_drained());
        assert_eq!(debts.creditors(UNIT), ColumnMask::EMPTY);
    }

    #[test]
    fn an_old_acknowledgement_takes_nothing_back_and_a_repeat_only_waits() {
        let mut debts = owed(&[1, 2]);
        debts.handle_acknowledged(UNIT, P, v(2), G);
        debts.handle_acknowledged(UNIT, P, v(1), G);
        debts.handle_acknowledged(UNIT, Q, v(2), G);
        debts.handle_owed(UNIT, v(2), OperationNumber::NONE, two(), Some(9));
        assert_eq!(debts.take_settled(UNIT), Some((v(2), G)));
        assert_eq!(debts.handle_settled(UNIT, v(2)), [(v(1), 1), (v(2), 2), (v(2), 9)]);
    }

    #[test]
    fn a_fence_voids_what_was_acknowledged() {
        let mut debts = owed(&[1]);
        debts.handle_acknowledged(UNIT, P, v(1), G);
        let only_q = ColumnMask::EMPTY.with(Q);
        let fenced = debts.handle_fence(OBJECT, |_| Creditors { all: only_q, ready: only_q, g: G });
        assert_eq!(fenced, [UNIT]);
        let unacknowledged = |column| debts.unacknowledged(UNIT, column).len();
        assert_eq!((unacknowledged(Q), unacknowledged(P)), (1, 0));
        debts.handle_acknowledged(UNIT, Q, v(1), G);
        assert_eq!(debts.take_settled(UNIT), Some((v(1), G)));
    }

    #[test]
    fn an_acknowledgement_of_another_generation_does_not_count() {
        let mut debts = owed(&[1]);
        let later = Creditors { g: Generation(2), ..two() };
        debts.handle_fence(OBJECT, |_| later);
        [P, Q].into_iter().for_each(|column| debts.handle_acknowledged(UNIT, column, v(1), G));
        assert_eq!(debts.take_settled(UNIT), None);
        [P, Q].into_iter().for_each(|column| debts.handle_acknowledged(UNIT, column, v(1), Generation(2)));
        assert_eq!(debts.take_settled(UNIT), Some((v(1), Generation(2))));
    }

    #[test]
    fn what_a_writer_was_told_is_shown_also_after_a_fence() {
        let mut debts = owed(&[1]);
        [P, Q].into_iter().for_each(|column| debts.handle_acknowledged(UNIT, column, v(1), G));
        debts.take_settled(UNIT);
        debts.handle_settled(UNIT, v(1));
        debts.handle_fence(OBJECT, |_| two());
        assert_eq!(debts.shown(UNIT), Some(v(1)));
        let both = two().all;
        assert_eq!(debts.owed_to(OBJECT).columns, both, "it is sent again");
    }

    #[test]
    fn what_cannot_be_read_is_told_apart_from_what_is_not_taken() {
        let mut debts = owed(&[1]);
        debts.handle_acknowledged(UNIT, P, v(1), G);
        let owing = debts.owed_to(OBJECT);
        assert_eq!((owing.columns, owing.is_unreadable), (ColumnMask::EMPTY.with(Q), false));
        debts.handle_read(UNIT, false);
        assert!(debts.owed_to(OBJECT).is_unreadable);
        debts.handle_read(UNIT, true);
        assert!(!debts.owed_to(OBJECT).is_unreadable);
    }

    #[test]
    fn without_parity_columns_nothing_is_waited_for() {
        let none = Creditors { all: ColumnMask::EMPTY, ready: ColumnMask::EMPTY, g: G };
        let mut debts = owed(&[1]);
        debts.handle_fence(OBJECT, |_| none);
        assert_eq!(debts.take_settled(UNIT), Some((v(1), G)));
        debts.handle_noted(UNIT, v(1));
        assert!(debts.owed_to(OBJECT).is_drained());
    }

    #[test]
    fn a_joining_column_holds_up_settling_but_no_fence() {
        let mut debts = owed(&[1]);
        let ready = ColumnMask::EMPTY.with(P);
        debts.handle_fence(OBJECT, |_| Creditors { all: ready.with(Q), ready, g: G });
        assert!(!debts.show_drained(OBJECT.0, OBJECT.1));
        assert_eq!(debts.shown(UNIT), Some(Version::ZERO));
        debts.handle_acknowledged(UNIT, P, v(1), G);
        assert!(debts.show_drained(OBJECT.0, OBJECT.1));
        assert_eq!(debts.take_settled(UNIT), None);
        assert_eq!(debts.shown(UNIT), Some(v(1)), "whoever has the file next does not see it come later");
        assert_eq!(debts.take_waiters(UNIT).len(), 1, "its writer is not told");
    }

    #[test]
    fn what_is_dropped_or_removed_gives_its_waiters_back() {
        let mut debts = owed(&[1, 2]);
        assert_eq!(debts.handle_dropped(UNIT, v(1)), [1]);
        assert_eq!(debts.handle_dropped(UNIT, v(1)), []);
        debts.handle_owed(UNIT, v(2), OperationNumber::NONE, two(), Some(3));
        debts.handle_acknowledged(UNIT, P, v(2), G);
        let only_q = ColumnMask::EMPTY.with(Q);
        assert_eq!(debts.take_late(|&waiter| waiter == 3), [(v(2), Some(only_q), 3)]);
        debts.handle_read(UNIT, false);
        assert_eq!(debts.take_waiters(UNIT), [(v(2), None, 2)], "no parity column is to blame");
        debts.handle_owed(UNIT, v(3), OperationNumber::NONE, two(), Some(4));
        assert_eq!(debts.handle_removed(OBJECT), [4]);
        assert!(debts.owed_to(OBJECT).is_drained());
    }
}
