//! How much room a volume has, as `df` shows it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use braid_client::{Result, Room};
use fuser::ReplyStatfs;

use crate::context::Context;

/// How long an answer is given again.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// The unit in which space is told.
const UNIT: u32 = 4096;
const NAME_BYTES_MAX: u32 = 255;

/// The last answer.
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

/// Answers the kernel.
pub(crate) fn tell(room: &Room, reply: ReplyStatfs) {
    let units = |bytes: u64| bytes / u64::from(UNIT);
    let free = units(room.free_bytes);
    // Names take no room of their own: as many files may be made as there are units.
    let files = room.files.saturating_add(free);
    reply.statfs(units(room.bytes), free, free, files, free, UNIT, NAME_BYTES_MAX, UNIT);
}
