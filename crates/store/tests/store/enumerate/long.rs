//! Commits that are written in several parts, all but the last started before the sync, and payloads that
//! begin at pages.

use braid_layout::{Generation, ObjectId};
use braid_store::*;

use super::workload::Step;
use crate::common::*;
use crate::unit_writes::unit_write;

const LONG_UNIT: u32 = 512 << 10;
/// A payload of this length begins at a page.
const PAGED: u32 = 260 << 10;
/// A payload of this length does not, but its commit is still started before its sync.
const STARTED: u32 = 132 << 10;

/// Segments of a few long commits, which are written in parts of an eighth of a segment.
pub(super) fn options() -> Options {
    Options { segment_bytes: u64::from(LONG_UNIT), ..Options::default() }
}

/// All steps, in order: long writes, partial overwrites, several in one commit, recycled segments, and moves
/// by the cleaner.
pub(super) fn workload() -> Vec<Step> {
    let mut steps = Vec::new();
    let mut one = |mutation| steps.push(Step::Commit(vec![mutation]));
    one(Mutation::PartitionCreate { partition: P, quota_bytes: None, key_epoch: 1 });
    let attributes = Attributes { unit_bytes: LONG_UNIT, ..attributes() };
    one(Mutation::Create { partition: P, object: ObjectId(1), attributes });
    one(Mutation::Write(write(1, 0, 0, 1000, version(1, 1))));
    one(Mutation::Write(write(1, 1, 0, PAGED, version(1, 2))));
    one(Mutation::Write(write(1, 1, 100_000, 100_000 + STARTED, version(1, 3))));
    one(Mutation::UnitWrite(unit_write(2, 700, 700 + PAGED, 1)));
    steps.push(Step::Checkpoint);
    let both = [(3, STARTED), (4, STARTED)];
    let both = both.map(|(unit, to)| Mutation::Write(write(1, unit, 0, to, version(1, 2 + unit))));
    steps.push(Step::Commit(both.into_iter().chain([create(2)]).collect()));
    steps.push(Step::Reopen);
    // Files that are freed and then overwritten.
    for n in 0..3 {
        let written = write(1, 4, 5000, 5000 + PAGED, version(2, 10 + n));
        steps.push(Step::Commit(vec![Mutation::Write(Write { standing: Standing::Installed, ..written })]));
    }
    steps.push(Step::Checkpoint);
    steps.push(Step::Checkpoint);
    steps.push(Step::Commit(vec![Mutation::Write(write(1, 5, 0, PAGED, version(2, 20)))]));
    steps.push(Step::Commit(vec![settled(1, version(2, 22))]));
    steps.push(Step::Clean);
    let g = Generation(1);
    steps.push(Step::Commit(vec![Mutation::Remove { partition: P, object: ObjectId(2), g }]));
    steps.push(Step::Commit(vec![Mutation::Write(write(1, 0, 500, 2000, version(3, 30)))]));
    steps
}
