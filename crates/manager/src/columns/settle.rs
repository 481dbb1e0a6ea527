//! The end of a file's data, by what its drives hold: its size after a writer died or released uncleanly
//! (DESIGN section 7).
//!
//! A writer commits the size now and then. Its writes beyond that were acknowledged too and must not be lost.
//! So when its lease has ended and its stripes are judged, every ready column is asked for its last units.
//! Writes that the size on record covers ([`InodeRecord::covers`]) say nothing more about it. For other
//! writes a ready data column says exactly where their bytes end.
//!
//! Where a data column is out or joining, or a unit of it is damaged, parity (or copies) tells the version of
//! the unit, and where the bytes of that version end. Only if the unit and all of its parity are damaged does
//! it count as full, as that is never too little.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_layout::{Column, ColumnMask, FileId, Role, Segment, Stripe, Version};
use braid_meta::records::schema::{InodeRecord, SegmentRecord};
use braid_meta::tree::files::FILE_BYTES_MAX;
use braid_meta::tree::shapes::from_spec;
use braid_wire::data::{Listing, UnitState};
use tokio::task::JoinSet;

use crate::columns::fence::Target;
use crate::core::Core;
use crate::drive_calls::CallError;

/// Number of units asked for at a time; usually the first is enough.
const PAGE: u32 = 64;

/// A data unit: its stripe, and its place there.
type DataUnit = (Stripe, u8);

/// Kind of units that a walk looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Units in which the column has data.
    Data,
    /// Units in which the column has parity, which stands in for data columns that cannot be asked.
    Parity,
}

/// Columns that were asked and did not answer, each with the reason.
type Failures = BTreeMap<(u32, Column), String>;

/// One past the last byte that the file's drives hold, or its committed size if that is more. The error has
/// the columns that did not answer. The stripes must have been judged, and nothing may be written meanwhile.
pub(crate) async fn data_end(core: &Arc<Core>, file: FileId, inode: &InodeRecord) -> Result<u64, Failures> {
    let mut end = inode.size;
    let mut failures = BTreeMap::new();
    let inode = Arc::new(inode.clone());
    for record in inode.in_force() {
        let ready = record.ready();
        let index = record.number;
        let segment = match segment_of(record) {
            Ok(segment) => Arc::new(segment),
            Err(why) => {
                failures.extend(ready.iter().map(|column| ((index, column), why.clone())));
                continue;
            }
        };
        let walk = Walk {
            segment,
            inode: Arc::clone(&inode),
            ready,
            end,
            damaged: Arc::default(),
            found: Found::default(),
        };
        let told = walk.all(core, file, index, Look::Data).await;
        let told = match told {
            Ok(told) if ready == record.all() && told.found.damaged.is_empty() => Ok(told.end),
            Ok(told) => {
                let end = told.end;
                let damaged = Arc::new(told.found.damaged);
                let parity = Walk { end, damaged, found: Found::default(), ..walk };
                parity.all(core, file, index, Look::Parity).await.map(Walk::with_unknown)
            }
            Err(lost) => Err(lost),
        };
        match told {
            Ok(reached) => end = end.max(reached),
            Err(lost) => failures.extend(lost),
        }
    }
    if failures.is_empty() { Ok(end.min(FILE_BYTES_MAX).max(inode.size)) } else { Err(failures) }
}

fn segment_of(record: &SegmentRecord) -> Result<Segment, String> {
    let shape = from_spec(&record.shape, &record.shape).map_err(|refusal| refusal.detail)?;
    Ok(Segment { start: record.start, end: record.end, shape, components: Vec::new() })
}

/// A walk over the ready columns, each from its last unit down.
#[derive(Clone)]
struct Walk {
    segment: Arc<Segment>,
    /// The file as it is on record.
    inode: Arc<InodeRecord>,
    ready: ColumnMask,
    /// One past the last byte known so far.
    end: u64,
    /// Damaged units of ready data columns.
    damaged: Arc<BTreeSet<DataUnit>>,
    found: Found,
}

/// Findings of a walk beside the end.
#[derive(Debug, Clone, Default)]
struct Found {
    /// Data units that are damaged, or whose parity is.
    damaged: BTreeSet<DataUnit>,
    /// Data units whose version parity has told.
    told: BTreeSet<DataUnit>,
}

impl Walk {
    /// Walks over all ready columns at once.
    async fn all(&self, core: &Arc<Core>, file: FileId, index: u32, look: Look) -> Result<Walk, Failures> {
        let mut all = self.clone();
        let mut failures = Failures::new();
        let mut walks = JoinSet::new();
        for column in self.ready.iter() {
            let Some(target) = Target::new(core, file, &self.inode, index, column) else {
                failures.insert((index, column), "the manager does not know its drive".to_owned());
                continue;
            };
            let core = Arc::clone(core);
            let walk = self.clone();
            walks.spawn(async move { (column, walk.run(&core, &target, column, look).await) });
        }
        while let Some(done) = walks.join_next().await {
            match done {
                Ok((_, Ok(walk))) => {
                    all.end = all.end.max(walk.end);
                    all.found.damaged.extend(walk.found.damaged);
                    all.found.told.extend(walk.found.told);
                }
                Ok((column, Err(error))) => drop(failures.insert((index, column), error.to_string())),
                Err(error) => {
                    tracing::error!(%error, "asking for a file's last units failed within the manager")
                }
            }
        }
        if failures.is_empty() { Ok(all) } else { Err(failures) }
    }

    async fn run(
        mut self,
        core: &Core,
        target: &Target,
        column: Column,
        look: Look,
    ) -> Result<Walk, CallError> {
        let mut from = Some(u64::MAX);
        while let Some(first) = from {
            let page = target.list(core, Listing::BytesDown, first, PAGE).await?;
            if page.units.iter().any(|state| self.is_below(state.unit) || self.take(column, look, state)) {
                break;
            }
            // A drive whose answers do not descend would be asked forever.
            from = page.next.filter(|next| *next < first && !self.is_below(*next));
        }
        if look == Look::Parity {
            self.end_of_parity(column);
        }
        Ok(self)
    }

    /// Ends a walk over parity: units that the column did not list are holes, so no data unit there has
    /// bytes.
    fn end_of_parity(&mut self, column: Column) {
        let has_parity = |stripe| matches!(self.segment.role(stripe, column), Role::Parity(_));
        let told = self.damaged.iter().filter(|(stripe, _)| has_parity(*stripe));
        let told: Vec<DataUnit> = told.filter(|unit| !self.found.damaged.contains(unit)).copied().collect();
        self.found.told.extend(told);
    }

    /// Returns true if this unit and all below it can add nothing.
    fn is_below(&self, unit: u64) -> bool {
        self.segment.stripe_range(Stripe(unit)).end <= self.end
    }

    /// Takes one unit into account. Returns true if the units below it can add nothing.
    fn take(&mut self, column: Column, look: Look, state: &UnitState) -> bool {
        let stripe = Stripe(state.unit);
        match (self.segment.role(stripe, column), look) {
            (Role::Data(data), Look::Data) => self.take_data((stripe, data), state),
            (Role::Parity(_), Look::Parity) => self.take_parity(stripe, state),
            _ => {}
        }
        self.is_below(state.unit.saturating_sub(1))
    }

    fn take_data(&mut self, unit: DataUnit, state: &UnitState) {
        if state.damaged {
            self.found.damaged.insert(unit);
        } else if !self.inode.covers(newest(state)) {
            self.reaches(unit, state.end);
        }
    }

    fn take_parity(&mut self, stripe: Stripe, state: &UnitState) {
        for data in 0..self.segment.shape.k() {
            let unit = (stripe, data);
            let column = self.segment.column(stripe, Role::Data(data));
            if self.ready.contains(column) && !self.damaged.contains(&unit) {
                continue;
            }
            if state.damaged {
                self.found.damaged.insert(unit);
                continue;
            }
            self.found.told.insert(unit);
            let of = |cover: &[Version], ends: &[u32]| {
                let at = usize::from(data);
                // The end of a version is not known if it is not listed: then the unit counts as full.
                cover.get(at).map(|version| (*version, ends.get(at).copied().unwrap_or(u32::MAX)))
            };
            let in_base = of(&state.cover, &state.ends);
            let tips = state.tips.iter().filter(|tip| tip.column == column).map(|tip| (tip.version, tip.end));
            let counted = tips.chain(in_base).max_by_key(|(version, _)| *version);
            // A pending stamp is of a writer that lives and has not settled it yet. It may go back, so the
            // version below it counts too.
            let pending = state.pending.as_ref().and_then(|pending| of(&pending.cover, &pending.ends));
            let newest = counted.max(pending).map(|(version, _)| version);
            if newest.is_some_and(|newest| !self.inode.covers(newest)) {
                let both = counted.into_iter().chain(pending);
                both.for_each(|(_, end)| self.reaches(unit, end));
            }
        }
    }

    /// The end, with units that no column can tell anything about counted as full.
    fn with_unknown(mut self) -> u64 {
        let unknown: Vec<DataUnit> = self
            .damaged
            .union(&self.found.damaged)
            .filter(|unit| !self.found.told.contains(unit))
            .copied()
            .collect();
        unknown.into_iter().for_each(|unit| self.reaches(unit, u32::MAX));
        self.end
    }

    fn reaches(&mut self, unit: DataUnit, to: u32) {
        let (stripe, data) = unit;
        let unit = self.segment.unit_range(stripe, data);
        if to > 0 {
            self.end = self.end.max(unit.start.saturating_add(u64::from(to)).min(unit.end));
        }
    }
}

/// The newest version that a data unit holds.
fn newest(state: &UnitState) -> Version {
    let pending = state.pending.iter().map(|pending| pending.stamp);
    pending.chain(state.owed.iter().copied()).fold(state.settled, Version::max)
}

#[cfg(test)]
mod tests {
    use braid_layout::version::Lease;
    use braid_layout::{Generation, Scheme, Shape, VolumeId};
    use braid_wire::data::{PendingState, Tip};

    use super::*;
    use braid_meta::records::schema::directory_record;

    const UNIT: u64 = 4096;
    /// Stamps of the lease below this number are within the size.
    const WITHIN: u64 = 5;

    /// raid4 2+1: columns 0 and 1 are data, column 2 is parity, in every stripe. The file is written under
    /// lease 7.
    fn walk(ready: &[u8], end: u64) -> Walk {
        let shape = Shape::new(Scheme::Raid4, 2, 1, 4096).unwrap();
        let segment = Arc::new(Segment { start: 0, end: u64::MAX, shape, components: Vec::new() });
        let root = directory_record(VolumeId(1), FileId(0), Vec::new(), 0);
        let inode = InodeRecord { lease: Lease(7), held: true, within: at(7, WITHIN), ..root };
        let ready = ready.iter().copied().map(Column).collect();
        Walk { segment, inode: Arc::new(inode), ready, end, damaged: Arc::default(), found: Found::default() }
    }

    fn at(lease: u32, n: u64) -> Version {
        if n == 0 { Version::ZERO } else { Version { g: Generation(1), lease: Lease(lease), n } }
    }

    fn unit(unit: u64, end: u32, cover: &[u64]) -> UnitState {
        UnitState {
            settled: at(7, 9),
            cover: cover.iter().map(|&n| at(7, n)).collect(),
            ends: vec![end; cover.len()],
            // A parity unit is as long as the longest data unit that was ever written.
            end: if cover.is_empty() { end } else { 4096 },
            ..UnitState::unwritten(unit)
        }
    }

    fn after(mut walk: Walk, column: u8, look: Look, state: &UnitState) -> u64 {
        walk.take(Column(column), look, state);
        walk.end
    }

    #[test]
    fn a_data_column_says_exactly_where_its_bytes_end() {
        let of = |column, end, state: &UnitState| after(walk(&[0, 1, 2], end), column, Look::Data, state);
        assert_eq!(of(0, 0, &unit(3, 100, &[])), 6 * UNIT + 100);
        assert_eq!(of(1, 0, &unit(3, 100, &[])), 7 * UNIT + 100);
        assert_eq!(of(1, 0, &unit(3, 0, &[])), 0, "a hole is no data");
        assert_eq!(of(1, 90_000, &unit(3, 100, &[])), 90_000, "never less than was committed");
        assert_eq!(of(0, 0, &UnitState { damaged: true, ..unit(3, 100, &[]) }), 0, "parity is asked");
    }

    #[test]
    fn what_the_size_covers_says_nothing_about_it() {
        let of =
            |settled| after(walk(&[0, 1, 2], 10), 0, Look::Data, &UnitState { settled, ..unit(3, 100, &[]) });
        assert_eq!(of(at(7, WITHIN)), 6 * UNIT + 100);
        assert_eq!(of(at(7, WITHIN - 1)), 10);
        assert_eq!(of(at(6, 100)), 10, "of a lease that has ended");
        // A data column is missing: parity tells its version.
        let without = |cover: &[u64]| after(walk(&[0, 2], 10), 2, Look::Parity, &unit(0, 4000, cover));
        assert_eq!(without(&[9, WITHIN - 1]), 10);
        assert_eq!(without(&[9, WITHIN]), UNIT + 4000, "written after the size was committed");
    }

    #[test]
    fn parity_speaks_for_columns_that_are_not_ready() {
        let of = |ready: &[u8], state: &UnitState| after(walk(ready, 0), 2, Look::Parity, state);
        assert_eq!(of(&[0, 1, 2], &unit(3, 100, &[8, 9])), 0, "they speak for themselves");
        assert_eq!(of(&[0, 2], &unit(3, 100, &[8, 9])), 7 * UNIT + 100);
        assert_eq!(of(&[1, 2], &unit(3, 100, &[8, 9])), 6 * UNIT + 100);
        assert_eq!(of(&[0, 2], &unit(3, 100, &[8, 0])), 0, "it was never written");
        let each = UnitState { ends: vec![70, 60], ..unit(3, 100, &[8, 9]) };
        assert_eq!(of(&[1, 2], &each), 6 * UNIT + 70, "each unit by itself");
        assert_eq!(of(&[2], &each), 7 * UNIT + 60);
    }

    /// A writer that lives has cut or written the stripe, and has not settled it yet.
    #[test]
    fn parity_speaks_for_what_is_pending_too() {
        let told = |before: u64, n: u64, end: u32| {
            let cover = vec![at(7, 8), at(7, n)];
            let pending = PendingState { cover, ends: vec![100, end], ..PendingState::of(at(7, n)) };
            let state = UnitState { pending: Some(pending), ..unit(3, 100, &[8, before]) };
            after(walk(&[0, 2], 10), 2, Look::Parity, &state)
        };
        assert_eq!(told(WITHIN - 1, WITHIN + 3, 700), 7 * UNIT + 700);
        assert_eq!(told(WITHIN, WITHIN + 3, 70), 7 * UNIT + 100, "it may go back");
        assert_eq!(told(WITHIN - 2, WITHIN - 1, 700), 10, "the size covers it");
    }

    #[test]
    fn a_delta_tells_the_end_of_its_version() {
        let delta = |base: u64, n, end| {
            let tips = vec![Tip { column: Column(1), version: at(7, n), end }];
            let state = UnitState { tips, ..unit(3, 100, &[8, base]) };
            after(walk(&[0, 2], 0), 2, Look::Parity, &state)
        };
        assert_eq!(delta(0, 8, 300), 7 * UNIT + 300);
        assert_eq!(delta(8, 9, 50), 7 * UNIT + 50, "a hole was written on top of what the base has");
        assert_eq!(delta(9, 8, 300), 7 * UNIT + 100, "the base counts it in");
        assert_eq!(delta(0, WITHIN - 1, 300), 0, "the size is from after it");
    }

    #[test]
    fn parity_tells_of_damaged_units_too_and_what_nobody_tells_of_is_full() {
        let mut data = walk(&[0, 1, 2], 10);
        data.take(Column(1), Look::Data, &UnitState { damaged: true, ..unit(3, 0, &[]) });
        let told = |state: &UnitState| {
            let damaged = Arc::new(data.found.damaged.clone());
            let mut parity = Walk { damaged, ..walk(&[0, 1, 2], 10) };
            parity.take(Column(2), Look::Parity, state);
            parity.with_unknown()
        };
        assert_eq!(told(&unit(3, 100, &[8, WITHIN - 1])), 10);
        assert_eq!(told(&unit(3, 100, &[8, 8])), 7 * UNIT + 100);
        assert_eq!(told(&UnitState { damaged: true, ..unit(3, 0, &[]) }), 8 * UNIT, "never too little");
        assert_eq!(
            told(&UnitState { ends: Vec::new(), ..unit(3, 100, &[8, 8]) }),
            8 * UNIT,
            "no end is told"
        );
        let damaged = Arc::new(data.found.damaged.clone());
        for (column, end) in [(2, 10), (0, 8 * UNIT)] {
            let mut parity = Walk { damaged: Arc::clone(&damaged), ..walk(&[0, 1, 2], 10) };
            parity.end_of_parity(Column(column));
            assert_eq!(parity.with_unknown(), end, "column {column} lists nothing");
        }
    }

    #[test]
    fn a_walk_ends_where_nothing_can_be_added() {
        let mut parity = walk(&[0, 1, 2], 0);
        assert!(!parity.take(Column(2), Look::Parity, &unit(3, 100, &[1, 2])), "others may have bytes below");
        assert!(walk(&[0, 1, 2], 0).take(Column(0), Look::Data, &unit(3, 100, &[])));
        assert!(walk(&[0], 8 * UNIT).is_below(3) && !walk(&[0], 8 * UNIT - 1).is_below(3));
    }
}
