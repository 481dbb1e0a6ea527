//! The checks of a spec.

use braid_layout::{Shape, scheme::PARITY_MAX};

use super::{Pattern, Spec, SpecError};
use crate::model::{
    CostModel, DiskModel, Distribution, LinkModel, Medium, Placement, ProcessorModel, Requests,
};
use crate::number::index;

/// Most drives, and most clients.
const PARTS_MAX: u32 = 4096;
/// Highest rate of a rail, as a percentage of the link's.
const PERCENT_MAX: u32 = 10_000;
/// Most rails of a cluster.
const RAILS_MAX: u32 = 16;
/// Most files of a spec.
const FILES_MAX: u32 = 65_536;
/// Most requests in flight of a closed load, of all clients together.
const IN_FLIGHT_MAX: u64 = 1_000_000;
/// Most bytes of a request.
pub(crate) const REQUEST_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of a message or a frame beside its data.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;

fn error(key: &str, what: impl Into<String>) -> SpecError {
    SpecError::new(key, what)
}

/// Refuses a number outside `low..=high`.
fn within(key: &str, value: u32, low: u32, high: u32) -> Result<(), SpecError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(error(key, format!("{value} is not possible: give {low} to {high}")))
}

impl Spec {
    /// Shape of all files.
    pub fn shape(&self) -> Result<Shape, SpecError> {
        let unit = u32::try_from(self.files.unit.0)
            .map_err(|_| error("files.unit", format!("a unit of {}: at most 64M", self.files.unit)))?;
        Shape::parse(&self.files.scheme, self.files.width, unit).map_err(|cause| {
            let key = match cause {
                braid_layout::SchemeError::Unit(_) => "files.unit",
                braid_layout::SchemeError::NoWidth(_) | braid_layout::SchemeError::Width { .. } => {
                    "files.width"
                }
                _ => "files.scheme",
            };
            error(key, cause.to_string())
        })
    }

    /// Bytes of each file, a multiple of the stripe.
    pub(crate) fn file_bytes(&self) -> u64 {
        let stripe = self.shape().map_or(1, |shape| shape.stripe_bytes());
        self.files.size.0.div_ceil(stripe).max(1) * stripe
    }

    /// Checks all of it.
    pub(super) fn check_all(&self) -> Result<(), SpecError> {
        self.check_run()?;
        self.check_cluster()?;
        self.parts.check()?;
        if self.load.is_empty() {
            return Err(error("load", "there is no load: add a [[load]]"));
        }
        for (index, load) in self.load.iter().enumerate() {
            let key = format!("load.{index}");
            load.check(&key)?;
            if self.load[..index].iter().any(|other| other.name == load.name) {
                let what = format!("two loads have the name \"{}\": give each one of its own", load.name);
                return Err(error(&format!("{key}.name"), what));
            }
            let most = load.size_max();
            if most > REQUEST_BYTES_MAX {
                return Err(error(&format!("{key}.size"), format!("requests of {most} bytes: at most 1G")));
            }
            if most > self.file_bytes() && load.trace.is_none() {
                let what =
                    format!("requests of {most} bytes do not fit files of {} bytes", self.file_bytes());
                return Err(error(&format!("{key}.size"), what));
            }
            let in_flight = u64::from(load.outstanding.unwrap_or(0)) * u64::from(self.cluster.clients);
            if in_flight > IN_FLIGHT_MAX {
                let what = format!("{in_flight} requests in flight of all clients: at most {IN_FLIGHT_MAX}");
                return Err(error(&format!("{key}.outstanding"), what));
            }
            if load.fresh && load.pattern == Pattern::Random {
                let what = "only sequential and n-to-1 writes can be at the end of a file";
                return Err(error(&format!("{key}.fresh"), what));
            }
        }
        if self.load.iter().any(|load| load.trace.is_some()) && self.load.len() > 1 {
            return Err(error("load", "a trace is the only load of its run: leave the others out"));
        }
        Ok(())
    }

    fn check_run(&self) -> Result<(), SpecError> {
        let run = &self.run;
        if ![90, 95, 99].contains(&run.confidence) {
            return Err(error("run.confidence", format!("{} is not 90, 95 or 99", run.confidence)));
        }
        if !(run.precision > 0.0 && run.precision < 1.0) {
            return Err(error("run.precision", format!("{} is not between 0 and 1", run.precision)));
        }
        within("run.requests_min", run.requests_min, 100, 10_000_000)?;
        within("run.requests_max", run.requests_max, run.requests_min, 10_000_000)?;
        // TOML has signed numbers only.
        for (key, number) in [("seed", self.seed), ("run.events_max", run.events_max)] {
            if i64::try_from(number).is_err() {
                return Err(error(key, format!("{number} is not possible: give at most {}", i64::MAX)));
            }
        }
        if run.events_max == 0 {
            return Err(error("run.events_max", "without an event nothing happens; give 1 or more"));
        }
        Ok(())
    }

    fn check_cluster(&self) -> Result<(), SpecError> {
        let cluster = &self.cluster;
        within("cluster.clients", cluster.clients, 1, PARTS_MAX)?;
        within("cluster.drives", cluster.drives, 1, PARTS_MAX)?;
        within("cluster.drives_per_host", cluster.drives_per_host, 1, cluster.drives)?;
        within("cluster.rails", cluster.rails, 1, RAILS_MAX)?;
        let percents = &cluster.rail_percents;
        if !percents.is_empty() && percents.len() != index(u64::from(cluster.rails)) {
            let what = format!(
                "it has {} numbers, but cluster.rails is {}: give one for each rail, or none",
                percents.len(),
                cluster.rails
            );
            return Err(error("cluster.rail_percents", what));
        }
        percents.iter().try_for_each(|&percent| within("cluster.rail_percents", percent, 1, PERCENT_MAX))?;
        within("files.count", self.files.count, 1, FILES_MAX)?;
        let shape = self.shape()?;
        let width = u32::from(shape.width());
        if width > cluster.drives {
            let key = if self.files.width.is_some() { "files.width" } else { "files.scheme" };
            let what = format!(
                "{width} columns need as many drives, but cluster.drives is {}: take fewer columns or more drives",
                cluster.drives
            );
            return Err(error(key, what));
        }
        if let Some(drive) = cluster.down.iter().find(|&&drive| drive >= cluster.drives) {
            let what =
                format!("there is no drive {drive}: they have the numbers 0 to {}", cluster.drives - 1);
            return Err(error("cluster.down", what));
        }
        let mut down = cluster.down.clone();
        down.sort_unstable();
        down.dedup();
        if down.len() > usize::from(shape.m().min(PARITY_MAX)) {
            let what = format!(
                "{} drives are out, and {shape} can do without {}: files could not be read",
                down.len(),
                shape.m()
            );
            return Err(error("cluster.down", what));
        }
        Ok(())
    }
}

impl CostModel {
    /// Checks numbers whose types allow more than makes sense.
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        self.disk.check()?;
        self.link.check()?;
        let protocol = &self.protocol;
        let messages = [
            ("request", protocol.request),
            ("reply", protocol.reply),
            ("acknowledgement", protocol.acknowledgement),
        ];
        for (key, bytes) in messages {
            if bytes.0 > MESSAGE_BYTES_MAX {
                let what = format!("{bytes} of a message beside its data: at most 1M");
                return Err(error(&format!("parts.protocol.{key}"), what));
            }
        }
        if protocol.requests == Requests::Multicast && protocol.request > self.link.burst {
            let what = format!("a multicast goes in one burst, and parts.link.burst is {}", self.link.burst);
            return Err(error("parts.protocol.request", what));
        }
        self.client.check("parts.client")?;
        self.drive.check("parts.drive")?;
        if self.store.commit.0 == 0 {
            return Err(error("parts.store.commit", "a commit holds at least a byte"));
        }
        if self.store.read_ahead.0 > 0 && self.store.placement == Placement::Scattered {
            let what = "reading ahead gains nothing if units are scattered: set placement to contiguous";
            return Err(error("parts.store.read_ahead", what));
        }
        if self.store.read_ahead.0 > 0 && self.store.cache.0 < self.store.read_ahead.0 {
            let what = format!("{} read ahead need a cache of at least as much", self.store.read_ahead);
            return Err(error("parts.store.cache", what));
        }
        Ok(())
    }
}

impl DiskModel {
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        within("parts.disk.lanes", self.lanes, 1, 65_536)?;
        if self.queue == Some(0) {
            return Err(error("parts.disk.queue", "with no place to wait nothing is served; give 1 or more"));
        }
        if self.queue.is_some() && self.retry.0 == 0 {
            return Err(error(
                "parts.disk.retry",
                "a refused command needs a time after which it is retried",
            ));
        }
        let times = [
            ("seek", Some(&self.seek)),
            ("rotation", Some(&self.rotation)),
            ("write_seek", self.write_seek.as_ref()),
        ];
        for (name, time) in times {
            if let Some(Distribution::Uniform([low, high])) = time
                && low > high
            {
                let what = format!("uniform from {low} to {high}: the first is the lower one");
                return Err(error(&format!("parts.disk.{name}"), what));
            }
        }
        Ok(())
    }
}

impl LinkModel {
    pub(crate) fn check(&self) -> Result<(), SpecError> {
        for (key, bytes) in [("parts.link.payload", self.payload), ("parts.link.burst", self.burst)] {
            if bytes.0 == 0 {
                return Err(error(key, "0 bytes carry nothing"));
            }
        }
        if self.overhead.0 > MESSAGE_BYTES_MAX {
            let what = format!("{} on the wire beside each frame: at most 1M", self.overhead);
            return Err(error("parts.link.overhead", what));
        }
        if self.client_rate.is_some() && self.medium == Medium::Shared {
            let what = "all hosts share one medium, and so its rate: set medium to switch";
            return Err(error("parts.link.client_rate", what));
        }
        if self.bucket.is_some() && self.medium == Medium::Shared {
            let what = "a shared medium has no ports, and so no bucket: set medium to switch";
            return Err(error("parts.link.bucket", what));
        }
        if self.queue.is_some_and(|queue| queue < self.burst) {
            let what =
                format!("a burst of {} never fits: give at least as much, or a smaller burst", self.burst);
            return Err(error("parts.link.queue", what));
        }
        if self.queue.is_some() && self.resend.0 == 0 {
            return Err(error("parts.link.resend", "a lost burst needs a time after which it is sent again"));
        }
        Ok(())
    }
}

impl ProcessorModel {
    fn check(&self, key: &str) -> Result<(), SpecError> {
        let within_key = |part: &str| format!("{key}.{part}");
        if !(self.mips > 0.0 && self.mips.is_finite()) {
            return Err(error(
                &within_key("mips"),
                format!("{} MIPS do nothing: give more than 0", self.mips),
            ));
        }
        within(&within_key("cores"), self.cores, 1, 4096)?;
        let costs =
            [("per_message", self.per_message), ("per_packet", self.per_packet), ("per_byte", self.per_byte)];
        for (part, cost) in costs {
            if !(cost >= 0.0 && cost.is_finite()) {
                return Err(error(&within_key(part), format!("{cost} instructions: give 0 or more")));
            }
        }
        if self.packet.0 == 0 {
            return Err(error(&within_key("packet"), "a packet holds at least a byte"));
        }
        Ok(())
    }
}
