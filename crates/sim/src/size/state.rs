//! The utilisation of a cluster's parts, with all drives there or with some lost.

use std::fmt;

use braid_admission::count::{ColumnCount, Counted};
use braid_admission::{Access, Prices};
use braid_layout::{ColumnMask, Shape};
use braid_schedule::Direction;
use serde::Serialize;

use super::Ask;
use crate::model::DiskModel;
use crate::number::{SECOND, real};

/// A kind of part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Disk,
    /// The links of the drives' hosts.
    DriveLink,
    /// The links of the clients' hosts.
    ClientLink,
    /// The processors of the drives' hosts.
    DriveProcessor,
    /// The processors of the clients' hosts.
    ClientProcessor,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Disk => "disks",
            Part::DriveLink => "links of the drives' hosts",
            Part::ClientLink => "links of the clients' hosts",
            Part::DriveProcessor => "processors of the drives' hosts",
            Part::ClientProcessor => "processors of the clients' hosts",
        })
    }
}

/// Utilisation of each kind of part, 0 to 1; above 1 the part is overloaded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Utilisation {
    pub disk: f64,
    /// Links of the drives' hosts, in the busier direction.
    pub drive_link: f64,
    /// Links of the clients' hosts, in the busier direction.
    pub client_link: f64,
    /// Processors of the drives' hosts.
    pub drive_processor: f64,
    /// Processors of the clients' hosts.
    pub client_processor: f64,
}

impl Utilisation {
    /// The busiest part, and its utilisation.
    pub fn busiest(&self) -> (Part, f64) {
        let parts = [
            (Part::Disk, self.disk),
            (Part::DriveLink, self.drive_link),
            (Part::ClientLink, self.client_link),
            (Part::DriveProcessor, self.drive_processor),
            (Part::ClientProcessor, self.client_processor),
        ];
        parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("there are parts")
    }
}

/// Mean cost of the plan sets of whole stripes, over as many stripes as there are columns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StripeCost {
    /// Units read for each stripe that is read.
    pub(super) reads: f64,
    /// Units written for each stripe that is written.
    pub(super) writes: f64,
    /// Bytes of operands of arithmetic, for each stripe read and for each stripe written.
    pub(super) read_arithmetic: f64,
    pub(super) write_arithmetic: f64,
}

impl StripeCost {
    /// The cost for a shape with this number of columns lost; `None` if a plan set cannot be made.
    pub(super) fn of(prices: &mut Prices, shape: Shape, lost: u8) -> Option<StripeCost> {
        let lost = ColumnMask::all(lost);
        let read = prices.counted(shape, lost, Direction::Read, Access::Whole).ok()?;
        let write = prices.counted(shape, lost, Direction::Write, Access::Whole).ok()?;
        let unit = f64::from(shape.unit_bytes());
        let mean = |counted: &Counted, bytes: u64| {
            let stripes = real(counted.file_bytes() / shape.stripe_bytes());
            real(bytes * counted.scale()) / stripes
        };
        let sum = |counted: &Counted, of: fn(&ColumnCount) -> u64| counted.all().columns.iter().map(of).sum();
        Some(StripeCost {
            reads: mean(&read, sum(&read, |column| column.out_bytes)) / unit,
            writes: mean(&write, sum(&write, |column| column.in_bytes)) / unit,
            read_arithmetic: mean(&read, read.all().arithmetic_bytes),
            write_arithmetic: mean(&write, write.all().arithmetic_bytes),
        })
    }
}

/// Utilisation of the busiest parts of this many drives, if `lost` of them are lost, none of them on the
/// fullest host.
pub(super) fn state(ask: &Ask, shape: Shape, cost: &StripeCost, drives: u32, lost: u32) -> Utilisation {
    let all = f64::from(ask.streams) * ask.rate.0;
    let stripes = all / real(shape.stripe_bytes());
    let reads = stripes * ask.read * cost.reads;
    let writes = stripes * (1.0 - ask.read) * cost.writes;
    let unit = u64::from(shape.unit_bytes());
    let disk = reads * disk_share(&ask.disk, false, unit) + writes * disk_share(&ask.disk, true, unit);
    let wire = real(ask.link.on_the_wire(unit)) / ask.link.rate.0;
    let left = f64::from(drives.saturating_sub(lost).max(1));
    // The host that has most drives, and the client that has most streams, determine the shares.
    let hosts = left / f64::from(fullest(drives, ask.drives_per_host));
    let clients = f64::from(ask.streams) / f64::from(ask.streams.div_ceil(ask.clients));
    let busier = reads.max(writes) * wire;
    let processor = &ask.processor;
    let message = processor.time(unit, true) / SECOND;
    let checksum = processor.checksum_time(unit) / SECOND;
    let parity = |bytes: f64| processor.parity.map_or(0.0, |rate| bytes / rate.0);
    let arithmetic = stripes
        * (ask.read * parity(cost.read_arithmetic) + (1.0 - ask.read) * parity(cost.write_arithmetic));
    let cores = f64::from(processor.cores);
    Utilisation {
        disk: disk / left,
        drive_link: busier / hosts,
        client_link: busier / clients,
        drive_processor: ((reads + writes) * message + writes * checksum) / hosts / cores,
        client_processor: ((reads + writes) * (message + checksum) + arithmetic) / clients / cores,
    }
}

/// Drives of the fullest host, if they are spread evenly over as few hosts as possible.
pub(super) fn fullest(drives: u32, drives_per_host: u32) -> u32 {
    drives.max(1).div_ceil(drives.max(1).div_ceil(drives_per_host))
}

/// Share of a second that one unit takes of a disk: of its transfers, or of its lanes for positioning.
pub(super) fn disk_share(disk: &DiskModel, write: bool, unit: u64) -> f64 {
    let position = disk.positioning(write) / SECOND;
    let transfer = disk.transfer(write, unit) / SECOND;
    if disk.lanes == 1 {
        position + transfer
    } else {
        transfer.max((position + transfer) / f64::from(disk.lanes))
    }
}
