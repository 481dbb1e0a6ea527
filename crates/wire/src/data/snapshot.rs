//! Snapshots: the settled content of an object stays readable under a number, whatever is written after.

use super::object::Address;
use crate::refusal::Refusal;

/// Maximum number of snapshots that an object may have.
pub const SNAPSHOTS_MAX: usize = 1024;

choice! {
    /// The action of a [`Snapshot`].
    pub enum SnapshotAct {
        /// Keeps the content that is settled now (copy on write). All of the object must be settled. If a
        /// snapshot of this number exists, it stays as it is.
        Take = 0,
        /// Drops the snapshot, and all data that only it keeps. It is no error if there is none.
        Drop = 1,
    }
}

record! {
    /// Takes or drops a snapshot of an object. Idempotent. Answered when durable; the cost does not depend on
    /// the object's size.
    pub struct Snapshot {
        /// The object to keep a state of.
        at: Address,
        /// Number of the snapshot, chosen by the asker, from 1. To take a snapshot, the number must be
        /// above every number used before on this object.
        number: u32,
        /// The action to perform.
        act: SnapshotAct,
        /// The manager's term.
        term: u64,
    }
}

impl Snapshot {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        if self.number == 0 {
            return Err(Refusal::malformed("snapshots are numbered from 1"));
        }
        Ok(())
    }
}
