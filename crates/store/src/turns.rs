//! Turns at the disk for the store's own work: cleaning, and checkpoints. A server that shares its disk among
//! users gives the store its turns too.

use std::fmt;

/// Work that the store does for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnWork {
    /// Live bytes are moved out of segments that are mostly dead.
    Cleaning,
    /// Deltas are merged into their parity unit's base.
    Folding,
    /// A checkpoint is written.
    Checkpoint,
}

/// Gives the store its turns.
pub trait Turns: fmt::Debug + Send + Sync {
    /// Waits for the turn of work that reads and writes so many bytes, unless `gives_up` becomes true. The
    /// turn ends when the result is dropped.
    fn wait(&self, work: OwnWork, read: u64, written: u64, gives_up: &dyn Fn() -> bool) -> Box<dyn Send>;
}
