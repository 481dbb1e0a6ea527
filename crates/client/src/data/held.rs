//! The stripes of a file that have units, as listed by its drives. Every walk over a file walks these stripes
//! rather than its byte range, which a single byte at a huge offset makes arbitrarily long.
//!
//! Columns that are away list nothing. Nothing is missed as long as `k` columns answer: for any write to a
//! stripe, at least one of them has a unit of it, its parity or a copy.

use std::collections::BTreeSet;
use std::ops::Range;

use braid_wire::Reason;
use braid_wire::data::{DriveReply, Listing, Versions};

use crate::data::planning::Patience;
use crate::data::retire::{ask_all, note};
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::peers::drive_requests::Failure;
use crate::peers::faults::Learnt;

/// Units requested from each column at a time.
const PAGE: u32 = 2048;

/// A walk over a segment's stripes in ascending order.
pub(crate) struct StripeWalk<'a> {
    handle: &'a Handle,
    segment: usize,
    list: Listing,
    next: Option<u64>,
    /// Exclusive end of the walk.
    end: u64,
}

impl Handle {
    /// The stripes within `stripes` of which ready columns have units: those with any version
    /// ([`Listing::Written`]) or those with bytes ([`Listing::Bytes`]).
    pub(crate) fn held(&self, segment: usize, list: Listing, stripes: Range<u64>) -> StripeWalk<'_> {
        let next = (stripes.start < stripes.end).then_some(stripes.start);
        StripeWalk { handle: self, segment, list, next, end: stripes.end }
    }
}

impl StripeWalk<'_> {
    /// The next stripes in order, as ranges of at most a plan set's size; empty at the end.
    pub(crate) async fn next(&mut self) -> Result<Vec<Range<u64>>> {
        let step = self.handle.stripes_per_set(&self.handle.view(), self.segment);
        while let Some(from) = self.next {
            let (stripes, next) = self.page(from).await?;
            self.next = next.filter(|next| *next < self.end);
            let runs = runs(stripes.range(..self.end).copied(), step);
            if !runs.is_empty() {
                return Ok(runs);
            }
        }
        Ok(Vec::new())
    }

    /// The next stripes, for a reader. If too few ready columns are left to list the stripes, all the rest of
    /// the walk is returned: a joining column does not list the units that it lacks, and possibly no other
    /// column has them.
    pub(crate) async fn next_to_read(&mut self) -> Result<Vec<Range<u64>>> {
        let joining = self.handle.view().segments[self.segment].joining;
        match self.next().await {
            Err(Error::TooManyAway { .. }) if !joining.is_empty() => {
                let left = self.next.take().map(|from| from..self.end);
                Ok(left.into_iter().filter(|left| !left.is_empty()).collect())
            }
            found => found,
        }
    }

    /// The known stripes from `from` on, and the first stripe that is not covered yet.
    async fn page(&mut self, from: u64) -> Result<(BTreeSet<u64>, Option<u64>)> {
        let handle = self.handle;
        let segment = self.segment;
        let mut patience = Patience::new(handle);
        loop {
            let view = handle.view();
            let columns = &view.segments[segment];
            let ready = columns.set.minus(columns.joining);
            let questions: Vec<_> = ready.iter().map(|column| (segment, column)).collect();
            let request = |segment, column| {
                let at = view.address(segment, column);
                Versions { at, list: self.list, units: Vec::new(), from, limit: PAGE }.into()
            };
            let mut stripes = BTreeSet::new();
            let mut next = None::<u64>;
            let mut answers = 0;
            let mut absent = false;
            let mut learnt = Learnt::default();
            for (_, column, outcome) in ask_all(handle, &view, &questions, &request).await {
                match outcome {
                    Ok(DriveReply::Versions(reply)) => {
                        if reply.next.is_some_and(|next| next <= from) {
                            let why = format!(
                                "asked for units from {from} on, it says to go on from an earlier unit"
                            );
                            return Err(Error::Answer {
                                subject: columns.columns[column.index()].name.clone(),
                                why,
                            });
                        }
                        stripes.extend(reply.units.iter().map(|state| state.unit));
                        next = next.into_iter().chain(reply.next).min();
                        answers += 1;
                    }
                    Ok(other) => {
                        let why = format!("it answered with {}", other.name());
                        note(&mut learnt, column, Failure::Lost(why));
                    }
                    Err(failure) if failure.is(Reason::NoObject) => {
                        absent = true;
                        answers += 1;
                    }
                    Err(failure) => note(&mut learnt, column, failure),
                }
            }
            if absent && !handle.is_hole(&view).await? {
                if !patience.again().await {
                    return Err(handle.timed_out(&patience, "its columns kept moving to other drives"));
                }
                continue;
            }
            if answers >= u32::from(view.layout.segments()[segment].shape.k()) {
                // What other columns list beyond that comes with the next page.
                let known = next.unwrap_or(u64::MAX);
                return Ok((stripes.range(from..known).copied().collect(), next));
            }
            handle
                .wait_for_columns(&view, segment, from..from + 1, "read", &mut learnt, &mut patience)
                .await?;
        }
    }
}

/// Adjacent stripes as ranges, cut at multiples of `step`.
pub(crate) fn runs(stripes: impl Iterator<Item = u64>, step: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for stripe in stripes {
        match runs.last_mut() {
            Some(run) if run.end == stripe && stripe % step != 0 => run.end = stripe + 1,
            _ => runs.push(stripe..stripe + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_make_ranges_that_a_set_holds() {
        let of = |stripes: &[u64]| runs(stripes.iter().copied(), 4);
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[0, 1, 2, 3, 4, 5]), [0..4, 4..6]);
        assert_eq!(of(&[2, 3, 4, 7, 1 << 50]), [2..4, 4..5, 7..8, 1 << 50..(1 << 50) + 1]);
    }
}
