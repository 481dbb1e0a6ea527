//! Sizing: the fewest drives that carry a number of streams and bytes, and survive a number of losses.
//!
//! Sizing is arithmetic on the same cost models and plan sets as the simulator's: the cost of a stripe is
//! counted in the instructions of its plan sets, with all columns there, and with as many lost as must be
//! survived. A cluster is large enough if its busiest part stays below [`BUSY_MAX`], with the losses and
//! without. The drives of a host that is not full are as busy as all others; its link is less busy.
//!
//! Then the manager's admission is asked for all streams, one after another, and drives are added until it
//! lets them in: what is bought for them can be promised to them.
//!
//! Assumptions: streams go through their files stripe by stripe, and are so many that every unit needs
//! positioning; files are declustered over all drives; drives are at most 85 % full.

mod admitted;
mod search;
mod state;

use serde::Serialize;

use crate::model::{DiskModel, LinkModel, ProcessorModel};
use crate::units::{Bytes, Rate, Span};

pub use search::{SizeError, size};
pub use state::{Part, Utilisation};

/// Greatest utilisation of a part: above it, requests wait too long.
pub const BUSY_MAX: f64 = 0.8;
/// Greatest share of a drive's capacity that is used.
pub const FULL_MAX: f64 = 0.85;

/// Demands on a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Streams at the same time.
    pub streams: u32,
    pub rate: Rate,
    /// Share of streams that read, 0 to 1; the others write.
    pub read: f64,
    /// Bytes of the files.
    pub capacity: Bytes,
    /// Drives that may be lost at the same time; 0 to 4.
    pub survive: u8,
    /// Each drive's disk.
    pub disk: DiskModel,
    pub disk_capacity: Bytes,
    /// Each host's link.
    pub link: LinkModel,
    /// Each host's processor.
    pub processor: ProcessorModel,
    /// Most drives of a host.
    pub drives_per_host: u32,
    /// Hosts that run the streams.
    pub clients: u32,
}

/// The cluster to buy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    pub drives: u32,
    /// Hosts of drives.
    pub hosts: u32,
    /// Scheme, as `braid volume create` takes it.
    pub scheme: String,
    pub width: u8,
    pub unit: Bytes,
    /// True if files survive the loss of a host with all of its drives: no host holds more of a file's
    /// columns than may be lost.
    pub survives_a_host: bool,
    /// Drives that the capacity alone needs.
    pub drives_for_capacity: u32,
    /// Streams, of those that were asked for, that admission would let in with a promise of their rate. Fewer
    /// than all only if more drives do not help, as a drive's part of its host's link is too little for a
    /// stream.
    pub admitted_streams: u32,
    /// Drives that the streams alone need.
    pub drives_for_streams: u32,
    /// Share of the drives' capacity that is used, 0 to 1.
    pub full: f64,
    /// Utilisation of all parts with all drives there.
    pub healthy: Utilisation,
    /// Utilisation of all parts with as many drives lost as must be survived.
    pub degraded: Utilisation,
    /// The part that limits.
    pub bottleneck: Part,
    /// True if that part is busier with the losses than without. It may be less busy: with columns lost,
    /// less is written.
    pub with_losses: bool,
    /// Number of streams at which that part is busy all the time.
    pub breaks_at_streams: f64,
    /// Time to rebuild a lost drive's columns beside the streams, if nothing delays it. Absent: no capacity
    /// is left for it, or nothing is redundant, or nothing is stored.
    pub rebuild: Option<Span>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Preset;

    fn ask() -> Ask {
        Ask {
            streams: 40,
            rate: Rate(25e6),
            read: 1.0,
            capacity: Bytes(200_000_000_000_000),
            survive: 1,
            disk: DiskModel::preset("hdd-18tb").expect("it is listed"),
            disk_capacity: Bytes(18_000_000_000_000),
            link: LinkModel::preset("25GbE").expect("it is listed"),
            processor: ProcessorModel::preset("server-2026").expect("it is listed"),
            drives_per_host: 12,
            clients: 40,
        }
    }

    #[test]
    fn the_example_of_the_help() {
        let answer = size(&ask()).expect("it is possible");
        // 200 TB without parity in 85 % of 18 TB need 13.1 drives: there can be no fewer than 14.
        assert!(answer.drives >= 14 && answer.drives <= 20, "{answer:?}");
        assert_eq!(answer.drives, answer.drives_for_capacity.max(answer.drives_for_streams));
        assert!(answer.degraded.busiest().1 <= BUSY_MAX, "{answer:?}");
        assert!(answer.healthy.busiest().1 <= BUSY_MAX, "{answer:?}");
        assert!(answer.full <= FULL_MAX && answer.rebuild.is_some());
        assert!(answer.breaks_at_streams > 40.0);
        assert_eq!(answer.admitted_streams, 40);
        assert!(!answer.survives_a_host, "two hosts hold nine columns");
        let spread = size(&Ask { drives_per_host: 1, ..ask() }).expect("it is possible");
        assert!(spread.survives_a_host && spread.hosts == spread.drives);
    }

    #[test]
    fn more_streams_need_more_drives_and_break_something_else() {
        let few = size(&ask()).expect("it is possible");
        let many = size(&Ask { streams: 400, clients: 400, ..ask() }).expect("it is possible");
        assert!(many.drives_for_streams > 3 * few.drives_for_streams, "{many:?}");
        assert!(many.drives >= many.drives_for_capacity.max(many.drives_for_streams));
        let narrow = Ask {
            link: LinkModel::preset("1GbE").expect("it is listed"),
            streams: 400,
            clients: 400,
            ..ask()
        };
        let narrow = size(&narrow).expect("hosts can be added");
        assert_eq!((few.admitted_streams, many.admitted_streams, narrow.admitted_streams), (40, 400, 400));
        assert!(matches!(narrow.bottleneck, Part::DriveLink | Part::ClientLink), "{narrow:?}");
    }

    #[test]
    fn what_only_writes_is_carried_with_all_drives_there() {
        for survive in 1..=4 {
            let terabyte = Bytes(1_000_000_000_000);
            let ask = Ask { streams: 400, clients: 400, read: 0.0, capacity: terabyte, survive, ..ask() };
            let answer = size(&ask).expect("it is possible");
            assert!(answer.healthy.busiest().1 <= BUSY_MAX && answer.degraded.busiest().1 <= BUSY_MAX);
            assert_eq!(answer.with_losses, answer.degraded.busiest().1 > answer.healthy.busiest().1);
            assert!(answer.breaks_at_streams >= 500.0, "{answer:?}");
        }
    }

    #[test]
    fn no_drive_is_more_than_the_capacity_needs() {
        // 76 TB in 85 % of 18 TB, with one of six columns parity, need 5.96 drives; 107 TB with one of
        // eight 7.99.
        for (terabytes, drives) in [(76, 6), (107, 8)] {
            let capacity = Bytes(terabytes * 1_000_000_000_000);
            let ask = Ask { streams: 1, clients: 1, rate: Rate(1e7), capacity, ..ask() };
            assert_eq!(size(&ask).expect("it is possible").drives, drives);
        }
    }

    #[test]
    fn the_fullest_host_and_client_count() {
        // Four drives on two hosts, one of them lost: one host has two of the remaining three.
        let gigabit = LinkModel::preset("1GbE").expect("it is listed");
        let flash = DiskModel::preset("nvme-2026").expect("it is listed");
        let rate = Rate(1e7);
        let few = Ask { disk: flash, link: gigabit, rate, streams: 18, drives_per_host: 2, ..ask() };
        let few = Ask { capacity: Bytes(1_000_000_000_000), ..few };
        let answer = size(&few).expect("it is possible");
        let hosts = answer.hosts;
        assert!(answer.drives > 4 && hosts > 2, "{answer:?}");
        // A stream runs on one host, however many there are.
        let one = Ask { streams: 1, clients: 100, rate: Rate(10e9), ..few };
        assert!(size(&one).is_err(), "a client's link has a gigabit");
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let fast = Ask { rate: Rate(10e9), ..ask() };
        let error = size(&fast).expect_err("no link of a client carries it").to_string();
        assert!(error.contains("client"), "{error}");
        assert!(size(&Ask { survive: 5, ..ask() }).is_err());
        assert!(size(&Ask { streams: 0, ..ask() }).is_err());
    }

    #[test]
    fn every_loss_that_is_survived_costs() {
        let drives = |survive| size(&Ask { survive, ..ask() }).expect("it is possible").drives;
        assert!(drives(0) <= drives(1) && drives(1) <= drives(2) && drives(2) <= drives(3));
    }
}
