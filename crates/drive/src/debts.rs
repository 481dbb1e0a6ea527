//! What the drive owes to parity drives (PROTOCOL R3, R4): for each unit its owed versions, which of them
//! each parity column has acknowledged, and who waits for them. A pure machine.
//!
//! All of it is soft. After a restart the owed versions are found in the store, and are sent again. A fence
//! makes all acknowledgements void, as they were given in an older generation.

use std::collections::{BTreeMap, VecDeque};

use braid_layout::{Column, ColumnMask, ObjectId, PartitionId, Version};

/// A unit of an object.
pub(crate) type UnitRef = (PartitionId, ObjectId, u64);

/// The parity columns of one stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Creditors {
    /// Those that must have a version before it is settled: the set's, joining ones too.
    pub(crate) all: ColumnMask,
    /// Those of them that are ready. A fence is drained when they have everything.
    pub(crate) ready: ColumnMask,
}

/// All debts. `W` is who waits for a version.
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
}

#[derive(Debug)]
struct Step<W> {
    version: Version,
    /// The writer repeats none of its operations below this number; 0: not known.
    watermark: u64,
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
        (version, watermark): (Version, u64),
        creditors: Creditors,
        waiter: Option<W>,
    ) {
        let debt = self.units.entry(unit).or_insert_with(|| Debt {
            steps: VecDeque::new(),
            creditors,
            acknowledged: BTreeMap::new(),
            settling: Version::ZERO,
        });
        let at = debt.steps.partition_point(|step| step.version < version);
        if debt.steps.get(at).is_none_or(|step| step.version != version) {
            debt.steps.insert(at, Step { version, watermark, waiters: Vec::new() });
        }
        debt.steps[at].waiters.extend(waiter);
    }

    /// The versions that a column has not acknowledged, oldest first, with their writers' watermarks.
    pub(crate) fn unacknowledged(&self, unit: UnitRef, column: Column) -> Vec<(Version, u64)> {
        let Some(debt) = self.units.get(&unit).filter(|debt| debt.creditors.all.contains(column)) else {
            return Vec::new();
        };
        let has = debt.acknowledged.get(&column).copied().unwrap_or(Version::ZERO);
        let steps = debt.steps.iter().filter(|step| step.version > has);
        steps.map(|step| (step.version, step.watermark)).collect()
    }

    /// The column has all versions up to `tip`, in the present generation.
    pub(crate) fn handle_acknowledged(&mut self, unit: UnitRef, column: Column, tip: Version) {
        if let Some(debt) = self.units.get_mut(&unit) {
            let has = debt.acknowledged.entry(column).or_insert(tip);
            *has = tip.max(*has);
        }
    }

    /// The newest owed version that all creditors have, if the store was not told of it yet: from now on it
    /// counts as told.
    pub(crate) fn take_settled(&mut self, unit: UnitRef) -> Option<Version> {
        let debt = self.units.get_mut(&unit)?;
        let has = |column: Column| debt.acknowledged.get(&column).copied().unwrap_or(Version::ZERO);
        let low = debt.creditors.all.iter().map(has).min();
        let reached = |version: &Version| low.is_none_or(|low| *version <= low);
        let newest = debt.steps.iter().map(|step| step.version).take_while(reached).last()?;
        (newest > debt.settling).then(|| {
            debt.settling = newest;
            newest
        })
    }

    /// Everything up to `up_to` is settled. Returns those who waited, each with its version.
    pub(crate) fn handle_settled(&mut self, unit: UnitRef, up_to: Version) -> Vec<(Version, W)> {
        let Some(debt) = self.units.get_mut(&unit) else { return Vec::new() };
        let last = debt.steps.partition_point(|step| step.version <= up_to);
        let done = debt.steps.drain(..last);
        let waiters = done.flat_map(|step| step.waiters.into_iter().map(move |one| (step.version, one)));
        let waiters = waiters.collect();
        if debt.steps.is_empty() {
            self.units.remove(&unit);
        }
        waiters
    }

    /// The store could not note that a version is settled: it is to be told again.
    pub(crate) fn handle_unsettled(&mut self, unit: UnitRef) {
        if let Some(debt) = self.units.get_mut(&unit) {
            debt.settling = Version::ZERO;
        }
    }

    /// A version is owed no more, for another reason than that all have it. Returns those who waited.
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
        (partition, object): (PartitionId, ObjectId),
        creditors: impl Fn(u64) -> Creditors,
    ) -> Vec<UnitRef> {
        let all = (partition, object, 0)..=(partition, object, u64::MAX);
        let mut found = Vec::new();
        for (&unit, debt) in self.units.range_mut(all) {
            debt.creditors = creditors(unit.2);
            debt.acknowledged.clear();
            debt.settling = Version::ZERO;
            found.push(unit);
        }
        found
    }

    /// The object is gone. Returns those who waited.
    pub(crate) fn handle_removed(&mut self, (partition, object): (PartitionId, ObjectId)) -> Vec<W> {
        let all = (partition, object, 0)..=(partition, object, u64::MAX);
        let units: Vec<UnitRef> = self.units.range(all).map(|(unit, _)| *unit).collect();
        let debts = units.iter().filter_map(|unit| self.units.remove(unit));
        debts.flat_map(|debt| debt.steps.into_iter().flat_map(|step| step.waiters)).collect()
    }

    /// Those of all who wait that `is_late` names.
    pub(crate) fn take_late(&mut self, is_late: impl Fn(&W) -> bool) -> Vec<W> {
        let steps = self.units.values_mut().flat_map(|debt| &mut debt.steps);
        steps.flat_map(|step| step.waiters.extract_if(.., |waiter| is_late(waiter))).collect()
    }

    /// All who wait for versions of the unit.
    pub(crate) fn take_waiters(&mut self, unit: UnitRef) -> Vec<W> {
        let steps = self.units.get_mut(&unit).into_iter().flat_map(|debt| &mut debt.steps);
        steps.flat_map(|step| std::mem::take(&mut step.waiters)).collect()
    }

    /// Parity columns that wait for versions of the unit.
    pub(crate) fn creditors(&self, unit: UnitRef) -> ColumnMask {
        self.units.get(&unit).map_or(ColumnMask::EMPTY, |debt| debt.creditors.all)
    }

    /// Whether the object owes nothing to a ready parity column (PROTOCOL R7), and what all columns have is
    /// settled in the store.
    pub(crate) fn is_drained(&self, (partition, object): (PartitionId, ObjectId)) -> bool {
        let all = (partition, object, 0)..=(partition, object, u64::MAX);
        self.units.range(all).all(|(_, debt)| {
            let newest = debt.steps.back().map_or(Version::ZERO, |step| step.version);
            let has = |column| debt.acknowledged.get(&column).is_some_and(|has| *has >= newest);
            debt.creditors.ready.iter().all(has) && !debt.creditors.all.iter().all(has)
        })
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

    fn v(n: u64) -> Version {
        Version { g: Generation(1), lease: Lease(1), n }
    }

    fn two() -> Creditors {
        let both = ColumnMask::EMPTY.with(P).with(Q);
        Creditors { all: both, ready: both }
    }

    fn owed(versions: &[u64]) -> Debts<u64> {
        let mut debts = Debts::default();
        versions.iter().for_each(|&n| debts.handle_owed(UNIT, (v(n), 0), two(), Some(n)));
        debts
    }

    #[test]
    fn a_version_is_settled_when_every_parity_column_has_it_and_in_order() {
        let mut debts = owed(&[1, 2, 3]);
        assert_eq!(debts.unacknowledged(UNIT, P), [(v(1), 0), (v(2), 0), (v(3), 0)]);
        debts.handle_acknowledged(UNIT, P, v(2));
        assert_eq!(debts.take_settled(UNIT), None, "the other has none");
        let unacknowledged = |column| debts.unacknowledged(UNIT, column).len();
        assert_eq!((unacknowledged(P), unacknowledged(Q)), (1, 3));
        debts.handle_acknowledged(UNIT, Q, v(3));
        assert_eq!(debts.take_settled(UNIT), Some(v(2)));
        assert_eq!(debts.take_settled(UNIT), None, "told once");
        assert_eq!(debts.handle_settled(UNIT, v(2)), [(v(1), 1), (v(2), 2)]);
        assert!(!debts.is_drained(OBJECT));
        debts.handle_acknowledged(UNIT, P, v(3));
        assert!(!debts.is_drained(OBJECT), "the store was not told yet");
        assert_eq!(debts.take_settled(UNIT), Some(v(3)));
        assert_eq!(debts.handle_settled(UNIT, v(3)), [(v(3), 3)]);
        assert!(debts.is_drained(OBJECT));
        assert_eq!(debts.creditors(UNIT), ColumnMask::EMPTY);
    }

    #[test]
    fn an_old_acknowledgement_takes_nothing_back_and_a_repeat_only_waits() {
        let mut debts = owed(&[1, 2]);
        debts.handle_acknowledged(UNIT, P, v(2));
        debts.handle_acknowledged(UNIT, P, v(1));
        debts.handle_acknowledged(UNIT, Q, v(2));
        debts.handle_owed(UNIT, (v(2), 0), two(), Some(9));
        assert_eq!(debts.take_settled(UNIT), Some(v(2)));
        assert_eq!(debts.handle_settled(UNIT, v(2)), [(v(1), 1), (v(2), 2), (v(2), 9)]);
    }

    #[test]
    fn a_fence_voids_what_was_acknowledged() {
        let mut debts = owed(&[1]);
        debts.handle_acknowledged(UNIT, P, v(1));
        let only_q = ColumnMask::EMPTY.with(Q);
        let fenced = debts.handle_fence(OBJECT, |_| Creditors { all: only_q, ready: only_q });
        assert_eq!(fenced, [UNIT]);
        let unacknowledged = |column| debts.unacknowledged(UNIT, column).len();
        assert_eq!((unacknowledged(Q), unacknowledged(P)), (1, 0));
        debts.handle_acknowledged(UNIT, Q, v(1));
        assert_eq!(debts.take_settled(UNIT), Some(v(1)));
    }

    #[test]
    fn without_parity_columns_nothing_is_waited_for() {
        let none = Creditors { all: ColumnMask::EMPTY, ready: ColumnMask::EMPTY };
        let mut debts = owed(&[1]);
        debts.handle_fence(OBJECT, |_| none);
        assert_eq!(debts.take_settled(UNIT), Some(v(1)));
        debts.handle_settled(UNIT, v(1));
        assert!(debts.is_drained(OBJECT));
    }

    #[test]
    fn a_joining_column_holds_up_settling_but_no_fence() {
        let mut debts = owed(&[1]);
        let ready = ColumnMask::EMPTY.with(P);
        debts.handle_fence(OBJECT, |_| Creditors { all: ready.with(Q), ready });
        debts.handle_acknowledged(UNIT, P, v(1));
        assert!(debts.is_drained(OBJECT));
        assert_eq!(debts.take_settled(UNIT), None);
    }

    #[test]
    fn what_is_dropped_or_removed_gives_its_waiters_back() {
        let mut debts = owed(&[1, 2]);
        assert_eq!(debts.handle_dropped(UNIT, v(1)), [1]);
        assert_eq!(debts.handle_dropped(UNIT, v(1)), []);
        debts.handle_owed(UNIT, (v(2), 0), two(), Some(3));
        assert_eq!(debts.take_late(|&waiter| waiter == 3), [3]);
        assert_eq!(debts.handle_removed(OBJECT), [2]);
        assert!(debts.is_drained(OBJECT));
    }
}
