//! The store's face: what each mutation does, what is refused, and that it is still so after opening again.

mod common;

use braid_layout::{ColumnMask, Generation, ObjectId, PartitionId, Version};
use braid_store::*;
use common::*;

const O: ObjectId = ObjectId(1);

fn newest(store: &Store, unit: u64) -> Vec<u8> {
    content(store, 1, unit, 0, UNIT, Want::Newest).expect("read")
}

#[test]
fn bytes_come_back_before_and_after_opening_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    assert_eq!(store.commit(create(1)).expect("create"), Outcome::Applied);
    assert_eq!(store.commit(create(1)).expect("again"), Outcome::Already);
    let write = write(1, 5, 100, 20_000, version(3, 1));
    assert_eq!(store.commit(Mutation::Write(write.clone())).expect("write"), Outcome::Applied);
    assert_eq!(store.commit(Mutation::Write(write)).expect("again"), Outcome::Already);
    let check = |store: &Store| {
        let mut expected = vec![0; usize::try_from(UNIT).expect("small")];
        expected[100..20_000].copy_from_slice(&pattern(1, 19_900));
        assert_eq!(newest(store, 5), expected);
        assert_eq!(content(store, 1, 5, 5000, 5001, Want::Newest).expect("a part"), expected[5000..5001]);
        let view = store.read(P, O, 5, 0..UNIT, Want::Newest).expect("view");
        assert_eq!((view.version, view.pending, view.columns), (version(3, 1), true, ColumnMask::all(3)));
        assert_eq!(
            view.extents,
            [
                ViewExtent::Hole { from: 0, to: 100 },
                ViewExtent::Stored { from: 100, to: 20_000 },
                ViewExtent::Hole { from: 20_000, to: UNIT }
            ]
        );
        let settled = store.read(P, O, 5, 0..UNIT, Want::Settled).expect("settled");
        assert_eq!((settled.version, settled.pending), (Version::ZERO, false));
        assert_eq!(store.unsettled(P, O).expect("list"), [5]);
        assert_eq!(store.object(P, O).expect("attributes"), attributes());
        assert_eq!(store.usage(P, O).expect("usage").end, Some((5, 20_000)));
        store.verify_unit(P, O, 5).expect("verify");
    };
    check(&store);
    store.close().expect("close");
    assert!(matches!(store.commit(create(2)), Err(Error::Closed)));
    drop(store);
    let (store, recovery) = open(dir.path());
    assert_eq!((recovery.torn_bytes, recovery.damaged_count), (0, 0));
    check(&store);
}
