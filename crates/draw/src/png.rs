//! Shapes as a PNG picture, for programs that show no SVG.
//!
//! Everything drawn is a line with round ends, a dot, a rectangle or a text. A line's share of a pixel's
//! colour follows from the pixel's distance to it, which makes edges smooth. Texts come from a bitmap font,
//! whose letters all have one width.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use png::{BitDepth, ColorType, Encoder};

use crate::drawing::{Anchor, INK, Point, Shape};

/// Pixels of the picture for one pixel of the drawing.
const SCALE: f64 = 2.0;
/// Most pixels of a side.
const SIDE_MAX: f64 = 16_384.0;

/// A picture of these shapes.
pub(crate) fn picture(shapes: &[Shape], width: f64, height: f64) -> Vec<u8> {
    let mut canvas = Canvas::new(width, height);
    shapes.iter().for_each(|shape| canvas.draw(shape));
    canvas.encode()
}

struct Canvas {
    width: usize,
    height: usize,
    /// Red, green and blue of each pixel.
    pixels: Vec<u8>,
}

/// Red, green, blue.
type Colour = [u8; 3];

impl Canvas {
    fn new(width: f64, height: f64) -> Canvas {
        let width = pixel(width * SCALE).max(1);
        let height = pixel(height * SCALE).max(1);
        Canvas { width, height, pixels: vec![255; width * height * 3] }
    }

    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Line { from, to, colour, width } => self.stroke(*from, *to, *width, parse(colour)),
            Shape::Dot { at, radius, colour } => self.stroke(*at, *at, radius * 2.0, parse(colour)),
            Shape::Curve { points, colour, dashed } => {
                let pieces = if *dashed { dashes(points) } else { pairs(points) };
                pieces.into_iter().for_each(|(from, to)| self.stroke(from, to, 2.0, parse(colour)));
            }
            Shape::Text { at, anchor, size, text } => self.text(*at, *anchor, *size, text),
            Shape::Rectangle { at, size, colour } => self.fill(*at, size.0, size.1, parse(colour)),
        }
    }

    /// Draws a line with round ends.
    fn stroke(&mut self, from: Point, to: Point, width: f64, colour: Colour) {
        let (x1, y1) = scaled(from);
        let (x2, y2) = scaled(to);
        let half = width * SCALE / 2.0;
        let length = (x2 - x1).powi(2) + (y2 - y1).powi(2);
        let reach = half + 1.0;
        for y in pixel(y1.min(y2) - reach)..=pixel(y1.max(y2) + reach) {
            for x in pixel(x1.min(x2) - reach)..=pixel(x1.max(x2) + reach) {
                let px = real(x) + 0.5;
                let py = real(y) + 0.5;
                let along = if length > 0.0 {
                    (((px - x1) * (x2 - x1) + (py - y1) * (y2 - y1)) / length).clamp(0.0, 1.0)
                } else {
                    0.0
                };
                let distance =
                    ((px - x1 - along * (x2 - x1)).powi(2) + (py - y1 - along * (y2 - y1)).powi(2)).sqrt();
                self.blend(x, y, colour, half + 0.5 - distance);
            }
        }
    }

    fn fill(&mut self, at: Point, width: f64, height: f64, colour: Colour) {
        let (x1, y1) = scaled(at);
        let (x2, y2) = scaled((at.0 + width, at.1 + height));
        for y in pixel(y1)..pixel(y2) {
            for x in pixel(x1)..pixel(x2) {
                self.blend(x, y, colour, 1.0);
            }
        }
    }

    fn text(&mut self, at: Point, anchor: Anchor, size: u32, text: &str) {
        let height = match size {
            0..=9 => RasterHeight::Size16,
            10..=11 => RasterHeight::Size20,
            12..=14 => RasterHeight::Size24,
            _ => RasterHeight::Size32,
        };
        let step = real(get_raster_width(FontWeight::Regular, height));
        let count = text.chars().count();
        let share = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => 0.5,
            Anchor::End => 1.0,
        };
        let (x, baseline) = scaled(at);
        // Letters stand on three quarters of their box.
        let top = baseline - real(height.val()) * 0.76;
        let mut left = x - share * step * real(count);
        let colour = parse(INK);
        for letter in text.chars() {
            let letter = match letter {
                '\u{2010}'..='\u{2015}' => '-',
                '\u{3bc}' => '\u{b5}',
                '\u{2018}' | '\u{2019}' => '\'',
                '\u{201c}' | '\u{201d}' => '"',
                letter => letter,
            };
            let known = get_raster(letter, FontWeight::Regular, height);
            if let Some(raster) = known.or_else(|| get_raster('?', FontWeight::Regular, height)) {
                for (row, line) in raster.rows().enumerate() {
                    for (column, share) in line.iter().enumerate() {
                        let x = pixel(left + real(column));
                        let y = pixel(top + real(row));
                        self.blend(x, y, colour, f64::from(*share) / 255.0);
                    }
                }
            }
            left += step;
        }
    }

    /// Mixes a share of a colour into a pixel.
    fn blend(&mut self, x: usize, y: usize, colour: Colour, share: f64) {
        if x >= self.width || y >= self.height || share <= 0.0 {
            return;
        }
        let share = share.min(1.0);
        let at = (y * self.width + x) * 3;
        for (channel, new) in self.pixels[at..at + 3].iter_mut().zip(colour) {
            let mixed = f64::from(*channel) * (1.0 - share) + f64::from(new) * share;
            *channel = u8::try_from(pixel(mixed.round())).unwrap_or(255);
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let side = |side: usize| u32::try_from(side).expect("a side is bounded");
        let mut encoder = Encoder::new(&mut bytes, side(self.width), side(self.height));
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        encoder
            .write_header()
            .and_then(|mut writer| writer.write_image_data(&self.pixels))
            .expect("memory takes all that is written");
        bytes
    }
}

/// A position as the number of a pixel; 0 for a position left of or above the picture.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
fn pixel(position: f64) -> usize {
    position.clamp(0.0, SIDE_MAX) as usize
}

#[expect(clippy::cast_precision_loss, reason = "sides are bounded")]
fn real(pixel: usize) -> f64 {
    pixel as f64
}

fn scaled(at: Point) -> Point {
    (at.0 * SCALE, at.1 * SCALE)
}

/// A colour as `#rrggbb`; black if it is written otherwise.
fn parse(colour: &str) -> Colour {
    let part = |at: usize| {
        colour.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or(0)
    };
    [part(1), part(3), part(5)]
}

fn pairs(points: &[Point]) -> Vec<(Point, Point)> {
    points.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// The pieces of a dashed curve: five pixels, and four left out.
fn dashes(points: &[Point]) -> Vec<(Point, Point)> {
    const ON: f64 = 5.0;
    const PERIOD: f64 = 9.0;
    let mut found = Vec::new();
    let mut phase = 0.0;
    for ((x1, y1), (x2, y2)) in pairs(points) {
        let length = ((x2 - x1).powi(2) + (y2 - y1).powi(2)).sqrt();
        let at = |along: f64| (x1 + (x2 - x1) * along / length, y1 + (y2 - y1) * along / length);
        let mut along = 0.0;
        while along < length {
            let left = if phase < ON { ON - phase } else { PERIOD - phase };
            let end = (along + left).min(length);
            if phase < ON {
                found.push((at(along), at(end)));
            }
            phase = (phase + end - along) % PERIOD;
            along = end + 1e-9;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Drawing;

    /// Reads a picture back: its width and the red of each pixel.
    fn decode(bytes: &[u8]) -> (usize, Vec<u8>) {
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().expect("a header");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a small picture")];
        let info = reader.next_frame(&mut pixels).expect("the pixels");
        (usize::try_from(info.width).expect("small"), pixels.chunks(3).map(|pixel| pixel[0]).collect())
    }

    #[test]
    fn a_line_is_where_it_was_drawn() {
        let mut drawing = Drawing::default();
        drawing.line((2.0, 5.0), (18.0, 5.0), "#000000", 2.0);
        let (width, red) = decode(&drawing.png(20.0, 10.0));
        assert_eq!((width, red.len()), (40, 800));
        assert_eq!(red[10 * width + 20], 0, "the middle of the line");
        assert_eq!(red[2 * width + 20], 255, "above it");
    }

    #[test]
    fn letters_leave_ink() {
        let mut drawing = Drawing::default();
        drawing.text((20.0, 15.0), Anchor::Middle, 12, "M");
        let (width, red) = decode(&drawing.png(40.0, 20.0));
        let inked: Vec<usize> = (0..red.len()).filter(|&at| red[at] < 128).collect();
        assert!(inked.len() > 40, "{}", inked.len());
        assert!(inked.iter().all(|at| (26..54).contains(&(at % width))), "around the middle");
    }

    #[test]
    fn dashes_leave_gaps() {
        let pieces = dashes(&[(0.0, 0.0), (18.0, 0.0)]);
        let lengths: Vec<f64> = pieces.iter().map(|((x1, _), (x2, _))| (x2 - x1).round()).collect();
        assert_eq!(lengths, [5.0, 5.0]);
    }
}
