//! The form of results: curves and tables of numbers.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// Name in files, such as `swift-1991-figure-3`.
    pub(crate) name: String,
    pub(crate) title: String,
    /// Parameters of the runs, as a sentence.
    pub(crate) parameters: String,
    /// Name of the horizontal axis, with its unit.
    pub(crate) x: String,
    /// Name of the vertical axis, with its unit.
    pub(crate) y: String,
    /// Greatest value to draw; absent: all are drawn.
    pub(crate) y_max: Option<f64>,
    pub(crate) lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Number of the colour.
    pub(crate) colour: usize,
    pub(crate) style: Style,
    /// Points, from left to right.
    pub(crate) points: Vec<Point>,
}

/// Line style of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Style {
    Line,
    /// A dashed line.
    Dashes,
    /// The points alone.
    Dots,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Point {
    /// Value on the horizontal axis.
    pub(crate) x: f64,
    /// Value on the vertical axis; `None`: saturated.
    pub(crate) y: Option<f64>,
    /// Half the width of the 95 % interval of `y`, where `y` is a mean.
    pub(crate) half: Option<f64>,
    /// Mean share of time in which the disks were busy.
    pub(crate) disks_busy: f64,
    /// Share of the link's rate that was used.
    pub(crate) link_busy: f64,
    /// Requests a second that were done; only where the point is saturated.
    pub(crate) saturated_at: Option<f64>,
}

/// A table of numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Table {
    pub(crate) title: String,
    /// Description of the runs.
    pub(crate) about: String,
    /// Names of the numbers, with their units.
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Name of the case.
    pub(crate) name: String,
    /// Value for each column; `None`: the case has none.
    pub(crate) values: Vec<Option<f64>>,
}
