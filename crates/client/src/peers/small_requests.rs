//! Small requests to one drive, in the session that all callers share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use braid_layout::DriveId;
use braid_transport::{Asking, SHARED_PAYLOAD_BYTES_MAX, SharedSession, SmallAnswer, TransportError};
use braid_wire::Addresses;
use braid_wire::control::Grant;
use braid_wire::data::DriveRequest;

use crate::analysis::{SpanOf, Spans};
use crate::data::landing::land_small;
use crate::peers::drive_requests::{Failure, Item, RequestOutcome, first_byte, is_gone, put_crcs};
use crate::peers::drives::Drives;

/// Maximum number of requests of one caller: an object's creation and a write to it.
const TOGETHER_MAX: usize = 2;

/// Sends the requests in the shared session, if all are small and there is one. Gives the items back
/// otherwise: they must be sent in a session of their own. The drive takes them in their order.
pub(crate) async fn small_requests<'b>(
    drives: &Drives,
    drive: DriveId,
    addresses: &Addresses,
    grant: &Grant,
    mut items: Vec<Item<'b>>,
    spans: &Spans,
) -> Result<Vec<RequestOutcome>, Vec<Item<'b>>> {
    if items.len() > TOGETHER_MAX || !items.iter().all(is_small) {
        return Err(items);
    }
    let Some(shared) = drives.shared(drive, addresses) else { return Err(items) };
    let mut asking = Vec::with_capacity(items.len());
    for (index, item) in items.iter_mut().enumerate() {
        let sent = send(drives, &shared, grant, item, spans.nth(index));
        // If the session takes the first request and not the next, the next is sent again later, like a lost
        // one.
        match sent {
            Ok(None) if asking.is_empty() => return Err(items),
            sent => asking.push(sent),
        }
    }
    let to = (drive, addresses);
    let mut outcomes = Vec::with_capacity(items.len());
    for ((index, sent), item) in asking.into_iter().enumerate().zip(&mut items) {
        let sent = match sent {
            Ok(None) => {
                outcomes.push(Err(Failure::Idle));
                continue;
            }
            Ok(Some(asking)) => Ok(asking),
            Err(error) => Err(error),
        };
        outcomes.push(land(drives, to, &shared, grant, sent, item, spans.nth(index)).await);
    }
    Ok(outcomes)
}

/// Returns true if the drive answers the request quickly, and with a short answer.
fn is_small(item: &Item<'_>) -> bool {
    let is_short = u32::try_from(item.weight()).is_ok_and(|bytes| bytes <= SHARED_PAYLOAD_BYTES_MAX);
    let is_data = matches!(
        item.request,
        DriveRequest::Read(_)
            | DriveRequest::Create(_)
            | DriveRequest::StripeWrite(_)
            | DriveRequest::UnitWrite(_)
            | DriveRequest::Retire(_)
    );
    is_short && is_data
}

/// Sends one request in the shared session; `None` if there is no shared session that takes it now.
pub(crate) async fn ask(
    drives: &Drives,
    drive: DriveId,
    addresses: &Addresses,
    grant: &Grant,
    item: &mut Item<'_>,
) -> Option<RequestOutcome> {
    let shared = drives.shared(drive, addresses)?;
    let requests = std::iter::once(&mut item.request);
    let spans = Spans::of(drives.recorder.as_ref(), drive, requests);
    let sent = send(drives, &shared, grant, item, spans.nth(0)).transpose()?;
    Some(land(drives, (drive, addresses), &shared, grant, sent, item, spans.nth(0)).await)
}

/// Sends a request, without waiting for its answer; `None` if the session takes no more now.
fn send(
    drives: &Drives,
    shared: &SharedSession,
    grant: &Grant,
    item: &mut Item<'_>,
    span: SpanOf<'_>,
) -> Result<Option<Asking>, TransportError> {
    span.crc(|| put_crcs(&mut item.request, item.payload));
    let sent = shared.ask(grant, &item.request, item.payload);
    if matches!(sent, Ok(Some(_))) {
        drives.asks(1);
        span.at(|span, now| {
            span.admitted_us = now;
            span.granted_us = now;
            span.sent_us = now;
        });
    }
    sent
}

/// Waits for the answer, and takes its payload.
async fn land(
    drives: &Drives,
    to: (DriveId, &Addresses),
    shared: &Arc<SharedSession>,
    grant: &Grant,
    sent: Result<Asking, TransportError>,
    item: &mut Item<'_>,
    span: SpanOf<'_>,
) -> RequestOutcome {
    let (drive, addresses) = to;
    let rail = if addresses.count() > 1 { drives.rail_of_shared(drive, shared) } else { None };
    let answered = match sent {
        Ok(asking) => match answer(drives, drive, rail.as_deref(), grant, asking).await {
            Ok(answer) => {
                span.at(|span, now| span.answered_us = now);
                land_small(answer, first_byte(&item.request), item.into, span).await
            }
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    match answered {
        Ok(outcome) => {
            drives.answered(drive);
            span.landed(&outcome);
            outcome
        }
        Err(error) if is_gone(&error) => {
            drives.forget_shared(drive, shared);
            Err(Failure::Idle)
        }
        Err(error) => {
            let why = error.to_string();
            if addresses.count() > 1 {
                // Whether another rail answers is found out when it is asked again.
                rail.iter().for_each(|address| drives.lose_rail(drive, address, &why));
                return Err(Failure::Idle);
            }
            drives.note_away_at(drive, addresses, &why);
            Err(Failure::Lost(why))
        }
    }
}

/// Waits for an answer on a rail; `None`: the drive has no other, or the session was replaced.
async fn answer(
    drives: &Drives,
    drive: DriveId,
    rail: Option<&str>,
    grant: &Grant,
    asking: Asking,
) -> Result<SmallAnswer, TransportError> {
    match rail {
        Some(address) => drives.unless_silent(drive, address, Some(grant), &AtomicU64::new(0), asking).await,
        None => asking.await,
    }
}
