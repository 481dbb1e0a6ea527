//! A base that was made of a parity unit's settled deltas, on its way to the committer.

use std::sync::mpsc::SyncSender;

use braid_layout::{ObjectId, PartitionId};

use crate::index::parity::Fold;
use crate::segments::log::Entry;

/// A parity unit.
pub(crate) type Key = (PartitionId, ObjectId, u64);

/// A base for the committer to write.
pub(crate) struct Folded {
    pub(crate) key: Key,
    pub(crate) fold: Fold,
    pub(crate) entry: Entry,
    /// Told whether the base was written.
    pub(crate) reply: SyncSender<bool>,
}
