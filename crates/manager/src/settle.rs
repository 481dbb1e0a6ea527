//! How far a file's data reaches, by what its drives hold: its size after a writer died or released uncleanly
//! (DESIGN section 7).
//!
//! A writer commits the size now and then. What it wrote beyond that was acknowledged too and must not be
//! lost. So when its lease has ended and its stripes are judged, every ready column is asked for its last
//! units. A ready data column says exactly where its bytes end. For a column that is out or joining, the
//! parity (or copies) is asked instead: a version of the column in a cover means that it may have bytes
//! there, as far as the parity's own reach. That may be too much, by less than a stripe (the excess reads as
//! zeros), but never too little. It is the same for a unit that was made anew while somebody wrote the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_layout::{Column, ColumnMask, FileId, Role, Segment, Stripe};
use braid_wire::data::{Listing, UnitState};
use tokio::task::JoinSet;

use crate::core::Core;
use crate::drive_calls::CallError;
use crate::fence::Target;
use crate::schema::{InodeRecord, SegmentRecord};
use crate::shapes::from_spec;

/// Units asked for at a time; usually the first is enough.
const PAGE: u32 = 64;
/// The largest size that a client can work with.
pub const FILE_BYTES_MAX: u64 = i64::MAX.unsigned_abs();

/// One past the last byte that the file's drives hold, or its committed size if that is more. An error says
/// which columns did not answer, and why. The stripes must have been judged, and nobody may be writing.
pub async fn data_end(
    core: &Arc<Core>,
    file: FileId,
    inode: &InodeRecord,
) -> Result<u64, BTreeMap<(u32, Column), String>> {
    let (mut end, mut failures, mut walks) = (inode.size, BTreeMap::new(), JoinSet::new());
    for record in inode.in_force() {
        let (ready, index) = (record.ready(), record.number);
        let segment = Arc::new(match segment_of(record) {
            Ok(segment) => segment,
            Err(why) => {
                failures.extend(ready.iter().map(|column| ((index, column), why.clone())));
                continue;
            }
        });
        for column in ready.iter() {
            let Some(target) = Target::new(core, file, inode, index, column) else {
                failures.insert((index, column), "it is not known".to_owned());
                continue;
            };
            let walk = Walk { segment: Arc::clone(&segment), column, ready, end: inode.size };
            let core = Arc::clone(core);
            walks.spawn(async move { (index, column, walk.run(&core, &target).await) });
        }
    }
    while let Some(done) = walks.join_next().await {
        match done {
            Ok((_, _, Ok(own))) => end = end.max(own),
            Ok((index, column, Err(error))) => drop(failures.insert((index, column), error.to_string())),
            Err(error) => tracing::error!(%error, "asking for a file's last units failed within the manager"),
        }
    }
    if failures.is_empty() { Ok(end.min(FILE_BYTES_MAX).max(inode.size)) } else { Err(failures) }
}

fn segment_of(record: &SegmentRecord) -> Result<Segment, String> {
    let shape = from_spec(&record.shape, &record.shape).map_err(|refusal| refusal.detail)?;
    Ok(Segment { start: record.start, end: record.end, shape, components: Vec::new() })
}

/// A walk over one ready column, from its last unit down.
struct Walk {
    segment: Arc<Segment>,
    column: Column,
    ready: ColumnMask,
    /// One past the last byte known so far.
    end: u64,
}

impl Walk {
    async fn run(mut self, core: &Core, target: &Target) -> Result<u64, CallError> {
        let mut from = Some(u64::MAX);
        while let Some(first) = from {
            let page = target.list(core, Listing::BytesDown, first, PAGE).await?;
            if page.units.iter().any(|state| self.is_below(state.unit) || self.take(state)) {
                break;
            }
            // A drive whose answers do not descend would be asked forever.
            from = page.next.filter(|next| *next < first && !self.is_below(*next));
        }
        Ok(self.end)
    }

    /// Whether this unit and all below it can add nothing.
    fn is_below(&self, unit: u64) -> bool {
        self.segment.stripe_range(Stripe(unit)).end <= self.end
    }

    /// Takes one unit into account. Returns whether those below it can add nothing.
    fn take(&mut self, state: &UnitState) -> bool {
        let stripe = Stripe(state.unit);
        match self.segment.role(stripe, self.column) {
            // Nobody can tell how far a damaged unit reached, so it counts as full.
            Role::Data(data) if state.damaged => self.reaches(stripe, data, u32::MAX),
            Role::Data(data) => self.reaches(stripe, data, state.end),
            Role::Parity(_) => {
                for data in 0..self.segment.shape.k() {
                    let column = self.segment.column(stripe, Role::Data(data));
                    let in_base = state.cover.get(usize::from(data)).is_some_and(|of| !of.is_zero());
                    let counted = in_base || state.tips.iter().any(|tip| tip.column == column);
                    let stands_in = !self.ready.contains(column);
                    if stands_in && state.damaged {
                        self.reaches(stripe, data, u32::MAX);
                    } else if stands_in && counted {
                        self.reaches(stripe, data, state.end);
                    }
                }
            }
        }
        self.is_below(state.unit.saturating_sub(1))
    }

    fn reaches(&mut self, stripe: Stripe, data: u8, to: u32) {
        let unit = self.segment.unit_range(stripe, data);
        if to > 0 {
            self.end = self.end.max(unit.start.saturating_add(u64::from(to)).min(unit.end));
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::version::Lease;
    use braid_layout::{Generation, Scheme, Shape, Version};
    use braid_wire::data::Tip;

    use super::*;

    const UNIT: u64 = 4096;

    /// raid4 2+1: columns 0 and 1 are data, column 2 is parity, in every stripe.
    fn walk(column: u8, ready: &[u8], end: u64) -> Walk {
        let shape = Shape::new(Scheme::Raid4, 2, 1, 4096).unwrap();
        let segment = Arc::new(Segment { start: 0, end: u64::MAX, shape, components: Vec::new() });
        Walk { segment, column: Column(column), ready: ready.iter().copied().map(Column).collect(), end }
    }

    fn unit(unit: u64, end: u32, cover: &[u64]) -> UnitState {
        let version = |&n: &u64| match n {
            0 => Version::ZERO,
            n => Version { g: Generation(1), lease: Lease(1), n },
        };
        UnitState {
            unit,
            settled: version(&9),
            cover: cover.iter().map(version).collect(),
            pending: None,
            owed: Vec::new(),
            tips: Vec::new(),
            damaged: false,
            end,
        }
    }

    fn after(mut walk: Walk, state: &UnitState) -> u64 {
        walk.take(state);
        walk.end
    }

    #[test]
    fn a_data_column_says_exactly_where_its_bytes_end() {
        assert_eq!(after(walk(0, &[0, 1, 2], 0), &unit(3, 100, &[])), 6 * UNIT + 100);
        assert_eq!(after(walk(1, &[0, 1, 2], 0), &unit(3, 100, &[])), 7 * UNIT + 100);
        assert_eq!(after(walk(1, &[0, 1, 2], 0), &unit(3, 0, &[])), 0, "a hole is no data");
        assert_eq!(
            after(walk(1, &[0, 1, 2], 90_000), &unit(3, 100, &[])),
            90_000,
            "never less than was committed"
        );
        let damaged = UnitState { damaged: true, ..unit(3, 0, &[]) };
        assert_eq!(after(walk(0, &[0, 1, 2], 0), &damaged), 7 * UNIT);
    }

    #[test]
    fn parity_speaks_for_columns_that_are_not_ready() {
        assert_eq!(after(walk(2, &[0, 1, 2], 0), &unit(3, 100, &[1, 2])), 0, "they speak for themselves");
        assert_eq!(after(walk(2, &[0, 2], 0), &unit(3, 100, &[1, 2])), 7 * UNIT + 100);
        assert_eq!(after(walk(2, &[1, 2], 0), &unit(3, 100, &[1, 2])), 6 * UNIT + 100);
        assert_eq!(after(walk(2, &[0, 2], 0), &unit(3, 100, &[1, 0])), 0, "it was never written");
        let damaged = UnitState { damaged: true, ..unit(3, 0, &[]) };
        assert_eq!(after(walk(2, &[0, 2], 0), &damaged), 8 * UNIT, "never too little");
        let version = Version { g: Generation(1), lease: Lease(1), n: 5 };
        let tips = vec![Tip { column: Column(1), version }];
        let delta = UnitState { tips, ..unit(3, 100, &[1, 0]) };
        assert_eq!(after(walk(2, &[0, 2], 0), &delta), 7 * UNIT + 100, "a delta counts as the base does");
    }

    #[test]
    fn a_walk_ends_where_nothing_can_be_added() {
        let mut parity = walk(2, &[0, 1, 2], 0);
        assert!(!parity.take(&unit(3, 100, &[1, 2])), "a data column below it may have bytes");
        let mut data = walk(0, &[0, 1, 2], 0);
        assert!(data.take(&unit(3, 100, &[])));
        assert!(walk(0, &[0, 1, 2], 8 * UNIT).is_below(3) && !walk(0, &[0, 1, 2], 8 * UNIT - 1).is_below(3));
    }
}
