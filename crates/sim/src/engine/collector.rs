//! Samples of requests, and when the run ends.
//!
//! Until MSER-5 says that the warm-up is over, samples only serve to find that out. Then all counts begin
//! anew: at least the warm-up is thrown away. From then on the intervals of the loads' mean times are
//! checked, ever more seldom, until all are tight.
//!
//! An open load is saturated when its backlog, the requests in the system, grows with the arrivals for
//! longer than it takes to fill a system that has many requests in flight: see [`Backlog`]. A load at most
//! ten percent above the greatest that can be carried is found out later: at the bound of requests its
//! backlog is a hundredth of all arrivals, and the later requests took much longer.

use crate::number::{SECOND, count, index, narrow, real, seconds};
use crate::outcome::{Ending, LoadOutcome, PartOutcome, RunOutcome, Saturated, Times};
use crate::spec::{Arrivals, Spec};
use crate::stats::batch_means::interval;
use crate::stats::percentiles::percentiles;
use crate::stats::warm_up;

/// A smaller backlog never counts as growing.
const BACKLOG_MIN: u64 = 100;
/// A backlog grows if one of this many arrivals stays in the system.
const BACKLOG_SHARE: u64 = 10;
/// Like [`BACKLOG_SHARE`], at the bound of requests, where all arrivals count.
const BACKLOG_SHARE_AT_BOUND: u64 = 100;
/// Arrivals in the first window of a backlog.
const BACKLOG_WINDOW: u64 = 1000;
/// A backlog of so many requests, or of requests with so many instructions, is too large in any case.
const BACKLOG_MAX: u64 = 50_000;
const BACKLOG_INSTRUCTIONS_MAX: u64 = 4_000_000;
/// Requests that are done before the rate of a saturated load is reported. No more arrive meanwhile: those
/// that wait are enough.
const SATURATED_REQUESTS: u32 = 500;
/// Factor by which the time between two checks of the intervals grows.
const LOOK_GROWTH: f64 = 1.25;

/// A request that is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) load: u32,
    pub(super) write: bool,
    pub(super) bytes: u64,
    pub(super) took: u64,
}

/// Reason for which a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The intervals are tight.
    Settled,
    /// The backlog of this load grows.
    Saturated(u32),
    /// A bound on requests or events was reached.
    Bound,
    /// No event is left: the trace is over.
    Nothing,
}

/// One load's samples.
#[derive(Debug, Default)]
struct Series {
    /// Time of each request since the warm-up, in milliseconds.
    times: Vec<f64>,
    /// Time at which each of them was done, in nanoseconds.
    ends: Vec<u64>,
    reads: u64,
    writes: u64,
    bytes: u64,
    late: u64,
    /// Requests that have arrived since the beginning of the run.
    began: u64,
    done: u64,
}

/// The backlog of a load (its requests in the system), watched in windows that double.
///
/// A window ends when as many requests have arrived as before it, and as many are done as had arrived at
/// its beginning, so that all that were in the system then could have left. If in each of two successive
/// windows the backlog has grown by a tenth of the arrivals, it grows for ever. The first window does not
/// count. A steady load with many requests in flight (by Little's law, rate times time) grows in one more
/// window at most, while the system fills.
#[derive(Debug)]
struct Backlog {
    /// Arrivals and backlog at the beginning of the window.
    from: (u64, u64),
    /// Arrivals before which the window does not end.
    arrivals: u64,
    has_grown: bool,
}

impl Backlog {
    fn new() -> Backlog {
        Backlog { from: (0, 0), arrivals: BACKLOG_WINDOW, has_grown: false }
    }

    /// Notes an arrival. Returns true if the backlog grows for ever.
    fn grows(&mut self, began: u64, done: u64, instructions: u64) -> bool {
        let backlog = began - done;
        if backlog < BACKLOG_MIN && began < self.arrivals {
            return false;
        }
        if backlog >= BACKLOG_MAX || (backlog >= BACKLOG_MIN && instructions >= BACKLOG_INSTRUCTIONS_MAX) {
            return true;
        }
        if began < self.arrivals || done < self.from.0 {
            return false;
        }
        let growth = backlog.saturating_sub(self.from.1);
        let filled = self.from.0 > 0;
        let grown = filled && backlog >= BACKLOG_MIN && growth * BACKLOG_SHARE >= began - self.from.0;
        let grows = grown && self.has_grown;
        *self = Backlog { from: (began, backlog), arrivals: began * 2, has_grown: grown };
        grows
    }
}

#[derive(Debug)]
pub(super) struct Collector {
    series: Vec<Series>,
    /// Backlog of each open load; `None` for other loads.
    backlogs: Vec<Option<Backlog>>,
    deadlines: Vec<Option<u64>>,
    is_trace: bool,
    warm: bool,
    /// Samples that every load must have before the next check.
    look_at: u32,
    requests_min: u32,
    requests_max: u32,
    precision: f64,
    confidence: u8,
    since: u64,
    cut_requests: u64,
    pub(super) wants_reset: bool,
    /// The load whose backlog grows, once one is found. No requests arrive any more.
    pub(super) saturated: Option<u32>,
    pub(super) ended: Option<Ended>,
}

impl Collector {
    pub(super) fn new(spec: &Spec, trace: usize) -> Collector {
        let run = &spec.run;
        let is_trace = trace > 0;
        Collector {
            series: spec.load.iter().map(|_| Series::default()).collect(),
            backlogs: spec
                .load
                .iter()
                .map(|load| matches!(load.arrivals(), Arrivals::Open(_)).then(Backlog::new))
                .collect(),
            deadlines: spec.load.iter().map(|load| load.deadline.map(|span| span.0)).collect(),
            is_trace,
            warm: is_trace,
            look_at: (run.requests_min / 5).max(100),
            requests_min: run.requests_min,
            requests_max: run.requests_max,
            precision: run.precision,
            confidence: run.confidence,
            since: 0,
            cut_requests: 0,
            wants_reset: false,
            saturated: None,
            ended: None,
        }
    }

    /// Notes that a request has begun. `instructions` counts those of all requests in the system.
    pub(super) fn began(&mut self, load: u32, instructions: u64) {
        let at = index(u64::from(load));
        let series = &mut self.series[at];
        series.began += 1;
        if let Some(backlog) = &mut self.backlogs[at]
            && backlog.grows(series.began, series.done, instructions)
        {
            self.saturated = Some(load);
        }
    }

    pub(super) fn done(&mut self, now: u64, sample: Sample) {
        let at = index(u64::from(sample.load));
        let series = &mut self.series[at];
        series.done += 1;
        series.times.push(real(sample.took) / 1e6);
        series.ends.push(now);
        series.bytes += sample.bytes;
        if sample.write {
            series.writes += 1
        } else {
            series.reads += 1
        }
        if self.deadlines[at].is_some_and(|deadline| sample.took > deadline) {
            series.late += 1;
        }
        if self.is_trace || self.ended.is_some() {
            return;
        }
        if let Some(load) = self.saturated {
            let series = &self.series[index(u64::from(load))];
            let enough = narrow(series.times.len()) >= SATURATED_REQUESTS;
            // Another load may leave this one no turn at all.
            let others = self.series.iter().any(|series| narrow(series.times.len()) >= self.requests_max);
            if enough || others || series.began - series.done < BACKLOG_MIN / 2 {
                self.ended = Some(Ended::Saturated(load));
            }
            return;
        }
        let most = narrow(series.times.len());
        if most >= self.look_at && self.series.iter().all(|series| narrow(series.times.len()) >= self.look_at)
        {
            if self.warm { self.look() } else { self.look_for_warm_up(now) }
        }
        if self.ended.is_none() && most >= self.requests_max {
            // If the run never settled, the samples at hand tell whether it is saturated.
            self.ended = Some(self.at_the_bound());
        }
    }

    fn look_for_warm_up(&mut self, now: u64) {
        if self.series.iter().any(|series| warm_up::cut(&series.times).is_none()) {
            self.look_at = self.look_at.saturating_mul(2);
            return;
        }
        self.warm = true;
        self.wants_reset = true;
        self.since = now;
        self.look_at = self.requests_min;
        for series in &mut self.series {
            self.cut_requests += u64::from(narrow(series.times.len()));
            series.times.clear();
            series.ends.clear();
            (series.reads, series.writes, series.bytes, series.late) = (0, 0, 0, 0);
        }
    }

    fn look(&mut self) {
        let tight = |series: &Series| {
            let found = interval(&series.times, self.confidence);
            found.sound && found.half <= self.precision * found.mean
        };
        if self.series.iter().all(tight) {
            self.ended = Some(Ended::Settled);
        }
        let grown = crate::number::whole(f64::from(self.look_at) * LOOK_GROWTH);
        self.look_at = u32::try_from(grown).unwrap_or(u32::MAX);
    }

    /// The end at the bound of requests. The run is saturated if a load's backlog is a large share of its
    /// arrivals, and the requests of the last third took half as long again as those before; or if the
    /// backlog is half of its arrivals.
    fn at_the_bound(&self) -> Ended {
        let mean = |times: &[f64]| times.iter().sum::<f64>() / count(times.len().max(1));
        let grows = |series: &Series| {
            let third = series.times.len() / 3;
            let backlog = series.began - series.done;
            let slower = mean(&series.times[2 * third..]) > 1.5 * mean(&series.times[third..2 * third]);
            // A load that gets no turn at all has no times.
            backlog >= BACKLOG_MIN.max(series.began / BACKLOG_SHARE_AT_BOUND)
                && (slower || backlog >= series.began / 2)
        };
        let open = (0..).zip(&self.series).zip(&self.backlogs).filter(|(_, backlog)| backlog.is_some());
        match open.map(|(one, _)| one).find(|(_, series)| grows(series)) {
            Some((load, _)) => Ended::Saturated(load),
            None => Ended::Bound,
        }
    }

    pub(super) fn outcome(self, spec: &Spec, parts: Vec<PartOutcome>, now: u64, events: u64) -> RunOutcome {
        let ended = match (self.ended, self.saturated) {
            // The run ended before enough requests of the saturated load were done.
            (Some(Ended::Bound) | None, Some(load)) => Ended::Saturated(load),
            (ended, _) => ended.unwrap_or(Ended::Bound),
        };
        let measured = now - self.since;
        let loads: Vec<LoadOutcome> = self
            .series
            .iter()
            .zip(&spec.load)
            .map(|(series, load)| LoadOutcome {
                name: load.name.clone(),
                offered_per_second: load.rate,
                requests: series.reads + series.writes,
                reads: series.reads,
                writes: series.writes,
                late: load.deadline.map(|_| series.late),
                per_second: rate(real(series.reads + series.writes), measured),
                bytes_per_second: rate(real(series.bytes), measured),
                milliseconds: self.times(series),
                unfinished: series.began - series.done,
            })
            .collect();
        let ending = match ended {
            Ended::Settled => Ending::Settled,
            Ended::Nothing => Ending::Done,
            Ended::Bound => Ending::Bound,
            Ended::Saturated(load) => {
                let series = &self.series[index(u64::from(load))];
                Ending::Saturated(Saturated {
                    load: spec.load[index(u64::from(load))].name.clone(),
                    per_second: later_rate(&series.ends),
                })
            }
        };
        RunOutcome {
            ending,
            bottleneck: crate::outcome::bottleneck(&parts),
            loads,
            parts,
            seconds: seconds(measured),
            warm_up_seconds: seconds(self.since),
            warm_up_requests: self.cut_requests,
            events,
        }
    }

    fn times(&self, series: &Series) -> Times {
        let found = interval(&series.times, self.confidence);
        let [p50, p90, p99, p999, max] = percentiles(&series.times, [50.0, 90.0, 99.0, 99.9, 100.0]);
        let half = if found.half.is_finite() { Some(found.half) } else { None };
        Times { mean: found.mean, half, confidence: self.confidence, p50, p90, p99, p999, max }
    }
}

/// The rate a second of `number` things in `ns` nanoseconds.
fn rate(number: f64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { number / real(ns) * SECOND }
}

/// Requests a second that were done in the later half.
fn later_rate(ends: &[u64]) -> f64 {
    let half = ends.len() / 2;
    match (ends.get(half), ends.last()) {
        (Some(first), Some(last)) if last > first => rate(count(ends.len() - 1 - half), last - first),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of arrivals after which a load is called saturated, if each request is done `lag`
    /// arrivals later, and no more than `share` of the arrivals are done.
    fn saturated_after(lag: u64, share: f64) -> Option<u64> {
        let mut backlog = Backlog::new();
        (1..1_000_000_u64).find(|&began| {
            let done = crate::number::whole(real(began.saturating_sub(lag)) * share);
            backlog.grows(began, done, began - done)
        })
    }

    #[test]
    fn what_fills_the_system_is_not_saturation() {
        for lag in [0, 50, 130, 999, 1000, 1001, 7000, 40_000] {
            assert_eq!(saturated_after(lag, 1.0), None, "{lag}");
        }
    }

    #[test]
    fn what_is_not_carried_is_found_out() {
        for share in [0.0, 0.1, 0.5, 0.8, 0.89] {
            for lag in [0, 100, 3000] {
                assert!(saturated_after(lag, share).is_some_and(|after| after <= 60_000), "{lag} {share}");
            }
        }
        assert_eq!(saturated_after(0, 0.5), Some(4000));
        assert!(saturated_after(0, 0.95).is_none_or(|after| after >= 500_000), "later, at the bound");
        let mut backlog = Backlog::new();
        assert!(!backlog.grows(99, 0, BACKLOG_INSTRUCTIONS_MAX) && backlog.grows(100, 0, 4_000_000));
    }
}
