//! Damaged and missing checkpoints: the damage is repaired where possible, and otherwise known. Lost state
//! never reads as absent or as an older version.

use std::path::{Path, PathBuf};

use braid_layout::ObjectId;
use braid_store::format::page::{Key, PageHead};
use braid_store::*;
use proptest::prelude::*;

use crate::common::*;

/// Enough objects for several pages.
const OBJECTS: u64 = 120;
/// An object whose units fill pages of their own.
const BIG: u64 = 50;
const BIG_UNITS: u64 = 6000;

fn large(object: u64) -> Mutation {
    let attributes = Attributes { opaque: vec![1; 2000], ..attributes() };
    Mutation::Create { partition: P, object: ObjectId(object), attributes }
}

/// The stamp of the last write to each object's unit 0.
fn stamp(object: u64, round: u64) -> u64 {
    1000 * round + object
}

fn write_all(store: &Store, round: u64) {
    for object in 0..OBJECTS {
        store
            .commit(Mutation::Write(write(object, 0, 0, 100, version(1, stamp(object, round)))))
            .expect("write");
    }
}

/// A store with two checkpoints and a tail, as a killed process leaves it.
fn image(dir: &Path, big: bool) {
    let live = tempfile::tempdir().expect("a directory");
    let store = fresh(live.path(), options());
    for object in 0..OBJECTS {
        store.commit(large(object)).expect("create");
    }
    if big {
        for unit in 1..BIG_UNITS {
            let answered = Box::new(|answer: Result<MutationOutcome, Error>| {
                answer.expect("write");
            });
            store.submit(Mutation::Write(write(BIG, unit, 0, 10, version(2, unit))), answered);
        }
    }
    write_all(&store, 1);
    store.checkpoint().expect("checkpoint");
    write_all(&store, 2);
    store.checkpoint().expect("checkpoint");
    write_all(&store, 3);
    store.commit(Mutation::Flush).expect("flush");
    copy(live.path(), dir);
}

/// A file's pages: their offsets and heads.
fn pages(path: &Path) -> Vec<(usize, PageHead)> {
    let bytes = std::fs::read(path).expect("read");
    let heads =
        (0..bytes.len()).step_by(512).filter_map(|at| Some((at, PageHead::decode(&bytes[at..]).ok()?.0)));
    heads.collect()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("read");
    bytes[at] ^= 0x40;
    std::fs::write(path, bytes).expect("write");
}

fn newest(dir: &Path) -> PathBuf {
    checkpoints(dir).pop().expect("a checkpoint")
}

fn judge(store: &Store, object: u64) {
    let read = content(store, object, 0, 0, 100, Want::Newest).expect("read");
    assert_eq!(read, pattern(stamp(object, 3), 100), "object {object}");
}

fn object_of(key: Key) -> u64 {
    match key {
        Key::At(P, Some(object)) => object.0,
        Key::At(..) => 0,
        Key::End => u64::MAX,
    }
}

#[test]
fn a_bad_page_is_made_good_from_the_older_checkpoint() {
    let dir = tempfile::tempdir().expect("a directory");
    image(dir.path(), true);
    let path = newest(dir.path());
    let pages = pages(&path);
    assert!(pages.len() > 8, "{} pages", pages.len());
    assert!(pages.iter().any(|(_, head)| head.parts > 3), "a big object has pages of its own");
    for (at, head) in [pages[0], pages[3], pages[pages.len() / 2], pages[pages.len() - 1]] {
        let copied = tempfile::tempdir().expect("a directory");
        copy(dir.path(), copied.path());
        flip(&newest(copied.path()), at + 300);
        let (store, recovery) = open(copied.path());
        assert!(recovery.damaged_count >= 1, "page from {} was not found", head.from);
        assert_eq!(recovery.damaged[0].offset, u64::try_from(at).expect("small"), "{:?}", recovery.damaged);
        (0..OBJECTS).for_each(|object| judge(&store, object));
        drop(store);
        let (_, recovery) = open(copied.path());
        assert_eq!(recovery.damaged_count, 0, "the damaged one was replaced: {:?}", recovery.damaged);
    }
}

#[test]
fn without_an_older_one_the_keys_of_a_bad_page_are_lost_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    image(dir.path(), true);
    std::fs::remove_file(&checkpoints(dir.path())[0]).expect("remove the older");
    let path = newest(dir.path());
    let parts: Vec<_> = pages(&path).into_iter().filter(|(_, head)| head.parts > 1).collect();
    let plain: Vec<_> = pages(&path).into_iter().filter(|(_, head)| head.parts == 1).collect();
    for (at, head) in [plain[2], *plain.last().expect("one"), parts[0], parts[1], parts[parts.len() - 1]] {
        let copied = tempfile::tempdir().expect("a directory");
        copy(dir.path(), copied.path());
        flip(&newest(copied.path()), at + 300);
        let (store, recovery) = open(copied.path());
        assert!(recovery.damaged_count >= 1);
        let lost = object_of(head.from)..object_of(head.to);
        check_lost(&store, &lost);
        drop(store);
        let (store, recovery) = open(copied.path());
        assert_eq!(recovery.damaged_count, 0, "it is known by now: {:?}", recovery.damaged);
        check_lost(&store, &lost);
        check_made_anew(store, copied.path(), lost.start);
    }
}

/// Only the newest checkpoint knows that the log's last record was durable. It is not loaded, as one of its
/// pages is damaged, and the record is damaged too: that is damage, not a torn tail.
#[test]
fn a_checkpoint_that_is_not_chosen_still_says_what_was_durable() {
    for trailer in [true, false] {
        let live = tempfile::tempdir().expect("a directory");
        let dir = tempfile::tempdir().expect("a directory");
        let store = fresh(live.path(), Options { sync: true, ..options() });
        for object in 0..OBJECTS {
            store.commit(large(object)).expect("create");
        }
        write_all(&store, 1);
        store.checkpoint().expect("checkpoint");
        let last = write(1, 0, 0, 100, version(1, stamp(1, 2)));
        store.commit(Mutation::Write(last)).expect("write");
        store.checkpoint().expect("checkpoint");
        copy(live.path(), dir.path());
        let path = newest(dir.path());
        flip(&path, pages(&path)[0].0 + 300);
        if !trailer {
            flip(&path, usize::try_from(std::fs::metadata(&path).expect("stat").len()).expect("small") - 400);
        }
        let log = segments(dir.path()).pop().expect("a segment");
        let length = usize::try_from(std::fs::metadata(&log).expect("stat").len()).expect("small");
        // The last record's header begins two blocks before the end, as its payload takes one.
        flip(&log, length - 1024 + 100);
        let (store, recovery) = open(dir.path());
        assert_eq!((recovery.checkpoint, recovery.torn_bytes), (1, 0), "{:?}", recovery.damaged);
        let read = content(&store, 1, 0, 0, 100, Want::Newest);
        assert!(matches!(read, Err(Error::Damaged { .. })), "trailer {trailer}: {read:?}");
        store.commit(Mutation::Write(write(5, 0, 0, 9, version(1, 90_000)))).expect_err("any may be hit");
        // The store is killed again, before a checkpoint records the loss. No record names the lost one.
        store
            .commit(Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 })
            .expect("made anew");
        let killed = tempfile::tempdir().expect("a directory");
        copy_log(dir.path(), killed.path());
        let first = "checkpoint/00000001.ckp";
        std::fs::copy(dir.path().join(first), killed.path().join(first)).expect("copy");
        let (store, _) = open(killed.path());
        let read = content(&store, 1, 0, 0, 100, Want::Newest);
        assert!(matches!(read, Err(Error::Damaged { .. })), "trailer {trailer}, once more: {read:?}");
    }
}

/// Damage in so many pieces that the lost ranges fill pages of their own.
#[test]
fn thousands_of_lost_ranges_are_kept() {
    const PIECES: u64 = 3000;
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    let log = segments(dir.path()).pop().expect("a segment");
    let at = usize::try_from(std::fs::metadata(&log).expect("stat").len()).expect("small");
    for n in 1..4 {
        store.commit(Mutation::Write(write(1, n, 0, 6144, version(1, n)))).expect("write");
    }
    store.close().expect("close");
    drop(store);
    without_checkpoints(dir.path());
    // On different pages, so that no record names the first one's subject.
    flip(&log, at);
    flip(&log, at + 512 + 6144);
    let (store, _) = open(dir.path());
    store
        .commit(Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 })
        .expect("the partition");
    for object in 0..PIECES {
        let removed = remove(2 * object);
        assert_eq!(store.commit(removed).expect("remove"), MutationOutcome::Applied);
    }
    store.close().expect("close");
    drop(store);
    let path = newest(dir.path());
    let length = usize::try_from(std::fs::metadata(&path).expect("stat").len()).expect("small");
    let ends = pages(&path).into_iter().map(|(at, _)| at).skip(1).chain([length]);
    assert!(ends.zip(pages(&path)).all(|(end, (at, _))| end - at < 100_000), "no page is long");
    let (store, recovery) = open(dir.path());
    assert_eq!((recovery.records, recovery.damaged_count), (0, 0), "{:?}", recovery.damaged);
    for object in 0..PIECES {
        let removed = store.object(P, ObjectId(2 * object));
        let lost = store.object(P, ObjectId(2 * object + 1));
        assert!(matches!(removed, Err(Error::NoObject(..))), "object {}: {removed:?}", 2 * object);
        assert!(matches!(lost, Err(Error::Damaged { .. })), "object {}: {lost:?}", 2 * object + 1);
    }
}

/// A page with a valid checksum that is not part of the checkpoint does not count: it is from before the file
/// was begun, or has a wrong index.
#[test]
fn a_page_that_is_not_the_files_own_is_none() {
    let dir = tempfile::tempdir().expect("a directory");
    image(dir.path(), false);
    let path = newest(dir.path());
    let good = std::fs::read(&path).expect("read");
    let (at, head) = pages(&path)[2];
    let entries = PageHead::decode(&good[at..]).expect("a page").1.to_vec();
    let others =
        [PageHead { as_of: 1, ..head }, PageHead { index: 1, ..head }, PageHead { index: 999, ..head }];
    for head in others {
        let copied = tempfile::tempdir().expect("a directory");
        copy(dir.path(), copied.path());
        let mut bad = good.clone();
        let page = head.encode(&entries);
        bad[at..at + page.len()].copy_from_slice(&page);
        std::fs::write(newest(copied.path()), bad).expect("write");
        let (store, recovery) = open(copied.path());
        assert_eq!(recovery.checkpoint, 1, "{head:?}: {:?}", recovery.damaged);
        (0..OBJECTS).for_each(|object| judge(&store, object));
    }
}

fn check_lost(store: &Store, lost: &std::ops::Range<u64>) {
    for object in 0..OBJECTS {
        if !lost.contains(&object) {
            judge(store, object);
            continue;
        }
        let read = content(store, object, 0, 0, 100, Want::Newest);
        assert!(matches!(read, Err(Error::Damaged { .. })), "object {object}: {read:?}");
        assert!(matches!(store.object(P, ObjectId(object)), Err(Error::Damaged { .. })));
        let refused = store.commit(Mutation::Write(write(object, 0, 0, 9, version(1, 90_000))));
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    }
    let absent = store.object(P, ObjectId(lost.end.saturating_add(OBJECTS)));
    assert_eq!(matches!(absent, Err(Error::NoObject(..))), lost.end < u64::MAX, "{absent:?}");
}

/// Lost objects can be made anew or removed, and stay made or removed.
fn check_made_anew(store: Store, dir: &Path, first: u64) {
    let made = ObjectId(first);
    let removed = ObjectId(first + 1);
    assert_eq!(store.commit(large(first)).expect("create"), MutationOutcome::Applied);
    assert_eq!(store.commit(remove(first + 1)).expect("remove"), MutationOutcome::Applied);
    let copied = tempfile::tempdir().expect("a directory");
    store.commit(Mutation::Flush).expect("flush");
    copy(dir, copied.path());
    let (replayed, _) = open(copied.path());
    drop(store);
    let (loaded, _) = open(dir);
    for store in [replayed, loaded] {
        assert_eq!(store.versions(P, made, 0..9).expect("made anew"), []);
        assert!(matches!(store.object(P, removed), Err(Error::NoObject(..))));
    }
}

#[test]
fn what_is_made_after_a_lost_page_is_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let live = tempfile::tempdir().expect("a directory");
    let store = fresh(live.path(), options());
    for object in (0..OBJECTS).step_by(2) {
        store.commit(large(object)).expect("create");
    }
    store.checkpoint().expect("checkpoint");
    store.commit(create(91)).expect("create");
    store.commit(Mutation::Write(write(91, 0, 0, 100, version(1, stamp(91, 3))))).expect("write");
    store.commit(Mutation::Write(write(90, 0, 0, 100, version(1, 7)))).expect("write");
    copy(live.path(), dir.path());
    let path = newest(dir.path());
    let page = pages(&path).into_iter().find(|(_, head)| object_of(head.to) > 91).expect("a page");
    flip(&path, page.0 + 200);
    // The log is intact from its first record on, but there is no older checkpoint.
    let (store, recovery) = open(dir.path());
    assert!(recovery.damaged_count >= 1);
    judge(&store, 91);
    assert!(matches!(content(&store, 90, 0, 0, 9, Want::Newest), Err(Error::Damaged { .. })));
}

#[test]
fn either_end_of_the_file_will_do() {
    let dir = tempfile::tempdir().expect("a directory");
    image(dir.path(), false);
    let length = usize::try_from(std::fs::metadata(newest(dir.path())).expect("stat").len()).expect("small");
    let header = 100;
    let trailer = length - 400;
    // Damage in the table, in the block, in both; and in both ends, which is as if the file did not exist.
    for (places, number) in [
        (vec![header], 2),
        (vec![600], 2),
        (vec![trailer], 2),
        (vec![length - 512 - 300], 2),
        (vec![header, trailer], 1),
    ] {
        let copied = tempfile::tempdir().expect("a directory");
        copy(dir.path(), copied.path());
        places.iter().for_each(|&at| flip(&newest(copied.path()), at));
        let (store, recovery) = open(copied.path());
        assert_eq!(recovery.checkpoint, number, "{places:?}");
        assert_eq!(recovery.damaged_count >= 1, !places.is_empty(), "{places:?}: {:?}", recovery.damaged);
        (0..OBJECTS).for_each(|object| judge(&store, object));
    }
}

#[test]
fn a_file_cut_short_is_made_good_too() {
    let dir = tempfile::tempdir().expect("a directory");
    image(dir.path(), false);
    for keep in [0, 100, 512, 1024, 70_000, 200_000] {
        let copied = tempfile::tempdir().expect("a directory");
        copy(dir.path(), copied.path());
        let file = std::fs::OpenOptions::new().write(true).open(newest(copied.path())).expect("open");
        file.set_len(keep).expect("cut");
        let (store, recovery) = open(copied.path());
        assert_eq!(recovery.checkpoint, 1, "cut at {keep}");
        assert!(recovery.damaged_count >= 1);
        (0..OBJECTS).for_each(|object| judge(&store, object));
    }
}

#[test]
fn without_any_checkpoint_the_whole_log_is_needed() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    for object in 0..OBJECTS {
        store.commit(large(object)).expect("create");
    }
    write_all(&store, 3);
    store.close().expect("close");
    drop(store);
    without_checkpoints(dir.path());
    let (store, recovery) = open(dir.path());
    assert_eq!((recovery.checkpoint, recovery.damaged_count), (0, 0));
    (0..OBJECTS).for_each(|object| judge(&store, object));
    drop(store);
    without_checkpoints(dir.path());
    std::fs::remove_file(&segments(dir.path())[0]).expect("remove");
    let refused = Store::open(dir.path(), None, options());
    assert!(matches!(refused, Err(Error::Damaged { segment: 1, .. })), "{refused:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_checkpoint_opens_without_panic_and_nothing_wrong_is_read(
        spoils in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8, 1..3000_usize, any::<bool>()), 1..4),
        both in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let live = tempfile::tempdir().expect("a directory");
        let store = fresh(live.path(), options());
        for object in 0..8 {
            store.commit(create(object)).expect("create");
        }
        for round in 1..4 {
            for object in 0..8 {
                let stamp = stamp(object, round);
                store.commit(Mutation::Write(write(object, 0, 0, 100, version(1, stamp)))).expect("write");
            }
            store.checkpoint().expect("checkpoint");
        }
        copy(live.path(), dir.path());
        let paths = checkpoints(dir.path());
        for path in &paths[usize::from(!both)..] {
            let mut bytes = std::fs::read(path).expect("read");
            for (at, bit, length, zero) in &spoils {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
                if *zero {
                    bytes[at..].iter_mut().take(*length).for_each(|byte| *byte = 0);
                }
            }
            std::fs::write(path, bytes).expect("write");
        }
        let Ok((store, recovery)) = Store::open(dir.path(), None, options()) else { return Ok(()) };
        for object in 0..8 {
            match content(&store, object, 0, 0, 100, Want::Newest) {
                Ok(read) => prop_assert_eq!(read, pattern(stamp(object, 3), 100)),
                Err(Error::Damaged { .. }) => prop_assert!(both && recovery.damaged_count > 0),
                Err(error) => prop_assert!(false, "object {}: {}", object, error),
            }
        }
    }
}
