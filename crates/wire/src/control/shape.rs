//! The shape of files in requests to the manager.

use braid_layout::{Scheme, SchemeError, Shape};

record! {
    /// A shape as numbers. Zero `k` means the one that is in force at the place (for a new volume the
    /// manager's).
    pub struct ShapeSpec {
        /// Scheme number (see `braid_layout::Scheme`).
        scheme: u8,
        /// Number of data units of a stripe.
        k: u8,
        /// Number of parity units of a stripe.
        m: u8,
        /// Length of a unit, in bytes.
        unit_bytes: u32,
    }
}

impl ShapeSpec {
    /// The default shape: that of the volume, or for a volume that of the manager.
    pub const DEFAULT: ShapeSpec = ShapeSpec { scheme: 0, k: 0, m: 0, unit_bytes: 0 };

    /// Converts the numbers to a shape, if they stand for one.
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
