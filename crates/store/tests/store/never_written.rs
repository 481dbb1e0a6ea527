//! A lost unit of which nothing was ever settled becomes one that was never written.

use std::path::Path;

use braid_layout::{ObjectId, Version};
use braid_store::*;

use crate::common::*;

/// Open without checkpoints, so that all of the log is read.
fn open_log(dir: &Path) -> (Store, Recovery) {
    without_checkpoints(dir);
    open(dir)
}

/// The only write of a unit was never settled, and its record is damaged: as far as the other columns know,
/// the unit was never written.
#[test]
fn a_lost_unit_that_was_never_written_is_made_anew() {
    for kind in [WriteKind::Data, WriteKind::ParityBase] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = fresh(dir.path(), options());
        store.commit(create(1)).expect("create");
        let path = segments(dir.path()).remove(0);
        let header = usize::try_from(std::fs::metadata(&path).expect("stat").len()).expect("small");
        for unit in [1, 2] {
            store.commit(Mutation::Write(write(1, unit, 0, 5000, version(1, unit)))).expect("write");
        }
        store.close().expect("close");
        drop(store);
        let mut bad = std::fs::read(&path).expect("read");
        bad[header + 100] ^= 1;
        std::fs::write(&path, &bad).expect("write");
        let (store, _) = open_log(dir.path());
        let is_lost = |store: &Store| {
            store.versions(P, ObjectId(1), 1..2).expect("versions").iter().any(|unit| unit.lost)
        };
        assert!(is_lost(&store));
        let cover = if kind == WriteKind::Data { Vec::new() } else { vec![Version::ZERO; 2] };
        let anew = |standing, body| {
            let whole = Write { standing, ..write(1, 1, 0, 8192, Version::ZERO) };
            let whole = counting(whole, kind, cover.clone());
            store.commit(Mutation::Write(Write { body, ..whole }))
        };
        let refused = anew(Standing::Pending, Body::Hole);
        assert!(matches!(refused, Err(Error::Malformed(_))), "only what is installed: {refused:?}");
        let refused = anew(Standing::Repaired, body(0, &pattern(1, 8192)));
        assert!(matches!(refused, Err(Error::Malformed(_))), "only as a hole: {refused:?}");
        assert_eq!(anew(Standing::Repaired, Body::Hole).expect("commit"), MutationOutcome::Applied);
        assert!(!is_lost(&store));
        store.close().expect("close");
        drop(store);
        let (store, _) = open_log(dir.path());
        assert!(!is_lost(&store), "after a replay, too");
        assert_eq!(content(&store, 1, 1, 0, 5000, Want::Newest).expect("whole"), vec![0; 5000]);
        let first = Write { kind, ..write(1, 1, 0, 5000, version(1, 9)) };
        assert_eq!(store.commit(Mutation::Write(first)).expect("its first write"), MutationOutcome::Applied);
    }
}
