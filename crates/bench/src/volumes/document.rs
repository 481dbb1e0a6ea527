//! A report as a document.

use std::fmt::Write;

use super::report::Report;
use crate::stripes::show_figure;

/// The report in Markdown. `command` is the command line, `when` the date.
pub fn document(report: &Report, title: &str, command: &str, when: &str) -> String {
    let mut text = report.ran.head(title, command, when, None);
    text.push_str("\n| what | found | figure | goal |\n|---|---|---:|---|\n");
    for row in &report.rows {
        let goal = row.show_goal().replace("missed", "**missed**");
        let _ = writeln!(text, "| {} | {} | **{}** | {goal} |", row.name, row.found, show_figure(row.value));
    }
    for left_out in &report.left_out {
        let _ = writeln!(text, "\nNot measured: {}: {}.", left_out.name, left_out.why);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::stripes::Goal;
    use crate::volumes::Row;

    #[test]
    fn a_missed_goal_is_seen() {
        let mut report = Report::begin("volumes", Path::new("/"), true).expect("a directory");
        report.rows.push(Row::new("a", "8 of 10", 0.8, Some(Goal::AtLeast(0.9))));
        report.rows.push(Row::new("b", "9 of 10", 0.9, Some(Goal::AtLeast(0.9))));
        let text = document(&report, "Volumes", "bench", "today");
        assert!(text.contains("| a | 8 of 10 | **0.80** | >= 0.9 **missed** |"), "{text}");
        assert!(text.contains("| b | 9 of 10 | **0.90** | >= 0.9 met |"), "{text}");
    }
}
