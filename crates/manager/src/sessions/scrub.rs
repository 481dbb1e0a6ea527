//! Scrubs and calibrations: pass a client's request on to the drive, and the drive's answer back. The drive
//! does the work and keeps its results.

use braid_layout::DriveId;
use braid_meta::rules::drives::no_drive;
use braid_wire::control::{CalibrateDrive, CalibrateDriveReply, DriveState, ScrubDrive, ScrubDriveReply};
use braid_wire::data::{Calibrate, DriveReply, DriveRequest, Scrub, ScrubAct};
use braid_wire::{Reason, Refusal};

use crate::columns::calls::drive_call;
use crate::core::Core;
use crate::drive_calls::CallError;

/// Asks a drive to scrub, or for the state of its scrub.
pub(crate) async fn scrub_drive(core: &Core, asked: ScrubDrive) -> Result<ScrubDriveReply, Refusal> {
    let (drive, name) = in_use(core, &asked.drive)?;
    if asked.act == ScrubAct::Forget {
        let detail = "only the manager may have a drive forget what it has lost";
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    if (asked.rate == 0) != (asked.act == ScrubAct::Look) {
        let detail = "a request to start a scrub needs a rate of at least 1 byte a second, and any other must have none";
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    let request = Scrub { act: asked.act, rate: asked.rate, term: core.term() };
    match ask(core, drive, &name, &request.into()).await? {
        DriveReply::Scrub(scrub) => Ok(ScrubDriveReply { name, scrub }),
        other => Err(silent(&name, &format!("it answers {} to a Scrub", other.name()))),
    }
}

/// Asks a drive to measure what its parts cost, or for the state of that.
pub(crate) async fn calibrate_drive(
    core: &Core,
    asked: CalibrateDrive,
) -> Result<CalibrateDriveReply, Refusal> {
    let (drive, name) = in_use(core, &asked.drive)?;
    let request = Calibrate { act: asked.act, term: core.term() };
    match ask(core, drive, &name, &request.into()).await? {
        DriveReply::Calibrate(calibration) => Ok(CalibrateDriveReply { name, calibration }),
        other => Err(silent(&name, &format!("it answers {} to a Calibrate", other.name()))),
    }
}

/// The identity and name of the drive of this name or identity, if it was not replaced.
fn in_use(core: &Core, asked: &str) -> Result<(DriveId, String), Refusal> {
    let now_ms = core.now_ms();
    let table = core.drives();
    let known = table.find(asked).ok_or_else(|| no_drive(asked))?;
    let drive = known.record.drive;
    let name = known.record.name.clone();
    if table.state(drive, now_ms) == DriveState::Replaced {
        return Err(Refusal::new(
            Reason::NoDrive,
            format!("{name} was replaced: its data is no longer used"),
        ));
    }
    Ok((drive, name))
}

async fn ask(core: &Core, drive: DriveId, name: &str, request: &DriveRequest) -> Result<DriveReply, Refusal> {
    match drive_call(core, drive, request).await {
        Ok(reply) => Ok(reply),
        Err(CallError::Refused(refusal)) if refusal.reason != Reason::NotServing => Err(refusal),
        Err(error) => Err(silent(name, &error.to_string())),
    }
}

fn silent(name: &str, why: &str) -> Refusal {
    Refusal::new(Reason::NotServing, format!("{name} does not answer: {why}"))
}
