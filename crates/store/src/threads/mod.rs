//! The store's threads and the state that they share.
//!
//! The committer alone appends to the log. The checkpointer writes checkpoints beside it. The cleaner reads
//! segments that are mostly dead and hands their live bytes to the committer. These three free segments. The
//! folder merges deltas into parity, where others need the disk as well.

#[cfg(any(test, feature = "faulty-disk"))]
pub(crate) mod by_hand;
pub(crate) mod checkpointer;
pub(crate) mod cleaner;
pub(crate) mod committer;
pub(crate) mod folder;
pub(crate) mod folding;
mod idle;
pub(crate) mod reclaim;
pub(crate) mod shared;
mod space;
pub(crate) mod space_budget;

/// A function to call when this is dropped, so that it is called however a thread ends.
struct OnEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
