//! The figures of the stripes' experiments.

use std::path::Path;

use serde::Serialize;

use crate::conditions::Conditions;
use crate::error::Error;
use crate::report::Spread;
use crate::stats;

/// All rows of one run, with its conditions.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Place, time and machine.
    #[serde(flatten)]
    pub ran: Conditions,
    pub rows: Vec<Row>,
    /// Rows that could not be measured here, with the reasons.
    pub left_out: Vec<LeftOut>,
}

/// A row that was not measured.
#[derive(Debug, Clone, Serialize)]
pub struct LeftOut {
    pub name: String,
    pub why: String,
}

/// The description of a row, before it is measured.
#[derive(Debug, Clone)]
pub struct Question {
    /// Number of the experiment, such as `E18`.
    pub experiment: &'static str,
    /// Kind of work that is compared.
    pub name: String,
    /// Unit of both sides' values.
    pub unit: Unit,
    /// First side, the numerator of the ratio.
    pub first: &'static str,
    /// Second side, the denominator.
    pub second: &'static str,
    /// Goal of the ratio, if there is one.
    pub goal: Option<Goal>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Number of the experiment.
    pub experiment: &'static str,
    /// Kind of work that is compared.
    pub name: String,
    /// First value over the second, pair by pair.
    pub ratio: Spread,
    /// Goal of the ratio, if there is one.
    pub goal: Option<Goal>,
    /// True if the goal is met; absent without one.
    pub met: Option<bool>,
    /// Unit of both sides' values.
    pub unit: Unit,
    /// First side, the numerator.
    pub first: Side,
    /// Second side, the denominator.
    pub second: Side,
}

/// One side of a row.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// Name of what was measured.
    pub name: &'static str,
    /// Median of the side's samples.
    pub median: f64,
}

/// The unit of a measured value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Rate in bytes a second.
    BytesPerSecond,
    Bytes,
}

/// The goal of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// The ratio must be this or less.
    AtMost(f64),
    /// The ratio must be this or more.
    AtLeast(f64),
}

impl Goal {
    /// Returns true if a ratio meets the goal.
    pub fn is_met(self, ratio: f64) -> bool {
        match self {
            Goal::AtMost(most) => ratio <= most,
            Goal::AtLeast(least) => ratio >= least,
        }
    }

    /// The ratio that the goal names.
    pub fn value(self) -> f64 {
        let (Goal::AtMost(value) | Goal::AtLeast(value)) = self;
        value
    }
}

impl Report {
    /// Begins a report of a run in `directory`, without rows.
    pub fn begin(directory: &Path, quick: bool) -> Result<Report, Error> {
        let ran = Conditions::begin("stripes", directory, quick)?;
        Ok(Report { ran, rows: Vec::new(), left_out: Vec::new() })
    }
}

impl Row {
    /// The row of a question, from its pairs of samples.
    pub fn of(question: &Question, pairs: &[(f64, f64)]) -> Row {
        let ratios: Vec<f64> = pairs.iter().map(|(first, second)| first / second.max(1e-9)).collect();
        let median = |of: fn(&(f64, f64)) -> f64| stats::median(&pairs.iter().map(of).collect::<Vec<f64>>());
        let ratio = stats::spread(&ratios);
        Row {
            experiment: question.experiment,
            name: question.name.clone(),
            met: question.goal.map(|goal| goal.is_met(ratio.median)),
            ratio,
            goal: question.goal,
            unit: question.unit,
            first: Side { name: question.first, median: median(|pair| pair.0) },
            second: Side { name: question.second, median: median(|pair| pair.1) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_the_median_of_its_pairs() {
        let question = Question {
            experiment: "E18",
            name: "easy over hard".into(),
            unit: Unit::BytesPerSecond,
            first: "easy",
            second: "hard",
            goal: Some(Goal::AtMost(1.5)),
        };
        let row = Row::of(&question, &[(3.0, 2.0), (8.0, 4.0), (1.0, 1.0)]);
        assert_eq!((row.ratio.median, row.ratio.min, row.ratio.max), (1.5, 1.0, 2.0));
        assert_eq!((row.first.median, row.second.median, row.met), (3.0, 2.0, Some(true)));
        assert!(!Goal::AtMost(1.5).is_met(1.51) && Goal::AtLeast(0.9).is_met(0.9));
    }
}
