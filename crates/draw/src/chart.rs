//! A chart: curves over two linear axes, with their names and a legend.

use crate::axis::{Axis, Linear};
use crate::drawing::{Anchor, Drawing, FAINT, INK};

// Distinct for colour-blind readers (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"];

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 520.0;
const PLOT_X: (f64, f64) = (70.0, 620.0);
const PLOT_Y: (f64, f64) = (460.0, 70.0);
const LEGEND: f64 = 640.0;
/// Height of one row of the legend, in pixels.
const ROW: f64 = 18.0;
/// Most letters of a title and a subtitle that fit: letters are as wide as the font's, 9 to 17 of the
/// picture's 1720 pixels.
const TITLE_LETTERS: usize = 90;
const SUBTITLE_LETTERS: usize = 130;
/// Most letters of a name in the legend, and most for which the picture is not widened.
const LEGEND_LETTERS: usize = 120;
const LEGEND_FREE: usize = 36;
/// Width that each further letter of the legend adds, in pixels.
const LETTER: f64 = 7.0;

#[derive(Debug, Clone, Default)]
pub struct Chart {
    pub title: String,
    /// Text below the title.
    pub subtitle: String,
    /// Name of the horizontal axis, with its unit.
    pub x: String,
    /// Name of the vertical axis, with its unit.
    pub y: String,
    /// Greatest value of the vertical axis; absent: all values are shown.
    pub y_max: Option<f64>,
    pub scale: Scale,
    pub curves: Vec<Curve>,
}

#[derive(Debug, Clone, Default)]
pub struct Curve {
    /// Name in the legend.
    pub name: String,
    /// Points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Number of the colour; curves of one colour differ by their style.
    pub colour: usize,
    pub style: Style,
}

/// Scale of both axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// From 0, in equal steps.
    #[default]
    Linear,
    /// Powers of two, for values of many sizes.
    Powers,
}

/// An axis of either scale.
enum Scaled {
    Linear(Linear),
    Powers(Axis),
}

impl Scaled {
    fn at(&self, value: f64) -> f64 {
        match self {
            Scaled::Linear(axis) => axis.at(value),
            Scaled::Powers(axis) => axis.at(value),
        }
    }

    fn marks(&self) -> Vec<(f64, String)> {
        match self {
            Scaled::Linear(axis) => axis.marks().collect(),
            Scaled::Powers(axis) => axis.marks().collect(),
        }
    }
}

/// Line style of a curve. The points are drawn as dots in every style.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    #[default]
    Line,
    /// A dashed line.
    Dashes,
    Dots,
}

impl Chart {
    /// The chart as SVG and as PNG.
    pub fn pictures(&self) -> (String, Vec<u8>) {
        let drawing = self.drawing();
        let rows = self.curves.iter().map(|_| ROW).sum::<f64>();
        let height = HEIGHT.max(PLOT_Y.1 + rows + 20.0);
        let longest = self.curves.iter().map(|curve| curve.name.chars().count()).max().unwrap_or(0);
        let more = (LEGEND_FREE..longest.min(LEGEND_LETTERS)).map(|_| LETTER).sum::<f64>();
        let png = drawing.png(WIDTH + more, height);
        (drawing.finish(WIDTH + more, height), png)
    }

    /// The axis over these values, up to `most`.
    fn axis(&self, values: impl Iterator<Item = f64>, most: f64, ends: (f64, f64)) -> Scaled {
        match self.scale {
            Scale::Linear => Scaled::Linear(Linear::to(most, 8, ends)),
            Scale::Powers => {
                let values = values.filter(|&value| value <= most);
                Scaled::Powers(Axis::around(values, ends))
            }
        }
    }

    fn drawing(&self) -> Drawing {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let y_max = self.y_max.unwrap_or_else(|| most(&mut points().map(|point| point.1)));
        let x_max = most(&mut points().map(|point| point.0));
        let x = self.axis(points().map(|point| point.0), x_max, PLOT_X);
        let y = self.axis(points().map(|point| point.1), y_max, PLOT_Y);
        let mut drawing = Drawing::default();
        drawing.text((20.0, 26.0), Anchor::Start, 16, &fitting(&self.title, TITLE_LETTERS));
        drawing.text((20.0, 44.0), Anchor::Start, 11, &fitting(&self.subtitle, SUBTITLE_LETTERS));
        for (at, name) in x.marks() {
            drawing.line((at, PLOT_Y.0), (at, PLOT_Y.1), FAINT, 1.0);
            drawing.text((at, PLOT_Y.0 + 18.0), Anchor::Middle, 11, &name);
        }
        for (at, name) in y.marks() {
            drawing.line((PLOT_X.0, at), (PLOT_X.1, at), FAINT, 1.0);
            drawing.text((PLOT_X.0 - 8.0, at + 4.0), Anchor::End, 11, &name);
        }
        drawing.line((PLOT_X.0, PLOT_Y.0), (PLOT_X.1, PLOT_Y.0), INK, 1.0);
        drawing.line((PLOT_X.0, PLOT_Y.0), (PLOT_X.0, PLOT_Y.1), INK, 1.0);
        drawing.text((20.0, 62.0), Anchor::Start, 12, &fitting(&self.y, SUBTITLE_LETTERS));
        drawing.text(((PLOT_X.0 + PLOT_X.1) / 2.0, HEIGHT - 16.0), Anchor::Middle, 12, &self.x);
        let mut row = PLOT_Y.1 + 10.0;
        for curve in &self.curves {
            let colour = COLOURS[curve.colour % COLOURS.len()];
            let inside = curve.points.iter().take_while(|point| point.1 <= y_max * 1.001);
            let at: Vec<(f64, f64)> = inside.map(|&(px, py)| (x.at(px), y.at(py))).collect();
            let sample = [(LEGEND, row - 4.0), (LEGEND + 28.0, row - 4.0)];
            for line in [at.as_slice(), &sample] {
                match curve.style {
                    Style::Line => drawing.curve(line, colour),
                    Style::Dashes => drawing.dashes(line, colour),
                    Style::Dots => {}
                }
            }
            if curve.style == Style::Dots {
                drawing.dot((LEGEND + 14.0, row - 4.0), 3.0, colour);
            }
            at.iter().for_each(|&point| drawing.dot(point, 3.0, colour));
            drawing.text((LEGEND + 36.0, row), Anchor::Start, 11, &fitting(&curve.name, LEGEND_LETTERS));
            row += ROW;
        }
        drawing
    }
}

/// Shortens a text with more than `most` letters in its middle: often its end tells it from others.
fn fitting(text: &str, most: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= most {
        return text.to_owned();
    }
    let start = most / 2 - 2;
    let end = letters.len() - (most - most / 2 - 1);
    letters[..start].iter().chain(&['.'; 3]).chain(&letters[end..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_loses_its_middle_and_a_legend_finds_room() {
        assert_eq!(fitting("0123456789", 10), "0123456789");
        assert_eq!(fitting("0123456789X", 10), "012...789X");
        let curve = |number: u32| Curve { name: format!("curve {number}"), ..Curve::default() };
        let chart = Chart { curves: (0..60).map(curve).collect(), ..Chart::default() };
        let svg = chart.pictures().0;
        let height: f64 = svg
            .split_once("height=\"")
            .and_then(|(_, rest)| rest.split('"').next()?.parse().ok())
            .expect("a height");
        let last =
            svg.split("<text x=").filter(|text| text.contains("curve 59")).last().expect("the last curve");
        let y: f64 = last
            .split("y=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next()?.parse().ok())
            .expect("its place");
        assert!(y < height, "{y} of {height}");
        let long = Curve { name: "x".repeat(100), ..Curve::default() };
        let svg = Chart { curves: vec![long], ..Chart::default() }.pictures().0;
        assert!(svg.contains(&"x".repeat(100)) && svg.contains("width=\"1308\""), "{svg}");
    }

    #[test]
    fn axes_and_curves_have_their_names() {
        let curve = Curve {
            name: "32 disks".to_owned(),
            points: vec![(1.0, 60.0), (20.0, 90.0)],
            ..Curve::default()
        };
        let chart = Chart {
            title: "T".to_owned(),
            x: "requests per second".to_owned(),
            y: "milliseconds".to_owned(),
            curves: vec![curve],
            ..Chart::default()
        };
        let (svg, png) = chart.pictures();
        for name in ["32 disks", "requests per second", "milliseconds", ">20<", ">100<"] {
            assert!(svg.contains(name), "{name}");
        }
        assert_eq!(png[1..4], *b"PNG");
    }
}
