//! Partitions of volumes on drives.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::VolumeId;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::columns::fence::make_partition;
use crate::core::Core;

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
