//! The choice of the parity units to fold when many wait: lost ones must not hold up the others.

use std::sync::Arc;

use braid_layout::{ClientId, Column, Generation, ObjectId, OperationNumber, Version};
use braid_store::disk::memory::Memory;
use braid_store::format::record::{Kind, Record, flags};
use braid_store::*;

use crate::common::*;

const O: ObjectId = ObjectId(2);
const LENGTH: usize = 100;
/// The number of units that may wait.
const WAITING: u64 = 64;
/// The first units are lost.
const LOST: u64 = 30;
/// The most units folded between two commits.
const AT_ONCE: u64 = 4;

fn open_disk(disk: &Memory) -> (Store, Recovery) {
    let options = Options { sync: true, ..options() };
    Store::open_on(Arc::new(disk.clone()), Some(identity()), options).expect("open")
}

/// The first or the second delta of a unit, settled at once.
fn delta(unit: u64, second: bool) -> Mutation {
    let to_version = version(6, 1 + u64::from(second));
    Mutation::Delta(Delta {
        partition: P,
        object: O,
        unit,
        from: 0,
        to: u32::try_from(LENGTH).expect("small"),
        column: Column(1),
        data: 0,
        from_version: if second { version(6, 1) } else { Version::ZERO },
        to_version,
        end: end_of(to_version),
        client: ClientId(11),
        operation: OperationNumber(unit),
        watermark: OperationNumber::NONE,
        g: Generation(1),
        settled_to: to_version,
        body: body(0, &pattern(1 + 2 * unit + u64::from(second), LENGTH)),
    })
}

/// The contents of a unit with both deltas.
fn both(unit: u64) -> Vec<u8> {
    let first = pattern(1 + 2 * unit, LENGTH);
    let second = pattern(2 + 2 * unit, LENGTH);
    first.iter().zip(&second).map(|(a, b)| a ^ b).collect()
}

/// The records in the log's only segment, with their offsets.
fn records(disk: &Memory) -> Vec<(usize, Record)> {
    let bytes = disk.content("log/00000001.seg").expect("a segment");
    (0..bytes.len()).step_by(512).filter_map(|at| Some((at, decode_record(&bytes[at..]).ok()?))).collect()
}

fn read(store: &Store, unit: u64) -> Result<Vec<u8>, Error> {
    content(store, O.0, unit, 0, u32::try_from(LENGTH).expect("small"), Want::Newest)
}

#[test]
fn lost_units_are_passed_over_and_wait_no_more() {
    let disk = Memory::new(1);
    Store::format_on(&disk, identity(), &options()).expect("format");
    let (store, _) = open_disk(&disk);
    let make = Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 };
    for mutation in
        [make, create(O.0)].into_iter().chain((0..WAITING).flat_map(|u| [delta(u, false), delta(u, true)]))
    {
        store.commit(mutation).expect("commit");
    }
    let disk = disk.after_kill(1);
    drop(store);
    for (at, record) in records(&disk) {
        if record.kind == Kind::Delta && record.unit < LOST && record.version == version(6, 2) {
            assert!(disk.flip("log/00000001.seg", 8 * u64::try_from(at).expect("small")));
        }
    }
    let (store, recovery) = open_disk(&disk);
    assert!(recovery.damaged_count >= LOST, "{recovery:?}");
    // With one more, too many wait. Then come a few that would be too many again if the lost ones still
    // waited.
    for unit in WAITING..WAITING + 10 {
        store.commit(delta(unit, false)).expect("a delta");
        store.commit(delta(unit, true)).expect("a delta");
    }
    store.commit(Mutation::Flush).expect("flush");
    let is_folded = |record: &Record| record.kind == Kind::ParityBase && record.is(flags::FOLDED);
    let folded: Vec<u64> = records(&disk)
        .into_iter()
        .filter(|(_, record)| is_folded(record))
        .map(|(_, record)| record.unit)
        .collect();
    assert_eq!(folded, (LOST..LOST + AT_ONCE).collect::<Vec<_>>());
    for unit in 0..WAITING + 10 {
        let found = read(&store, unit);
        if unit < LOST {
            assert!(matches!(found, Err(Error::Damaged { .. })), "unit {unit}: {found:?}");
        } else {
            assert_eq!(found.expect("read"), both(unit), "unit {unit}");
        }
    }
}
