//! Files that are deleted, replaced or cut short under a running store: their bytes can still be read, and a
//! check reports them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use braid_layout::{ClusterId, DriveId, ObjectId};
use braid_store::*;

use crate::common::*;

/// A store with some segments, and the first unit that lies in each.
fn stored(dir: &Path) -> Store {
    let store = fresh(dir, options());
    store.commit(create(1)).expect("create");
    for n in 0..20 {
        let settled = Write { standing: Standing::Installed, ..write(1, n, 0, UNIT, version(1, n + 1)) };
        store.commit(Mutation::Write(settled)).expect("write");
    }
    store.checkpoint().expect("checkpoint");
    store
}

/// The units that a scrub reports as damaged.
fn damaged(store: &Store) -> Vec<u64> {
    let is_damaged =
        |unit: &u64| matches!(store.verify_unit(P, ObjectId(1), *unit), Err(Error::Damaged { .. }));
    (0..20).filter(is_damaged).collect()
}

fn wrong(store: &Store) -> Vec<String> {
    store.wrong_files(100).0.into_iter().map(|file| file.name).collect()
}

#[test]
fn segments_that_are_deleted_or_replaced_under_a_running_store_are_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = stored(dir.path());
    assert_eq!((damaged(&store), wrong(&store)), (vec![], vec![]));
    let paths = segments(dir.path());
    assert!(paths.len() >= 5, "{paths:?}");
    fs::remove_file(&paths[1]).expect("removed");
    // The same bytes in another file.
    fs::copy(&paths[2], dir.path().join("copy")).expect("copied");
    fs::rename(dir.path().join("copy"), &paths[2]).expect("renamed");
    for unit in 0..20 {
        let read = content(&store, 1, unit, 0, UNIT, Want::Newest).expect("whoever has the files reads on");
        assert_eq!(read, pattern(unit + 1, usize::try_from(UNIT).expect("small")));
    }
    let name = |path: &Path| format!("log/{}", path.file_name().expect("a name").to_string_lossy());
    assert_eq!(wrong(&store), [name(&paths[1]), name(&paths[2])]);
    assert_eq!(damaged(&store).len(), 8, "a segment has four units");
    fs::remove_file(&paths[0]).expect("removed");
    let (listed, count) = store.wrong_files(2);
    assert_eq!((listed.len(), count), (2, 3));
}

#[test]
fn files_that_are_cut_short_and_those_that_hold_no_unit_are_told_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = stored(dir.path());
    let cut = |path: &Path| {
        let file = fs::File::options().write(true).open(path).expect("opened");
        file.set_len(file.metadata().expect("there").len() - 512).expect("cut");
    };
    let last = segments(dir.path()).pop().expect("a segment");
    let checkpoint = checkpoints(dir.path()).pop().expect("a checkpoint");
    cut(&last);
    cut(&checkpoint);
    fs::remove_file(dir.path().join("superblock")).expect("removed");
    let found = wrong(&store);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.contains(&"superblock".to_owned()), "{found:?}");
}

#[test]
fn segments_that_are_freed_by_the_store_itself_are_not_missed() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), Options { segment_bytes: 64 << 10, sync: true, ..Options::default() });
    store.commit(create(1)).expect("create");
    for n in 1..200_u64 {
        let settled = Write { standing: Standing::Installed, ..write(1, n % 2, 0, 40_000, version(1, n)) };
        store.commit(Mutation::Write(settled)).expect("write");
        if n % 10 == 0 {
            store.checkpoint().expect("checkpoint");
        }
        assert_eq!(wrong(&store), Vec::<String>::new(), "after {n}");
        store.verify_unit(P, ObjectId(1), n % 2).expect("whole");
    }
    assert!(store.stat().expect("stat").freed > 10);
}

/// The paths in a directory, itself included, that other users may access.
fn open_to_others(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = fs::metadata(&path).expect("there");
        if metadata.permissions().mode() & 0o077 != 0 {
            found.push(path.display().to_string());
        }
        if metadata.is_dir() {
            waiting.extend(fs::read_dir(&path).expect("listed").map(|entry| entry.expect("read").path()));
        }
    }
    found
}

#[test]
fn nobody_else_may_read_what_is_stored_whatever_it_was_before() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().join("new/store");
    let store = stored(&dir);
    assert_eq!(open_to_others(&dir), Vec::<String>::new());
    store.close().expect("close");
    drop(store);
    for path in segments(&dir).iter().chain(&checkpoints(&dir)).chain([&dir.join("superblock")]) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("set");
    }
    for inner in ["", "log", "checkpoint"] {
        fs::set_permissions(dir.join(inner), fs::Permissions::from_mode(0o755)).expect("set");
    }
    let (_store, _) = open(&dir);
    assert_eq!(open_to_others(&dir), Vec::<String>::new());
}

#[test]
fn a_directory_that_is_no_store_or_another_s_keeps_its_modes() {
    let root = tempfile::tempdir().expect("a directory");
    let letters = root.path().join("letters");
    let store = root.path().join("store");
    fs::create_dir_all(letters.join("log")).expect("made");
    stored(&store).close().expect("closed");
    let files = [letters.join("letter"), store.join("letter")];
    let dirs = [letters.clone(), letters.join("log"), store.clone()];
    files.iter().for_each(|path| fs::write(path, "read by all").expect("written"));
    for (paths, mode) in [(&files[..], 0o644), (&dirs[..], 0o755)] {
        paths
            .iter()
            .for_each(|path| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set"));
    }
    let other = Identity { cluster: ClusterId(77), drive: DriveId(77) };
    assert!(matches!(Store::format(&letters, other, &Options::default()), Err(Error::NotEmpty(_))));
    assert!(matches!(Store::open(&letters, None, Options::default()), Err(Error::NotAStore(_))));
    assert!(matches!(Store::open(&store, Some(other), Options::default()), Err(Error::Foreign { .. })));
    let mode = |path: &PathBuf| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(files.each_ref().map(mode), [0o644; 2]);
    assert_eq!(dirs.each_ref().map(mode), [0o755; 3]);
}
