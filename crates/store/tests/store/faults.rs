//! Disk faults whose effects show only after several operations.

use std::sync::Arc;

use braid_layout::ObjectId;
use braid_store::disk::memory::{Fault, Memory, On};
use braid_store::*;

use crate::common::*;
use crate::enumerate::commit_together;
use crate::enumerate::observe::{differences, observe};

fn small() -> Options {
    Options { segment_bytes: 64 << 10, ..Options::default() }
}

fn open_disk(disk: &Memory) -> (Store, Recovery) {
    Store::open_on(Arc::new(disk.clone()), None, small()).expect("open")
}

/// A store with object 1.
fn fresh_disk() -> (Memory, Store) {
    let disk = Memory::new(1);
    Store::format_on(&disk, identity(), &small()).expect("format");
    let (store, _) = open_disk(&disk);
    let make = Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 };
    store.commit(make).expect("make the partition");
    store.commit(create(1)).expect("create");
    (disk, store)
}

/// The next segment's header is written, its sync fails, and the file cannot be removed. The header then
/// looks valid but is not on the medium, and no later sync brings it there.
#[test]
fn a_segment_whose_making_failed_is_not_gone_on_with() {
    let (disk, store) = fresh_disk();
    store.commit(Mutation::Write(write(1, 0, 0, UNIT, version(1, 1)))).expect("fills the segment");
    let sync = disk.operations(On::Sync);
    let name = disk.operations(On::Name);
    disk.inject(On::Sync, sync..sync + 1, Fault::Io);
    disk.inject(On::Name, name + 1..name + 2, Fault::Io);
    let refused = store.commit(Mutation::Write(write(1, 1, 0, 100, version(1, 2))));
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    assert!(disk.content("log/00000002.seg").is_some(), "it is still there");
    let killed = disk.after_kill(1);
    let (store, recovery) = open_disk(&killed);
    assert_eq!(recovery.damaged_count, 0, "{:?}", recovery.damaged);
    store.commit(Mutation::Write(write(1, 2, 0, 100, version(1, 3)))).expect("write");
    for seed in 0..8 {
        let (store, recovery) = open_disk(&killed.after_power_cut(seed));
        assert_eq!(recovery.damaged_count, 0, "seed {seed}: {:?}", recovery.damaged);
        assert_eq!(content(&store, 1, 2, 0, 100, Want::Newest).expect("acknowledged"), pattern(3, 100));
    }
}

/// One read returns a flipped bit; the medium is right.
#[test]
fn no_single_bad_read_of_opening_is_believed() {
    let (disk, store) = fresh_disk();
    for n in 0..6 {
        store.commit(Mutation::Write(write(1, n, 0, 20_000, version(1, 1 + n)))).expect("write");
        if n % 2 == 0 {
            store.checkpoint().expect("checkpoint");
        }
    }
    let expected = observe(&store).expect("read");
    let killed = disk.after_kill(1);
    drop(store);
    let mut bad = 0;
    for n in 0.. {
        let disk = killed.after_kill(n);
        disk.inject(On::Read, n..n + 1, Fault::Flip);
        let opened = Store::open_on(Arc::new(disk.clone()), None, small());
        let (store, recovery) = opened.unwrap_or_else(|error| panic!("read {n}: {error}"));
        let reads = disk.operations(On::Read);
        assert_eq!((recovery.damaged_count, recovery.torn_bytes), (0, 0), "read {n}: {:?}", recovery.damaged);
        assert_eq!(differences(&expected, &observe(&store).expect("read")), "", "read {n}");
        bad += 1;
        if n >= reads {
            break;
        }
    }
    assert!(bad > 10, "opening has more reads than {bad}");
}

/// With a quota or a thin volume the sync reports the lack of space, not the write. After a disk failed each
/// sync for a while and recovered, the store accepts writes again by itself. It holds the writes that it
/// acknowledged before and after, and nothing else.
#[test]
fn a_disk_that_failed_for_a_while_is_written_to_again() {
    let (disk, store) = fresh_disk();
    let put = |n| store.commit(Mutation::Write(write(1, n, 0, 500, version(1, n))));
    put(1).expect("written");
    let begin = disk.operations(On::Sync);
    // Three segments in a row, and one more after the first pause.
    disk.inject(On::Sync, begin..begin + 4, Fault::Io);
    let refused: Vec<Error> = (2..30).map(|n| put(n).expect_err("each sync fails")).collect();
    assert!(refused.iter().any(|error| matches!(error, Error::Io { .. })), "{refused:?}");
    assert!(matches!(refused.last(), Some(Error::Resting)), "it does not go on making segments: {refused:?}");
    assert_eq!(content(&store, 1, 1, 0, 500, Want::Newest).expect("it reads"), pattern(1, 500));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while put(30).is_err() {
        assert!(std::time::Instant::now() < until, "it never takes writes again");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    put(31).expect("and goes on");
    let there = [1, 30, 31];
    for seed in 0..8 {
        let (store, recovery) = open_disk(&disk.after_power_cut(seed));
        assert_eq!(recovery.damaged_count, 0, "seed {seed}: {:?}", recovery.damaged);
        assert_eq!(store.units(P, ObjectId(1), 0, 1000).expect("units"), there, "seed {seed}");
    }
}

#[test]
fn a_log_whose_syncs_find_no_space_goes_on_when_there_is_some() {
    let (disk, store) = fresh_disk();
    let fits = |n| match store.commit(Mutation::Write(write(1, n, 0, 500, version(1, n)))) {
        Ok(_) => true,
        Err(Error::Full { .. }) => false,
        Err(error) => panic!("{error}"),
    };
    assert!(fits(1));
    let mut there = vec![1];
    for n in 2..80 {
        // The commit's sync, then the first one in several new segments; then any, several in a row.
        let (after, times) = match n {
            2 => (0, 1),
            3..8 => (2, 1),
            _ => (n % 4, 1 + n % 3),
        };
        let begin = disk.operations(On::Sync) + after;
        disk.inject(On::Sync, begin..begin + times, Fault::NoSpace);
        there.extend(fits(n).then_some(n));
    }
    assert!(there.len() < 60, "{} of 79 found space", there.len());
    let create = (0..20).find_map(|_| store.commit(create(2)).ok());
    assert_eq!(create, Some(MutationOutcome::Applied));
    // Several commits, with a remove among them, are tried one by one.
    let before = disk.files().len();
    let end = disk.operations(On::Sync) + 200;
    disk.inject(On::Sync, end - 200..end, Fault::NoSpace);
    let many = (0..50).map(|n| Mutation::Write(write(1, 200 + n, 0, 500, version(1, 200 + n))));
    let answers = commit_together(&store, &many.chain([remove(2)]).collect::<Vec<_>>());
    let full = |answer: &Result<MutationOutcome, Error>| matches!(answer, Err(Error::Full { .. }));
    assert!(answers.iter().all(full), "{answers:?}");
    let last = (300..).find(|&n| fits(n)).expect("there is space again");
    assert!(disk.operations(On::Sync) >= end, "not before");
    there.push(last);
    assert!(disk.files().len() <= before + 1, "a file for each: {:?}", disk.files());
    store.commit(remove(2)).expect("a remove too");
    let check = |store: &Store| {
        for &n in &there {
            let bytes = content(store, 1, n, 0, 500, Want::Newest).expect("acknowledged");
            assert_eq!(bytes, pattern(n, 500), "unit {n}");
        }
        assert_eq!(store.units(P, ObjectId(1), 0, 1000).expect("units"), there, "and nothing else");
    };
    check(&store);
    for seed in 0..8 {
        let (store, recovery) = open_disk(&disk.after_power_cut(seed));
        assert_eq!(recovery.damaged_count, 0, "seed {seed}: {:?}", recovery.damaged);
        check(&store);
    }
}

#[test]
fn a_segment_that_cannot_be_removed_takes_its_space() {
    let mut kept = 0;
    for k in 0..12 {
        let (disk, store) = fresh_disk();
        for n in 0..8 {
            store.commit(Mutation::Write(write(1, 0, 0, UNIT, version(1, 1 + n)))).expect("write");
        }
        store.checkpoint().expect("checkpoint");
        let name = disk.operations(On::Name);
        // A file that cannot be recycled is removed: both fail.
        disk.inject(On::Name, name + k..name + k + 2, Fault::Io);
        let _ = store.checkpoint();
        store.commit(Mutation::Flush).expect("flush");
        let files = disk.files();
        let of_the_log = files.iter().filter(|name| name.ends_with(".seg"));
        let lengths = of_the_log.map(|name| disk.content(name).expect("there").len());
        let files = lengths.clone().count();
        let log = u64::try_from(lengths.sum::<usize>()).expect("small");
        let stat = store.stat().expect("stat");
        assert!(stat.used >= log, "name operation {k}: {} is said to be used of {log}", stat.used);
        kept += u64::from(u64::try_from(files).expect("small") > stat.segments);
    }
    assert!(kept > 0, "some segment was left");
}

/// The checkpoint has its name, but the directory's sync fails: the checkpoint does not count, and is
/// removed. If the removal fails, it is removed once the next checkpoint is there.
#[test]
fn a_checkpoint_whose_name_may_not_last_is_taken_away() {
    let (disk, store) = fresh_disk();
    let there =
        || disk.files().into_iter().filter(|name| name.starts_with("checkpoint/")).collect::<Vec<_>>();
    for n in 0..3 {
        store.commit(Mutation::Write(write(1, n, 0, 500, version(1, 1 + n)))).expect("write");
        store.checkpoint().expect("checkpoint");
    }
    assert_eq!(there().len(), 2, "{:?}", there());
    for stays in [false, true] {
        // The sync of its file, then that of its directory.
        let sync = disk.operations(On::Sync);
        let name = disk.operations(On::Name);
        disk.inject(On::Sync, sync + 1..sync + 2, Fault::Io);
        if stays {
            // The checkpoint's directory and file are created, obstacles are removed; then the file is
            // renamed, and removed twice.
            disk.inject(On::Name, name + 4..name + 6, Fault::Io);
        }
        assert!(matches!(store.checkpoint(), Err(Error::Io { .. })));
        assert_eq!(there().len(), 2 + usize::from(stays), "{:?}", there());
        store.checkpoint().expect("the next");
        assert_eq!(there().len(), 2, "{:?}", there());
    }
    drop(store);
    let (_, recovery) = open_disk(&disk.after_power_cut(1));
    assert_eq!(recovery.damaged_count, 0, "{:?}", recovery.damaged);
}

#[test]
fn verifying_looks_at_the_medium() {
    let (disk, store) = fresh_disk();
    store.commit(Mutation::Write(write(1, 0, 0, 5000, version(1, 1)))).expect("write");
    let log = disk.content("log/00000001.seg").expect("there");
    let payload = pattern(1, 5000);
    let at = log.windows(16).position(|window| window == &payload[4200..4216]).expect("the payload");
    // The damage is in the payload, then in the record's header.
    for at in [at, at - 4200 - 500] {
        store.verify_unit(P, ObjectId(1), 0).expect("whole");
        let bit = 8 * u64::try_from(at).expect("small");
        assert!(disk.rot("log/00000001.seg", bit));
        assert_eq!(content(&store, 1, 0, 0, 5000, Want::Newest).expect("from the cache"), payload);
        let verified = store.verify_unit(P, ObjectId(1), 0);
        assert!(matches!(verified, Err(Error::Damaged { .. })), "{verified:?}");
        assert!(disk.rot("log/00000001.seg", bit), "right again");
    }
    store.verify_unit(P, ObjectId(1), 0).expect("whole");
}
