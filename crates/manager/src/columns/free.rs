//! Freeing of the components that drives still hold of files that were removed, and of columns that have
//! moved to other drives: lists in the state, and walks over them.

use std::sync::Arc;

use braid_layout::{DriveId, FileId, Generation, ObjectId, PartitionId, VolumeId};
use braid_meta::records::inodes;
use braid_meta::records::schema::{LeftRecord, RemoveRecord, key, table};
use braid_meta::rules::grants::{self, CAPABILITY_MS};
use braid_wire::control::Grant;
use braid_wire::data::{Address, DriveReply, DriveRequest, Remove};
use braid_wire::{Addresses, Reason, Refusal};

use crate::core::Core;
use crate::drive_calls::CallError;

/// Maximum number of components freed on one drive between two transactions.
const ROWS_PER_ROUND: usize = 1024;
/// Number of removals sent together. The drive's store gathers them in few commits.
const TOGETHER: usize = 64;

/// An object that a drive is to remove, and the row that lists it.
#[derive(Clone)]
struct Freeing {
    row: Vec<u8>,
    of: (VolumeId, FileId, ObjectId),
    g: Generation,
}

/// Frees the components on one drive: one walk over its list, some rows at a time.
pub(crate) async fn free_components(core: &Arc<Core>, drive: DriveId) -> Result<(), CallError> {
    let (mut from, to) = key::of_drive(table::REMOVE, drive);
    loop {
        let range = (from.clone(), to.clone());
        let rows = core
            .read(move |_, tx| Ok(tx.records::<RemoveRecord>(&range, ROWS_PER_ROUND)?))
            .await
            .map_err(CallError::Refused)?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        from.clone_from(last);
        // The smallest key after the last.
        from.push(0);
        let more = rows.len() == ROWS_PER_ROUND;
        let freeing = rows.into_iter().map(|(row, RemoveRecord { volume, g })| {
            let of = (volume, FileId(key::number(&row, 17)), ObjectId(key::number(&row, 25)));
            Freeing { row, of, g }
        });
        let (freed, failed) = free_all(core, drive, freeing).await;
        if !freed.is_empty() {
            let stored = core
                .write(move |_, tx| Ok(freed.iter().try_for_each(|done| inodes::removed(tx, &done.row))?));
            stored.await.map_err(CallError::Refused)?;
        }
        failed.map_or(Ok(()), Err)?;
        if !more {
            return Ok(());
        }
    }
}

/// Has a drive remove objects, many at a time. Returns those that are gone, and an error if any is not.
async fn free_all(
    core: &Core,
    drive: DriveId,
    all: impl Iterator<Item = Freeing>,
) -> (Vec<Freeing>, Option<CallError>) {
    let mut freed = Vec::new();
    let mut failed = None;
    let mut left = all.peekable();
    while failed.is_none() && left.peek().is_some() {
        let some: Vec<Freeing> = left.by_ref().take(TOGETHER).collect();
        for (freeing, outcome) in some.iter().zip(free_some(core, drive, &some).await) {
            match outcome {
                Ok(()) => freed.push(freeing.clone()),
                Err(error) => failed = Some(error),
            }
        }
    }
    (freed, failed)
}

/// Has a drive remove a few objects, with requests that are sent together.
async fn free_some(core: &Core, drive: DriveId, some: &[Freeing]) -> Vec<Result<(), CallError>> {
    let mut requests = Vec::with_capacity(some.len());
    let mut addresses = Addresses::default();
    for freeing in some {
        let Some((to, grant, request)) =
            removal(core, drive, freeing.of.0, freeing.of.1, freeing.of.2, freeing.g)
        else {
            return vec![Ok(()); some.len()];
        };
        addresses = to;
        requests.push((grant, request));
    }
    let outcomes = core.drive_calls.call_all(drive, &addresses, &requests).await;
    outcomes.into_iter().map(as_removed).collect()
}

/// Frees what a drive holds of columns that have moved to others.
pub(crate) async fn free_left(core: &Arc<Core>, drive: DriveId) -> Result<(), CallError> {
    loop {
        let range = key::of_drive(table::LEFT, drive);
        let rows = core
            .read(move |_, tx| Ok(tx.records::<LeftRecord>(&range, ROWS_PER_ROUND)?))
            .await
            .map_err(CallError::Refused)?;
        if rows.is_empty() {
            return Ok(());
        }
        let freeing = rows.into_iter().map(|(row, left)| {
            let of = (left.volume, key::place_of(&row).file, left.object);
            Freeing { row, of, g: left.g }
        });
        let (freed, failed) = free_all(core, drive, freeing).await;
        let stored = core.write(move |_, tx| {
            for Freeing { row, of: (volume, _, object), g } in freed {
                // The row may be of another column by now, which has come and gone since and is to be freed
                // too.
                if tx.record(&row)? == Some(LeftRecord { volume, object, g }) {
                    tx.delete(row);
                }
            }
            Ok(())
        });
        stored.await.map_err(CallError::Refused)?;
        failed.map_or(Ok(()), Err)?;
    }
}

/// Has a drive remove an object. One that does not exist counts as removed.
pub(crate) async fn free_object(
    core: &Core,
    drive: DriveId,
    volume: VolumeId,
    file: FileId,
    object: ObjectId,
    g: Generation,
) -> Result<(), CallError> {
    let Some((addresses, grant, request)) = removal(core, drive, volume, file, object, g) else {
        return Ok(());
    };
    as_removed(core.drive_calls.call(drive, &addresses, &grant, &request).await)
}

/// Address, grant and request with which a drive is told to remove an object; `None` if there is no such
/// drive.
fn removal(
    core: &Core,
    drive: DriveId,
    volume: VolumeId,
    file: FileId,
    object: ObjectId,
    g: Generation,
) -> Option<(Addresses, Grant, DriveRequest)> {
    let partition = PartitionId::from(volume);
    let (addresses, grant) = {
        let now_ms = core.now_ms();
        let table = core.drives();
        let known = table.drive(drive)?;
        let state = (g, Default::default(), Default::default());
        let expires_ms = now_ms + CAPABILITY_MS;
        let grant = grants::for_object(
            &known.record.master,
            drive,
            partition,
            object,
            file,
            state,
            [0; 16],
            expires_ms,
        );
        (known.record.addresses.clone(), grant)
    };
    let request = Remove { at: Address { partition, object }, term: core.term() };
    Some((addresses, grant, request.into()))
}

fn as_removed(outcome: Result<DriveReply, CallError>) -> Result<(), CallError> {
    match outcome {
        Ok(_) => Ok(()),
        Err(CallError::Refused(refusal)) if is_absent(&refusal) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns true if the refusal says that the object does not exist, which counts as removed.
pub(crate) fn is_absent(refusal: &Refusal) -> bool {
    matches!(refusal.reason, Reason::NoObject | Reason::NoPartition)
}

/// Deletes a replaced drive's removal list: nothing on it needs to be freed any more.
pub(crate) async fn forget_replaced(core: &Arc<Core>, drive: DriveId) -> Result<(), Refusal> {
    loop {
        let rows = core
            .read(move |_, tx| {
                let (from, to) = key::of_drive(table::REMOVE, drive);
                Ok(tx.scan(&from, &to, ROWS_PER_ROUND)?)
            })
            .await?;
        if rows.is_empty() {
            return forget_left(core, drive).await;
        }
        core.write(move |_, tx| Ok(rows.iter().try_for_each(|(row, _)| inodes::removed(tx, row))?)).await?;
    }
}

/// Deletes a replaced drive's list of columns that have moved to others.
async fn forget_left(core: &Arc<Core>, drive: DriveId) -> Result<(), Refusal> {
    let rows = core
        .read(move |_, tx| {
            let (from, to) = key::of_drive(table::LEFT, drive);
            Ok(tx.scan(&from, &to, ROWS_PER_ROUND)?)
        })
        .await?;
    if rows.is_empty() {
        return Ok(());
    }
    core.write(move |_, tx| {
        rows.into_iter().for_each(|(row, _)| tx.delete(row));
        Ok(())
    })
    .await
}
