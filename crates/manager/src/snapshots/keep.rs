//! Schedules of snapshots: requests, and the job that makes and removes what is due.

use std::sync::Arc;

use braid_layout::FileId;
use braid_meta::records::schema::ScheduleRecord;
use braid_meta::rules::operations::Operation;
use braid_meta::rules::schedules::{Due, due};
use braid_meta::tree::schedules;
use braid_wire::control::{SnapshotKeep, SnapshotSchedules, SnapshotSchedulesReply};
use braid_wire::{Reason, Refusal};

use crate::core::Core;
use crate::jobs::{Again, Job};
use crate::sessions::names::in_one;
use crate::snapshots::make;

/// Sets or ends a schedule. The job makes its first snapshot at once.
pub(crate) async fn set(core: &Arc<Core>, operation: Operation, asked: SnapshotKeep) -> Result<(), Refusal> {
    in_one(core, operation, move |_, tx| schedules::set(tx, &asked.at, asked.keep)).await?;
    core.wake.notify_waiters();
    Ok(())
}

/// The schedules of a volume, or of all.
pub(crate) async fn list(
    core: &Arc<Core>,
    asked: SnapshotSchedules,
) -> Result<SnapshotSchedulesReply, Refusal> {
    let schedules = core.read(move |_, tx| schedules::rows(tx, &asked.volume)).await?;
    Ok(SnapshotSchedulesReply { schedules })
}

/// Makes the snapshots that schedules want, and removes those that they keep no more.
#[derive(Default)]
pub(crate) struct Schedules;

impl Job for Schedules {
    const NAME: &'static str = "snapshot schedules";
    const ABOUT: &'static str = "Makes snapshots by the schedules of directories, and removes those that these \
                                 do not keep.";

    async fn round(&mut self, core: &Arc<Core>) -> Result<Again, Refusal> {
        for (directory, record) in core.read(|_, tx| schedules::all(tx)).await? {
            let ScheduleRecord { keep, next_ms, .. } = record;
            match due(keep, next_ms, core.now_ms()) {
                Due::Wait { next_ms: next } if next == next_ms => {}
                Due::Wait { next_ms } => {
                    core.write(move |_, tx| schedules::wait(tx, directory, next_ms, "")).await?;
                }
                Due::Make { name, next_ms } => {
                    if let Err(refusal) = make_one(core, directory, name, next_ms).await {
                        Schedules::failed_in_part(core, &refusal.detail);
                        let why = refusal.detail;
                        core.write(move |_, tx| schedules::wait(tx, directory, next_ms, &why)).await?;
                    }
                }
            }
        }
        Ok(Again::Woken)
    }
}

async fn make_one(core: &Arc<Core>, directory: FileId, name: String, next_ms: u64) -> Result<(), Refusal> {
    if core.write(move |_, tx| schedules::drop_gone(tx, directory)).await? {
        return Ok(());
    }
    let made = match make::scheduled(core, directory, name, next_ms).await {
        // One of this hour is there.
        Err(refusal) if refusal.reason == Reason::Exists => {
            core.write(move |_, tx| schedules::wait(tx, directory, next_ms, "")).await
        }
        made => made,
    };
    // Even if none was made: a volume that has as many as it may gets room by this.
    let removed = core.write(move |_, tx| schedules::remove_unkept(tx, directory)).await?;
    if !removed.is_empty() {
        tracing::info!(%directory, names = removed.join(" "), "snapshots were removed by a schedule");
        core.wake.notify_waiters();
    }
    made
}
