//! Mutations that are queued together are decided one after the other, whether they are in one commit or not.

use std::sync::Arc;

use braid_store::disk::memory::Memory;
use braid_store::*;

use crate::common::*;
use crate::enumerate::commit_together;

/// A write to a unit settles another's pending version. An install queued behind it is older than what is
/// then settled, and must not replace it.
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
    let answers: Vec<Outcome> = answers.into_iter().map(|answer| answer.expect("an answer")).collect();
    assert_eq!(answers, [Outcome::Applied, Outcome::Older { tip: version(1, 5) }]);
    let check = |store: &Store| {
        assert_eq!(content(store, 1, 3, 0, 5000, Want::Settled).expect("read"), pattern(5, 5000));
        assert_eq!(store.unsettled(P, braid_layout::ObjectId(1)).expect("list"), [4]);
    };
    check(&store);
    drop(store);
    check(&open());
}
