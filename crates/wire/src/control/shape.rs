//! The shape of files, in requests to the manager.

use braid_layout::{Scheme, SchemeError, Shape};

record! {
    /// A scheme by its numbers; zero `k` means the volume's default (or the manager's, for a volume).
    pub struct ShapeSpec {
        /// Scheme number (see `braid_layout::Scheme`).
        scheme: u8,
        /// Data units of a stripe.
        k: u8,
        /// Parity units of a stripe.
        m: u8,
        /// Bytes of a unit.
        unit_bytes: u32,
    }
}

impl ShapeSpec {
    /// The volume's default, or the manager's.
    pub const DEFAULT: ShapeSpec = ShapeSpec { scheme: 0, k: 0, m: 0, unit_bytes: 0 };

    /// The shape, if the numbers are those of one.
    pub fn shape(&self) -> Result<Shape, SchemeError> {
        Shape::new(Scheme::from_number(self.scheme)?, self.k, self.m, self.unit_bytes)
    }
}

impl From<Shape> for ShapeSpec {
    fn from(shape: Shape) -> ShapeSpec {
        let scheme = shape.scheme().number();
        let unit_bytes = shape.unit_bytes();
        ShapeSpec { scheme, k: shape.k(), m: shape.m(), unit_bytes }
    }
}
