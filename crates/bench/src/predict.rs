//! What was predicted of a cluster beside what was measured of it (E3b).

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use crate::conditions::Conditions;
use crate::error::Error;
use crate::report::Spread;
use crate::stats;
use crate::stripes::{LeftOut, Unit, show_figure, show_value};

/// How far a prediction may be from what is measured.
pub const WITHIN: f64 = 0.10;

/// All rows of one run, and where it ran.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where, when and on what.
    #[serde(flatten)]
    pub ran: Conditions,
    /// The costs of the parts, as `braid bench calibrate` writes them.
    pub parts: String,
    pub rows: Vec<Row>,
    /// What could not be measured here, and why.
    pub left_out: Vec<LeftOut>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The experiment that does the same work.
    pub experiment: &'static str,
    /// What is done.
    pub name: String,
    /// What the rates count: bytes, or operations.
    pub counts: Counts,
    /// What the simulator says, a second.
    pub predicted: f64,
    /// What was measured, a second.
    pub measured: Spread,
    /// The prediction over the median of what was measured.
    pub ratio: f64,
    /// Whether it is as near as it is to be ([`WITHIN`]).
    pub is_near: bool,
    /// The part that limits, as simulated, and how busy it is.
    pub bottleneck: String,
}

/// What a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counts {
    Bytes,
    Operations,
}

impl Counts {
    /// A rate, for people.
    pub fn show(self, rate: f64) -> String {
        match self {
            Counts::Bytes => show_value(rate, Unit::BytesPerSecond),
            Counts::Operations => format!("{rate:.0}/s"),
        }
    }
}

impl Report {
    /// A report without rows, of a run in `directory` that begins now.
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
        let text = document(&report, "braid bench predict", "today");
        assert!(
            text.contains(
                "| E1 | read | 112/s | 100/s | 90/s .. 130/s | **1.12** **not within 10 %** | a link |"
            ),
            "{text}"
        );
    }
}
