//! Requests to one drive: sent in order, several in flight; answers are taken as they come. The bytes of
//! reads go straight into their buffers.
//!
//! This module has no policy: for each request it returns the answer, or the reason for which there is none.
//! Every block read is checked against its CRC32C as it arrives; holes are filled with zeros.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use braid_layout::DriveId;
use braid_transport::TransportError;
use braid_wire::checksum::block_crcs;
use braid_wire::control::Grant;
use braid_wire::data::{DriveReply, DriveRequest, WriteTurn};
use braid_wire::{Reason, Refusal};
use tokio::sync::Semaphore;

use crate::analysis::Spans;
use crate::data::landing::land;
use crate::peers::credit::{Caller, Flights};
use crate::peers::drives::{Drives, Lent};
use crate::peers::small_requests::small_requests;

/// Tag of requests for a turn; others have their item's index.
const TURN_TAG: u64 = u64::MAX;

/// Bounds on the requests in flight on one session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlightLimit<'a> {
    pub(crate) flights: usize,
    pub(crate) bytes: u64,
    /// Set if requests wait for their turn.
    pub(crate) caller: Option<Caller<'a>>,
}

/// A request with the bytes to send, or the buffer to fill.
pub(crate) struct Item<'b> {
    pub(crate) request: DriveRequest,
    /// A write's bytes. Their checksums are put into the request when it is sent.
    pub(crate) payload: &'b [u8],
    /// Buffer for a read's bytes: exactly as long as the request asks for.
    pub(crate) into: &'b mut [u8],
}

/// Reason for which a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A session that had been idle was broken: this says nothing about the drive; ask again.
    Idle,
    /// The drive did not answer, or the answer does not fit the request.
    Lost(String),
    /// The drive refused. `proven`: true if it has proved that it knows the capability's private part.
    Refused { refusal: Refusal, proven: bool },
    /// Bytes that do not match their checksum, from this byte of the unit on.
    Corrupt(u32),
    /// The unit is intact, but older than the stripe's other columns say: its drive was restored to an older
    /// state. Set by [`Executor::read`](crate::executor::Executor::read), which sees them together.
    Behind {
        /// The unit's version.
        has: String,
        /// The versions that the others name.
        named: String,
    },
}

/// A drive's answer, or the reason for which there is none.
pub(crate) type RequestOutcome = Result<DriveReply, Failure>;

impl<'b> Item<'b> {
    /// A request without bytes.
    pub(crate) fn bare(request: impl Into<DriveRequest>) -> Item<'b> {
        Item { request: request.into(), payload: &[], into: &mut [] }
    }

    pub(crate) fn weight(&self) -> usize {
        self.payload.len().max(self.into.len())
    }
}

/// Sends all of `items` to a drive, in order. Returns one outcome per item, in the same order. A refusal that
/// also applies to later requests (stale generation, no space) stops the sending, and counts for them all.
pub(crate) async fn request_all(
    drives: &Drives,
    drive: DriveId,
    address: &str,
    grant: &Grant,
    limit: InFlightLimit<'_>,
    items: Vec<Item<'_>>,
) -> Vec<RequestOutcome> {
    let mut items = items;
    let requests = items.iter_mut().map(|item| &mut item.request);
    let spans = Spans::of(drives.recorder.as_ref(), drive, requests);
    let items = match small_requests(drives, drive, address, grant, items, &spans).await {
        Ok(outcomes) => return outcomes,
        Err(items) => items,
    };
    let count = items.len();
    let mut outcomes: Vec<Option<RequestOutcome>> = Vec::new();
    outcomes.resize_with(count, || None);
    let mut lent = match drives.session(drive, address).await {
        Ok(lent) => lent,
        Err(error) => {
            let why = error.to_string();
            drives.note_away(drive, &why);
            return vec![Err(Failure::Lost(why)); count];
        }
    };
    drives.asks(count);
    spans.all(|span, now| span.connected_us = now);
    let ended = send_and_receive(&mut lent, grant, limit, items, &mut outcomes, &spans).await;
    let rest = match ended {
        Ok(()) => {
            drives.give_back(lent);
            let mut stopped = outcomes.iter().flatten().filter_map(|outcome| outcome.as_ref().err());
            stopped.find(|failure| failure.concerns_all()).cloned()
        }
        Err(error) if lent.reused && is_gone(&error) => {
            drives.forget_idle(drive);
            Some(Failure::Idle)
        }
        Err(error) => {
            let why = error.to_string();
            drives.note_away(drive, &why);
            Some(Failure::Lost(why))
        }
    };
    let rest = rest.unwrap_or_else(|| Failure::Lost("the session ended early".to_owned()));
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(rest.clone()))).collect()
}

/// Sends and receives at the same time, within the limit. Even after an error, `outcomes` holds the answers
/// so far, each at its item's index.
async fn send_and_receive(
    lent: &mut Lent,
    grant: &Grant,
    limit: InFlightLimit<'_>,
    items: Vec<Item<'_>>,
    outcomes: &mut [Option<RequestOutcome>],
    spans: &Spans,
) -> Result<(), TransportError> {
    let weights: Vec<u32> = items.iter().map(|item| kibibytes(item.weight(), limit.bytes)).collect();
    let flights = Semaphore::new(limit.flights.max(1));
    let bytes = Semaphore::new(kibibytes_of(limit.bytes));
    let asked = Semaphore::new(0);
    let turns = Semaphore::new(0);
    let stop = AtomicBool::new(false);
    let last = AtomicUsize::new(items.len());
    let (mut asks, mut landings): (Vec<_>, Vec<_>) =
        items.into_iter().map(|item| ((item.request, item.payload), item.into)).unzip();
    let lengths: Vec<usize> = landings.iter().map(|into| into.len()).collect();
    let waits = Flights::begin(limit.caller, &lent.session);
    let starts: Vec<u32> = asks.iter().map(|(request, _)| first_byte(request)).collect();
    let (asker, answers) = lent.session.halves();
    let send = async {
        for ((index, (request, payload)), tag) in asks.iter_mut().enumerate().zip(0..) {
            flights.acquire().await.expect("it is never closed").forget();
            bytes.acquire_many(weights[index]).await.expect("it is never closed").forget();
            if stop.load(Ordering::Relaxed) {
                last.store(index, Ordering::Relaxed);
                break;
            }
            let span = spans.nth(index);
            span.crc(|| put_crcs(request, payload));
            waits.turn(index, lengths[index]).await;
            if let Some(bytes) = waits.asks_first(payload) {
                asked.add_permits(1);
                let turn = WriteTurn { at: request.target().at, bytes };
                asker.ask(TURN_TAG, grant, &turn.into(), &[]).await?;
                turns.acquire().await.expect("it is never closed").forget();
            }
            span.at(|span, now| span.granted_us = now);
            // Before the bytes are sent: the drive may refuse before it has received them all.
            asked.add_permits(1);
            let pieces: &[&[u8]] = if payload.is_empty() { &[] } else { &[payload] };
            asker.ask(tag, grant, request, pieces).await?;
            span.at(|span, now| span.sent_us = now);
        }
        asked.add_permits(1);
        Ok::<(), TransportError>(())
    };
    let receive = async {
        let mut received = 0;
        while received < landings.len() {
            asked.acquire().await.expect("it is never closed").forget();
            if received >= last.load(Ordering::Relaxed) {
                break;
            }
            let answer = answers.next().await?;
            if answer.tag == TURN_TAG {
                // Whatever the answer: a write that had no turn is not refused for that.
                turns.add_permits(1);
                continue;
            }
            received += 1;
            let index = usize::try_from(answer.tag).expect("an index of an item");
            let span = spans.nth(index);
            span.at(|span, now| span.answered_us = now);
            let into = std::mem::take(&mut landings[index]);
            let outcome = land(answers, answer, starts[index], into, span).await?;
            span.landed(&outcome);
            waits.arrived(index, outcome.as_ref().ok(), answers);
            if outcome.as_ref().is_err_and(Failure::concerns_all) {
                stop.store(true, Ordering::Relaxed);
            }
            outcomes[index] = Some(outcome);
            flights.add_permits(1);
            bytes.add_permits(usize::try_from(weights[index]).expect("it is bounded by the limit"));
        }
        Ok::<(), TransportError>(())
    };
    tokio::try_join!(send, receive).map(|_| ())
}

impl Failure {
    /// Returns true if the requests that follow would fail in the same way.
    fn concerns_all(&self) -> bool {
        match self {
            Failure::Refused { refusal, .. } => !matches!(
                refusal.reason,
                Reason::NoObject | Reason::Damaged | Reason::Medium | Reason::Gone | Reason::NotCaughtUp
            ),
            Failure::Corrupt(_) | Failure::Behind { .. } => false,
            Failure::Idle | Failure::Lost(_) => true,
        }
    }

    /// Returns true if the failure is a refusal for this reason.
    pub(crate) fn is(&self, reason: Reason) -> bool {
        matches!(self, Failure::Refused { refusal, .. } if refusal.reason == reason)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Idle => f.write_str("the session had ended"),
            Failure::Lost(why) => f.write_str(why),
            Failure::Refused { refusal, .. } => write!(f, "{refusal}"),
            Failure::Corrupt(at) => write!(f, "bytes from {at} of the unit do not match their checksum"),
            Failure::Behind { has, named } => {
                write!(
                    f,
                    "its unit is older than the rest of the stripe: it has version {has}, and the other columns name {named}"
                )
            }
        }
    }
}

pub(crate) fn is_gone(error: &TransportError) -> bool {
    matches!(
        error,
        TransportError::Closed { .. } | TransportError::Io { .. } | TransportError::Poisoned { .. }
    )
}

/// The first byte of a read in its unit.
pub(crate) fn first_byte(request: &DriveRequest) -> u32 {
    match request {
        DriveRequest::Read(read) => read.from,
        _ => 0,
    }
}

/// Computes the checksums of a write's bytes, once, when it is sent.
pub(crate) fn put_crcs(request: &mut DriveRequest, payload: &[u8]) {
    let (from, crcs) = match request {
        DriveRequest::StripeWrite(write) => (write.from, &mut write.crcs),
        DriveRequest::UnitWrite(write) => (write.from, &mut write.crcs),
        _ => return,
    };
    if crcs.is_empty() && !payload.is_empty() {
        *crcs = block_crcs(from, payload);
    }
}

fn kibibytes_of(bytes: u64) -> usize {
    usize::try_from((bytes >> 10).max(1)).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS)
}

/// An item's share of the limit, at most all of it: an item larger than the limit is sent alone.
fn kibibytes(bytes: usize, limit: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024).min(kibibytes_of(limit))).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_over_the_limit_goes_alone() {
        assert_eq!(kibibytes(64 << 20, 8 << 20), 8 << 10);
        assert_eq!(kibibytes(1, 8 << 20), 1);
        assert_eq!(kibibytes(0, 8 << 20), 0);
    }
}
