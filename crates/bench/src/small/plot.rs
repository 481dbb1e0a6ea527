//! A report as a picture: each row has its rate on a logarithmic axis, with the goal and the plain
//! exchanges, and beside it the shares of the processor time.

use braid_draw::{Anchor, Axis, Drawing, INK, goal_colour};

use super::document::show_number;
use super::report::{CpuTime, Report, Row};

/// Colours of client, drives and manager: their user time, and, paler, the kernel time spent for them
/// (after Okabe and Ito).
const PARTS: [(&str, [&str; 2]); 3] = [
    ("client", ["#56b4e9", "#c3e3f7"]),
    ("drives", ["#e69f00", "#f7dea8"]),
    ("manager", ["#cc79a7", "#ecd0df"]),
];
const PLAIN: &str = "#888888";

const WIDTH: f64 = 1220.0;
const LABELS_END: f64 = 270.0;
const AXIS: (f64, f64) = (290.0, 660.0);
const RATES_END: f64 = 740.0;
const BARS: (f64, f64) = (770.0, 1060.0);
const BAR: f64 = 14.0;
const TOP: f64 = 112.0;
const ROW: f64 = 24.0;

/// The report as SVG.
pub fn svg(report: &Report) -> String {
    let mut drawing = Drawing::default();
    let machine = &report.ran.machine;
    let title = format!("Small work on a cluster, raid5 4+1, braid {}", report.ran.version);
    drawing.text((20.0, 28.0), Anchor::Start, 18, &title);
    let about = format!(
        "{}, {} processors, kernel {}; load {} before, {} after; drives in {} ({})",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        machine.load_before,
        machine.load_after,
        report.ran.place.directory.display(),
        report.ran.place.file_system,
    );
    drawing.text((20.0, 48.0), Anchor::Start, 12, &about);
    let at = drawing.goals_legend("goal");
    drawing.line((at, 66.0), (at + 12.0, 66.0), PLAIN, 3.0);
    drawing.text((at + 20.0, 70.0), Anchor::Start, 12, "plain exchanges");
    parts_legend(&mut drawing);
    drawing.text((AXIS.0, TOP - 12.0), Anchor::Start, 12, "operations a second");
    drawing.text(
        (BARS.0, TOP - 12.0),
        Anchor::Start,
        12,
        "processor time for one, by process; paler: kernel",
    );
    let length = f64::from(u32::try_from(report.rows.len()).unwrap_or(0)) * ROW;
    let values = report.rows.iter().flat_map(|row| {
        let rate = &row.per_second;
        let plain = row.plain.as_ref().map_or(rate.median, |plain| plain.per_second);
        [rate.min, rate.max, plain, row.goals.per_second.unwrap_or(rate.median)]
    });
    let axis = Axis::around(values, AXIS);
    drawing.grid(&axis, TOP, length);
    let mut y = TOP + ROW / 2.0;
    for row in &report.rows {
        drawing.text((LABELS_END, y + 4.0), Anchor::End, 12, &row.name);
        rate(&mut drawing, &axis, row, y);
        bar(&mut drawing, row, y);
        y += ROW;
    }
    drawing.finish(WIDTH, TOP + length + 40.0)
}

fn parts_legend(drawing: &mut Drawing) {
    let mut at = BARS.0;
    for (name, [user, kernel]) in PARTS {
        drawing.rectangle((at, 60.0), (8.0, 12.0), user);
        drawing.rectangle((at + 8.0, 60.0), (8.0, 12.0), kernel);
        drawing.text((at + 22.0, 70.0), Anchor::Start, 12, name);
        at += 90.0;
    }
}

fn rate(drawing: &mut Drawing, axis: &Axis, row: &Row, y: f64) {
    let rate = &row.per_second;
    let colour = goal_colour(row.met);
    if let Some(plain) = &row.plain {
        let x = axis.at(plain.per_second);
        drawing.line((x - 5.0, y), (x + 5.0, y), PLAIN, 3.0);
    }
    drawing.line((axis.at(rate.min), y), (axis.at(rate.max), y), colour, 1.5);
    if let Some(goal) = row.goals.per_second {
        let x = axis.at(goal);
        drawing.line((x, y - 7.0), (x, y + 7.0), INK, 2.0);
    }
    drawing.dot((axis.at(rate.median), y), 4.5, colour);
    drawing.text((RATES_END, y + 4.0), Anchor::End, 12, &show_number(rate.median));
}

/// Draws the parts of a row's processor time as a bar, with the total as a number.
fn bar(drawing: &mut Drawing, row: &Row, y: f64) {
    let cpu = &row.cpu_us;
    let mut x = BARS.0;
    let scale = (BARS.1 - BARS.0) / row.cpu_total_us.max(1e-9);
    for ((_, colours), CpuTime { user, kernel }) in PARTS.iter().zip([cpu.client, cpu.drives, cpu.manager]) {
        for (colour, time) in colours.iter().zip([user, kernel]) {
            drawing.rectangle((x, y - BAR / 2.0), (time * scale, BAR), colour);
            x += time * scale;
        }
    }
    let goal = row.goals.cpu_us.map_or(String::new(), |most| format!(" (<= {})", show_number(most)));
    let text = format!("{} us{goal}", show_number(row.cpu_total_us));
    drawing.text((BARS.1 + 10.0, y + 4.0), Anchor::Start, 12, &text);
}
