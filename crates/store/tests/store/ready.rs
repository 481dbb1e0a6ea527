//! What a joining column has caught up with (PROTOCOL section 7): durable per unit, and forgotten when the
//! column joins anew.

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
    Mutation::Ready { partition: P, object: O, g: Generation(g), unit }
}

fn fence(g: u32, joining: ColumnMask) -> Mutation {
    let (g, set) = (Generation(g), ColumnMask::all(5));
    Mutation::Fence { partition: P, object: O, g, set, joining }
}

fn are_ready(store: &Store) -> Vec<u64> {
    (0..10).filter(|&unit| store.is_ready(P, O, unit).expect("known")).collect()
}

#[test]
fn progress_is_kept_over_restarts_and_fences_that_follow_each_other() {
    let (dir, store) = joining();
    assert_eq!(are_ready(&store), []);
    for unit in [3, 1, 2, 7] {
        assert_eq!(store.commit(ready(1, unit)).expect("ready"), Outcome::Applied);
    }
    assert_eq!(store.commit(ready(1, 2)).expect("again"), Outcome::Already);
    assert!(matches!(store.commit(ready(2, 4)), Err(Error::StaleGeneration { .. })));
    store.commit(fence(2, OWN)).expect("fence");
    assert!(matches!(store.commit(ready(1, 4)), Err(Error::StaleGeneration { .. })));
    store.commit(ready(2, 8)).expect("ready");
    let killed = tempfile::tempdir().expect("a directory");
    store.commit(Mutation::Flush).expect("flush");
    copy(dir.path(), killed.path());
    store.close().expect("close");
    drop(store);
    for dir in [&killed, &dir] {
        let (store, _) = open(dir.path());
        assert_eq!(are_ready(&store), [1, 2, 3, 7, 8]);
        store.commit(ready(2, 9)).expect("ready");
        assert_eq!(are_ready(&store), [1, 2, 3, 7, 8, 9]);
    }
}

#[test]
fn a_column_that_does_not_join_is_ready_and_one_that_joins_anew_is_not() {
    let (dir, store) = joining();
    store.commit(ready(1, 3)).expect("ready");
    store.commit(fence(2, ColumnMask::EMPTY)).expect("it is ready");
    assert_eq!(are_ready(&store).len(), 10);
    assert_eq!(store.commit(ready(2, 3)).expect("all is"), Outcome::Already);
    store.commit(fence(3, OWN)).expect("it joins anew");
    assert_eq!(are_ready(&store), []);
    store.commit(ready(3, 4)).expect("ready");
    // It missed a generation, and may have been out of the set in it.
    store.commit(fence(5, OWN)).expect("it joins");
    assert_eq!(are_ready(&store), []);
    store.commit(ready(5, 6)).expect("ready");
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
    assert!(matches!(store.commit(ready(1, 3)), Err(Error::Damaged { .. })));
    store.commit(Mutation::Write(installed(2))).expect("it is caught up again");
    assert_eq!(are_ready(&store), [3]);
}
