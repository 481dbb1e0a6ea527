//! How much room a volume has, as `df` shows it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use braid_client::{Result, Room};

use crate::context::Context;

/// How long an answer is given again.
const KNOWN_FOR: Duration = Duration::from_secs(1);

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
