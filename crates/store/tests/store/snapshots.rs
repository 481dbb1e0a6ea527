//! Stills: they show what was there, whatever is written, folded, cleaned, damaged or removed later.

use std::collections::BTreeMap;

use braid_layout::{ClientId, Column, Generation, ObjectId, OperationNumber, Version};
use braid_store::*;
use proptest::prelude::*;

use crate::common::*;
use crate::unit_writes::unit_write;

const O: ObjectId = ObjectId(1);
const ALL: usize = 64 << 10;

/// Stills have numbers above this one.
const STILLS: u64 = 1000;

fn take(number: u64) -> Mutation {
    crate::common::take(1, STILLS + number)
}

fn release(number: u64) -> Mutation {
    remove(STILLS + number)
}

fn retire(n: u64) -> Mutation {
    settled(1, version(1, n))
}

/// A whole unit as a still shows it, every block verified.
fn seen(store: &Store, unit: u64, number: u64) -> Result<(Version, Vec<u8>), Error> {
    let view = store.read(P, ObjectId(STILLS + number), unit, 0..UNIT, Want::Newest)?;
    Ok((view.version, bytes_of(&view, UNIT)?))
}

fn stills(store: &Store) -> Vec<u64> {
    let found = store.objects(P, Some(ObjectId(STILLS)), 10_000).expect("list");
    found.into_iter().map(|still| still.0 - STILLS).collect()
}

/// Bytes that the removal of a still gives back.
fn alone(store: &Store, number: u64) -> u64 {
    store.usage(P, ObjectId(STILLS + number)).expect("usage").bytes
}

fn used(store: &Store) -> u64 {
    let used = store.partition(P).expect("the partition").used;
    assert_eq!(store.stat().expect("stat").live, used, "the accounts agree");
    used
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    (dir, store)
}

#[test]
fn a_still_costs_two_records_and_then_what_is_overwritten() {
    let (_dir, store) = store();
    for n in 1..=40 {
        store.commit(Mutation::Write(write(1, n, 0, UNIT, version(1, n)))).expect("write");
    }
    store.commit(retire(41)).expect("settle");
    let before = used(&store);
    let written = store.stat().expect("stat").written;
    assert_eq!(store.commit(take(1)).expect("taken"), MutationOutcome::Applied);
    assert_eq!(used(&store), before);
    assert_eq!(store.stat().expect("stat").written - written, 1024, "two records");
    assert_eq!((stills(&store), alone(&store, 1)), (vec![1], 0));
    let whole = store.usage(P, O).expect("usage");
    let shown = store.usage(P, ObjectId(STILLS + 1)).expect("usage");
    assert_eq!((shown.units, shown.end, shown.size), (40, whole.end, whole.size));
    // Overwriting a part of a unit costs only that part: the rest is shared.
    store.commit(Mutation::Write(write(1, 3, 8192, 12_288, version(1, 50)))).expect("write");
    store.commit(retire(51)).expect("settle");
    assert_eq!((used(&store), alone(&store, 1)), (before + 4096, 4096));
    assert!(seen(&store, 3, 1).expect("old") == (version(1, 3), pattern(3, ALL)));
    let mut new = pattern(3, ALL);
    new[8192..12_288].copy_from_slice(&pattern(50, 4096));
    assert!(content(&store, 1, 3, 0, UNIT, Want::Newest).expect("new") == new);
    // A unit that did not exist is a hole.
    store.commit(Mutation::Write(write(1, 60, 0, 100, version(1, 60)))).expect("write");
    assert!(seen(&store, 60, 1).expect("a hole") == (Version::ZERO, vec![0; ALL]));
    assert_eq!(store.usage(P, ObjectId(STILLS + 1)).expect("usage").units, 40, "it has no such unit");
    assert_eq!(store.commit(release(1)).expect("removed"), MutationOutcome::Applied);
    assert_eq!(used(&store), before + 100, "the overwritten part is free");
    assert!(matches!(seen(&store, 3, 1), Err(Error::NoObject(..))));
}

#[test]
fn a_still_outlives_its_base_and_all_space_comes_back() {
    let (dir, store) = store();
    let write_all = |store: &Store, lease| {
        for n in 1..=4 {
            store.commit(Mutation::Write(write(1, n, 0, UNIT, version(lease, n)))).expect("write");
        }
        store.commit(settled(1, version(lease, 5))).expect("settle");
    };
    write_all(&store, 1);
    store.commit(take(1)).expect("taken");
    write_all(&store, 2);
    store.commit(take(2)).expect("taken");
    store.commit(Mutation::Write(write(1, 9, 0, UNIT, version(3, 9)))).expect("write");
    assert_eq!(store.commit(remove(1)).expect("removed"), MutationOutcome::Applied);
    assert_eq!(store.commit(remove(1)).expect("again"), MutationOutcome::Already);
    let gone = content(&store, 1, 1, 0, UNIT, Want::Newest);
    assert!(matches!(gone, Err(Error::NoObject(..))), "{gone:?}");
    assert!(matches!(store.commit(create(1)), Err(Error::Exists(..))), "its number is in use");
    assert!(matches!(store.commit(take(3)), Err(Error::NoObject(..))));
    let check = |store: &Store| {
        for unit in 1..=4 {
            assert!(seen(store, unit, 1).expect("shown") == (version(1, unit), pattern(unit, ALL)));
            assert!(seen(store, unit, 2).expect("shown") == (version(2, unit), pattern(unit, ALL)));
        }
        assert_eq!(used(store), 8 * u64::from(UNIT), "what stills show, and no more");
        assert_eq!(store.objects(P, None, 10).expect("list"), [1001, 1002].map(ObjectId));
    };
    check(&store);
    store.clean().expect("clean");
    check(&store);
    store.close().expect("close");
    let other = tempfile::tempdir().expect("a directory");
    copy(dir.path(), other.path());
    let (store, recovery) = open(other.path());
    assert_eq!(recovery.damaged_count, 0);
    check(&store);
    store.commit(release(1)).expect("removed");
    assert_eq!(used(&store), 4 * u64::from(UNIT));
    store.commit(release(2)).expect("removed");
    assert_eq!(used(&store), 0);
    assert_eq!(store.commit(create(1)).expect("its number is free"), MutationOutcome::Applied);
    store.commit(remove(1)).expect("removed");
    store.commit(Mutation::PartitionRemove { partition: P }).expect("the partition is empty");
}

#[test]
fn what_is_pending_or_owed_is_named() {
    let (_dir, store) = store();
    let refused = |unit: u64| {
        let answer = store.commit(take(1));
        assert!(matches!(answer, Err(Error::Unsettled { object: O, unit: named, .. }) if named == unit));
    };
    store.commit(Mutation::Write(write(1, 5, 0, 100, version(1, 1)))).expect("write");
    refused(5);
    store.commit(retire(2)).expect("settle");
    store.commit(Mutation::UnitWrite(unit_write(6, 0, 100, 1))).expect("unit write");
    refused(6);
    let owed = store.versions(P, O, 6..7).expect("versions")[0].entries[0].version;
    store
        .commit(Mutation::OwedSettled { partition: P, object: O, g: Generation(1), unit: 6, up_to: owed })
        .expect("settle");
    // A delta counts from the take on.
    let open = Delta { settled_to: Version::ZERO, ..delta(1, Version::ZERO, version(1, 1)) };
    store.commit(Mutation::Delta(open)).expect("a delta");
    assert_eq!(store.unsettled(P, O).expect("list"), [7]);
    store.commit(take(1)).expect("it is settled now");
    assert_eq!(store.unsettled(P, O).expect("list"), []);
    assert!(seen(&store, 7, 1).expect("shown") == (version(1, 1), pattern(1, ALL)));
    store.commit(Mutation::Delta(delta(2, version(1, 1), version(1, 2)))).expect("the next delta");
    assert!(seen(&store, 7, 1).expect("shown") == (version(1, 1), pattern(1, ALL)));
    for number in 2..=u64::try_from(STILLS_MAX).expect("small") {
        store.commit(take(number)).expect("taken");
    }
    assert!(matches!(store.commit(take(9999)), Err(Error::Stills(STILLS_MAX))));
    store.commit(release(1)).expect("removed");
    store.commit(take(9999)).expect("there is room for one");
}

fn delta(seed: u64, from_version: Version, to_version: Version) -> Delta {
    Delta {
        partition: P,
        object: O,
        unit: 7,
        from: 0,
        to: UNIT,
        column: Column(1),
        data: 0,
        from_version,
        to_version,
        end: end_of(to_version),
        client: ClientId(5),
        operation: OperationNumber(to_version.n),
        watermark: OperationNumber::NONE,
        g: Generation(1),
        settled_to: to_version,
        body: body(0, &pattern(seed, ALL)),
    }
}

#[test]
fn parity_is_shown_with_the_deltas_it_counted_in() {
    let (dir, store) = store();
    let mut expected = vec![0; ALL];
    let mut count = |store: &Store, n: u64| {
        let from = if n == 1 { Version::ZERO } else { version(1, n - 1) };
        store.commit(Mutation::Delta(delta(n, from, version(1, n)))).expect("a delta");
        expected.iter_mut().zip(pattern(n, ALL)).for_each(|(to, from)| *to ^= from);
        expected.clone()
    };
    let mut shown = BTreeMap::new();
    for n in 1..60 {
        let bytes = count(&store, n);
        if n % 9 == 0 {
            store.commit(take(n)).expect("settled");
            shown.insert(n, bytes);
        }
    }
    let check = |store: &Store| {
        for (&number, bytes) in &shown {
            let (named, found) = seen(store, 7, number).expect("shown");
            assert_eq!(named, version(1, number));
            assert!(&found == bytes, "still {number}");
            store.verify_unit(P, ObjectId(STILLS + number), 7).expect("verify");
        }
        store.verify_unit(P, O, 7).expect("verify");
        used(store);
    };
    check(&store);
    store.clean().expect("clean");
    check(&store);
    store.close().expect("close");
    let other = tempfile::tempdir().expect("a directory");
    copy(dir.path(), other.path());
    let (store, recovery) = open(other.path());
    assert_eq!(recovery.damaged_count, 0);
    check(&store);
    shown.keys().for_each(|&number| assert!(store.commit(release(number)).is_ok()));
    let left = content(&store, 1, 7, 0, UNIT, Want::Newest).expect("read");
    assert!(left == expected);
}

#[test]
fn a_still_shows_damage_until_it_is_made_anew() {
    let (dir, store) = store();
    store.commit(Mutation::Write(write(1, 0, 0, UNIT, version(1, 1)))).expect("write");
    store.commit(retire(2)).expect("settle");
    store.commit(take(1)).expect("taken");
    store.commit(Mutation::Write(write(1, 0, 0, UNIT, version(1, 3)))).expect("write");
    store.commit(retire(4)).expect("settle");
    store.close().expect("close");
    let other = tempfile::tempdir().expect("a directory");
    copy(dir.path(), other.path());
    let path = segments(other.path()).remove(0);
    let mut bytes = std::fs::read(&path).expect("read");
    let own = pattern(1, ALL);
    let at = bytes.windows(16).position(|window| window == &own[5000..5016]).expect("the payload");
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).expect("write");
    let report = inspect::check(other.path()).expect("check");
    assert!(report.findings.iter().any(|finding| !finding.harmless), "check reads what is kept");
    let (store, _) = open(other.path());
    assert!(matches!(seen(&store, 0, 1), Err(Error::Checksum { .. })), "the reader's end finds it");
    let still = ObjectId(STILLS + 1);
    assert!(matches!(store.verify_unit(P, still, 0), Err(Error::Damaged { .. })), "and so does a scrub");
    // Cleaning finds the damage: the unit is lost until a rebuild repairs it, and so is the still's.
    for n in 10..24 {
        store.commit(Mutation::Write(write(1, 9, 0, UNIT, version(1, n)))).expect("write");
    }
    store.clean().expect("clean");
    assert!(matches!(seen(&store, 0, 1), Err(Error::Damaged { .. })));
    let rebuilt = Write { standing: Standing::Installed, ..write(1, 0, 0, UNIT, version(1, 40)) };
    store.commit(Mutation::Write(rebuilt)).expect("install");
    assert!(content(&store, 1, 0, 0, UNIT, Want::Newest).expect("whole") == pattern(40, ALL));
    for _ in 0..2 {
        assert!(matches!(seen(&store, 0, 1), Err(Error::Damaged { .. })));
        assert!(store.versions(P, still, 0..1).expect("versions")[0].lost);
        store.checkpoint().expect("checkpoint");
    }
    used(&store);
    let rebuilt = Write { standing: Standing::Installed, ..write(STILLS + 1, 0, 0, UNIT, version(1, 1)) };
    assert_eq!(store.commit(Mutation::Write(rebuilt)).expect("install"), MutationOutcome::Applied);
    assert!(seen(&store, 0, 1).expect("whole") == (version(1, 1), pattern(1, ALL)));
    // A unit that others know as never written is one here too, whatever the base holds.
    let never = Write {
        standing: Standing::Repaired,
        body: Body::Hole,
        ..write(STILLS + 1, 0, 0, UNIT, Version::ZERO)
    };
    store.commit(release(1)).expect("removed");
    store.commit(retire(50)).expect("settle");
    store.commit(take(1)).expect("taken");
    assert!(seen(&store, 0, 1).expect("shown").0 == version(1, 40));
    assert_eq!(
        store.commit(Mutation::Write(never)).expect("install"),
        MutationOutcome::Older { tip: version(1, 40) }
    );
    used(&store);
}

#[derive(Debug, Clone)]
enum Step {
    Write { unit: u64, from: u32, length: u32, hole: bool, install: bool },
    Settle,
    Take,
    Remove { which: usize },
    Repair { which: usize, unit: u64 },
    Clean,
    Reopen { killed: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let write = (0..4_u64, 0..UNIT, prop_oneof![1..9000_u32, Just(UNIT)], 0..6_u8, 0..6_u8);
    prop_oneof![
        12 => write.prop_map(|(unit, from, length, hole, install)| Step::Write {
            unit, from: if length == UNIT { 0 } else { from }, length, hole: hole == 0, install: install == 0,
        }),
        3 => Just(Step::Settle),
        3 => Just(Step::Take),
        2 => (0..4_usize).prop_map(|which| Step::Remove { which }),
        2 => (0..4_usize, 0..4_u64).prop_map(|(which, unit)| Step::Repair { which, unit }),
        1 => Just(Step::Clean),
        1 => any::<bool>().prop_map(|killed| Step::Reopen { killed }),
    ]
}

struct Run {
    dir: tempfile::TempDir,
    store: Store,
    n: u64,
    taken: BTreeMap<u64, Vec<Vec<u8>>>,
}

impl Run {
    fn newest(&self) -> Vec<Vec<u8>> {
        let read = |unit| content(&self.store, 1, unit, 0, UNIT, Want::Newest).expect("read");
        (0..4).map(read).collect()
    }

    fn step(&mut self, step: &Step) {
        self.n += 1;
        match *step {
            Step::Write { unit, from, length, hole, install } => {
                let mut write = write(1, unit, from, (from + length).min(UNIT), version(1, self.n));
                write.body = if hole { Body::Hole } else { write.body };
                write.standing = if install { Standing::Installed } else { Standing::Pending };
                self.store.commit(Mutation::Write(write)).expect("write");
            }
            Step::Settle => drop(self.store.commit(retire(self.n)).expect("settle")),
            Step::Take => {
                self.store.commit(retire(self.n)).expect("settle");
                self.store.commit(take(self.n)).expect("taken");
                self.taken.insert(self.n, self.newest());
            }
            Step::Remove { which } => {
                let Some(&number) = self.taken.keys().nth(which) else { return };
                self.taken.remove(&number);
                let before = used(&self.store);
                let alone = alone(&self.store, number);
                assert_eq!(self.store.commit(release(number)).expect("removed"), MutationOutcome::Applied);
                assert_eq!(before - used(&self.store), alone, "it gives back what it said");
            }
            Step::Repair { which, unit } => {
                let Some((&number, units)) = self.taken.iter().nth(which) else { return };
                let (stamp, _) = seen(&self.store, unit, number).expect("shown");
                let mut repair = write(STILLS + number, unit, 0, UNIT, stamp);
                repair.standing = Standing::Repaired;
                let bytes = &units[usize::try_from(unit).expect("small")];
                repair.body = if stamp == Version::ZERO { Body::Hole } else { body(0, bytes) };
                self.store.commit(Mutation::Write(repair)).expect("repaired");
            }
            Step::Clean => drop(self.store.clean().expect("clean")),
            Step::Reopen { killed } => self.reopen(killed),
        }
    }

    fn reopen(&mut self, killed: bool) {
        let dir = tempfile::tempdir().expect("a directory");
        if killed {
            self.store.commit(Mutation::Flush).expect("flush");
            copy(self.dir.path(), dir.path());
            self.store.close().expect("close");
        } else {
            self.store.close().expect("close");
            copy(self.dir.path(), dir.path());
        }
        let (store, recovery) = open(dir.path());
        assert_eq!(recovery.damaged_count, 0, "{:?}", recovery.damaged);
        (self.dir, self.store) = (dir, store);
    }

    fn check(&self) {
        assert_eq!(stills(&self.store), self.taken.keys().copied().collect::<Vec<_>>());
        for (&number, units) in &self.taken {
            for (unit, bytes) in (0..).zip(units) {
                let (_, found) = seen(&self.store, unit, number).expect("shown");
                assert!(&found == bytes, "still {number}, unit {unit}");
                self.store.verify_unit(P, O, unit).expect("verify");
                self.store.verify_unit(P, ObjectId(STILLS + number), unit).expect("verify");
            }
        }
        used(&self.store);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn stills_show_what_was(steps in prop::collection::vec(step(), 1..100)) {
        let (dir, store) = store();
        let mut run = Run { dir, store, n: 0, taken: BTreeMap::new() };
        for step in &steps {
            run.step(step);
            if matches!(step, Step::Clean | Step::Remove { .. } | Step::Reopen { .. }) {
                run.check();
            }
        }
        run.reopen(false);
        run.check();
        let report = inspect::check(run.dir.path());
        // The store has the directory open, so check a copy.
        prop_assert!(report.is_err());
        run.store.close().expect("close");
        let copied = tempfile::tempdir().expect("a directory");
        copy(run.dir.path(), copied.path());
        let report = inspect::check(copied.path()).expect("check");
        prop_assert!(report.findings.iter().all(|finding| finding.harmless), "{:?}", report.findings);
    }
}
