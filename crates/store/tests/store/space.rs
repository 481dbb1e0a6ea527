//! Full stores and freed segments.

use braid_layout::{ColumnMask, Generation, ObjectId, Version};
use braid_store::*;

use crate::common::*;

fn remove(object: u64) -> Mutation {
    Mutation::Remove { partition: P, object: ObjectId(object) }
}

fn fill(store: &Store, object: u64) -> u64 {
    store.commit(create(object)).expect("create");
    for n in 1.. {
        match store.commit(Mutation::Write(write(object, n, 0, UNIT, version(1, n)))) {
            Ok(_) => assert!(n < 10_000, "it never gets full"),
            Err(Error::Full { used, capacity }) => {
                assert!(used <= capacity);
                return n - 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("the loop is endless")
}

#[test]
fn a_full_store_still_removes_and_then_takes_writes_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let limited = Options { capacity: Some(8 << 20), ..options() };
    let store = fresh(dir.path(), limited.clone());
    for round in 0..5 {
        let written = fill(&store, round);
        assert!(written > 80, "round {round}: only {written} units fit into 8 MiB");
        for n in 1..=written {
            let bytes = content(&store, round, n, 0, UNIT, Want::Newest).expect("read");
            assert_eq!(bytes, pattern(n, usize::try_from(UNIT).expect("small")), "unit {n} is intact");
        }
        let g = Generation(2);
        let set = ColumnMask::all(2);
        let fence =
            Mutation::Fence { partition: P, object: ObjectId(round), g, set, joining: ColumnMask::EMPTY };
        store.commit(fence).expect("a fence works on a full store");
        store.commit(remove(round)).expect("a remove works on a full store");
        store.commit(Mutation::Flush).expect("flush");
    }
    store.close().expect("close");
    drop(store);
    let (store, recovery) = open_with(dir.path(), limited);
    assert_eq!(recovery.damaged_count, 0, "{:?}", recovery.damaged);
    let stat = store.stat().expect("stat");
    assert_eq!((stat.objects, stat.live), (0, 0));
    assert!(stat.used < 2 << 20, "{} bytes are still used", stat.used);
}

#[test]
fn metadata_and_tombstones_move_out_of_freed_segments() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    // A segment that stays: it holds live bytes, and bytes of an object that goes.
    store.commit(create(1)).expect("create");
    store.commit(create(2)).expect("create");
    store.commit(Mutation::Write(write(1, 0, 0, 100, version(1, 1)))).expect("write");
    store.commit(Mutation::Write(write(2, 0, 0, 100, version(1, 2)))).expect("write");
    store.commit(Mutation::Write(write(1, 1, 0, 100, version(1, 3)))).expect("write");
    let churn = |from: u64| {
        for n in from..from + 20 {
            store.commit(Mutation::Write(write(1, 2, 0, UNIT, version(1, n)))).expect("write");
        }
    };
    churn(10);
    let fence = Mutation::Fence {
        partition: P,
        object: ObjectId(1),
        g: Generation(1),
        set: ColumnMask::all(5),
        joining: ColumnMask::EMPTY,
    };
    assert_eq!(store.commit(fence).expect("same"), Outcome::Already);
    store.commit(remove(2)).expect("remove");
    let back = vec![UnitVerdict { unit: 1, forward: Vec::new(), back: vec![version(1, 3)] }];
    let verdict = Mutation::Verdict { partition: P, object: ObjectId(1), units: back };
    assert_eq!(store.commit(verdict).expect("verdict"), Outcome::Applied);
    let change = Change { object_version: Some(9), ..Change::default() };
    let set = Mutation::SetAttributes { partition: P, object: ObjectId(1), change };
    store.commit(set).expect("set");
    churn(100);
    store.commit(create(2)).expect("the number again");
    churn(200);
    churn(300);
    let stat = store.stat().expect("stat");
    assert!(stat.segments <= 5, "{} segments for {} live bytes", stat.segments, stat.live);
    store.close().expect("close");
    drop(store);
    let (store, recovery) = open(dir.path());
    assert_eq!(recovery.damaged_count, 0, "{:?}", recovery.damaged);
    assert_eq!(store.object(P, ObjectId(1)).expect("object").object_version, 9);
    assert_eq!(
        store.versions(P, ObjectId(2), 0..9).expect("versions"),
        [],
        "the old object's bytes stay gone"
    );
    let view = store.read(P, ObjectId(1), 1, 0..10, Want::Newest).expect("view");
    assert_eq!(view.version, Version::ZERO, "what was taken back stays so");
    assert_eq!(content(&store, 1, 0, 0, 100, Want::Newest).expect("read"), pattern(1, 100));
    assert_eq!(content(&store, 1, 2, 0, 9, Want::Newest).expect("read"), pattern(319, 9));
}

#[test]
fn a_view_outlives_its_segment() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    store.commit(Mutation::Write(write(1, 0, 0, UNIT, version(1, 1)))).expect("write");
    let view = store.read(P, ObjectId(1), 0, 0..UNIT, Want::Newest).expect("view");
    for n in 2..40 {
        store.commit(Mutation::Write(write(1, 0, 0, UNIT, version(1, n)))).expect("write");
    }
    let mut bytes = Vec::new();
    view.read_into(&mut bytes).expect("read");
    assert_eq!(bytes, pattern(1, usize::try_from(UNIT).expect("small")));
    assert!(!segments(dir.path())[0].ends_with("00000001.seg"), "the first segment was freed");
}
