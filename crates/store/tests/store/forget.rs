//! Keys that are lost as a whole and belong to no file: they count as absent once the store was told so.

use braid_layout::ObjectId;
use braid_store::*;

use crate::common::*;

/// Bytes of a block of the log.
const BLOCK: usize = 512;

#[test]
fn an_object_that_is_lost_is_gone_once_it_is_forgotten_and_others_stay() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    let path = segments(dir.path()).remove(0);
    let end = || usize::try_from(std::fs::metadata(&path).expect("stat").len()).expect("small");
    let written = |object| Mutation::Write(write(object, 0, 0, 5000, version(1, 1)));
    store.commit(create(1)).expect("create");
    let created = end();
    store.commit(create(2)).expect("create");
    store.commit(written(2)).expect("write");
    store.commit(written(1)).expect("write");
    store.close().expect("close");
    drop(store);
    let mut bad = std::fs::read(&path).expect("read");
    bad[created + 100] ^= 1;
    std::fs::write(&path, &bad).expect("write");

    without_checkpoints(dir.path());
    let (store, _) = open(dir.path());
    let found = store.object(P, ObjectId(2));
    assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
    assert_eq!(store.objects(P, None, 9).expect("objects"), [ObjectId(1), ObjectId(2)]);
    store.forget_lost().expect("forget");
    only_the_other_is_there(&store);
    drop(store);
    only_the_other_is_there(&open(dir.path()).0);
}

#[test]
fn a_partition_that_is_lost_with_all_its_objects_is_gone_once_it_is_forgotten() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    store.commit(Mutation::Write(write(1, 0, 0, 5000, version(1, 1)))).expect("write");
    store.checkpoint().expect("checkpoint");
    store.close().expect("close");
    drop(store);
    for segment in segments(dir.path()) {
        std::fs::remove_file(segment).expect("removed");
    }
    let (store, _) = open(dir.path());
    assert!(!store.lost(9).is_empty());
    store.forget_lost().expect("forget");
    assert_eq!(store.lost(9), []);
    let found = store.objects(P, None, 9);
    assert!(matches!(found, Err(Error::NoPartition(P))), "{found:?}");
    store.commit(partition()).expect("partition");
    store.commit(create(3)).expect("create");
    drop(store);
    let (store, _) = open(dir.path());
    assert_eq!(store.lost(9), []);
    assert_eq!(store.objects(P, None, 9).expect("objects"), [ObjectId(3)]);
}

#[test]
fn a_partition_that_has_lost_its_values_goes_with_the_objects_that_are_left_in_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    let path = segments(dir.path()).remove(0);
    // The partition's record is the last of the log so far, in a block of its own.
    let end = usize::try_from(std::fs::metadata(&path).expect("stat").len()).expect("small");
    store.commit(create(1)).expect("create");
    store.commit(Mutation::Write(write(1, 0, 0, 5000, version(1, 1)))).expect("write");
    store.close().expect("close");
    drop(store);
    let mut bad = std::fs::read(&path).expect("read");
    bad[end - BLOCK + 100] ^= 1;
    std::fs::write(&path, &bad).expect("write");
    without_checkpoints(dir.path());

    let (store, _) = open(dir.path());
    let found = store.objects(P, None, 9);
    assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
    store.forget_lost().expect("forget");
    let is_gone = |store: &Store| {
        assert_eq!(store.lost(9), []);
        let found = store.objects(P, None, 9);
        assert!(matches!(found, Err(Error::NoPartition(P))), "{found:?}");
        assert_eq!(store.stat().expect("stat").live, 0);
    };
    is_gone(&store);
    drop(store);
    let (store, _) = open(dir.path());
    is_gone(&store);
    store.commit(partition()).expect("partition");
    store.commit(create(250)).expect("create");
    assert_eq!(store.objects(P, None, 9).expect("objects"), [ObjectId(250)]);
}

fn only_the_other_is_there(store: &Store) {
    assert_eq!(store.objects(P, None, 9).expect("objects"), [ObjectId(1)]);
    let found = store.object(P, ObjectId(2));
    assert!(matches!(found, Err(Error::NoObject(..))), "{found:?}");
    assert_eq!(content(store, 1, 0, 0, 5000, Want::Newest).expect("whole"), pattern(1, 5000));
    assert_eq!(store.stat().expect("stat").objects, 1);
}
