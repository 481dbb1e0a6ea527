//! Partitions, and the drive as a whole: the attributes of their well-known objects, and how partitions are
//! made and changed.

use braid_layout::{DriveId, PartitionId};

use crate::refusal::Refusal;

choice! {
    /// The state that [`PartitionSet`] expects to find.
    pub enum Expect {
        /// There must be no partition of that number, and one is made. If there is one with the same
        /// values, nothing needs to be done; one with other values is refused with
        /// [`Exists`](crate::Reason::Exists).
        Absent = 0,
        /// There must be a partition of that number, and it is changed. If there is none, the request is
        /// refused with [`NoPartition`](crate::Reason::NoPartition).
        Present = 1,
    }
}

record! {
    /// Makes a partition, or sets its quota and key epoch (rotates its working keys). Idempotent.
    pub struct PartitionSet {
        /// Number of the partition; not 0.
        partition: PartitionId,
        /// The state expected: whether the partition is made or changed.
        expect: Expect,
        /// Maximum number of bytes of log that the partition may hold; 0: no quota.
        quota_bytes: u64,
        /// Epoch of the partition's newer working key, from 1; not below the present one.
        key_epoch: u32,
        /// The manager's term.
        term: u64,
    }
}

impl PartitionSet {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        if self.partition == PartitionId(0) || self.key_epoch == 0 {
            return Err(Refusal::malformed("partitions and epochs are numbered from 1"));
        }
        Ok(())
    }
}

record! {
    /// The attributes of a partition.
    pub struct PartitionAttributes {
        /// Number of the partition.
        partition: PartitionId,
        /// Maximum number of bytes of log that the partition may hold; 0: no quota.
        quota_bytes: u64,
        /// Bytes of log that the partition holds.
        used_bytes: u64,
        /// Number of objects in the partition.
        objects: u64,
        /// Epoch of the partition's newer working key.
        key_epoch: u32,
    }
}

record! {
    /// The answer to [`List`](super::List) for the drive.
    pub struct PartitionListReply {
        /// The partitions, ascending by number.
        partitions: Vec<PartitionAttributes>,
    }
}

record! {
    /// The attributes of the drive.
    pub struct DriveAttributes {
        /// The drive's identity.
        drive: DriveId,
        /// Maximum number of bytes that the drive may store.
        capacity_bytes: u64,
        /// Size of the log, in bytes.
        used_bytes: u64,
        /// Bytes of log that a read could return.
        live_bytes: u64,
        /// Number of segments in the log.
        segments: u64,
        /// Number of objects on the drive.
        objects: u64,
        /// Number of partitions on the drive.
        partitions: u64,
        /// Bytes served to readers since the start.
        read_bytes: u64,
        /// Bytes taken from writers since the start.
        written_bytes: u64,
        /// Number of requests refused since the start.
        refused: u64,
        /// Time since the start, in milliseconds.
        uptime_ms: u64,
    }
}
