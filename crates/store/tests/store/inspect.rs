//! `check` finds every kind of planted damage and locates it. `check`, `dump` and `stat` change nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use braid_store::inspect::{Finding, check, dump, stat};
use braid_store::*;

use crate::common::*;

/// A closed store with several segments and two checkpoints.
fn image(dir: &Path) {
    let store = fresh(dir, options());
    for object in 1..4 {
        store.commit(create(object)).expect("create");
    }
    for n in 1..=16 {
        store.commit(Mutation::Write(write(1 + n % 3, n, 0, UNIT, version(1, n)))).expect("write");
    }
    store.checkpoint().expect("checkpoint");
    for n in 17..=24 {
        store.commit(Mutation::Write(write(1 + n % 3, n, 0, 5000, version(1, n)))).expect("write");
    }
    store.commit(remove(3)).expect("remove");
    store.close().expect("close");
}

fn segment(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("log/{number:08}.seg"))
}

/// Change a file's bytes.
fn spoil(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("read");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("write");
}

/// Offset and length of each record of a segment.
fn records(path: &Path) -> Vec<(usize, usize)> {
    let bytes = std::fs::read(path).expect("read");
    let found = (0..bytes.len()).step_by(512).filter_map(|at| {
        let record = decode_record(&bytes[at..]).ok()?;
        Some((at, usize::try_from(record.disk_bytes()).expect("small")))
    });
    found.collect()
}

/// A name, the damage, and the file and offsets at which it must be found.
type Case = (&'static str, fn(&Path), &'static str, std::ops::Range<u64>);

const SEGMENT_1: &str = "log/00000001.seg";
const SEGMENT_2: &str = "log/00000002.seg";
const NEWEST: &str = "checkpoint/00000002.ckp";
const ANYWHERE: std::ops::Range<u64> = 0..u64::MAX;

const CASES: &[Case] = &[
    (
        "a flipped byte of a payload",
        |dir| {
            let (at, _) = records(&segment(dir, 2))[1];
            spoil(&segment(dir, 2), |bytes| bytes[at + 512 + 4000] ^= 1);
        },
        SEGMENT_2,
        66_000..140_000,
    ),
    (
        "a flipped byte of a record's header",
        |dir| {
            let (at, _) = records(&segment(dir, 2))[2];
            spoil(&segment(dir, 2), |bytes| bytes[at + 90] ^= 1);
        },
        SEGMENT_2,
        132_000..140_000,
    ),
    (
        "a torn record in the middle",
        |dir| {
            let (at, length) = records(&segment(dir, 1))[5];
            spoil(&segment(dir, 1), |bytes| bytes[at + length / 2..at + length].fill(0));
        },
        SEGMENT_1,
        512..200_000,
    ),
    (
        "a segment cut short",
        |dir| spoil(&segment(dir, 2), |bytes| bytes.truncate(100_000)),
        SEGMENT_2,
        60_000..300_000,
    ),
    ("a missing segment", |dir| std::fs::remove_file(segment(dir, 2)).expect("remove"), SEGMENT_2, ANYWHERE),
    (
        "two segments in each other's place",
        |dir| {
            let other = dir.join("other");
            std::fs::rename(segment(dir, 1), &other).expect("rename");
            std::fs::rename(segment(dir, 2), segment(dir, 1)).expect("rename");
            std::fs::rename(&other, segment(dir, 2)).expect("rename");
        },
        SEGMENT_1,
        0..1,
    ),
    (
        "a record copied to another place",
        |dir| {
            let found = records(&segment(dir, 2));
            let (from, length) = found[0];
            let (to, _) = found[2];
            spoil(&segment(dir, 2), |bytes| bytes.copy_within(from..from + length, to));
        },
        SEGMENT_2,
        132_000..140_000,
    ),
    (
        "a flipped byte of the superblock",
        |dir| spoil(&dir.join("superblock"), |b| b[40] ^= 1),
        "superblock",
        0..1,
    ),
    ("a flipped byte of a page", |dir| spoil(&dir.join(NEWEST), |b| b[1024 + 150] ^= 1), NEWEST, 1024..1025),
    ("a flipped byte of a checkpoint's header", |dir| spoil(&dir.join(NEWEST), |b| b[20] ^= 1), NEWEST, 0..1),
    (
        "a flipped byte of a checkpoint's trailer",
        |dir| {
            spoil(&dir.join(NEWEST), |bytes| {
                let length = bytes.len();
                bytes[length - 100] ^= 1;
            });
        },
        NEWEST,
        1024..u64::MAX,
    ),
    ("a flipped byte of a segment's header", |dir| spoil(&segment(dir, 1), |b| b[44] ^= 1), SEGMENT_1, 0..1),
    (
        "another store's segment",
        |dir| {
            let other = tempfile::tempdir().expect("a directory");
            image(other.path());
            std::fs::copy(segment(other.path(), 2), segment(dir, 2)).expect("copy");
        },
        SEGMENT_2,
        0..1,
    ),
    (
        "an old copy of a segment under another number",
        |dir| {
            std::fs::copy(segment(dir, 1), segment(dir, 90)).expect("copy");
        },
        "log/00000090.seg",
        0..1,
    ),
    (
        "a copy of a segment under another name",
        |dir| {
            std::fs::copy(segment(dir, 1), dir.join("log/00000001.bak")).expect("copy");
        },
        "log/00000001.bak",
        0..1,
    ),
    (
        "garbage after a sealed segment",
        |dir| spoil(&segment(dir, 1), |bytes| bytes.extend([7; 3000])),
        SEGMENT_1,
        262_144..400_000,
    ),
    (
        "a block of zeros",
        |dir| {
            let (at, _) = records(&segment(dir, 1))[6];
            spoil(&segment(dir, 1), |bytes| bytes[at..at + 4096].fill(0));
        },
        SEGMENT_1,
        512..300_000,
    ),
];

fn found(findings: &[Finding], file: &str, offsets: &std::ops::Range<u64>) -> bool {
    findings.iter().any(|finding| finding.file == file && offsets.contains(&finding.offset))
}

#[test]
fn every_planted_damage_is_found_at_its_place() {
    let good = tempfile::tempdir().expect("a directory");
    image(good.path());
    let report = check(good.path()).expect("check");
    assert_eq!(report.findings, [], "a healthy store");
    assert!(report.records > 25 && report.segments > 3 && report.checkpoints == 2, "{report:?}");
    assert!(report.payload_bytes > 16 * u64::from(UNIT) && report.extents > 10, "{report:?}");
    for (name, plant, file, offsets) in CASES {
        let dir = tempfile::tempdir().expect("a directory");
        copy(good.path(), dir.path());
        plant(dir.path());
        let before = contents(dir.path());
        let report = check(dir.path()).expect("check");
        assert!(found(&report.findings, file, offsets), "{name}: {:#?}", report.findings);
        // Nothing reads the bytes behind a sealed segment's end.
        assert_eq!(report.damaged == 0, name.starts_with("garbage"), "{name}: {:#?}", report.findings);
        let _ = (dump(dir.path(), |_| true), stat(dir.path()));
        assert_eq!(contents(dir.path()), before, "{name}: something was written");
    }
}

fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for folder in [dir.to_owned(), dir.join("log"), dir.join("checkpoint")] {
        for entry in std::fs::read_dir(folder).expect("list") {
            let path = entry.expect("entry").path();
            if path.is_file() {
                all.insert(path.clone(), std::fs::read(path).expect("read"));
            }
        }
    }
    all
}

#[test]
fn what_a_crash_leaves_is_no_damage() {
    let dir = tempfile::tempdir().expect("a directory");
    let live = tempfile::tempdir().expect("a directory");
    let store = fresh(live.path(), options());
    store.commit(create(1)).expect("create");
    store.commit(Mutation::Write(write(1, 0, 0, 5000, version(1, 1)))).expect("write");
    copy(live.path(), dir.path());
    std::fs::write(dir.path().join("checkpoint/00000001.new"), b"half").expect("write");
    spoil(&segment(dir.path(), 1), |bytes| bytes.truncate(bytes.len() - 1000));
    let before = contents(dir.path());
    let report = check(dir.path()).expect("check");
    assert_eq!((report.damaged, report.findings.len()), (0, 2), "{:#?}", report.findings);
    assert!(report.findings.iter().all(|finding| finding.harmless));
    assert_eq!(contents(dir.path()), before);
    assert!(matches!(check(live.path()), Err(Error::InUse(_))), "a store in use is left alone");
}

#[test]
fn everything_is_dumped_and_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    image(dir.path());
    let mut kinds = BTreeMap::new();
    dump(dir.path(), |line| {
        *kinds.entry(line.kind).or_insert(0) += 1;
        true
    })
    .expect("dump");
    for kind in ["superblock", "checkpoint", "page", "object", "segment", "data", "object create", "mark"] {
        assert!(kinds.contains_key(kind), "no {kind} in {kinds:?}");
    }
    assert_eq!((kinds["data"], kinds.get("bad")), (24, None));
    let mut lines = 0;
    dump(dir.path(), |_| {
        lines += 1;
        lines < 3
    })
    .expect("dump");
    assert_eq!(lines, 3, "it stops when it is told");
    let facts = stat(dir.path()).expect("stat");
    assert_eq!((facts.partitions, facts.objects), (1, 2));
    assert!(facts.live() > 0 && facts.live() < facts.used() && facts.checkpoint_bytes > 0, "{facts:?}");
    assert_eq!(facts.tail_bytes, 0, "it was closed cleanly");
    // Every write is pending: nothing has settled it.
    assert_eq!((facts.whole_units, facts.whole_extents), (facts.units, facts.extents));
    let opaque = 2 * u64::try_from(b"mapopaque".len()).expect("small");
    assert_eq!(facts.index_bytes(), 2 * 168 + opaque + facts.units * (48 + 208) + facts.extents * 16);
    let (store, _) = open(dir.path());
    assert_eq!(store.stat().expect("stat").live, facts.live());
}
