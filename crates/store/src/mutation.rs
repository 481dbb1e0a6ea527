//! The changes that a store can be asked for, and their answers.

use std::ops::Range;

use braid_layout::{
    ClientId, Column, ColumnMask, EndBound, Generation, ObjectId, OperationNumber, PartitionId, Version,
};

use crate::error::Error;
use crate::payload::Body;
use crate::step::{Delta, UnitWrite};

/// The most bytes of an object's opaque attribute, and of its map.
pub const OPAQUE_BYTES_MAX: usize = 4096;
/// The most stamps and cut-offs together of one verdict. A longer one is sent in parts.
pub const VERDICT_STAMPS_MAX: usize = 4096;
/// The most bytes that an object can reserve.
pub const RESERVE_BYTES_MAX: u64 = 1 << 48;
/// The most stills of an object; the next is [`Error::Stills`].
pub const STILLS_MAX: usize = 1024;

/// One change. Each is idempotent: applying it twice is the same as once (I6).
#[derive(Debug, Clone)]
pub enum Mutation {
    /// Make a partition. With the same values again: [`MutationOutcome::Already`]; else
    /// [`Error::PartitionExists`].
    PartitionCreate {
        partition: PartitionId,
        /// Soft quota in bytes; `None`: no bound.
        quota_bytes: Option<u64>,
        /// The working keys' epoch.
        key_epoch: u32,
    },
    /// Change a partition's quota and key epoch. The epoch never falls. A low quota refuses new writes only.
    PartitionSet {
        partition: PartitionId,
        /// Soft quota in bytes; `None`: no bound.
        quota_bytes: Option<u64>,
        /// The working keys' epoch.
        key_epoch: u32,
    },
    /// Remove an empty partition. If it is absent: [`MutationOutcome::Already`].
    PartitionRemove { partition: PartitionId },
    /// Make an object. Repeated with the same unit size, column, map and creation time:
    /// [`MutationOutcome::Already`]; else [`Error::Exists`]. So for an object that was removed and has
    /// stills.
    Create {
        /// The object's partition.
        partition: PartitionId,
        object: ObjectId,
        /// The attributes that the new object begins with.
        attributes: Attributes,
    },
    /// Remove an object and all its bytes, but for those that stills of it show; if it or its partition is
    /// absent: [`MutationOutcome::Already`].
    Remove {
        /// The object's partition.
        partition: PartitionId,
        object: ObjectId,
        /// The request's generation: must not be below the object's.
        g: Generation,
    },
    /// Change some attributes.
    SetAttributes {
        /// The object's partition.
        partition: PartitionId,
        object: ObjectId,
        /// The request's generation: must not be below the object's.
        g: Generation,
        /// The attributes to change.
        change: Change,
    },
    /// Write a range of one unit.
    Write(Write),
    /// Settles every lower stamp of `settled_below`'s lease (PROTOCOL section 3, Retire).
    Retire {
        /// The object's partition.
        partition: PartitionId,
        object: ObjectId,
        /// The request's generation: must be the object's.
        g: Generation,
        /// The lease's lowest stamp that is not known to be settled. Zero: none is named.
        settled_below: Version,
        /// The client that `watermark` is about.
        client: ClientId,
        /// The client repeats none of its operations below this number. Zero: not given. Not remembered for a
        /// client without known operations.
        watermark: OperationNumber,
    },
    /// Write inside a unit through its data column. The answer is [`MutationOutcome::Owed`].
    UnitWrite(UnitWrite),
    /// Every parity column of the set has the unit's owed versions up to this one, which settles them
    /// (PROTOCOL R3). Already settled: [`MutationOutcome::Already`]; not on the chain: [`Error::Chain`].
    OwedSettled {
        /// The object's partition.
        partition: PartitionId,
        object: ObjectId,
        /// The generation in which the parity columns have the versions: must be the object's.
        g: Generation,
        unit: u64,
        /// The newest version that this settles.
        up_to: Version,
    },
    /// Every parity column has a data unit's deltas up to this version, so this one may fold them in
    /// (PROTOCOL R6). Nothing to settle: [`MutationOutcome::Already`].
    DeltasSettled {
        /// The object's partition.
        partition: PartitionId,
        object: ObjectId,
        /// The request's generation: must be the object's.
        g: Generation,
        unit: u64,
        /// The data unit's index in a cover.
        data: u8,
        /// The newest version that this settles.
        up_to: Version,
    },
    /// Append a data column's change to a parity unit. The answer is [`MutationOutcome::Counted`], or
    /// [`Error::Chain`] if the delta does not start from the column's tip.
    Delta(Delta),
    /// Store a new generation with its set and joining columns (PROTOCOL R7). Repeated:
    /// [`MutationOutcome::Already`]; lower, or the same with another set: [`Error::StaleGeneration`].
    Fence {
        /// The object's partition.
        partition: PartitionId,
        object: ObjectId,
        /// The new generation.
        g: Generation,
        /// The columns every write of `g` must reach.
        set: ColumnMask,
        /// The columns of the set that are joining.
        joining: ColumnMask,
    },
    /// The object's column, which is joining, has caught up with some units (PROTOCOL section 7). Each fence
    /// makes the catch-up begin anew, as its verdict may take forward what a joining column lacks. If all
    /// these units are ready already, or the column is not joining: [`MutationOutcome::Already`].
    Ready {
        /// The object's partition.
        partition: PartitionId,
        object: ObjectId,
        /// The request's generation: must be the object's.
        g: Generation,
        /// The first unit that is caught up.
        unit: u64,
        /// Number of consecutive units: at least 1.
        units: u32,
    },
    /// Settle or take back unsettled versions by name, and cut off deltas (PROTOCOL section 6, step 5).
    /// Versions that are neither pending nor owed are ignored, as are cut-offs that are not on their chain.
    Verdict {
        /// The object's partition.
        partition: PartitionId,
        object: ObjectId,
        /// The request's generation: must be the object's.
        g: Generation,
        /// The verdict on each unit; at most [`VERDICT_STAMPS_MAX`] stamps and cut-offs in all.
        units: Vec<UnitVerdict>,
    },
    /// Take a still of an object (PROTOCOL section 11): make an object that shows what this one holds now,
    /// whatever is written later (copy on write), and also once this one is removed. Two records, whatever
    /// the object's size. All deltas become settled: the caller knows that they are. If anything is pending
    /// or owed, or the column is joining: [`Error::Unsettled`]. If the still exists already:
    /// [`MutationOutcome::Already`]; another object of its number: [`Error::Exists`].
    Take {
        /// The partition of both objects.
        partition: PartitionId,
        object: ObjectId,
        /// The request's generation: must be the object's.
        g: Generation,
        /// The still's number.
        still: ObjectId,
        /// The still's attributes. Unit size and column must be the object's; `base` is set by the store.
        attributes: Attributes,
    },
    /// Answered once everything submitted before is durable.
    Flush,
}

/// The verdict on one unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnitVerdict {
    pub unit: u64,
    /// Stamps that are settled. An owed version settles all below it too.
    pub forward: Vec<Version>,
    /// Stamps that are taken back. An owed version takes all above it back too.
    pub back: Vec<Version>,
    /// Per lost data column: deltas that lead above the version are removed.
    pub cut_offs: Vec<(Column, Version)>,
}

impl UnitVerdict {
    /// The number of stamps and cut-offs, at least one, so that empty verdicts are bounded too.
    pub(crate) fn len(&self) -> usize {
        (self.forward.len() + self.back.len() + self.cut_offs.len()).max(1)
    }
}

/// An object's attributes. Times are the caller's, in milliseconds since 1970; the store keeps no clock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Bytes per unit: a power of two from 4 KiB to 64 MiB.
    pub unit_bytes: u32,
    /// The column of its segment that the object holds.
    pub column: Column,
    /// The generation last set (PROTOCOL section 1).
    pub g: Generation,
    /// The columns every write of `g` must reach.
    pub set: ColumnMask,
    /// The columns of the set that are joining.
    pub joining: ColumnMask,
    /// Creation time, according to the caller.
    pub created_ms: u64,
    /// Time of the last change, according to the caller.
    pub modified_ms: u64,
    /// Preallocation. The part of these bytes that the object's payload does not fill counts against the
    /// partition's quota and the store's space, so that other writes cannot take it. Not covered: headers,
    /// padding, overwritten bytes that snapshots or unsettled writes hold, and space that the disk itself
    /// loses.
    pub reserve_bytes: u64,
    /// Hint: the cleaner places objects of one partition and cluster near each other. 0: no cluster.
    pub cluster: u64,
    /// Shape and components, encoded by the caller; at most [`OPAQUE_BYTES_MAX`] bytes.
    pub map: Vec<u8>,
    /// The manager's opaque bytes; at most [`OPAQUE_BYTES_MAX`].
    pub opaque: Vec<u8>,
    /// Of a still: what it was taken of. Set by [`Mutation::Take`] only.
    pub base: Option<Base>,
}

/// The object that a still was taken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Base {
    /// The object, which may have been removed since.
    pub object: ObjectId,
    /// The sequence number of the record that created that object: another one of its number is not meant.
    pub birth: u64,
    /// The snapshot of that object which the still shows, from 1.
    pub number: u32,
}

/// A change of attributes; `None`: no change. [`Mutation::Fence`] changes generation, set and joining.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// The new time of the last change.
    pub modified_ms: Option<u64>,
    pub reserve_bytes: Option<u64>,
    /// The new cluster hint.
    pub cluster: Option<u64>,
    /// The new shape and components.
    pub map: Option<Vec<u8>>,
    /// The manager's new opaque bytes.
    pub opaque: Option<Vec<u8>>,
}

/// Kind of content that a write brings to its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteKind {
    /// Bytes of a data column.
    #[default]
    Data,
    /// A parity column's base.
    ParityBase,
    /// A parity column's part of a stripe write.
    StripeParity,
}

/// The state in which a written version begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standing {
    /// A stripe write (PROTOCOL R1): pending on the version that is there, which it settles (C1). Other bytes
    /// stay.
    #[default]
    Pending,
    /// A stripe write to a data column that is the unit's whole content: outside its range the unit is a
    /// hole.
    Whole,
    /// Installed by a rebuild or a catch-up (PROTOCOL section 7) as the unit's whole settled content, *below*
    /// a newer pending version. Outside its range the unit is a hole. Repairs a lost unit; a hole at version
    /// zero makes it one that was never written.
    Installed,
    /// As [`Standing::Installed`], but replaces content of the same version too, as the caller has found that
    /// the stored bytes do not match their checksums. Refused with [`Error::InDoubt`] while the unit owes
    /// something.
    Repaired,
}

/// A write of one range of one unit.
#[derive(Debug, Clone)]
pub struct Write {
    /// The object's partition.
    pub partition: PartitionId,
    pub object: ObjectId,
    pub unit: u64,
    /// First byte in the unit.
    pub from: u32,
    /// One past the last byte; above `from`, at most the unit's size.
    pub to: u32,
    /// Kind of content.
    pub kind: WriteKind,
    /// The state in which the written version begins.
    pub standing: Standing,
    /// The stamp; not zero. The same stamp again is [`MutationOutcome::Already`], without comparing the
    /// bytes.
    pub stamp: Version,
    /// The columns that the stripe write touches.
    pub columns: ColumnMask,
    /// Parity kinds: for each data column the version that is included in the bytes. Otherwise empty.
    pub cover: Vec<Version>,
    /// For each version in the cover: the bounds that the write gives for the end of that data unit's bytes.
    pub ends: Vec<EndBound>,
    /// The writer, for dedup.
    pub client: ClientId,
    /// The writer's operation; for dedup.
    pub operation: OperationNumber,
    /// The request's generation: must be the object's.
    pub g: Generation,
    /// As in [`Mutation::Retire`]. Zero: not given.
    pub settled_below: Version,
    /// The bytes to write, or a hole.
    pub body: Body,
}

/// The answer to a mutation that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MutationOutcome {
    /// Done, and durable.
    Applied,
    /// The requested state was there already, durably.
    Already,
    /// Ignored: a write older than the unit's settled tip, or settled parity older in some column (PROTOCOL
    /// R1, section 7).
    Older {
        /// The newest version of the unit.
        tip: Version,
    },
    /// A unit write is durable here and owed to the parity columns.
    Owed {
        /// The version that the write is based on.
        from: Version,
        version: Version,
    },
    /// The operation of a unit write was known already.
    Known {
        /// The version that the operation was given.
        version: Version,
        /// True if that version is settled. If not, the writer's answer waits for the parity columns.
        settled: bool,
    },
    /// A delta is on its column's chain, from now or from before.
    Counted {
        /// The chain's newest version.
        tip: Version,
    },
}

impl Write {
    /// The range in the unit.
    pub fn range(&self) -> Range<u32> {
        self.from..self.to
    }

    /// Payload length in bytes; 0 for a hole or a mutation without bytes.
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.body.payload_bytes()
    }

    /// Checks that the write is consistent in itself, and that its payload matches its checksums.
    fn validate(&self) -> Result<(), Error> {
        let never_written = self.standing.is_settled()
            && matches!(self.body, Body::Hole)
            && self.cover.iter().all(|version| version.is_zero());
        if self.stamp.is_zero() && !never_written {
            return Err(Error::Malformed("version zero means never written"));
        }
        if self.cover.len() > usize::from(braid_layout::scheme::WIDTH_MAX) {
            return Err(Error::Malformed("a cover names at most 64 columns"));
        }
        let is_data = self.kind == WriteKind::Data;
        if is_data && !self.cover.is_empty() || !is_data && self.standing == Standing::Whole {
            return Err(Error::Malformed("only parity has a cover, and only data is written whole"));
        }
        if self.ends.len() != self.cover.len() || !self.ends.iter().all(|end| self.standing.allows(*end)) {
            return Err(Error::Malformed("each version of a cover has an end that is possible"));
        }
        // A lease settles only its own stamps. Others are settled by their holder, or by a verdict.
        let settled = self.settled_below;
        let own = !self.standing.is_settled() && settled.lease == self.stamp.lease && settled <= self.stamp;
        if !settled.is_zero() && !own {
            return Err(Error::Malformed("a write may settle only stamps of its own lease, up to its own"));
        }
        self.body.validate(&self.range())
    }
}

impl Attributes {
    fn validate(&self) -> Result<(), Error> {
        let sizes = braid_layout::scheme::UNIT_BYTES_MIN..=braid_layout::scheme::UNIT_BYTES_MAX;
        if !sizes.contains(&self.unit_bytes) || !self.unit_bytes.is_power_of_two() {
            return Err(Error::Malformed("a unit is a power of two from 4 KiB to 64 MiB"));
        }
        if self.column.0 >= 64 {
            return Err(Error::Malformed("a column must be below 64"));
        }
        reservable(self.reserve_bytes)?;
        bounded(&self.map)?;
        bounded(&self.opaque)
    }

    /// Returns true if a repeated create with `other` means the same object.
    pub(crate) fn same_object(&self, other: &Attributes) -> bool {
        self.unit_bytes == other.unit_bytes
            && self.column == other.column
            && self.map == other.map
            && self.created_ms == other.created_ms
    }

    /// The attributes with `change` applied.
    pub(crate) fn changed(&self, change: &Change) -> Attributes {
        let mut new = self.clone();
        new.reserve_bytes = change.reserve_bytes.unwrap_or(new.reserve_bytes);
        new.cluster = change.cluster.unwrap_or(new.cluster);
        new.modified_ms = change.modified_ms.unwrap_or(new.modified_ms);
        if let Some(map) = &change.map {
            new.map.clone_from(map);
        }
        if let Some(opaque) = &change.opaque {
            new.opaque.clone_from(opaque);
        }
        new
    }
}

/// A mutation whose form and checksums have been verified.
#[derive(Debug)]
pub struct CheckedMutation(Mutation);

impl CheckedMutation {
    pub(crate) fn into_mutation(self) -> Mutation {
        self.0
    }
}

impl Mutation {
    /// Verifies form and checksums, which takes time in proportion to the payload.
    pub fn check(self) -> Result<CheckedMutation, Error> {
        self.validate()?;
        Ok(CheckedMutation(self))
    }

    /// All checks that do not need the store's state. Runs in the submitter's thread.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        match self {
            Mutation::Write(write) => write.validate(),
            Mutation::UnitWrite(write) => write.validate(),
            Mutation::Delta(delta) => delta.validate(),
            Mutation::Create { attributes, .. } if attributes.base.is_some() => {
                Err(Error::Malformed("a still is made by a take"))
            }
            Mutation::Create { attributes, .. } => attributes.validate(),
            Mutation::Take { object, still, .. } if still == object => {
                Err(Error::Malformed("a still needs an object number of its own"))
            }
            Mutation::Take { attributes, .. } => attributes.validate(),
            Mutation::SetAttributes { change, .. } => {
                reservable(change.reserve_bytes.unwrap_or_default())?;
                bounded(change.map.as_deref().unwrap_or_default())?;
                bounded(change.opaque.as_deref().unwrap_or_default())
            }
            Mutation::Verdict { units, .. } => {
                if units.iter().map(UnitVerdict::len).sum::<usize>() > VERDICT_STAMPS_MAX {
                    return Err(Error::Malformed("a verdict names too many stamps"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns true if the mutation may wait a little to share the commit of others: no caller waits for its
    /// answer, and the fact that it records is known otherwise until the store is closed.
    pub(crate) fn may_wait(&self) -> bool {
        matches!(self, Mutation::OwedSettled { .. })
    }

    /// Payload length in bytes; 0 for a hole or a mutation without bytes.
    pub(crate) fn payload_bytes(&self) -> u64 {
        match self {
            Mutation::Write(write) => write.payload_bytes(),
            Mutation::UnitWrite(write) => write.body.payload_bytes(),
            Mutation::Delta(delta) => delta.body.payload_bytes(),
            _ => 0,
        }
    }
}

fn reservable(bytes: u64) -> Result<(), Error> {
    if bytes > RESERVE_BYTES_MAX {
        return Err(Error::Malformed("an object reserves at most 256 TiB"));
    }
    Ok(())
}

fn bounded(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() > OPAQUE_BYTES_MAX {
        Err(Error::Malformed("opaque bytes and map are at most 4 KiB each"))
    } else {
        Ok(())
    }
}
