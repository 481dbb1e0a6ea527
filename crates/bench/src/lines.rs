//! A picture of ratios: a line for each row on one logarithmic axis.

use braid_draw::{Anchor, Axis, Drawing, INK, goal_colour};

use crate::conditions::Conditions;
use crate::report::Spread;

const WIDTH: f64 = 1180.0;
const LABELS_END: f64 = 500.0;
const AXIS: (f64, f64) = (520.0, 880.0);
const TOP: f64 = 100.0;
const ROW: f64 = 26.0;

/// One row of the picture.
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) spread: Spread,
    /// Goal of the ratio, marked on the line.
    pub(crate) goal: Option<f64>,
    pub(crate) met: Option<bool>,
    /// Text behind the line.
    pub(crate) figure: String,
}

/// The rows as SVG, below this title and the machine.
pub(crate) fn lines(title: &str, ran: &Conditions, rows: &[Line]) -> String {
    let mut drawing = Drawing::default();
    drawing.text((20.0, 28.0), Anchor::Start, 18, &format!("{title}, braid {}", ran.version));
    let machine = &ran.machine;
    let about = format!(
        "{}, {} processors, kernel {}; dots: medians, lines: least to greatest of the pairs",
        machine.cpu, machine.cpus, machine.kernel
    );
    drawing.text((20.0, 48.0), Anchor::Start, 12, &about);
    drawing.goals_legend("goal");
    let length = f64::from(u32::try_from(rows.len()).unwrap_or(0)) * ROW;
    let values =
        rows.iter().flat_map(|row| [row.spread.min, row.spread.max, row.goal.unwrap_or(row.spread.median)]);
    let axis = Axis::over(values, AXIS);
    drawing.grid(&axis, TOP, length);
    drawing.line((axis.at(1.0), TOP), (axis.at(1.0), TOP + length), INK, 1.5);
    let mut y = TOP + ROW / 2.0;
    for row in rows {
        let colour = goal_colour(row.met);
        drawing.text((LABELS_END, y + 4.0), Anchor::End, 12, &row.label);
        drawing.line((axis.at(row.spread.min), y), (axis.at(row.spread.max), y), colour, 1.5);
        if let Some(goal) = row.goal {
            let x = axis.at(goal);
            drawing.line((x, y - 7.0), (x, y + 7.0), INK, 2.0);
        }
        drawing.dot((axis.at(row.spread.median), y), 4.5, colour);
        drawing.text((AXIS.1 + 14.0, y + 4.0), Anchor::Start, 12, &row.figure);
        y += ROW;
    }
    drawing.finish(WIDTH, TOP + length + 40.0)
}
