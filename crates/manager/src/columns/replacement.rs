//! Replacement of a dead drive by another: one durable record. Files are changed one by one as they are
//! healed.
//!
//! A drive is replaced once. A repeated request is answered that it is done; a request that names another
//! drive is refused, with the drive that has the place.

use std::sync::Arc;

use braid_layout::DriveId;
use braid_meta::records::inodes;
use braid_meta::records::schema::{DriveRecord, key};
use braid_meta::records::tx::Tx;
use braid_meta::rules::drives::no_drive;
use braid_meta::rules::operations::{Once, Operation, OperationResult};
use braid_wire::control::{DriveState, ReplaceDrive};
use braid_wire::{Reason, Refusal};
use tokio::time::Instant;

use crate::columns::needs::{LOOK_MAX, Needs};
use crate::columns::procedure::{self, Life};
use crate::core::{Core, set_record};

/// Lets `new` replace `old`, which must be dead. Returns the number of components to rebuild.
pub(crate) async fn replace(
    core: &Arc<Core>,
    operation: Operation,
    request: ReplaceDrive,
) -> Result<u64, Refusal> {
    if let Some(before) = core.read(move |core, tx| core.recall(tx, operation)).await? {
        return Ok(before.number);
    }
    let (old, new) = replaceable(core, &request)?;
    // One check: a drive on this machine that was killed just now is known to be dead without a wait.
    let life = procedure::life(core, old, Instant::now()).await;
    let no = |what: &str| Err(Refusal::new(Reason::DriveInUse, format!("{} {what}", request.old)));
    match life {
        Life::Dead => {}
        Life::Alive => return no("is up: stop it before it is replaced"),
        Life::Unknown => return no("may still hold its lease: try again in some seconds"),
    }
    let can_take =
        core.read_within(LOOK_MAX, move |core, tx| Needs::of(core, tx, old)?.must_be_taken(core, tx, new));
    if let Err(refusal) = can_take.await {
        procedure::release_holds(core, [old]);
        return Err(refusal);
    }
    let replace = move |core: &Core, tx: &mut Tx| {
        // Another replacement may have been stored since the table was looked at.
        can_be_replaced(core, (old, last_in_place(tx, old)?), (new, last_in_place(tx, new)?))?;
        let mut record: DriveRecord =
            tx.record(&key::drive(old))?.ok_or_else(|| no_drive(&old.to_string()))?;
        if record.replaced_by == DriveId(0) {
            record.replaced_by = new;
        }
        tx.set(key::drive(old), &record);
        let components = inodes::counts(tx, old)?.components;
        Ok((OperationResult { number: components, ..OperationResult::DONE }, (record, components)))
    };
    let replaced = |core: &Core, (record, _): &(DriveRecord, u64)| set_record(core, record);
    let stored = core.once_then(operation, replace, replaced).await;
    procedure::release_holds(core, [old]);
    let components = match stored? {
        Once::Now((_, components)) | Once::Before(OperationResult { number: components, .. }) => components,
    };
    tracing::info!(old = %request.old, new = %request.new, components, "a drive was replaced");
    core.wake.notify_waiters();
    Ok(components)
}

/// The drive to replace, and the one that replaces it.
fn replaceable(core: &Core, request: &ReplaceDrive) -> Result<(DriveId, DriveId), Refusal> {
    let (old, new, lasts) = {
        let table = core.drives();
        let known =
            |name: &str| table.find(name).map(|drive| drive.record.drive).ok_or_else(|| no_drive(name));
        let old = known(&request.old)?;
        let new = known(&request.new)?;
        (old, new, [old, new].map(|drive| table.successor(drive)))
    };
    if old == new {
        return Err(Refusal::new(Reason::DriveInUse, "a drive cannot take its own place"));
    }
    let [last_of_old, last_of_new] = lasts;
    can_be_replaced(core, (old, last_of_old), (new, last_of_new))?;
    let now_ms = core.now_ms();
    if last_of_old == old && core.drives().state(new, now_ms) == DriveState::Away {
        return Err(Refusal::new(Reason::NoDrive, format!("{} is away: start it", request.new)));
    }
    Ok((old, new))
}

/// Refuses if one of the two was replaced, each given with the drive that has its place. The same replacement
/// may be asked for again.
fn can_be_replaced(core: &Core, old: (DriveId, DriveId), new: (DriveId, DriveId)) -> Result<(), Refusal> {
    let table = core.drives();
    let old_name = table.name(old.0);
    let old_last = table.name(old.1);
    let new_name = table.name(new.0);
    let new_last = table.name(new.1);
    if old.0 != old.1 && old.1 != new.0 {
        let detail = format!(
            "{old_name} was replaced by {old_last} already, which makes its columns anew; if {old_last} is lost \
             too: `braid drive replace {old_last} NEW`"
        );
        return Err(Refusal::new(Reason::NoDrive, detail));
    }
    if new.0 != new.1 {
        let detail = format!("{new_name} was replaced by {new_last} itself: name another drive");
        return Err(Refusal::new(Reason::NoDrive, detail));
    }
    Ok(())
}

/// The drive that has the place of `drive` in the state: `drive` itself, or the last in its chain of
/// replacements.
fn last_in_place(tx: &Tx, drive: DriveId) -> Result<DriveId, Refusal> {
    let mut at = drive;
    // A replaced drive is replaced by no other and takes no place, so there is no circle.
    while let Some(DriveRecord { replaced_by, .. }) = tx.record(&key::drive(at))?
        && replaced_by != DriveId(0)
    {
        at = replaced_by;
    }
    Ok(at)
}
