//! Memory for frame bodies, bounded over all connections of a listener.
//!
//! A header announces its body before the body arrives, so a thousand peers that announce a MiB each would
//! take a GiB, and an allocator does not return all of it. Small bodies need no share of the memory; a large
//! one waits for its share. An unauthenticated peer may send small bodies only.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum length in bytes of an unauthenticated peer's body; up to this, a body needs no share. A proof has
/// about 200 bytes, a write of a 4 MiB unit about 5,000.
pub const STRANGER_BODY_BYTES_MAX: u32 = 8 << 10;
/// Maximum number of bytes of larger bodies that the connections of one listener may hold at a time.
const SHARED_BYTES_MAX: usize = 64 << 20;

/// The body memory of one listener. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Bodies {
    bytes: Arc<Semaphore>,
}

/// Share of a listener's body memory, returned on drop.
pub(crate) type Share = OwnedSemaphorePermit;

impl Bodies {
    pub(crate) fn new() -> Bodies {
        Bodies { bytes: Arc::new(Semaphore::new(SHARED_BYTES_MAX)) }
    }

    /// Waits for a body's share; `None` if it needs none.
    pub(crate) async fn share(&self, bytes: u32) -> Option<Share> {
        if bytes <= STRANGER_BODY_BYTES_MAX {
            return None;
        }
        // This fails only if the semaphore is closed, and it never is.
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

    /// The future's output if it is ready now.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = std::future::ready(()) => None,
        }
    }
}
