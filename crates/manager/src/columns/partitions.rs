//! Partitions of volumes on drives: their quotas there, and the epochs of their working keys.
//!
//! A capability is made with the epoch that its drive has confirmed. When a volume's keys are turned, each
//! drive is told; it goes on accepting the epoch before, and the record follows its answer. So no capability
//! is refused on the way.
//!
//! A volume's quota holds by what its writers are given. The quota of a partition is there for clients and
//! managers that err: it is far above what a drive can hold of the volume.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::{DriveId, VolumeId};
use braid_meta::records::past;
use braid_meta::records::schema::{HistoryRecord, PartitionRecord, VolumeRecord, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::tree::{keys, volumes};
use braid_wire::data::{Expect, PartitionSet};
use braid_wire::{Reason, Refusal};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::columns::calls::drive_call;
use crate::columns::listing;
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
/// a unit may be there twice until the log is cleaned. 0: no bound. What only snapshots show counts in no
/// quota, and a drive cannot tell it from the rest: so there is no bound while there is any.
fn partition_quota(volume: &VolumeRecord, history: Option<&HistoryRecord>) -> u64 {
    const SLACK: u64 = 64 << 20;
    match volume.quota_bytes {
        0 => 0,
        _ if history.is_some_and(|history| history.snapshots > 0 || history.past_files > 0) => 0,
        // What is there already stays, and is healed and moved.
        bytes if volume.file_bytes > bytes => 0,
        bytes => bytes.saturating_mul(2).saturating_add(SLACK),
    }
}

/// The values that a partition is to have at a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    volume: VolumeId,
    quota_bytes: u64,
    key_epoch: u32,
}

impl Wanted {
    /// The values for a volume's partitions; `None`: there is no such volume.
    fn of(tx: &Tx, volume: VolumeId) -> Result<Option<Wanted>, Refusal> {
        let Some(record) = tx.record::<VolumeRecord>(&key::volume(volume))? else { return Ok(None) };
        let key_epoch = keys::of_volume(tx, volume)?.epoch;
        let history = past::history(tx, volume)?;
        let quota_bytes = partition_quota(&record, history.as_ref());
        Ok(Some(Wanted { volume, quota_bytes, key_epoch }))
    }
}

/// Makes a volume's partition on a drive, and records that it is there.
pub(crate) async fn make_partition(
    core: &Arc<Core>,
    drive: DriveId,
    volume: VolumeId,
) -> Result<(), CallError> {
    let wanted = core.read(move |_, tx| Wanted::of(tx, volume)).await.map_err(CallError::Refused)?;
    let Some(wanted) = wanted else { return Ok(()) };
    let Wanted { quota_bytes, key_epoch, .. } = wanted;
    let partition = volume.into();
    let term = core.term();
    let request = PartitionSet { partition, expect: Expect::Absent, quota_bytes, key_epoch, term };
    match drive_call(core, drive, &request.into()).await {
        Ok(_) => record(core, drive, wanted).await,
        // A partition that exists already is as good, but its values may be older.
        Err(CallError::Refused(refusal)) if refusal.reason == Reason::Exists => {
            tell(core, drive, wanted).await
        }
        Err(error) => Err(error),
    }
}

/// Tells a drive the quotas and key epochs of its partitions that have changed.
pub(crate) async fn tell_partitions(core: &Arc<Core>, drive: DriveId) -> Result<(), CallError> {
    let due = core
        .read(move |_, tx| {
            let mut due = Vec::new();
            for volume in volumes::all(tx)? {
                let there = key::partition(table::PARTITION, drive, volume.volume);
                let Some(there) = tx.record::<PartitionRecord>(&there)? else { continue };
                let told = tx.record(&key::partition(table::PARTITION_QUOTA, drive, volume.volume))?;
                let Some(wanted) = Wanted::of(tx, volume.volume)? else { continue };
                if told.unwrap_or(0) != wanted.quota_bytes || there.key_epoch != wanted.key_epoch {
                    due.push(wanted);
                }
            }
            Ok(due)
        })
        .await
        .map_err(CallError::Refused)?;
    for wanted in due {
        tell(core, drive, wanted).await?;
    }
    Ok(())
}

/// Sets the values of a partition that is there, and records them.
async fn tell(core: &Arc<Core>, drive: DriveId, wanted: Wanted) -> Result<(), CallError> {
    let Wanted { volume, quota_bytes, key_epoch } = wanted;
    let partition = volume.into();
    let term = core.term();
    let request = PartitionSet { partition, expect: Expect::Present, quota_bytes, key_epoch, term };
    match drive_call(core, drive, &request.into()).await {
        Ok(_) => record(core, drive, wanted).await,
        // The drive's keys were turned after this state was copied: the volume's keys follow, on all drives.
        Err(CallError::Refused(refusal)) if refusal.reason == Reason::StaleKey => {
            let there = listing::partitions(core, drive).await?;
            let there = there.into_iter().find(|there| there.partition == partition);
            let Some(there) = there.filter(|there| there.key_epoch > key_epoch) else {
                return Err(CallError::Refused(refusal));
            };
            let now_ms = core.now_ms();
            let follow = core.write(move |_, tx| keys::follow_drive(tx, volume, there.key_epoch, now_ms));
            follow.await.map_err(CallError::Refused)?;
            core.wake.notify_waiters();
            record(
                core,
                drive,
                Wanted { key_epoch: there.key_epoch, quota_bytes: there.quota_bytes, ..wanted },
            )
            .await
        }
        Err(error) => Err(error),
    }
}

/// Records what a drive has for a partition.
async fn record(core: &Arc<Core>, drive: DriveId, has: Wanted) -> Result<(), CallError> {
    let Wanted { volume, quota_bytes, key_epoch } = has;
    let stored = core.write(move |_, tx| {
        // If the volume was removed meanwhile, its partition must be removed again.
        if tx.get(&key::volume(volume))?.is_none() {
            tx.mark(key::partition(table::PARTITION_REMOVAL, drive, volume));
            return Ok(());
        }
        let there = key::partition(table::PARTITION, drive, volume);
        let before = tx.record::<PartitionRecord>(&there)?.map_or(0, |known| known.key_epoch);
        // Epochs never fall at a drive: of two answers the later one counts, whichever is recorded last.
        tx.set(there, &PartitionRecord { key_epoch: key_epoch.max(before) });
        let row = key::partition(table::PARTITION_QUOTA, drive, volume);
        match quota_bytes {
            0 => tx.delete(row),
            _ => tx.set(row, &quota_bytes),
        }
        Ok(())
    });
    stored.await.map_err(CallError::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_bounds_what_is_live_only() {
        let volume = |quota_bytes, file_bytes| VolumeRecord {
            volume: VolumeId(1),
            name: "v".into(),
            shape: braid_wire::control::ShapeSpec::DEFAULT,
            quota_bytes,
            file_bytes,
            files: 0,
            root: braid_layout::FileId(2),
            created_ms: 0,
        };
        let history =
            |snapshots, past_files| HistoryRecord { newest: 3, snapshots, past_files, past_bytes: 0 };
        let bound = 2000 + (64 << 20);
        for (volume, history, expected) in [
            (volume(0, 500), None, 0),
            (volume(1000, 500), None, bound),
            (volume(1000, 1001), None, 0),
            (volume(1000, 500), Some(history(0, 0)), bound),
            (volume(1000, 500), Some(history(1, 0)), 0),
            (volume(1000, 500), Some(history(0, 1)), 0),
        ] {
            assert_eq!(partition_quota(&volume, history.as_ref()), expected, "{volume:?} {history:?}");
        }
    }
}
