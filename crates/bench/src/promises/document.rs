//! A report as a document: the disks, the table and the plots.

use std::fmt::Write;

use braid_draw::{Chart, Curve, Style};

use super::job::INTERVAL;
use super::report::{Plot, Report, milliseconds};

/// The report in Markdown. `command` is the command line, `when` the date.
pub fn document(report: &Report, command: &str, when: &str) -> String {
    let mut text = report.ran.head("Promised rates (E14)", command, when, None);
    text.push_str(
        "\nDisks are modelled: each drive's disk, in memory, takes the time that the model says \
         (`braid drive serve --disk-model`), and nothing comes from a cache. All processes share this machine's \
         processors. Links are loopback, and not limited.\n\n| disks | model |\n|---|---|\n",
    );
    for (name, model) in &report.disks {
        let _ = writeln!(text, "| {name} | `{model}` |");
    }
    text.push_str("\n| what | disks | found | goal |\n|---|---|---|---|\n");
    for row in &report.rows {
        let goal = row.show_goal().replace("missed", "**missed**");
        let _ = writeln!(text, "| {} | {} | {} | {goal} |", row.name, row.disks, row.found);
    }
    for left_out in &report.left_out {
        let _ = writeln!(text, "\nNot measured: {}: {}.", left_out.name, left_out.why);
    }
    text.push_str(
        "\nWhat it costs when nobody has reserved is measured by pairs of builds, not by this command: \
         docs/bench.md says how.\n",
    );
    for plot in &report.plots {
        let _ = writeln!(text, "\n![{}]({}.svg)", plot.title, plot.name);
    }
    text
}

/// The plot of lateness over time: for each run a curve of reads and one of writes, and the bound.
pub fn lateness_chart(plot: &Plot) -> Chart {
    let mut curves = Vec::new();
    let interval = INTERVAL.as_secs_f64();
    let mut end = 0.0_f64;
    let mut bound_us = 0;
    let mut happened = Vec::new();
    for (colour, (name, sum, marks)) in plot.runs.iter().enumerate() {
        bound_us = sum.bound_us.max(bound_us);
        for (direction, lateness_us) in ["reads", "writes"].into_iter().zip(&sum.lateness_us) {
            if lateness_us.is_empty() {
                continue;
            }
            let style = if direction == "reads" { Style::Line } else { Style::Dashes };
            let points: Vec<(f64, f64)> = (0_u32..)
                .zip(lateness_us)
                .map(|(index, us)| (f64::from(index) * interval, milliseconds(*us)))
                .collect();
            end = end.max(points.last().map_or(0.0, |point| point.0));
            curves.push(Curve { name: format!("{name}, {direction}"), points, colour, style });
        }
        happened.extend(marks.iter().map(|(at, what)| format!("{name}: {what} at {at:.1} s")));
    }
    let bound = milliseconds(bound_us);
    curves.push(Curve {
        name: format!("bound {bound:.0} ms"),
        points: vec![(0.0, bound), (end, bound)],
        colour: 6,
        style: Style::Line,
    });
    Chart {
        title: plot.title.clone(),
        subtitle: happened.join("; "),
        x: "seconds".to_owned(),
        y: "worst time after due, of each 100 ms (milliseconds)".to_owned(),
        curves,
        ..Chart::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promises::Summary;

    #[test]
    fn a_plot_has_its_runs_and_the_bound() {
        let run = |us| Summary { bound_us: 50_000, lateness_us: [vec![us, 0], vec![]], ..Summary::default() };
        let marks = vec![(1.5, "drive-2 killed".to_owned())];
        let runs = vec![
            ("reserved".to_owned(), run(1000), marks),
            ("not reserved".to_owned(), run(90_000), Vec::new()),
        ];
        let chart = lateness_chart(&Plot { name: "p".into(), title: "t".into(), runs });
        let names: Vec<&str> = chart.curves.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(names, ["reserved, reads", "not reserved, reads", "bound 50 ms"]);
        assert_eq!(chart.curves[1].points, [(0.0, 90.0), (0.1, 0.0)]);
        assert_eq!(chart.subtitle, "reserved: drive-2 killed at 1.5 s");
    }
}
