//! Many requests in one message, carried out side by side: their changes share a commit.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use braid_wire::control::{
    BATCH_ITEMS_MAX, Batch, BatchAnswer, BatchItem, BatchReply, ControlReply, RequestHead,
};
use braid_wire::frame::BODY_BYTES_MAX;
use braid_wire::{Reason, Refusal};
use tokio::time::timeout;

use crate::asker::{asked_in, asker_version};
use crate::core::Core;
use crate::sessions::dispatch::{self, Caller};

/// Maximum time that finished answers wait for one that takes long, as for a fence.
const WAIT: Duration = Duration::from_millis(200);
/// Time, in milliseconds, after which a request that takes longer may be repeated.
const AGAIN_MS: u32 = 20;
/// Maximum total bytes of the answers: the rest of a reply's body is for the bytes around them.
const BYTES_MAX: usize = BODY_BYTES_MAX as usize / 2;
/// Bytes of an answer around its body.
const AROUND_BYTES: usize = 6;

/// A request of a batch under way.
type Running = Pin<Box<dyn Future<Output = ControlReply> + Send>>;

/// Carries out the requests of a batch, each as if it had come alone.
pub(crate) async fn answer(
    core: &Arc<Core>,
    caller: &Caller,
    head: &RequestHead,
    batch: Batch,
) -> Result<BatchReply, Refusal> {
    let count = batch.items.len();
    if count > BATCH_ITEMS_MAX {
        let detail = format!("{count} requests in one message: at most {BATCH_ITEMS_MAX}");
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    let mut running: Vec<(usize, Running)> = Vec::with_capacity(count);
    for (at, item) in batch.items.into_iter().enumerate() {
        running.push((at, one(Arc::clone(core), caller.clone(), head.clone(), item)));
    }
    let mut answers: Vec<Option<BatchAnswer>> = vec![None; count];
    let all = side_by_side(&mut running, |at, reply| answers[at] = Some(BatchAnswer::from(reply)));
    if timeout(WAIT, all).await.is_err() {
        // The rest goes on, and repeats of these requests find the results.
        let version = asker_version();
        tokio::spawn(asked_in(version, async move { side_by_side(&mut running, |_, _| ()).await }));
    }
    let mut left = BYTES_MAX;
    let fitting = answers.into_iter().map(|answer| {
        let fits = answer.filter(|answer| answer.body.len() + AROUND_BYTES <= left);
        let answer = fits.unwrap_or_else(|| BatchAnswer::from(&ControlReply::Refused(takes_long())));
        left = left.saturating_sub(answer.body.len() + AROUND_BYTES);
        answer
    });
    Ok(BatchReply { answers: fitting.collect() })
}

/// Runs all requests to their ends, and calls `ended` as each ends. They are polled in order, in one task: so
/// their transactions wait together when a thread comes to decide them.
async fn side_by_side(running: &mut Vec<(usize, Running)>, mut ended: impl FnMut(usize, &ControlReply)) {
    std::future::poll_fn(|context| {
        running.retain_mut(|(at, request)| match request.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(reply) => {
                ended(*at, &reply);
                false
            }
        });
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Carries out one request of a batch.
fn one(core: Arc<Core>, caller: Caller, head: RequestHead, item: BatchItem) -> Running {
    Box::pin(async move {
        let answer = match item.request(&head) {
            Ok((head, request)) if request.rules().in_batch => {
                dispatch::answer(&core, &caller, &head, request).await
            }
            Ok((_, request)) => {
                let detail = format!("{} must be sent by itself, not in a batch", request.name());
                Err(Refusal::new(Reason::Unsupported, detail))
            }
            Err(error) => Err(Refusal::new(Reason::Malformed, error.to_string())),
        };
        answer.unwrap_or_else(ControlReply::Refused)
    })
}

/// The refusal of a request whose answer takes too long, or is too long, to come with the others.
fn takes_long() -> Refusal {
    let detail = "the answer takes too long or is too large for a batch: send the request by itself";
    Refusal { again_ms: AGAIN_MS, ..Refusal::new(Reason::Busy, detail) }
}
