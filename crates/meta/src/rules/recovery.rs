//! The verdict on pending stripe writes: which stay and which go (PROTOCOL section 6, step 4). Pure.
//!
//! A stamp goes **forward if every ready column of its columns has it** (its version or a later one), else
//! **back**. Columns that are joining or out do not vote. Nor does a column whose unit is damaged: it has
//! lost the unit and is not merely out of date (R9). A stamp needs at least one vote to go forward.
//!
//! A stamp that is pending on a joining column goes back there, whatever the others say (section 7: the
//! column drops what is unsettled on it). It may belong to a write that was undone while the column was away.
//! A later version on other columns does not prove that it is settled, as later writes were made without this
//! column. The column is brought up to date before it is ready, so nothing is lost. The same holds for deltas
//! that the column owes. Drives drop both with the fence (R7); those of release 0.1.0 do it by the verdict.
//!
//! Stamps of live leases are left alone, except those on joining columns: their writer sends them again. A
//! file has one live lease, or one for each part that is written separately; a shared lease has no stamps.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{Column, ColumnMask, Lease, Role, Shape, Stripe, Version};
use braid_wire::data::{CutOff, UnitState, UnitVerdict};

/// States of one unit index on the columns of the set.
pub type Survey = BTreeMap<Column, UnitState>;

/// The pending stamps that are judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stamps {
    /// All stamps: no lease is live.
    All,
    /// Stamps of all leases but these, which are live; and those on joining columns, which go back there.
    NotOf(BTreeSet<Lease>),
}

/// The columns of a segment.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    /// Shape of the segment, which gives each column its role.
    pub shape: Shape,
    /// Columns of the set.
    pub set: ColumnMask,
    /// Columns of the set that are joining.
    pub joining: ColumnMask,
}

/// The verdict on one unit: the same for all columns, except for what joining ones drop.
pub fn judge(unit: u64, columns: Columns, judged: &Stamps, survey: &Survey) -> UnitVerdict {
    let ready = columns.set.minus(columns.joining);
    let mut stamps: BTreeMap<Version, ColumnMask> = BTreeMap::new();
    for pending in survey.values().filter_map(|state| state.pending.as_ref()) {
        let columns = stamps.entry(pending.stamp).or_default();
        *columns = columns.or(pending.columns);
    }
    let mut forward = Vec::new();
    let mut back = Vec::new();
    if let Stamps::NotOf(live) = judged {
        stamps.retain(|stamp, _| !live.contains(&stamp.lease));
    }
    for (stamp, columns) in stamps {
        let voters = columns.and(ready);
        let mut votes = survey
            .iter()
            .filter(|(column, state)| voters.contains(**column) && !state.damaged)
            .map(|(_, state)| has(state, stamp))
            .peekable();
        let stays = votes.peek().is_some() && votes.all(|has| has);
        if stays { forward.push(stamp) } else { back.push(stamp) }
    }
    UnitVerdict { unit, forward, back, cutoff: cutoffs(columns.shape, unit, ready, survey) }
}

/// State of a column of the set in the vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnState {
    Ready,
    /// The column has no vote, and its pending stamps go back.
    Joining,
}

/// The part of a verdict that concerns a column: stamps that it has pending, and cut-offs of chains that it
/// has. Of a joining column everything unsettled goes back. `None` if nothing concerns the column.
pub fn part_for(verdict: &UnitVerdict, state: &UnitState, column: ColumnState) -> Option<UnitVerdict> {
    let pending = state.pending.as_ref().map(|pending| pending.stamp);
    let own = |stamps: &[Version]| -> Vec<Version> {
        stamps.iter().copied().filter(|&stamp| Some(stamp) == pending).collect()
    };
    let (forward, back) = match column {
        ColumnState::Ready => (own(&verdict.forward), own(&verdict.back)),
        ColumnState::Joining => (Vec::new(), pending.into_iter().chain(state.owed.iter().copied()).collect()),
    };
    let chain =
        |cut: &&CutOff| state.tips.iter().any(|tip| tip.column == cut.column && tip.version > cut.version);
    let part = UnitVerdict {
        unit: verdict.unit,
        forward,
        back,
        cutoff: verdict.cutoff.iter().filter(chain).cloned().collect(),
    };
    let empty = part.forward.is_empty() && part.back.is_empty() && part.cutoff.is_empty();
    (!empty).then_some(part)
}

/// Returns true if a column has a stamp: its version, or a later one, which proves it settled (C1).
fn has(state: &UnitState, stamp: Version) -> bool {
    let newest_owed = state.owed.last().copied().unwrap_or(Version::ZERO);
    let pending = state.pending.as_ref().map_or(Version::ZERO, |pending| pending.stamp);
    state.settled.max(newest_owed).max(pending) >= stamp
}

/// For each data column that is not ready, the lowest tip of its deltas on the ready parity columns: a delta
/// that one of those lacks was not acknowledged. A parity column without deltas has the version that its base
/// covers.
fn cutoffs(shape: Shape, unit: u64, ready: ColumnMask, survey: &Survey) -> Vec<CutOff> {
    let stripe = Stripe(unit);
    let is_voter = |column: Column, state: &UnitState| {
        ready.contains(column) && !state.damaged && matches!(shape.role(stripe, column), Role::Parity(_))
    };
    let parity: Vec<&UnitState> =
        survey.iter().filter(|(column, state)| is_voter(**column, state)).map(|(_, state)| state).collect();
    let mut cuts = Vec::new();
    for data in 0..shape.k() {
        let column = shape.column(stripe, Role::Data(data));
        if ready.contains(column) {
            continue;
        }
        let base = |state: &UnitState| state.cover.get(usize::from(data)).copied().unwrap_or(Version::ZERO);
        let tip =
            |state: &UnitState| state.tips.iter().find(|tip| tip.column == column).map(|tip| tip.version);
        let has_deltas = parity.iter().any(|state| tip(state).is_some());
        let lowest = parity.iter().map(|state| tip(state).unwrap_or_else(|| base(state))).min();
        if let Some(version) = lowest.filter(|_| has_deltas) {
            cuts.push(CutOff { column, version });
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    use braid_layout::{Generation, Scheme, Version};
    use braid_wire::data::{PendingState, Tip};

    use super::*;

    fn v(g: u32, lease: u32, n: u64) -> Version {
        Version { g: Generation(g), lease: Lease(lease), n }
    }

    fn mask(columns: &[u8]) -> ColumnMask {
        columns.iter().copied().map(Column).collect()
    }

    /// raid4 of two data columns: 0 and 1 are data in every stripe.
    fn columns(set: &[u8], joining: &[u8]) -> Columns {
        let shape = Shape::new(Scheme::Raid4, 2, 1, 4096).unwrap();
        Columns { shape, set: mask(set), joining: mask(joining) }
    }

    /// A column that holds `settled`, and `pending` over it, a stripe write to these columns.
    fn unit(settled: Version, pending: Option<(Version, &[u8])>) -> UnitState {
        let pending = pending
            .map(|(stamp, columns)| PendingState { columns: mask(columns), ..PendingState::of(stamp) });
        UnitState {
            unit: 3,
            settled,
            cover: Vec::new(),
            ends: Vec::new(),
            pending,
            owed: Vec::new(),
            tips: Vec::new(),
            damaged: false,
            end: 0,
        }
    }

    fn survey<const N: usize>(columns: [(u8, UnitState); N]) -> Survey {
        columns.into_iter().map(|(column, state)| (Column(column), state)).collect()
    }

    /// Checks the verdict on a survey: the stamps that go forward, and those that go back.
    fn check(set: &[u8], joining: &[u8], survey: &Survey, forward: &[Version], back: &[Version]) {
        let verdict = judge(3, columns(set, joining), &Stamps::All, survey);
        assert_eq!((verdict.forward, verdict.back), (forward.to_vec(), back.to_vec()));
    }

    const OLD: Version = Version { g: Generation(1), lease: Lease(1), n: 1 };

    #[test]
    fn a_stamp_that_every_column_has_goes_forward() {
        let s = v(1, 2, 5);
        let all: &[u8] = &[0, 1, 2];
        let both = survey([
            (0, unit(OLD, Some((s, all)))),
            (1, unit(OLD, Some((s, all)))),
            (2, unit(OLD, Some((s, all)))),
        ]);
        check(all, &[], &both, &[s], &[]);
        // One column has settled the stamp, one has a later one: both count as having it.
        let later = v(1, 2, 6);
        let some = survey([(0, unit(s, None)), (1, unit(OLD, Some((s, all)))), (2, unit(later, None))]);
        check(all, &[], &some, &[s], &[]);
        check(all, &[], &survey([(0, unit(s, None)), (1, unit(s, None)), (2, unit(s, None))]), &[], &[]);
    }

    #[test]
    fn a_stamp_that_one_ready_column_lacks_goes_back() {
        let s = v(1, 2, 5);
        let all: &[u8] = &[0, 1, 2];
        let lacks =
            survey([(0, unit(OLD, Some((s, all)))), (1, unit(OLD, None)), (2, unit(OLD, Some((s, all))))]);
        check(all, &[], &lacks, &[], &[s]);
    }

    #[test]
    fn columns_that_are_untouched_out_or_joining_have_no_vote() {
        let s = v(2, 2, 5);
        let two: &[u8] = &[0, 2];
        let untouched =
            survey([(0, unit(OLD, Some((s, two)))), (1, unit(OLD, None)), (2, unit(OLD, Some((s, two))))]);
        check(&[0, 1, 2], &[], &untouched, &[s], &[]);
        let all: &[u8] = &[0, 1, 2];
        let out = survey([(0, unit(OLD, Some((s, all)))), (2, unit(OLD, Some((s, all))))]);
        check(&[0, 2], &[], &out, &[s], &[]);
        let joining =
            survey([(0, unit(OLD, Some((s, all)))), (1, unit(OLD, None)), (2, unit(OLD, Some((s, all))))]);
        check(&[0, 1, 2], &[1], &joining, &[s], &[]);
        // A write that only a joining column has was never acknowledged.
        let only = survey([(0, unit(OLD, None)), (1, unit(OLD, Some((s, all)))), (2, unit(OLD, None))]);
        check(&[0, 1, 2], &[1], &only, &[], &[s]);
        let nobody = survey([(1, unit(OLD, Some((s, all))))]);
        check(&[0, 1, 2], &[1], &nobody, &[], &[s]);
    }

    #[test]
    fn a_damaged_unit_is_lost_not_old() {
        let s = v(1, 2, 5);
        let all: &[u8] = &[0, 1];
        let damaged = UnitState { damaged: true, ..unit(Version::ZERO, None) };
        check(all, &[], &survey([(0, unit(OLD, Some((s, all)))), (1, damaged)]), &[s], &[]);
    }

    #[test]
    fn stamps_are_judged_one_by_one() {
        // Column 0 was told of a later write of the same lease: the earlier is settled, the later did not
        // arrive elsewhere.
        let early = v(1, 2, 5);
        let late = v(1, 2, 6);
        let all: &[u8] = &[0, 1];
        let states = survey([(0, unit(early, Some((late, all)))), (1, unit(OLD, Some((early, all))))]);
        check(all, &[], &states, &[early], &[late]);
        // A stamp of an ended lease goes forward where another column has settled a later lease's version.
        let newer = v(2, 3, 1);
        let states = survey([(0, unit(newer, None)), (1, unit(OLD, Some((early, all))))]);
        check(all, &[], &states, &[early], &[]);
    }

    #[test]
    fn each_column_is_told_only_what_it_has() {
        let s = v(1, 2, 5);
        let all: &[u8] = &[0, 1];
        let states = survey([(0, unit(OLD, Some((s, all)))), (1, unit(OLD, None))]);
        let verdict = judge(3, columns(all, &[]), &Stamps::All, &states);
        assert_eq!(part_for(&verdict, &states[&Column(0)], ColumnState::Ready).unwrap().back, [s]);
        assert_eq!(part_for(&verdict, &states[&Column(1)], ColumnState::Ready), None);
    }

    /// Column 0 stored a write that no other column did, and was away when that was undone and when parity
    /// took a later one.
    #[test]
    fn what_a_column_brings_back_pending_is_dropped_though_the_others_have_later_versions() {
        let undone = v(1, 2, 5);
        let later = v(2, 3, 1);
        let states =
            survey([(0, unit(OLD, Some((undone, &[0, 2])))), (1, unit(later, None)), (2, unit(later, None))]);
        let verdict = judge(3, columns(&[0, 1, 2], &[0]), &Stamps::All, &states);
        let part = part_for(&verdict, &states[&Column(0)], ColumnState::Joining).unwrap();
        assert_eq!((part.forward, part.back), (vec![], vec![undone]));
    }

    #[test]
    fn the_cut_off_of_a_lost_column_is_its_lowest_tip_at_the_ready_ones() {
        let rs = |set: &[u8], joining: &[u8]| {
            let shape = Shape::new(Scheme::Rs, 2, 3, 4096).unwrap();
            Columns { shape, set: mask(set), joining: mask(joining) }
        };
        // In stripe 0 columns 0 and 1 are data, and the others parity.
        let cut = |n| vec![CutOff { column: Column(0), version: v(1, 1, n) }];
        let tip = |n| vec![Tip { column: Column(0), version: v(1, 1, n), end: 0 }];
        let parity = |n| UnitState { tips: tip(n), ..unit(OLD, None) };
        let states = survey([(2, parity(7)), (3, parity(5)), (4, parity(3))]);
        let verdict = judge(0, rs(&[1, 2, 3, 4], &[4]), &Stamps::NotOf(BTreeSet::from([Lease(1)])), &states);
        assert_eq!(verdict.cutoff, cut(5));
        assert_eq!(part_for(&verdict, &states[&Column(2)], ColumnState::Ready).unwrap().cutoff, cut(5));
        let part = part_for(&verdict, &states[&Column(3)], ColumnState::Ready);
        assert_eq!(part, None, "nothing above it there");
        let ready = judge(0, rs(&[0, 1, 2, 3], &[]), &Stamps::All, &states);
        assert!(ready.cutoff.is_empty(), "a ready column is not cut");
        // A parity column without a delta of the column has the version that its base covers.
        let base = UnitState { cover: vec![v(1, 1, 4), OLD], ..unit(v(1, 1, 4), None) };
        let states = survey([(2, parity(7)), (3, base), (4, parity(3))]);
        let verdict = judge(0, rs(&[1, 2, 3, 4], &[4]), &Stamps::All, &states);
        assert_eq!(verdict.cutoff, cut(4));
        let none = survey([(2, parity(7)), (3, unit(Version::ZERO, None))]);
        let verdict = judge(0, rs(&[1, 2, 3], &[]), &Stamps::All, &none);
        assert_eq!(verdict.cutoff[0].version, Version::ZERO, "it was never written there");
    }

    #[test]
    fn what_a_joining_column_owes_or_has_pending_goes_also_under_a_live_lease() {
        let s = v(2, 2, 5);
        let owed = v(2, 2, 4);
        let live = unit(OLD, Some((s, &[0, 2])));
        let joins = UnitState { owed: vec![owed], ..unit(OLD, None) };
        let states = survey([(0, live.clone()), (1, joins), (2, live.clone())]);
        let verdict =
            judge(3, columns(&[0, 1, 2], &[1]), &Stamps::NotOf(BTreeSet::from([Lease(2)])), &states);
        assert!(verdict.forward.is_empty() && verdict.back.is_empty());
        let part = part_for(&verdict, &states[&Column(1)], ColumnState::Joining).unwrap();
        assert_eq!(part.back, [owed]);
        assert_eq!(part_for(&verdict, &states[&Column(0)], ColumnState::Ready), None);
        let states = survey([(0, live.clone()), (1, live.clone()), (2, live)]);
        let verdict =
            judge(3, columns(&[0, 1, 2], &[1]), &Stamps::NotOf(BTreeSet::from([Lease(2)])), &states);
        assert_eq!(part_for(&verdict, &states[&Column(0)], ColumnState::Ready), None, "it is left alone");
        assert_eq!(part_for(&verdict, &states[&Column(1)], ColumnState::Joining).unwrap().back, [s]);
    }
}
