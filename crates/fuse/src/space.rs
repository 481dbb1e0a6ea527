//! How much room a volume has, as `df` shows it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use braid_client::Result;
use braid_wire::control::DriveState;

use crate::context::Context;

/// How long an answer is given again.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// The last answer.
#[derive(Debug, Default)]
pub(crate) struct Space {
    last: Mutex<Option<(Instant, Room)>>,
}

/// Bytes and files of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) files: u64,
    pub(crate) has_quota: bool,
}

impl Space {
    pub(crate) async fn room(&self, context: &Context) -> Result<Room> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, room)) = last
            && at.elapsed() < KNOWN_FOR
        {
            return Ok(room);
        }
        let room = ask(context).await?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), room));
        Ok(room)
    }
}

/// What drives have, less what redundancy takes of it in files of the volume's own shape; and no more than
/// the quota.
async fn ask(context: &Context) -> Result<Room> {
    let volumes = context.client.volumes().await?;
    let status = context.client.status().await?;
    let volume = volumes.into_iter().find(|volume| volume.name == context.volume);
    let Some(volume) = volume else { return Ok(Room::default()) };
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
    Ok(Room { bytes, free_bytes, files: volume.files, has_quota: volume.quota_bytes > 0 })
}
