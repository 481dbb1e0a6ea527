//! Which units an object has, from the index: a walk costs what the object holds, not how far its bytes are apart.

use braid_layout::{ObjectId, PartitionId};

use crate::error::Error;
use crate::index::Chain;
use crate::store::Store;

/// A walk over an object's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listing {
    /// The first unit that may be listed.
    pub from: u64,
    /// Which way it goes from there.
    pub direction: Direction,
    /// Whether units without bytes are listed.
    pub holes: Holes,
}

/// Which way a walk goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To higher units.
    Up,
    /// To lower ones.
    Down,
}

/// What becomes of units that were written and hold no bytes. Damaged ones are listed always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holes {
    /// They are listed.
    Listed,
    /// They are not.
    PassedOver,
}

/// What a walk found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The units, in the walk's order.
    pub units: Vec<Chain>,
    /// Where to go on; `None`: there are no more.
    pub next: Option<u64>,
}

impl Store {
    /// Up to `limit` of the units that a walk is about. It ends after it has looked at `looked_at` units, so that a call stays
    /// short however many are passed over.
    pub fn list(
        &self,
        partition: PartitionId,
        object: ObjectId,
        list: Listing,
        limit: usize,
        looked_at: usize,
    ) -> Result<Listed, Error> {
        Ok(self.index().whole_object(partition, object)?.list(list, limit, looked_at))
    }
}
