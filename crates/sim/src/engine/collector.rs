//! Samples of requests, and when the run ends.
//!
//! Until MSER-5 says that the warm-up is over, samples only serve to find that out. Then all is counted from
//! new: what is thrown away is at least the warm-up. From then on the intervals of the loads' mean times are
//! looked at, ever more seldom, until all are tight.
//!
//! An open load is saturated when its backlog grows with what arrived: a tenth of all its requests, and at
//! least a hundred, are in the system. A load within ten percent above what can be carried is found out
//! later: it is at the bound of requests, its interval is not tight, and the later of them took much longer.

use crate::number::{SECOND, count, index, narrow, real, seconds};
use crate::outcome::{Ending, LoadOutcome, Outcome, PartOutcome, Saturated, Times};
use crate::spec::{Arrivals, Spec};
use crate::stats::batch_means::interval;
use crate::stats::percentiles::percentiles;
use crate::stats::warm_up;

/// A backlog of less is not called growing.
const BACKLOG_MIN: u64 = 100;
/// Of so many arrivals one in the system is a backlog that grows.
const BACKLOG_SHARE: u64 = 10;
/// Requests that are done before it is said at which rate a load is saturated. No more come meanwhile: what
/// waits is enough for that.
const SATURATED_REQUESTS: u32 = 500;
/// The time between two looks grows by this.
const LOOK_GROWTH: f64 = 1.25;

/// A request that is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) load: u32,
    pub(super) write: bool,
    pub(super) bytes: u64,
    /// Nanoseconds.
    pub(super) took: u64,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The intervals are tight.
    Settled,
    /// The backlog of this load grows.
    Saturated(u32),
    /// A bound on requests or events.
    Bound,
    /// Nothing is left to do: the trace is over.
    Nothing,
}

/// One load's samples.
#[derive(Debug, Default)]
struct Series {
    /// Milliseconds of each request since the warm-up.
    times: Vec<f64>,
    /// When each was done.
    ends: Vec<u64>,
    reads: u64,
    writes: u64,
    bytes: u64,
    late: u64,
    /// Since the beginning of the run.
    began: u64,
    done: u64,
}

#[derive(Debug)]
pub(super) struct Collector {
    series: Vec<Series>,
    open: Vec<bool>,
    deadlines: Vec<Option<u64>>,
    is_trace: bool,
    warm: bool,
    /// Look again when every load has so many samples.
    look_at: u32,
    requests_min: u32,
    requests_max: u32,
    precision: f64,
    confidence: u8,
    since: u64,
    cut_requests: u64,
    pub(super) wants_reset: bool,
    /// The load whose backlog grows: no requests come any more.
    pub(super) saturated: Option<u32>,
    pub(super) ended: Option<Ended>,
}

impl Collector {
    pub(super) fn new(spec: &Spec, trace: usize) -> Collector {
        let run = &spec.run;
        let is_trace = trace > 0;
        Collector {
            series: spec.load.iter().map(|_| Series::default()).collect(),
            open: spec.load.iter().map(|load| matches!(load.arrivals(), Arrivals::Open(_))).collect(),
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

    pub(super) fn began(&mut self, load: u32) {
        let series = &mut self.series[index(u64::from(load))];
        series.began += 1;
        let backlog = series.began - series.done;
        if self.open[index(u64::from(load))]
            && backlog >= BACKLOG_MIN
            && backlog * BACKLOG_SHARE >= series.began
            && series.began >= BACKLOG_MIN * BACKLOG_SHARE
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
            if enough || series.began - series.done < BACKLOG_MIN / 2 {
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
            // If it never settled, what there is tells whether it is saturated.
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

    /// At the bound of requests: saturated if those of the last third took half as long again as those
    /// before.
    fn at_the_bound(&self) -> Ended {
        let mean = |times: &[f64]| times.iter().sum::<f64>() / count(times.len().max(1));
        let grows = |series: &Series| {
            let third = series.times.len() / 3;
            mean(&series.times[2 * third..]) > 1.5 * mean(&series.times[third..2 * third])
        };
        let all = (0..).zip(&self.series).zip(&self.open);
        match all.filter(|(_, open)| **open).map(|(one, _)| one).find(|(_, series)| grows(series)) {
            Some((load, _)) => Ended::Saturated(load),
            None => Ended::Bound,
        }
    }

    /// The results.
    pub(super) fn outcome(self, spec: &Spec, parts: Vec<PartOutcome>, now: u64, events: u64) -> Outcome {
        let ended = self.ended.unwrap_or(Ended::Bound);
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
        Outcome {
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

/// So many in so many nanoseconds, as a rate a second.
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
