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
    /// The figures.
    pub rows: Vec<Row>,
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
    /// What the plain system did.
    pub against: &'static str,
    /// Bytes of a request.
    pub request_bytes: u32,
    /// Requests in flight.
    pub depth: u32,
    /// Reads: whether from the page cache.
    pub cache: Option<Cache>,
    /// Braid.
    pub braid: Side,
    /// The plain system.
    pub raw: Side,
    /// Braid's rate over the plain system's, pair by pair.
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
        let size = show_size(self.request_bytes);
        let cache = self.cache.map_or(String::new(), |cache| format!(", {}", cache.name()));
        format!("{} {size}, depth {}{cache}", self.name, self.depth)
    }
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
