//! Predicted rates of a cluster beside its measured ones (E3b).

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use crate::conditions::Conditions;
use crate::error::Error;
use crate::report::Spread;
use crate::stats;
use crate::stripes::{LeftOut, Unit, show_figure, show_value};

/// Greatest relative error of a near prediction.
pub const WITHIN: f64 = 0.10;

/// All rows of one run, with its conditions.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Place, time and machine.
    #[serde(flatten)]
    pub ran: Conditions,
    /// Costs of the parts, as `braid-lab bench calibrate` writes them.
    pub parts: String,
    pub rows: Vec<Row>,
    /// Rows that could not be measured here, with the reasons.
    pub left_out: Vec<LeftOut>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Experiment that does the same work.
    pub experiment: &'static str,
    /// Description of the work.
    pub name: String,
    /// Unit of the rates: bytes, or operations.
    pub counts: Counts,
    /// Simulated rate, a second.
    pub predicted: f64,
    /// Measured rate, a second.
    pub measured: Spread,
    /// Prediction over the median of the measurements.
    pub ratio: f64,
    /// True if the prediction is at most [`WITHIN`] off.
    pub is_near: bool,
    /// Part that limits in the simulation, and its utilisation.
    pub bottleneck: String,
}

/// The unit that a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counts {
    Bytes,
    Operations,
}

impl Counts {
    /// A rate as text for people.
    pub fn show(self, rate: f64) -> String {
        match self {
            Counts::Bytes => show_value(rate, Unit::BytesPerSecond),
            Counts::Operations => format!("{rate:.0}/s"),
        }
    }
}

impl Report {
    /// Begins a report of a run in `directory`, without rows.
    ///
    /// # Errors
    /// The directory cannot be looked at.
    pub fn begin(directory: &Path, quick: bool) -> Result<Report, Error> {
        let ran = Conditions::begin("predict", directory, quick)?;
        Ok(Report { ran, parts: String::new(), rows: Vec::new(), left_out: Vec::new() })
    }

    /// Adds a row, from its samples.
    pub fn add(
        &mut self,
        (experiment, name): (&'static str, String),
        counts: Counts,
        (predicted, bottleneck): (f64, String),
        samples: &[f64],
    ) {
        let measured = stats::spread(samples);
        let ratio = predicted / measured.median.max(1e-9);
        let is_near = (ratio - 1.0).abs() <= WITHIN;
        self.rows.push(Row { experiment, name, counts, predicted, measured, ratio, is_near, bottleneck });
    }
}

/// The report in Markdown. `command` is the command line, `when` the date.
pub fn document(report: &Report, command: &str, when: &str) -> String {
    let mut text = report.ran.head("Predicted and measured", command, when, None);
    text.push_str(
        "\nWhat is done in each row, and how the parts' costs are found: docs/bench.md.\n\n\
         | | | predicted | measured | min .. max | predicted/measured | limited by |\n\
         |---|---|---:|---:|---:|---:|---|\n",
    );
    for row in &report.rows {
        let far = if row.is_near { "" } else { " **not within 10 %**" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} .. {} | **{}**{far} | {} |",
            row.experiment,
            row.name,
            row.counts.show(row.predicted),
            row.counts.show(row.measured.median),
            row.counts.show(row.measured.min),
            row.counts.show(row.measured.max),
            show_figure(row.ratio),
            row.bottleneck,
        );
    }
    for LeftOut { name, why } in &report.left_out {
        let _ = writeln!(text, "\nNot measured: {name}: {why}.");
    }
    let _ = write!(text, "\nThe parts' costs, as found before:\n\n```toml\n{}```\n", report.parts);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_is_near_within_a_tenth() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut report = Report::begin(directory.path(), true).expect("begun");
        for (predicted, near) in [(109.0, true), (91.0, true), (112.0, false), (80.0, false)] {
            let row = ("E1", "read".to_owned());
            report.add(row, Counts::Operations, (predicted, "a link".to_owned()), &[90.0, 100.0, 130.0]);
            assert_eq!(report.rows.last().expect("added").is_near, near, "{predicted}");
        }
        let text = document(&report, "braid-lab bench predict", "today");
        assert!(
            text.contains(
                "| E1 | read | 112/s | 100/s | 90/s .. 130/s | **1.12** **not within 10 %** | a link |"
            ),
            "{text}"
        );
    }
}
