//! A report as a document: one table.

use std::fmt::Write;

use super::report::{Goal, Report, Row, Unit};

/// The report in Markdown. `command` is the command line, `when` the date, `plot` the plot's file.
pub fn document(report: &Report, command: &str, when: &str, plot: &str) -> String {
    let mut text = report.ran.head("Stripes over drives", command, when, Some(("the ratios", plot)));
    text.push_str(
        "\n| | | first | second | first/second | min .. max | 90 % of the mean | pairs | first | second | goal |\n\
         |---|---|---|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    report.rows.iter().for_each(|row| line(&mut text, row));
    for left_out in &report.left_out {
        let _ = writeln!(text, "\nNot measured: {}: {}.", left_out.name, left_out.why);
    }
    text
}

fn line(text: &mut String, row: &Row) {
    let ratio = &row.ratio;
    let [low, high] = ratio.confidence_90.map(show_figure);
    let _ = writeln!(
        text,
        "| {} | {} | {} | {} | **{}** | {} .. {} | {low} .. {high} | {} | {} | {} | {} |",
        row.experiment,
        row.name,
        row.first.name,
        row.second.name,
        show_figure(ratio.median),
        show_figure(ratio.min),
        show_figure(ratio.max),
        ratio.samples,
        show_value(row.first.median, row.unit),
        show_value(row.second.median, row.unit),
        goal(row).replace("missed", "**missed**"),
    );
}

/// The goal of a row, and whether it is met.
pub(super) fn goal(row: &Row) -> String {
    let Some(goal) = row.goal else { return String::new() };
    let sign = if matches!(goal, Goal::AtMost(_)) { "<=" } else { ">=" };
    let met = if row.met == Some(true) { "met" } else { "missed" };
    format!("{sign} {} {met}", goal.value())
}

impl Row {
    /// The goal, and whether it is met, as text for people; empty without one.
    pub fn show_goal(&self) -> String {
        goal(self)
    }
}

/// A ratio with about three digits.
pub fn show_figure(ratio: f64) -> String {
    if ratio.abs() < 0.1 { format!("{ratio:.4}") } else { format!("{ratio:.2}") }
}

/// The value of a side, with three digits and a binary unit.
pub fn show_value(value: f64, unit: Unit) -> String {
    const STEPS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let mut value = value;
    let mut step = 0;
    while value >= 1024.0 && step + 1 < STEPS.len() {
        (value, step) = (value / 1024.0, step + 1);
    }
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    let per = if unit == Unit::BytesPerSecond { "/s" } else { "" };
    format!("{value:.digits$} {}{per}", STEPS[step])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_enough_digits() {
        assert_eq!((show_figure(1.254), show_figure(0.01234)), ("1.25".to_owned(), "0.0123".to_owned()));
        assert_eq!(show_value(5.0 * 1_048_576.0, Unit::BytesPerSecond), "5.00 MiB/s");
        assert_eq!(show_value(1.5e9, Unit::Bytes), "1.40 GiB");
    }
}
