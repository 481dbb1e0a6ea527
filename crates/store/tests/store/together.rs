//! Mutations that are queued together are decided one after the other, whether they are in one commit or not.

use std::sync::Arc;

use braid_store::disk::memory::{Fault, Memory, On};
use braid_store::*;

use crate::common::*;
use crate::enumerate::commit_together;

/// A write to a unit settles another's pending version. An install queued behind it is older than the version
/// that is then settled, and must not replace it.
#[test]
fn an_install_does_not_undo_what_the_write_before_it_settles() {
    let disk = Memory::new(1);
    Store::format_on(&disk, identity(), &options()).expect("format");
    let open = || Store::open_on(Arc::new(disk.clone()), None, options()).expect("open").0;
    let store = open();
    let make = Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 };
    let installed = |n| Write { standing: Standing::Installed, ..write(1, 3, 0, 5000, version(1, n)) };
    for mutation in
        [make, create(1), Mutation::Write(installed(2)), Mutation::Write(write(1, 3, 0, 5000, version(1, 5)))]
    {
        store.commit(mutation).expect("commit");
    }
    let settling = Write { settled_below: version(1, 6), ..write(1, 4, 0, 5000, version(1, 6)) };
    let answers = commit_together(&store, &[Mutation::Write(settling), Mutation::Write(installed(4))]);
    let answers: Vec<MutationOutcome> =
        answers.into_iter().map(|answer| answer.expect("an answer")).collect();
    assert_eq!(answers, [MutationOutcome::Applied, MutationOutcome::Older { tip: version(1, 5) }]);
    let check = |store: &Store| {
        assert_eq!(content(store, 1, 3, 0, 5000, Want::Settled).expect("read"), pattern(5, 5000));
        assert_eq!(store.unsettled(P, braid_layout::ObjectId(1)).expect("list"), [4]);
    };
    check(&store);
    drop(store);
    check(&open());
}

/// A store on a disk that counts, with the partition, and how to open it again.
fn counted() -> (Memory, Store) {
    let disk = Memory::new(1);
    let options = Options { sync: true, ..options() };
    Store::format_on(&disk, identity(), &options).expect("format");
    let store = Store::open_on(Arc::new(disk.clone()), None, options).expect("open").0;
    store.commit(partition()).expect("partition");
    (disk, store)
}

fn opened_again(disk: &Memory, seed: u64) -> Store {
    Store::open_on(Arc::new(disk.after_power_cut(seed)), None, options()).expect("open").0
}

fn first(object: u64, unit: u64) -> Mutation {
    Mutation::Write(write(object, unit, 0, 5000, version(1, object)))
}

/// A small file's object and its only write cost one sync.
#[test]
fn a_write_to_what_the_commit_creates_is_in_it() {
    let (disk, store) = counted();
    let before = disk.operations(On::Sync);
    let many: Vec<Mutation> =
        (1..=10).flat_map(|object| [create(object), first(object, 0), first(object, 7)]).collect();
    let answers = commit_together(&store, &many);
    assert!(answers.iter().all(|answer| matches!(answer, Ok(MutationOutcome::Applied))), "{answers:?}");
    assert_eq!(disk.operations(On::Sync) - before, 1);
    // The object is there by now: its creation is no change, and the writes that follow are decided on the
    // existing object.
    let again = commit_together(&store, &[create(1), first(1, 0), create(11)]);
    let again: Vec<MutationOutcome> = again.into_iter().map(|answer| answer.expect("an answer")).collect();
    assert_eq!(again, [MutationOutcome::Already, MutationOutcome::Already, MutationOutcome::Applied]);
    // Removed and created anew, it is another object: nothing of the old one shows.
    store.commit(remove(2)).expect("remove");
    let other = Mutation::Write(write(2, 7, 0, 100, version(1, 99)));
    let answers = commit_together(&store, &[create(2), other]);
    assert!(answers.iter().all(|answer| matches!(answer, Ok(MutationOutcome::Applied))), "{answers:?}");
    let check = |store: &Store| {
        for object in [1, 3, 10] {
            for unit in [0, 7] {
                let found = content(store, object, unit, 0, 5000, Want::Newest).expect("read");
                assert_eq!(found, pattern(object, 5000), "{object} {unit}");
            }
        }
        assert_eq!(store.units(P, braid_layout::ObjectId(2), 0, 10).expect("units"), [7]);
        assert_eq!(content(store, 2, 7, 0, 100, Want::Newest).expect("read"), pattern(99, 100));
    };
    check(&store);
    drop(store);
    (0..4).for_each(|seed| check(&opened_again(&disk, seed)));
}

/// A write that does not fit the object that is created is refused, and the creation stands.
#[test]
fn a_write_that_does_not_fit_what_the_commit_creates_is_refused() {
    let (disk, store) = counted();
    let g = braid_layout::Generation(2);
    let stale = Mutation::Write(Write { g, ..write(1, 0, 0, 100, version(1, 1)) });
    let long = Mutation::Write(write(2, 0, UNIT - 50, UNIT + 50, version(1, 1)));
    let answers = commit_together(&store, &[create(1), stale, create(2), long]);
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(Error::StaleGeneration { .. })), "{answers:?}");
    assert!(matches!(answers[3], Err(Error::Malformed(_))), "{answers:?}");
    drop(store);
    let store = opened_again(&disk, 1);
    assert!(store.units(P, braid_layout::ObjectId(1), 0, 10).expect("it is there").is_empty());
}

/// The commit finds no space; then each mutation is tried alone. A write whose object could not be created is
/// not stored.
#[test]
fn without_space_nothing_is_written_to_what_is_not_created() {
    for skipped in 0..3 {
        let (disk, store) = counted();
        let now = disk.operations(On::Write);
        // The commit fails, and, with `skipped`, the creation alone too.
        disk.inject(On::Write, now..now + 1 + skipped, Fault::NoSpace);
        let answers = commit_together(&store, &[create(1), first(1, 0), create(2), first(2, 3)]);
        let objects = [1, 2].map(|object| store.units(P, braid_layout::ObjectId(object), 0, 10).ok());
        for (object, there) in [(0, &objects[0]), (1, &objects[1])] {
            let created = &answers[2 * object];
            let written = &answers[2 * object + 1];
            assert_eq!(created.is_ok(), there.is_some(), "{answers:?}");
            assert!(created.is_ok() || written.is_err(), "{answers:?}");
            let units = there.as_ref().map_or(0, Vec::len);
            assert_eq!(written.is_ok(), units == 1, "{answers:?} {objects:?}");
        }
        drop(store);
        let again = opened_again(&disk, 3);
        let now = [1, 2].map(|object| again.units(P, braid_layout::ObjectId(object), 0, 10).ok());
        assert_eq!(now, objects);
    }
}
