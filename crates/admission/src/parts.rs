//! Qualified parts: what a drive and a client can do.
//!
//! A part of which nothing is known is not booked: nothing is refused for its sake. Drives of one host that
//! share a link or processors are each told their part of it.

use braid_layout::{ClientId, DriveId};
use braid_schedule::DeviceCost;
use braid_schedule::cost::SECOND_NS;

use crate::demand::{PARTS, Part};

/// All that is known of a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveParts {
    /// Identity of the drive.
    pub drive: DriveId,
    /// The domains that it fails with, the widest first, the host last, as in placement.
    pub domain: Vec<String>,
    /// Cost of operations on its disk.
    pub cost: DeviceCost,
    /// Rates of the drive as a whole.
    pub qualified: Qualified,
    /// Part of its calibrated service that the disk still gives, in thousandths. Drift and foreign I/O lower
    /// it; 1000: all of it.
    pub service_permille: u32,
    /// Rates of its rail.
    pub rail: Rail,
    /// Cost of requests and bytes for its processors; `None`: not booked.
    pub processor: Option<ProcessorCost>,
    /// Bytes that the log's cleaning moves for each 1000 bytes written, at the drive's fill. 0: what is
    /// deleted leaves whole segments free.
    pub moved_permille: u32,
    /// Bytes that can still be stored.
    pub free_bytes: u64,
    /// True if the drive serves.
    pub alive: bool,
}

/// Rates of the drive as a part of the whole, in bytes per second; `None`: not qualified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Qualified {
    /// Rate of reads alone.
    pub read_bytes_per_second: Option<u64>,
    /// Rate of writes alone.
    pub write_bytes_per_second: Option<u64>,
}

/// Rates that a realistic run on drives at the same time reached, in bytes per second of all of them.
///
/// Something that they share may be slower than they are together: a switch, a host's bus, its processors.
/// The parts do not tell; this does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// Rate of reads alone.
    pub read_bytes_per_second: u64,
    /// Rate of writes alone, parity included.
    pub write_bytes_per_second: u64,
    /// Drives that took part.
    pub drives: u32,
}

impl Whole {
    /// Each drive's part of the rates: the same for all. A drive that did not take part has it too: it is the
    /// best that is known of what it shares.
    pub fn share(&self) -> Qualified {
        let of = |rate: u64| rate.checked_div(u64::from(self.drives)).filter(|rate| *rate > 0);
        Qualified {
            read_bytes_per_second: of(self.read_bytes_per_second),
            write_bytes_per_second: of(self.write_bytes_per_second),
        }
    }
}

/// Rates at which data is given out on a network path (`braid_schedule::RailRate`), not those of the path
/// itself; `None`: not known, and not booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rail {
    /// Towards the drive or client.
    pub in_bytes_per_second: Option<u64>,
    /// Away from it.
    pub out_bytes_per_second: Option<u64>,
}

/// Cost of work for processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessorCost {
    /// Time of a request, in nanoseconds.
    pub request_ns: u64,
    /// Time of a byte sent or received, checksums included, in picoseconds.
    pub byte_ps: u64,
    /// Time of a byte of an operand of parity arithmetic, in picoseconds. Drives do none that is counted.
    pub arithmetic_byte_ps: u64,
    /// Processors that share the work.
    pub cores: u32,
}

/// All that is known of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientParts {
    /// Identity of the client: reservations of one client add up.
    pub client: ClientId,
    /// Rates of its rail.
    pub rail: Rail,
    /// Cost of requests, bytes and parity; `None`: not booked.
    pub processor: Option<ProcessorCost>,
}

/// Most that may be used of each part each second; `i64::MAX`: not booked.
pub(crate) type Capacity = [i64; PARTS];

impl DriveParts {
    /// The share, in thousandths, of all that the drive can do.
    pub(crate) fn capacity(&self, share_permille: u32) -> Capacity {
        let service = u64::from(self.service_permille.min(1000));
        Part::ALL.map(|part| match part {
            Part::Disk | Part::Whole => part_of(Some(SECOND_NS * service / 1000), share_permille),
            Part::RailIn => part_of(self.rail.in_bytes_per_second, share_permille),
            Part::RailOut => part_of(self.rail.out_bytes_per_second, share_permille),
            Part::Processor => part_of(self.processor.map(time), share_permille),
        })
    }

    /// Returns true if everything costs the same on both drives.
    pub(crate) fn is_like(&self, other: &DriveParts) -> bool {
        self.cost == other.cost
            && self.qualified == other.qualified
            && self.processor == other.processor
            && self.moved_permille == other.moved_permille
    }
}

impl ClientParts {
    /// The share, in thousandths, of all that the client can do.
    pub(crate) fn capacity(&self, share_permille: u32) -> Capacity {
        Part::ALL.map(|part| match part {
            Part::Disk | Part::Whole => i64::MAX,
            Part::RailIn => part_of(self.rail.in_bytes_per_second, share_permille),
            Part::RailOut => part_of(self.rail.out_bytes_per_second, share_permille),
            Part::Processor => part_of(self.processor.map(time), share_permille),
        })
    }
}

fn time(cost: ProcessorCost) -> u64 {
    SECOND_NS.saturating_mul(u64::from(cost.cores))
}

fn part_of(all: Option<u64>, share_permille: u32) -> i64 {
    let share = |all: u64| u128::from(all) * u128::from(share_permille) / 1000;
    all.map_or(i64::MAX, |all| i64::try_from(share(all)).unwrap_or(i64::MAX))
}
