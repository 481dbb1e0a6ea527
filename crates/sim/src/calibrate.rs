//! A cost model from short measured runs: what `braid-lab bench calibrate` finds out is turned into the parts
//! of a spec.
//!
//! Processor costs follow from counted processor time. Two costs have no counter: a message's way from one
//! process to another, and a commit. They follow from a small operation, which takes less time when it is
//! simulated without them: the difference is theirs.

use crate::Spec;
use crate::model::{
    CostModel, DiskModel, Distribution, LinkModel, Placement, Preset, ProcessorModel, ProtocolModel,
    StoreModel,
};
use crate::number::{SECOND, real, whole};
use crate::spec::{Cluster, Files, Load, Run};
use crate::units::{Bytes, Rate, Span};

/// Bytes of a small operation.
pub const SMALL_BYTES: u64 = 4096;
/// Speed of the fitted processors, in million instructions a second: an instruction takes a nanosecond.
const MIPS: f64 = 1000.0;
/// Cost of a byte, in nanoseconds, below which it counts as none.
const NOTHING: f64 = 1e-4;

/// Measurements of a cluster whose links are not the limit. Times are means, in nanoseconds of one
/// processor unless a field says otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Layout of the files; no drive is away.
    pub files: Files,
    /// Drives of the cluster.
    pub drives: u32,
    /// Processor time for a byte of large reads, of the client and of all drives.
    pub read: Sides,
    /// Processor time for a byte of whole stripes that are written, of the client and of all drives.
    pub write: Sides,
    /// Processor time for a read of [`SMALL_BYTES`].
    pub small_read: Sides,
    /// Time of a read of [`SMALL_BYTES`] that runs alone, in seconds.
    pub small_read_seconds: f64,
    /// Time of an overwrite of [`SMALL_BYTES`] that runs alone, in seconds.
    pub small_write_seconds: f64,
    /// Bytes of a request beside its data.
    pub request_bytes: u64,
    /// Disk that the drives are on.
    pub disk: Disk,
    /// Bytes of memory that can cache what the drives have read and written.
    pub cache_bytes: u64,
}

/// A measured figure of the client and of the drives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sides {
    pub client: f64,
    /// Figure of all drives together.
    pub drives: f64,
}

/// A disk, measured with plain files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Disk {
    /// Bytes a second of sequential reads.
    pub read_rate: f64,
    /// Bytes a second of sequential writes that are synced.
    pub write_rate: f64,
    /// Time from the beginning of a small read to its bytes, in nanoseconds.
    pub positioning: f64,
}

impl Measured {
    /// The cost model that reproduces the measurements.
    pub fn fit(&self) -> CostModel {
        let mut model = self.processors();
        let left = |measured: f64, model: &CostModel, read: bool, parts: f64| {
            let simulated = self.small(model, read);
            Span(whole(((measured - simulated) / parts).max(0.0) * SECOND))
        };
        // A read has two messages: the request and its answer.
        model.link.latency = left(self.small_read_seconds, &model, true, 2.0);
        // An overwrite has two commits: the data drive's, and then the parity drive's.
        model.store.sync = left(self.small_write_seconds, &model, false, 2.0);
        model
    }

    fn processors(&self) -> CostModel {
        let (k, width) = self.shape();
        let stored = width / k;
        let small = real(SMALL_BYTES);
        let processor = |per_byte: f64, small_op: f64| ProcessorModel {
            mips: MIPS,
            cores: 1,
            per_message: ((small_op - small * per_byte) / 2.0).max(0.0),
            per_packet: 0.0,
            per_byte,
            packet: Bytes(64 << 10),
            parity: None,
            checksum: None,
        };
        let mut client = processor(self.read.client, self.small_read.client);
        client.parity = rate(self.write.client - stored * self.read.client);
        let mut drive = processor(self.read.drives, self.small_read.drives);
        drive.checksum = rate(self.write.drives / stored - self.read.drives);
        let positioning = Distribution::Constant(Span(whole(self.disk.positioning)));
        CostModel {
            disk: DiskModel {
                seek: positioning,
                rotation: Distribution::ZERO,
                write_seek: Some(Distribution::ZERO),
                read_rate: Rate(self.disk.read_rate),
                write_rate: Rate(self.disk.write_rate),
                lanes: 1,
                queue: None,
                retry: Span(1_000_000),
            },
            link: LinkModel::preset("free").expect("it is listed"),
            client,
            drive,
            store: StoreModel {
                placement: Placement::Contiguous,
                log: true,
                cache: Bytes(self.cache_bytes),
                ..StoreModel::default()
            },
            protocol: ProtocolModel { request: Bytes(self.request_bytes), ..ProtocolModel::default() },
        }
    }

    /// Numbers of data columns and of all columns.
    fn shape(&self) -> (f64, f64) {
        let spec = self.spec(Load::closed("small", 1, Bytes(SMALL_BYTES)), None);
        let shape = spec.shape().expect("a cluster was made with it");
        (f64::from(shape.k()), f64::from(shape.width()))
    }

    /// Simulated time of a small operation that runs alone, in seconds.
    fn small(&self, model: &CostModel, read: bool) -> f64 {
        let mut load = Load::closed("small", 1, Bytes(SMALL_BYTES));
        load.read = if read { 1.0 } else { 0.0 };
        crate::run(&self.spec(load, Some(model)), &[]).loads[0].milliseconds.mean / 1e3
    }

    fn spec(&self, load: Load, model: Option<&CostModel>) -> Spec {
        Spec {
            title: String::new(),
            seed: 1,
            run: Run::default(),
            cluster: Cluster {
                clients: 1,
                drives: self.drives,
                drives_per_host: 1,
                rails: 1,
                rail_percents: Vec::new(),
                down: Vec::new(),
            },
            files: self.files.clone(),
            parts: model.cloned().unwrap_or_else(CostModel::free),
            load: vec![load],
            sweep: Vec::new(),
        }
    }
}

impl CostModel {
    /// Parts that cost nothing.
    pub(crate) fn free() -> CostModel {
        let processor = ProcessorModel::preset("free").expect("it is listed");
        CostModel {
            disk: DiskModel::preset("free").expect("it is listed"),
            link: LinkModel::preset("free").expect("it is listed"),
            client: processor.clone(),
            drive: processor,
            store: StoreModel::default(),
            protocol: ProtocolModel::default(),
        }
    }
}

/// The rate at which a byte takes `ns` nanoseconds; `None` if the time is negligible.
fn rate(ns: f64) -> Option<Rate> {
    (ns > NOTHING).then(|| Rate(SECOND / ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Measured {
        Measured {
            files: Files {
                count: 1,
                size: Bytes(64 << 20),
                scheme: "raid5".into(),
                width: Some(5),
                unit: Bytes(512 << 10),
            },
            drives: 5,
            read: Sides { client: 0.5, drives: 0.25 },
            write: Sides { client: 0.825, drives: 0.5 },
            small_read: Sides { client: 42_048.0, drives: 21_024.0 },
            small_read_seconds: 100e-6,
            small_write_seconds: 400e-6,
            request_bytes: 200,
            disk: Disk { read_rate: 5e9, write_rate: 2e9, positioning: 1000.0 },
            cache_bytes: 1 << 30,
        }
    }

    #[test]
    fn what_is_simulated_takes_as_long_as_what_was_measured() {
        let measured = measured();
        let model = measured.fit();
        assert!((model.client.per_message - 20_000.0).abs() < 1.0, "{}", model.client.per_message);
        assert!((model.drive.per_message - 10_000.0).abs() < 1.0, "{}", model.drive.per_message);
        // A written byte costs the client 0.2 ns more than 5/4 of a byte read: its parity. A stored byte
        // costs the drives 0.15 ns more than a byte read: its checksum.
        assert!((model.client.parity.expect("it costs").0 / 5e9 - 1.0).abs() < 1e-6);
        assert!((model.drive.checksum.expect("it costs").0 * 0.15 / 1e9 - 1.0).abs() < 1e-6);
        for (read, seconds) in [(true, 100e-6), (false, 400e-6)] {
            let simulated = measured.small(&model, read);
            assert!((simulated / seconds - 1.0).abs() < 0.02, "{simulated} for {seconds}");
        }
    }

    #[test]
    fn what_costs_less_than_its_parts_costs_nothing_more() {
        let mut measured = measured();
        measured.write = Sides { client: 0.1, drives: 0.1 };
        (measured.small_read_seconds, measured.small_write_seconds) = (1e-6, 1e-6);
        let model = measured.fit();
        assert_eq!((model.client.parity, model.drive.checksum), (None, None));
        assert_eq!((model.link.latency, model.store.sync), (Span(0), Span(0)));
    }
}
