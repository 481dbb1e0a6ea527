//! The workload that runs before, during and after the disk's failures. For a new kind of record, add steps
//! that write it.

use std::collections::BTreeSet;
use std::ops::Range;

use braid_layout::{
    ClientId, Column, ColumnMask, Generation, ObjectId, OperationNumber, PartitionId, Version,
};
use braid_store::format::record::Kind;
use braid_store::*;

use crate::common::*;
use crate::unit_writes::unit_write;

/// Kinds that this release never writes.
pub(super) const NOT_WRITTEN: &[Kind] = &[];

/// A step of the workload.
#[derive(Clone)]
pub(super) enum Step {
    /// Mutations that go into one commit.
    Commit(Vec<Mutation>),
    /// Write a checkpoint.
    Checkpoint,
    /// Close cleanly and open again.
    Reopen,
    /// Clean until nothing more is gained.
    Clean,
}

/// All steps, in order. Each changes the store's visible contents, or writes a record, or both.
pub(super) fn workload() -> Vec<Step> {
    let mut steps = Vec::new();
    partitions(&mut steps);
    steps.push(Step::Checkpoint);
    stripe_writes(&mut steps);
    unit_writes(&mut steps);
    deltas(&mut steps);
    steps.push(Step::Reopen);
    rules(&mut steps);
    joining(&mut steps);
    stills(&mut steps);
    steps.push(Step::Checkpoint);
    churn(&mut steps);
    steps.push(Step::Checkpoint);
    half_dead(&mut steps);
    steps.push(Step::Clean);
    remove_a_still(&mut steps);
    removals(&mut steps);
    steps.push(Step::Reopen);
    one(&mut steps, remove(57));
    one(&mut steps, Mutation::Write(write(1, 9, 0, 100, version(9, 900))));
    steps
}

/// Checks that all kinds except [`NOT_WRITTEN`] were found, and none of these.
pub(super) fn judge_kinds(met: &BTreeSet<&'static str>) {
    for &(kind, _, name) in Kind::ALL {
        let expected = !NOT_WRITTEN.contains(&kind);
        assert_eq!(met.contains(name), expected, "kind {name}: the workload and NOT_WRITTEN do not fit");
    }
}

fn one(steps: &mut Vec<Step>, mutation: Mutation) {
    steps.push(Step::Commit(vec![mutation]));
}

fn partitions(steps: &mut Vec<Step>) {
    let other = PartitionId(8);
    one(steps, Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 });
    one(steps, Mutation::PartitionCreate { partition: other, quota_bytes: Some(1 << 20), key_epoch: 1 });
    one(steps, Mutation::PartitionSet { partition: P, quota_bytes: Some(8 << 20), key_epoch: 2 });
    one(steps, Mutation::PartitionRemove { partition: other });
    one(steps, create(1));
    one(steps, create(2));
    let change = Change { cluster: Some(3), opaque: Some(b"other".to_vec()), ..Change::default() };
    one(steps, Mutation::SetAttributes { partition: P, object: ObjectId(1), g: Generation(1), change });
}

fn stripe_writes(steps: &mut Vec<Step>) {
    one(steps, Mutation::Write(write(1, 0, 0, 5000, version(1, 1))));
    one(steps, Mutation::Write(write(1, 0, 3000, 9000, version(1, 2))));
    one(steps, Mutation::Write(Write { body: Body::Hole, ..write(1, 0, 100, 200, version(1, 3)) }));
    one(steps, parity(WriteKind::ParityBase, 20, version(1, 4)));
    one(steps, parity(WriteKind::StripeParity, 20, version(1, 5)));
    // Several in one commit: after a crash either all of them are there, or none.
    let many = (0..5).map(|n| Mutation::Write(write(1, 30 + n, 0, 1500, version(1, 10 + n))));
    steps.push(Step::Commit(many.chain([create(3)]).collect()));
    let installed = Write { standing: Standing::Installed, ..write(2, 4, 500, 7000, version(1, 20)) };
    one(steps, Mutation::Write(installed));
}

fn parity(kind: WriteKind, unit: u64, version: Version) -> Mutation {
    let cover = vec![version, Version::ZERO, version];
    let standing = if kind == WriteKind::ParityBase { Standing::Installed } else { Standing::Pending };
    let written = Write { standing, ..write(2, unit, 0, 4096, version) };
    Mutation::Write(counting(written, kind, cover))
}

fn unit_writes(steps: &mut Vec<Step>) {
    let object = ObjectId(1);
    let client = 11;
    for (unit, operation) in [(40, 1), (40, 2), (41, 3), (41, 4), (30, 5)] {
        one(
            steps,
            Mutation::UnitWrite(unit_write(
                unit,
                700 * u32::try_from(operation).expect("small"),
                5000,
                operation,
            )),
        );
    }
    one(
        steps,
        Mutation::OwedSettled { partition: P, object, g: Generation(1), unit: 40, up_to: version(4, 1) },
    );
    let forward = vec![version(4, 1)];
    let back = vec![version(4, 2)];
    let units = vec![UnitVerdict { unit: 41, forward, back, cut_offs: Vec::new() }];
    one(steps, Mutation::Verdict { partition: P, object, g: Generation(1), units });
    one(steps, Mutation::Write(write(1, 41, 0, 1000, version(5, 1))));
    let settled_below = Version::ZERO;
    one(
        steps,
        Mutation::Retire {
            partition: P,
            object,
            g: Generation(1),
            settled_below,
            client: ClientId(client),
            watermark: OperationNumber(2),
        },
    );
}

fn deltas(steps: &mut Vec<Step>) {
    one(steps, delta(0, 1000..4000, (Version::ZERO, version(6, 1)), Version::ZERO));
    one(steps, delta(0, 1000..4000, (version(6, 1), version(6, 2)), version(6, 1)));
    one(steps, delta(2, 1000..4000, (Version::ZERO, version(6, 3)), Version::ZERO));
    // A stripe write of a part of the unit, on top of them; settled by a delta that starts from its stamp.
    let cover = vec![version(6, 9), Version::ZERO, Version::ZERO];
    let stripe = counting(write(2, 21, 2000, 6000, version(6, 9)), WriteKind::StripeParity, cover);
    one(steps, Mutation::Write(stripe));
    one(steps, delta(0, 3000..3100, (version(6, 9), version(6, 10)), Version::ZERO));
    one(steps, delta(2, 3000..3100, (version(6, 3), version(6, 11)), Version::ZERO));
    let forward = Vec::new();
    let back = Vec::new();
    let cut_offs = vec![(Column(3), version(6, 3))];
    let units = vec![UnitVerdict { unit: 21, forward, back, cut_offs }];
    one(steps, Mutation::Verdict { partition: P, object: ObjectId(2), g: Generation(1), units });
}

fn delta(data: u8, range: Range<u32>, versions: (Version, Version), settled_to: Version) -> Mutation {
    let (from_version, to_version) = versions;
    Mutation::Delta(Delta {
        partition: P,
        object: ObjectId(2),
        unit: 21,
        from: range.start,
        to: range.end,
        column: Column(data + 1),
        data,
        from_version,
        to_version,
        end: end_of(to_version),
        client: ClientId(11),
        operation: OperationNumber(to_version.n),
        watermark: OperationNumber(2),
        g: Generation(1),
        settled_to,
        body: body(range.start, &pattern(to_version.n, range.len())),
    })
}

fn rules(steps: &mut Vec<Step>) {
    one(steps, Mutation::Write(write(1, 2, 0, 1000, version(2, 1))));
    one(steps, Mutation::Write(write(1, 2, 500, 2000, version(2, 2))));
    one(steps, Mutation::Write(write(1, 3, 0, 1000, version(3, 3))));
    let back =
        vec![UnitVerdict { unit: 2, forward: Vec::new(), back: vec![version(2, 2)], cut_offs: Vec::new() }];
    one(steps, Mutation::Verdict { partition: P, object: ObjectId(1), g: Generation(1), units: back });
    let forward =
        vec![UnitVerdict { unit: 3, forward: vec![version(3, 3)], back: Vec::new(), cut_offs: Vec::new() }];
    one(steps, Mutation::Verdict { partition: P, object: ObjectId(1), g: Generation(1), units: forward });
    // This one is installed below the pending version.
    one(steps, Mutation::Write(write(1, 12, 0, 2000, version(3, 9))));
    let below = Write { standing: Standing::Installed, ..write(1, 12, 500, 3000, version(3, 8)) };
    one(steps, Mutation::Write(below));
    let forward =
        vec![UnitVerdict { unit: 12, forward: vec![version(3, 9)], back: Vec::new(), cut_offs: Vec::new() }];
    one(steps, Mutation::Verdict { partition: P, object: ObjectId(1), g: Generation(1), units: forward });
    one(steps, settled(1, version(1, 100)));
    let g = Generation(2);
    let set = ColumnMask::all(4);
    let joining = ColumnMask(4);
    one(steps, Mutation::Fence { partition: P, object: ObjectId(2), g, set, joining });
}

/// Object 2's column is joining since generation 2: it catches up, with a fence in between.
fn joining(steps: &mut Vec<Step>) {
    let ready =
        |g, unit| Mutation::Ready { partition: P, object: ObjectId(2), g: Generation(g), unit, units: 1 };
    one(steps, ready(2, 20));
    one(steps, ready(2, 21));
    let g = Generation(3);
    let set = ColumnMask::all(3);
    let joining = ColumnMask(4);
    one(steps, Mutation::Fence { partition: P, object: ObjectId(2), g, set, joining });
    steps.push(Step::Commit(vec![ready(3, 4), ready(3, 30)]));
}

/// Stills that preserve contents from later steps: whole units, parts of them, parity with layers. Everything
/// must be settled first.
fn stills(steps: &mut Vec<Step>) {
    let forward =
        |unit, version| UnitVerdict { unit, forward: vec![version], back: vec![], cut_offs: vec![] };
    let units = vec![forward(40, version(4, 2)), forward(30, version(4, 1)), forward(41, version(5, 1))];
    one(steps, Mutation::Verdict { partition: P, object: ObjectId(1), g: Generation(1), units });
    one(steps, take(1, 53));
    one(steps, Mutation::Write(write(1, 2, 100, 300, version(2, 40))));
    one(steps, Mutation::Write(write(1, 40, 0, 3000, version(5, 40))));
    let retire = |lease| Mutation::Retire {
        partition: P,
        object: ObjectId(1),
        g: Generation(1),
        settled_below: version(lease, 100),
        client: ClientId::NONE,
        watermark: OperationNumber::NONE,
    };
    one(steps, retire(2));
    one(steps, retire(5));
    one(steps, take(1, 55));
    one(steps, take(1, 56));
    one(steps, Mutation::Write(write(1, 2, 200, 400, version(2, 41))));
    one(steps, remove(53));
    // A repair in place.
    let installed = Write { standing: Standing::Repaired, ..write(56, 2, 0, 3000, version(2, 40)) };
    one(steps, Mutation::Write(installed));
}

fn remove_a_still(steps: &mut Vec<Step>) {
    one(steps, remove(55));
}

/// Overwrites until segments are sealed and freed.
fn churn(steps: &mut Vec<Step>) {
    for n in 0..14 {
        let written = write(1, n % 2, 0, 40_000, version(4, 50 + n));
        one(steps, Mutation::Write(Write { standing: Standing::Installed, ..written }));
    }
}

/// Segments in which every other record is overwritten, of units with several pieces and versions: work for
/// the cleaner.
fn half_dead(steps: &mut Vec<Step>) {
    for n in 0..16 {
        let from = u32::try_from(n % 4).expect("small") * 5000;
        one(steps, Mutation::Write(write(1, 40 + n / 4, from, from + 5000, version(6, 100 + n))));
    }
    for n in 0..4 {
        one(steps, Mutation::Write(write(1, 40 + n, 2000, 9000, version(6, 120 + n))));
    }
    one(steps, settled(1, version(6, 122)));
    one(steps, Mutation::Write(write(1, 50, 0, 20_000, version(7, 130))));
}

fn removals(steps: &mut Vec<Step>) {
    one(steps, remove(3));
    one(steps, create(3));
    // A husk, which its still outlives.
    let written = write(3, 1, 0, 9000, version(5, 70));
    one(steps, Mutation::Write(Write { standing: Standing::Installed, ..written }));
    one(steps, take(3, 57));
    one(steps, remove(3));
    one(steps, Mutation::Remove { partition: P, object: ObjectId(2), g: Generation(3) });
    let install = |n: u64| {
        let written = write(1, n % 2, 0, 40_000, version(5, 80 + n));
        Mutation::Write(Write { standing: Standing::Installed, ..written })
    };
    steps.push(Step::Commit(vec![install(0), install(1)]));
    one(steps, install(2));
}
