//! A cost model from short measured runs: what `braid bench calibrate` finds out is turned into the parts of
//! a spec.
//!
//! Processor costs follow from counted processor time. What no counter shows, a message's way from one
//! process to another and a commit, follows from the time that a small operation takes: it is the time that
//! is left when the same operation is simulated without them.

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
/// What instructions are counted in: one is a nanosecond.
const MIPS: f64 = 1000.0;
/// A cost per byte below which there is none, in nanoseconds.
const NOTHING: f64 = 1e-4;

/// What was measured on a cluster whose links are not the limit. Times are in nanoseconds of one processor,
/// and means.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The files' layout, without a drive away.
    pub files: Files,
    /// Drives of the cluster.
    pub drives: u32,
    /// Processor time for a byte of large reads, of the client and of all drives.
    pub read: Sides,
    /// The same for a byte of whole stripes that are written.
    pub write: Sides,
    /// Processor time for a read of [`SMALL_BYTES`].
    pub small_read: Sides,
    /// How long one takes that is alone, in seconds.
    pub small_read_seconds: f64,
    /// How long an overwrite of [`SMALL_BYTES`] takes that is alone, in seconds.
    pub small_write_seconds: f64,
    /// Bytes that a request has beside its data.
    pub request_bytes: u64,
    /// The disk that the drives are on.
    pub disk: Disk,
    /// Memory that may hold what drives have read and written.
    pub cache_bytes: u64,
}

/// A figure of both sides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sides {
    pub client: f64,
    /// That of all drives together.
    pub drives: f64,
}

/// A disk, by plain files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Disk {
    /// Bytes a second that are read one after another.
    pub read_rate: f64,
    /// Bytes a second that are written one after another and synced.
    pub write_rate: f64,
    /// From a small read's beginning to its bytes, in nanoseconds.
    pub positioning: f64,
}

impl Measured {
    /// The costs of the parts.
    pub fn fit(&self) -> CostModel {
        let mut model = self.processors();
        let left = |measured: f64, model: &CostModel, read: bool, parts: f64| {
            let simulated = self.small(model, read);
            Span(whole(((measured - simulated) / parts).max(0.0) * SECOND))
        };
        // A request and its answer.
        model.link.latency = left(self.small_read_seconds, &model, true, 2.0);
        // The data drive's commit, and then the parity drive's.
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

    /// Data columns and all columns.
    fn shape(&self) -> (f64, f64) {
        let spec = self.spec(Load::closed("small", 1, Bytes(SMALL_BYTES)), None);
        let shape = spec.shape().expect("a cluster was made with it");
        (f64::from(shape.k()), f64::from(shape.width()))
    }

    /// How long a small operation takes alone, in seconds.
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

/// A rate of so many nanoseconds for a byte; `None` if that is nothing.
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
        // 0.2 ns more for a byte than 5/4 of it sent; 0.15 ns more than a byte read.
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
