//! The committer's ways to free space: after each commit, and when there is no space for the next one.

use crate::threads::committer::Committer;
use crate::threads::reclaim::free_segments;

/// The current segment is sealed early when nothing in it is live, space is short, and it has at least this
/// many bytes.
const EARLY_SEAL_BYTES: u64 = 1 << 20;

impl Committer {
    /// Free the segments that no checkpoint needs, and request the next checkpoint if the tail is long.
    pub(crate) fn reclaim(&self) {
        let checkpointer = &self.shared.checkpointer;
        free_segments(&self.shared, checkpointer.floor());
        let replay = checkpointer.newest().map(|kept| kept.replay).unwrap_or_default();
        let index = self.shared.index.read();
        let tail = index.segments.bytes_since(replay.segment, replay.offset());
        drop(index);
        if self.log.rest.check().is_ok() {
            checkpointer.on_tail(tail, self.shared.capacity);
        }
    }

    /// Free the recycled segments, the older checkpoint and all segments without a live byte, as space is
    /// short. If the newest checkpoint needs some of these, write another first. The committer waits for it,
    /// as the next request needs the space.
    pub(crate) fn free_space(&mut self) {
        let active_is_idle = || {
            let index = self.shared.index.read();
            index.segments.is_idle(self.log.number)
        };
        if self.log.rest.check().is_err() {
            return;
        }
        self.shared.files.give_up_all();
        let early = self.log.end >= EARLY_SEAL_BYTES.min(self.log.segment_bytes) && active_is_idle();
        if early && self.roll().is_err() {
            return;
        }
        let floor = self.shared.checkpointer.forget_older(&self.shared);
        free_segments(&self.shared, floor);
        if self.idle_segments() && self.shared.checkpointer.make(&self.shared).is_ok() {
            let floor = self.shared.checkpointer.forget_older(&self.shared);
            free_segments(&self.shared, floor);
        }
    }

    /// Returns true if a sealed segment has no live byte, or the active one has none and is long enough to be
    /// sealed.
    pub(crate) fn idle_segments(&self) -> bool {
        let index = self.shared.index.read();
        let sealed = index.segments.idle_before(self.log.number).next().is_some();
        let early = self.log.end >= EARLY_SEAL_BYTES.min(self.log.segment_bytes);
        sealed || (early && index.segments.is_idle(self.log.number))
    }
}
