//! A drawing as SVG text, with only what the plots need, and a logarithmic axis.

use std::fmt::Write;

/// Text and axes.
pub(crate) const INK: &str = "#222222";
/// Grid lines.
pub(crate) const FAINT: &str = "#d8d8d8";

// Colours that remain distinct for colour-blind readers (Okabe and Ito).
const MET: &str = "#009e73";
const MISSED: &str = "#d55e00";
const NEUTRAL: &str = "#0072b2";

/// The colour of a row, by whether its goal is met; `None`: it has none.
pub(crate) fn goal_colour(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => MET,
        Some(false) => MISSED,
        None => NEUTRAL,
    }
}

/// How a text is aligned to its point.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing in progress. Positions are pixels from the upper left corner.
#[derive(Debug, Default)]
pub(crate) struct Drawing {
    body: String,
}

impl Drawing {
    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
        );
    }

    pub(crate) fn dot(&mut self, at: (f64, f64), radius: f64, colour: &str) {
        let _ = writeln!(
            self.body,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" fill=\"{colour}\"/>",
            at.0, at.1
        );
    }

    pub(crate) fn curve(&mut self, points: &[(f64, f64)], colour: &str) {
        self.polyline(points, colour, "");
    }

    /// A dashed curve.
    pub(crate) fn dashes(&mut self, points: &[(f64, f64)], colour: &str) {
        self.polyline(points, colour, " stroke-dasharray=\"5 4\"");
    }

    fn polyline(&mut self, points: &[(f64, f64)], colour: &str, more: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{more}/>",
            points.join(" ")
        );
    }

    pub(crate) fn text(&mut self, at: (f64, f64), anchor: Anchor, size: u32, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.body,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{INK}\">{}</text>",
            at.0,
            at.1,
            escape(text)
        );
    }

    pub(crate) fn rectangle(&mut self, at: (f64, f64), (width, height): (f64, f64), colour: &str) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>",
            at.0, at.1
        );
    }

    /// What the colours of rows mean that have a `goal` or not, on the plot's third line. Returns where it
    /// ends.
    pub(crate) fn goals_legend(&mut self, goal: &str) -> f64 {
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

    /// The marks of an axis, as lines of this length from `top` down.
    pub(crate) fn grid(&mut self, axis: &Axis, top: f64, length: f64) {
        for (x, name) in axis.marks() {
            self.line((x, top), (x, top + length), FAINT, 1.0);
            self.text((x, top + length + 16.0), Anchor::Middle, 11, &name);
        }
    }

    /// The whole document.
    pub(crate) fn finish(self, width: f64, height: f64) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
             font-family=\"Helvetica, Arial, sans-serif\">\n\
             <rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.body
        )
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A logarithmic axis with a mark at each power of two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    low: i32,
    high: i32,
    /// Positions of the lower and the upper end, in pixels.
    ends: (f64, f64),
}

impl Axis {
    /// From 1 to the power of two above all `values`, none of which is below 1.
    pub(crate) fn from_one(values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Axis {
        Axis { low: 0, ..Axis::over(values, ends) }
    }

    /// From the power of two below all `values` to the one above, at least from 1/2 to 2.
    pub(crate) fn over(values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Axis {
        Axis::within((-1.0, 1.0), values, ends)
    }

    /// From the power of two below all `values` to the one above.
    pub(crate) fn around(values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Axis {
        let axis = Axis::within((f64::INFINITY, f64::NEG_INFINITY), values, ends);
        Axis { high: axis.high.max(axis.low + 1), ..axis }
    }

    fn within((low, high): (f64, f64), values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Axis {
        let (mut low, mut high) = (low, high);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            (low, high) = (low.min(value.log2().floor()), high.max(value.log2().ceil()));
        }
        // Ratios beyond a million are clamped.
        let whole = |power: f64| (-20..=20).find(|&step| f64::from(step) >= power).unwrap_or(20);
        Axis { low: whole(low), high: whole(high), ends }
    }

    pub(crate) fn at(&self, value: f64) -> f64 {
        let power = value.max(f64::MIN_POSITIVE).log2().clamp(f64::from(self.low), f64::from(self.high));
        let share = (power - f64::from(self.low)) / f64::from(self.high - self.low);
        self.ends.0 + share * (self.ends.1 - self.ends.0)
    }

    /// The marks with their labels; only every other one if there are many.
    pub(crate) fn marks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        let step = if self.high - self.low > 9 { 2 } else { 1 };
        (self.low..=self.high).filter(move |power| power % step == 0).map(|power| {
            let value = f64::from(power).exp2();
            let name = if power < 0 { format!("1/{:.0}", value.recip()) } else { format!("{value:.0}") };
            (self.at(value), name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_spans_its_values() {
        let axis = Axis::over([0.3, 11.0].into_iter(), (100.0, 700.0));
        let marks: Vec<(f64, String)> = axis.marks().collect();
        let names: Vec<&str> = marks.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["1/4", "1/2", "1", "2", "4", "8", "16"]);
        assert_eq!((axis.at(0.25), axis.at(1.0), axis.at(16.0)), (100.0, 300.0, 700.0));
        let around = Axis::around([300.0, 9000.0].into_iter(), (0.0, 60.0));
        assert_eq!(
            around.marks().map(|(x, _)| x).collect::<Vec<f64>>(),
            [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
        );
        assert_eq!((axis.at(0.0), axis.at(99.0)), (100.0, 700.0), "what is outside stands at the end");
    }

    #[test]
    fn text_is_escaped() {
        let mut drawing = Drawing::default();
        drawing.text((1.0, 2.0), Anchor::Start, 12, "a<b & c");
        assert!(drawing.finish(10.0, 10.0).contains("a&lt;b &amp; c"));
    }
}
