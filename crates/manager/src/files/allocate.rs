//! Room that drives keep free for bytes of a file that are not written yet.
//!
//! All columns have the room before it is on record, so what is on record holds. A manager that ends between
//! leaves columns with more than is on record, until the client asks again or the columns are fenced: a fence
//! sets what they keep.

use std::sync::Arc;

use braid_layout::{Column, DriveId, FileId};
use braid_meta::records::schema::InodeRecord;
use braid_meta::tree::files::{FILE_BYTES_MAX, lease_lost, leased, set_allocated};
use braid_meta::tree::room;
use braid_wire::control::{Allocate, AllocateAct};
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;

use crate::columns::fence::Target;
use crate::columns::procedure::{self, Cause, RecordedLease};
use crate::core::Core;
use crate::drive_calls::CallError;
use crate::files::opened::renew_lease;
use crate::files::reach::or_wait;
use crate::files::sharing;

/// Has the drives keep room free for a range, or give it back.
pub(crate) async fn answer(core: &Arc<Core>, asked: Allocate) -> Result<(), Refusal> {
    let Allocate { file, lease, holder, act, from, to } = asked;
    if from > to || to > FILE_BYTES_MAX {
        let detail = format!("bytes {from} to {to}: a file has at most 2^63 - 1 bytes");
        return Err(Refusal::new(Reason::Range, detail));
    }
    let _turn = core.lock_file(file).await?;
    let inode = core
        .read(move |core, tx| {
            sharing::must_hold(core, tx, file, lease, holder)?;
            leased(tx, file, lease)
        })
        .await?;
    let before = inode.allocated;
    let allocated = match act {
        AllocateAct::Keep => before.max(to),
        AllocateAct::GiveBack if to >= before => before.min(from),
        AllocateAct::GiveBack => before,
    };
    // A repeat of what is on record is carried out too: a column may be new since, or lack the room.
    if act == AllocateAct::GiveBack && allocated == before {
        return Ok(());
    }
    let after = InodeRecord { allocated, ..inode.clone() };
    if allocated < before {
        core.write(move |_, tx| set_allocated(tx, file, lease, allocated)).await?;
        give_back(core, file, &after).await;
        return Ok(());
    }
    let would_be = after.clone();
    let had = inode.clone();
    // Before any drive is asked: a quota may have no room.
    let room = core.read(move |_, tx| room::refuse_above(tx, Some(&had), Some(&would_be))).await;
    or_wait(core, file, holder, to, room).await?;
    let mut after = after;
    let mut failures = keep_free(core, file, &after).await;
    if !failures.is_empty() && failures.iter().all(|(_, error)| matches!(error, CallError::Unreachable(_))) {
        // Columns on drives that are gone go out, as for a write. They are fenced when they are back, and
        // a fence sets what they keep.
        let cause = Cause { lease: RecordedLease::Live, ..Cause::nothing() };
        let fenced = procedure::run(core, file, cause).await?.ok_or_else(|| lease_lost(file, lease))?;
        renew_lease(core, file, lease, holder)?;
        after = InodeRecord { allocated, ..fenced };
        failures = keep_free(core, file, &after).await;
    }
    let kept = match failures.into_iter().next() {
        None => core.write(move |_, tx| set_allocated(tx, file, lease, allocated)).await,
        Some((drive, error)) => Err(no_room(core, drive, &after, error)),
    };
    if kept.as_ref().is_err_and(|refusal| !refusal.reason.leaves_unknown()) {
        give_back(core, file, &inode).await;
    }
    or_wait(core, file, holder, to, kept).await
}

/// Tells the drives of a file that less is kept free. One that does not hear it keeps more until the file's
/// next fence.
pub(crate) async fn give_back(core: &Arc<Core>, file: FileId, inode: &InodeRecord) {
    for (drive, error) in keep_free(core, file, inode).await {
        let name = core.drives().name(drive);
        tracing::info!(%file, %name, %error, "a drive goes on keeping room free until it is fenced");
    }
}

/// Has all columns keep free what the record says. Returns the drives that do not.
async fn keep_free(core: &Arc<Core>, file: FileId, inode: &InodeRecord) -> Vec<(DriveId, CallError)> {
    let mut calls = JoinSet::new();
    let mut failures = Vec::new();
    for segment in &inode.segments {
        let columns: Vec<Column> = segment.set.iter().collect();
        for column in columns {
            let drive = segment.drive(column);
            let Some(target) = Target::new(core, file, inode, segment.number, column) else {
                failures
                    .push((drive, CallError::Unreachable("the manager does not know its drive".to_owned())));
                continue;
            };
            let core = Arc::clone(core);
            calls.spawn(async move { (drive, target.keep_free(&core).await) });
        }
    }
    while let Some(done) = calls.join_next().await {
        match done {
            Ok((drive, Err(error))) => failures.push((drive, error)),
            Ok((_, Ok(()))) => {}
            Err(error) => {
                tracing::error!(%error, "keeping room free failed within the manager");
                failures.push((
                    DriveId(0),
                    CallError::Unreachable("the request failed within the manager".into()),
                ));
            }
        }
    }
    failures
}

/// The refusal for a drive that does not keep the room.
fn no_room(core: &Core, drive: DriveId, inode: &InodeRecord, error: CallError) -> Refusal {
    let name = core.drives().name(drive);
    let reason = match &error {
        CallError::Refused(refusal) if matches!(refusal.reason, Reason::Full | Reason::Quota) => Reason::Full,
        CallError::Refused(refusal) if refusal.reason == Reason::Malformed => Reason::Full,
        _ => Reason::NotServing,
    };
    let bytes = inode.segments.iter().map(|segment| inode.kept_free(segment)).max().unwrap_or(0);
    let detail = format!("drive {name} cannot keep {bytes} bytes free for the file: {error}");
    Refusal::new(reason, detail)
}
