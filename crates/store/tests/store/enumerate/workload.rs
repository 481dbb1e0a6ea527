//! What is done before, while and after the disk fails. To add a kind of record: add steps that lead to it here.

use std::collections::BTreeSet;

use braid_layout::{ColumnMask, Generation, ObjectId, PartitionId, Version};
use braid_store::format::record::Kind;
use braid_store::*;

use crate::common::*;

/// Kinds that nothing writes in this release.
pub(super) const NOT_WRITTEN: &[Kind] = &[Kind::Delta, Kind::Ready];

/// A step of the workload.
#[derive(Clone)]
pub(super) enum Step {
    /// Mutations that go into one commit.
    Commit(Vec<Mutation>),
    /// Write a checkpoint.
    Checkpoint,
    /// Close cleanly and open again.
    Reopen,
    /// Clean, until nothing is gained by it.
    Clean,
}

/// All steps, in order. Each changes what can be seen of the store, or leads to a record, or both.
pub(super) fn workload() -> Vec<Step> {
    let mut steps = Vec::new();
    partitions(&mut steps);
    steps.push(Step::Checkpoint);
    stripe_writes(&mut steps);
    steps.push(Step::Reopen);
    rules(&mut steps);
    steps.push(Step::Checkpoint);
    churn(&mut steps);
    steps.push(Step::Checkpoint);
    half_dead(&mut steps);
    steps.push(Step::Clean);
    removals(&mut steps);
    steps.push(Step::Reopen);
    one(&mut steps, Mutation::Write(write(1, 9, 0, 100, version(9, 900))));
    steps
}

/// Whether all kinds but those of [`NOT_WRITTEN`], and none of these, were met.
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
    let change = Change { object_version: Some(3), opaque: Some(b"other".to_vec()), ..Change::default() };
    one(steps, Mutation::SetAttributes { partition: P, object: ObjectId(1), change });
}

fn stripe_writes(steps: &mut Vec<Step>) {
    one(steps, Mutation::Write(write(1, 0, 0, 5000, version(1, 1))));
    one(steps, Mutation::Write(write(1, 0, 3000, 9000, version(1, 2))));
    one(steps, Mutation::Write(Write { body: Body::Hole, ..write(1, 0, 100, 200, version(1, 3)) }));
    one(steps, parity(WriteKind::ParityBase, 20, version(1, 4)));
    one(steps, parity(WriteKind::StripeParity, 20, version(1, 5)));
    // Several in one commit: after a crash all of them are there, or none.
    let many = (0..5).map(|n| Mutation::Write(write(1, 30 + n, 0, 1500, version(1, 10 + n))));
    steps.push(Step::Commit(many.chain([create(3)]).collect()));
    let installed = Write { standing: Standing::Settled, ..write(2, 4, 500, 7000, version(1, 20)) };
    one(steps, Mutation::Write(installed));
}

fn parity(kind: WriteKind, unit: u64, version: Version) -> Mutation {
    let cover = vec![version, Version::ZERO, version];
    let standing = if kind == WriteKind::ParityBase { Standing::Settled } else { Standing::Pending };
    Mutation::Write(Write { kind, standing, cover, ..write(2, unit, 0, 4096, version) })
}

fn rules(steps: &mut Vec<Step>) {
    one(steps, Mutation::Write(write(1, 2, 0, 1000, version(2, 1))));
    one(steps, Mutation::Write(write(1, 2, 500, 2000, version(2, 2))));
    one(steps, Mutation::Write(write(1, 3, 0, 1000, version(3, 3))));
    let back = vec![UnitVerdict { unit: 2, forward: Vec::new(), back: vec![version(2, 2)] }];
    one(steps, Mutation::Verdict { partition: P, object: ObjectId(1), units: back });
    let forward = vec![UnitVerdict { unit: 3, forward: vec![version(3, 3)], back: Vec::new() }];
    one(steps, Mutation::Verdict { partition: P, object: ObjectId(1), units: forward });
    let settled_below = version(1, 100);
    one(steps, Mutation::Retire { partition: P, object: ObjectId(1), settled_below });
    let (g, set, joining) = (Generation(2), ColumnMask::all(4), ColumnMask(4));
    one(steps, Mutation::Fence { partition: P, object: ObjectId(2), g, set, joining });
}

/// Overwrites, until segments are sealed and freed.
fn churn(steps: &mut Vec<Step>) {
    for n in 0..14 {
        let written = write(1, n % 2, 0, 40_000, version(4, 50 + n));
        one(steps, Mutation::Write(Write { standing: Standing::Settled, ..written }));
    }
}

/// Segments of which every other record is overwritten, in units of several pieces and versions: work for the cleaner.
fn half_dead(steps: &mut Vec<Step>) {
    for n in 0..16 {
        let from = u32::try_from(n % 4).expect("small") * 5000;
        one(steps, Mutation::Write(write(1, 40 + n / 4, from, from + 5000, version(6, 100 + n))));
    }
    for n in 0..4 {
        one(steps, Mutation::Write(write(1, 40 + n, 2000, 9000, version(6, 120 + n))));
    }
    let settled_below = version(6, 122);
    one(steps, Mutation::Retire { partition: P, object: ObjectId(1), settled_below });
    one(steps, Mutation::Write(write(1, 50, 0, 20_000, version(7, 130))));
}

fn removals(steps: &mut Vec<Step>) {
    one(steps, Mutation::Remove { partition: P, object: ObjectId(3) });
    one(steps, create(3));
    one(steps, Mutation::Remove { partition: P, object: ObjectId(2) });
    let install = |n: u64| {
        let written = write(1, n % 2, 0, 40_000, version(5, 80 + n));
        Mutation::Write(Write { standing: Standing::Settled, ..written })
    };
    steps.push(Step::Commit(vec![install(0), install(1)]));
    one(steps, install(2));
}
