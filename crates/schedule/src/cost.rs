//! The cost of an operation on a device, as *device time*: the part of the device's capacity that the
//! operation uses up, not the time that it takes.
//!
//! A disk with one head does one thing after another: an operation costs its positioning *and* its bytes.
//! Flash and cloud disks are two token buckets, one of operations and one of bytes, which fill at the same
//! time: an operation costs the *larger* of the two. To add them there would count half of what the device
//! can do as used where both are equal.

use crate::tags::scaled;

/// Nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Bytes at most that a log hands to the disk at once.
pub const PART_BYTES: u64 = 512 << 10;

/// Bytes that a log takes for a record beside its payload.
const RECORD_BYTES: u64 = 4096;

/// Direction of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    Read,
    Write,
}

/// The way in which the fixed cost of an operation and the cost of its bytes make one cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Charge {
    /// Both: a disk with one head.
    Sum,
    /// The larger of the two: flash, cloud disks.
    Larger,
}

/// Cost of operations in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectionCost {
    /// Device time of an operation whatever its size, in nanoseconds: a second over the operations of a
    /// second that the device does at most.
    pub operation_ns: u64,
    /// Bytes a second at most; never 0.
    pub bytes_per_second: u64,
}

/// Cost of the operations of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCost {
    pub charge: Charge,
    pub read: DirectionCost,
    pub write: DirectionCost,
    /// Time of a sync that has nothing to write, in nanoseconds. It is paid once for each group commit.
    pub sync_ns: u64,
}

impl DirectionCost {
    /// Time of this many bytes alone, in nanoseconds, rounded up.
    pub fn bytes_ns(&self, bytes: u64) -> u64 {
        let nanoseconds = u128::from(bytes) * u128::from(SECOND_NS);
        let rate = u128::from(self.bytes_per_second.max(1));
        u64::try_from(nanoseconds.div_ceil(rate)).unwrap_or(u64::MAX)
    }
}

impl DeviceCost {
    /// A device of which nothing is known: its operations cost nothing, so that nothing is held back.
    pub const FREE: DeviceCost = {
        let free = DirectionCost { operation_ns: 0, bytes_per_second: u64::MAX };
        DeviceCost { charge: Charge::Larger, read: free, write: free, sync_ns: 0 }
    };

    /// Cost of operations in one direction.
    pub fn way(&self, direction: Direction) -> &DirectionCost {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// Device time of a record at the end of a log, in nanoseconds, without its commit. The log is written in
    /// parts of [`PART_BYTES`]: beside reads a head comes back for each.
    pub fn append_ns(&self, bytes: u64) -> u64 {
        let bytes = bytes.saturating_add(RECORD_BYTES);
        let bytes_ns = self.write.bytes_ns(bytes);
        match self.charge {
            Charge::Sum => scaled(self.write.operation_ns, bytes, PART_BYTES).saturating_add(bytes_ns),
            Charge::Larger => bytes_ns,
        }
    }

    /// Device time of a commit beside its records, in nanoseconds: one operation, and the sync.
    pub fn commit_ns(&self) -> u64 {
        self.write.operation_ns.saturating_add(self.sync_ns)
    }

    /// Device time of one operation of this many bytes, in nanoseconds; a sync is not counted.
    pub fn time_ns(&self, direction: Direction, bytes: u64) -> u64 {
        let way = self.way(direction);
        let of_bytes = way.bytes_ns(bytes);
        match self.charge {
            Charge::Sum => way.operation_ns.saturating_add(of_bytes),
            Charge::Larger => way.operation_ns.max(of_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(charge: Charge) -> DeviceCost {
        let way = DirectionCost { operation_ns: 100_000, bytes_per_second: 480_000_000 };
        DeviceCost { charge, read: way, write: way, sync_ns: 0 }
    }

    #[test]
    fn a_head_pays_both_and_flash_the_larger() {
        // 48,000 bytes take as long as an operation.
        for (bytes, sum, larger) in
            [(0, 100_000, 100_000), (48_000, 200_000, 100_000), (96_000, 300_000, 200_000)]
        {
            assert_eq!(cost(Charge::Sum).time_ns(Direction::Read, bytes), sum);
            assert_eq!(cost(Charge::Larger).time_ns(Direction::Write, bytes), larger);
        }
    }

    #[test]
    fn small_records_share_a_positioning_and_large_ones_have_one_for_each_part() {
        let append = |charge, bytes| cost(charge).append_ns(bytes);
        // 60 KiB of payload and 4 KiB beside it are an eighth of a part.
        assert_eq!(append(Charge::Sum, 60 << 10), 100_000 / 8 + append(Charge::Larger, 60 << 10));
        let large = 2 * PART_BYTES - RECORD_BYTES;
        assert_eq!(append(Charge::Sum, large), 200_000 + append(Charge::Larger, large));
    }

    #[test]
    fn nothing_overflows() {
        let slow = DirectionCost { operation_ns: u64::MAX, bytes_per_second: 1 };
        let slow = DeviceCost { charge: Charge::Sum, read: slow, write: slow, sync_ns: 0 };
        assert_eq!(slow.time_ns(Direction::Read, u64::MAX), u64::MAX);
        assert_eq!(DeviceCost::FREE.time_ns(Direction::Read, 1 << 40), 60);
    }
}
