//! The results: rows with their goals.

use std::path::Path;

use serde::Serialize;

use crate::conditions::Conditions;
use crate::error::Error;
use crate::stripes::Goal;

/// The results of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub ran: Conditions,
    pub rows: Vec<Row>,
    pub left_out: Vec<LeftOut>,
}

/// A row of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub name: String,
    /// The measured values, in words.
    pub found: String,
    /// The figure that the goal is about.
    pub value: f64,
    pub goal: Option<Goal>,
    /// True if the goal is met; absent without one.
    pub met: Option<bool>,
}

/// A row that could not be measured.
#[derive(Debug, Clone, Serialize)]
pub struct LeftOut {
    pub name: String,
    pub why: String,
}

impl Report {
    /// A report of a run of this bench in `directory` that begins now.
    pub fn begin(bench: &'static str, directory: &Path, quick: bool) -> Result<Report, Error> {
        let ran = Conditions::begin(bench, directory, quick)?;
        Ok(Report { ran, rows: Vec::new(), left_out: Vec::new() })
    }
}

impl Row {
    /// A row, whose goal is met or missed by its figure.
    pub fn new(name: impl Into<String>, found: impl Into<String>, value: f64, goal: Option<Goal>) -> Row {
        let met = goal.map(|goal| goal.is_met(value));
        Row { name: name.into(), found: found.into(), value, goal, met }
    }

    /// The goal, and whether it is met, as text for people; empty without one.
    pub fn show_goal(&self) -> String {
        let Some(goal) = self.goal else { return String::new() };
        let sign = if matches!(goal, Goal::AtMost(_)) { "<=" } else { ">=" };
        format!("{sign} {} {}", goal.value(), if self.met == Some(true) { "met" } else { "missed" })
    }
}
