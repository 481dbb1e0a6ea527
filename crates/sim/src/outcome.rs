//! The results of a run.

use serde::Serialize;

use crate::parts::usage::Usage;

/// The results of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunOutcome {
    /// Reason for which the run ended.
    pub ending: Ending,
    /// The busiest part, if any was busy at all.
    pub bottleneck: Option<Bottleneck>,
    pub loads: Vec<LoadOutcome>,
    pub parts: Vec<PartOutcome>,
    /// Simulated seconds after the warm-up, which are counted.
    pub seconds: f64,
    /// Simulated seconds of the warm-up.
    pub warm_up_seconds: f64,
    /// Requests done during the warm-up.
    pub warm_up_requests: u64,
    /// Events of the whole run.
    pub events: u64,
}

/// Reason for which a run ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The intervals are as tight as was asked for.
    Settled,
    /// More was asked for than could be served: the backlog grew, and times mean nothing.
    Saturated(Saturated),
    /// The bound on requests or events came first. The intervals say how much is known.
    Bound,
    /// All requests of the trace are done.
    Done,
}

/// The service of a load that asked for too much.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Saturated {
    /// Name of the load.
    pub load: String,
    /// Requests done a second.
    pub per_second: f64,
}

/// One load's results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadOutcome {
    pub name: String,
    /// Requests that arrived a second; only for an open load.
    pub offered_per_second: Option<f64>,
    pub requests: u64,
    /// Reads among the requests.
    pub reads: u64,
    /// Writes among the requests.
    pub writes: u64,
    /// Requests that took longer than the deadline; only if the load has one.
    pub late: Option<u64>,
    /// Requests done a second.
    pub per_second: f64,
    /// Bytes of these requests a second.
    pub bytes_per_second: f64,
    /// Times of the requests, in milliseconds.
    pub milliseconds: Times,
    /// Requests still in the system at the end.
    pub unfinished: u64,
}

/// Times of requests, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    pub mean: f64,
    /// Half the width of the mean's interval; `None` if there were too few requests.
    pub half: Option<f64>,
    /// Confidence of the interval, in percent.
    pub confidence: u8,
    /// Half of the requests took less.
    pub p50: f64,
    /// Nine of ten requests took less.
    pub p90: f64,
    /// 99 of 100 requests took less.
    pub p99: f64,
    /// 999 of 1000 requests took less.
    pub p999: f64,
    pub max: f64,
}

/// A kind of part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// A drive's disk.
    Disk,
    /// A client's processor.
    ClientProcessor,
    /// The processor of a host of drives.
    DriveProcessor,
    /// A link that all hosts share.
    Medium,
    /// A client's port to the switch.
    ClientSend,
    ClientReceive,
    /// A port from a host of drives to the switch.
    DriveSend,
    DriveReceive,
}

impl PartKind {
    /// All kinds, in the order of the table.
    pub const ALL: [PartKind; 8] = [
        PartKind::Disk,
        PartKind::ClientProcessor,
        PartKind::DriveProcessor,
        PartKind::Medium,
        PartKind::ClientSend,
        PartKind::ClientReceive,
        PartKind::DriveSend,
        PartKind::DriveReceive,
    ];

    /// The name that is printed.
    pub fn name(self) -> &'static str {
        match self {
            PartKind::Disk => "disk",
            PartKind::ClientProcessor => "client's processor",
            PartKind::DriveProcessor => "drive's processor",
            PartKind::Medium => "shared link",
            PartKind::ClientSend => "client's link, out",
            PartKind::ClientReceive => "client's link, in",
            PartKind::DriveSend => "drive's link, out",
            PartKind::DriveReceive => "drive's link, in",
        }
    }
}

/// Use of one part after the warm-up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartOutcome {
    pub kind: PartKind,
    /// Number of the part, and of a link also the rail.
    pub name: String,
    /// Share of the time in which the part was busy, 0 to 1.
    pub utilisation: f64,
    /// Mean number of jobs that waited.
    pub queue_mean: f64,
    /// Greatest number of jobs that waited.
    pub queue_max: u32,
    pub served: u64,
    /// Jobs that found no place to wait: refused commands, lost bursts.
    pub refused: u64,
}

/// All parts of one kind together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Group {
    pub kind: PartKind,
    pub count: usize,
    /// Mean of the parts' utilisation.
    pub utilisation: f64,
    /// Utilisation of the busiest part.
    pub busiest: f64,
    /// Mean of the parts' mean queues.
    pub queue_mean: f64,
    /// Longest queue of any part.
    pub queue_max: u32,
    pub refused: u64,
}

/// The part that limits a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bottleneck {
    pub kind: PartKind,
    /// Name of the busiest part.
    pub name: String,
    pub utilisation: f64,
}

impl PartOutcome {
    pub(crate) fn new(
        kind: PartKind,
        name: String,
        utilisation: f64,
        usage: &mut Usage,
        now: u64,
    ) -> PartOutcome {
        let (queue_mean, queue_max) = usage.queue(now);
        let Usage { served, refused, .. } = *usage;
        PartOutcome { kind, name, utilisation, queue_mean, queue_max, served, refused }
    }
}

impl RunOutcome {
    /// The parts by kind, without the kinds that the cluster has no part of.
    pub fn groups(&self) -> Vec<Group> {
        PartKind::ALL.iter().filter_map(|&kind| group(kind, &self.parts)).collect()
    }

    /// The mean utilisation of a kind of part; 0 if the cluster has none.
    pub fn utilisation(&self, kind: PartKind) -> f64 {
        group(kind, &self.parts).map_or(0.0, |group| group.utilisation)
    }

    /// Returns true if more was asked for than could be served.
    pub fn is_saturated(&self) -> bool {
        matches!(self.ending, Ending::Saturated(_))
    }
}

fn group(kind: PartKind, parts: &[PartOutcome]) -> Option<Group> {
    let of: Vec<&PartOutcome> = parts.iter().filter(|part| part.kind == kind).collect();
    let count = crate::number::count(of.len());
    let mean = |value: fn(&PartOutcome) -> f64| of.iter().map(|part| value(part)).sum::<f64>() / count;
    Some(Group {
        kind,
        count: of.len(),
        utilisation: mean(|part| part.utilisation),
        busiest: of.iter().map(|part| part.utilisation).max_by(f64::total_cmp)?,
        queue_mean: mean(|part| part.queue_mean),
        queue_max: of.iter().map(|part| part.queue_max).max()?,
        refused: of.iter().map(|part| part.refused).sum(),
    })
}

/// The busiest of all parts; `None` if none was busy.
pub(crate) fn bottleneck(parts: &[PartOutcome]) -> Option<Bottleneck> {
    let groups = PartKind::ALL.iter().filter_map(|&kind| group(kind, parts));
    let busiest =
        groups.filter(|group| group.busiest > 0.0).max_by(|a, b| a.busiest.total_cmp(&b.busiest))?;
    let part = parts.iter().find(|part| part.kind == busiest.kind && part.utilisation == busiest.busiest)?;
    Some(Bottleneck { kind: part.kind, name: part.name.clone(), utilisation: part.utilisation })
}
