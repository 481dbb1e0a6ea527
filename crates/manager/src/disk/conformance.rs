//! What every store of the manager's state must do, whatever it is made of. Each store's tests run this.

use std::sync::Arc;

use braid_meta::records::kv::{Batch, Kv, Pair};
use braid_meta::records::memory::{Disk, MemoryKv};

use crate::disk::embedded::EmbeddedKv;

/// Bytes of the largest batch that is tried.
const LARGE: usize = 10 << 20;

/// All rows of a store.
pub(crate) fn rows(kv: &dyn Kv) -> Vec<Pair> {
    kv.snapshot().expect("a snapshot").scan(&[], &[u8::MAX; 9], usize::MAX).expect("read")
}

/// A batch that sets these keys to this value.
pub(crate) fn set(keys: &[&str], value: &[u8]) -> Batch {
    keys.iter().map(|key| (key.as_bytes().to_vec(), Some(value.to_vec()))).collect()
}

/// Checks a store that is empty.
pub(crate) fn check(kv: &dyn Kv) {
    batches_are_whole_and_snapshots_stay(kv);
    rows_are_in_order(kv);
    large_and_empty_batches_are_stored(kv);
}

fn batches_are_whole_and_snapshots_stay(kv: &dyn Kv) {
    kv.commit(&set(&["a", "c1", "d2", "m"], b"1")).expect("stored");
    let before = kv.snapshot().expect("a snapshot");
    let mut second = set(&["a", "i9"], b"2");
    second.insert(b"d2".to_vec(), None);
    kv.commit(&second).expect("stored");
    let after = kv.snapshot().expect("a snapshot");
    let read = |snapshot: &dyn braid_meta::records::kv::Snapshot, key: &str| {
        snapshot.get(key.as_bytes()).expect("read")
    };
    for (key, was, is) in [("a", Some(b"1"), Some(b"2")), ("d2", Some(b"1"), None), ("i9", None, Some(b"2"))]
    {
        assert_eq!(read(before.as_ref(), key), was.map(|value| value.to_vec()), "{key} before");
        assert_eq!(read(after.as_ref(), key), is.map(|value| value.to_vec()), "{key} after");
    }
    assert_eq!(before.scan(&[], &[u8::MAX], 9).expect("read").len(), 4);
}

fn rows_are_in_order(kv: &dyn Kv) {
    let model = MemoryKv::new();
    for (key, value) in rows(kv) {
        model.commit(&Batch::from([(key, Some(value))])).expect("stored");
    }
    for round in 0..8u8 {
        let keys = (0..=u8::MAX)
            .filter(|first| (first ^ round) % 3 == 0)
            .flat_map(|first| [vec![first], vec![first, round]]);
        let change = |key: Vec<u8>| {
            let gone = key[0] % 5 == round % 5;
            (key, (!gone).then(|| vec![round]))
        };
        let batch: Batch = keys.map(change).collect();
        kv.commit(&batch).expect("stored");
        model.commit(&batch).expect("stored");
    }
    assert_eq!(rows(kv), rows(&model));
    let both = [kv.snapshot().expect("one"), model.snapshot().expect("one")];
    for (from, to, limit) in [("a", "e", 7), ("c", "d", usize::MAX), ("d", "c", 9), ("", "z", 1)] {
        let found = both.iter().map(|of| of.scan(from.as_bytes(), to.as_bytes(), limit).expect("read"));
        let found: Vec<_> = found.collect();
        assert_eq!(found[0], found[1], "{from}..{to}, {limit}");
    }
}

fn large_and_empty_batches_are_stored(kv: &dyn Kv) {
    let keys: Vec<String> = (0..100).map(|n| format!("i{n:03}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    kv.commit(&set(&keys, &vec![7; LARGE / 100])).expect("stored");
    kv.commit(&set(&["d-large"], &vec![8; LARGE / 4])).expect("stored");
    kv.commit(&Batch::new()).expect("stored");
    kv.commit(&set(&["a"], b"")).expect("stored");
    let snapshot = kv.snapshot().expect("one");
    let length = |key: &str| snapshot.get(key.as_bytes()).expect("read").map(|value| value.len());
    assert_eq!(
        (length("i042"), length("d-large"), length("a")),
        (Some(LARGE / 100), Some(LARGE / 4), Some(0))
    );
}

/// Checks a store that fails for a while: `fail` makes it fail, or ends that. Whatever became of a batch, all
/// of it is there or nothing, and the store goes on.
pub(crate) fn check_failing(kv: &dyn Kv, fail: impl Fn(bool)) {
    for round in 0..3u8 {
        let sure = format!("s{round}");
        let halves = [format!("a{round}"), format!("j{round}")];
        kv.commit(&set(&[&sure], b"1")).expect("stored");
        fail(true);
        let result = kv.commit(&set(&[&halves[0], &halves[1]], b"1"));
        fail(false);
        let there = |key: &str| {
            // It may take a moment until it is read again.
            let mut found = None;
            braid_testing::until("the store is read again", || {
                found = kv.snapshot().and_then(|snapshot| snapshot.get(key.as_bytes())).ok();
                found.is_some()
            });
            found.flatten().is_some()
        };
        assert!(there(&sure), "what was acknowledged is there");
        assert_eq!(there(&halves[0]), there(&halves[1]), "all or nothing");
        assert!(result.is_err() || there(&halves[0]));
        kv.commit(&set(&[&sure], b"2")).expect("stored again");
    }
}

#[test]
fn a_store_in_memory_conforms() {
    let kv = MemoryKv::new();
    check(&kv);
    let unsure = kv.restarted();
    check_failing(&unsure, |fails| unsure.set_disk(if fails { Disk::Unsure } else { Disk::Sound }));
    let full = kv.restarted();
    check_failing(&full, |fails| full.set_disk(if fails { Disk::Full } else { Disk::Sound }));
}

#[test]
fn the_embedded_store_conforms_and_keeps_all_over_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state");
    let kv: Arc<dyn Kv> = Arc::new(EmbeddedKv::open(&path).expect("made"));
    check(kv.as_ref());
    let before = rows(kv.as_ref());
    drop(kv);
    assert_eq!(rows(&EmbeddedKv::open(&path).expect("opened")), before);
}
