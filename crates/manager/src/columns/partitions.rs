//! Partitions of volumes on drives, and the quotas that drives have for them.
//!
//! A volume's quota holds by what its writers are given. The quota of a partition is there for clients and
//! managers that err: it is far above what a drive can hold of the volume.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::{DriveId, VolumeId};
use braid_meta::records::schema::{VolumeRecord, key, table};
use braid_meta::rules::grants::KEY_EPOCH_FIRST;
use braid_meta::tree::volumes;
use braid_wire::data::{Expect, PartitionSet};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::columns::fence::{drive_call, make_partition};
use crate::core::Core;
use crate::drive_calls::CallError;

/// Maximum time that creating a volume waits for its partitions; the rest are made later.
const PARTITIONS_WAIT: Duration = Duration::from_secs(5);

/// Makes a new volume's partitions on the drives that are up and answer soon.
pub(crate) async fn make_partitions_of(core: &Arc<Core>, volume: VolumeId) {
    let mut calls = JoinSet::new();
    for drive in core.drives().up(core.now_ms()) {
        let core = Arc::clone(core);
        calls.spawn(async move { make_partition(&core, drive, volume).await });
    }
    let all = async { while calls.join_next().await.is_some() {} };
    if timeout(PARTITIONS_WAIT, all).await.is_err() {
        tracing::info!(%volume, "some drives do not have the volume's partition yet");
    }
}

/// Bytes of log that a drive may hold of a volume: a column of each file has no more bytes than the file, and
/// a unit may be there twice until the log is cleaned. 0: no bound.
fn partition_quota(volume: &VolumeRecord) -> u64 {
    const SLACK: u64 = 64 << 20;
    match volume.quota_bytes {
        0 => 0,
        // What is there already stays, and is healed and moved.
        bytes if volume.file_bytes > bytes => 0,
        bytes => bytes.saturating_mul(2).saturating_add(SLACK),
    }
}

/// Tells a drive the quotas of its partitions: those that have changed, or all, if it has started anew and
/// may have an older state.
pub(crate) async fn tell_quotas(core: &Arc<Core>, drive: DriveId, all: bool) -> Result<(), CallError> {
    let due = core
        .read(move |_, tx| {
            let mut due = Vec::new();
            for volume in volumes::all(tx)? {
                let told = tx.record(&key::partition(table::PARTITION_QUOTA, drive, volume.volume))?;
                let told: u64 = told.unwrap_or(0);
                let wanted = partition_quota(&volume);
                let is_there = tx.get(&key::partition(table::PARTITION, drive, volume.volume))?.is_some();
                if is_there && (told != wanted || all) {
                    due.push((volume.volume, wanted));
                }
            }
            Ok(due)
        })
        .await
        .map_err(CallError::Refused)?;
    for (volume, quota_bytes) in due {
        let partition = volume.into();
        let term = core.term();
        let expect = Expect::Present;
        let request = PartitionSet { partition, expect, quota_bytes, key_epoch: KEY_EPOCH_FIRST, term };
        drive_call(core, drive, &request.into()).await?;
        let told = core.write(move |_, tx| {
            let row = key::partition(table::PARTITION_QUOTA, drive, volume);
            match quota_bytes {
                0 => tx.delete(row),
                _ => tx.set(row, &quota_bytes),
            }
            Ok(())
        });
        told.await.map_err(CallError::Refused)?;
    }
    Ok(())
}
