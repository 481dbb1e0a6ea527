//! Partitions, and the drive as a whole: what their well-known objects say, and how partitions are made and
//! changed.

use braid_layout::{DriveId, PartitionId};

use crate::refusal::Refusal;

choice! {
    /// What [`PartitionSet`] expects to find.
    pub enum Expect {
        /// No partition of that number: it is made. If there is one with the same values, nothing needs to be
        /// done; one with other values is [`Exists`](crate::Reason::Exists).
        Absent = 0,
        /// A partition of that number: it is changed. If there is none, that is
        /// [`NoPartition`](crate::Reason::NoPartition).
        Present = 1,
    }
}

record! {
    /// Makes a partition, or sets its quota and key epoch (rotates its working keys). Idempotent.
    pub struct PartitionSet {
        /// Its number; not 0.
        partition: PartitionId,
        /// Whether it is made or changed.
        expect: Expect,
        /// Bytes of log that it may hold; 0: no quota.
        quota_bytes: u64,
        /// The epoch of its newer working key, from 1; not below the present one.
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
    /// What a partition's own object says.
    pub struct PartitionAttributes {
        /// Its number.
        partition: PartitionId,
        /// Bytes of log that it may hold; 0: no quota.
        quota_bytes: u64,
        /// Bytes of log that it holds.
        used_bytes: u64,
        /// Objects in it.
        objects: u64,
        /// The epoch of its newer working key.
        key_epoch: u32,
    }
}

record! {
    /// Partitions, ascending.
    pub struct PartitionListReply {
        /// The partitions.
        partitions: Vec<PartitionAttributes>,
    }
}

record! {
    /// What the drive's own object says.
    pub struct DriveAttributes {
        /// The drive.
        drive: DriveId,
        /// Bytes it may store.
        capacity_bytes: u64,
        /// Bytes of log.
        used_bytes: u64,
        /// Bytes of log that a read could return.
        live_bytes: u64,
        /// Segments of log.
        segments: u64,
        /// Objects.
        objects: u64,
        /// Partitions.
        partitions: u64,
        /// Bytes served to readers since the start.
        read_bytes: u64,
        /// Bytes taken from writers since the start.
        written_bytes: u64,
        /// Requests refused since the start.
        refused: u64,
        /// Milliseconds since the start.
        uptime_ms: u64,
    }
}
