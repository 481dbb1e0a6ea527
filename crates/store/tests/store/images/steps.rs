//! The steps that produce the healthy image: few and small, storing mostly zeros.

use std::sync::Arc;

use braid_layout::{
    ClientId, Column, ColumnMask, Generation, ObjectId, OperationNumber, PartitionId, Version,
};
use braid_store::disk::memory::Memory;
use braid_store::format::superblock::Superblock;
use braid_store::*;

use super::text::{Image, image_of};
use crate::common::*;
use crate::unit_writes::unit_write;

/// The store's salt, which is random otherwise.
const SALT: u64 = 0x5a17_c0de;

pub(super) fn options() -> Options {
    Options { segment_bytes: 64 << 10, ..Options::default() }
}

/// A store that was closed once, made a checkpoint later, and was killed some records after that.
pub(super) fn image() -> Image {
    let disk = Memory::new(1);
    Store::format_on(&disk, identity(), &options()).expect("format");
    let Identity { cluster, drive } = identity();
    disk.plant("superblock", &Superblock { cluster, drive, salt: SALT }.encode());
    let open = || Store::open_on(Arc::new(disk.clone()), Some(identity()), options()).expect("open").0;
    let store = open();
    cleaned(&store);
    store.close().expect("close");
    drop(store);
    let store = open();
    partitions(&store);
    data(&store);
    parity(&store);
    joining(&store);
    checkpoint(&store);
    tail(&store);
    // Folding is complete before this is answered.
    all(&store, [Mutation::Flush]);
    image_of(&disk)
}

fn checkpoint(store: &Store) {
    all(store, [Mutation::Flush]);
    store.checkpoint().expect("checkpoint");
}

fn all(store: &Store, mutations: impl IntoIterator<Item = Mutation>) {
    for mutation in mutations {
        let outcome = store.commit(mutation.clone()).unwrap_or_else(|error| panic!("{error}: {mutation:?}"));
        assert!(
            !matches!(
                outcome,
                MutationOutcome::Already | MutationOutcome::Older { .. } | MutationOutcome::Known { .. }
            ),
            "{outcome:?}: {mutation:?}"
        );
    }
}

/// Bytes that identify their source, eight in each 1000.
fn sparse(seed: u64, from: u32, to: u32) -> Body {
    let mut bytes = vec![0; usize::try_from(to - from).expect("small")];
    let marks = pattern(seed, 8);
    for chunk in bytes.chunks_mut(1000) {
        let length = chunk.len().min(marks.len());
        chunk[..length].copy_from_slice(&marks[..length]);
    }
    body(from, &bytes)
}

fn data_write(object: u64, unit: u64, from: u32, to: u32, version: Version) -> Write {
    Write { body: sparse(version.n, from, to), ..write(object, unit, from, to, version) }
}

fn stripe(object: u64, unit: u64, range: (u32, u32), version: Version) -> Mutation {
    Mutation::Write(data_write(object, unit, range.0, range.1, version))
}

fn install(object: u64, unit: u64, range: (u32, u32), version: Version) -> Mutation {
    Mutation::Write(Write {
        standing: Standing::Installed,
        ..data_write(object, unit, range.0, range.1, version)
    })
}

fn retire(object: u64, settled_below: Version, client: ClientId, watermark: OperationNumber) -> Mutation {
    Mutation::Retire {
        partition: P,
        object: ObjectId(object),
        g: Generation(1),
        settled_below,
        client,
        watermark,
    }
}

fn verdict(object: u64, unit: u64, forward: Vec<Version>, back: Vec<Version>) -> Mutation {
    let units = vec![UnitVerdict { unit, forward, back, cut_offs: Vec::new() }];
    Mutation::Verdict { partition: P, object: ObjectId(object), g: Generation(1), units }
}

/// Writes two objects, removes one and has the other's bytes moved, so that the log's first segments are
/// gone.
fn cleaned(store: &Store) {
    let make = |partition, quota_bytes| Mutation::PartitionCreate {
        partition: PartitionId(partition),
        quota_bytes,
        key_epoch: 1,
    };
    all(store, [make(7, None), make(9, Some(1 << 20)), create(1), create(4)]);
    for n in 0..8 {
        all(store, [install(1 + 3 * (n % 2), n / 2, (0, 20_000), version(1, 1 + n))]);
    }
    all(store, [remove(4)]);
    assert!(store.clean().expect("clean") > 0);
}

fn partitions(store: &Store) {
    let other = PartitionId(8);
    all(
        store,
        [
            Mutation::PartitionSet { partition: P, quota_bytes: Some(8 << 20), key_epoch: 2 },
            Mutation::PartitionCreate { partition: other, quota_bytes: None, key_epoch: 3 },
            Mutation::PartitionRemove { partition: other },
        ],
    );
}

/// Object 1, of a data column, with three stills, of which one is removed and one was made anew in part.
fn data(store: &Store) {
    let partition = P;
    let object = ObjectId(1);
    let owed =
        |unit, n| Mutation::OwedSettled { partition, object, g: Generation(1), unit, up_to: version(4, n) };
    let unit_write = |unit, from, to, operation| {
        Mutation::UnitWrite(UnitWrite {
            body: sparse(100 + operation, from, to),
            ..unit_write(unit, from, to, operation)
        })
    };
    let hole = Write { body: Body::Hole, ..write(1, 1, 4000, 9000, version(2, 41)) };
    let change = Change {
        modified_ms: Some(2000),
        reserve_bytes: Some(200_000),
        cluster: Some(6),
        opaque: Some(b"other".to_vec()),
        ..Change::default()
    };
    all(
        store,
        [
            Mutation::SetAttributes { partition, object, g: Generation(1), change },
            take(1, 52),
            stripe(1, 0, (5000, 9000), version(2, 40)),
            Mutation::Write(hole),
            retire(1, version(2, 42), ClientId::NONE, OperationNumber::NONE),
            take(1, 53),
            take(1, 54),
            stripe(1, 0, (8000, 9500), version(2, 43)),
            unit_write(5, 100, 5000, 1),
            unit_write(5, 4000, 6000, 2),
            unit_write(6, 0, 3000, 3),
            unit_write(6, 1000, 2000, 4),
            owed(5, 1),
            verdict(1, 6, vec![version(4, 1)], vec![version(4, 2)]),
            retire(1, Version::ZERO, ClientId(11), OperationNumber(2)),
            remove(52),
            Mutation::Write(Write { standing: Standing::Repaired, ..write(54, 0, 0, 3000, version(2, 40)) }),
        ],
    );
}

fn delta(unit: u64, data: u8, range: (u32, u32), from_version: Version, to_version: Version) -> Delta {
    Delta {
        partition: P,
        object: ObjectId(2),
        unit,
        from: range.0,
        to: range.1,
        column: Column(data),
        data,
        from_version,
        to_version,
        end: end_of(to_version),
        client: ClientId(11),
        operation: OperationNumber(to_version.n),
        watermark: OperationNumber(2),
        g: Generation(1),
        settled_to: Version::ZERO,
        body: sparse(to_version.n, range.0, range.1),
    }
}

/// Object 2, of a parity column: a base, a stripe write on top, and chains of deltas. One unit has so many
/// that they are folded.
fn parity(store: &Store) {
    let attributes = Attributes { column: Column(3), map: b"parity".to_vec(), ..attributes() };
    let of = |kind, standing, unit, n| {
        let cover = vec![version(6, n), Version::ZERO, version(6, n)];
        let written = Write { standing, ..data_write(2, unit, 0, 6000, version(6, n)) };
        Mutation::Write(counting(written, kind, cover))
    };
    all(
        store,
        [
            Mutation::Create { partition: P, object: ObjectId(2), attributes },
            of(WriteKind::ParityBase, Standing::Installed, 0, 1),
            of(WriteKind::StripeParity, Standing::Pending, 0, 2),
            of(WriteKind::StripeParity, Standing::Pending, 1, 3),
            Mutation::Delta(delta(1, 0, (500, 1500), version(6, 3), version(7, 4))),
            Mutation::Delta(delta(1, 1, (1000, 1100), Version::ZERO, version(7, 5))),
            Mutation::Delta(delta(1, 1, (1000, 1100), version(7, 5), version(7, 6))),
        ],
    );
    let units = vec![UnitVerdict {
        unit: 1,
        forward: vec![],
        back: vec![],
        cut_offs: vec![(Column(1), version(7, 5))],
    }];
    all(store, [Mutation::Verdict { partition: P, object: ObjectId(2), g: Generation(1), units }]);
    for n in 0..32 {
        let from = if n == 0 { Version::ZERO } else { version(8, n) };
        let delta = delta(2, 2, (0, 700), from, version(8, n + 1));
        // Only the first has bytes; the others change nothing.
        let body = if n == 0 { delta.body.clone() } else { Body::Hole };
        all(store, [Mutation::Delta(Delta { settled_to: delta.to_version, body, ..delta })]);
    }
}

/// Object 3, of a joining column, and object 5, which is made and removed.
fn joining(store: &Store) {
    let partition = P;
    let object = ObjectId(3);
    let attributes = Attributes { joining: ColumnMask(4), ..attributes() };
    let ready = |g, unit| Mutation::Ready { partition, object, g: Generation(g), unit, units: 1 };
    let g = Generation(2);
    let set = ColumnMask::all(4);
    let joining = ColumnMask(4);
    all(
        store,
        [
            Mutation::Create { partition, object, attributes },
            install(3, 1, (0, 3000), version(1, 60)),
            stripe(3, 2, (0, 2000), version(3, 62)),
            retire(3, version(3, 63), ClientId::NONE, OperationNumber::NONE),
            ready(1, 1),
            ready(1, 2),
            Mutation::Fence { partition, object, g, set, joining },
            ready(2, 4),
            Mutation::Ready { partition, object, g, unit: 1, units: 2 },
            create(5),
            stripe(5, 0, (0, 500), version(1, 61)),
            remove(5),
        ],
    );
}

/// The records after the checkpoint: in two segments, and about things in the checkpoint.
fn tail(store: &Store) {
    let partition = P;
    let object = ObjectId(1);
    let change = Change { modified_ms: Some(3000), ..Change::default() };
    all(
        store,
        [
            create(6),
            install(6, 0, (0, 20_000), version(1, 70)),
            stripe(1, 2, (0, 3000), version(2, 71)),
            Mutation::PartitionSet { partition, quota_bytes: Some(4 << 20), key_epoch: 4 },
            Mutation::OwedSettled { partition, object, g: Generation(1), unit: 5, up_to: version(4, 2) },
            install(6, 1, (0, 20_000), version(1, 72)),
            Mutation::SetAttributes { partition, object: ObjectId(3), g: Generation(2), change },
            install(6, 2, (0, 20_000), version(1, 73)),
            Mutation::Delta(delta(0, 0, (100, 200), version(6, 2), version(7, 74))),
            install(6, 3, (0, 20_000), version(1, 75)),
            stripe(1, 3, (100, 5000), version(2, 76)),
            stripe(6, 4, (0, 1000), version(1, 77)),
            create(7),
            stripe(7, 0, (0, 700), version(1, 78)),
        ],
    );
}
