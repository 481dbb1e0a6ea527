//! Results of a simulation of promises.

use std::fmt::Write;

use serde::Serialize;

use crate::number::count;
use crate::report::{Ran, cell};

/// The end of a run in which a drive refuses operations, as too many of one stream wait there already.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "drive {drive} is overloaded: after {seconds:.1} s it refuses a stream's operations, as too many of them \
     wait already. Ask for less, or let admission decide (promises.admission)"
)]
pub struct Overloaded {
    pub(super) drive: u32,
    /// Simulated time of the refusal.
    pub(super) seconds: f64,
}

/// Results of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PromisesOutcome {
    /// Drives of the run.
    pub drives: u32,
    /// Streams that asked.
    pub asked: u64,
    /// Streams that were let in.
    pub admitted: u64,
    /// Periods of all streams in which something was late.
    pub late_periods: u64,
    /// Each class of streams.
    pub classes: Vec<ClassOutcome>,
    /// Share of the disks' time that is booked with all drives there; absent if nothing was booked.
    pub booked: Option<Share>,
    /// The same in the worst state that is promised.
    pub booked_worst: Option<Share>,
    /// Share of the time in which the disks were busy, lost ones left out.
    pub busy: Share,
    /// Share of the disks' time that the streams used.
    pub streams_used: f64,
    /// Load without promises.
    pub best_effort: Option<BestEffortOutcome>,
    /// Rebuild of the lost drive.
    pub rebuild: Option<RebuildOutcome>,
    /// Simulated seconds of the run.
    pub seconds: f64,
    /// Events of the run.
    pub events: u64,
}

/// Shares of drives: 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// Mean of all drives.
    pub mean: f64,
    /// The greatest of all drives.
    pub max: f64,
}

/// Results of a class of streams.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassOutcome {
    /// Name of the class.
    pub name: String,
    /// Streams that asked.
    pub asked: u32,
    /// Streams that were let in.
    pub admitted: u32,
    /// Reason for which the others were refused, if any were.
    pub refusal: Option<Refusal>,
    /// Scheme and columns of the files; absent if not even one stream fits.
    pub scheme: Option<String>,
    /// Bytes of a unit.
    pub unit_bytes: Option<u32>,
    /// Bytes a second that all streams together got.
    pub bytes_per_second: f64,
    /// Periods in which something was due.
    pub periods: u64,
    /// Periods in which something was late.
    pub late_periods: u64,
    /// Streams with a late period.
    pub late_streams: u32,
    /// Greatest time from the due time of a stripe until it was done, in milliseconds.
    pub worst_ms: f64,
    /// The same for the operations of single drives, as their schedulers count it, in milliseconds.
    pub drives_worst_ms: f64,
    /// Bound on it that admission told.
    pub bound_ms: f64,
    /// Greatest time from the beginning of a stream until its first stripe was there, in milliseconds.
    pub start_ms: f64,
    /// Bound on it that admission told.
    pub start_bound_ms: f64,
}

/// Reason of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The resource that does not suffice, what is needed and what is free.
    pub why: String,
    /// Rate in bytes a second that would be admitted instead.
    pub offered: Option<u64>,
}

/// Results of the load without promises.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BestEffortOutcome {
    /// Operations that were done.
    pub operations: u64,
    /// Bytes of them in a second.
    pub bytes_per_second: f64,
    /// Share of the disks' time that streams and rebuild left, and that it got.
    pub of_left: f64,
}

/// Results of a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RebuildOutcome {
    /// Time that it takes by its rate, in seconds.
    pub eta_seconds: f64,
    /// Time that it took; absent if it was not done at the end.
    pub seconds: Option<f64>,
}

impl Share {
    pub(super) fn of(shares: Vec<f64>) -> Share {
        let mean = shares.iter().sum::<f64>() / count(shares.len().max(1));
        Share { mean, max: shares.into_iter().fold(0.0, f64::max) }
    }
}

/// All points as CSV: a line for each class of streams of each point.
pub fn csv(ran: &[Ran<PromisesOutcome>]) -> String {
    let mut text = String::new();
    let keys = ran.first().map_or(&[][..], |first| first.values.as_slice());
    keys.iter().for_each(|(key, _)| text.push_str(&format!("{key},")));
    text.push_str(
        "stream,asked,admitted,periods,late_periods,late_streams,worst_ms,drives_worst_ms,bound_ms,start_ms,\
         start_bound_ms,bytes_per_second,booked,booked_worst,busy,streams_used,best_effort_bytes_per_second,\
         best_effort_of_left,rebuild_seconds,rebuild_eta_seconds\n",
    );
    let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.6}"));
    for one in ran {
        let outcome = &one.outcome;
        for class in &outcome.classes {
            one.values.iter().for_each(|(_, value)| text.push_str(&format!("{},", cell(value))));
            let _ = write!(
                text,
                "\"{}\",{},{},{},{},{},{:.6},{:.6},{:.6},{:.6},{:.6},{:.3}",
                class.name.replace('"', "\"\""),
                class.asked,
                class.admitted,
                class.periods,
                class.late_periods,
                class.late_streams,
                class.worst_ms,
                class.drives_worst_ms,
                class.bound_ms,
                class.start_ms,
                class.start_bound_ms,
                class.bytes_per_second,
            );
            let rest = [
                outcome.booked.map(|share| share.mean),
                outcome.booked_worst.map(|share| share.mean),
                Some(outcome.busy.mean),
                Some(outcome.streams_used),
                outcome.best_effort.map(|best| best.bytes_per_second),
                outcome.best_effort.map(|best| best.of_left),
                outcome.rebuild.and_then(|rebuild| rebuild.seconds),
                outcome.rebuild.map(|rebuild| rebuild.eta_seconds),
            ];
            rest.into_iter().for_each(|value| text.push_str(&format!(",{}", number(value))));
            text.push('\n');
        }
    }
    text
}
