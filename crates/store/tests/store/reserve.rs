//! Preallocation: space that one object has reserved is unavailable to others.

use braid_layout::{Generation, ObjectId};
use braid_store::*;

use crate::common::*;

const UNIT_BYTES: u64 = 64 << 10;

fn make(object: u64, units: u64) -> Mutation {
    let attributes = Attributes { reserve_bytes: units * UNIT_BYTES, cluster: 7, ..attributes() };
    Mutation::Create { partition: P, object: ObjectId(object), attributes }
}

fn reserve(object: u64, units: u64) -> Mutation {
    let change = Change { reserve_bytes: Some(units * UNIT_BYTES), ..Change::default() };
    Mutation::SetAttributes { partition: P, object: ObjectId(object), g: Generation(1), change }
}

fn unit(object: u64, number: u64) -> Mutation {
    Mutation::Write(write(object, number, 0, UNIT, version(1, object * 1000 + number + 1)))
}

/// Units used and reserved.
fn held(store: &Store) -> (u64, u64) {
    let state = store.partition(P).expect("the partition");
    (state.used / UNIT_BYTES, state.reserved / UNIT_BYTES)
}

#[test]
fn a_reservation_counts_against_the_quota_until_it_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    let quota_bytes = Some(10 * UNIT_BYTES);
    store.commit(Mutation::PartitionSet { partition: P, quota_bytes, key_epoch: 1 }).expect("a quota");
    assert!(matches!(store.commit(make(1, 11)), Err(Error::Quota { .. })));
    store.commit(make(1, 6)).expect("it fits");
    store.commit(create(2)).expect("create");
    assert_eq!(held(&store), (0, 6));
    (0..4).for_each(|n| assert_eq!(store.commit(unit(2, n)).expect("the rest"), MutationOutcome::Applied));
    assert!(matches!(store.commit(unit(2, 4)), Err(Error::Quota { .. })));
    assert!(matches!(store.commit(reserve(1, 7)), Err(Error::Quota { .. })));
    (0..3).for_each(|n| assert_eq!(store.commit(unit(1, n)).expect("reserved"), MutationOutcome::Applied));
    assert_eq!(held(&store), (7, 3));
    // The same after a crash and from a checkpoint.
    let killed = tempfile::tempdir().expect("a directory");
    copy(dir.path(), killed.path());
    let (other, _) = open(killed.path());
    assert_eq!(held(&other), (7, 3));
    store.close().expect("close");
    let closed = tempfile::tempdir().expect("a directory");
    copy(dir.path(), closed.path());
    let (store, _) = open(closed.path());
    assert_eq!(held(&store), (7, 3));
    let found = store.object(P, ObjectId(1)).expect("the object");
    assert_eq!((found.reserve_bytes, found.cluster), (6 * UNIT_BYTES, 7));
    (3..6).for_each(|n| assert_eq!(store.commit(unit(1, n)).expect("reserved"), MutationOutcome::Applied));
    assert!(matches!(store.commit(unit(1, 6)), Err(Error::Quota { .. })), "that is not reserved");
    assert_eq!(held(&store), (10, 0));
    store.commit(remove(2)).expect("remove");
    store.commit(reserve(1, 10)).expect("there is room now");
    assert_eq!(held(&store), (6, 4));
    assert!(matches!(store.commit(create(2)), Ok(MutationOutcome::Applied)));
    assert!(matches!(store.commit(unit(2, 9)), Err(Error::Quota { .. })));
    store.commit(reserve(1, 0)).expect("given up");
    store.commit(unit(2, 9)).expect("free again");
    store.commit(reserve(1, 8)).expect("again");
    store.commit(remove(1)).expect("remove");
    assert_eq!(held(&store), (1, 0), "a reservation goes with its object");
}

#[test]
fn a_reservation_is_kept_free_on_a_full_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), Options { segment_bytes: 64 << 10, capacity: Some(8 << 20), ..options() });
    assert!(matches!(store.commit(make(1, 200)), Err(Error::Full { .. })), "more than there is");
    assert!(matches!(store.commit(make(1, u64::MAX / UNIT_BYTES)), Err(Error::Malformed(_))));
    store.commit(make(1, 20)).expect("it fits");
    store.commit(create(2)).expect("create");
    let taken = (0..200).take_while(|&n| store.commit(unit(2, n)).is_ok()).count();
    assert!((40..110).contains(&taken), "{taken} units fit beside");
    assert!(matches!(store.commit(unit(2, 500)), Err(Error::Full { .. })));
    assert!(matches!(store.commit(make(3, 5)), Err(Error::Full { .. })));
    // Room for the headers of their records is kept too.
    (0..20).for_each(|n| assert_eq!(store.commit(unit(1, n)).expect("reserved"), MutationOutcome::Applied));
}
