//! The store's three threads and what they share.
//!
//! The committer alone appends to the log. The checkpointer writes checkpoints beside it. The cleaner reads
//! segments that are mostly dead and hands what is live in them to the committer. All of them free segments.

#[cfg(any(test, feature = "faulty-disk"))]
pub(crate) mod by_hand;
pub(crate) mod checkpointer;
pub(crate) mod cleaner;
pub(crate) mod committer;
mod idle;
pub(crate) mod reclaim;
pub(crate) mod shared;
mod space;
pub(crate) mod space_budget;

/// Does something when it is dropped, so that it is done however a thread ends.
struct OnEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
