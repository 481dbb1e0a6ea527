//! What a store gives back while it is at rest.
//!
//! Space is needed back before it is scarce: others may use the file system, and whoever removes files wants
//! to see it. So a store at rest keeps few recycled segments, has checkpoints made that let segments without a live
//! byte go, and then empties those that are mostly dead, at a pace that a client which comes back hardly
//! feels.

use std::time::Duration;

use crate::threads::checkpointer::KEPT;
use crate::threads::shared::Shared;

/// Files set aside that stay. A segment is at most a 64th of the capacity, so that is what they take at most
/// twice.
const RECYCLED_KEPT: usize = 2;
/// Bytes moved in a second.
const MOVED_BYTES_PER_SECOND: u64 = 32 << 20;

/// How long to rest after `bytes` were moved.
pub(crate) fn time_for(bytes: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / MOVED_BYTES_PER_SECOND)
}

/// What was tried.
#[derive(Debug, Default)]
pub(crate) struct GivingBack {
    /// What there was to free when checkpoints were made for it, and how many were since.
    freeing: (u64, u64),
    made: usize,
}

impl GivingBack {
    /// Give back recycled segments and free segments, as far as that moves nothing. Whether there was something to
    /// do.
    pub(crate) fn give_back(&mut self, shared: &Shared) -> bool {
        while let Some(segment) = shared.files.recycled().beyond(RECYCLED_KEPT) {
            shared.files.give_up(&segment);
        }
        let (bytes, head) = {
            let index = shared.index.read();
            (index.segments.idle_bytes(), index.head.sequence)
        };
        if bytes == 0 || !shared.checkpointer.is_worth(bytes) || !self.is_new((bytes, head)) {
            return false;
        }
        if let Err(error) = shared.checkpointer.make() {
            tracing::warn!(%error, bytes, "no checkpoint, so that freed segments are not given back yet");
        }
        true
    }

    /// Whether so many checkpoints as are kept were not yet made for the same state. After these nothing more
    /// is gained.
    fn is_new(&mut self, state: (u64, u64)) -> bool {
        self.made = if self.freeing == state { self.made + 1 } else { 1 };
        self.freeing = state;
        self.made <= KEPT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_that_free_nothing_are_not_made_for_ever() {
        let mut rest = GivingBack::default();
        let tries = |rest: &mut GivingBack, state| (0..10).filter(|_| rest.is_new(state)).count();
        assert_eq!(tries(&mut rest, (100, 1)), KEPT);
        assert_eq!(tries(&mut rest, (100, 1)), 0);
        assert_eq!(tries(&mut rest, (100, 2)), KEPT, "something was written");
        assert_eq!(tries(&mut rest, (50, 2)), KEPT, "something was freed");
    }
}
