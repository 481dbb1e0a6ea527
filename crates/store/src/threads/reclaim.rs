//! Freeing segments that no unit refers to and no checkpoint's replay needs.

use crate::disk::Syncing;
use crate::segments::recycled::RecycledSegment;
use crate::threads::shared::Shared;

/// Free the segments below `floor` in which nothing is live.
pub(crate) fn free_segments(shared: &Shared, floor: u32) {
    let index = shared.index.read();
    let idle: Vec<u32> = index.segments.idle_before(floor).collect();
    drop(index);
    let free = if shared.syncing.is_on() && !idle.is_empty() { shared.space_budget().free() } else { 0 };
    let mut aside: Vec<RecycledSegment> = Vec::new();
    for &number in &idle {
        // Readers look up the file under the index's lock: after this, none finds it any more.
        let removed = shared.index.write().segments.remove(number);
        let Some(bytes) = removed else { continue };
        let coming = aside.iter().map(|segment| segment.bytes).sum();
        // A short file is not worth recycling.
        if bytes >= shared.segment_bytes / 2
            && shared.files.recycled().wants(bytes, coming, free)
            && let Some(segment) = shared.files.set_aside(number)
        {
            aside.push(segment);
            shared.cleaning.on_freed();
            continue;
        }
        match shared.files.remove(number, Syncing::Off) {
            Ok(()) => shared.cleaning.on_freed(),
            Err(error) => {
                // Nothing refers to it. It takes space until the next opening finds and frees it.
                tracing::warn!(%error, segment = number, bytes, "a freed segment could not be removed");
                shared.index.write().segments.leave(bytes);
            }
        }
    }
    if !shared.syncing.is_on() || idle.is_empty() {
        return;
    }
    // Recycled files may be written to again only once their old names are durably gone.
    let synced = shared.files.sync_log();
    for segment in aside {
        if synced {
            shared.files.recycled().put(segment);
        } else {
            shared.files.give_up(&segment);
        }
    }
}
