//! Every possible crash and failing operation of a workload, one after another, on a disk in memory.
//!
//! One workload (`workload`) has every kind of record. Another (`long`) has commits that are started before
//! their sync, and payloads that begin at pages. Each runs once on a disk without faults, to record the
//! visible contents (`observe`) after each step, and the number of disk operations. Other tests check the
//! meaning of a step. This one checks that nothing acknowledged is lost, that everything else is there whole
//! or not at all, and that there is nothing more.

mod fold;
mod large_object;
mod long;
pub(crate) mod observe;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};

use braid_layout::PartitionId;
use braid_store::disk::memory::{Fault, Memory, On};
use braid_store::format::record::Kind;
use braid_store::format::segment::SegmentHeader;
use braid_store::*;

use crate::common::*;
use observe::{differences, observe};
use workload::{Step, judge_kinds, workload};

/// The number of seeds for the survival of unsynced sectors and names after a power cut ...
const SEEDS: u64 = 12;
/// ... and with long commits, whose many sectors take long to compare.
const LONG_SEEDS: u64 = 3;
/// The most consecutive failures of a step.
const TRIES: u32 = 20;

/// A workload on a disk without faults.
struct Reference {
    steps: Vec<Step>,
    options: Options,
    seeds: u64,
    /// The visible contents before the first step and after each.
    seen: Vec<Vec<String>>,
    /// The number of changes, reads and so on that it took.
    operations: BTreeMap<&'static str, u64>,
}

/// A store on a disk in memory, some way into the workload.
struct Run {
    disk: Memory,
    options: Options,
    /// `None` if the disk's failure prevented the store from being reopened.
    store: Option<Store>,
}

const COUNTED: [(&str, On); 6] = [
    ("read", On::Read),
    ("write", On::Write),
    ("sync", On::Sync),
    ("start", On::Start),
    ("name", On::Name),
    ("change", On::Change),
];

/// Small segments, so that they are sealed and freed.
fn options() -> Options {
    Options { segment_bytes: 64 << 10, ..Options::default() }
}

fn formatted() -> Memory {
    let disk = Memory::new(1);
    Store::format_on(&disk, identity(), &options()).expect("format");
    disk.after_kill(1)
}

fn open_disk(disk: &Memory, options: &Options) -> Result<(Store, Recovery), Error> {
    Store::open_on(Arc::new(disk.clone()), Some(identity()), options.clone())
}

impl Run {
    fn begin(disk: Memory, options: &Options) -> Run {
        let store = open_disk(&disk, options).ok().map(|(store, _)| store);
        Run { disk, options: options.clone(), store }
    }

    /// Does a step. Returns true if it was done, with all of it acknowledged.
    fn step(&mut self, step: &Step) -> bool {
        let Some(store) = &self.store else { return false };
        match step {
            Step::Commit(mutations) => commit_together(store, mutations).iter().all(|answer| match answer {
                Ok(_) => true,
                Err(Error::Io { .. } | Error::Failed | Error::Full { .. }) => false,
                Err(error) => panic!("{error}"),
            }),
            Step::Checkpoint => match store.checkpoint() {
                Ok(()) => true,
                Err(Error::Io { .. }) => false,
                Err(error) => panic!("{error}"),
            },
            Step::Clean => store.clean().is_ok(),
            Step::Reopen => {
                // If closing went wrong, opening finds out.
                let _ = store.close();
                self.reopen()
            }
        }
    }

    /// Repeats `act` until it works, reopening the store if it does not recover. Returns true if it was
    /// reopened.
    fn work(&mut self, what: &str, act: impl Fn(&mut Run) -> bool) -> bool {
        let mut reopened = false;
        for attempt in 0..TRIES {
            if self.store.is_some() && act(self) {
                return reopened;
            }
            if self.store.is_none() || attempt % 2 == 1 {
                self.reopen();
                reopened = true;
            }
        }
        panic!("{what}: nothing works any more");
    }

    fn observed(&self) -> Vec<String> {
        observe(self.store.as_ref().expect("open")).expect("read")
    }

    fn reopen(&mut self) -> bool {
        self.store = None;
        self.store = open_disk(&self.disk, &self.options).ok().map(|(store, _)| store);
        self.store.is_some()
    }
}

/// Commit `mutations` as one commit: the committer is blocked until all are queued.
pub(crate) fn commit_together(store: &Store, mutations: &[Mutation]) -> Vec<Result<MutationOutcome, Error>> {
    if let [mutation] = mutations {
        return vec![store.commit(mutation.clone())];
    }
    let (go, held) = mpsc::channel::<()>();
    let (holds, is_held) = mpsc::channel();
    let (sender, answers) = mpsc::channel();
    store.submit(
        Mutation::Flush,
        Box::new(move |_| {
            let _ = holds.send(());
            let _ = held.recv();
        }),
    );
    let _ = is_held.recv();
    for (i, mutation) in mutations.iter().enumerate() {
        let sender = sender.clone();
        let answer = Box::new(move |answer| {
            let _ = sender.send((i, answer));
        });
        store.submit(mutation.clone(), answer);
    }
    drop(go);
    let mut found: Vec<_> = answers.iter().take(mutations.len()).collect();
    found.sort_by_key(|&(i, _)| i);
    found.into_iter().map(|(_, answer)| answer).collect()
}

impl Reference {
    /// For a workload with records of every kind.
    fn of_every_kind() -> Reference {
        let (reference, kinds) = Reference::new(workload(), options(), SEEDS);
        judge_kinds(&kinds);
        reference
    }

    /// For a workload with long commits.
    fn of_long_commits() -> Reference {
        let (reference, _) = Reference::new(long::workload(), long::options(), LONG_SEEDS);
        let started = reference.operations["start"];
        assert!(started > 20, "only {started} parts of commits are begun before their sync");
        reference
    }

    /// Runs the workload once. Also returns the kinds of the records found.
    fn new(steps: Vec<Step>, options: Options, seeds: u64) -> (Reference, BTreeSet<&'static str>) {
        let mut run = Run::begin(formatted(), &options);
        let mut kinds = BTreeSet::new();
        let mut seen = vec![run.observed()];
        for step in &steps {
            assert!(run.step(step));
            note_kinds(&run.disk, &mut kinds);
            seen.push(run.observed());
        }
        assert!(reused(&run.disk) > 0, "no segment was made of a freed one's file");
        // Observing counts reads too, so run the workload again without it.
        let mut run = Run::begin(formatted(), &options);
        for step in &steps {
            assert!(run.step(step));
        }
        let operations = COUNTED.iter().map(|&(name, on)| (name, run.disk.operations(on))).collect();
        assert_eq!(differences(seen.last().expect("some"), &run.observed()), "");
        (Reference { steps, options, seeds, seen, operations }, kinds)
    }

    fn open(&self, disk: &Memory) -> Result<(Store, Recovery), Error> {
        open_disk(disk, &self.options)
    }

    /// `found` must be in the state after `done` steps or, if it `may_be_more`, after one more.
    fn judge(&self, found: &Store, done: usize, may_be_more: bool, what: &str) {
        // A read that failed once may be repeated.
        let found =
            observe(found).or_else(|_| observe(found)).unwrap_or_else(|error| panic!("{what}: {error}"));
        let differences = differences(&self.seen[done], &found);
        let more = may_be_more && self.seen.get(done + 1) == Some(&found);
        assert!(differences.is_empty() || more, "{what}, after {done} steps:\n{differences}");
    }
}

/// The number of segments in recycled files.
pub(crate) fn reused(disk: &Memory) -> usize {
    let headers = disk.files().into_iter().filter(|name| name.ends_with(".seg")).map(|name| {
        let bytes = disk.content(&name).expect("there");
        SegmentHeader::decode(&bytes).expect("a header")
    });
    headers.filter(|header| header.earlier_bytes > 0).count()
}

/// Record the kinds of the records in the log now.
fn note_kinds(disk: &Memory, met: &mut BTreeSet<&'static str>) {
    for name in disk.files().iter().filter(|name| name.starts_with("log/")) {
        let bytes = disk.content(name).expect("there");
        for at in (0..bytes.len()).step_by(512) {
            if let Ok(record) = decode_record(&bytes[at..]) {
                met.extend(Kind::ALL.iter().filter(|(kind, ..)| *kind == record.kind).map(|(.., name)| name));
            }
        }
    }
}

/// The distinct disks that a power cut now may leave.
fn left_by_power_cut(disk: &Memory, seeds: u64) -> Vec<(u64, Memory)> {
    let mut met = BTreeSet::new();
    let content = |disk: &Memory| -> Vec<_> {
        disk.files().into_iter().map(|name| (disk.content(&name), name)).collect()
    };
    let left = (0..seeds).map(|seed| (seed, disk.after_power_cut(seed)));
    left.filter(|(_, left)| met.insert(content(left))).collect()
}

/// Open the result of a power cut and compare it; write to it and reopen it.
fn check_after_cut(reference: &Reference, left: &Memory, done: usize, deep: bool, what: &str) {
    let (store, recovery) = reference.open(left).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(recovery.damaged_count, 0, "{what}: {:?}", recovery.damaged);
    reference.judge(&store, done, true, what);
    if !deep {
        return;
    }
    let found = observe(&store).expect("read");
    assert!(scratch(&store), "{what}: a write after recovery");
    drop(store);
    let (store, recovery) = reference.open(left).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!((recovery.torn_bytes, recovery.damaged_count), (0, 0), "{what}: {:?}", recovery.damaged);
    assert_eq!(differences(&found, &observe(&store).expect("read")), "", "{what}: opened once more");
}

/// Four small commits that leave nothing behind. Returns true if they were done.
fn scratch(store: &Store) -> bool {
    let partition = PartitionId(99);
    let make = Mutation::PartitionCreate { partition, quota_bytes: None, key_epoch: 1 };
    let remove = Mutation::PartitionRemove { partition };
    [&make, &remove, &make, &remove].into_iter().all(|mutation| store.commit(mutation.clone()).is_ok())
}

#[test]
fn the_power_is_cut_after_each_operation() {
    cut_after_each(&Reference::of_every_kind());
}

#[test]
fn the_power_is_cut_after_each_operation_of_long_commits() {
    cut_after_each(&Reference::of_long_commits());
}

/// Interval between the operations after which the tests below meet a cut or a fault: 2, or what the variable
/// `BRAID_STORE_EVERY` says. `make soak` meets one at each.
fn every() -> usize {
    let set = std::env::var("BRAID_STORE_EVERY").ok();
    set.map_or(2, |text| text.parse().expect("BRAID_STORE_EVERY is a number"))
}

fn cut_after_each(reference: &Reference) {
    let changes = reference.operations["change"];
    for n in (0..=changes).step_by(every()) {
        let disk = formatted();
        disk.cut_after(n);
        let mut run = Run::begin(disk, &reference.options);
        let done = reference.steps.iter().take_while(|step| run.step(step)).count();
        drop(run.store);
        for (i, (seed, left)) in left_by_power_cut(&run.disk, reference.seeds).into_iter().enumerate() {
            let what = format!("power cut after {n} of {changes} changes, seed {seed}");
            check_after_cut(reference, &left, done, i == 0, &what);
        }
        // A killed process leaves its writes in the cache: those that the next process shows must be durable.
        let killed = run.disk.after_kill(n);
        let (store, _) = reference.open(&killed).unwrap_or_else(|error| panic!("killed after {n}: {error}"));
        reference.judge(&store, done, true, &format!("killed after {n} changes"));
        let found = observe(&store).expect("read");
        let (cut, _) = reference.open(&killed.after_power_cut(n)).expect("open");
        let differ = differences(&found, &observe(&cut).expect("read"));
        assert_eq!(differ, "", "killed after {n} changes, opened, then a power cut");
        // The writes that the next process adds must be durable too.
        let last = Mutation::PartitionCreate { partition: PartitionId(98), quota_bytes: None, key_epoch: 1 };
        store.commit(last).unwrap_or_else(|error| panic!("killed after {n}: {error}"));
        let found = observe(&store).expect("read");
        for seed in n..n + 4 {
            let what = format!("killed after {n} changes, opened, written to, then a power cut, seed {seed}");
            let (cut, recovery) = reference.open(&killed.after_power_cut(seed)).expect("open");
            assert_eq!(recovery.damaged_count, 0, "{what}: {:?}", recovery.damaged);
            let differences = differences(&found, &observe(&cut).expect("read"));
            assert_eq!(differences, "", "{what}");
        }
        // Opening is interrupted too, after each of its own changes.
        for m in 0.. {
            let left = run.disk.after_power_cut(n);
            left.cut_after(m);
            let opened = reference.open(&left).is_ok();
            let again = left.after_power_cut(n + m);
            let what = format!("power cut after {n}, then {m}, changes");
            check_after_cut(reference, &again, done, false, &what);
            if opened {
                break;
            }
            assert!(m < 100, "opening ends");
        }
    }
}

// Each fault is met once, or several times in a row: retries fail too.

#[test]
fn each_write_fails() {
    let faults = [
        ("write", On::Write, Fault::Io, 1),
        ("write", On::Write, Fault::Io, 3),
        ("write", On::Write, Fault::Short, 1),
    ];
    fail_each(&Reference::of_every_kind(), &faults);
}

#[test]
fn each_write_finds_no_space() {
    let faults = [("write", On::Write, Fault::NoSpace, 1), ("write", On::Write, Fault::NoSpace, 16)];
    fail_each(&Reference::of_every_kind(), &faults);
}

#[test]
fn each_sync_fails() {
    let faults = [
        ("sync", On::Sync, Fault::Io, 1),
        ("sync", On::Sync, Fault::Io, 3),
        ("sync", On::Sync, Fault::NoSpace, 1),
    ];
    fail_each(&Reference::of_every_kind(), &faults);
}

#[test]
fn each_other_operation_fails() {
    let faults = [
        ("name", On::Name, Fault::Io, 1),
        ("name", On::Name, Fault::NoSpace, 2),
        ("read", On::Read, Fault::Io, 1),
        ("read", On::Read, Fault::Short, 1),
    ];
    fail_each(&Reference::of_every_kind(), &faults);
}

#[test]
fn each_operation_of_long_commits_fails() {
    // Failures in a part of a commit, and after parts that succeeded.
    let faults = [
        ("write", On::Write, Fault::Io, 1),
        ("write", On::Write, Fault::NoSpace, 1),
        ("write", On::Write, Fault::Short, 1),
        ("sync", On::Sync, Fault::Io, 1),
        ("start", On::Start, Fault::Io, 1),
        ("start", On::Start, Fault::Io, 3),
        ("start", On::Start, Fault::NoSpace, 1),
    ];
    fail_each(&Reference::of_long_commits(), &faults);
}

fn fail_each(reference: &Reference, faults: &[(&str, On, Fault, u64)]) {
    for (name, on, fault, times) in faults.iter().copied() {
        let mut went_on = 0;
        let all = reference.operations[name];
        for n in (0..all).step_by(every()) {
            let disk = formatted();
            disk.inject(on, n..n + times, fault);
            let what = format!("{on:?} {n}, {times} times: {fault:?}");
            went_on += u64::from(!run_to_the_end(reference, disk, &what));
        }
        // One failed operation fails a segment, not the store. Some operations are part of opening.
        if times == 1 && on != On::Read {
            let all = all.div_ceil(u64::try_from(every()).expect("small"));
            // Those that do not are a larger part of some of the operations than of all.
            let tenths = if every() == 1 { 9 } else { 8 };
            assert!(
                went_on * 10 > all * tenths,
                "{on:?}, {fault:?}: {went_on} of {all} went on without being opened anew"
            );
        }
    }
}

/// Runs the workload on a failing disk. Refused mutations are repeated, after reopening if necessary. Returns
/// true if the store was reopened.
fn run_to_the_end(reference: &Reference, disk: Memory, what: &str) -> bool {
    let mut run = Run::begin(disk, &reference.options);
    let mut ever_reopened = run.work(what, |_| true);
    for (done, step) in reference.steps.iter().enumerate() {
        if run.step(step) {
            continue;
        }
        if let (Some(store), Step::Commit(mutations)) = (&run.store, step)
            && mutations.len() == 1
        {
            reference.judge(store, done, false, &format!("{what}: refused"));
        }
        for (seed, left) in left_by_power_cut(&run.disk, reference.seeds) {
            let what = format!("{what}: refused, then a power cut, seed {seed}");
            check_after_cut(reference, &left, done, false, &what);
        }
        // Other writes come first, so that the repeated one gets another position. A refused mutation may
        // reappear only until something is acknowledged after it.
        let reopened = run.work(what, |run| run.store.as_ref().is_some_and(scratch));
        for (seed, left) in left_by_power_cut(&run.disk, reference.seeds) {
            let what = format!("{what}: refused, then other writes, then a power cut, seed {seed}");
            let (store, recovery) = reference.open(&left).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(recovery.damaged_count, 0, "{what}: {:?}", recovery.damaged);
            let batch = matches!(step, Step::Commit(mutations) if mutations.len() > 1);
            reference.judge(&store, done, reopened || batch, &what);
        }
        ever_reopened |= reopened | run.work(what, |run| run.step(step));
    }
    let steps = reference.steps.len();
    reference.judge(run.store.as_ref().expect("open"), steps, false, what);
    for (seed, left) in left_by_power_cut(&run.disk, reference.seeds) {
        let what = format!("{what}: in the end, seed {seed}");
        let (store, recovery) = reference.open(&left).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(recovery.damaged_count, 0, "{what}: {:?}", recovery.damaged);
        reference.judge(&store, steps, false, &what);
    }
    ever_reopened
}

#[test]
fn formatting_is_cut_short_after_each_operation() {
    for n in 0.. {
        let disk = Memory::new(1);
        disk.cut_after(n);
        let formatted = Store::format_on(&disk, identity(), &options()).is_ok();
        for seed in 0..20 {
            let left = disk.after_power_cut(seed);
            match Store::format_on(&left, identity(), &options()) {
                Ok(()) => assert!(!formatted, "a store that was made is lost"),
                Err(Error::NotEmpty(_)) => {}
                Err(error) => panic!("cut after {n}, seed {seed}: {error}"),
            }
            let (store, recovery) = open_disk(&left, &options()).expect("open");
            assert_eq!((recovery.records, recovery.damaged_count), (0, 0));
            assert_eq!(store.partitions(), []);
        }
        if formatted {
            break;
        }
    }
}
