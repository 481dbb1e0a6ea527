//! Bytes to units and back, placement, and the codes.

mod code;
mod geometry;
mod placement;
