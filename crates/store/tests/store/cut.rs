//! Files that change under an open store. A file that was cut is damage, which is reported, and the store
//! keeps working. A view keeps the files it reads, even after the store is closed.

use std::fs::OpenOptions;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use braid_layout::ObjectId;
use braid_store::*;

use crate::common::*;

fn segment(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("log/{number:08}.seg"))
}

/// A store with units that fill several segments, all read once.
fn read_through(dir: &Path) -> Store {
    let store = fresh(dir, options());
    store.commit(create(1)).expect("create");
    for n in 1..20 {
        store.commit(Mutation::Write(write(1, n, 0, UNIT, version(1, n)))).expect("write");
    }
    for (n, from, to) in (1..20).flat_map(|n| [(n, 0, UNIT), (n, 4096, 8192), (n, 1, 2)]) {
        let expected = pattern(n, usize::try_from(UNIT).expect("small"));
        let range = usize::try_from(from).expect("small")..usize::try_from(to).expect("small");
        let bytes = content(&store, 1, n, from, to, Want::Newest).expect("read");
        assert!(bytes == expected[range], "unit {n}: {from}..{to}");
    }
    store
}

#[test]
fn a_file_that_was_cut_is_damage() {
    for (length, lost) in [(4096, 6..=12), (70_001, 3..=9)] {
        cut_to(length, lost);
    }
}

fn cut_to(length: u64, expected: RangeInclusive<usize>) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = read_through(dir.path());
    let file = OpenOptions::new().write(true).open(segment(dir.path(), 2)).expect("the second segment");
    file.set_len(length).expect("cut");
    let mut lost = 0;
    for (n, from, to) in (1..20).flat_map(|n| [(n, 4096, 8192), (n, 1, 2), (n, 0, UNIT)]) {
        match content(&store, 1, n, from, to, Want::Newest) {
            Ok(bytes) => {
                let range = usize::try_from(from).expect("small")..usize::try_from(to).expect("small");
                assert!(bytes == pattern(n, usize::try_from(UNIT).expect("small"))[range], "unit {n}");
            }
            Err(Error::Damaged { segment: 2, .. }) => lost += 1,
            Err(error) => panic!("unit {n}: {error}"),
        }
    }
    assert!(expected.contains(&lost), "{lost} reads of the units of a segment of {length} bytes");
    // The store keeps working.
    store.commit(Mutation::Write(write(1, 30, 0, 5000, version(1, 30)))).expect("write");
    assert_eq!(content(&store, 1, 30, 0, 5000, Want::Newest).expect("read"), pattern(30, 5000));
}

#[test]
fn views_outlive_the_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = read_through(dir.path());
    let view = store.read(P, ObjectId(1), 3, 4096..8192, Want::Newest).expect("view");
    store.close().expect("close");
    drop(store);
    let (store, _) = open(dir.path());
    let bytes = bytes_of(&view, 4096).expect("read");
    assert_eq!(bytes, content(&store, 1, 3, 4096, 8192, Want::Newest).expect("read"));
    assert_eq!(bytes, pattern(3, 8192)[4096..]);
}
