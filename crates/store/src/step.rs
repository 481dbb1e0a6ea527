//! Unit writes and deltas: requests for one step of a unit's chain (PROTOCOL rules R2 to R5).

use std::ops::Range;

use braid_layout::{ClientId, Column, Generation, Lease, ObjectId, OperationNumber, PartitionId, Version};

use crate::error::Error;
use crate::payload::Body;

/// The most owed versions of one unit. Further unit writes get [`Error::Backlog`].
pub const OWED_MAX: usize = 64;
/// The most deltas of one parity unit that are not folded. Further ones get [`Error::Backlog`].
pub const DELTAS_MAX: usize = 256;

/// A write inside one unit of a data column (PROTOCOL R2). The store orders it, makes it durable and owes it
/// to the parity columns: the caller sends them [`crate::Store::delta`], and [`crate::Mutation::OwedSettled`]
/// here when all have it.
#[derive(Debug, Clone)]
pub struct UnitWrite {
    /// The object's partition.
    pub partition: PartitionId,
    pub object: ObjectId,
    pub unit: u64,
    /// First byte in the unit.
    pub from: u32,
    /// One past the last byte; above `from`, at most the unit's size.
    pub to: u32,
    pub client: ClientId,
    /// The writer's operation. The same again is [`crate::MutationOutcome::Known`], without comparing the
    /// bytes.
    pub operation: OperationNumber,
    /// The writer repeats none of its operations below this number, so they are forgotten.
    pub watermark: OperationNumber,
    /// The request's generation: must be the object's.
    pub g: Generation,
    /// The writer's lease. The store makes the version under it.
    pub lease: Lease,
    /// The version, if the writer chooses it (an exclusive lease).
    pub stamp: Option<Version>,
    /// As in [`crate::Mutation::Retire`]. Zero: not given.
    pub settled_below: Version,
    /// The bytes to write, or a hole.
    pub body: Body,
}

/// A data column's change, at a parity column (PROTOCOL R5).
#[derive(Debug, Clone)]
pub struct Delta {
    /// The object's partition.
    pub partition: PartitionId,
    /// The parity column's object.
    pub object: ObjectId,
    /// The unit's index, which is the stripe's.
    pub unit: u64,
    /// First byte in the unit.
    pub from: u32,
    /// One past the last byte; above `from`, at most the unit's size.
    pub to: u32,
    /// The data column.
    pub column: Column,
    /// The data unit's index in the stripe, and so the index of its version in a cover.
    pub data: u8,
    /// The version that the delta starts from.
    pub from_version: Version,
    /// The version that the delta leads to; above `from_version`.
    pub to_version: Version,
    /// One past the last byte of the data unit in that version that is not in a hole; 0: it has only holes.
    pub end: u32,
    pub client: ClientId,
    /// The writer's operation.
    pub operation: OperationNumber,
    /// As in [`UnitWrite::watermark`].
    pub watermark: OperationNumber,
    /// The request's generation: must be the object's.
    pub g: Generation,
    /// All of the column's versions up to this one are settled. Zero: not given. With one parity column the
    /// caller passes `to_version`, as a delta that is durable here is then settled.
    pub settled_to: Version,
    /// The bytes to xor to the parity: old xor new, multiplied by the column's coefficient (PROTOCOL R5). The
    /// parity column's drive multiplies before it stores, so that the store folds by xor alone for every
    /// code. A hole where nothing changed.
    pub body: Body,
}

impl UnitWrite {
    /// The range in the unit.
    pub fn range(&self) -> Range<u32> {
        self.from..self.to
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        if self.stamp.is_some_and(Version::is_zero) {
            return Err(Error::Malformed("version zero means never written"));
        }
        if !self.settled_below.is_zero() && self.settled_below.lease != self.lease {
            return Err(Error::Malformed("a unit write may settle only stamps of its own lease"));
        }
        self.body.validate(&self.range())
    }
}

impl Delta {
    /// The range in the unit.
    pub fn range(&self) -> Range<u32> {
        self.from..self.to
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        if self.from_version >= self.to_version {
            return Err(Error::Malformed("a delta must lead to a newer version"));
        }
        if self.column.0 >= 64 || self.data >= 64 {
            return Err(Error::Malformed("a column must be below 64"));
        }
        self.body.validate(&self.range())
    }
}
