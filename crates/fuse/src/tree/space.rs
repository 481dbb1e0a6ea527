//! Size and free space of a volume, as `df` shows them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use braid_client::{Result, Room};
use fuser::ReplyStatfs;

use crate::context::Context;

/// Time for which an answer of the manager is used again.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// Unit in bytes in which space is reported.
const UNIT: u32 = 4096;
const NAME_BYTES_MAX: u32 = 255;

/// The manager's last answer, kept for [`KNOWN_FOR`].
#[derive(Debug, Default)]
pub(crate) struct Space {
    last: Mutex<Option<(Instant, Room)>>,
}

impl Space {
    pub(crate) async fn room(&self, context: &Context) -> Result<Room> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, room)) = last
            && at.elapsed() < KNOWN_FOR
        {
            return Ok(room);
        }
        let room = context.client.room(&context.volume).await?.unwrap_or_default();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), room));
        Ok(room)
    }
}

/// Answers the kernel's `statfs` request.
pub(crate) fn tell(room: &Room, reply: ReplyStatfs) {
    let units = |bytes: u64| bytes / u64::from(UNIT);
    let free = units(room.free_bytes);
    // Names take no room of their own: as many files may be made as there are units.
    let files = room.files.saturating_add(free);
    reply.statfs(units(room.bytes), free, free, files, free, UNIT, NAME_BYTES_MAX, UNIT);
}
