//! Streams carried against drives: how many streams a cluster carries without a late period, and how many
//! admission lets in, on parts of 1991 and of today.
//!
//! A point is a number of drives. For the streams *carried*, more and more of them are simulated, without
//! asking whether they fit, until one has a late period. Beside them go ten times more operations without a
//! promise than fit, and in the middle of the run a drive is lost and rebuilt. *Admitted* are those that
//! admission lets in for these very conditions.

mod document;

use std::sync::atomic::AtomicBool;

use braid_sim::model::{DiskModel, LinkModel, Preset};
use braid_sim::promises::{
    Admission, BestEffort, Class, Cluster, Loss, Parts, PromisesSpec, Way, carries, run,
};
use braid_sim::sweep::{self, Watch};
use braid_sim::units::{Bytes, Rate, Span};
use serde::Serialize;

pub(crate) use document::{documents, text};

/// More streams than any cluster here carries.
const MANY: u32 = 5_000_000;
/// Data columns of the files.
const COLUMNS: f64 = 4.0;
/// Shares of the run after which the drive is lost, and that the rebuild takes by its rate.
const LOST_AFTER: f64 = 0.4;
const REBUILT_IN: f64 = 0.3;
/// Least stripes of a stream in a run.
const STRIPES_MIN: f64 = 12.0;
/// Most streams that are tried above those that are carried, as a part of them.
const NEAR: u32 = 50;

/// Parts and the streams on them.
#[derive(Debug, Clone, PartialEq)]
struct Era {
    name: &'static str,
    title: &'static str,
    disk: &'static str,
    link: &'static str,
    /// Bytes of a unit; the scheme is raid5 4+1.
    unit: u64,
    /// Rate of a stream, in bytes a second.
    rate: f64,
    /// Time over which a variable rate holds, in milliseconds.
    period_ms: f64,
    /// Rate of a drive for a rebuild, in bytes a second.
    rebuild: f64,
    /// Operations a second of a drive, about.
    operations: f64,
}

const ERAS: [Era; 3] = [
    Era {
        name: "1991",
        title: "Fujitsu M2372K of 1991, DVI streams of 1.2 Mbit/s",
        disk: "fujitsu-m2372k",
        link: "free",
        unit: 32 << 10,
        rate: 1.2e6 / 8.0,
        period_ms: 500.0,
        rebuild: 44e3,
        operations: 27.0,
    },
    Era {
        name: "hdd",
        title: "Disks of 18 TB at 25GbE, streams of 25 Mbit/s",
        disk: "hdd-18tb",
        link: "25GbE",
        unit: 1 << 20,
        rate: 25e6 / 8.0,
        period_ms: 500.0,
        rebuild: 3e6,
        operations: 60.0,
    },
    Era {
        name: "nvme",
        title: "Flash of 2026 at 25GbE, streams of 1.5 Gbit/s",
        disk: "nvme-2026",
        link: "25GbE",
        unit: 1 << 20,
        rate: 1.5e9 / 8.0,
        period_ms: 50.0,
        rebuild: 150e6,
        operations: 6_000.0,
    },
];

/// Results for all parts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Study {
    pub(crate) parts: Vec<OfParts>,
}

/// Results for one kind of parts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct OfParts {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) rows: Vec<Row>,
}

/// Results for a number of drives.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) drives: u32,
    pub(crate) constant: Found,
    pub(crate) variable: Found,
    /// Streams of variable rate that are let in by mean and deviation.
    pub(crate) statistical: u64,
    /// Late periods of these, of all their periods.
    pub(crate) statistical_late: u64,
    pub(crate) statistical_periods: u64,
}

/// Streams of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Found {
    /// Streams that were admitted, each at its peak rate.
    pub(crate) admitted: u64,
    /// Late periods of these.
    pub(crate) late: u64,
    /// Most streams that had no late period.
    pub(crate) carried: u64,
    /// Share of the disks' time that is used when the admitted ones run, all else included.
    pub(crate) busy: f64,
    /// Share that the admitted ones use.
    pub(crate) used: f64,
}

impl Found {
    /// Streams that were admitted for each that is carried.
    pub(crate) fn ratio(&self) -> f64 {
        super::swift::real(self.admitted) / super::swift::real(self.carried.max(1))
    }
}

/// A search: parts, drives and the kind of streams.
struct Point {
    era: usize,
    drives: u32,
    variable: bool,
}

struct Done {
    found: Found,
    statistical: Option<(u64, u64, u64)>,
}

/// The study of all parts with these numbers of drives, and so many operations of disks in a run. Returns
/// `None` if it was stopped.
pub(crate) fn study(
    drives: &[u32],
    operations: f64,
    threads: usize,
    stop: &AtomicBool,
    tell: &(dyn Fn(usize, usize) + Sync),
) -> Option<Study> {
    of_eras(&ERAS, drives, operations, threads, stop, tell)
}

fn of_eras(
    eras: &[Era],
    drives: &[u32],
    operations: f64,
    threads: usize,
    stop: &AtomicBool,
    tell: &(dyn Fn(usize, usize) + Sync),
) -> Option<Study> {
    let mut points = Vec::new();
    // The longest first, so that no thread ends long after the others.
    for &drives in drives.iter().rev() {
        for era in 0..eras.len() {
            points.extend([true, false].map(|variable| Point { era, drives, variable }));
        }
    }
    let count = points.len();
    tell(0, count);
    let tell = |ended: usize| tell(ended, count);
    let done = sweep::run(&points, threads, &Watch { stop, tell: &tell }, |point| {
        search(&eras[point.era], point, operations)
    })?;
    let of = |era: usize, drives: u32, variable: bool| {
        let same = |point: &Point| (point.era, point.drives, point.variable) == (era, drives, variable);
        let at = points.iter().position(same).expect("each is there");
        &done[at]
    };
    let row = |era: usize, drives: u32| {
        let variable = of(era, drives, true);
        let (statistical, statistical_late, statistical_periods) = variable.statistical.unwrap_or((0, 0, 0));
        let constant = of(era, drives, false).found;
        Row { drives, constant, variable: variable.found, statistical, statistical_late, statistical_periods }
    };
    let parts = eras.iter().enumerate().map(|(number, era)| OfParts {
        name: era.name.to_owned(),
        title: era.title.to_owned(),
        rows: drives.iter().map(|&drives| row(number, drives)).collect(),
    });
    Some(Study { parts: parts.collect() })
}

/// The reason why a run with admission comes to its end.
const ADMITTED: &str = "what is admitted fills no queue of a drive";

fn search(era: &Era, point: &Point, operations: f64) -> Done {
    let asked = |admission, count| spec(era, point, admission, count, operations);
    let outcome = run(&asked(Admission::Deterministic, MANY)).expect(ADMITTED);
    let admitted_now = u32::try_from(outcome.admitted).unwrap_or(MANY);
    let carries_so_many = |count: u32| carries(&asked(Admission::None, count));
    // From what is admitted up to the first number that is not carried, or down to one that is.
    let mut low = 0;
    let mut high = MANY;
    let mut next = admitted_now.max(1);
    while high - low > (low / NEAR).max(1) {
        if carries_so_many(next) {
            low = next;
        } else {
            high = next;
        }
        next = match (low, high) {
            (low, MANY) => low + (low / 6).max(1),
            (0, high) => high / 2,
            (low, high) => u32::midpoint(low, high),
        };
        if next == 0 {
            break;
        }
    }
    let found = Found {
        admitted: outcome.admitted,
        late: outcome.late_periods,
        carried: u64::from(low),
        busy: outcome.busy.mean,
        used: outcome.streams_used,
    };
    let statistical = point.variable.then(|| {
        let outcome = run(&asked(Admission::Statistical, MANY)).expect(ADMITTED);
        (outcome.admitted, outcome.late_periods, outcome.classes.iter().map(|class| class.periods).sum())
    });
    Done { found, statistical }
}

fn named<T: Preset>(name: &str) -> T {
    T::preset(name).expect("it is listed")
}

fn spec(era: &Era, point: &Point, admission: Admission, count: u32, operations: f64) -> PromisesSpec {
    let drives = f64::from(point.drives);
    let stripe = COLUMNS * super::swift::real(era.unit) / era.rate;
    let seconds = (operations / drives / era.operations).clamp(STRIPES_MIN * stripe, 240.0);
    let rebuilt = era.rebuild * (drives - 1.0) / (COLUMNS + 1.0) * REBUILT_IN * seconds;
    let bytes = |text: f64| format!("{text:.0}").parse::<Bytes>().expect("a number of bytes");
    PromisesSpec {
        title: era.title.to_owned(),
        seed: 1,
        promises: Cluster {
            drives: point.drives,
            duration: Span::milliseconds(1e3 * seconds),
            admission,
            deviations: 3.0,
        },
        parts: Parts { disk: named::<DiskModel>(era.disk), link: named::<LinkModel>(era.link) },
        stream: vec![Class {
            name: "streams".to_owned(),
            count,
            direction: Way::Read,
            rate: Rate(era.rate),
            peak: point.variable.then_some(Rate(2.0 * era.rate)),
            period: Span::milliseconds(era.period_ms),
            survive: 1,
            scheme: Some("raid5".to_owned()),
            width: Some(5),
            unit: Some(Bytes(era.unit)),
        }],
        best_effort: Some(BestEffort { overload: 10.0, read: 0.5, size: Bytes(era.unit) }),
        loss: Some(Loss {
            at: Span::milliseconds(1e3 * LOST_AFTER * seconds),
            drive: 0,
            stored: bytes(rebuilt),
            rate: Rate(era.rebuild),
            unit: Bytes(era.unit),
        }),
        sweep: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_study_is_the_same_on_one_thread_and_on_two() {
        let of_threads = |threads| {
            of_eras(&ERAS[..1], &[6], 2e3, threads, &AtomicBool::new(false), &|_, _| {}).expect("not stopped")
        };
        let study = of_threads(1);
        assert_eq!(study, of_threads(2));
        for parts in &study.parts {
            for row in &parts.rows {
                for found in [row.constant, row.variable] {
                    assert_eq!(found.late, 0, "{row:?}");
                    assert!(found.admitted > 0 && found.admitted <= found.carried, "{row:?}");
                }
                assert!(row.statistical >= row.variable.admitted, "{row:?}");
            }
        }
        assert_eq!(documents(&study, "x").len(), 3);
        assert!(text(&study).contains("RATIO"));
    }
}
