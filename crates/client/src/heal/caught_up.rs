//! Notes on caught-up units. While a joining column is made anew, its drive notes unit by unit what has
//! caught up (PROTOCOL section 7). If more columns are lost meanwhile than the parity can replace, readers
//! can read the noted units. A note holds in the generation in which the unit was compared, for the same
//! reason for which the whole column becomes ready in it: every write that is acknowledged in that generation
//! is on the column too, and what was acknowledged before is in the cut.
//!
//! Nothing depends on a note: where one is missing, the unit is read from the ready columns, as all others.

use std::collections::BTreeSet;
use std::ops::Range;

use braid_layout::Column;
use braid_wire::data::Ready;

use super::{Heal, Surveyed};
use crate::executor::ask_columns;

impl Heal<'_> {
    /// Notes these stripes of a joining column as caught up. The drive may refuse to note some, as the
    /// generation may have risen.
    pub(super) async fn note_caught_up(
        &self,
        page: &Surveyed,
        segment: usize,
        own: Column,
        runs: &[Range<u64>],
    ) {
        let view = &page.view;
        // Readers of noted units do not ask the manager whether the generation has risen.
        if page.saw_absent {
            return;
        }
        let at = view.address(segment, own);
        let note = |run: &Range<u64>| {
            // More units than this of one column are beyond any disk.
            let units = u32::try_from(run.end - run.start).unwrap_or(u32::MAX);
            (own, Ready { at, unit: run.start, units }.into())
        };
        let questions = runs.iter().filter(|run| !run.is_empty()).map(note).collect();
        for (column, outcome) in ask_columns(self.handle, view, segment, questions).await {
            if let Err(failure) = outcome {
                tracing::debug!(file = %self.handle.subject, %column, %failure, "not noted as caught up");
            }
        }
    }

    /// Notes the stripes of a page that were never written: there is nothing of them to catch up with.
    pub(super) async fn note_unwritten(&self, segment: usize, page: &Surveyed, first: u64) {
        let layout = &page.view.layout.segments()[segment];
        let end = layout.stripe_at(layout.end - 1).0.saturating_add(1).min(page.next.unwrap_or(u64::MAX));
        let held: BTreeSet<u64> = page.stripes.keys().chain(&page.passed_over).copied().collect();
        let runs = gaps(first..end, &held);
        for own in self.own(&page.view, segment).iter() {
            self.note_caught_up(page, segment, own, &runs).await;
        }
    }
}

/// The runs of numbers in `range` that are not in `held`.
fn gaps(range: Range<u64>, held: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let mut at = range.start;
    let mut gaps = Vec::new();
    for &one in held.iter().filter(|one| range.contains(one)) {
        gaps.push(at..one);
        at = one + 1;
    }
    gaps.push(at..range.end);
    gaps.retain(|gap| !gap.is_empty());
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_holds_is_what_lies_between() {
        let check = |(from, to), held: &[u64], expected: &[(u64, u64)]| {
            let found = gaps(from..to, &held.iter().copied().collect());
            let found: Vec<(u64, u64)> = found.into_iter().map(|gap| (gap.start, gap.end)).collect();
            assert_eq!(found, expected, "{held:?}");
        };
        check((0, 10), &[], &[(0, 10)]);
        check((0, 10), &[0, 1, 4, 9], &[(2, 4), (5, 9)]);
        check((3, 5), &[1, 3, 4, 5, 8], &[]);
        check((3, u64::MAX), &[1, 5], &[(3, 5), (6, u64::MAX)]);
        check((7, 3), &[5], &[]);
    }
}
