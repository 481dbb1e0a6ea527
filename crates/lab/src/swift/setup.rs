//! The paper's model as a spec.
//!
//! From section 5 and 5.1: hosts of 100 MIPS, a token ring of 1 Gb/s, 1500 instructions for a packet and
//! one for each byte, at each end; reads multicast a small request; a disk finishes a request's blocks one
//! after the other; every block costs a seek and a rotational delay, which are independent and uniform; a
//! block is sent as soon as it is read; a write's blocks are sent and each is acknowledged when it is on
//! the disk; no cache, no parity, no read-ahead; reads to writes 4:1; exponential intervals.
//!
//! Assumptions where the text leaves a choice:
//!
//! - A1: a block travels as one packet ("as the size of the packet increases, the protocol cost decreases
//!   proportionally"); requests and acknowledgements are packets of 64 bytes.
//! - A2: uniform times are from 0 to twice their mean.
//! - A3: a KB has 1024 bytes, and 2.5 MB/s are 2500 KB/s: only so 32 KB take 12.8 ms, and 16 + 8.3 + 12.8 are
//!   the "about 37".
//! - A4: eight clients. Their number is not given. It matters little: one client's processor would be 25 %
//!   busy at 22 requests a second.
//! - A5: 10 us to acquire the token: half a walk around a ring of this size.
//! - A6: each block of a write is acknowledged by itself, and a message costs its receiver as much as its
//!   sender. One acknowledgement from each agent would fit the text too.
//! - A7: a request begins at any multiple of its own size in a large object.

use braid_sim::model::{CostModel, DiskModel, Placement, Preset, ProtocolModel, Requests, StoreModel};
use braid_sim::spec::{Cluster, Files, Load, Run, Spec};
use braid_sim::units::Bytes;

/// Share of reads: 4:1 (section 5.1).
const READS: f64 = 0.8;

/// One configuration of the paper's simulator.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setup {
    /// The disk of every storage agent.
    pub(crate) disk: DiskModel,
    pub(crate) drives: u32,
    /// Disk transfer unit.
    pub(crate) unit: Bytes,
    /// Bytes of a client's request.
    pub(crate) request: Bytes,
    /// Requests a second.
    pub(crate) rate: f64,
}

impl Setup {
    /// A setup on the Fujitsu M2372K.
    pub(crate) fn new(drives: u32, unit_kib: u64, request_kib: u64) -> Setup {
        Setup {
            disk: named("fujitsu-m2372k"),
            drives,
            unit: Bytes(unit_kib << 10),
            request: Bytes(request_kib << 10),
            rate: 1.0,
        }
    }

    /// The setup at this rate, in requests a second.
    #[must_use]
    pub(crate) fn at(&self, rate: f64) -> Setup {
        Setup { rate, ..self.clone() }
    }

    /// Mean number of blocks of a request on each disk.
    pub(super) fn blocks_per_disk(&self) -> f64 {
        super::real(self.request.0.div_ceil(self.unit.0)) / f64::from(self.drives)
    }

    /// Requests a second that the disks can do, by arithmetic: each disk is always busy with its blocks.
    pub(crate) fn disks_limit(&self) -> f64 {
        1e3 / (self.blocks_per_disk() * self.disk.access_ms(false, self.unit.0))
    }

    pub(crate) fn spec(&self) -> Spec {
        let load = Load { read: READS, ..Load::open("requests", self.rate, self.request) };
        Spec {
            title: format!(
                "Swift, {} disks, unit {}, requests of {}, {} a second",
                self.drives, self.unit, self.request, self.rate
            ),
            seed: 1991,
            run: Run { precision: 0.02, requests_min: 1000, requests_max: 8000, ..Run::default() },
            cluster: Cluster {
                clients: 8,
                drives: self.drives,
                drives_per_host: 1,
                rails: 1,
                rail_percents: Vec::new(),
                down: Vec::new(),
            },
            files: Files {
                count: 1,
                size: Bytes(1 << 30),
                scheme: "raid0".to_owned(),
                width: u8::try_from(self.drives).ok(),
                unit: self.unit,
            },
            parts: parts(self.disk.clone()),
            load: vec![load],
            sweep: Vec::new(),
        }
    }
}

/// The paper's parts, with this disk.
pub(super) fn parts(disk: DiskModel) -> CostModel {
    CostModel {
        disk,
        link: named("swift-ring"),
        client: named("swift-1991"),
        drive: named("swift-1991"),
        store: StoreModel { placement: Placement::Scattered, whole_requests: true, ..StoreModel::default() },
        protocol: ProtocolModel {
            requests: Requests::Multicast,
            request: Bytes(64),
            reply: Bytes(0),
            acknowledgement: Bytes(64),
        },
    }
}

/// The part of this name, which must be listed.
pub(super) fn named<T: Preset>(name: &str) -> T {
    T::preset(name).expect("the name is listed")
}
