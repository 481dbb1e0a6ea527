//! Total and free space of a volume, as `df` shows it.

use braid_wire::control::{DriveState, StatusReply, VolumeRow};

use crate::client::Client;
use crate::error::Result;
use crate::naming::file_systems::{OnOneFileSystem, file_systems};

/// Bytes and files of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes of data that fit in all.
    pub bytes: u64,
    /// Bytes of data that still fit.
    pub free_bytes: u64,
    /// Number of files in the volume.
    pub files: u64,
    /// True if the volume has a quota, which then bounds its space.
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

/// The space of the drives, with each shared file system counted once, less the share of redundancy in files
/// of the volume's shape; and no more than the quota.
fn room(volume: &VolumeRow, status: &StatusReply) -> Room {
    let (k, m) = volume.shape.shape().map_or((1, 0), |shape| (shape.k(), shape.m()));
    let data = |bytes: u64| bytes / (u64::from(k) + u64::from(m)) * u64::from(k);
    let drives = || status.drives.iter().filter(|drive| drive.state == DriveState::Up && !drive.draining);
    let free_bytes =
        file_systems(drives()).iter().map(OnOneFileSystem::free_bytes).fold(0, u64::saturating_add);
    let free = data(free_bytes);
    let used = data(drives().map(|drive| drive.used_bytes).fold(0, u64::saturating_add));
    let mut bytes = used.saturating_add(free);
    let mut free_bytes = free;
    if volume.quota_bytes > 0 {
        bytes = volume.quota_bytes;
        free_bytes = free.min(volume.quota_bytes.saturating_sub(volume.file_bytes));
    }
    Room { bytes, free_bytes, files: volume.files, has_quota: volume.quota_bytes > 0 }
}

#[cfg(test)]
mod tests {
    use braid_layout::{ClusterId, VolumeId};
    use braid_wire::control::{NamesState, ShapeSpec};

    use super::*;
    use crate::naming::file_systems::tests::drive;

    #[test]
    fn what_redundancy_takes_and_what_drives_share_is_not_room() {
        let volume = |quota_bytes| VolumeRow {
            volume: VolumeId(1),
            name: "main".into(),
            shape: ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 },
            quota_bytes,
            files: 3,
            file_bytes: 50,
            created_ms: 0,
            past_files: 0,
            past_bytes: 0,
            protection: braid_wire::capability::Protection::Integrity,
            key: None,
        };
        let shared = || drive("a", 7, 1_000, 993);
        let status = StatusReply {
            cluster: ClusterId(1),
            volumes: 1,
            files: 3,
            removing: 0,
            drives: vec![shared(), shared(), shared(), drive("b", 7, 1_000, 993)],
            pid: 1,
            uptime_ms: 0,
            directory: String::new(),
            notice: String::new(),
            names: NamesState { drives: Vec::new(), wanted: 0, behind_ms: 0, bytes: 0 },
            managers: Vec::new(),
            members: Vec::new(),
        };
        let free_bytes = (1_000 + 3 * 3 - 10 + 993) / 3 * 2;
        let expected = Room { bytes: free_bytes + 4 * 5 / 3 * 2, free_bytes, files: 3, has_quota: false };
        assert_eq!(room(&volume(0), &status), expected);
        let expected = Room { bytes: 60, free_bytes: 10, files: 3, has_quota: true };
        assert_eq!(room(&volume(60), &status), expected);
    }
}
