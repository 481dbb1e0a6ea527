//! Cleaning: space is freed from segments that still hold live bytes, and nothing is lost.

use braid_layout::ObjectId;
use braid_store::format::checkpoint::Appended;
use braid_store::*;

use crate::common::*;

const CAPACITY: u64 = 8 << 20;
const PART: u32 = 4096;

fn small() -> Options {
    Options { capacity: Some(CAPACITY), ..options() }
}

/// Random numbers below a bound, by seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// Objects of one unit each, overwritten in parts, with the version of the write that each part is from.
struct Parts {
    versions: Vec<u64>,
    n: u64,
}

const PARTS_PER_UNIT: u64 = (UNIT / PART) as u64;

impl Parts {
    fn fill(store: &Store, units: u64) -> Parts {
        store.commit(create(1)).expect("create");
        let mut parts =
            Parts { versions: vec![0; usize::try_from(units * PARTS_PER_UNIT).expect("small")], n: 0 };
        for part in 0..units * PARTS_PER_UNIT {
            parts.write(store, part);
        }
        parts
    }

    fn write(&mut self, store: &Store, part: u64) {
        self.n += 1;
        let unit = part / PARTS_PER_UNIT;
        let at = u32::try_from(part % PARTS_PER_UNIT).expect("small") * PART;
        let mut write = write(1, unit, at, at + PART, version(1, self.n));
        // The write is settled at once, so that the whole chain is one version.
        write.settled_below = version(1, self.n);
        if let Err(error) = store.commit(Mutation::Write(write)) {
            panic!("write {}: {error}; {:?}", self.n, store.stat());
        }
        self.versions[usize::try_from(part).expect("small")] = self.n;
    }

    fn check(&self, store: &Store) {
        store.commit(settled(1, version(1, self.n + 1))).expect("settle");
        for (part, &n) in (0_u64..).zip(&self.versions) {
            let unit = part / PARTS_PER_UNIT;
            let at = u32::try_from(part % PARTS_PER_UNIT).expect("small") * PART;
            let bytes = content(store, 1, unit, at, at + PART, Want::Newest).expect("read");
            assert!(bytes == pattern(n, usize::try_from(PART).expect("small")), "part {part}");
        }
        let stat = store.stat().expect("stat");
        let live = u64::try_from(self.versions.len()).expect("small") * u64::from(PART);
        assert_eq!(stat.live, live, "live bytes are counted exactly");
        assert!(stat.used <= CAPACITY);
    }
}

#[test]
fn a_store_at_ninety_percent_takes_writes_for_ever() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), small());
    // With 512 bytes of header per 4096, this is 95 % of the unreserved space.
    let mut parts = Parts::fill(&store, 98);
    let mut random = Random(7);
    for _ in 0..3000 {
        let part = random.below(98 * PARTS_PER_UNIT);
        parts.write(&store, part);
    }
    parts.check(&store);
    let stat = store.stat().expect("stat");
    assert!(stat.moved > 0 && stat.freed > 0, "{stat:?}");
    store.close().expect("close");
    drop(store);
    let (store, recovery) = open_with(dir.path(), small());
    assert_eq!(recovery.damaged_count, 0, "{:?}", recovery.damaged);
    parts.check(&store);
    let amplification =
        Appended { written: stat.written, moved: stat.moved }.amplification().expect("something was written");
    println!("write amplification {amplification:.2}, {stat:?}");
}

/// The share decides the moment at which the cleaner works: never with ample space, and with share zero only
/// if a write has to wait.
#[test]
fn the_cleaner_keeps_to_its_share() {
    // The most used bytes before anything is moved.
    let used_at_first = |clean_share_percent: u32| {
        let dir = tempfile::tempdir().expect("a directory");
        let store = fresh(dir.path(), Options { clean_share_percent, ..small() });
        let mut parts = Parts::fill(&store, 60);
        let mut random = Random(5);
        let mut most = 0;
        for n in 0.. {
            assert!(n < 4096, "nothing is moved");
            let part = random.below(60 * PARTS_PER_UNIT);
            parts.write(&store, part);
            let stat = store.stat().expect("stat");
            if stat.moved > 0 {
                break;
            }
            most = most.max(stat.used);
        }
        parts.check(&store);
        most * 100 / CAPACITY
    };
    let large = used_at_first(1000);
    let none = used_at_first(0);
    assert!(large > 70, "{large} % were used: with ample space nothing is moved");
    assert!(none > 88, "{none} % were used: no write had to wait");
}

/// The cleaner may be busy when space runs out. It may temporarily have taken more than it freed; that is no
/// reason to refuse writes for which there is space.
#[test]
fn writes_in_flight_are_not_refused_while_there_are_dead_bytes() {
    const QUARTER: u32 = UNIT / 4;
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), Options { capacity: Some(4 * CAPACITY), ..options() });
    store.commit(create(1)).expect("create");
    // About 80 % of the unreserved space.
    let quarters = 1450;
    let flying = 16;
    let (answer, answers) = std::sync::mpsc::channel::<(u64, Result<MutationOutcome, Error>)>();
    let mut random = Random(11);
    let last = 12_000;
    for n in 1..=last + flying {
        if n > flying {
            let (n, answered) =
                answers.recv_timeout(std::time::Duration::from_secs(60)).expect("an answer in time");
            assert!(answered.is_ok(), "write {n}: {answered:?}; {:?}", store.stat());
        }
        if n > last {
            continue;
        }
        let at = if n <= quarters { n - 1 } else { random.below(quarters) };
        let from = u32::try_from(at % 4).expect("small") * QUARTER;
        let mut write = write(1, at / 4, from, from + QUARTER, version(1, n));
        write.settled_below = version(1, n.saturating_sub(flying));
        let answer = answer.clone();
        // The receiver is gone after a refusal.
        let reply = move |answered| drop(answer.send((n, answered)));
        store.submit(Mutation::Write(write), Box::new(reply));
    }
}

/// Units of one piece each, of which every other one is then removed.
fn half_dead(store: &Store) {
    store.commit(create(1)).expect("create");
    store.commit(create(2)).expect("create");
    for unit in 0..24 {
        let object = 1 + unit % 2;
        let written =
            Write { standing: Standing::Installed, ..write(object, unit, 0, 20_000, version(1, unit + 1)) };
        store.commit(Mutation::Write(written)).expect("write");
    }
    store.commit(remove(2)).expect("remove");
}

fn read_unit(store: &Store, unit: u64) -> Result<Vec<u8>, Error> {
    content(store, 1, unit, 0, 20_000, Want::Newest)
}

/// Place of a unit's bytes: the segment's file, and the offset in it.
fn place(dir: &std::path::Path, unit: u64) -> (std::path::PathBuf, usize) {
    let bytes = pattern(unit + 1, 20_000);
    let found = segments(dir).into_iter().find_map(|path| {
        let content = std::fs::read(&path).expect("read");
        let at = content.windows(64).position(|window| window == &bytes[8192..8256])?;
        Some((path, at))
    });
    found.expect("the unit is in the log")
}

fn flip(path: &std::path::Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("read");
    bytes[at] ^= 1;
    std::fs::write(path, bytes).expect("write");
}

#[test]
fn dead_bytes_are_given_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    half_dead(&store);
    let before = store.stat().expect("stat");
    let given = store.clean().expect("clean");
    let after = store.stat().expect("stat");
    assert!(given > 200_000 && after.used + 200_000 < before.used, "{given}: {before:?}, {after:?}");
    assert_eq!((after.live, before.live), (12 * 20_000, 12 * 20_000));
    assert_eq!(store.clean().expect("clean"), 0, "there is nothing left to gain");
    for unit in (0..24).step_by(2) {
        assert!(read_unit(&store, unit).expect("read") == pattern(unit + 1, 20_000), "unit {unit}");
    }
}

#[test]
fn pieces_grow_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    store.commit(create(2)).expect("create");
    // Each piece is a record of its own, in no order, among others that are removed.
    for n in 0..16 {
        let from = u32::try_from(n * 7 % 16).expect("small") * 4000;
        store.commit(Mutation::Write(write(1, 0, from, from + 4000, version(1, n + 1)))).expect("write");
        store.commit(Mutation::Write(write(2, n, 0, UNIT / 2, version(1, n + 1)))).expect("write");
    }
    store.commit(remove(2)).expect("remove");
    let pieces = || store.read(P, ObjectId(1), 0, 0..64_000, Want::Newest).expect("view").pieces().len();
    let expected = content(&store, 1, 0, 0, 64_000, Want::Newest).expect("read");
    assert_eq!(pieces(), 16);
    store.clean().expect("clean");
    assert!(pieces() < 8, "{} pieces", pieces());
    assert!(content(&store, 1, 0, 0, 64_000, Want::Newest).expect("read") == expected);
}

#[test]
fn damage_is_not_moved() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    half_dead(&store);
    let (path, at) = place(dir.path(), 4);
    flip(&path, at);
    store.clean().expect("clean");
    assert!(path.exists(), "the damaged segment stays");
    assert!(matches!(read_unit(&store, 4), Err(Error::Damaged { .. })), "the unit is lost");
    let chains = store.versions(P, ObjectId(1), 4..5).expect("versions");
    assert!(chains[0].lost);
    let others = |store: &Store| {
        for unit in (0..24).step_by(2).filter(|&unit| unit != 4) {
            assert!(read_unit(store, unit).expect("read") == pattern(unit + 1, 20_000), "unit {unit}");
        }
    };
    others(&store);
    store.close().expect("close");
    drop(store);
    let (store, _) = open(dir.path());
    assert!(matches!(read_unit(&store, 4), Err(Error::Damaged { .. })), "and stays so");
    others(&store);
    // After a rebuild from redundancy, the unit is intact again.
    let installed = Write { standing: Standing::Installed, ..write(1, 4, 0, UNIT, version(2, 99)) };
    store.commit(Mutation::Write(installed)).expect("install");
    assert!(
        read_unit(&store, 4).expect("read") == pattern(99, usize::try_from(UNIT).expect("small"))[..20_000]
    );
}

#[test]
fn a_damaged_header_keeps_its_segment() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    half_dead(&store);
    let (path, at) = place(dir.path(), 4);
    // The header is the log block before the payload.
    flip(&path, at - 8192 - 100);
    store.clean().expect("clean");
    assert!(path.exists(), "the damaged segment stays");
    for unit in (0..24).step_by(2) {
        match read_unit(&store, unit) {
            Ok(bytes) => assert!(unit != 4 && bytes == pattern(unit + 1, 20_000), "unit {unit}"),
            Err(Error::Damaged { .. }) => assert_eq!(unit, 4),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(store.versions(P, ObjectId(1), 4..5).expect("versions")[0].lost);
}

#[test]
fn readers_see_nothing_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), small());
    let mut parts = Parts::fill(&store, 90);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 1..3 {
            let store = store.clone();
            let done = &done;
            scope.spawn(move || {
                let mut random = Random(seed);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    // Verifies every block. The write that a block is from is unknown here.
                    content(&store, 1, random.below(90), 0, UNIT, Want::Newest).expect("read");
                }
            });
        }
        let mut random = Random(5);
        for _ in 0..1500 {
            let part = random.below(90 * PARTS_PER_UNIT);
            parts.write(&store, part);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    parts.check(&store);
    assert!(store.stat().expect("stat").moved > 0);
}

/// A move that could not be written does not count against the segment that it was to empty.
#[test]
fn what_could_not_be_cleaned_for_want_of_space_is_cleaned_once_there_is_some() {
    use braid_store::disk::memory::{Fault, Memory, On};
    let disk = Memory::new(1);
    Store::format_on(&disk, identity(), &options()).expect("format");
    let (store, _) = Store::open_on(std::sync::Arc::new(disk.clone()), None, options()).expect("open");
    let make = Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 };
    store.commit(make).expect("make the partition");
    half_dead(&store);
    let before = store.stat().expect("stat").used;
    // The first batch's write fails, and so do the writes tried right after it.
    let now = disk.operations(On::Write);
    disk.inject(On::Write, now..now + 3, Fault::NoSpace);
    let _ = store.clean();
    assert!(disk.operations(On::Write) > now, "it was tried");
    let _ = store.clean();
    let _ = store.clean();
    let after = store.stat().expect("stat").used;
    assert!(after + 200_000 < before, "{before} and then {after}");
    for unit in (0..24).step_by(2) {
        assert!(read_unit(&store, unit).expect("read") == pattern(unit + 1, 20_000), "unit {unit}");
    }
}

/// Files of `dir` that are removed and still open in this process.
fn removed_and_open(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let open = std::fs::read_dir("/proc/self/fd").expect("listed").flatten();
    let names = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    names.filter(|name| name.starts_with(dir) && name.to_string_lossy().ends_with("(deleted)")).collect()
}

#[test]
fn a_freed_segment_takes_no_space_for_having_been_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().canonicalize().expect("a path");
    let store = fresh(&place, options());
    let mut parts = Parts::fill(&store, 20);
    // The records' headers are cached now, with their files.
    parts.check(&store);
    let held = store.read(P, ObjectId(1), 0, 0..PART, Want::Newest).expect("read");
    for part in 0..20 * PARTS_PER_UNIT {
        parts.write(&store, part);
    }
    store.clean().expect("clean");
    assert!(store.stat().expect("stat").freed > 2, "{:?}", store.stat());
    let of_the_view = removed_and_open(&place);
    assert_eq!(of_the_view.len(), 1, "the one that a view holds: {of_the_view:?}");
    assert_eq!(bytes_of(&held, PART).expect("read"), pattern(1, usize::try_from(PART).expect("small")));
    drop(held);
    assert_eq!(removed_and_open(&place), Vec::<std::path::PathBuf>::new());
}
