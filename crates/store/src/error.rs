//! Errors of a store. Callers treat each variant differently.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use braid_layout::{ClusterId, DriveId, Generation, ObjectId, PartitionId, Version};

/// Error of a store. Cloneable, as one failed commit answers many callers.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // The caller's request does not fit the state: nothing was changed.
    /// No such partition.
    #[error("partition {0} is not on this drive")]
    NoPartition(PartitionId),
    /// The partition exists with other values; use `PartitionSet`.
    #[error("partition {0} exists with another quota or key epoch")]
    PartitionExists(PartitionId),
    /// Only an empty partition can be removed: remove its objects first.
    #[error("partition {0} still holds {1} objects")]
    PartitionNotEmpty(PartitionId, u64),
    /// The keys of a partition are of a later epoch than asked for: epochs never fall.
    #[error("the keys of partition {0} are of epoch {1} already")]
    KeyEpoch(PartitionId, u32),
    /// The caller lost the right to make this change while it was queued.
    #[error("the right to make this change ended before it was made")]
    Withdrawn,
    /// The store is held ([`crate::Options::held`]): try again once it was released.
    #[error(
        "the end of the log was not compared yet with what is known of it: nothing is written before that"
    )]
    Held,
    /// No such object.
    #[error("object {1} is not in partition {0}")]
    NoObject(PartitionId, ObjectId),
    /// The object exists with another shape, column or map.
    #[error("object {1} of partition {0} already exists with another shape, column or map")]
    Exists(PartitionId, ObjectId),
    /// The request's generation is not the object's: ask the manager (PROTOCOL section 3).
    #[error("stale generation: the object has {have}, the request {asked}")]
    StaleGeneration {
        /// The object's generation here.
        have: Generation,
        asked: Generation,
    },
    /// A read asked for exactly one version, and the chain does not hold it (any more): start again (PROTOCOL
    /// section 5).
    #[error("version {asked} is gone; the newest is {tip}")]
    Gone {
        /// The version asked for.
        asked: Version,
        /// The newest version of the unit.
        tip: Version,
    },
    /// A delta does not start from its column's tip, or a version is not on the chain (PROTOCOL R5): continue
    /// from the tip.
    #[error("the version is not on the unit's chain, whose newest is {tip}")]
    Chain {
        /// The chain's newest version.
        tip: Version,
    },
    /// Owed versions are in doubt after a restart (PROTOCOL R4): send their deltas again, and read once they
    /// are settled.
    #[error("versions up to {tip} may not be read until the parity columns have confirmed them")]
    InDoubt {
        /// The newest owed version.
        tip: Version,
    },
    /// A unit has reached its limit of unsettled steps: wait until some are settled or folded.
    #[error("the unit has {0} unsettled writes, the most that it may have: try again")]
    Backlog(usize),
    /// A still is taken of a ready column in which nothing is pending or owed: fence the object, decide on
    /// what is unsettled, and take it then.
    #[error(
        "unit {unit} of object {object} in partition {partition} is pending, owed or joining, so no still can be taken: \
         have it decided first"
    )]
    Unsettled {
        /// The object's partition.
        partition: PartitionId,
        object: ObjectId,
        /// One unit with something pending or owed; 0 if the column is joining.
        unit: u64,
    },
    /// The object has reached its limit of stills: remove one first.
    #[error("the object has {0} stills, the most that it may have: remove one first")]
    Stills(usize),
    /// The unit is in more pieces than a checkpoint can hold: remove stills, or write all of the unit.
    #[error(
        "unit {unit} of object {object} in partition {partition} is in too many pieces, those that its stills keep \
         among them: remove snapshots of its file, or write all of the unit"
    )]
    Pieces {
        /// The object's partition.
        partition: PartitionId,
        object: ObjectId,
        unit: u64,
    },
    /// The object remembers the most operations and clients it may. Clients should retire those whose answer
    /// they have; clients that are gone should be retired for good ([`crate::Mutation::Retire`]).
    #[error(
        "the object remembers {0} operations of its clients, the most that it may: retire those that are answered"
    )]
    Operations(usize),
    /// The units that a joining column has caught up with have too many gaps between them: first catch up
    /// with units in the gaps.
    #[error(
        "the units that the column has caught up with form {0} runs, the most there may be: fill the gaps between them first"
    )]
    Runs(usize),
    /// A range, length or count is impossible; the text says which.
    #[error("malformed request: {0}")]
    Malformed(&'static str),
    /// The payload does not match the checksums that came with it: it was damaged in transit.
    #[error("the payload's block at unit offset {at} does not match its checksum")]
    Checksum {
        /// Unit offset of the first block that differs.
        at: u32,
    },

    // No space.
    /// The write would exceed the partition's quota.
    #[error("quota: partition {partition} holds {used} of {quota} bytes, and {asked} more were asked for")]
    Quota {
        partition: PartitionId,
        /// Bytes the partition holds.
        used: u64,
        /// Bytes the partition may hold.
        quota: u64,
        /// Bytes the request adds.
        asked: u64,
    },
    /// The disk or the store's capacity is full. Removes, fences and verdicts still work from a reserve.
    #[error("the disk is full: {used} of {capacity} bytes are used or reserved")]
    Full {
        /// Bytes the store uses, or has reserved for objects.
        used: u64,
        /// Bytes the store may use.
        capacity: u64,
    },

    // The medium.
    /// Stored bytes are damaged: the unit is lost here and must be rebuilt from redundancy (PROTOCOL R9).
    #[error("damaged: segment {segment}, offset {offset}: {what}")]
    Damaged {
        /// The segment's number.
        segment: u64,
        /// Byte offset in its file.
        offset: u64,
        /// Description of the damage.
        what: &'static str,
    },
    /// The disk reported an error. Reads and mutations may be retried: a refused mutation changed nothing
    /// (but one in progress during a crash may be there after all).
    #[error("i/o error while trying to {doing}: {source}")]
    Io {
        /// The action attempted.
        doing: &'static str,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// The bytes or the lock asked for cannot be had at once. Ask again by a call that waits.
    #[error("the bytes are not in memory: reading them would wait for the disk")]
    WouldWait,
    /// The file system is mounted read-only.
    #[error("the file system is read-only")]
    ReadOnly,
    /// Writes and syncs failed repeatedly, so none is tried for a while. Reads still work. The store accepts
    /// writes again by itself once its disk does.
    #[error("writes to the disk failed again and again: the next is tried within a minute; look at the disk")]
    Resting,
    /// Acknowledged changes that were never synced may be lost. Reads still work. Writes need the store to be
    /// opened again, which reads back what the disk really has.
    #[error("the log failed and takes no more writes until the store is opened again")]
    Failed,

    // Opening.
    /// The directory is no store: format it first.
    #[error("{0} holds no store")]
    NotAStore(PathBuf),
    /// Formatting would overwrite another store or foreign files.
    #[error("{0} is not empty: it will not be formatted")]
    NotEmpty(PathBuf),
    /// Another process has the store open.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// The store belongs to another cluster or drive.
    #[error("the store belongs to drive {drive} of cluster {cluster}, not to the one expected")]
    Foreign {
        /// The store's cluster.
        cluster: ClusterId,
        /// The store's drive.
        drive: DriveId,
    },
    /// Written by a newer release, or not by Braid at all.
    #[error("{0}: unknown format ({1})")]
    UnknownFormat(PathBuf, &'static str),

    // The store's lifecycle.
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl Error {
    /// An I/O error of `doing`, sorted into full, read-only and the rest.
    pub(crate) fn io(doing: &'static str, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::ReadOnlyFilesystem => Error::ReadOnly,
            _ => Error::Io { doing, source: Arc::new(source) },
        }
    }

    /// Returns true if the error means that the disk, or a quota on it, has no space left.
    pub(crate) fn is_no_space(source: &io::Error) -> bool {
        matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}
