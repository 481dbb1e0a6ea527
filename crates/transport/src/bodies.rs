//! Memory for the bodies of frames, bounded over all connections of a listener.
//!
//! A body is announced by its frame's header before it comes. So a thousand peers that announce a MiB each would take a GiB, and an
//! allocator does not give back all of it. Small bodies are free; a large one waits for its share. A peer that has proved nothing
//! sends small ones only.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The longest body of a peer that has proved nothing, in bytes; up to this a body needs no share. A proof has some 200, a write of
/// a unit of 4 MiB about 5,000.
pub const STRANGER_BODY_BYTES_MAX: u32 = 8 << 10;
/// Bytes of larger bodies that connections of one listener hold at a time.
const SHARED_BYTES_MAX: usize = 64 << 20;

/// The shares of one listener's connections. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Bodies {
    bytes: Arc<Semaphore>,
}

/// Dropped: given back.
pub(crate) type Share = OwnedSemaphorePermit;

impl Bodies {
    pub(crate) fn new() -> Bodies {
        Bodies { bytes: Arc::new(Semaphore::new(SHARED_BYTES_MAX)) }
    }

    /// Waits for a share for a body; `None`: it needs none.
    pub(crate) async fn share(&self, bytes: u32) -> Option<Share> {
        if bytes <= STRANGER_BODY_BYTES_MAX {
            return None;
        }
        // It is never closed.
        Arc::clone(&self.bytes).acquire_many_owned(bytes).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use braid_wire::frame::BODY_BYTES_MAX;

    use super::*;

    #[tokio::test]
    async fn large_bodies_are_bounded_together_and_small_ones_are_free() {
        let bodies = Bodies::new();
        let mut held = Vec::new();
        for _ in 0..SHARED_BYTES_MAX >> 20 {
            held.push(bodies.share(BODY_BYTES_MAX).await);
        }
        assert!(bodies.share(STRANGER_BODY_BYTES_MAX).await.is_none());
        let waiting = bodies.share(BODY_BYTES_MAX);
        tokio::pin!(waiting);
        assert!(futures_poll(&mut waiting).await.is_none(), "no share is free");
        held.pop();
        assert!(futures_poll(&mut waiting).await.flatten().is_some());
    }

    /// What a future gives at once.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = std::future::ready(()) => None,
        }
    }
}
