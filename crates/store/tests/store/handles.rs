//! The number of files a store keeps open is bounded, however many it has.

use braid_layout::ObjectId;
use braid_store::*;

use crate::common::*;

/// Files below `dir` that this process has open, including removed ones.
fn open_files(dir: &std::path::Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("listed").flatten();
    let names = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    names.filter(|name| name.starts_with(dir)).count()
}

#[test]
fn reading_everything_opens_a_bounded_number_of_files() {
    const UNITS: u64 = 700;
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().canonicalize().expect("a path");
    // One unit per segment.
    let store = fresh(&place, Options { segment_bytes: 64 << 10, ..options() });
    store.commit(create(1)).expect("create");
    for unit in 0..UNITS {
        store.commit(Mutation::Write(write(1, unit, 0, UNIT, version(1, unit + 1)))).expect("write");
    }
    let segments = segments(&place).len();
    assert!(segments > 600, "{segments} segments");
    // Parts of units, so that their records' headers are cached.
    for round in 0..3 {
        for unit in 0..UNITS {
            let from = round * 8192;
            let to = round * 8192 + 4096;
            store.read(P, ObjectId(1), unit, from..to, Want::Newest).expect("read");
        }
    }
    let open = open_files(&place);
    assert!(open <= 512 + 16, "{open} files open for {segments} segments");
}
