//! The content of a stripe that a joining column must hold: the newest that is surely settled. Pure.
//!
//! Pending content may still be taken back, so it is not installed. There is one exception, which is why the
//! columns are examined together: a stamp that some column of its write has settled, or that all columns of
//! its write have, is settled whatever the other columns know.
//!
//! A stamp that every ready column has and the joining one lacks may have been acknowledged before the
//! joining column joined. It will be settled or taken back soon; the joining column is not done until then.
//! The same holds for a unit write that its data column still owes: the joining column must have the delta.

use std::collections::BTreeMap;

use braid_layout::{Column, ColumnMask, Role, Shape, Stripe, Version};
use braid_wire::data::UnitState;

/// States of the units of one stripe, by column of the set. A column without an entry never had a unit of the
/// stripe.
pub(crate) type Survey = BTreeMap<Column, UnitState>;

/// Comparison of a joining column's unit with the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The unit is what the cut names.
    Current,
    /// The unit is older than the cut, or lost.
    Behind,
    /// The unit is newer, as the columns were not asked at the same time. The caller must ask again.
    Ahead,
}

/// A stripe, and the state of its file's columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StripePlace {
    pub(crate) shape: Shape,
    pub(crate) stripe: Stripe,
    pub(crate) set: ColumnMask,
    pub(crate) joining: ColumnMask,
}

/// The newest settled version of each data unit, for the joining column `own`. `None` if it is not known yet.
pub(crate) fn settled_cut(place: &StripePlace, own: Column, survey: &Survey) -> Option<Vec<Version>> {
    let known = |column: &Column| survey.get(column).filter(|state| !state.damaged);
    let has = |column: &Column, stamp: Version| known(column).is_some_and(|state| newest(state) >= stamp);
    let ready = place.set.minus(place.joining);
    let mut proven: Vec<Version> = Vec::new();
    for pending in survey.values().filter(|state| !state.damaged).filter_map(|state| state.pending.as_ref()) {
        let stamp = pending.stamp;
        let columns = pending.columns.and(place.set);
        let settled = |column: Column| known(&column).is_some_and(|state| state.settled >= stamp);
        if columns.iter().any(settled) || columns.iter().all(|column| has(&column, stamp)) {
            proven.push(stamp);
        } else if columns.contains(own) && !has(&own, stamp) {
            let is_lost = |column: Column| survey.get(&column).is_some_and(|state| state.damaged);
            let lacks = |column: Column| !is_lost(column) && !has(&column, stamp);
            if !columns.and(ready).iter().any(lacks) {
                return None;
            }
        }
    }
    let pending = |state: &UnitState| {
        let pending = state.pending.clone();
        pending.filter(|pending| proven.contains(&pending.stamp))
    };
    let k = place.shape.k();
    let mut cut = vec![Version::ZERO; usize::from(k)];
    let mut tips: Vec<Option<Version>> = vec![None; usize::from(k)];
    let mut alive = vec![false; usize::from(k)];
    for (column, state) in survey.iter().filter(|(column, state)| ready.contains(**column) && !state.damaged)
    {
        match place.shape.role(place.stripe, *column) {
            Role::Data(data) => {
                let version = pending(state).map_or(state.settled, |pending| pending.stamp);
                let at = usize::from(data);
                (cut[at], alive[at]) = (cut[at].max(version), true);
            }
            Role::Parity(_) => {
                let cover = pending(state).map_or_else(|| state.cover.clone(), |pending| pending.cover);
                for data in 0..k {
                    let at = usize::from(data);
                    let counted = cover.get(at).copied().unwrap_or_default();
                    cut[at] = cut[at].max(counted);
                    let of = place.shape.column(place.stripe, Role::Data(data));
                    let tip = state.tips.iter().find(|tip| tip.column == of);
                    let tip = tip.map_or(counted, |tip| tip.version.max(counted));
                    tips[at] = Some(tips[at].map_or(tip, |lowest| lowest.min(tip)));
                }
            }
        }
    }
    // A data column that is not ready may have brought deltas to the parity before it went out: those that
    // all parity columns have count.
    for ((version, tip), alive) in cut.iter_mut().zip(tips).zip(alive) {
        if !alive {
            *version = (*version).max(tip.unwrap_or_default());
        }
    }
    Some(cut)
}

/// Returns true if a ready data column owes a unit write whose delta the joining column `own` does not have.
pub(crate) fn lacks_owed(place: &StripePlace, own: Column, survey: &Survey) -> bool {
    if !matches!(place.shape.role(place.stripe, own), Role::Parity(_)) {
        return false;
    }
    let ready = place.set.minus(place.joining);
    let counted = |data: u8, of: Column| {
        let state = survey.get(&own)?;
        let tip = state.tips.iter().find(|tip| tip.column == of).map(|tip| tip.version);
        tip.or_else(|| state.cover.get(usize::from(data)).copied())
    };
    (0..place.shape.k()).any(|data| {
        let of = place.shape.column(place.stripe, Role::Data(data));
        let state = survey.get(&of).filter(|state| ready.contains(of) && !state.damaged);
        let owed = state.and_then(|state| state.owed.last());
        owed.is_some_and(|&owed| counted(data, of).is_none_or(|counted| counted < owed))
    })
}

/// Compares the unit of the joining column `own` with the cut.
pub(crate) fn standing(place: &StripePlace, own: Column, survey: &Survey, cut: &[Version]) -> Standing {
    let Some(state) = survey.get(&own) else {
        let written = match place.shape.role(place.stripe, own) {
            Role::Data(data) => cut.get(usize::from(data)).is_some_and(|version| !version.is_zero()),
            Role::Parity(_) => cut.iter().any(|version| !version.is_zero()),
        };
        return if written { Standing::Behind } else { Standing::Current };
    };
    let named = |data: usize| cut.get(data).copied().unwrap_or_default();
    // Per data unit: the lowest and the highest version held, and the one that the cut names. A parity unit
    // has a base, and deltas on top of it.
    let spans: Vec<(Version, Version, Version)> = match place.shape.role(place.stripe, own) {
        Role::Data(data) => vec![(state.settled, state.settled, named(usize::from(data)))],
        Role::Parity(_) => (0..place.shape.k())
            .map(|data| {
                let at = usize::from(data);
                let base = state.cover.get(at).copied().unwrap_or_default();
                let of = place.shape.column(place.stripe, Role::Data(data));
                let tip = state.tips.iter().find(|tip| tip.column == of);
                (base, tip.map_or(base, |tip| tip.version.max(base)), named(at))
            })
            .collect(),
    };
    if state.damaged {
        Standing::Behind
    } else if spans.iter().any(|(from, _, named)| from > named) {
        Standing::Ahead
    } else if spans.iter().all(|(_, to, named)| to >= named) {
        Standing::Current
    } else {
        Standing::Behind
    }
}

fn newest(state: &UnitState) -> Version {
    let pending = state.pending.as_ref().map_or(Version::ZERO, |pending| pending.stamp);
    let owed = state.owed.last().copied().unwrap_or_default();
    state.settled.max(pending).max(owed)
}

#[cfg(test)]
mod tests {
    use braid_layout::{Generation, Lease, Scheme};
    use braid_wire::data::{PendingState, Tip};

    use super::*;

    fn v(n: u64) -> Version {
        Version { g: Generation(1), lease: Lease(1), n }
    }

    fn mask(columns: &[u8]) -> ColumnMask {
        columns.iter().copied().map(Column).collect()
    }

    /// raid4 2+1: columns 0 and 1 are data, 2 is parity. Column 0 is joining, unless another is.
    fn place(joining: u8) -> StripePlace {
        let shape = Shape::new(Scheme::Raid4, 2, 1, 4096).expect("a shape");
        StripePlace { shape, stripe: Stripe(0), set: mask(&[0, 1, 2]), joining: mask(&[joining]) }
    }

    fn unit(settled: u64, cover: &[u64], pending: Option<(u64, &[u8], &[u64])>) -> UnitState {
        let version = |n: u64| if n == 0 { Version::ZERO } else { v(n) };
        let versions = |ns: &[u64]| ns.iter().map(|&n| version(n)).collect::<Vec<_>>();
        UnitState {
            unit: 0,
            settled: version(settled),
            cover: versions(cover),
            ends: Vec::new(),
            pending: pending.map(|(n, columns, cover)| PendingState {
                columns: mask(columns),
                cover: versions(cover),
                ..PendingState::of(v(n))
            }),
            owed: Vec::new(),
            tips: Vec::new(),
            damaged: false,
            end: 0,
        }
    }

    fn survey(units: &[UnitState]) -> Survey {
        (0..).map(Column).zip(units.iter().cloned()).collect()
    }

    fn check(joining: u8, units: &[UnitState], expected: Option<(&[u64], Standing)>) {
        let place = place(joining);
        let survey = survey(units);
        let cut = settled_cut(&place, Column(joining), &survey);
        let found = cut.map(|cut| {
            let standing = standing(&place, Column(joining), &survey, &cut);
            (cut.iter().map(|version| version.n).collect::<Vec<_>>(), standing)
        });
        assert_eq!(found, expected.map(|(cut, standing)| (cut.to_vec(), standing)), "{units:?}");
    }

    #[test]
    fn what_was_written_while_it_was_away_is_behind_and_nothing_else() {
        let parity = unit(7, &[7, 6], None);
        check(
            0,
            &[unit(7, &[], None), unit(6, &[], None), parity.clone()],
            Some((&[7, 6], Standing::Current)),
        );
        check(
            0,
            &[unit(5, &[], None), unit(6, &[], None), parity.clone()],
            Some((&[7, 6], Standing::Behind)),
        );
        check(0, &[unit(8, &[], None), unit(6, &[], None), parity.clone()], Some((&[7, 6], Standing::Ahead)));
        let damaged = UnitState { damaged: true, ..unit(7, &[], None) };
        check(0, &[damaged, unit(6, &[], None), parity], Some((&[7, 6], Standing::Behind)));
        check(
            2,
            &[unit(7, &[], None), unit(6, &[], None), unit(6, &[5, 6], None)],
            Some((&[7, 6], Standing::Behind)),
        );
        check(
            2,
            &[unit(7, &[], None), unit(6, &[], None), unit(9, &[5, 9], None)],
            Some((&[7, 6], Standing::Ahead)),
        );
    }

    #[test]
    fn a_stamp_in_flight_is_not_installed_and_one_that_is_settled_somewhere_is() {
        let all: &[u8] = &[0, 1, 2];
        // The other data column lacks it.
        let flying = unit(5, &[5, 5], Some((8, all, &[8, 8])));
        check(
            0,
            &[unit(4, &[], None), unit(5, &[], None), flying.clone()],
            Some((&[5, 5], Standing::Behind)),
        );
        // All have it, the joining one too.
        let has = |settled| unit(settled, &[], Some((8, all, &[])));
        check(0, &[has(4), has(5), flying.clone()], Some((&[8, 8], Standing::Behind)));
        // One has settled it.
        check(0, &[has(4), unit(8, &[], None), flying.clone()], Some((&[8, 8], Standing::Behind)));
        // All but the joining one have it: it may have been acknowledged before that one joined.
        check(0, &[unit(4, &[], None), has(5), flying.clone()], None);
        // It touches other columns only.
        let others = unit(5, &[5, 5], Some((8, &[1, 2], &[5, 8])));
        let data = unit(5, &[], Some((8, &[1, 2], &[])));
        check(0, &[unit(5, &[], None), data, others], Some((&[5, 8], Standing::Current)));
    }

    #[test]
    fn deltas_of_a_column_that_went_out_count_as_far_as_all_parities_have_them() {
        let tips = |n| vec![Tip { column: Column(0), version: v(n), end: 0 }];
        let parity = UnitState { tips: tips(7), ..unit(5, &[5, 5], None) };
        check(
            0,
            &[unit(5, &[], None), unit(5, &[], None), parity.clone()],
            Some((&[7, 5], Standing::Behind)),
        );
        // A live data column says itself what is settled, and a parity column has it in its deltas.
        check(
            2,
            &[unit(5, &[], None), unit(5, &[], None), parity.clone()],
            Some((&[5, 5], Standing::Current)),
        );
        check(
            2,
            &[unit(7, &[], None), unit(5, &[], None), parity.clone()],
            Some((&[7, 5], Standing::Current)),
        );
        check(2, &[unit(8, &[], None), unit(5, &[], None), parity], Some((&[8, 5], Standing::Behind)));
    }

    /// rs 1+2: column 0 is data, 1 and 2 are parity, of which 2 is joining.
    fn mirrored(data: UnitState, parity: UnitState, own: UnitState) -> (StripePlace, Survey) {
        let shape = Shape::new(Scheme::Rs, 1, 2, 4096).expect("a shape");
        let place = StripePlace { shape, stripe: Stripe(0), set: mask(&[0, 1, 2]), joining: mask(&[2]) };
        (place, survey(&[data, parity, own]))
    }

    fn delta_up_to(n: u64) -> UnitState {
        let tips = vec![Tip { column: Column(0), version: v(n), end: 0 }];
        UnitState { tips, ..unit(4, &[4], None) }
    }

    #[test]
    fn a_parity_column_is_not_done_without_what_a_data_column_owes() {
        let owes = UnitState { owed: vec![v(5), v(7)], ..unit(4, &[], None) };
        let lacks = |data: &UnitState, own: UnitState| {
            let (place, survey) = mirrored(data.clone(), delta_up_to(7), own);
            lacks_owed(&place, Column(2), &survey)
        };
        assert!(lacks(&owes, unit(4, &[4], None)), "the base");
        assert!(lacks(&owes, delta_up_to(5)));
        assert!(!lacks(&owes, delta_up_to(7)));
        assert!(!lacks(&owes, unit(7, &[7], None)));
        assert!(!lacks(&unit(7, &[], None), unit(4, &[4], None)), "what is settled is in the cut");
        let (place, mut survey) = mirrored(owes, delta_up_to(7), unit(4, &[4], None));
        survey.remove(&Column(2));
        assert!(lacks_owed(&place, Column(2), &survey), "it never had a unit of the stripe");
        let joins = StripePlace { joining: mask(&[0, 2]), ..place };
        assert!(!lacks_owed(&joins, Column(2), &survey), "what a joining column owes is dropped");
    }

    #[test]
    fn what_nobody_ever_wrote_is_current() {
        assert_eq!(settled_cut(&place(0), Column(0), &Survey::new()), Some(vec![Version::ZERO; 2]));
        assert_eq!(standing(&place(0), Column(0), &Survey::new(), &[Version::ZERO; 2]), Standing::Current);
        assert_eq!(standing(&place(0), Column(0), &Survey::new(), &[v(1), v(1)]), Standing::Behind);
    }
}
