//! A report as a document: a table of rows, one of their processor time, and one of the bounds.

use std::fmt::Write;

use super::report::{Report, Row};

/// The report in Markdown. `command` is the command line, `when` the date, `plot` the plot's file.
pub fn document(report: &Report, command: &str, when: &str, plot: &str) -> String {
    let shows = "operations a second, and processor time";
    let mut text = report.ran.head("Small work on a cluster", command, when, Some((shows, plot)));
    let _ = writeln!(
        text,
        "\nraid5 4+1 over six drives; a large file of {} MiB; a directory of {} names; a tree of {} files. Before \
         it, {} MiB of memory were touched.",
        report.large_bytes >> 20,
        report.names,
        report.tree_files,
        report.touched_bytes >> 20,
    );
    text.push_str(
        "\n| | ops/s | min .. max | p50 | p99 | CPU us | of plain | per sync | goal |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    report.rows.iter().for_each(|row| line(&mut text, row));
    text.push_str(
        "\nCPU us: processor time for one operation, of all processes, user and kernel.\n\n\
         | CPU us for one | client, user | kernel | drives, user | kernel | manager, user | kernel | all, kernel |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    report.rows.iter().for_each(|row| cpu_line(&mut text, row));
    text.push_str(
        "\n| plain exchanges for | a second | CPU us for one | sockets to the manager; to drives |\n\
         |---|---:|---:|---:|\n",
    );
    for (row, plain) in report.rows.iter().filter_map(|row| row.plain.as_ref().map(|plain| (row, plain))) {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {}; {} |",
            row.name,
            show_number(plain.per_second),
            show_number(plain.cpu_us),
            plain.manager_sockets,
            plain.drive_sockets,
        );
    }
    text.push_str("\n| synced, plainly, by one thread | a second | min .. max |\n|---|---:|---:|\n");
    for sync in &report.syncs {
        let rate = &sync.per_second;
        let [median, min, max] = [rate.median, rate.min, rate.max].map(show_number);
        let _ = writeln!(text, "| {} | {median} | {min} .. {max} |", sync.name);
    }
    if report.ran.place.memory {
        text.push_str("\nIn memory a sync does nothing, so no row is compared with them.\n");
    }
    text
}

fn line(text: &mut String, row: &Row) {
    let rate = &row.per_second;
    let [least, most] = [rate.min, rate.max].map(show_number);
    let _ = writeln!(
        text,
        "| {} | **{}** | {least} .. {most} | {} | {} | {} | {} | {} | {} |",
        row.name,
        show_number(rate.median),
        show_latency(row.p50_us),
        show_latency(row.p99_us),
        show_number(row.cpu_total_us),
        row.plain.as_ref().map_or(String::new(), |plain| format!("{:.2}", plain.ratio.median)),
        row.per_sync.map_or(String::new(), |share| format!("{share:.2}")),
        row.show_goal().replace("missed", "**missed**"),
    );
}

fn cpu_line(text: &mut String, row: &Row) {
    let cpu = &row.cpu_us;
    let all = [cpu.client, cpu.drives, cpu.manager].map(|time| [time.user, time.kernel]);
    let cells: Vec<String> = all.concat().into_iter().chain([row.cpu_kernel_us]).map(show_number).collect();
    let _ = writeln!(text, "| {} | {} |", row.name, cells.join(" | "));
}

impl Row {
    /// The goals, and whether they are met, as text for people; empty if there are none.
    pub fn show_goal(&self) -> String {
        let goals = &self.goals;
        let parts = [
            goals.per_second.map(|least| format!(">= {}/s", show_number(least))),
            goals.cpu_us.map(|most| format!("<= {} us", show_number(most))),
            goals.of_plain.map(|least| format!(">= {least} of plain")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        match self.met {
            None => String::new(),
            Some(true) => format!("{} met", parts.join(", ")),
            Some(false) => format!("{} missed", parts.join(", ")),
        }
    }
}

/// A number with about three digits; from 100 on all digits of its whole part, with commas between
/// thousands.
pub fn show_number(value: f64) -> String {
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    let shown = format!("{value:.digits$}");
    if digits > 0 {
        return shown;
    }
    let groups = shown.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or(""));
    groups.collect::<Vec<&str>>().join(",")
}

/// The time of an operation, with a unit; empty if it was not timed.
pub fn show_latency(us: Option<f64>) -> String {
    match us {
        None => String::new(),
        Some(us) if us < 999.5 => format!("{} us", show_number(us)),
        Some(us) => format!("{} ms", show_number(us / 1000.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_enough_digits() {
        assert_eq!(show_number(1_234_567.8), "1,234,568");
        assert_eq!(
            [99.9, 100.0, 8000.0, 5.0, 0.0].map(show_number),
            ["99.9", "100", "8,000", "5.00", "0.00"]
        );
        let latencies = [None, Some(31.46), Some(999.4), Some(1500.0)].map(show_latency);
        assert_eq!(latencies, ["", "31.5 us", "999 us", "1.50 ms"]);
    }
}
