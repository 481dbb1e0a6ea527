//! Changes of a segment's columns through the procedure on its file: the steps with which all such changes
//! begin and end.

use std::sync::Arc;

use braid_layout::{DriveId, FileId};
use braid_meta::records::schema::InodeRecord;
use braid_wire::control::DriveState;
use braid_wire::{Reason, Refusal};

use crate::columns::procedure::{self, Cause, RecordedLease};
use crate::core::Core;

/// The state of the lease on record. If it has lapsed, its end begins, which [`run`] completes.
pub(crate) fn lease_of(core: &Core, file: FileId, inode: &InodeRecord) -> RecordedLease {
    if !inode.held {
        RecordedLease::None
    } else if core.leases().begin_end(file, core.now_ms()) {
        RecordedLease::Ended
    } else {
        RecordedLease::Live
    }
}

/// Runs the procedure, and ends the file's lease with it if the lease was over. The caller holds the file's
/// lock.
pub(crate) async fn run(
    core: &Arc<Core>,
    file: FileId,
    cause: Cause,
) -> Result<Option<InodeRecord>, Refusal> {
    let lease = cause.lease;
    let after = procedure::run(core, file, cause).await?;
    if lease == RecordedLease::Ended {
        core.leases().end(file);
    }
    Ok(after)
}

/// The refusal to a drive that has no column to heal.
pub(crate) fn nothing(core: &Core, file: FileId, target: DriveId) -> Refusal {
    let name = core.drives().name(target);
    Refusal::new(
        Reason::NotFound,
        format!("file {file} has no stale column on {name}: there is nothing to do"),
    )
}

/// The drives whose place `target` has taken.
pub(crate) fn olds_of(core: &Core, target: DriveId) -> Vec<DriveId> {
    let table = core.drives();
    let olds = table.iter().map(|drive| drive.record.drive).filter(|&old| old != target);
    olds.filter(|&old| table.successor(old) == target).collect()
}

/// Refuses if the drive is not up.
pub(crate) fn must_be_up(core: &Core, target: DriveId) -> Result<(), Refusal> {
    let now_ms = core.now_ms();
    let table = core.drives();
    if table.state(target, now_ms) == DriveState::Up {
        return Ok(());
    }
    let name = table.name(target);
    Err(Refusal::new(Reason::NoDrive, format!("{name} is away: start it, then rebuild")))
}
