//! Space that an idle store gives back to the file system.
//!
//! The store does so before space is scarce, because other programs may use the file system, and a user who
//! removes files wants to see space come back. First it deletes most recycled segments. Then checkpoints are
//! written, so that segments without a live byte can be freed. Then segments that are mostly dead are
//! emptied, so slowly that a returning client hardly notices.

use std::time::Duration;

use crate::threads::checkpointer::KEPT;
use crate::threads::shared::Shared;

/// Number of recycled segments that stay. A segment is at most a 64th of the capacity, so these are at most a
/// 32nd.
const RECYCLED_KEPT: usize = 2;
/// The most bytes moved per second.
const MOVED_BYTES_PER_SECOND: u64 = 32 << 20;

/// The pause after `bytes` were moved.
pub(crate) fn time_for(bytes: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / MOVED_BYTES_PER_SECOND)
}

/// The state that the last checkpoints could not free anything of.
#[derive(Debug, Default)]
pub(crate) struct GivingBack {
    /// The bytes to free and the last record when the last checkpoint was made, and the number of checkpoints
    /// made in that state.
    freeing: (u64, u64),
    made: usize,
}

impl GivingBack {
    /// Free what can be freed without moving anything. Returns true if there was something.
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
        if let Err(error) = shared.checkpointer.make(shared) {
            tracing::warn!(%error, bytes, "no checkpoint could be written, so freed segments are not given back yet");
        }
        true
    }

    /// Returns true if another checkpoint may free something. After [`KEPT`] of them in the same state no
    /// older checkpoint needs a segment any more, and one more gains nothing.
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
