//! Requests to the columns of an open file other than reads and writes, such as retiring settled writes.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_layout::{Column, Stripe, Version};
use braid_wire::Reason;
use braid_wire::data::{DriveRequest, Retire};

use crate::executor::ask_columns;
use crate::handle::Handle;
use crate::peers::drive_requests::{Failure, RequestOutcome};
use crate::peers::faults::Learnt;
use crate::view::FileView;

/// The reason for a retirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// The writer pauses: columns that it has written may drop their prior content. Answered at once.
    Pause,
    /// The lease on a part of the file is released, while others write the rest. As a pause, but durable.
    PartEnd,
    /// The lease is released: no column of the set accepts writes under it any more. Answered when durable.
    LeaseEnd,
    /// The lease was released: columns written under it accept no more writes under it. Answered at once, as
    /// nothing relies on this retirement: a fence comes before the next lease.
    Ended,
}

/// Maximum number of attempts. Further attempts are for a dead session, or for a generation that has risen
/// because a column joined or went out while the writer was idle.
const ASKED_MAX: usize = 3;

/// Tells columns of the set that everything up to `settled_to` is settled: all of them, or those that the
/// handle has written. Returns whether all have answered.
pub(crate) async fn retire(handle: &Handle, settled_to: Version, occasion: Occasion) -> bool {
    let written = handle.touched();
    let watermark = handle.client.shared.unit_writes.watermark();
    let mut answered = BTreeSet::new();
    for _ in 0..ASKED_MAX {
        let view = handle.view();
        let set = (0..).zip(&view.segments);
        let set = set.flat_map(|(index, segment)| segment.set.iter().map(move |c| (index, c)));
        let to_all = occasion == Occasion::LeaseEnd;
        let wanted = |column: &(usize, Column)| to_all || written.contains(column);
        let questions: Vec<(usize, Column)> =
            set.filter(wanted).filter(|column| !answered.contains(column)).collect();
        let request = |segment, column| {
            let at = view.address(segment, column);
            let client = handle.client.shared.number;
            let durable = matches!(occasion, Occasion::PartEnd | Occasion::LeaseEnd);
            let ends_lease = matches!(occasion, Occasion::LeaseEnd | Occasion::Ended);
            Retire { at, settled_to, durable, client, watermark, ends_lease }.into()
        };
        let mut all = true;
        let mut stale = false;
        for (segment, column, outcome) in ask_all(handle, &view, &questions, &request).await {
            match outcome {
                Ok(_) => drop(answered.insert((segment, column))),
                Err(Failure::Idle) => all = false,
                Err(failure) if failure.is(Reason::StaleGeneration) => (all, stale) = (false, true),
                Err(failure) => {
                    tracing::debug!(file = %handle.subject, %column, %failure, "a column was not told which writes are settled");
                    return false;
                }
            }
        }
        if all {
            return true;
        }
        if stale {
            // The columns that answered did so in an older generation, which the others no longer know.
            answered.clear();
            if handle.refresh(&view).await.is_err() {
                return false;
            }
        }
    }
    false
}

/// Records a column that did not answer.
pub(crate) fn note(learnt: &mut Learnt, column: Column, failure: Failure) {
    learnt.note(&crate::executor::Failed { column, stripe: Stripe(0), into: None, failure });
}

/// Sends one request to each column: segment by segment, a segment's columns in parallel.
pub(crate) async fn ask_all(
    handle: &Handle,
    view: &Arc<FileView>,
    questions: &[(usize, Column)],
    request: &(impl Fn(usize, Column) -> DriveRequest + Sync),
) -> Vec<(usize, Column, RequestOutcome)> {
    let mut outcomes = Vec::with_capacity(questions.len());
    for group in questions.chunk_by(|a, b| a.0 == b.0) {
        let segment = group[0].0;
        let asked = group.iter().map(|&(_, column)| (column, request(segment, column))).collect();
        let _permit = handle.client.set_permit().await;
        for (column, outcome) in ask_columns(handle, view, segment, asked).await {
            outcomes.push((segment, column, outcome));
        }
    }
    outcomes
}
