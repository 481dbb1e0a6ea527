//! Partitions, and the drive as a whole.

use braid_layout::{DriveId, PartitionId};

record! {
    /// Creates a partition. Idempotent.
    pub struct PartitionCreate {
        /// Its number; not 0.
        partition: PartitionId,
        /// Bytes of log that it may hold; 0: no quota.
        quota_bytes: u64,
        /// The epoch of its newer working key, from 1.
        key_epoch: u32,
        /// The manager's term.
        term: u64,
    }
}

record! {
    /// Sets a partition's quota and key epoch (rotates its working keys).
    pub struct PartitionSet {
        /// Its number.
        partition: PartitionId,
        /// Bytes of log that it may hold; 0: no quota.
        quota_bytes: u64,
        /// The epoch of its newer working key; not below the present one.
        key_epoch: u32,
        /// The manager's term.
        term: u64,
    }
}

record! {
    /// Removes an empty partition. Removing what is not there succeeds.
    pub struct PartitionRemove {
        /// Its number.
        partition: PartitionId,
        /// The manager's term.
        term: u64,
    }
}

record! {
    /// Lists partitions.
    pub struct PartitionList {
        /// Those above this number.
        after: PartitionId,
        /// At most this many; the drive may return fewer, and none only at the end.
        limit: u32,
    }
}

record! {
    /// A partition.
    pub struct PartitionRow {
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
        partitions: Vec<PartitionRow>,
    }
}

record! {
    /// Asks for the drive's figures.
    pub struct Stat {}
}

record! {
    /// The drive's figures.
    pub struct StatReply {
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
