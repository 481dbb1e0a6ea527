//! The ways to write a stripe, and the cost of each. The cheapest is taken.
//!
//! A way's cost is the sum of the bytes on the client's link, the bytes between drives, and its round trips,
//! each counted as `ROUND_TRIP_BYTES`. A stripe write that must read first has two round trips: read, then
//! write. A unit write also has two: one from the client, and one from drive to drive within it. The writes
//! of a way go to all drives at once.

use braid_layout::{ColumnMask, OperationNumber, Stripe};

use super::{Job, each_job, parity_anew, parity_changed};
use crate::compile::draft::Draft;
use crate::ir::{Source, Strategy};
use crate::request::{PlanError, Target, Write};

/// Cost of a round trip, in bytes: the bytes that a link of 10 Gbit/s carries in 50 us.
const ROUND_TRIP_BYTES: u64 = 64 << 10;

/// One way to write a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Strategy by which the stripe is written.
    pub strategy: Strategy,
    /// Number of bytes that the client reads and sends.
    pub client_bytes: u64,
    /// Number of bytes that drives send each other.
    pub drive_bytes: u64,
    /// Number of exchanges that must follow one another.
    pub round_trips: u32,
}

impl Way {
    /// Total cost in bytes, with each round trip as a number of bytes.
    pub fn cost(&self) -> u64 {
        self.client_bytes + self.drive_bytes + ROUND_TRIP_BYTES * u64::from(self.round_trips)
    }
}

/// The ways to write each stripe of `request`, the cheapest first: it is the one that
/// [`write_cheapest`](super::write_cheapest) takes.
pub fn ways(target: &Target<'_>, request: &Write) -> Result<Vec<(Stripe, Vec<Way>)>, PlanError> {
    let jobs = each_job(target, request)?;
    jobs.map(|(job, index)| {
        Ok((job.stripe, job.ways(OperationNumber(index))?.into_iter().map(|(way, _)| way).collect()))
    })
    .collect()
}

impl Job<'_> {
    /// The draft of the cheapest way.
    pub(super) fn cheapest(&self, operation: OperationNumber) -> Result<Draft, PlanError> {
        Ok(self.ways(operation)?.swap_remove(0).1)
    }

    /// The draft of the cheapest stripe write.
    pub(super) fn draft(&self) -> Result<Draft, PlanError> {
        Ok(self.stripe_writes()?.swap_remove(0).1)
    }

    /// All ways, the cheapest first. A unit write is one of them where a stripe write would read first, one
    /// unit is written (PROTOCOL C5), and all columns are there: a column that is out, or catches up, needs a
    /// stripe write (C2).
    fn ways(&self, operation: OperationNumber) -> Result<Vec<(Way, Draft)>, PlanError> {
        let mut ways = self.stripe_writes()?;
        let target = self.target;
        let mut written = self.written();
        let (Some((data, only)), None) = (written.next(), written.next()) else { return Ok(ways) };
        let all = ColumnMask::all(target.segment.shape.width());
        if !ways[0].1.strategy.needs_cut() || target.health.readable() != all || only.source == Source::Hole {
            return Ok(ways);
        }
        let mut draft = Draft::new(self.stripe, Strategy::UnitWrites);
        self.unit_write(&mut draft, data, only, operation, Some(self.stamp));
        let bytes = u64::from(only.range.end - only.range.start);
        let drive_bytes = bytes * u64::from(target.segment.shape.m());
        ways.push((
            Way { strategy: Strategy::UnitWrites, client_bytes: bytes, drive_bytes, round_trips: 2 },
            draft,
        ));
        ways.sort_by_key(|(way, _)| way.cost());
        Ok(ways)
    }

    /// The stripe writes that are possible, the cheapest first.
    fn stripe_writes(&self) -> Result<Vec<(Way, Draft)>, PlanError> {
        self.check_ready()?;
        if self.parity_in_set().next().is_none() {
            return Ok(vec![priced(self.data_only())]);
        }
        let anew = parity_anew::draft(self);
        if let Ok(draft) = &anew
            && draft.strategy == Strategy::FullStripe
        {
            return Ok(vec![priced(anew?)]);
        }
        let mut ways = match (anew, parity_changed::draft(self)) {
            (Ok(anew), changed) => std::iter::once(anew).chain(changed).map(priced).collect(),
            (Err(_), Some(changed)) => vec![priced(changed)],
            (Err(error), None) => return Err(error),
        };
        ways.sort_by_key(|(way, _)| way.cost());
        Ok(ways)
    }
}

fn priced(draft: Draft) -> (Way, Draft) {
    let round_trips = if draft.strategy.needs_cut() { 2 } else { 1 };
    let client_bytes = draft.bytes_moved();
    (Way { strategy: draft.strategy, client_bytes, drive_bytes: 0, round_trips }, draft)
}
