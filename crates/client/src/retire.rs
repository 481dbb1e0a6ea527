//! Questions to the columns of an open file that are not reads or writes: retire what is settled, how far bytes reach.

use std::sync::Arc;

use braid_layout::{Column, Stripe, Version};
use braid_wire::Reason;
use braid_wire::data::{DriveReply, DriveRequest, GetAttributes, Retire};

use crate::error::Result;
use crate::exchange::{Failure, Outcome};
use crate::faults::Learnt;
use crate::handle::Handle;
use crate::read::Patience;
use crate::run::ask_columns;
use crate::view::View;

/// When a retirement is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    /// Once it is known.
    AtOnce,
    /// Once it is durable.
    WhenDurable,
}

/// How often a question is put to a drive whose session was dead or whose capability was stale.
const ASKED_MAX: usize = 3;

/// Tells every column of the set that this handle has written that everything up to `settled_to` is settled. Whether
/// all of them have answered.
pub(crate) async fn retire(handle: &Handle, settled_to: Version, answered: Answered) -> bool {
    let view = handle.view();
    let columns = handle.created().into_iter().filter(|(segment, column)| {
        view.segments.get(*segment).is_some_and(|columns| columns.set.contains(*column))
    });
    let request = |segment, column| {
        let at = view.address(segment, column);
        // No operation up to the settled one is ever repeated.
        let (client, watermark) = (handle.client.shared.number, settled_to.n + 1);
        Retire { at, settled_to, durable: answered == Answered::WhenDurable, client, watermark }.into()
    };
    let mut questions: Vec<(usize, Column)> = columns.collect();
    for _ in 0..ASKED_MAX {
        let mut again = Vec::new();
        for (segment, column, outcome) in ask_all(handle, &view, &questions, &request).await {
            match outcome {
                Ok(_) => {}
                Err(Failure::Idle) => again.push((segment, column)),
                Err(failure) => {
                    tracing::debug!(file = %handle.subject, %column, %failure, "a column did not retire");
                    return false;
                }
            }
        }
        if again.is_empty() {
            return true;
        }
        questions = again;
    }
    false
}

/// One past the last byte of the segment that any column may hold bytes of, by what the columns that answer say. Columns that
/// are away say nothing: every stripe's bytes have their parity or copies elsewhere, and so do their extents.
pub(crate) async fn reach(handle: &Handle, segment: usize) -> Result<u64> {
    let mut patience = Patience::new(handle);
    loop {
        let view = handle.view();
        let columns = &view.segments[segment];
        let ready = columns.set.minus(columns.joining);
        let questions: Vec<(usize, Column)> = ready.iter().map(|column| (segment, column)).collect();
        let request = |segment, column| GetAttributes { at: view.address(segment, column) }.into();
        let (mut bytes, mut learnt, mut answers) = (0, Learnt::default(), 0);
        for (_, column, outcome) in ask_all(handle, &view, &questions, &request).await {
            match outcome {
                Ok(DriveReply::Attributes(attributes)) => {
                    bytes = attributes.reach.max(bytes);
                    answers += 1;
                }
                Ok(other) => {
                    let why = format!("it answered with {}", other.name());
                    note(&mut learnt, column, Failure::Lost(why));
                }
                Err(failure) if failure.is(Reason::NoObject) => answers += 1,
                Err(failure) => note(&mut learnt, column, failure),
            }
        }
        let place = &view.layout.segments()[segment];
        if answers >= u32::from(place.shape.k()) {
            let unit = u64::from(place.shape.unit_bytes());
            return Ok(match bytes.div_ceil(unit).checked_sub(1) {
                Some(last) => place.stripe_range(Stripe(last)).end,
                None => place.start,
            });
        }
        handle.wait_for_columns(&view, segment, 0..1, "read", &mut learnt, &mut patience).await?;
    }
}

fn note(learnt: &mut Learnt, column: Column, failure: Failure) {
    learnt.note(&crate::run::Failed { column, stripe: Stripe(0), into: None, failure });
}

async fn ask_all(
    handle: &Handle,
    view: &Arc<View>,
    questions: &[(usize, Column)],
    request: &(impl Fn(usize, Column) -> DriveRequest + Sync),
) -> Vec<(usize, Column, Outcome)> {
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
