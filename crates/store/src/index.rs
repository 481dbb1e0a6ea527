//! The index.
use braid_layout::{ColumnMask, PartitionId, Version};

use crate::mutation::WriteKind;

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionState {
    /// Which.
    pub partition: PartitionId,
    /// Soft quota in bytes; `None`: no bound.
    pub quota_bytes: Option<u64>,
    /// The working keys' epoch.
    pub key_epoch: u32,
    /// Payload bytes its objects hold, retained versions included.
    pub used: u64,
    /// How many objects it has.
    pub objects: u64,
}

/// What an object holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectUsage {
    /// Payload bytes, retained versions included.
    pub bytes: u64,
    /// Units ever written.
    pub units: u64,
    /// One past the last byte that is not a hole in the newest versions: unit and offset in it. `None`: all hole.
    pub end: Option<(u64, u32)>,
}

/// The versions of one unit, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The unit.
    pub unit: u64,
    /// At most one settled entry, then at most one pending one. Empty only if `lost`.
    pub entries: Vec<ChainEntry>,
    /// Whether the unit was found damaged: it is lost here, whatever the entries say (PROTOCOL R9).
    pub lost: bool,
}

/// One version of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainEntry {
    /// Its name.
    pub version: Version,
    /// Whether it is known here to be settled.
    pub settled: bool,
    /// What it is.
    pub kind: WriteKind,
    /// The columns its write touched.
    pub columns: ColumnMask,
    /// Parity kinds: per data column the version counted in.
    pub cover: Vec<Version>,
}
