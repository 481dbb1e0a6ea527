//! Snapshots by name: listed, removed; and the job that frees what was kept for removed ones, and finishes
//! freezes that were broken off.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::FileId;
use braid_meta::records::schema::{key, table};
use braid_meta::rules::operations::Operation;
use braid_meta::tree::snapshots;
use braid_wire::Refusal;
use braid_wire::control::{SnapshotRemove, Snapshots as Asked, SnapshotsReply};

use crate::core::Core;
use crate::jobs::{Again, Job, NotBefore};
use crate::sessions::names::in_one;
use crate::snapshots::freeze;

/// Number of past rows that are looked at in one transaction.
const ROWS: usize = 256;
/// Maximum number of snapshots in one reply.
const PAGE: usize = 200;
/// Maximum number of freezes that one round finishes.
const FREEZES: usize = 64;
/// Pause before a freeze that failed is tried again.
const FREEZE_AGAIN: Duration = Duration::from_secs(2);

/// Removes a snapshot. The job frees what was kept for it.
pub(crate) async fn remove(
    core: &Arc<Core>,
    operation: Operation,
    remove: SnapshotRemove,
) -> Result<(), Refusal> {
    in_one(core, operation, move |_, tx| snapshots::remove(tx, &remove.at, &remove.name)).await
}

/// The snapshots of a directory or volume, page by page.
pub(crate) async fn list(core: &Arc<Core>, asked: Asked) -> Result<SnapshotsReply, Refusal> {
    let (snapshots, more) = core.read(move |_, tx| snapshots::rows(tx, &asked.at, asked.after, PAGE)).await?;
    Ok(SnapshotsReply { snapshots, more })
}

/// Frees what was kept for removed snapshots, and finishes freezes.
#[derive(Default)]
pub(crate) struct Snapshots {
    not_before: NotBefore<FileId>,
}

impl Job for Snapshots {
    const NAME: &'static str = "snapshots";
    const ABOUT: &'static str =
        "Keeps the bytes of files that were open when a snapshot was made, and frees what removed ones kept.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        self.not_before.forget();
        for file in begun(core).await? {
            // Whoever holds the lock finishes it.
            if !self.not_before.waits(&file)
                && let Some(_turn) = core.try_lock_file(file)
                && let Err(refusal) = freeze::finish(core, file).await
            {
                self.not_before.set(file, FREEZE_AGAIN);
                Snapshots::failed_in_part(core, &format!("file {file}: {}", refusal.detail));
            }
        }
        let Some((volume, number)) = core.read(|_, tx| snapshots::going(tx)).await? else {
            return Ok(Again::Woken);
        };
        if core.write(move |_, tx| snapshots::free_some(tx, volume, number, ROWS)).await? {
            tracing::info!(%volume, number, "a removed snapshot keeps nothing any more");
        }
        core.wake.notify_waiters();
        Ok(Again::Now)
    }
}

/// Files whose freeze was begun, without repetition.
async fn begun(core: &Arc<Core>) -> Result<Vec<FileId>, Refusal> {
    core.read(|_, tx| {
        let rows = tx.records::<FileId>(&key::all(table::FREEZING), FREEZES)?;
        let files: BTreeMap<FileId, ()> = rows.into_iter().map(|(_, file)| (file, ())).collect();
        Ok(files.into_keys().collect())
    })
    .await
}
