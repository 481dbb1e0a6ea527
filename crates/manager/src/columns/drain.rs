//! Drives that leave the cluster: drained of their columns, then removed. The columns move in the background
//! ([`moves`](crate::columns::moves)).

use std::sync::Arc;

use braid_layout::{DriveId, TokenId};
use braid_meta::records::inodes;
use braid_meta::records::schema::{DriveRecord, TokenRecord, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::rules::drives::no_drive;
use braid_meta::tree::tokens;
use braid_wire::control::{DrainDrive, DrainDriveReply, DriveState, PAUSE_MS_MAX, PauseDrive, RemoveDrive};
use braid_wire::{Reason, Refusal};

use crate::columns::needs::{LOOK_MAX, Needs};
use crate::core::Core;

/// Begins to drain a drive, or ends the drain: then columns that have moved stay moved, and moves under way
/// end. Refused, with the numbers, if the other drives have too little room, or if some column may go to none
/// of them.
pub(crate) async fn drain(core: &Arc<Core>, asked: DrainDrive) -> Result<DrainDriveReply, Refusal> {
    let drive = find(core, &asked.drive)?;
    let drains = asked.drain;
    // A repeated request is answered with the progress; it is not refused for what holds the drain up now.
    let is_drained = core.drives().drive(drive).is_some_and(|known| known.draining);
    if drains && !is_drained {
        core.read_within(LOOK_MAX, move |core, tx| {
            let needs = Needs::of(core, tx, drive)?;
            needs.must_fit(core)?;
            needs.must_move(core, tx)
        })
        .await?;
    }
    let set = move |core: &Core, tx: &mut Tx| {
        let needs = Needs::of(core, tx, drive)?;
        let was = tx.get(&key::drain(drive))?.is_some();
        if drains {
            tx.mark(key::drain(drive));
        } else {
            tx.delete(key::drain(drive));
        }
        let components = needs.components;
        let bytes = needs.bytes;
        let room_bytes = needs.room_bytes;
        Ok(DrainDriveReply { was, components, bytes, room_bytes })
    };
    let reply = core.write_then(set, move |core, _| core.drives().set_draining(drive, drains)).await?;
    core.wake.notify_waiters();
    Ok(reply)
}

/// Pauses a drive for a time, or ends its pause. While it is paused its silence does not make it a lost one.
pub(crate) async fn pause(core: &Arc<Core>, asked: PauseDrive) -> Result<(), Refusal> {
    let drive = find(core, &asked.drive)?;
    if asked.for_ms > PAUSE_MS_MAX {
        let detail = format!("a drive is paused for at most {} h", PAUSE_MS_MAX / 3_600_000);
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    let until_ms = if asked.for_ms == 0 { 0 } else { core.now_ms().saturating_add(asked.for_ms) };
    let set = move |_: &Core, tx: &mut Tx| {
        if until_ms == 0 {
            tx.delete(key::pause(drive));
        } else {
            tx.set(key::pause(drive), &until_ms);
        }
        Ok(())
    };
    core.write_then(set, move |core, ()| core.drives().set_paused(drive, until_ms)).await?;
    tracing::info!(name = %asked.drive, for_ms = asked.for_ms, "a drive was paused, or its pause ended");
    core.wake.notify_waiters();
    Ok(())
}

/// Takes a drive out of the cluster: its record and all of its rows are deleted, and the token that it alone
/// has joined with ends. The drive cannot come back under its identity.
pub(crate) async fn remove(core: &Arc<Core>, asked: RemoveDrive) -> Result<(), Refusal> {
    let drive = find(core, &asked.drive)?;
    let (state, draining) = {
        let now_ms = core.now_ms();
        let table = core.drives();
        (table.state(drive, now_ms), table.drive(drive).is_some_and(|known| known.draining))
    };
    let name = asked.drive;
    if state == DriveState::Up && !draining {
        let detail =
            format!("{name} is up, and new files may be placed on it: drain it first (braid drive drain)");
        return Err(Refusal::new(Reason::DriveInUse, detail));
    }
    let remove = move |core: &Core, tx: &mut Tx| {
        must_be_empty(tx, drive, &name)?;
        // Components on the drive's removal list need not be freed any more.
        let (from, to) = key::of_drive(table::REMOVE, drive);
        for (row, _) in tx.scan(&from, &to, usize::MAX)? {
            inodes::removed(tx, &row)?;
        }
        for of in [table::LEFT, table::PARTITION, table::PARTITION_QUOTA, table::PARTITION_REMOVAL] {
            let (from, to) = key::of_drive(of, drive);
            tx.scan(&from, &to, usize::MAX)?.into_iter().for_each(|(row, _)| tx.delete(row));
        }
        let rows =
            [key::drain, key::pause, key::drive_count, key::receipt, key::parts, key::drive_key, key::drive];
        rows.into_iter().for_each(|row| tx.delete(row(drive)));
        tokens::drive_left(tx, drive, core.now_ms())
    };
    let removed = move |core: &Core, ended: &Vec<(TokenId, TokenRecord)>| {
        core.drives().remove(drive);
        ended.iter().for_each(|(token, record)| core.tokens().put(*token, record.clone()));
    };
    core.write_then(remove, removed).await?;
    tracing::info!(%drive, "a drive was taken out of the cluster");
    Ok(())
}

fn must_be_empty(tx: &Tx, drive: DriveId, name: &str) -> Result<(), Refusal> {
    let refuse = |detail| Err(Refusal::new(Reason::DriveInUse, detail));
    let components = inodes::counts(tx, drive)?.components;
    if components > 0 {
        let detail = match tx.get(&key::drain(drive))? {
            Some(_) => format!(
                "{name} has {components} components, which are on their way to other drives: wait until it is empty \
                 (braid drive drain {name} --wait)"
            ),
            None => {
                format!(
                    "{name} has {components} components: drain it first (braid drive drain {name} --wait)"
                )
            }
        };
        return refuse(detail);
    }
    for (_, old) in tx.records::<DriveRecord>(&key::all(table::DRIVE), usize::MAX)? {
        if old.replaced_by == drive {
            return refuse(format!("{name} cannot be removed, as it took the place of {}", old.name));
        }
    }
    Ok(())
}

fn find(core: &Core, name: &str) -> Result<DriveId, Refusal> {
    let table = core.drives();
    let known = table.find(name).ok_or_else(|| no_drive(name))?;
    if known.record.replaced_by != DriveId(0) {
        let successor = table.name(table.successor(known.record.drive));
        return Err(Refusal::new(Reason::NoDrive, format!("{name} was replaced by {successor}")));
    }
    Ok(known.record.drive)
}
