//! One small request to one drive, in the session that all callers share.

use braid_layout::DriveId;
use braid_transport::SHARED_PAYLOAD_BYTES_MAX;
use braid_wire::control::Grant;
use braid_wire::data::DriveRequest;

use crate::drive_requests::{Failure, Item, Outcome, first_byte, is_gone, put_crcs};
use crate::drives::Drives;
use crate::landing::land_small;

/// Asks, if it is a single small request and there is a shared session. Gives the items back otherwise: they
/// are to be asked in a session of their own.
pub(crate) async fn small_request<'b>(
    drives: &Drives,
    drive: DriveId,
    address: &str,
    grant: &Grant,
    mut items: Vec<Item<'b>>,
) -> Result<Outcome, Vec<Item<'b>>> {
    let [item] = items.as_mut_slice() else { return Err(items) };
    if !is_small(item) {
        return Err(items);
    }
    match ask(drives, drive, address, grant, item).await {
        Some(outcome) => Ok(outcome),
        None => Err(items),
    }
}

/// Whether the drive answers it without a longer wait than others, and shortly.
fn is_small(item: &Item<'_>) -> bool {
    let is_short = u32::try_from(item.weight()).is_ok_and(|bytes| bytes <= SHARED_PAYLOAD_BYTES_MAX);
    let is_data = matches!(
        item.request,
        DriveRequest::Read(_) | DriveRequest::StripeWrite(_) | DriveRequest::UnitWrite(_)
    );
    is_short && is_data
}

/// Asks it; `None` if there is no shared session that takes it now.
pub(crate) async fn ask(
    drives: &Drives,
    drive: DriveId,
    address: &str,
    grant: &Grant,
    item: &mut Item<'_>,
) -> Option<Outcome> {
    let shared = drives.shared(drive, address)?;
    put_crcs(&mut item.request, item.payload);
    let answered = match shared.ask(grant, &item.request, item.payload) {
        Ok(None) => return None,
        Ok(Some(asking)) => match asking.await {
            Ok(answer) => land_small(answer, first_byte(&item.request), item.into).await,
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    Some(match answered {
        Ok(outcome) => {
            drives.answered(drive);
            outcome
        }
        Err(error) if is_gone(&error) => {
            drives.forget_shared(drive, &shared);
            Err(Failure::Idle)
        }
        Err(error) => {
            let why = error.to_string();
            drives.note_away(drive, &why);
            Err(Failure::Lost(why))
        }
    })
}
