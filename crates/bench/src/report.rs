//! The results of an experiment.

use serde::Serialize;

use crate::machine::{Machine, MeasuredDir};

/// All rows of one run, with its conditions.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Release that was measured.
    pub version: &'static str,
    /// True if the run did too little work to say anything about speed: it only tests that the benchmark
    /// runs.
    pub quick: bool,
    pub machine: Machine,
    /// Directories that were measured in.
    pub places: Vec<MeasuredDir>,
    /// Rates: ratios of pairs of samples.
    pub rows: Vec<Row>,
    pub times: Vec<Timing>,
    /// Write amplification, ordered by load, then by utilisation.
    pub amplification: Vec<Amplification>,
    /// Duration of the run in seconds.
    pub seconds: f64,
}

/// The experiment of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Experiment {
    /// The store's share of the raw disk.
    E7,
    /// Reads and writes by request size against the local file system.
    E8,
    /// Bytes of reads sent by `sendfile` or by a copy, the basis of the drive's default.
    Sending,
}

/// The state of the page cache for reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// All reads find their bytes in the cache.
    Hit,
    /// No read's bytes are in the cache before the sample begins.
    Miss,
}

impl Cache {
    /// The name that is printed.
    pub fn name(self) -> &'static str {
        match self {
            Cache::Hit => "hit",
            Cache::Miss => "miss",
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub experiment: Experiment,
    /// Label of the [`MeasuredDir`] that was measured on.
    pub place: String,
    /// Kind of work; size, depth and cache are in other fields.
    pub name: &'static str,
    /// Kind of work of the other side.
    pub against: &'static str,
    /// Bytes of each request.
    pub request_bytes: u32,
    /// Requests in flight.
    pub depth: u32,
    /// State of the page cache; only for reads.
    pub cache: Option<Cache>,
    pub braid: Side,
    /// The plain system's side; for [`Experiment::Sending`] Braid's copies.
    pub raw: Side,
    /// Braid's rate over that of the other side, pair by pair.
    pub ratio: Spread,
    /// Smallest ratio that meets the target, if there is one.
    pub target: Option<f64>,
}

impl Row {
    /// Returns true if the target is met; `None` without one.
    pub fn is_met(&self) -> Option<bool> {
        self.target.map(|target| self.ratio.median >= target)
    }

    /// The row's name with the fields that distinguish it from other rows.
    pub fn title(&self) -> String {
        title(self.name, self.request_bytes, self.depth, self.cache)
    }
}

/// The time of an operation that is not a stream of requests.
#[derive(Debug, Clone, Serialize)]
pub struct Timing {
    /// Label of the [`MeasuredDir`] that was measured on.
    pub place: String,
    /// Name of the operation.
    pub name: &'static str,
    /// Objects in the store.
    pub objects: u64,
    /// Bytes of the store's log.
    pub log_bytes: u64,
    /// Bytes of the store's checkpoint.
    pub checkpoint_bytes: u64,
    /// Bytes of the log after the checkpoint.
    pub tail_bytes: u64,
    /// Bytes that the last segment's file held after the log's end.
    pub stale_bytes: u64,
    pub records: u64,
    /// Times of the openings, in seconds.
    pub seconds: Spread,
    /// CPU time of this process, user and system: the median.
    pub cpu_seconds: f64,
    /// Target: less than this many seconds.
    pub target_seconds: f64,
}

impl Timing {
    /// Returns true if the target is met.
    pub fn is_met(&self) -> bool {
        self.seconds.median < self.target_seconds
    }

    /// The operation's name with the fields that distinguish it from other rows.
    pub fn title(&self) -> String {
        let file = if self.stale_bytes > 0 { " in a used file" } else { "" };
        format!("{}, tail {} MiB{file}", self.name, self.tail_bytes >> 20)
    }
}

/// The choice of units that are overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// All units with the same probability.
    Uniform,
    /// A tenth of the units gets nine tenths of the writes.
    HotCold,
}

impl Load {
    /// The name that is printed.
    pub fn name(self) -> &'static str {
        match self {
            Load::Uniform => "uniform",
            Load::HotCold => "hot/cold, 90 % to 10 %",
        }
    }
}

/// The cost of cleaning: bytes of records written per byte of a mutation's record, in the steady state.
#[derive(Debug, Clone, Serialize)]
pub struct Amplification {
    /// Label of the [`MeasuredDir`] that was measured on.
    pub place: String,
    /// Choice of units that are overwritten.
    pub load: Load,
    /// Live units as a percentage of the space that writes may use.
    pub live_percent: u32,
    /// Measured write amplification of the store.
    pub measured: f64,
    /// Write amplification of the same decisions in a simulation (`simulate`).
    pub simulated: f64,
    /// Bytes of mutations' records during the measurement.
    pub written_bytes: u64,
    /// Bytes of records that the cleaner wrote in that time.
    pub moved_bytes: u64,
}

/// The title of a row.
pub(crate) fn title(name: &str, request_bytes: u32, depth: u32, cache: Option<Cache>) -> String {
    let cache = cache.map_or(String::new(), |cache| format!(", {}", cache.name()));
    format!("{name} {}, depth {depth}{cache}", show_size(request_bytes))
}

/// The size of a request as text for users.
pub(crate) fn show_size(bytes: u32) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes % (1 << 10) == 0 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// Medians of one side's samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Side {
    /// Bytes of requests a second.
    pub bytes_per_second: f64,
    /// Requests a second.
    pub operations_per_second: f64,
    /// CPU time of this process, user and system, per GiB of requests.
    pub cpu_seconds_per_gib: f64,
}

/// Statistics of some samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub samples: u32,
    pub median: f64,
    pub mean: f64,
    /// Standard deviation of the samples.
    pub deviation: f64,
    pub min: f64,
    pub max: f64,
    /// The 90 % confidence interval of the mean.
    pub confidence_90: [f64; 2],
}
