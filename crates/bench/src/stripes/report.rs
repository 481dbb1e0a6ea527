//! The figures of the stripes' experiments.

use std::path::Path;

use serde::Serialize;

use crate::conditions::Conditions;
use crate::error::Error;
use crate::report::Spread;
use crate::stats;

/// All rows of one run, and where it ran.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where, when and on what.
    #[serde(flatten)]
    pub ran: Conditions,
    pub rows: Vec<Row>,
    /// What could not be measured here, and why.
    pub left_out: Vec<LeftOut>,
}

/// A row that was not measured.
#[derive(Debug, Clone, Serialize)]
pub struct LeftOut {
    pub name: String,
    pub why: String,
}

/// What a row measures, before it is measured.
#[derive(Debug, Clone)]
pub struct Question {
    /// The experiment's number, such as `E18`.
    pub experiment: &'static str,
    /// What is compared.
    pub name: String,
    /// What is measured on either side.
    pub unit: Unit,
    /// The first side, which the ratio has above.
    pub first: &'static str,
    /// The second side.
    pub second: &'static str,
    /// The goal, if there is one.
    pub goal: Option<Goal>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The experiment's number.
    pub experiment: &'static str,
    /// What is compared.
    pub name: String,
    /// The first over the second, pair by pair.
    pub ratio: Spread,
    /// The goal, if there is one.
    pub goal: Option<Goal>,
    /// Whether it is met; absent without one.
    pub met: Option<bool>,
    /// What either side's values are.
    pub unit: Unit,
    /// The first side.
    pub first: Side,
    /// The second side.
    pub second: Side,
}

/// One side of a row.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// What it is.
    pub name: &'static str,
    /// The median of its samples.
    pub median: f64,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes a second.
    BytesPerSecond,
    Bytes,
}

/// What a ratio should come to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// This much or less.
    AtMost(f64),
    /// This much or more.
    AtLeast(f64),
}

impl Goal {
    /// Whether a ratio meets it.
    pub fn is_met(self, ratio: f64) -> bool {
        match self {
            Goal::AtMost(most) => ratio <= most,
            Goal::AtLeast(least) => ratio >= least,
        }
    }

    /// The ratio in question.
    pub fn value(self) -> f64 {
        let (Goal::AtMost(value) | Goal::AtLeast(value)) = self;
        value
    }
}

impl Report {
    /// A report without rows, of a run in `directory` that begins now.
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
