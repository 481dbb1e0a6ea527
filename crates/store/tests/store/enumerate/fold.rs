//! A fold of settled deltas and layers, interrupted after each operation. Reads do not show whether it was
//! done: they return the same bytes for the same versions.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use braid_layout::{ClientId, Column, Generation, ObjectId, OperationNumber, Version};
use braid_store::disk::memory::{Fault, Memory, On};
use braid_store::*;

use super::options;
use crate::common::*;

const O: ObjectId = ObjectId(2);

/// The expected contents of a parity unit.
#[derive(Clone)]
struct Parity {
    bytes: Vec<u8>,
    tips: [Version; 3],
}

impl Parity {
    /// The next delta of a data unit, settled at once.
    fn delta(&mut self, n: u64, data: u8) -> Mutation {
        let own = pattern(n, 3000);
        self.bytes[1000..4000].iter_mut().zip(&own).for_each(|(to, own)| *to ^= own);
        let to_version = version(6, n);
        let from_version = std::mem::replace(&mut self.tips[usize::from(data)], to_version);
        Mutation::Delta(Delta {
            partition: P,
            object: O,
            unit: 0,
            from: 1000,
            to: 4000,
            column: Column(data + 1),
            data,
            from_version,
            to_version,
            end: end_of(to_version),
            client: ClientId(11),
            operation: OperationNumber(n),
            watermark: OperationNumber::NONE,
            g: Generation(1),
            settled_to: to_version,
            body: body(1000, &own),
        })
    }

    /// A stripe write of a part of the unit that touches the first data unit.
    fn stripe(&mut self, n: u64) -> Mutation {
        let written = write(O.0, 0, 2000, 6000, version(6, n));
        self.bytes[2000..6000].copy_from_slice(&pattern(n, 4000));
        self.tips[0] = written.stamp;
        Mutation::Write(counting(written, WriteKind::StripeParity, self.tips.to_vec()))
    }

    /// Returns true if the store holds this state.
    fn is_in(&self, store: &Store, what: &str) -> bool {
        store.verify_unit(P, O, 0).unwrap_or_else(|error| panic!("{what}: {error}"));
        [Want::Newest, Want::Settled].into_iter().all(|want| {
            let view = store.read(P, O, 0, 0..UNIT, want).unwrap_or_else(|error| panic!("{what}: {error}"));
            let bytes = bytes_of(&view, UNIT).unwrap_or_else(|error| panic!("{what}: {error}"));
            view.cover == self.tips && bytes == self.bytes
        })
    }
}

fn open_disk(disk: &Memory) -> Result<(Store, Recovery), Error> {
    Store::open_on(Arc::new(disk.clone()), Some(identity()), options())
}

/// Ten layers and twenty-one deltas. One more delta causes a fold.
fn prepared() -> (Memory, Parity) {
    let mut parity =
        Parity { bytes: vec![0; usize::try_from(UNIT).expect("small")], tips: [Version::ZERO; 3] };
    let disk = Memory::new(1);
    Store::format_on(&disk, identity(), &options()).expect("format");
    let (store, _) = open_disk(&disk).expect("open");
    let make = Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 };
    let mut steps = vec![make, create(O.0)];
    steps.extend((1..11).map(|n| parity.delta(n, if n % 2 == 0 { 0 } else { 2 })));
    steps.push(parity.stripe(50));
    steps.extend((51..72).map(|n| parity.delta(n, if n % 2 == 1 { 0 } else { 2 })));
    for step in steps {
        store.commit(step).expect("a step");
    }
    store.commit(Mutation::Flush).expect("flush");
    assert!(!is_folded(&store), "it is not due yet");
    (disk.after_kill(1), parity)
}

fn is_folded(store: &Store) -> bool {
    store.versions(P, O, 0..1).expect("versions")[0].tips.is_empty()
}

/// Each operation fails in turn, and refused mutations are repeated, after reopening if necessary.
#[test]
fn a_fold_whose_operations_fail_is_done_all_the_same() {
    let (disk, before) = prepared();
    let mut after = before.clone();
    let last = after.delta(72, 0);
    let faults = [
        (On::Write, Fault::Io),
        (On::Write, Fault::NoSpace),
        (On::Write, Fault::Short),
        (On::Sync, Fault::Io),
        (On::Sync, Fault::NoSpace),
        (On::Name, Fault::Io),
        (On::Read, Fault::Io),
    ];
    let mut met = 0;
    for (on, fault) in faults {
        for n in 0.. {
            let what = format!("{on:?} {n}: {fault:?}");
            let run = disk.after_kill(n);
            run.inject(on, n..n + 1, fault);
            let attempt = || {
                let (store, _) = open_disk(&run).ok()?;
                store.commit(last.clone()).ok()?;
                store.commit(Mutation::Flush).ok()?;
                Some(store)
            };
            let store = attempt().or_else(attempt).unwrap_or_else(|| panic!("{what}: it fails twice"));
            if run.operations(on) <= n {
                // The run has no more operations.
                break;
            }
            assert!(after.is_in(&store, &what), "{what}");
            met += usize::from(is_folded(&store));
            drop(store);
            for seed in 0..4 {
                let (store, recovery) = open_disk(&run.after_power_cut(seed)).expect("open");
                assert_eq!(recovery.damaged_count, 0, "{what}: {:?}", recovery.damaged);
                assert!(after.is_in(&store, &what), "{what}: after a power cut, seed {seed}");
            }
        }
    }
    assert!(met > 30, "only {met} were folded");
}

#[test]
fn a_fold_is_cut_short_after_each_operation() {
    let (disk, before) = prepared();
    let mut after = before.clone();
    let last = after.delta(72, 0);
    let mut met = [0, 0];
    for n in 0.. {
        let run = disk.after_kill(n);
        run.cut_after(n);
        let acknowledged = open_disk(&run).is_ok_and(|(store, _)| {
            let acknowledged = store.commit(last.clone()).is_ok();
            // The fold is done once the flush is answered.
            let _ = store.commit(Mutation::Flush);
            acknowledged
        });
        for seed in 0..8 {
            let what = format!("cut after {n} changes, seed {seed}");
            let left = if seed == 0 { run.after_kill(n) } else { run.after_power_cut(seed) };
            let (store, recovery) = open_disk(&left).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(recovery.damaged_count, 0, "{what}: {:?}", recovery.damaged);
            let is_after = after.is_in(&store, &what);
            assert!(is_after || !acknowledged && before.is_in(&store, &what), "{what}");
            if is_after {
                met[usize::from(is_folded(&store))] += 1;
            }
            // The store continues from there.
            let mut parity = if is_after { after.clone() } else { before.clone() };
            let next = parity.delta(80, 2);
            store.commit(next).unwrap_or_else(|error| panic!("{what}: {error}"));
            store.commit(Mutation::Flush).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(parity.is_in(&store, &what), "{what}: one more");
        }
        if !run.is_cut() {
            break;
        }
    }
    assert!(met[0] > 0 && met[1] > 0, "not folded yet {}, and folded {}", met[0], met[1]);
}

/// Turns that come when they are let, and what was asked for.
#[derive(Debug, Default)]
struct Asked {
    state: Mutex<(Vec<u64>, bool)>,
    changed: Condvar,
}

impl Turns for Asked {
    fn wait(&self, work: OwnWork, read: u64, _: u64, gives_up: &dyn Fn() -> bool) -> Box<dyn Send> {
        if work == OwnWork::Folding {
            let mut state = self.state.lock().expect("no holder panics");
            state.0.push(read);
            self.changed.notify_all();
            while !state.1 && !gives_up() {
                state =
                    self.changed.wait_timeout(state, Duration::from_millis(1)).expect("no holder panics").0;
            }
        }
        Box::new(())
    }
}

impl Asked {
    /// Waits until a turn was asked for.
    fn is_asked(&self) {
        let state = self.state.lock().expect("no holder panics");
        let asked = self.changed.wait_timeout_while(state, LONG, |state| state.0.is_empty());
        assert!(!asked.expect("no holder panics").1.timed_out(), "no turn was asked for");
    }

    fn let_in(&self) {
        self.state.lock().expect("no holder panics").1 = true;
        self.changed.notify_all();
    }
}

/// A bound on what takes no time.
const LONG: Duration = Duration::from_secs(60);

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The unit of [`prepared`] with one more delta, in a store whose folder waits for its turn.
fn waiting() -> (Memory, Store, Arc<Asked>, Parity) {
    let (disk, mut parity) = prepared();
    let turns = Arc::new(Asked::default());
    let options = Options { turns: Some(Arc::clone(&turns) as Arc<dyn Turns>), ..options() };
    let (store, _) = Store::open_on(Arc::new(disk.clone()), Some(identity()), options).expect("open");
    store.commit(parity.delta(72, 0)).expect("a delta");
    turns.is_asked();
    (disk, store, turns, parity)
}

#[test]
fn where_others_need_the_disk_a_fold_waits_for_its_turns_and_no_commit_waits_for_it() {
    let (_, store, turns, parity) = waiting();
    store.commit(create(3)).expect("commits go on");
    assert!(!is_folded(&store) && parity.is_in(&store, "before its turn"));
    let disk = store.disk_reads(P, O, 0, &(0..UNIT)).expect("it can be read");
    assert!(disk.reads > 30 && disk.bytes > 22 * 3000, "a read reads every delta: {disk:?}");
    turns.let_in();
    until("it is not folded", || is_folded(&store));
    assert!(parity.is_in(&store, "folded"));
    assert!(store.disk_reads(P, O, 0, &(0..UNIT)).expect("it can be read").reads < 5);
    let asked = turns.state.lock().expect("no holder panics").0.clone();
    assert!(asked.len() > 1, "headers and bytes have turns: {asked:?}");
    assert!(asked.iter().all(|bytes| (1..=1 << 20).contains(bytes)), "{asked:?}");
}

#[test]
fn deltas_that_come_while_a_base_is_made_are_kept() {
    let (disk, store, turns, mut parity) = waiting();
    for delta in [parity.delta(73, 2), parity.delta(74, 0)] {
        store.commit(delta).expect("a delta");
    }
    turns.let_in();
    drop(store);
    let (store, recovery) = open_disk(&disk).expect("open");
    assert!(recovery.damaged_count == 0 && parity.is_in(&store, "reopened"), "{recovery:?}");
}

#[test]
fn a_base_whose_unit_was_written_meanwhile_is_dropped() {
    let (disk, store, turns, mut parity) = waiting();
    // A whole stripe replaces the base and all deltas.
    store.commit(parity.stripe(80)).expect("a stripe write");
    let newer = parity.delta(81, 0);
    store.commit(newer).expect("a delta upon it");
    turns.let_in();
    until("the base is not made", || turns.state.lock().expect("no holder panics").0.len() > 1);
    for n in 82..90 {
        store.commit(parity.delta(n, 0)).expect("a delta");
    }
    drop(store);
    let (store, recovery) = open_disk(&disk).expect("open");
    assert!(recovery.damaged_count == 0 && parity.is_in(&store, "reopened"), "{recovery:?}");
}

#[test]
fn a_base_that_cannot_be_written_is_not_made_again_and_again() {
    let (disk, store, turns, parity) = waiting();
    let asked = || turns.state.lock().expect("no holder panics").0.len();
    let written = disk.operations(On::Write);
    disk.inject(On::Write, written..written + 1_000_000, Fault::NoSpace);
    turns.let_in();
    until("the base is not made", || asked() > 1);
    // Each try asks for two turns.
    std::thread::sleep(Duration::from_millis(300));
    assert!(asked() < 10, "{} turns were asked for", asked());
    assert!(!is_folded(&store) && parity.is_in(&store, "not folded"));
    disk.well_again();
    // Each turn of the committer calls again.
    until("it is not folded", || store.commit(Mutation::Flush).is_ok() && is_folded(&store));
    assert!(parity.is_in(&store, "folded"));
}

/// A base is made piece by piece. Deltas begin and end anywhere in the pieces.
#[test]
fn a_base_that_takes_several_turns_has_the_bytes_of_all_its_deltas() {
    const LARGE: u32 = 256 << 10;
    let disk = Memory::new(1);
    let turns = Arc::new(Asked::default());
    turns.let_in();
    let turned = Some(Arc::clone(&turns) as Arc<dyn Turns>);
    let options = Options { segment_bytes: 8 << 20, turns: turned, ..options() };
    Store::format_on(&disk, identity(), &options).expect("format");
    let (store, _) = Store::open_on(Arc::new(disk.clone()), Some(identity()), options).expect("open");
    store.commit(Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 }).expect("made");
    let attributes = Attributes { unit_bytes: LARGE, ..attributes() };
    store.commit(Mutation::Create { partition: P, object: O, attributes }).expect("made");
    let mut expected = vec![0; usize::try_from(LARGE).expect("small")];
    for n in 1..=12_u64 {
        let from = u32::try_from(n).expect("small") * 5000;
        let to = LARGE - from / 2;
        let at = usize::try_from(from).expect("small")..usize::try_from(to).expect("small");
        let own = pattern(n, at.len());
        expected[at].iter_mut().zip(&own).for_each(|(to, own)| *to ^= own);
        let delta = Delta {
            partition: P,
            object: O,
            unit: 0,
            from,
            to,
            column: Column(1),
            data: 0,
            from_version: if n == 1 { Version::ZERO } else { version(6, n - 1) },
            to_version: version(6, n),
            end: end_of(version(6, n)),
            client: ClientId(11),
            operation: OperationNumber(n),
            watermark: OperationNumber::NONE,
            g: Generation(1),
            settled_to: version(6, n),
            body: body(from, &own),
        };
        store.commit(Mutation::Delta(delta)).expect("a delta");
    }
    let asked = || turns.state.lock().expect("no holder panics").0.clone();
    until("it is not folded", || {
        asked().len() > 3 && store.disk_reads(P, O, 0, &(0..LARGE)).is_some_and(|disk| disk.reads < 12)
    });
    let view = store.read(P, O, 0, 0..LARGE, Want::Newest).expect("read");
    assert!(bytes_of(&view, LARGE).expect("its bytes") == expected);
    assert!(asked().iter().all(|bytes| (1..=1 << 20).contains(bytes)), "{:?}", asked());
}
