//! The demo's output: a line per step, for users or programs, and for programs a summary at the end.

use std::time::Duration;

use serde::Serialize;

use crate::output::exit::Failure;
use crate::output::rate::{self, Rate};
use crate::output::report::{Report, unread};
use crate::output::size;

/// A step in `--json`. Rates count the user's bytes; they are absent where nothing was copied.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Step {
    #[serde(rename = "step")]
    pub(crate) name: String,
    pub(crate) bytes: Option<u64>,
    pub(crate) seconds: f64,
    pub(crate) bytes_per_second: Option<f64>,
    /// The bound of the rate; absent without bounds, and so is the ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bound_bytes_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
    /// True if every comparison of the step held.
    pub(crate) ok: bool,
}

/// Outcome of a step's comparisons: `Good` if every one held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    Good,
    Bad,
}

/// Rates that those of the steps are compared with, in the user's bytes per second.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub written: f64,
    pub read: f64,
    pub rebuilt: f64,
}

/// The way in which a step moves bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Written,
    Read,
    Rebuilt,
}

/// The steps so far.
#[derive(Debug)]
pub(crate) struct Steps {
    report: Report,
    bounds: Option<Bounds>,
    done: Vec<Step>,
}

/// The last line of `--json`.
#[derive(Debug, Serialize)]
struct Summary {
    ok: bool,
    error: Option<String>,
    /// Directory that held the cluster.
    directory: String,
    files: u64,
    bytes: u64,
    /// Number of steps that were done.
    steps: usize,
}

impl Steps {
    pub(crate) fn new(report: Report, bounds: Option<Bounds>) -> Steps {
        Steps { report, bounds, done: Vec::new() }
    }

    pub(crate) fn say(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        unread(self.report.say(text))
    }

    /// Adds a step that copied nothing.
    pub(crate) fn did(
        &mut self,
        name: impl Into<String>,
        time: Duration,
        outcome: StepOutcome,
    ) -> Result<(), Failure> {
        let seconds = time.as_secs_f64();
        let name = name.into();
        self.add(Step {
            name,
            bytes: None,
            seconds,
            bytes_per_second: None,
            bound_bytes_per_second: None,
            ratio: None,
            ok: outcome == StepOutcome::Good,
        })
    }

    /// Adds a step that moved bytes.
    pub(crate) fn moved(
        &mut self,
        name: impl Into<String>,
        kind: Kind,
        rate: Rate,
        outcome: StepOutcome,
    ) -> Result<(), Failure> {
        let per_second = rate.bytes_per_second();
        let bound = self.bounds.map(|bounds| match kind {
            Kind::Written => bounds.written,
            Kind::Read => bounds.read,
            Kind::Rebuilt => bounds.rebuilt,
        });
        self.add(Step {
            name: name.into(),
            bytes: Some(rate.bytes),
            seconds: rate.time.as_secs_f64(),
            bytes_per_second: Some(per_second),
            bound_bytes_per_second: bound,
            ratio: bound.filter(|bound| *bound > 0.0).map(|bound| per_second / bound),
            ok: outcome == StepOutcome::Good,
        })
    }

    fn add(&mut self, step: Step) -> Result<(), Failure> {
        // The demo's exit code covers all steps, even if the output is not read.
        self.report.note(&step, show)?;
        self.done.push(step);
        Ok(())
    }

    /// Returns true if every comparison so far held.
    pub(crate) fn ok(&self) -> bool {
        self.done.iter().all(|step| step.ok)
    }

    /// Prints the summary for programs.
    pub(crate) fn finish(
        &self,
        directory: String,
        files: u64,
        bytes: u64,
        failed: Option<&Failure>,
    ) -> Result<(), Failure> {
        let ok = failed.is_none() && self.ok();
        let error = failed.map(ToString::to_string);
        let summary = Summary { ok, error, directory, files, bytes, steps: self.done.len() };
        if self.report.json { self.report.note(&summary, |_| String::new()) } else { Ok(()) }
    }
}

fn show(step: &Step) -> String {
    let mark = if step.ok { "ok" } else { "WRONG" };
    let amount = match (step.bytes, step.bytes_per_second) {
        (Some(bytes), Some(per_second)) => format!("{:>9} {:>11}", size::show(bytes), rate::show(per_second)),
        _ => String::new(),
    };
    let ratio = step.ratio.map_or(String::new(), |ratio| format!("{ratio:.2} of the bound"));
    format!("{mark:<5} {:<58} {:>7.2} s {amount:<20}  {ratio}", step.name, step.seconds).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_shows_its_rate_and_ratio() {
        let bounds = Bounds { written: 4e6, read: 1e6, rebuilt: 1e6 };
        let mut steps = Steps::new(Report { json: true }, Some(bounds));
        let rate = Rate { bytes: 2_000_000, time: Duration::from_secs(1) };
        steps.moved("copy", Kind::Written, rate, StepOutcome::Good).expect("noted");
        assert_eq!(steps.done[0].ratio, Some(0.5));
        assert!(show(&steps.done[0]).ends_with("1.91 MiB/s  0.50 of the bound"), "{}", show(&steps.done[0]));
        steps.did("compare", Duration::ZERO, StepOutcome::Bad).expect("noted");
        assert!(!steps.ok());
    }
}
