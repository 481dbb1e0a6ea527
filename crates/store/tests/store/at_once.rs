//! Reads that wait for nothing: they return the same bytes as any other read, or none.

use std::sync::Arc;

use braid_layout::{Generation, ObjectId};
use braid_store::disk::memory::{Fault, Memory, On};
use braid_store::*;

use crate::common::*;

fn at_once(store: &Store, unit: u64, from: u32, to: u32) -> Result<(View, Vec<u8>), Error> {
    let view = store.read_at_once(P, ObjectId(1), unit, from..to, Want::Newest)?;
    let mut stored = vec![0; usize::try_from(view.stored_bytes()).expect("memory")];
    view.read_at_once_into(&mut stored)?;
    Ok((view, stored))
}

/// A store in memory with units of one record, of several, with holes, and one that was never written.
fn filled() -> (Memory, Store) {
    let disk = Memory::new(7);
    Store::format_on(&disk, identity(), &options()).expect("format");
    let (store, _) = Store::open_on(Arc::new(disk.clone()), None, options()).expect("open");
    store.commit(partition()).expect("partition");
    store.commit(create(1)).expect("object");
    let mut n = 0;
    for unit in 0..8 {
        for (from, to) in [(0, UNIT), (8192, 20_000), (100, 200), (40_960, 45_056)].iter().take(1 + unit % 4)
        {
            n += 1;
            let unit = u64::try_from(unit).expect("small");
            store.commit(Mutation::Write(write(1, unit, *from, *to, version(1, n)))).expect("written");
            store.commit(settled(1, version(1, n + 1))).expect("settled");
        }
    }
    store.commit(Mutation::Write(write(1, 9, 4096, 9000, version(1, n + 1)))).expect("written");
    (disk, store)
}

#[test]
fn they_are_the_same_as_those_that_wait() {
    let (_, store) = filled();
    let mut read = 0;
    let mut left = 0;
    for unit in 0..11 {
        for (from, to) in [(0, 4096), (0, 10), (4096, 12_288), (8000, 21_000), (40_000, 48_000), (100, 8192)]
        {
            let view = store.read(P, ObjectId(1), unit, from..to, Want::Newest).expect("there");
            match at_once(&store, unit, from, to) {
                Ok((at_once, stored)) => {
                    assert_eq!(stored, read_stored(&view).expect("read"), "{unit} {from}..{to}");
                    assert_eq!(at_once.blocks(), view.blocks());
                    assert_eq!(at_once.extents(), view.extents());
                    assert_eq!((at_once.version, at_once.pending), (view.version, view.pending));
                    assert_eq!((at_once.g, at_once.set), (view.g, view.set));
                    bytes_of(&at_once, to - from).expect("its checksums are right");
                    read += 1;
                }
                Err(Error::WouldWait) => left += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(read > 10 && left > 10, "{read} read, {left} left to those that wait");
}

#[test]
fn a_disk_that_fails_is_left_to_those_that_wait() {
    let (disk, store) = filled();
    let reads = || (0..8).filter(|unit| at_once(&store, *unit, 0, 4096).is_ok()).count();
    assert!(reads() > 0);
    let now = disk.operations(On::Read);
    disk.inject(On::Read, now..u64::MAX, Fault::Io);
    for unit in 0..8 {
        assert!(matches!(at_once(&store, unit, 0, 4096), Err(Error::WouldWait)), "{unit}");
    }
}

#[test]
fn what_any_read_refuses_they_refuse() {
    let (_, store) = filled();
    let ask = |object, from, to| store.read_at_once(P, ObjectId(object), 0, from..to, Want::Newest).err();
    assert!(matches!(ask(2, 0, 10), Some(Error::NoObject(..))));
    assert!(matches!(ask(1, 10, 10), Some(Error::Malformed(_))));
    assert!(matches!(ask(1, 0, UNIT + 1), Some(Error::Malformed(_))));
}

#[test]
fn an_object_is_shown_as_it_is() {
    let (_, store) = filled();
    let shown = store.with_object(P, ObjectId(1), |state| (state.g, state.map.to_vec()));
    assert_eq!(shown.expect("there"), (Generation(1), b"map".to_vec()));
    assert!(matches!(store.with_object(P, ObjectId(2), |_| ()), Err(Error::NoObject(..))));
}
