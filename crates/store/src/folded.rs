//! Bases that were made of parity units' settled deltas, on their way to the committer.

use std::sync::mpsc::SyncSender;

use braid_layout::{ObjectId, PartitionId};

use crate::index::parity::Fold;
use crate::segments::log::Entry;

/// A parity unit.
pub(crate) type Key = (PartitionId, ObjectId, u64);

/// A base to write.
pub(crate) struct Base {
    pub(crate) key: Key,
    pub(crate) fold: Fold,
    pub(crate) entry: Entry,
}

/// Bases for the committer to write together, at least one.
pub(crate) struct Folded {
    pub(crate) bases: Vec<Base>,
    /// Told whether all were written.
    pub(crate) reply: SyncSender<bool>,
}
