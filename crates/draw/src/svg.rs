//! Shapes as SVG text.

use std::fmt::Write;

use crate::drawing::{Anchor, INK, Shape};

/// A document of these shapes, in pixels.
pub(crate) fn document(shapes: &[Shape], width: f64, height: f64) -> String {
    let mut body = String::new();
    shapes.iter().for_each(|shape| draw(&mut body, shape));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"Helvetica, Arial, sans-serif\">\n\
         <rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

fn draw(body: &mut String, shape: &Shape) {
    let _ = match shape {
        Shape::Line { from: (x1, y1), to: (x2, y2), colour, width } => writeln!(
            body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
        ),
        Shape::Dot { at: (x, y), radius, colour } => {
            writeln!(body, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"/>")
        }
        Shape::Curve { points, colour, dashed } => {
            let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let more = if *dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            writeln!(
                body,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{more}/>",
                points.join(" ")
            )
        }
        Shape::Text { at: (x, y), anchor, size, text } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            writeln!(
                body,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{INK}\">{}</text>",
                escape(text)
            )
        }
        Shape::Rectangle { at: (x, y), size: (width, height), colour } => writeln!(
            body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        ),
    };
}

fn escape(text: &str) -> String {
    // Control characters are not allowed in XML 1.0 (section 2.2), not even escaped.
    let text: String = text.chars().filter(|letter| !letter.is_control()).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use crate::{Anchor, Drawing};

    #[test]
    fn text_is_escaped() {
        let mut drawing = Drawing::default();
        drawing.text((1.0, 2.0), Anchor::Start, 12, "a<b\u{1} & c");
        assert!(drawing.finish(10.0, 10.0).contains("a&lt;b &amp; c"));
    }
}
