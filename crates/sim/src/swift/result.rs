//! The form of results: curves and tables of numbers.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Name in files, such as `swift-1991-figure-3`.
    pub name: String,
    pub title: String,
    /// Parameters of the runs, as a sentence.
    pub parameters: String,
    /// Name of the horizontal axis, with its unit.
    pub x: String,
    /// Name of the vertical axis, with its unit.
    pub y: String,
    /// Greatest value to draw; absent: all are drawn.
    pub y_max: Option<f64>,
    pub lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    pub name: String,
    /// Number of the colour.
    pub colour: usize,
    pub style: Style,
    /// Points, from left to right.
    pub points: Vec<Point>,
}

/// Line style of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    Line,
    /// A dashed line.
    Dashes,
    /// The points alone.
    Dots,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Value on the horizontal axis.
    pub x: f64,
    /// Value on the vertical axis; `None`: saturated.
    pub y: Option<f64>,
    /// Half the width of the 95 % interval of `y`, where `y` is a mean.
    pub half: Option<f64>,
    /// Mean share of time in which the disks were busy.
    pub disks_busy: f64,
    /// Share of the link's rate that was used.
    pub link_busy: f64,
    /// Requests a second that were done; only where the point is saturated.
    pub saturated_at: Option<f64>,
}

/// A table of numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    pub title: String,
    /// Description of the runs.
    pub about: String,
    /// Names of the numbers, with their units.
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Name of the case.
    pub name: String,
    /// Value for each column; `None`: the case has none.
    pub values: Vec<Option<f64>>,
}
