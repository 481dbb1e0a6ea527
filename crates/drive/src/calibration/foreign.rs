//! What others do on the drive's disk: the kernel's counters of the device, beside those of this process.
//!
//! Others are all but this process: other drives on the same device too. The file system's own writes (its
//! journal) are done by the kernel in nobody's name, so as much as this process did itself is not counted.

use std::fs;

use braid_schedule::{DeviceCost, Direction};

/// Bytes a second that are too few to be counted as others'.
const QUIET_BYTES_PER_SECOND: u64 = 1 << 20;
/// The kernel's sector in its counters, whatever the device's is.
const SECTOR_BYTES: u64 = 512;

/// Operations and bytes in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Done {
    operations: u64,
    bytes: u64,
}

/// Counters of a device and of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counters {
    read: Done,
    written: Done,
    own_read_bytes: u64,
    own_written_bytes: u64,
}

impl Counters {
    /// The counters now; `None` if the kernel has none for this device, as for file systems in memory.
    pub(crate) fn now(device: u64) -> Option<Counters> {
        let stats = fs::read_to_string("/proc/diskstats").ok()?;
        let own = fs::read_to_string("/proc/self/io").ok()?;
        Counters::parse(&stats, (rustix::fs::major(device), rustix::fs::minor(device)), &own)
    }

    fn parse(stats: &str, device: (u32, u32), own: &str) -> Option<Counters> {
        let number = (device.0.to_string(), device.1.to_string());
        let fields = stats.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (fields.first() == Some(&number.0.as_str()) && fields.get(1) == Some(&number.1.as_str()))
                .then_some(fields)
        })?;
        let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let done = |at: usize| {
            Some(Done { operations: field(at)?, bytes: field(at + 2)?.saturating_mul(SECTOR_BYTES) })
        };
        let own = |name: &str| own.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        Some(Counters {
            read: done(3)?,
            written: done(7)?,
            own_read_bytes: own("read_bytes:")?,
            own_written_bytes: own("write_bytes:")?,
        })
    }

    /// Device time that others used since `before`, within `passed_ns`.
    pub(crate) fn foreign_ns(&self, before: &Counters, cost: &DeviceCost, passed_ns: u64) -> u64 {
        let since = |now: Done, before: Done| Done {
            operations: now.operations.saturating_sub(before.operations),
            bytes: now.bytes.saturating_sub(before.bytes),
        };
        let read = since(self.read, before.read);
        let written = since(self.written, before.written);
        let own_read = self.own_read_bytes.saturating_sub(before.own_read_bytes);
        let own_written = self.own_written_bytes.saturating_sub(before.own_written_bytes);
        let ways =
            [(Direction::Read, read, own_read), (Direction::Write, written, own_written.saturating_mul(2))];
        let quiet = u128::from(QUIET_BYTES_PER_SECOND) * u128::from(passed_ns) / 1_000_000_000;
        let quiet = u64::try_from(quiet).unwrap_or(u64::MAX);
        let times = ways.map(|(direction, all, own)| {
            let foreign = all.bytes.saturating_sub(own);
            if foreign <= quiet || all.operations == 0 {
                return 0;
            }
            // Operations of the mean size.
            let size = (all.bytes / all.operations).max(1);
            cost.time_ns(direction, size).saturating_mul(foreign / size)
        });
        times.iter().sum::<u64>().min(passed_ns)
    }
}

#[cfg(test)]
impl Counters {
    /// Counters of a device of which others have read so many bytes, in operations of 1 MiB.
    pub(crate) fn foreign(bytes: u64) -> Counters {
        Counters { read: Done { operations: bytes >> 20, bytes }, ..Counters::default() }
    }
}

#[cfg(test)]
mod tests {
    use braid_schedule::{Charge, DirectionCost};

    use super::*;

    const STATS: &str = "   7       0 loop0 9 0 9 9 9 9 9 9 9 9 9\n \
                         254      16 vdb 100 3 8000 20 200 5 16000 40 0 60 60 0 0 0 0\n";
    const OWN: &str = "rchar: 5\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n";

    #[test]
    fn the_kernel_s_counters_are_read() {
        let found = Counters::parse(STATS, (254, 16), OWN).expect("the device is there");
        assert_eq!(found.read, Done { operations: 100, bytes: 8000 * 512 });
        assert_eq!(found.written, Done { operations: 200, bytes: 16_000 * 512 });
        assert_eq!((found.own_read_bytes, found.own_written_bytes), (4096, 8192));
        assert_eq!(Counters::parse(STATS, (254, 1), OWN), None, "no such device");
        assert_eq!(Counters::parse("254 16 vdb 1", (254, 16), OWN), None, "fields are missing");
    }

    #[test]
    fn others_are_all_but_the_drive_itself() {
        const SECOND: u64 = 1_000_000_000;
        const MIB: u64 = 1 << 20;
        let way = DirectionCost { operation_ns: 0, bytes_per_second: 100 * MIB };
        let cost = DeviceCost { charge: Charge::Sum, read: way, write: way, sync_ns: 0 };
        let read = |mib: u64, own: u64| Counters {
            read: Done { operations: mib, bytes: mib * MIB },
            own_read_bytes: own * MIB,
            ..Counters::default()
        };
        let foreign = |now: Counters| now.foreign_ns(&Counters::default(), &cost, SECOND);
        assert_eq!(foreign(read(50, 50)), 0);
        assert_eq!(foreign(read(50, 0)), SECOND / 2);
        assert_eq!(foreign(read(60, 50)), SECOND / 10);
        assert_eq!(foreign(read(500, 0)), SECOND, "never more than there is");
        assert_eq!(foreign(read(51, 50)), 0, "too little to matter");
        let written = Counters {
            written: Done { operations: 40, bytes: 40 * MIB },
            own_written_bytes: 20 * MIB,
            ..Counters::default()
        };
        assert_eq!(foreign(written), 0, "the journal of what the drive writes");
    }
}
