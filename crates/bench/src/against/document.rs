//! A report as a document, and as a picture of its ratios.

use std::fmt::Write;

use super::report::{Goal, Of, Report, Row, Side, Unit};
use crate::lines::{Line, lines};
use crate::stripes::{show_figure, show_value};

/// The report in Markdown. `command` is the command line, `when` the date, `plot` the plot's file.
pub fn document(report: &Report, title: &str, command: &str, when: &str, plot: &str) -> String {
    let mut text = report.ran.head(title, command, when, Some(("the ratios", plot)));
    text.push_str(
        "\n| | | first | second | first/second | min .. max | 90 % of the mean | samples | first | CPU s/GiB | second \
         | CPU s/GiB | paper | goals |\n|---|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---|\n",
    );
    report.rows.iter().for_each(|row| line(&mut text, row));
    for left_out in &report.left_out {
        let _ = writeln!(text, "\nNot measured: {}: {}.", left_out.name, left_out.why);
    }
    text
}

fn line(text: &mut String, row: &Row) {
    let spread = row.ratio.unwrap_or(row.first.value);
    let figure = |value: f64| if row.ratio.is_some() { show_figure(value) } else { show(value, row.unit) };
    let [low, high] = spread.confidence_90.map(figure);
    let second = row.second.as_ref();
    let _ = writeln!(
        text,
        "| {} | {} | {} | {} | **{}** | {} .. {} | {low} .. {high} | {} | {} | {} | {} | {} | {} | {} |",
        row.group,
        row.name,
        row.first.name,
        second.map_or("", |side| side.name),
        figure(spread.median),
        figure(spread.min),
        figure(spread.max),
        spread.samples,
        show(row.first.value.median, row.unit),
        row.first.show_cpu(),
        second.map_or(String::new(), |side| show(side.value.median, row.unit)),
        second.map_or(String::new(), Side::show_cpu),
        row.paper.unwrap_or_default(),
        row.show_goals().replace("missed", "**missed**"),
    );
}

impl Side {
    /// The processor seconds for each GiB; empty if they were not counted.
    pub fn show_cpu(&self) -> String {
        self.cpu_seconds_per_gib.map_or(String::new(), |cpu| format!("{cpu:.2}"))
    }
}

impl Row {
    /// The goals, and whether they are met, as text for people; empty without one.
    pub fn show_goals(&self) -> String {
        let goals = self.goals.iter().map(|judged| {
            let sign = if matches!(judged.goal, Goal::AtMost(_)) { "<=" } else { ">=" };
            let value = judged.goal.value();
            let goal = match judged.of {
                Of::Ratio => format!("{sign} {value}"),
                Of::Value => format!("{sign} {}", show(value, self.unit)),
                Of::Cpu => format!("CPU {sign} {value}"),
            };
            format!("{goal} {}", if judged.met { "met" } else { "missed" })
        });
        goals.collect::<Vec<_>>().join(", ")
    }
}

/// A value with about three digits and its unit.
pub fn show(value: f64, unit: Unit) -> String {
    match unit {
        Unit::BytesPerSecond => show_value(value, crate::stripes::Unit::BytesPerSecond),
        Unit::OperationsPerSecond => format!("{value:.0}/s"),
        Unit::Instructions => format!("{value:.0}"),
        Unit::Share => format!("{:.1} %", value * 100.0),
        Unit::CpuSecondsPerGib => format!("{value:.2} s/GiB"),
    }
}

/// The ratios as SVG.
pub fn svg(report: &Report, title: &str) -> String {
    let rows = report.rows.iter().filter_map(|row| {
        let spread = row.ratio?;
        let goal = row.goals.iter().find(|goal| goal.of == Of::Ratio).map(|goal| goal.goal.value());
        let figure = format!("{}   {}", show_figure(spread.median), row.show_goals());
        Some(Line { label: format!("{} {}", row.group, row.name), spread, goal, met: row.is_met(), figure })
    });
    lines(title, &report.ran, &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::against::{Question, Taken};

    #[test]
    fn rows_with_and_without_another_side_have_as_many_cells() {
        let mut report = Report::begin("bound", Path::new("/"), true).expect("a directory");
        let read = Question::rates("local", "read", ["braid", "plain"]).goal(Of::Ratio, Goal::AtLeast(0.9));
        let taken = Taken::rate(1 << 30, 1.0, 250_000.0);
        report.rows.push(Row::of(&read.paper("80 %"), &[(taken.part(0.5), taken)]));
        let copy = Question::value("bound", "memcpy", Unit::BytesPerSecond, "cold");
        report.rows.push(Row::alone(&copy, &[taken]));
        let text = document(&report, "Bounds", "bench", "today", "a.svg");
        let cells = |line: &str| line.matches('|').count();
        let rows: Vec<&str> = text.lines().filter(|line| line.contains(" | **")).collect();
        assert!(rows.len() == 2 && rows.iter().all(|line| cells(line) == 15), "{text}");
        assert!(
            rows[0].contains("**0.50**") && rows[0].contains("| 0.50 | 1.00 GiB/s | 0.25 | 80 % |"),
            "{}",
            rows[0]
        );
        assert!(rows[0].ends_with(">= 0.9 **missed** |") && rows[1].contains("**1.00 GiB/s**"), "{text}");
        let plot = svg(&report, "Bounds");
        assert!(plot.contains("local read") && !plot.contains("memcpy"), "only ratios are drawn");
    }
}
