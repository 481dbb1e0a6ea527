//! A report as a document: a table of rates per place, then the times, then the cost of cleaning.

use std::fmt::Write;

use crate::report::{Amplification, Experiment, Report, Row, Timing};

/// The report in Markdown: the machine, then one table per place. `command` is the command line, `when` the
/// date, `plot` the name of the plot's file.
pub fn document(report: &Report, command: &str, when: &str, plot: &str) -> String {
    let mut text = String::new();
    let machine = &report.machine;
    let gib = machine.memory_bytes >> 30;
    let _ = write!(
        text,
        "# The store against raw files\n\n\
         `{command}`, braid {}, {when}, {:.0} s. What each row does: `braid-lab bench store --help`; targets are in the last \
         column.\n\n![the ratios]({plot})\n\n\
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
        let size = place.bytes >> 30;
        let free = place.free_bytes >> 30;
        let _ = write!(
            text,
            "\n## {}\n\n{}, {size} GiB, {free} GiB free.\n\n\
             | | braid against | ratio | min .. max | 90 % of the mean | braid | raw | CPU s/GiB braid | raw | target |\n\
             |---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            place.label, place.file_system,
        );
        let rows = || report.rows.iter().filter(|row| row.place == place.label);
        rows().filter(|row| row.experiment != Experiment::Sending).for_each(|row| line(&mut text, row));
        text.push_str(
            "\nSending, by sendfile and by a copy:\n\n\
             | first | second | ratio | min .. max | 90 % of the mean | first | second | CPU s/GiB first | second | target |\n\
             |---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        rows().filter(|row| row.experiment == Experiment::Sending).for_each(|row| line(&mut text, row));
    }
    times(&mut text, &report.times);
    amplification(&mut text, &report.amplification);
    text
}

fn times(text: &mut String, times: &[Timing]) {
    if times.is_empty() {
        return;
    }
    text.push_str(
        "\n## Opening\n\n\
         A store made up of objects with a log of holes, opened as a killed process left it, its files in the page cache.\n\n\
         | | place | objects | log | checkpoint | records replayed | seconds | min .. max | CPU s | target |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for time in times {
        let met = if time.is_met() { "met" } else { "**missed**" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} GiB | {} MiB | {} | **{:.2}** | {:.2} .. {:.2} | {:.2} | below {} {met} |",
            time.title(),
            time.place,
            time.objects,
            time.log_bytes >> 30,
            time.checkpoint_bytes >> 20,
            time.records,
            time.seconds.median,
            time.seconds.min,
            time.seconds.max,
            time.cpu_seconds,
            time.target_seconds,
        );
    }
}

fn amplification(text: &mut String, points: &[Amplification]) {
    let Some(first) = points.first() else { return };
    let _ = write!(
        text,
        "\n## Write amplification\n\n\
         Bytes of records written for each byte of the foreground's, when cleaning is in balance, on {}: whole units of a \
         small store overwritten at random. Live: of what writes may use (the capacity without the reserve). Checkpoints \
         are not counted. Simulated: the same decisions on a log of counters.\n\n\
         | overwrites | live | measured | simulated | written | moved |\n|---|---:|---:|---:|---:|---:|\n",
        first.place
    );
    for point in points {
        let _ = writeln!(
            text,
            "| {} | {} % | **{:.2}** | {:.2} | {} MiB | {} MiB |",
            point.load.name(),
            point.live_percent,
            point.measured,
            point.simulated,
            point.written_bytes >> 20,
            point.moved_bytes >> 20,
        );
    }
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

/// A rate in bytes per second, with three digits and a binary unit, as the requests' sizes have.
fn rate(bytes_per_second: f64) -> String {
    const KIB: f64 = 1024.0;
    let (unit, name) = match bytes_per_second {
        rate if rate >= KIB * KIB * KIB => (KIB * KIB * KIB, "GiB/s"),
        rate if rate >= KIB * KIB => (KIB * KIB, "MiB/s"),
        _ => (KIB, "KiB/s"),
    };
    let value = bytes_per_second / unit;
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_powers_of_1024() {
        let shown = [0.0, 1000.0, 5.0e6, 104_857_600.0, 1.0e9, f64::from(1 << 30), 8.4e9, 2.0e12].map(rate);
        let expected = [
            "0.00 KiB/s",
            "0.98 KiB/s",
            "4.77 MiB/s",
            "100 MiB/s",
            "954 MiB/s",
            "1.00 GiB/s",
            "7.82 GiB/s",
            "1863 GiB/s",
        ];
        assert_eq!(shown, expected);
    }
}
