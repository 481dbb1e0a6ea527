//! Requests to one drive: several in flight, on all of its rails; answers are taken as they come. The bytes
//! of reads go straight into their buffers.
//!
//! This module has no policy: for each request it returns the answer, or the reason for which there is none.
//! Every block read is checked against its CRC32C as it arrives; holes are filled with zeros.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use braid_layout::DriveId;
use braid_transport::{TransportError, Turn};
use braid_wire::checksum::block_crcs;
use braid_wire::control::Grant;
use braid_wire::data::{DriveReply, DriveRequest, WriteTurn};
use braid_wire::{Addresses, Reason, Refusal};
use tokio::sync::Semaphore;

use crate::analysis::Spans;
use crate::concurrent;
use crate::data::landing::land;
use crate::peers::credit::{Caller, Flights};
use crate::peers::dealing::{Deals, Load};
use crate::peers::drives::{Drives, Lent};
use crate::peers::small_requests::small_requests;

/// Tag of requests for a turn; others have their item's number. Their answers are not looked at: a write that
/// had no turn is not refused for that.
const TURN_TAG: u64 = u64::MAX;

const NOT_ASKED: &str = "it is in the flight until it is answered";

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

/// A drive that is asked, and how.
#[derive(Clone, Copy)]
struct Asked<'a> {
    drives: &'a Drives,
    drive: DriveId,
    addresses: &'a Addresses,
    grant: &'a Grant,
    limit: InFlightLimit<'a>,
    spans: &'a Spans,
    /// True if a method is to run.
    is_method: bool,
}

/// Sends all of `items` to a drive. Returns one outcome per item, in the same order. A refusal that also
/// applies to later requests (stale generation, no space) stops the sending, and counts for them all.
///
/// With one rail they are sent in order. With several, reads and writes of stripes go on any of them, after
/// the requests that are before them and are neither. If a rail breaks, what it did not answer
/// goes again on another: reads are idempotent, and a write has the same stamp. The drive counts as away only
/// when no rail answers.
pub(crate) async fn request_all(
    drives: &Drives,
    drive: DriveId,
    addresses: &Addresses,
    grant: &Grant,
    limit: InFlightLimit<'_>,
    items: Vec<Item<'_>>,
) -> Vec<RequestOutcome> {
    let mut items = items;
    let requests = items.iter_mut().map(|item| &mut item.request);
    let spans = &Spans::of(drives.recorder.as_ref(), drive, requests);
    let items = match small_requests(drives, drive, addresses, grant, items, spans).await {
        Ok(outcomes) => return outcomes,
        Err(items) => items,
    };
    let is_method = items.iter().any(|item| matches!(item.request, DriveRequest::Run(_)));
    let asked = Asked { drives, drive, addresses, grant, limit, spans, is_method };
    let mut outcomes: Vec<Option<RequestOutcome>> = Vec::new();
    outcomes.resize_with(items.len(), || None);
    let mut first: Vec<(usize, Item<'_>)> = items.into_iter().enumerate().collect();
    let in_order =
        first.iter().rposition(|(_, item)| !goes_anywhere(&item.request)).map_or(0, |last| last + 1);
    let apart = if addresses.count() > 1 { first.split_off(in_order) } else { Vec::new() };
    let mut rest = asked.send_all(first, true, &mut outcomes).await;
    if rest.is_none() {
        rest = asked.send_all(apart, false, &mut outcomes).await;
    }
    let rest = rest.unwrap_or_else(|| Failure::Lost("the session ended early".to_owned()));
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(rest.clone()))).collect()
}

/// Returns true if the request may go before or after its neighbours, on any rail.
fn goes_anywhere(request: &DriveRequest) -> bool {
    matches!(request, DriveRequest::Read(_) | DriveRequest::StripeWrite(_))
}

/// The outcome of one rail's part.
struct Ended<'b> {
    answered: Vec<(usize, RequestOutcome)>,
    left: Vec<(usize, Item<'b>)>,
    end: End,
}

enum End {
    /// All that was sent is answered. What is left, if anything, is not to be sent.
    Whole,
    /// A session that had been idle was broken.
    Stale,
    /// The rail broke.
    Broken(TransportError),
}

impl Asked<'_> {
    /// Sends the items, which have their numbers in `outcomes`. Returns the failure of those that are left
    /// without an outcome, if any are.
    async fn send_all<'b>(
        &self,
        mut waiting: Vec<(usize, Item<'b>)>,
        together: bool,
        outcomes: &mut [Option<RequestOutcome>],
    ) -> Option<Failure> {
        let drives = self.drives;
        let mut why = "the session ended early".to_owned();
        let mut deals = Deals::new(together);
        while deals.may_go_on() {
            if waiting.is_empty() {
                return None;
            }
            let all = waiting.iter().map(|(_, item)| length(item)).sum();
            let together = deals.to_one.then_some(all);
            let loads = drives.rails_for(self.drive, self.addresses, together, Some(self.grant)).await;
            let loads = match loads {
                Ok(loads) => loads,
                Err(TransportError::Refusal(refusal)) if refusal.reason == Reason::StaleKey => {
                    return Some(Failure::Refused { refusal, proven: false });
                }
                Err(error) => {
                    why = error.to_string();
                    break;
                }
            };
            let queue = Mutex::new(Queue { left: all, items: waiting.into() });
            let ends = concurrent::all(loads.into_iter().map(|load| self.exchange(&queue, load))).await;
            let queue = queue.into_inner().expect("no holder panics");
            waiting = queue.items.into();
            let is_whole = ends.iter().all(|(ended, _)| matches!(ended.end, End::Whole));
            deals.ended(is_whole, ends.iter().any(|(ended, _)| !ended.answered.is_empty()));
            let mut final_failure = None;
            for (ended, address) in ends {
                for (number, outcome) in ended.answered {
                    if let Err(failure) = &outcome
                        && failure.concerns_all()
                    {
                        final_failure = final_failure.or_else(|| Some(failure.clone()));
                    }
                    outcomes[number] = Some(outcome);
                }
                let is_alone = self.addresses.count() <= 1;
                match ended.end {
                    End::Whole => {}
                    End::Stale => {
                        drives.forget_idle(self.drive, &address);
                        if is_alone {
                            final_failure = Some(Failure::Idle);
                        }
                    }
                    End::Broken(TransportError::Refusal(refusal)) if refusal.reason == Reason::StaleKey => {
                        final_failure = Some(Failure::Refused { refusal, proven: false });
                    }
                    End::Broken(error) if is_late_method(self.is_method, &error) => {
                        final_failure = Some(Failure::Lost(error.to_string()));
                    }
                    End::Broken(error) => {
                        why = error.to_string();
                        if is_alone {
                            drives.note_away_at(self.drive, self.addresses, &why);
                            final_failure = Some(Failure::Lost(why.clone()));
                        } else {
                            drives.lose_rail(self.drive, &address, &why);
                        }
                    }
                }
                waiting.extend(ended.left);
            }
            if final_failure.is_some() {
                return final_failure;
            }
            waiting.sort_unstable_by_key(|(number, _)| *number);
        }
        if waiting.is_empty() {
            return None;
        }
        drives.note_away_at(self.drive, self.addresses, &why);
        Some(Failure::Lost(why))
    }

    /// Sends on one rail what it takes from the queue. Also returns the rail's address.
    async fn exchange<'b>(&self, queue: &Mutex<Queue<'b>>, load: Load) -> (Ended<'b>, String) {
        let address = load.address.clone();
        let mut flight = Flight { queue, load: Mutex::new(load), sent: Mutex::default() };
        let mut answered = Vec::new();
        let Some(first) = flight.next() else {
            return (Ended { answered, left: Vec::new(), end: End::Whole }, address);
        };
        let limits = self.drives.limits_of_rail(self.addresses);
        let mut lent = match self.drives.session(self.drive, &address, &limits, self.grant).await {
            Ok(lent) => lent,
            Err(error) => return (Ended { answered, left: vec![first], end: End::Broken(error) }, address),
        };
        self.spans.all(|span, now| span.connected_us = now);
        let progress = AtomicU64::new(0);
        let sending = self.send_and_receive(&mut lent, first, &flight, &mut answered, &progress);
        let ended = if self.addresses.count() > 1 {
            let grant = Some(self.grant);
            self.drives.unless_silent(self.drive, &address, grant, &progress, sending).await
        } else {
            sending.await
        };
        let end = match ended {
            Ok(()) => {
                self.drives.give_back(lent);
                End::Whole
            }
            Err(error) if lent.reused && is_gone(&error) => End::Stale,
            Err(error) => End::Broken(error),
        };
        let sent = std::mem::take(flight.sent.get_mut().expect("no holder panics"));
        let left = sent.into_iter().map(|(number, sent)| (number, sent.0)).collect();
        (Ended { answered, left, end }, address)
    }

    /// Sends and receives at the same time, within the limit. Even after an error, `answered` has the answers
    /// so far; what was sent and not answered is left in the flight.
    async fn send_and_receive<'b>(
        &self,
        lent: &mut Lent,
        first: (usize, Item<'b>),
        flight: &Flight<'_, 'b>,
        answered: &mut Vec<(usize, RequestOutcome)>,
        progress: &AtomicU64,
    ) -> Result<(), TransportError> {
        let limit = self.limit;
        let flights = Semaphore::new(limit.flights.max(1));
        let bytes = Semaphore::new(kibibytes_of(limit.bytes));
        let asked = Semaphore::new(0);
        let turns = Semaphore::new(0);
        let stop = AtomicBool::new(false);
        let count = AtomicUsize::new(0);
        let is_last = AtomicBool::new(false);
        let weight = |item: &Item<'_>| kibibytes(item.weight(), limit.bytes);
        let waits = Flights::begin(limit.caller, &mut lent.session);
        let (asker, answers) = lent.session.halves();
        let send = async {
            flights.acquire().await.expect("it is never closed").forget();
            let mut next = Some(first);
            while let Some((number, mut item)) = next {
                let span = self.spans.nth(number);
                span.crc(|| put_crcs(&mut item.request, item.payload));
                let payload = item.payload;
                let expected = item.into.len();
                let weight = weight(&item);
                // From here on: if the rail breaks while the request waits, it is among those that are left.
                flight.sent().insert(number, (item, None));
                bytes.acquire_many(weight).await.expect("it is never closed").forget();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                span.at(|span, now| span.admitted_us = now);
                flight.keep_turn(number, waits.turn(expected, asker).await);
                if let Some(bytes) = waits.asks_first(payload) {
                    asked.add_permits(1);
                    let turn = flight.write_turn(number, bytes);
                    asker.ask(TURN_TAG, self.grant, &turn.into(), &[]).await?;
                    turns.acquire().await.expect("it is never closed").forget();
                }
                span.at(|span, now| span.granted_us = now);
                // Before the bytes are sent: the drive may refuse before it has received them all.
                count.fetch_add(1, Ordering::Relaxed);
                asked.add_permits(1);
                let pieces: &[&[u8]] = if payload.is_empty() { &[] } else { &[payload] };
                let tag = u64::try_from(number).expect("an index of an item");
                self.drives.asks(1);
                let sending = {
                    let sent = flight.sent();
                    asker.ask(tag, self.grant, &sent.get(&number).expect(NOT_ASKED).0.request, pieces)
                };
                sending.await?;
                span.at(|span, now| span.sent_us = now);
                flights.acquire().await.expect("it is never closed").forget();
                next = if stop.load(Ordering::Relaxed) { None } else { flight.next() };
            }
            is_last.store(true, Ordering::Relaxed);
            asked.add_permits(1);
            Ok::<(), TransportError>(())
        };
        let receive = async {
            let mut received = 0;
            loop {
                asked.acquire().await.expect("it is never closed").forget();
                if is_last.load(Ordering::Relaxed) && received >= count.load(Ordering::Relaxed) {
                    return Ok::<(), TransportError>(());
                }
                let answer = answers.next().await?;
                if answer.tag == TURN_TAG {
                    turns.add_permits(1);
                    continue;
                }
                received += 1;
                let number = usize::try_from(answer.tag).expect("an index of an item");
                let (item, turn) = flight.sent().remove(&number).expect("it was asked for once");
                let weight = weight(&item);
                let length = length(&item);
                let mut landing = Landing { flight, number, item: Some(item) };
                let item = landing.item.as_mut().expect("it was put in");
                let span = self.spans.nth(number);
                span.at(|span, now| span.answered_us = now);
                let came = answer.payload_bytes;
                let outcome = land(answers, answer, first_byte(&item.request), &mut *item.into, span).await?;
                span.landed(&outcome);
                waits.arrived(turn, outcome.as_ref().ok(), came, answers);
                landing.item = None;
                if outcome.as_ref().is_err_and(Failure::concerns_all) {
                    stop.store(true, Ordering::Relaxed);
                }
                answered.push((number, outcome));
                progress.fetch_add(1, Ordering::Relaxed);
                flight.load.lock().expect("no holder panics").delivered(length);
                flights.add_permits(1);
                bytes.add_permits(usize::try_from(weight).expect("it is bounded by the limit"));
            }
        };
        tokio::try_join!(send, receive).map(|_| ())
    }
}

/// Requests that no rail has taken, in their order.
struct Queue<'b> {
    /// The sum of their bytes.
    left: u64,
    items: VecDeque<(usize, Item<'b>)>,
}

/// The requests of a list that one rail has in flight.
struct Flight<'q, 'b> {
    queue: &'q Mutex<Queue<'b>>,
    load: Mutex<Load>,
    /// Requests without an answer, by their numbers.
    sent: Mutex<BTreeMap<usize, Sent<'b>>>,
}

/// A request without an answer, and its turn if it has one.
type Sent<'b> = (Item<'b>, Option<Turn>);

/// A request whose answer is being received. If that is given up, it counts as not answered.
struct Landing<'f, 'q, 'b> {
    flight: &'f Flight<'q, 'b>,
    number: usize,
    item: Option<Item<'b>>,
}

impl Drop for Landing<'_, '_, '_> {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.flight.sent().insert(self.number, (item, None));
        }
    }
}

impl<'b> Flight<'_, 'b> {
    /// Takes the next request, unless it is left to another rail.
    fn next(&self) -> Option<(usize, Item<'b>)> {
        let mut queue = self.queue.lock().expect("no holder panics");
        let bytes = length(&queue.items.front()?.1);
        let left = queue.left;
        if !self.load.lock().expect("no holder panics").take(bytes, left) {
            return None;
        }
        queue.left -= bytes;
        queue.items.pop_front()
    }

    /// Keeps the turn of a request that is about to be sent.
    fn keep_turn(&self, number: usize, turn: Option<Turn>) {
        if turn.is_some() {
            self.sent().get_mut(&number).expect(NOT_ASKED).1 = turn;
        }
    }

    /// The request for a turn of a write that is about to be sent.
    fn write_turn(&self, number: usize, bytes: u64) -> WriteTurn {
        WriteTurn { at: self.sent().get(&number).expect(NOT_ASKED).0.request.target().at, bytes }
    }

    fn sent(&self) -> MutexGuard<'_, BTreeMap<usize, Sent<'b>>> {
        self.sent.lock().expect("no holder panics")
    }
}

/// Returns true if a method did not end in time. Methods have their turns after reads: this says nothing
/// about the drive's other answers.
fn is_late_method(is_method: bool, error: &TransportError) -> bool {
    is_method && matches!(error, TransportError::Timeout { .. })
}

fn length(item: &Item<'_>) -> u64 {
    u64::try_from(item.weight()).unwrap_or(u64::MAX)
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
    fn a_drive_whose_method_is_late_is_not_away() {
        let late = TransportError::Timeout { what: "for an answer", address: "d:1".to_owned() };
        assert!(is_late_method(true, &late));
        assert!(!is_late_method(false, &late));
        assert!(!is_late_method(true, &TransportError::Closed { address: "d:1".to_owned() }));
    }

    #[test]
    fn an_item_over_the_limit_goes_alone() {
        assert_eq!(kibibytes(64 << 20, 8 << 20), 8 << 10);
        assert_eq!(kibibytes(1, 8 << 20), 1);
        assert_eq!(kibibytes(0, 8 << 20), 0);
    }
}
