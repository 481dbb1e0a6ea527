//! A drawing: a list of shapes, with only what the plots need, shown as SVG or as PNG.

use crate::axis::Axis;
use crate::{png, svg};

/// Colour of text and axes.
pub const INK: &str = "#222222";
pub const FAINT: &str = "#d8d8d8";

// Colours that remain distinct for colour-blind readers (Okabe and Ito).
const MET: &str = "#009e73";
const MISSED: &str = "#d55e00";
const NEUTRAL: &str = "#0072b2";

/// The colour of a row, by whether its goal is met; `None`: it has none.
pub fn goal_colour(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => MET,
        Some(false) => MISSED,
        None => NEUTRAL,
    }
}

/// Alignment of a text to its point.
#[derive(Debug, Clone, Copy)]
pub enum Anchor {
    /// The text begins at the point.
    Start,
    /// The text's middle is at the point.
    Middle,
    /// The text ends at the point.
    End,
}

/// A drawing in progress. Positions are pixels from the upper left corner.
#[derive(Debug, Default)]
pub struct Drawing {
    pub(crate) shapes: Vec<Shape>,
}

/// A point: pixels from the left and from the top.
pub(crate) type Point = (f64, f64);

/// An element of a drawing.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Line { from: Point, to: Point, colour: String, width: f64 },
    Dot { at: Point, radius: f64, colour: String },
    Curve { points: Vec<Point>, colour: String, dashed: bool },
    Text { at: Point, anchor: Anchor, size: u32, text: String },
    Rectangle { at: Point, size: (f64, f64), colour: String },
}

impl Drawing {
    /// Adds a straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        self.shapes.push(Shape::Line { from, to, colour: colour.to_owned(), width });
    }

    /// Adds a filled circle.
    pub fn dot(&mut self, at: (f64, f64), radius: f64, colour: &str) {
        self.shapes.push(Shape::Dot { at, radius, colour: colour.to_owned() });
    }

    /// Adds straight lines from point to point.
    pub fn curve(&mut self, points: &[(f64, f64)], colour: &str) {
        self.shapes.push(Shape::Curve { points: points.to_vec(), colour: colour.to_owned(), dashed: false });
    }

    /// Adds dashed lines from point to point.
    pub fn dashes(&mut self, points: &[(f64, f64)], colour: &str) {
        self.shapes.push(Shape::Curve { points: points.to_vec(), colour: colour.to_owned(), dashed: true });
    }

    /// Adds a text on a baseline.
    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, size: u32, text: &str) {
        self.shapes.push(Shape::Text { at, anchor, size, text: text.to_owned() });
    }

    /// Adds a filled rectangle.
    pub fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), colour: &str) {
        self.shapes.push(Shape::Rectangle { at, size, colour: colour.to_owned() });
    }

    /// Adds a legend for the colours of rows that meet, miss or lack a `goal`, on the plot's third line.
    /// Returns the position of its right end.
    pub fn goals_legend(&mut self, goal: &str) -> f64 {
        let words = [
            (Some(true), format!("{goal} met")),
            (Some(false), format!("{goal} missed")),
            (None, format!("no {goal} set")),
        ];
        let mut at = 26.0;
        for (met, word) in words {
            self.dot((at, 66.0), 4.0, goal_colour(met));
            self.text((at + 10.0, 70.0), Anchor::Start, 12, &word);
            at += 110.0;
        }
        self.line((at, 60.0), (at, 72.0), INK, 2.0);
        self.text((at + 8.0, 70.0), Anchor::Start, 12, &format!("the {goal}"));
        at + 90.0
    }

    /// Adds the marks of an axis, as vertical lines of this length from `top` down, with their labels.
    pub fn grid(&mut self, axis: &Axis, top: f64, length: f64) {
        for (x, name) in axis.marks() {
            self.line((x, top), (x, top + length), FAINT, 1.0);
            self.text((x, top + length + 16.0), Anchor::Middle, 11, &name);
        }
    }

    /// The whole document as SVG.
    pub fn finish(self, width: f64, height: f64) -> String {
        svg::document(&self.shapes, width, height)
    }

    /// The whole picture as PNG, with two of its pixels for one of the drawing.
    pub fn png(&self, width: f64, height: f64) -> Vec<u8> {
        png::picture(&self.shapes, width, height)
    }
}
