//! A report as a picture: a line for each row on one logarithmic axis of ratios.

use braid_draw::{Anchor, Axis, Drawing, INK, goal_colour};

use super::document::{goal, show_figure};
use super::report::Report;

const WIDTH: f64 = 1120.0;
const LABELS_END: f64 = 500.0;
const AXIS: (f64, f64) = (520.0, 880.0);
const TOP: f64 = 100.0;
const ROW: f64 = 26.0;

/// The report as SVG.
pub fn svg(report: &Report) -> String {
    let mut drawing = Drawing::default();
    let title = format!("Stripes over drives: first over second, braid {}", report.ran.version);
    drawing.text((20.0, 28.0), Anchor::Start, 18, &title);
    let machine = &report.ran.machine;
    let about = format!(
        "{}, {} processors, kernel {}; dots: medians, lines: least to greatest of the pairs",
        machine.cpu, machine.cpus, machine.kernel
    );
    drawing.text((20.0, 48.0), Anchor::Start, 12, &about);
    drawing.goals_legend("goal");
    let length = f64::from(u32::try_from(report.rows.len()).unwrap_or(0)) * ROW;
    let values = report.rows.iter().flat_map(|row| {
        [row.ratio.min, row.ratio.max, row.goal.map_or(row.ratio.median, super::Goal::value)]
    });
    let axis = Axis::over(values, AXIS);
    drawing.grid(&axis, TOP, length);
    drawing.line((axis.at(1.0), TOP), (axis.at(1.0), TOP + length), INK, 1.5);
    let mut y = TOP + ROW / 2.0;
    for row in &report.rows {
        let colour = goal_colour(row.met);
        let label = format!("{} {}", row.experiment, row.name);
        drawing.text((LABELS_END, y + 4.0), Anchor::End, 12, &label);
        drawing.line((axis.at(row.ratio.min), y), (axis.at(row.ratio.max), y), colour, 1.5);
        if let Some(goal) = row.goal {
            let x = axis.at(goal.value());
            drawing.line((x, y - 7.0), (x, y + 7.0), INK, 2.0);
        }
        drawing.dot((axis.at(row.ratio.median), y), 4.5, colour);
        let figure = format!("{}   {}", show_figure(row.ratio.median), goal(row));
        drawing.text((AXIS.1 + 14.0, y + 4.0), Anchor::Start, 12, &figure);
        y += ROW;
    }
    drawing.finish(WIDTH, TOP + length + 40.0)
}
