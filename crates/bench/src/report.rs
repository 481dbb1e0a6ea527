//! What an experiment found.

use serde::Serialize;

use crate::machine::{Machine, Place};

/// All rows of one run, and where it ran.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What was measured.
    pub experiment: &'static str,
    /// The release that was measured.
    pub version: &'static str,
    /// Too little work to say anything about speed: a test that it runs.
    pub quick: bool,
    /// The machine.
    pub machine: Machine,
    /// The directories measured in.
    pub places: Vec<Place>,
    /// Rates: ratios of pairs.
    pub rows: Vec<Row>,
    /// Times.
    pub times: Vec<Timing>,
    /// Write amplification, by load, then by utilisation.
    pub amplification: Vec<Amplification>,
    /// Seconds the run took.
    pub seconds: f64,
}

/// Which experiment a row belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Experiment {
    /// The store's share of the raw disk.
    E7,
    /// Reads and writes by request size against the local file system.
    E8,
    /// One way of the store's own against another: what its defaults rest on.
    Ways,
}

/// Whether reads find their bytes in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// All of them do.
    Hit,
    /// None does before the sample begins.
    Miss,
}

impl Cache {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Cache::Hit => "hit",
            Cache::Miss => "miss",
        }
    }
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Which experiment.
    pub experiment: Experiment,
    /// The file system measured on: a [`Place`]'s label.
    pub place: String,
    /// What was done, without size, depth and cache.
    pub name: &'static str,
    /// What the plain system did, or what the other way is.
    pub against: &'static str,
    /// Bytes of a request.
    pub request_bytes: u32,
    /// Requests in flight.
    pub depth: u32,
    /// Reads: whether from the page cache.
    pub cache: Option<Cache>,
    /// Braid.
    pub braid: Side,
    /// The plain system; of [`Experiment::Ways`] Braid's other way.
    pub raw: Side,
    /// The first's rate over the second's, pair by pair.
    pub ratio: Spread,
    /// The least ratio that is good enough, where one is set.
    pub target: Option<f64>,
}

impl Row {
    /// Whether the target is met; `None` without one.
    pub fn is_met(&self) -> Option<bool> {
        self.target.map(|target| self.ratio.median >= target)
    }

    /// The row's name with what tells it from its neighbours.
    pub fn title(&self) -> String {
        title(self.name, self.request_bytes, self.depth, self.cache)
    }
}

/// How long something takes that is no stream of requests.
#[derive(Debug, Clone, Serialize)]
pub struct Timing {
    /// A [`Place`]'s label.
    pub place: String,
    /// What was done.
    pub name: &'static str,
    /// Objects of the store.
    pub objects: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Bytes of its checkpoint.
    pub checkpoint_bytes: u64,
    /// Bytes of the log after the checkpoint.
    pub tail_bytes: u64,
    /// Bytes behind the log's end that its file had before.
    pub stale_bytes: u64,
    /// Records replayed.
    pub records: u64,
    /// How long it took.
    pub seconds: Spread,
    /// CPU time of this process, user and system: the median.
    pub cpu_seconds: f64,
    /// The most that is good enough.
    pub target_seconds: f64,
}

impl Timing {
    /// Whether the target is met.
    pub fn is_met(&self) -> bool {
        self.seconds.median < self.target_seconds
    }

    /// The name with what tells it from its neighbours.
    pub fn title(&self) -> String {
        let file = if self.stale_bytes > 0 { " in a used file" } else { "" };
        format!("{}, tail {} MiB{file}", self.name, self.tail_bytes >> 20)
    }
}

/// Which units are overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// All alike.
    Uniform,
    /// A tenth of the units by nine tenths of the writes.
    HotCold,
}

impl Load {
    /// The words for it.
    pub fn name(self) -> &'static str {
        match self {
            Load::Uniform => "uniform",
            Load::HotCold => "hot/cold, 90 % to 10 %",
        }
    }
}

/// What cleaning costs: bytes of records written for each byte of a mutation's record, in balance.
#[derive(Debug, Clone, Serialize)]
pub struct Amplification {
    /// A [`Place`]'s label.
    pub place: String,
    /// Which units are overwritten.
    pub load: Load,
    /// How much of what writes may use is live.
    pub live_percent: u32,
    /// What the store did.
    pub measured: f64,
    /// What the same decisions do on a log of counters (`braid_store::clean::simulate`).
    pub simulated: f64,
    /// Bytes of mutations' records while it was measured.
    pub written_bytes: u64,
    /// Bytes of records that the cleaner wrote meanwhile.
    pub moved_bytes: u64,
}

/// A row's title.
pub(crate) fn title(name: &str, request_bytes: u32, depth: u32, cache: Option<Cache>) -> String {
    let cache = cache.map_or(String::new(), |cache| format!(", {}", cache.name()));
    format!("{name} {}, depth {depth}{cache}", show_size(request_bytes))
}

/// A request's size as people write it.
pub(crate) fn show_size(bytes: u32) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// The medians of one side.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Side {
    /// Bytes of requests in a second.
    pub bytes_per_second: f64,
    /// Requests in a second.
    pub operations_per_second: f64,
    /// CPU time of this process, user and system, for a GiB of requests.
    pub cpu_seconds_per_gib: f64,
}

/// Samples in figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// How many.
    pub samples: u32,
    /// The middle one.
    pub median: f64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The 90 % confidence interval of the mean.
    pub confidence_90: [f64; 2],
}
