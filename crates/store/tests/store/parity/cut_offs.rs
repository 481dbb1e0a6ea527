//! Deltas that go: by cut-offs that do not lie on the chain, and by a fence of a column that joins.

use super::*;

/// Another parity column may still have an older base, and no delta of the lost column.
#[test]
fn a_cut_off_below_the_base_removes_what_stands_on_it() {
    let mut run = Run::new();
    run.stripe(0b111, 0, 700);
    run.verdict(true);
    let settled = run.chains[0].versions.len();
    run.unit_write(0, 100, 900, false);
    run.unit_write(1, 0, 300, false);
    let cut_offs = vec![(Column(1), Version::ZERO)];
    let units = vec![UnitVerdict { unit: 0, forward: vec![], back: vec![], cut_offs }];
    let verdict = Mutation::Verdict { partition: P, object: O, g: Generation(1), units };
    assert_eq!(run.store.commit(verdict.clone()).expect("verdict"), MutationOutcome::Applied);
    assert_eq!(run.store.commit(verdict).expect("again"), MutationOutcome::Already);
    run.chains[0].versions.truncate(settled);
    run.check();
    run.reopen(true);
    run.check();
    let tips = &run.store.versions(P, O, 0..1).expect("versions")[0].tips;
    let version = run.chains[1].tip();
    let tip = ChainTip { column: Column(2), version, end: end_of(version) };
    assert_eq!(tips[..], [tip], "the other column's stay");
}

#[test]
fn a_fence_drops_unsettled_deltas_of_a_column_that_joins() {
    let mut run = Run::new();
    run.stripe(0b111, 0, 700);
    run.verdict(true);
    run.unit_write(0, 100, 900, false);
    run.unit_write(1, 0, 300, false);
    run.unit_write(1, 300, 500, true);
    run.unit_write(1, 200, 50, false);
    let own = ColumnMask::EMPTY.with(attributes().column);
    let fence =
        Mutation::Fence { partition: P, object: O, g: Generation(2), set: ColumnMask::all(5), joining: own };
    assert_eq!(run.store.commit(fence).expect("fence"), MutationOutcome::Applied);
    for chain in &mut run.chains {
        chain.versions.truncate(chain.settled);
    }
    run.check();
    run.reopen(true);
    run.check();
    assert_eq!(run.store.unsettled(P, O).expect("known"), []);
}
