//! Lists an object's units from the index. The cost depends on how many units there are, not on how far apart
//! they are.

use crate::index::Chain;

/// A walk over an object's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listing {
    /// The first unit that may be listed.
    pub from: u64,
    /// The direction from there.
    pub direction: Direction,
    /// Treatment of units without bytes.
    pub holes: Holes,
}

/// The direction of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To higher units.
    Up,
    /// To lower units.
    Down,
}

/// Treatment of units that were written but hold no bytes. Damaged units are always listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holes {
    /// Units without bytes are listed.
    Listed,
    /// Units without bytes are not listed.
    PassedOver,
}

/// The result of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The units, in the walk's order.
    pub units: Vec<Chain>,
    /// The unit at which to continue; `None`: there are no more.
    pub next: Option<u64>,
}
