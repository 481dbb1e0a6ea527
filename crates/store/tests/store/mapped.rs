//! Reads are copies from mapped files where they can be: also then whatever happens to a file ends in an error, not in a signal.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use braid_layout::ObjectId;
use braid_store::*;

use crate::common::*;

fn segment(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("log/{number:08}.seg"))
}

/// A store with units that fill several segments, all of them read.
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
    let dir = tempfile::tempdir().expect("a directory");
    let store = read_through(dir.path());
    let file = OpenOptions::new().write(true).open(segment(dir.path(), 2)).expect("the second segment");
    file.set_len(4096).expect("cut");
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
    assert!((6..=12).contains(&lost), "{lost} reads of the units of a segment");
    // And the store goes on.
    store.commit(Mutation::Write(write(1, 30, 0, 5000, version(1, 30)))).expect("write");
    assert_eq!(content(&store, 1, 30, 0, 5000, Want::Newest).expect("read"), pattern(30, 5000));
}

/// Within a page the system gives zeros for what was cut off: bytes that are not the unit's never come but as those, which
/// the reader's checksums tell.
#[test]
fn a_file_that_was_cut_within_a_page_gives_no_other_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = read_through(dir.path());
    let file = OpenOptions::new().write(true).open(segment(dir.path(), 2)).expect("the second segment");
    file.set_len(70_001).expect("cut");
    let mut zeros = 0;
    for (n, from, to) in (1..20).flat_map(|n| (0..16).map(move |block| (n, block * 4096, (block + 1) * 4096)))
    {
        let view = store.read(P, ObjectId(1), n, from..to, Want::Newest).expect("view");
        let mut bytes = Vec::new();
        if view.read_into(&mut bytes).is_ok() {
            let expected = pattern(n, usize::try_from(UNIT).expect("small"));
            let expected = &expected[usize::try_from(from).expect("small")..];
            assert!(
                bytes.iter().zip(expected).all(|(byte, own)| byte == own || *byte == 0),
                "unit {n}: {from}"
            );
            zeros += usize::from(block_crcs(from, &bytes) != view.blocks());
        }
        assert!(matches!(
            content(&store, 1, n, from + 1, to, Want::Newest),
            Ok(_) | Err(Error::Damaged { segment: 2, .. })
        ));
    }
    assert!(zeros <= 2, "{zeros} blocks with zeros: at most one page has some");
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

#[test]
fn threads_that_read_a_file_while_it_is_cut_go_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = read_through(dir.path());
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for n in (0..20_000).map(|n| 1 + (n * 7 + seed) % 19) {
                    match content(store, 1, n, 8192, 12_288, Want::Newest) {
                        Ok(bytes) => assert!(bytes == pattern(n, 12_288)[8192..], "unit {n}"),
                        Err(Error::Damaged { segment: 2 | 3, .. }) => {}
                        Err(error) => panic!("unit {n}: {error}"),
                    }
                }
            });
        }
        for number in [2, 3] {
            let file = OpenOptions::new().write(true).open(segment(dir.path(), number)).expect("a segment");
            file.set_len(4096).expect("cut");
        }
    });
}
