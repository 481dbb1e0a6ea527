//! Small requests to one drive, in the session that all callers share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use braid_layout::DriveId;
use braid_transport::{Asking, SHARED_PAYLOAD_BYTES_MAX, SharedSession, SmallAnswer, TransportError};
use braid_wire::Addresses;
use braid_wire::control::Grant;
use braid_wire::data::DriveRequest;

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
) -> Result<Vec<RequestOutcome>, Vec<Item<'b>>> {
    if items.len() > TOGETHER_MAX || !items.iter().all(is_small) {
        return Err(items);
    }
    let Some(shared) = drives.shared(drive, addresses) else { return Err(items) };
    let mut asking = Vec::with_capacity(items.len());
    for item in &mut items {
        let sent = send(drives, &shared, grant, item);
        // If the session takes the first request and not the next, the next is sent again later, like a lost
        // one.
        match sent {
            Ok(None) if asking.is_empty() => return Err(items),
            sent => asking.push(sent),
        }
    }
    let to = (drive, addresses);
    let mut outcomes = Vec::with_capacity(items.len());
    for (sent, item) in asking.into_iter().zip(&mut items) {
        outcomes.push(match sent {
            Ok(None) => Err(Failure::Idle),
            Ok(Some(asking)) => land(drives, to, &shared, Ok(asking), item).await,
            Err(error) => land(drives, to, &shared, Err(error), item).await,
        });
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
    let sent = send(drives, &shared, grant, item).transpose()?;
    Some(land(drives, (drive, addresses), &shared, sent, item).await)
}

/// Sends a request, without waiting for its answer; `None` if the session takes no more now.
fn send(
    drives: &Drives,
    shared: &SharedSession,
    grant: &Grant,
    item: &mut Item<'_>,
) -> Result<Option<Asking>, TransportError> {
    put_crcs(&mut item.request, item.payload);
    let sent = shared.ask(grant, &item.request, item.payload);
    if matches!(sent, Ok(Some(_))) {
        drives.asks(1);
    }
    sent
}

/// Waits for the answer, and takes its payload.
async fn land(
    drives: &Drives,
    to: (DriveId, &Addresses),
    shared: &Arc<SharedSession>,
    sent: Result<Asking, TransportError>,
    item: &mut Item<'_>,
) -> RequestOutcome {
    let (drive, addresses) = to;
    let rail = if addresses.count() > 1 { drives.rail_of_shared(drive, shared) } else { None };
    let answered = match sent {
        Ok(asking) => match answer(drives, drive, rail.as_deref(), asking).await {
            Ok(answer) => land_small(answer, first_byte(&item.request), item.into).await,
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    match answered {
        Ok(outcome) => {
            drives.answered(drive);
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
            drives.note_away(drive, &why);
            Err(Failure::Lost(why))
        }
    }
}

/// Waits for an answer on a rail; `None`: the drive has no other, or the session was replaced.
async fn answer(
    drives: &Drives,
    drive: DriveId,
    rail: Option<&str>,
    asking: Asking,
) -> Result<SmallAnswer, TransportError> {
    match rail {
        Some(address) => drives.unless_silent(drive, address, &AtomicU64::new(0), asking).await,
        None => asking.await,
    }
}
