//! A report as a picture: a line for each row on one logarithmic axis of ratios.

use super::document::{goal, show_figure};
use super::report::Report;
use crate::lines::{Line, lines};

/// The report as SVG.
pub fn svg(report: &Report) -> String {
    let rows = report.rows.iter().map(|row| Line {
        label: format!("{} {}", row.experiment, row.name),
        spread: row.ratio,
        goal: row.goal.map(super::Goal::value),
        met: row.met,
        figure: format!("{}   {}", show_figure(row.ratio.median), goal(row)),
    });
    lines("Stripes over drives: first over second", &report.ran, &rows.collect::<Vec<_>>())
}
