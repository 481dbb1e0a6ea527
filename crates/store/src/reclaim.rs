//! Freeing segments that no unit refers to and no checkpoint's replay needs.

use crate::commit::{Committer, Shared};
use crate::spares::Spare;

/// The current segment is sealed early when nothing in it is live, space is short, and it has at least this many bytes.
const EARLY_SEAL_BYTES: u64 = 1 << 20;

/// Free the segments below `floor` in which nothing is live.
pub(crate) fn free_segments(shared: &Shared, floor: u32) {
    let index = shared.index.read();
    let idle: Vec<u32> = index.segments.idle_before(floor).collect();
    drop(index);
    let free = if shared.sync && !idle.is_empty() { shared.room().free() } else { 0 };
    let mut aside: Vec<Spare> = Vec::new();
    for &number in &idle {
        // Readers look up the file under the index's lock: after this, none finds it any more.
        let removed = shared.index.write().segments.remove(number);
        let Some(bytes) = removed else { continue };
        let coming = aside.iter().map(|spare| spare.bytes).sum();
        // A file that soon ends again is not worth its place.
        if bytes >= shared.segment_bytes / 2
            && shared.files.spares().wants(bytes, coming, free)
            && let Some(spare) = shared.files.set_aside(number)
        {
            aside.push(spare);
            shared.cleaning.on_freed();
            continue;
        }
        match shared.files.remove(number, false) {
            Ok(()) => shared.cleaning.on_freed(),
            Err(error) => {
                // Nothing refers to it: the next opening finds it and frees it again. Until then it takes space.
                tracing::warn!(%error, segment = number, bytes, "a freed segment could not be removed");
                shared.index.write().segments.leave(bytes);
            }
        }
    }
    if !shared.sync || idle.is_empty() {
        return;
    }
    // Before their old names are gone for good, nothing else may be written to them.
    let synced = shared.files.sync_log();
    for spare in aside {
        if synced {
            shared.files.spares().put(spare);
        } else {
            shared.files.give_up(&spare);
        }
    }
}

impl Committer {
    /// Free what the checkpoints no longer need, and ask for the next one when the tail is long.
    pub(crate) fn reclaim(&self) {
        let keeper = &self.shared.keeper;
        free_segments(&self.shared, keeper.floor());
        let replay = keeper.newest().map(|kept| kept.replay).unwrap_or_default();
        let index = self.shared.index.read();
        let tail = index.segments.bytes_since(replay.segment, replay.offset());
        drop(index);
        if self.log.rest.check().is_ok() {
            keeper.on_tail(tail, self.shared.capacity);
        }
    }

    /// Space is short: free the older checkpoint and every segment without a live byte, by a new checkpoint if need be. The
    /// next request does not fit without that, so there is nothing else to do meanwhile.
    pub(crate) fn make_space(&mut self) {
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
        let floor = self.shared.keeper.forget_older(&self.shared);
        free_segments(&self.shared, floor);
        if self.idle_segments() && self.shared.keeper.make().is_ok() {
            let floor = self.shared.keeper.forget_older(&self.shared);
            free_segments(&self.shared, floor);
        }
    }

    /// Whether a sealed segment has no live byte, or the active one is worth sealing for that.
    pub(crate) fn idle_segments(&self) -> bool {
        let index = self.shared.index.read();
        let sealed = index.segments.idle_before(self.log.number).next().is_some();
        let early = self.log.end >= EARLY_SEAL_BYTES.min(self.log.segment_bytes);
        sealed || (early && index.segments.is_idle(self.log.number))
    }
}
