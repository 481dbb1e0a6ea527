//! Long payloads begin at pages of their files and are read straight from there. Short ones are read with
//! their headers.

use braid_layout::{Generation, ObjectId};
use braid_store::*;

use crate::common::*;

const LONG: u32 = 512 << 10;

fn image(dir: &std::path::Path) -> Store {
    let store = fresh(dir, Options { segment_bytes: 4 << 20, ..options() });
    let attributes = Attributes { unit_bytes: LONG, g: Generation(1), ..attributes() };
    store.commit(Mutation::Create { partition: P, object: ObjectId(1), attributes }).expect("create");
    // After short writes of many lengths, a long one begins at every block of a page.
    for n in 0..12 {
        let short = 1 + 512 * u32::try_from(n).expect("small");
        store.commit(Mutation::Write(write(1, 2 * n, 0, short, version(1, 2 * n + 1)))).expect("short");
        let to = if n % 2 == 0 { LONG } else { LONG / 2 };
        store.commit(Mutation::Write(write(1, 2 * n + 1, 0, to, version(1, 2 * n + 2)))).expect("long");
    }
    store
}

#[test]
fn a_long_payload_begins_at_a_page() {
    let dir = tempfile::tempdir().expect("a directory");
    let check = |store: &Store| {
        for n in 0..12 {
            let to = if n % 2 == 0 { LONG } else { LONG / 2 };
            let view = store.read(P, ObjectId(1), 2 * n + 1, 0..to, Want::Newest).expect("view");
            assert_eq!(view.pieces().len(), 1);
            assert_eq!(view.pieces()[0].offset % 4096, 0, "unit {}", 2 * n + 1);
            let bytes = content(store, 1, 2 * n + 1, 0, to, Want::Newest).expect("read");
            assert!(bytes == pattern(2 * n + 2, bytes.len()));
            let short = 1 + 512 * u32::try_from(n).expect("small");
            let bytes = content(store, 1, 2 * n, 0, short, Want::Newest).expect("read");
            assert!(bytes == pattern(2 * n + 1, bytes.len()));
            store.verify_unit(P, ObjectId(1), 2 * n + 1).expect("whole");
        }
    };
    let store = image(dir.path());
    check(&store);
    store.close().expect("close");
    drop(store);
    let (store, recovery) = open(dir.path());
    assert_eq!((recovery.torn_bytes, recovery.damaged_count), (0, 0));
    check(&store);
}

/// Reads return the written bytes also if the header is cached from the previous read.
#[test]
fn any_range_of_a_long_payload_reads_as_it_was_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = image(dir.path());
    let whole = content(&store, 1, 1, 0, LONG, Want::Newest).expect("read");
    for from in [0, 1, 511, 4095, 4096, 4097, LONG - 4096, LONG - 1] {
        for length in [1, 512, 4095, 4096, 4097, 12_288, 40_000, 70_000] {
            let to = (from + length).min(LONG);
            let part = content(&store, 1, 1, from, to, Want::Newest).expect("read and verified");
            let view = store.read(P, ObjectId(1), 1, from..to, Want::Newest).expect("view");
            // Bytes that the view itself holds cannot be sent from a file.
            assert!(!(view.pieces().is_empty() && view.is_resident()), "{from}..{to}");
            let at = |at: u32| usize::try_from(at).expect("small");
            assert!(part == whole[at(from)..at(to)], "{from}..{to}");
        }
    }
}

#[test]
fn a_flipped_bit_of_a_long_payload_is_found_at_the_far_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = image(dir.path());
    let view = store.read(P, ObjectId(1), 1, 0..LONG, Want::Newest).expect("view");
    let path = segments(dir.path()).remove(0);
    let mut bytes = std::fs::read(&path).expect("read");
    let begin = usize::try_from(view.pieces()[0].offset).expect("small");
    bytes[begin + 100_000] ^= 4;
    std::fs::write(&path, &bytes).expect("write");
    let read = content(&store, 1, 1, 0, LONG, Want::Newest);
    assert!(matches!(read, Err(Error::Checksum { .. })), "{read:?}");
    let part = content(&store, 1, 1, 99_000, 101_000, Want::Newest);
    assert!(matches!(part, Err(Error::Damaged { .. })), "{part:?}");
    content(&store, 1, 1, 0, 98_304, Want::Newest).expect("what is before is whole");
}
