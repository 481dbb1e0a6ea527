//! The form of results: curves and tables of numbers.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Its name in files, such as `swift-1991-figure-3`.
    pub name: String,
    pub title: String,
    /// What it was made with.
    pub parameters: String,
    /// What is drawn to the right, with its unit.
    pub x: String,
    /// What is drawn upwards, with its unit.
    pub y: String,
    /// The greatest value to draw; absent: all are drawn.
    pub y_max: Option<f64>,
    pub lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    pub name: String,
    /// Its colour, by number.
    pub colour: usize,
    /// How it is drawn.
    pub style: Style,
    /// Its points, from left to right.
    pub points: Vec<Point>,
}

/// How a curve is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    Line,
    /// A dashed line.
    Dashes,
    /// Its points alone.
    Dots,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// To the right.
    pub x: f64,
    /// Upwards; `None`: saturated.
    pub y: Option<f64>,
    /// Half the width of the 95 % interval of `y`, where it is a mean.
    pub half: Option<f64>,
    /// The mean share of time in which the disks were busy.
    pub disks_busy: f64,
    /// The share of the link's rate that was used.
    pub link_busy: f64,
    /// Where it is saturated: requests a second that were done.
    pub saturated_at: Option<f64>,
}

/// A table of numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    pub title: String,
    /// What was done.
    pub about: String,
    /// What the numbers are, with their units.
    pub columns: Vec<String>,
    pub rows: Vec<Row>,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What it is about.
    pub name: String,
    /// One for each column; `None`: it has none.
    pub values: Vec<Option<f64>>,
}
