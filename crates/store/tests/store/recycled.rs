//! Recycled segments: the cases in which new segments reuse the files of freed ones, and those in which they
//! must not.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use braid_store::disk::memory::{Fault, Memory, On};
use braid_store::format::record::{Kind, Record};
use braid_store::format::segment::SegmentHeader;
use braid_store::format::{DecodeError, FORMAT_VERSION};
use braid_store::*;

use crate::common::*;
use crate::enumerate::reused;

const SEGMENT: u64 = 64 << 10;

fn synced() -> Options {
    Options { segment_bytes: SEGMENT, ..Options::default() }
}

fn open_disk(disk: &Memory) -> Result<(Store, Recovery), Error> {
    Store::open_on(Arc::new(disk.clone()), None, synced())
}

/// A store in memory with object 1.
fn fresh_disk() -> (Memory, Store) {
    let disk = Memory::new(1);
    Store::format_on(&disk, identity(), &synced()).expect("format");
    let (store, _) = open_disk(&disk).expect("open");
    let make = Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 };
    store.commit(make).expect("make the partition");
    store.commit(create(1)).expect("create");
    (disk, store)
}

fn overwrite_to(store: &Store, n: u64, to: u32) {
    let settled = Write { standing: Standing::Installed, ..write(1, n % 2, 0, to, version(1, n)) };
    store.commit(Mutation::Write(settled)).expect("write");
}

fn overwrite(store: &Store, n: u64) {
    overwrite_to(store, n, 40_000);
}

/// Overwrite two units with versions from `n` on, often enough that many segments are freed and recycled.
fn churn(store: &Store, n: u64) {
    for n in n..n + 60 {
        overwrite(store, n);
        if n % 6 == 0 {
            store.checkpoint().expect("checkpoint");
        }
    }
}

fn spares(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir.join("log")).expect("listed").flatten();
    names.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "spare")).count()
}

#[test]
fn segments_are_made_of_freed_ones_and_what_those_held_is_gone() {
    let (disk, store) = fresh_disk();
    churn(&store, 1);
    assert!(reused(&disk) > 0 && store.stat().expect("stat").spare > 0);
    // Wherever the log ends in a recycled file, the old bytes behind its end are no torn tail.
    for n in 61..70 {
        overwrite(&store, n);
        let killed = disk.after_kill(n);
        let last = killed.files().into_iter().rfind(|name| name.ends_with(".seg")).expect("a segment");
        let before = killed.content(&last).expect("there").len();
        let (found, recovery) = open_disk(&killed).expect("open");
        assert_eq!(killed.content(&last).expect("there").len(), before, "the log goes on over it");
        assert_eq!(
            (recovery.damaged_count, recovery.torn_bytes),
            (0, 0),
            "after {n}: {:?}",
            recovery.damaged
        );
        for n in [n - 1, n] {
            let bytes = content(&found, 1, n % 2, 0, 40_000, Want::Newest).expect("read");
            assert!(bytes == pattern(n, 40_000), "version {n}");
        }
        assert!(killed.files().iter().all(|name| !name.ends_with(".spare")), "what was left is gone");
    }
    store.close().expect("close");
    assert!(disk.files().iter().all(|name| !name.ends_with(".spare")));
}

#[test]
fn what_a_reader_holds_and_what_was_sent_is_not_written_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), synced());
    store.commit(create(1)).expect("create");
    let read =
        |n: u64| store.read(P, braid_layout::ObjectId(1), n % 2, 0..40_000, Want::Newest).expect("read");
    overwrite(&store, 1);
    // The second read uses the header that the first one cached, and holds nothing else.
    read(1);
    let held = read(1);
    // Version 3 is in the next segment. The network may still use pages that were sent after their handle is
    // dropped.
    (2..=3).for_each(|n| overwrite(&store, n));
    let piece = read(3).pieces().remove(0);
    let sent = piece.lend().expect("a file").try_clone().expect("the same file");
    let offset = piece.offset;
    drop(piece);
    churn(&store, 4);
    assert!(store.stat().expect("stat").freed > 10 && spares(dir.path()) > 0);
    assert!(bytes_of(&held, 40_000).expect("still there") == pattern(1, 40_000));
    let mut bytes = vec![0; 40_000];
    sent.read_exact_at(&mut bytes, offset).expect("read");
    assert!(bytes == pattern(3, 40_000));
}

#[test]
fn what_a_killed_process_set_aside_is_harmless_and_goes() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), synced());
    store.commit(create(1)).expect("create");
    churn(&store, 1);
    // The first of two versions that fit into a segment.
    overwrite(&store, 61);
    assert!(spares(dir.path()) > 0);
    let left = tempfile::tempdir().expect("a directory");
    let copied = std::process::Command::new("cp").arg("-rT").arg(dir.path()).arg(left.path()).status();
    assert!(copied.expect("cp runs").success());
    store.close().expect("close");
    assert_eq!(spares(dir.path()), 0, "nothing is kept aside of a closed store");
    let report = inspect::check(left.path()).expect("checked");
    let found: Vec<_> = report.findings.iter().filter(|finding| finding.file.ends_with(".spare")).collect();
    assert!(report.damaged == 0 && !found.is_empty(), "{:?}", report.findings);
    assert!(report.findings.iter().all(|finding| finding.harmless && finding.file.ends_with(".spare")));
    let mut kinds = Vec::new();
    inspect::dump(left.path(), |line| {
        kinds.push(line.kind);
        true
    })
    .expect("printed");
    assert!(kinds.contains(&"behind") && !kinds.contains(&"bad"), "what is behind the end is nobody's");
    let (_store, recovery) = open_with(left.path(), synced());
    assert_eq!((recovery.damaged_count, recovery.torn_bytes), (0, 0), "{:?}", recovery.damaged);
    assert_eq!(spares(left.path()), 0);
}

/// A store with many recycled segments on a disk that is exactly full.
fn full_disk() -> (Memory, Store) {
    let (disk, store) = fresh_disk();
    churn(&store, 1);
    (0..40).for_each(|unit| {
        store.commit(Mutation::Write(write(1, 10 + unit, 0, 40_000, version(1, 100 + unit)))).expect("write");
    });
    store.commit(remove(1)).expect("remove");
    (0..2).for_each(|_| store.checkpoint().expect("checkpoint"));
    store.commit(create(2)).expect("create");
    assert!(store.stat().expect("stat").spare > 600 << 10, "{:?}", store.stat());
    (disk, store)
}

fn write_one(store: &Store) -> Result<MutationOutcome, Error> {
    store.commit(Mutation::Write(write(2, 0, 0, 40_000, version(1, 1))))
}

#[test]
fn they_go_when_space_is_short() {
    let (disk, store) = full_disk();
    let bytes = |name: &String| disk.content(name).expect("there").len();
    let all: usize = disk.files().iter().map(bytes).sum();
    disk.set_budget(Some(u64::try_from(all).expect("small")));
    write_one(&store).expect("it fits where they were");
    assert_eq!(store.stat().expect("stat").spare, 0);
    assert!(disk.files().iter().all(|name| !name.ends_with(".spare")));
}

/// The refused write is the first sign of the limit, as with a quota.
#[test]
fn they_go_when_a_write_finds_no_space_of_which_nothing_told() {
    let (disk, store) = full_disk();
    let now = disk.operations(On::Write);
    disk.inject(On::Write, now..now + 1, Fault::NoSpace);
    write_one(&store).expect("it fits where they were");
    assert_eq!(store.stat().expect("stat").spare, 0);
}

/// User data that looks like a newer release's record, in any store.
fn newer_record() -> Vec<u8> {
    let mut bytes = Record::new(Kind::Mark).encode();
    bytes[4..6].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    let crc = crc32c(&[&bytes[..252], &bytes[256..]].concat());
    bytes[252..256].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(decode_record(&bytes), Err(DecodeError::Version(newer)) if newer == FORMAT_VERSION + 1));
    bytes
}

#[test]
fn what_somebody_stored_is_not_taken_for_a_record() {
    let (disk, store) = fresh_disk();
    let bytes = newer_record().repeat(80);
    let mut n = 0;
    let mut put = |length: usize| {
        n += 1;
        let to = u32::try_from(length).expect("small");
        let plain = write(1, n % 2, 0, to, version(1, n));
        let settled = Write { standing: Standing::Installed, body: body(0, &bytes[..length]), ..plain };
        store.commit(Mutation::Write(settled)).expect("write");
    };
    for _ in 0..10 {
        (0..6).for_each(|_| put(bytes.len()));
        store.checkpoint().expect("checkpoint");
    }
    // Three log blocks at a time: every eighth time the log ends at a page's end, and the bytes behind it
    // were not overwritten.
    for n in 0..32 {
        put(1024);
        assert!(reused(&disk) > 0, "no segment was made of a freed one's file");
        if let Err(error) = open_disk(&disk.after_kill(1)) {
            panic!("{n}: {error}");
        }
    }
}

#[test]
fn what_was_there_at_opening_is_not_used_again() {
    let (disk, store) = fresh_disk();
    (1..20).for_each(|n| overwrite(&store, n));
    let disk = disk.after_kill(1);
    let last = disk.files().into_iter().rfind(|name| name.ends_with(".seg")).expect("a segment");
    let (store, _) = open_disk(&disk).expect("open");
    let mut spares = 0;
    for n in 20..80 {
        overwrite(&store, n);
        if n % 6 == 0 {
            store.checkpoint().expect("checkpoint");
        }
        for name in disk.files().iter().filter(|name| name.ends_with(".spare")) {
            assert!(name[..12] > last[..12], "{name}: an earlier process may have sent bytes of it");
            spares += 1;
        }
    }
    assert!(spares > 0);
}

#[test]
fn what_a_crash_kept_from_being_cut_off_a_sealed_segment_is_cut_at_opening() {
    let (disk, store) = fresh_disk();
    churn(&store, 1);
    // The segments are sealed before the end of their files' old contents.
    (61..69).for_each(|n| overwrite_to(&store, n, if n % 2 == 0 { 25_000 } else { 40_000 }));
    let disk = disk.after_kill(1);
    let used = |disk: &Memory| open_disk(disk).expect("open").0.stat().expect("stat").used;
    let expected = used(&disk.after_kill(1));
    let mut longer = Vec::new();
    let segments: Vec<_> = disk.files().into_iter().filter(|name| name.ends_with(".seg")).collect();
    for name in &segments[..segments.len() - 1] {
        let mut bytes = disk.content(name).expect("there");
        let length = bytes.len();
        let earlier = SegmentHeader::decode(&bytes).expect("a header").earlier_bytes;
        let earlier = usize::try_from(earlier).expect("small");
        if length < earlier {
            bytes.resize(earlier, 0x5a);
            disk.plant(name, &bytes);
            longer.push((name, length));
        }
    }
    assert!(!longer.is_empty());
    let (store, recovery) = open_disk(&disk).expect("open");
    assert_eq!((recovery.damaged_count, recovery.torn_bytes), (0, 0), "{:?}", recovery.damaged);
    assert_eq!(store.stat().expect("stat").used, expected);
    for (name, length) in longer {
        assert_eq!(disk.content(name).map(|bytes| bytes.len()), Some(length), "{name}");
    }
}

#[test]
fn they_go_when_a_checkpoint_finds_no_space() {
    let (disk, store) = full_disk();
    let now = disk.operations(On::Write);
    disk.inject(On::Write, now..now + 1, Fault::NoSpace);
    store.checkpoint().expect("it fits where they were");
    assert_eq!(store.stat().expect("stat").spare, 0);
}
