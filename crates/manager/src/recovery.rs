//! Which pending stripe writes stay and which go (PROTOCOL section 6, step 4). Pure.
//!
//! A stamp goes **forward if every ready column of its columns has it** (its version or a later one), else **back**. Joining
//! columns do not vote, columns that are out do not, and neither does a column whose unit is damaged: it is lost there, not
//! old (R9). Somebody must have voted for a stamp that goes forward.

use std::collections::BTreeMap;

use braid_layout::{Column, ColumnMask, Version};
use braid_wire::data::{Tip, UnitState, UnitVerdict};

/// What the columns of the set hold of one unit index.
pub type Survey = BTreeMap<Column, UnitState>;

/// The verdict on one unit: the same for all columns. `None` if there is nothing to judge.
pub fn judge(unit: u64, set: ColumnMask, joining: ColumnMask, survey: &Survey) -> Option<UnitVerdict> {
    let ready = set.minus(joining);
    let mut stamps: BTreeMap<Version, ColumnMask> = BTreeMap::new();
    for pending in survey.values().filter_map(|state| state.pending.as_ref()) {
        let columns = stamps.entry(pending.stamp).or_default();
        *columns = columns.or(pending.columns);
    }
    let (mut forward, mut back) = (Vec::new(), Vec::new());
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
    let cutoff = cutoffs(ready, survey);
    let verdict = UnitVerdict { unit, forward, back, cutoff };
    let empty = verdict.forward.is_empty() && verdict.back.is_empty() && verdict.cutoff.is_empty();
    (!empty).then_some(verdict)
}

/// The part of a verdict that concerns a column: stamps that it has pending, and cut-offs of chains that it has.
pub fn part_for(verdict: &UnitVerdict, state: &UnitState) -> Option<UnitVerdict> {
    let pending = state.pending.as_ref().map(|pending| pending.stamp);
    let own = |stamps: &[Version]| -> Vec<Version> {
        stamps.iter().copied().filter(|&stamp| Some(stamp) == pending).collect()
    };
    let chain =
        |cut: &&Tip| state.tips.iter().any(|tip| tip.column == cut.column && tip.version > cut.version);
    let part = UnitVerdict {
        unit: verdict.unit,
        forward: own(&verdict.forward),
        back: own(&verdict.back),
        cutoff: verdict.cutoff.iter().filter(chain).cloned().collect(),
    };
    let empty = part.forward.is_empty() && part.back.is_empty() && part.cutoff.is_empty();
    (!empty).then_some(part)
}

/// Whether a column has a stamp: its version, or a later one, which proves it settled (C1).
fn has(state: &UnitState, stamp: Version) -> bool {
    let newest_owed = state.owed.last().copied().unwrap_or(Version::ZERO);
    let pending = state.pending.as_ref().map_or(Version::ZERO, |pending| pending.stamp);
    state.settled.max(newest_owed).max(pending) >= stamp
}

/// For each column that is not ready, its lowest tip among the ready columns that have a chain of its deltas.
fn cutoffs(ready: ColumnMask, survey: &Survey) -> Vec<Tip> {
    let mut lowest: BTreeMap<Column, Version> = BTreeMap::new();
    let of_ready = survey.iter().filter(|(column, _)| ready.contains(**column));
    for tip in of_ready.flat_map(|(_, state)| &state.tips).filter(|tip| !ready.contains(tip.column)) {
        let low = lowest.entry(tip.column).or_insert(tip.version);
        *low = tip.version.min(*low);
    }
    lowest.into_iter().map(|(column, version)| Tip { column, version }).collect()
}
