//! Lists an object's units from the index. The cost depends on how many units there are, not on how far apart
//! they are.

use super::Chain;

/// A walk over an object's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listing {
    /// The first unit that may be listed.
    pub from: u64,
    /// The direction from there.
    pub direction: Direction,
    /// Whether units without bytes are listed.
    pub holes: Holes,
}

/// The direction of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To higher units.
    Up,
    /// To lower ones.
    Down,
}

/// Whether units that were written but hold no bytes are listed. Damaged units are always listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holes {
    /// They are listed.
    Listed,
    /// They are not.
    PassedOver,
}

/// What a walk found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The units, in the walk's order.
    pub units: Vec<Chain>,
    /// Where to continue; `None`: there are no more.
    pub next: Option<u64>,
}
