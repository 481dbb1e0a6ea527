//! `.snapshots`: snapshots by path.

use braid_meta::tree::directories::{self, Parents, list, resolve};
use braid_meta::tree::{doors, nodes, snapshots};
use braid_wire::Reason;
use braid_wire::control::{EntryKind, MakeNode, NamePlace, NewAttributes, RenameHow};

use crate::snapshots::{Op, at, run};

const NEW: NewAttributes = NewAttributes { mode: 0o640, uid: 1, gid: 2 };

#[test]
fn a_path_leads_by_a_directorys_door_into_its_snapshots() {
    let real = run(&[
        Op::MakeDirectory("a/b".into()),
        Op::Write("a/b/c".into(), 10),
        Op::Snapshot("a".into(), "x".into()),
        Op::Snapshot("a".into(), "y".into()),
        Op::Unlink("a/b/c".into(), false),
    ]);
    real.db
        .read(|tx| {
            let found = resolve(tx, &at("a/.snapshots/x/b/c"))?;
            assert_eq!((found.inode.size, found.within.map(|it| it.number)), (10, Some(1)));
            let door = resolve(tx, &at("a/.snapshots"))?;
            let a = resolve(tx, &at("a"))?.file;
            assert_eq!((door.file, doors::behind(door.file)), (doors::of(a), Some(a)));
            assert_eq!(door.inode.kind, EntryKind::Directory);
            for place in [at("a/.snapshots"), NamePlace::number(door.file)] {
                let (first, more) = list(tx, &place, b"", 1)?;
                let (second, end) = list(tx, &place, &first[0].name, 1)?;
                assert_eq!(
                    (&*first[0].name, more, &*second[0].name, end),
                    (&b"x"[..], true, &b"y"[..], false)
                );
            }
            let by_number = NamePlace { path: b"y/b".into(), ..NamePlace::number(door.file) };
            assert_eq!(resolve(tx, &by_number)?.within.map(|it| it.number), Some(2));
            assert_eq!(list(tx, &at("a"), b"", 0)?.0.len(), 1, "a listing does not show it");
            let refused = |path: &str| resolve(tx, &at(path)).err().map(|refusal| refusal.reason);
            assert_eq!(refused("a/.snapshots/z"), Some(Reason::NoSnapshot));
            assert_eq!(refused("a/b/.snapshots"), Some(Reason::NotFound), "it has none");
            assert_eq!(refused("a/.snapshots/x/.snapshots"), Some(Reason::NotFound), "nor has a snapshot");
            let twice = NamePlace::of("v@x", "a/.snapshots/y");
            assert!(resolve(tx, &twice).is_err(), "one snapshot is enough");
            Ok(())
        })
        .unwrap();
}

#[test]
fn nothing_can_be_changed_in_a_door_and_nothing_new_has_its_name() {
    let real = run(&[
        Op::MakeDirectory("a/b".into()),
        Op::Write("a/c".into(), 10),
        Op::Snapshot("a".into(), "x".into()),
    ]);
    let keeps = |_| false;
    let refused = |path: &str| {
        let made = real.db.write(|tx| directories::make(tx, &at(path), &NEW, Parents::Required, 9));
        made.err().map(|refusal| refusal.reason)
    };
    assert_eq!(refused("a/.snapshots"), Some(Reason::BadName));
    assert_eq!(refused("a/b/.snapshots"), Some(Reason::BadName));
    assert_eq!(refused("a/.snapshots/x"), Some(Reason::SnapshotReadOnly));
    assert_eq!(refused("a/.snapshots/x/d"), Some(Reason::SnapshotReadOnly));
    for (path, parents) in [("a", Parents::Required), ("a", Parents::Made), ("a/new/d", Parents::Made)] {
        let at = NamePlace::of("v@x", path);
        let made = real.db.write(|tx| directories::make(tx, &at, &NEW, parents, 9));
        assert_eq!(made.err().map(|refusal| refusal.reason), Some(Reason::SnapshotReadOnly), "{path}");
    }
    let rename = |from: &str, to: &str| {
        let how = RenameHow::Replace;
        let renamed = real.db.write(|tx| directories::rename(tx, &at(from), &at(to), how, &keeps, 9));
        renamed.err().map(|refusal| refusal.reason)
    };
    assert_eq!(rename("a/c", "a/.snapshots"), Some(Reason::BadName));
    assert_eq!(rename("a/c", "a/.snapshots/x/d"), Some(Reason::SnapshotReadOnly));
    assert_eq!(rename("a/.snapshots/x/c", "a/d"), Some(Reason::SnapshotReadOnly));
    let node =
        MakeNode { at: at("b/.snapshots"), kind: EntryKind::Fifo, target: Vec::new(), device: 0, new: NEW };
    let node = MakeNode { at: at("a/.snapshots"), ..node };
    let made = real.db.write(|tx| nodes::make(tx, &node, 9));
    assert_eq!(made.err().map(|refusal| refusal.reason), Some(Reason::BadName));
    let made = real.db.write(|tx| snapshots::make(tx, &at("a/.snapshots/x"), "y", 9));
    assert_eq!(made.err().map(|refusal| refusal.reason), Some(Reason::SnapshotReadOnly));
}
