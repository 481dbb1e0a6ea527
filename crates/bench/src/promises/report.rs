//! The results: rows with their goals, and lateness over time.

use std::path::Path;

use serde::Serialize;

use super::job::{Done, INTERVAL, add};
use crate::conditions::Conditions;
use crate::error::Error;

/// The results of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub ran: Conditions,
    /// The modelled disks: a name and the model of each.
    pub disks: Vec<(&'static str, &'static str)>,
    pub rows: Vec<Row>,
    pub left_out: Vec<LeftOut>,
    #[serde(skip)]
    pub plots: Vec<Plot>,
}

impl Report {
    /// A report of a run in `directory` that begins now.
    pub fn begin(directory: &Path, quick: bool) -> Result<Report, Error> {
        let ran = Conditions::begin("promises", directory, quick)?;
        Ok(Report { ran, disks: Vec::new(), rows: Vec::new(), left_out: Vec::new(), plots: Vec::new() })
    }
}

/// A row of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub name: String,
    /// The name of the disks.
    pub disks: &'static str,
    /// The measured values, in words.
    pub found: String,
    /// The figure that the goal is about.
    pub value: f64,
    #[serde(skip)]
    pub goal: Option<Goal>,
    /// True if the goal is met; absent without one.
    pub met: Option<bool>,
}

/// Goal of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// Nothing is late.
    NoneLate,
    AtLeast(f64),
    /// A ratio from the first to the second.
    Within(f64, f64),
}

impl Goal {
    pub(super) fn is_met(self, value: f64) -> bool {
        match self {
            Goal::NoneLate => value <= 0.0,
            Goal::AtLeast(least) => value >= least,
            Goal::Within(least, most) => (least..=most).contains(&value),
        }
    }

    pub(super) fn words(self) -> String {
        match self {
            Goal::NoneLate => "0 late".to_owned(),
            Goal::AtLeast(least) => format!(">= {least}"),
            Goal::Within(least, most) => format!("{least} .. {most}"),
        }
    }
}

impl Row {
    /// A row, whose goal is met or missed by its figure.
    pub fn new(
        name: impl Into<String>,
        disks: &'static str,
        found: String,
        value: f64,
        goal: Option<Goal>,
    ) -> Row {
        Row { name: name.into(), disks, found, value, goal, met: goal.map(|goal| goal.is_met(value)) }
    }

    /// The goal, and whether it is met, as text for people; empty without one.
    pub fn show_goal(&self) -> String {
        let Some(goal) = self.goal else { return String::new() };
        format!("{} {}", goal.words(), if self.met == Some(true) { "met" } else { "missed" })
    }
}

/// A row that could not be measured.
#[derive(Debug, Clone, Serialize)]
pub struct LeftOut {
    pub name: String,
    pub why: String,
}

/// A plot of lateness over time: runs of the same work.
#[derive(Debug, Clone)]
pub struct Plot {
    /// Name of its file, without the kind.
    pub name: String,
    pub title: String,
    /// Each run's name, its lateness, and what happened when.
    pub runs: Vec<(String, Summary, Marks)>,
}

/// Times of a run at which something happened, in seconds since its beginning.
pub type Marks = Vec<(f64, String)>;

/// The streams of one run together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    pub streams: usize,
    pub periods: u64,
    pub late: u64,
    /// Late periods of reads, and of writes.
    pub late_of: [u64; 2],
    /// Number of streams that were late in a period.
    pub late_streams: usize,
    pub worst_us: u64,
    pub bound_us: u64,
    /// The longest time from a stream's first request to its answer.
    pub start_us: u64,
    /// Bytes a second of all streams, each from its first arrival to its last end.
    pub rate: u64,
    /// Worst lateness of each interval of 100 ms, of reads and of writes, in microseconds.
    pub lateness_us: [Vec<u64>; 2],
    /// Bytes of greedy streams in each interval.
    pub greedy: Vec<u64>,
    /// Number of requests that failed, of streams that were due and of greedy ones, and a first error.
    pub failed: u64,
    pub greedy_failed: u64,
    pub error: String,
}

impl Summary {
    /// The sum of what all client processes found.
    pub fn of(done: &[Done]) -> Summary {
        let mut sum = Summary::default();
        for stream in done.iter().flat_map(|done| &done.streams) {
            sum.streams += 1;
            sum.periods += stream.periods;
            sum.late += stream.late;
            sum.late_of[usize::from(stream.write)] += stream.late;
            sum.late_streams += usize::from(stream.late > 0);
            sum.worst_us = sum.worst_us.max(stream.worst_us);
            sum.bound_us = sum.bound_us.max(stream.bound_us);
            sum.start_us = sum.start_us.max(stream.start_us);
            sum.rate += stream.rate;
            sum.failed += stream.failed;
            sum.note(&stream.error);
            let worst = &mut sum.lateness_us[usize::from(stream.write)];
            worst.resize(worst.len().max(stream.lateness_us.len()), 0);
            worst.iter_mut().zip(&stream.lateness_us).for_each(|(worst, us)| *worst = (*worst).max(*us));
        }
        for done in done {
            add(&mut sum.greedy, &done.greedy);
            sum.greedy_failed += done.failed;
            sum.note(&done.error);
        }
        sum
    }

    fn note(&mut self, error: &str) {
        if self.error.is_empty() {
            error.clone_into(&mut self.error);
        }
    }

    /// Bytes a second of greedy streams, from one time to another in seconds since the run's beginning.
    pub fn greedy_rate(&self, from: f64, to: f64) -> f64 {
        between(&self.greedy, from, to)
    }

    /// The lateness in words.
    pub fn words(&self) -> String {
        let failed = match (self.failed, self.greedy_failed) {
            (0, 0) => String::new(),
            (own, others) => format!("; {own} requests failed, {others} of others ({})", self.error),
        };
        let of = match self.late_of {
            [0, _] | [_, 0] if self.lateness_us.iter().any(Vec::is_empty) => String::new(),
            [reads, writes] => format!(" ({reads} of reads, {writes} of writes)"),
        };
        format!(
            "{} of {} periods late{of}; worst {:.1} ms, bound {:.1} ms{failed}",
            self.late,
            self.periods,
            milliseconds(self.worst_us),
            milliseconds(self.bound_us)
        )
    }

    /// The number of late periods, with each failed request as one.
    pub fn late_periods(&self) -> f64 {
        f64::from(u32::try_from(self.late + self.failed).unwrap_or(u32::MAX))
    }
}

/// The mean a second of values by intervals, of the intervals that lie between two times in seconds.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no sixteen digits")]
pub fn between(values: &[u64], from: f64, to: f64) -> f64 {
    let interval = INTERVAL.as_secs_f64();
    let inside = (0_u32..).zip(values).filter(|(index, _)| {
        let begins = f64::from(*index) * interval;
        begins >= from - 1e-9 && begins + interval <= to + 1e-9
    });
    let sum: u64 = inside.map(|(_, value)| *value).sum();
    sum as f64 / (to - from).max(interval)
}

pub(super) fn milliseconds(us: u64) -> f64 {
    f64::from(u32::try_from(us).unwrap_or(u32::MAX)) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::super::job::StreamDone;
    use super::*;

    #[test]
    fn streams_of_all_processes_are_summed() {
        let stream = |write, late, lateness_us| StreamDone {
            write,
            bytes: 10,
            rate: 5,
            bound_us: 100,
            periods: 20,
            late,
            worst_us: 40,
            failed: 0,
            error: String::new(),
            start_us: 7,
            lateness_us,
        };
        let one = Done {
            streams: vec![stream(false, 0, vec![1, 5]), stream(true, 2, vec![3])],
            greedy: vec![1],
            ..Done::default()
        };
        let other = Done {
            streams: vec![stream(false, 1, vec![2, 2, 2])],
            greedy: vec![2, 3],
            failed: 1,
            error: "x".into(),
        };
        let sum = Summary::of(&[one, other]);
        assert_eq!((sum.streams, sum.periods, sum.late, sum.late_streams, sum.rate), (3, 60, 3, 2, 15));
        assert_eq!(sum.lateness_us, [vec![2, 5, 2], vec![3]]);
        assert_eq!(sum.greedy, [3, 3]);
        assert_eq!(
            sum.words(),
            "3 of 60 periods late (1 of reads, 2 of writes); worst 0.0 ms, bound 0.1 ms; 0 requests failed, 1 of others (x)"
        );
    }

    #[test]
    fn rates_are_of_whole_intervals_between() {
        let values = [10, 20, 30, 40];
        assert!((between(&values, 0.1, 0.3) - 250.0).abs() < 1e-6);
        assert!((between(&values, 0.0, 0.4) - 250.0).abs() < 1e-6);
        assert!(between(&values, 5.0, 6.0).abs() < 1e-6);
    }

    #[test]
    fn goals_are_met_or_missed() {
        let row = |value, goal| Row::new("x", "flash", String::new(), value, Some(goal)).show_goal();
        assert_eq!(row(0.0, Goal::NoneLate), "0 late met");
        assert_eq!(row(1.0, Goal::NoneLate), "0 late missed");
        assert_eq!(row(0.9, Goal::AtLeast(0.9)), ">= 0.9 met");
        assert_eq!(row(1.2, Goal::Within(0.9, 1.1)), "0.9 .. 1.1 missed");
    }
}
