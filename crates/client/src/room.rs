//! How much room a volume has, as `df` shows it.

use braid_wire::control::{DriveState, StatusReply, VolumeRow};

use crate::client::Client;
use crate::error::Result;

/// Bytes and files of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes of data that fit in all.
    pub bytes: u64,
    /// Bytes of data that still fit.
    pub free_bytes: u64,
    /// Files in it.
    pub files: u64,
    /// Whether it is its quota that bounds it.
    pub has_quota: bool,
}

impl Client {
    /// The room of a volume; `None` if there is no such volume.
    pub async fn room(&self, volume: &str) -> Result<Option<Room>> {
        let volumes = self.volumes().await?;
        let Some(volume) = volumes.into_iter().find(|row| row.name == volume) else { return Ok(None) };
        Ok(Some(room(&volume, &self.status().await?)))
    }
}

/// What drives have, less what redundancy takes of it in files of the volume's own shape; and no more than
/// the quota.
fn room(volume: &VolumeRow, status: &StatusReply) -> Room {
    let (k, m) = volume.shape.shape().map_or((1, 0), |shape| (shape.k(), shape.m()));
    let data = |bytes: u64| bytes / (u64::from(k) + u64::from(m)) * u64::from(k);
    let drives = || status.drives.iter().filter(|drive| drive.state == DriveState::Up && !drive.draining);
    let free = data(drives().map(|drive| drive.free_bytes).fold(0, u64::saturating_add));
    let used = data(drives().map(|drive| drive.used_bytes).fold(0, u64::saturating_add));
    let (mut bytes, mut free_bytes) = (used.saturating_add(free), free);
    if volume.quota_bytes > 0 {
        bytes = volume.quota_bytes;
        free_bytes = free.min(volume.quota_bytes.saturating_sub(volume.file_bytes));
    }
    Room { bytes, free_bytes, files: volume.files, has_quota: volume.quota_bytes > 0 }
}
