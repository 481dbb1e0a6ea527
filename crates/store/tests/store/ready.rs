//! The units that a joining column has caught up with (PROTOCOL section 7): durable per unit, and forgotten
//! when the generation rises.

use braid_layout::{ColumnMask, Generation, ObjectId};
use braid_store::*;

use crate::common::*;

const O: ObjectId = ObjectId(1);
/// The objects' own column.
const OWN: ColumnMask = ColumnMask(4);

fn joining() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    let attributes = Attributes { joining: OWN, ..attributes() };
    store.commit(Mutation::Create { partition: P, object: O, attributes }).expect("create");
    (dir, store)
}

fn ready(g: u32, unit: u64) -> Mutation {
    run(g, unit, 1)
}

fn run(g: u32, unit: u64, units: u32) -> Mutation {
    Mutation::Ready { partition: P, object: O, g: Generation(g), unit, units }
}

fn fence(g: u32, joining: ColumnMask) -> Mutation {
    let g = Generation(g);
    let set = ColumnMask::all(5);
    Mutation::Fence { partition: P, object: O, g, set, joining }
}

fn are_ready(store: &Store) -> Vec<u64> {
    (0..10).filter(|&unit| store.is_ready(P, O, unit).expect("known")).collect()
}

#[test]
fn progress_is_kept_over_restarts_and_begins_anew_with_a_fence() {
    let (dir, store) = joining();
    assert_eq!(are_ready(&store), []);
    for unit in [3, 1, 2, 7] {
        assert_eq!(store.commit(ready(1, unit)).expect("ready"), MutationOutcome::Applied);
    }
    assert_eq!(store.commit(ready(1, 2)).expect("again"), MutationOutcome::Already);
    assert!(matches!(store.commit(ready(2, 4)), Err(Error::StaleGeneration { .. })));
    let killed = tempfile::tempdir().expect("a directory");
    store.commit(Mutation::Flush).expect("flush");
    copy(dir.path(), killed.path());
    store.close().expect("close");
    drop(store);
    for dir in [&killed, &dir] {
        let (store, _) = open(dir.path());
        assert_eq!(are_ready(&store), [1, 2, 3, 7]);
        store.commit(ready(1, 9)).expect("ready");
        assert_eq!(are_ready(&store), [1, 2, 3, 7, 9]);
        // The fence's verdict may take forward versions that this column lacks.
        store.commit(fence(2, OWN)).expect("fence");
        assert_eq!(are_ready(&store), []);
        assert!(matches!(store.commit(ready(1, 4)), Err(Error::StaleGeneration { .. })));
        store.commit(ready(2, 8)).expect("ready");
        assert_eq!(store.commit(fence(2, OWN)).expect("repeated"), MutationOutcome::Already);
        store.close().expect("close");
        drop(store);
        assert_eq!(are_ready(&open(dir.path()).0), [8]);
    }
}

#[test]
fn units_are_noted_as_runs() {
    let (dir, store) = joining();
    assert_eq!(store.commit(run(1, 2, 3)).expect("a run"), MutationOutcome::Applied);
    assert_eq!(are_ready(&store), [2, 3, 4]);
    assert_eq!(store.commit(run(1, 3, 2)).expect("a part of it"), MutationOutcome::Already);
    assert_eq!(store.commit(run(1, 4, 3)).expect("it goes on"), MutationOutcome::Applied);
    assert_eq!(store.commit(run(1, u64::MAX - 1, 2)).expect("the last"), MutationOutcome::Applied);
    assert!(matches!(store.commit(run(1, u64::MAX, 2)), Err(Error::Malformed(_))));
    assert!(matches!(store.commit(run(1, 1, 0)), Err(Error::Malformed(_))));
    store.close().expect("close");
    drop(store);
    let (store, _) = open(dir.path());
    assert_eq!(are_ready(&store), [2, 3, 4, 5, 6]);
    assert!(store.is_ready(P, O, u64::MAX).expect("known"));
    store.commit(run(1, 0, u32::MAX)).expect("all of these");
    assert_eq!(are_ready(&store).len(), 10);
}

#[test]
fn a_column_that_does_not_join_is_ready_and_one_that_joins_anew_is_not() {
    let (dir, store) = joining();
    store.commit(ready(1, 3)).expect("ready");
    store.commit(fence(2, ColumnMask::EMPTY)).expect("it is ready");
    assert_eq!(are_ready(&store).len(), 10);
    assert_eq!(store.commit(ready(2, 3)).expect("all is"), MutationOutcome::Already);
    store.commit(fence(3, OWN)).expect("it joins anew");
    assert_eq!(are_ready(&store), []);
    store.commit(ready(3, 6)).expect("ready");
    store.close().expect("close");
    drop(store);
    let (store, _) = open(dir.path());
    assert_eq!(are_ready(&store), [6]);
}

#[test]
fn a_damaged_unit_is_not_ready() {
    let (dir, store) = joining();
    let installed = |n| Write { standing: Standing::Installed, ..write(1, 3, 0, 5000, version(1, n)) };
    store.commit(Mutation::Write(installed(1))).expect("install");
    let path = segments(dir.path()).pop().expect("a segment");
    store.commit(ready(1, 3)).expect("ready");
    store.close().expect("close");
    drop(store);
    without_checkpoints(dir.path());
    let mut bytes = std::fs::read(&path).expect("read");
    let record =
        (0..bytes.len()).step_by(512).find(|&at| decode_record(&bytes[at..]).is_ok_and(|r| r.unit == 3));
    bytes[record.expect("the install")] ^= 1;
    std::fs::write(&path, bytes).expect("write");
    let (store, _) = open(dir.path());
    assert_eq!(are_ready(&store), []);
    store.commit(run(1, 2, 3)).expect("what is damaged among them is not");
    assert_eq!(are_ready(&store), [2, 4]);
    store.commit(Mutation::Write(installed(2))).expect("it is caught up again");
    assert_eq!(are_ready(&store), [2, 3, 4]);
}
