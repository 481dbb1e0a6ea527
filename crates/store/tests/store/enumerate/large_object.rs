//! Checkpoints of an object that takes several pages, interrupted after each operation, and with each
//! operation failing. Parity units with covers of the greatest length make the entries large with few units.

use braid_layout::{Generation, ObjectId, Version};
use braid_store::disk::memory::{Fault, Memory, On};
use braid_store::format::page::PageHead;
use braid_store::*;

use super::{commit_together, formatted, open_disk, options};
use crate::common::*;

const O: ObjectId = ObjectId(2);
const UNITS: u64 = 300;
const COVER: usize = 64;

/// A hole in a parity unit.
fn parity(unit: u64, n: u64) -> Mutation {
    let written = write(O.0, unit, 0, 4096, version(6, n));
    let base = Write { standing: Standing::Installed, body: Body::Hole, ..written };
    Mutation::Write(counting(base, WriteKind::ParityBase, vec![version(6, n); COVER]))
}

fn open(disk: &Memory) -> Result<(Store, Recovery), Error> {
    open_disk(disk, &options())
}

/// Objects before and after the large one, and no checkpoint yet.
fn prepared() -> Memory {
    let disk = formatted();
    let (store, _) = open(&disk).expect("open");
    let make = Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 };
    store.commit(make).expect("make the partition");
    for object in 1..4 {
        store.commit(create(object)).expect("create");
    }
    let units: Vec<Mutation> = (0..UNITS).map(|unit| parity(unit, 1 + unit)).collect();
    assert!(commit_together(&store, &units).iter().all(Result::is_ok));
    disk.after_kill(1)
}

/// The steps that follow. Each changes the visible contents, or is a checkpoint.
fn steps() -> Vec<Option<Mutation>> {
    let remove = Mutation::Remove { partition: P, object: O, g: Generation(1) };
    let changes = [parity(0, 1000), parity(UNITS / 2, 1001), parity(UNITS - 1, 1002)].map(Some);
    let around = [Some(Mutation::Write(write(3, 0, 0, 100, version(1, 1)))), None, Some(remove), None];
    [None].into_iter().chain(changes).chain([None]).chain(around).collect()
}

fn step(store: &Store, step: &Option<Mutation>) -> bool {
    match step {
        Some(mutation) => store.commit(mutation.clone()).is_ok(),
        None => store.checkpoint().is_ok(),
    }
}

/// The cover of each unit of the large object, and true if object 3 was written.
fn seen(store: &Store, what: &str) -> (Vec<Vec<Version>>, bool) {
    let covers = match store.versions(P, O, 0..UNITS) {
        Ok(_) => {
            let read = |unit| store.read(P, O, unit, 0..UNIT, Want::Newest);
            let cover = |unit| read(unit).unwrap_or_else(|error| panic!("{what}: {error}")).cover;
            (0..UNITS).map(cover).collect()
        }
        Err(Error::NoObject(..)) => Vec::new(),
        Err(error) => panic!("{what}: {error}"),
    };
    let written = store.versions(P, ObjectId(3), 0..1).unwrap_or_else(|error| panic!("{what}: {error}"));
    (covers, !written.is_empty())
}

/// The visible contents before the first step and after each.
fn expected() -> Vec<(Vec<Vec<Version>>, bool)> {
    let disk = prepared();
    let (store, _) = open(&disk).expect("open");
    let mut all = vec![seen(&store, "at first")];
    for (n, next) in steps().iter().enumerate() {
        assert!(step(&store, next), "step {n}");
        all.push(seen(&store, "without trouble"));
        if n == 0 {
            assert!(parts(&disk) > 3, "the object has several pages");
        }
    }
    all
}

/// The most pages of one object in a checkpoint.
fn parts(disk: &Memory) -> u32 {
    let names = disk.files().into_iter().filter(|name| name.ends_with(".ckp"));
    let pages = names.flat_map(|name| {
        let bytes = disk.content(&name).expect("there");
        let heads =
            (0..bytes.len()).step_by(512).filter_map(|at| Some(PageHead::decode(&bytes[at..]).ok()?.0));
        heads.map(|head| head.parts).collect::<Vec<_>>()
    });
    pages.max().unwrap_or(0)
}

#[test]
fn checkpoints_of_a_big_object_are_cut_short_after_each_operation() {
    let disk = prepared();
    let expected = expected();
    let steps = steps();
    for n in 0.. {
        let run = disk.after_kill(n);
        run.cut_after(n);
        let done =
            open(&run).map_or(0, |(store, _)| steps.iter().take_while(|next| step(&store, next)).count());
        for seed in 0..8 {
            let what = format!("cut after {n} changes, {done} steps done, seed {seed}");
            let left = if seed == 0 { run.after_kill(n) } else { run.after_power_cut(seed) };
            let (store, recovery) = open(&left).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(recovery.damaged_count, 0, "{what}: {:?}", recovery.damaged);
            let found = seen(&store, &what);
            let more = expected.get(done + 1).is_some_and(|more| *more == found);
            assert!(found == expected[done] || more, "{what}");
        }
        if !run.is_cut() {
            break;
        }
    }
}

#[test]
fn each_operation_of_a_big_objects_checkpoints_fails() {
    let disk = prepared();
    let expected = expected();
    let steps = steps();
    for (on, fault) in [
        (On::Write, Fault::Io),
        (On::Write, Fault::NoSpace),
        (On::Write, Fault::Short),
        (On::Sync, Fault::Io),
        (On::Name, Fault::Io),
        (On::Read, Fault::Io),
    ] {
        for n in 0.. {
            let run = disk.after_kill(n);
            run.inject(on, n..n + 1, fault);
            let what = format!("{on:?} {n}: {fault:?}");
            let (store, _) =
                open(&run).or_else(|_| open(&run)).unwrap_or_else(|error| panic!("{what}: {error}"));
            for (done, next) in steps.iter().enumerate() {
                assert!(
                    step(&store, next) || step(&store, next),
                    "{what}: step {done} works the second time"
                );
            }
            assert!(seen(&store, &what) == expected[steps.len()], "{what}");
            let (store, recovery) =
                open(&run.after_kill(n)).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(recovery.damaged_count, 0, "{what}: {:?}", recovery.damaged);
            assert!(seen(&store, &what) == expected[steps.len()], "{what}: opened again");
            if run.operations(on) <= n {
                break;
            }
        }
    }
}
