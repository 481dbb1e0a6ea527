//! An idle store frees the space that it does not need.

use std::time::Duration;

use braid_store::*;

use crate::common::*;

const UNITS: u64 = 200;

fn limited() -> Options {
    Options { segment_bytes: 256 << 10, capacity: Some(64 << 20), ..Options::default() }
}

fn resting() -> Options {
    Options { give_back: Some(Duration::from_millis(20)), ..limited() }
}

/// Fill objects 1 and 2 with alternating units, so that both are in every segment.
fn fill(store: &Store) {
    for object in 1..=2 {
        store.commit(create(object)).expect("create");
    }
    for unit in 0..UNITS {
        for object in 1..=2 {
            let length = if object == 1 { UNIT } else { UNIT / 8 };
            let version = version(1, 2 * unit + object);
            let settled = Write { standing: Standing::Installed, ..write(object, unit, 0, length, version) };
            store.commit(Mutation::Write(settled)).expect("write");
        }
    }
}

fn until(store: &Store, what: &str, is: impl Fn(&Stat) -> bool) {
    braid_testing::until(what, || is(&store.stat().expect("stat")));
}

#[test]
fn what_was_removed_is_given_back_though_space_is_not_short() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), resting());
    fill(&store);
    let full = store.stat().expect("stat");
    assert!(full.used > u64::from(UNIT) * UNITS, "{full:?}");
    store.commit(remove(1)).expect("remove");
    // Each segment still holds bytes of object 2, which are moved.
    until(&store, "the space is back", |stat| stat.used < full.used / 4 && stat.moved > 0);
    for unit in 0..UNITS {
        let read = content(&store, 2, unit, 0, UNIT / 8, Want::Newest).expect("read");
        assert_eq!(read, pattern(2 * unit + 2, usize::try_from(UNIT / 8).expect("small")), "unit {unit}");
    }
    store.commit(remove(2)).expect("remove");
    until(&store, "all of it is back", |stat| stat.used < 1 << 20);
    until(&store, "few files are kept", |stat| stat.spare <= 2 * (512 << 10));
    let stat = store.stat().expect("stat");
    assert!(stat.free + stat.used + stat.capacity / 8 >= stat.capacity, "{stat:?}");
    store.close().expect("close");
    drop(store);
    let (_store, recovery) = open_with(dir.path(), resting());
    assert_eq!(recovery.damaged_count, 0, "{:?}", recovery.damaged);
}

#[test]
fn a_store_that_is_held_writes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), limited());
    fill(&store);
    store.commit(remove(1)).expect("remove");
    let end = store.last_record();
    let held = Options { held: true, ..resting() };
    let copy_dir = tempfile::tempdir().expect("a directory");
    // As after a kill: no mark of a clean close.
    copy(dir.path(), copy_dir.path());
    for _ in 0..2 {
        let (store, _) = open_with(copy_dir.path(), held.clone());
        assert_eq!(store.last_record(), end);
        // Many times the idle time.
        std::thread::sleep(Duration::from_millis(400));
        assert!(matches!(store.commit(remove(2)), Err(Error::Held)), "nor for others");
        assert_eq!((store.last_record(), store.stat().expect("stat").moved), (end, 0));
        store.close().expect("close");
        assert_eq!(store.last_record(), end);
    }
    let (store, _) = open_with(copy_dir.path(), held);
    store.release();
    until(&store, "it has moved something", |stat| stat.moved > 0);
    assert!(store.last_record() > end);
    store.commit(remove(2)).expect("remove");
}

#[test]
fn spare_files_and_what_is_free_are_told_apart_from_the_reserve() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), limited());
    fill(&store);
    let before = store.stat().expect("stat");
    // About the reported space is available to writes: a sixteenth is reserved.
    assert!(before.free + before.used <= before.capacity - before.capacity / 16, "{before:?}");
    assert!(before.free + before.used >= before.capacity - before.capacity / 8, "{before:?}");
    store.commit(remove(1)).expect("remove");
    store.commit(remove(2)).expect("remove");
    for _ in 0..2 {
        store.checkpoint().expect("checkpoint");
    }
    let after = store.stat().expect("stat");
    assert!(after.spare > 0 && after.freed > 0, "{after:?}");
    assert_eq!(after.capacity, before.capacity, "spare files take nothing of it");
    assert!(after.free > before.free + u64::from(UNIT) * UNITS / 2, "{after:?}");
    // Without an idle time nothing else is freed on its own.
    let mut written = 0;
    for unit in 0..2000 {
        let settled = Write { standing: Standing::Installed, ..write(10 + unit, 0, 0, UNIT, version(1, 1)) };
        let created = store.commit(create(10 + unit));
        match created.and_then(|_| store.commit(Mutation::Write(settled))) {
            Ok(_) => written += u64::from(UNIT),
            Err(Error::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(written + after.free / 8 > after.free, "{written} of {} that were told", after.free);
}
