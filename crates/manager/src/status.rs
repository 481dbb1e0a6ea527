//! The cluster as `braid status` shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_layout::DriveId;
use braid_transport::host;
use braid_wire::Refusal;
use braid_wire::control::{DriveRow, StatusReply};

use crate::core::Core;
use crate::drives::Drive;
use crate::inodes;
use crate::schema::{DriveCount, MoveRecord, key, table};
use crate::view::drive_row;
use crate::volumes;

/// The cluster's status.
pub async fn status(core: &Arc<Core>) -> Result<StatusReply, Refusal> {
    core.read(|core, tx| {
        let volumes = volumes::all(tx)?;
        // Read the disk before locking the table of drives, so that heartbeats need not wait for it.
        let known: Vec<DriveId> = core.drives().iter().map(|drive| drive.record.drive).collect();
        let count = |drive| Ok((drive, inodes::counts(tx, drive)?));
        let mut counts: BTreeMap<DriveId, DriveCount> =
            known.into_iter().map(count).collect::<Result<_, Refusal>>()?;
        // A successor that is being made puts nothing at risk.
        for (_, of) in tx.records::<MoveRecord>(&key::all(table::MOVE), usize::MAX)? {
            if let Some(count) = counts.get_mut(&of.drive) {
                count.stale = count.stale.saturating_sub(1);
            }
        }
        let (removing, notice) = (tx.number("removing")?, core.leadership().notice());
        let (now_ms, table) = (core.now_ms(), core.drives());
        let row = |drive: &Drive| Some(drive_row(counts.get(&drive.record.drive)?, &table, drive, now_ms));
        let mut drives: Vec<DriveRow> = table.iter().filter_map(row).collect();
        drives.sort_by_key(|row: &DriveRow| natural(&row.name));
        Ok(StatusReply {
            cluster: core.cluster.cluster,
            volumes: u64::try_from(volumes.len()).unwrap_or(u64::MAX),
            files: volumes.iter().map(|volume| volume.files).sum(),
            removing,
            drives,
            pid: host::process_id(),
            uptime_ms: core.uptime_ms(),
            directory: core.directory.clone(),
            notice,
        })
    })
    .await
}

/// A sort key in natural order: `drive-2` before `drive-10`.
fn natural(name: &str) -> (String, u64, String) {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (head, tail) = name.split_at(name.len() - digits);
    (head.to_owned(), tail.parse().unwrap_or(0), name.to_owned())
}
