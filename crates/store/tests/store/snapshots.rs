//! Snapshots: settled content stays readable, whatever is written, folded, cleaned, damaged or dropped later.

use std::collections::BTreeMap;

use braid_layout::{ClientId, Column, Generation, ObjectId, OperationNumber, Version};
use braid_store::*;
use proptest::prelude::*;

use crate::common::*;
use crate::unit_writes::unit_write;

const O: ObjectId = ObjectId(1);
const ALL: usize = 64 << 10;

fn take(number: u32) -> Mutation {
    Mutation::Snapshot { partition: P, object: O, g: Generation(1), number }
}

fn release(number: u32) -> Mutation {
    Mutation::SnapshotDrop { partition: P, object: O, g: Generation(1), number }
}

fn retire(n: u64) -> Mutation {
    settled(1, version(1, n))
}

/// A whole unit as a snapshot shows it, every block verified.
fn seen(store: &Store, unit: u64, number: u32) -> Result<(Version, Vec<u8>), Error> {
    let view = store.read_snapshot(P, O, unit, 0..UNIT, number)?;
    Ok((view.version, bytes_of(&view, UNIT)?))
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
fn a_snapshot_costs_one_record_and_then_what_is_overwritten() {
    let (_dir, store) = store();
    for n in 1..=40 {
        store.commit(Mutation::Write(write(1, n, 0, UNIT, version(1, n)))).expect("write");
    }
    store.commit(retire(41)).expect("settle");
    let before = used(&store);
    let written = store.stat().expect("stat").written;
    assert_eq!(store.commit(take(1)).expect("taken"), MutationOutcome::Applied);
    assert_eq!(used(&store), before);
    assert_eq!(store.stat().expect("stat").written - written, 512, "one record");
    assert_eq!(store.snapshots(P, O).expect("list"), [1]);
    // Overwriting a part of a unit costs only that part: the rest is shared.
    store.commit(Mutation::Write(write(1, 3, 8192, 12_288, version(1, 50)))).expect("write");
    store.commit(retire(51)).expect("settle");
    assert_eq!(used(&store), before + 4096);
    assert!(seen(&store, 3, 1).expect("old") == (version(1, 3), pattern(3, ALL)));
    let mut new = pattern(3, ALL);
    new[8192..12_288].copy_from_slice(&pattern(50, 4096));
    assert!(content(&store, 1, 3, 0, UNIT, Want::Newest).expect("new") == new);
    // A unit that did not exist is a hole.
    store.commit(Mutation::Write(write(1, 60, 0, 100, version(1, 60)))).expect("write");
    assert!(seen(&store, 60, 1).expect("a hole") == (Version::ZERO, vec![0; ALL]));
    assert_eq!(store.commit(release(1)).expect("dropped"), MutationOutcome::Applied);
    assert_eq!(used(&store), before + 100, "the overwritten part is free");
    let gone = seen(&store, 3, 1);
    assert!(matches!(gone, Err(Error::NoSnapshot { number: 1, object: O, partition: P })), "{gone:?}");
    assert!(matches!(store.commit(take(1)), Err(Error::SnapshotUsed { highest: 1, asked: 1 })));
    store.commit(take(2)).expect_err("something is pending");
    store.commit(retire(61)).expect("settle");
    store.commit(take(2)).expect("taken");
    store.commit(remove(1)).expect("remove");
    assert_eq!(used(&store), 0, "an object goes with its snapshots");
    store.commit(create(1)).expect("create");
    assert_eq!(store.commit(take(1)).expect("another object"), MutationOutcome::Applied);
}

#[test]
fn what_is_not_settled_is_named() {
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
    let open = Delta { settled_to: Version::ZERO, ..delta(1, Version::ZERO, version(1, 1)) };
    store.commit(Mutation::Delta(open)).expect("a delta");
    refused(7);
    store.commit(Mutation::Delta(delta(2, version(1, 1), version(1, 2)))).expect("a delta");
    store.commit(take(1)).expect("all is settled");
    assert!(matches!(store.commit(take(0)), Err(Error::Malformed(_))));
    for number in 2..=u32::try_from(SNAPSHOTS_MAX).expect("small") {
        store.commit(take(number)).expect("taken");
    }
    assert!(matches!(store.commit(take(9999)), Err(Error::Snapshots(SNAPSHOTS_MAX))));
    store.commit(release(1)).expect("dropped");
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
            let number = u32::try_from(n).expect("small");
            store.commit(take(number)).expect("settled");
            shown.insert(number, bytes);
        }
    }
    let check = |store: &Store| {
        for (&number, bytes) in &shown {
            let (named, found) = seen(store, 7, number).expect("shown");
            assert_eq!(named, version(1, u64::from(number)));
            assert!(&found == bytes, "snapshot {number}");
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
fn no_snapshot_shows_what_damage_hit() {
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
    assert!(matches!(store.verify_unit(P, O, 0), Err(Error::Damaged { .. })), "and so does a scrub");
    // Cleaning finds the damage: the unit is lost until a rebuild repairs it. Its contents in the snapshot
    // stay unknown.
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
        store.checkpoint().expect("checkpoint");
    }
    used(&store);
    store.commit(release(1)).expect("dropped");
    used(&store);
}

#[derive(Debug, Clone)]
enum Step {
    Write { unit: u64, from: u32, length: u32, hole: bool, install: bool },
    Settle,
    Take,
    Drop { which: usize },
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
        2 => (0..4_usize).prop_map(|which| Step::Drop { which }),
        1 => Just(Step::Clean),
        1 => any::<bool>().prop_map(|killed| Step::Reopen { killed }),
    ]
}

struct Run {
    dir: tempfile::TempDir,
    store: Store,
    n: u64,
    taken: BTreeMap<u32, Vec<Vec<u8>>>,
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
                let number = u32::try_from(self.n).expect("small");
                self.store.commit(take(number)).expect("taken");
                self.taken.insert(number, self.newest());
            }
            Step::Drop { which } => {
                let Some(&number) = self.taken.keys().nth(which) else { return };
                self.taken.remove(&number);
                assert_eq!(self.store.commit(release(number)).expect("dropped"), MutationOutcome::Applied);
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
        assert_eq!(self.store.snapshots(P, O).expect("list"), self.taken.keys().copied().collect::<Vec<_>>());
        for (&number, units) in &self.taken {
            for (unit, bytes) in (0..).zip(units) {
                let (_, found) = seen(&self.store, unit, number).expect("shown");
                assert!(&found == bytes, "snapshot {number}, unit {unit}");
                self.store.verify_unit(P, O, unit).expect("verify");
            }
        }
        used(&self.store);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn snapshots_show_what_was(steps in prop::collection::vec(step(), 1..100)) {
        let (dir, store) = store();
        let mut run = Run { dir, store, n: 0, taken: BTreeMap::new() };
        for step in &steps {
            run.step(step);
            if matches!(step, Step::Clean | Step::Drop { .. } | Step::Reopen { .. }) {
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
