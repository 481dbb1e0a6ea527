//! Drawings: what plots are made of, shown as SVG text or as a PNG picture.
//!
//! The crate is on the lowest floor, and pure: values come in, texts and bytes go out. It knows nothing of
//! experiments or files.

mod axis;
mod chart;
mod drawing;
mod png;
mod svg;

pub use axis::{Axis, Linear};
pub use chart::{Chart, Curve, Scale, Style};
pub use drawing::{Anchor, Drawing, FAINT, INK, goal_colour};
