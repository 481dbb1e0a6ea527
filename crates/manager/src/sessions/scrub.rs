//! Scrubs: passes a client's request on to the drive, and the drive's answer back. The drive does the work
//! and keeps its position.

use braid_meta::rules::drives::no_drive;
use braid_wire::control::{DriveState, ScrubDrive, ScrubDriveReply};
use braid_wire::data::{DriveReply, Scrub, ScrubAct};
use braid_wire::{Reason, Refusal};

use crate::columns::fence::drive_call;
use crate::core::Core;
use crate::drive_calls::CallError;

/// Asks a drive to scrub, or for the state of its scrub.
pub(crate) async fn scrub_drive(core: &Core, asked: ScrubDrive) -> Result<ScrubDriveReply, Refusal> {
    let (drive, name, state) = {
        let now_ms = core.now_ms();
        let table = core.drives();
        let known = table.find(&asked.drive).ok_or_else(|| no_drive(&asked.drive))?;
        let drive = known.record.drive;
        (drive, known.record.name.clone(), table.state(drive, now_ms))
    };
    if state == DriveState::Replaced {
        return Err(Refusal::new(
            Reason::NoDrive,
            format!("{name} was replaced: its data is no longer used"),
        ));
    }
    if asked.act == ScrubAct::Forget {
        let detail = "only the manager may have a drive forget what it has lost";
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    if (asked.rate == 0) != (asked.act == ScrubAct::Look) {
        let detail = "a request to start a scrub needs a rate of at least 1 byte a second, and any other must have none";
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    let request = Scrub { act: asked.act, rate: asked.rate, term: core.term() };
    let why = match drive_call(core, drive, &request.into()).await {
        Ok(DriveReply::Scrub(scrub)) => return Ok(ScrubDriveReply { name, scrub }),
        Ok(other) => format!("it answers {} to a Scrub", other.name()),
        Err(CallError::Refused(refusal)) if refusal.reason != Reason::NotServing => return Err(refusal),
        Err(error) => error.to_string(),
    };
    Err(Refusal::new(Reason::NotServing, format!("{name} does not answer: {why}")))
}
