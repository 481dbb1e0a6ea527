//! A report as a document.

use std::fmt::Write;

use crate::report::{Report, Row};

/// The report in Markdown: the machine, then one table per place. `command` is what was typed; `when` the day; `plot` the
/// name of the plot's file.
pub fn document(report: &Report, command: &str, when: &str, plot: &str) -> String {
    let mut text = String::new();
    let machine = &report.machine;
    let gib = machine.memory_bytes >> 30;
    let _ = write!(
        text,
        "# The store against raw files\n\n\
         `{command}`, braid {}, {when}, {:.0} s. What each row does: `braid bench store --help`; the issue's targets are \
         in the last column.\n\n![the ratios]({plot})\n\n\
         | machine | |\n|---|---|\n| processor | {} ({} of them) |\n| memory | {gib} GiB |\n| kernel | {} {} |\n\
         | load, before and after | {}; {} |\n",
        report.version,
        report.seconds,
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.architecture,
        machine.load_before,
        machine.load_after,
    );
    if report.quick {
        text.push_str("\n**A quick run: it says that the measurement works, nothing about speed.**\n");
    }
    for place in &report.places {
        let (size, free) = (place.bytes >> 30, place.free_bytes >> 30);
        let _ = write!(
            text,
            "\n## {}\n\n{}, {size} GiB, {free} GiB free.\n\n\
             | | braid against | ratio | min .. max | 90 % of the mean | braid | raw | CPU s/GiB braid | raw | target |\n\
             |---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            place.label, place.file_system,
        );
        for row in report.rows.iter().filter(|row| row.place == place.label) {
            line(&mut text, row);
        }
    }
    text
}

fn line(text: &mut String, row: &Row) {
    let ratio = &row.ratio;
    let target = match (row.target, row.is_met()) {
        (Some(target), Some(true)) => format!("{target} met"),
        (Some(target), _) => format!("{target} **missed**"),
        (None, _) => String::new(),
    };
    let [low, high] = ratio.confidence_90;
    let _ = writeln!(
        text,
        "| {} | {} | **{:.2}** | {:.2} .. {:.2} | {low:.2} .. {high:.2} | {} | {} | {:.2} | {:.2} | {target} |",
        row.title(),
        row.against,
        ratio.median,
        ratio.min,
        ratio.max,
        rate(row.braid.bytes_per_second),
        rate(row.raw.bytes_per_second),
        row.braid.cpu_seconds_per_gib,
        row.raw.cpu_seconds_per_gib,
    );
}

/// Bytes per second with three digits.
pub(crate) fn rate(bytes_per_second: f64) -> String {
    match bytes_per_second {
        rate if rate >= 1e9 => format!("{:.2} GB/s", rate / 1e9),
        rate if rate >= 1e8 => format!("{:.0} MB/s", rate / 1e6),
        rate if rate >= 1e6 => format!("{:.1} MB/s", rate / 1e6),
        rate => format!("{:.0} kB/s", rate / 1e3),
    }
}
