//! Locks on blocks of one open file: a write that changes a part of a block reads the rest of it first, and
//! nobody else may write the block meanwhile.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The blocks that are being written.
#[derive(Debug, Default)]
pub(crate) struct BlockLocks {
    held: Mutex<Vec<Range<u64>>>,
    freed: Notify,
}

/// A lock on blocks, until it is dropped.
#[derive(Debug)]
pub(crate) struct BlockLock<'a> {
    locks: &'a BlockLocks,
    blocks: Range<u64>,
}

impl BlockLocks {
    /// Waits until nobody else has any of the blocks.
    pub(crate) async fn lock(&self, blocks: Range<u64>) -> BlockLock<'_> {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            {
                let mut held = self.held();
                if !held.iter().any(|other| other.start < blocks.end && blocks.start < other.end) {
                    held.push(blocks.clone());
                    return BlockLock { locks: self, blocks };
                }
            }
            freed.await;
        }
    }

    fn held(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BlockLock<'_> {
    fn drop(&mut self) {
        {
            let mut held = self.locks.held();
            if let Some(at) = held.iter().position(|other| *other == self.blocks) {
                held.swap_remove(at);
            }
        }
        self.locks.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_those_with_a_block_in_common_wait() {
        let locks = BlockLocks::default();
        let first = locks.lock(0..3).await;
        let second = locks.lock(3..4).await;
        let soon = Duration::from_millis(10);
        assert!(timeout(soon, locks.lock(2..4)).await.is_err());
        drop(first);
        assert!(timeout(soon, locks.lock(2..4)).await.is_err(), "one of the two is held still");
        drop(second);
        drop(timeout(soon, locks.lock(2..4)).await.expect("free"));
        assert!(locks.held().is_empty());
    }
}
