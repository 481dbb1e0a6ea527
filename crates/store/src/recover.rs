//! Recovery.
use std::time::Duration;

/// Damage found in the log before its tail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The segment's number.
    pub segment: u64,
    /// Byte offset in its file.
    pub offset: u64,
    /// What is wrong there, and what it hit.
    pub what: String,
}

/// What opening a store found.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    /// Segments read.
    pub segments: u64,
    /// Records replayed.
    pub records: u64,
    /// Bytes of a torn tail that were cut: none of them was ever acknowledged.
    pub torn_bytes: u64,
    /// Damage before the tail, at most 1000 entries.
    pub damaged: Vec<Damage>,
    /// Places of damage in all.
    pub damaged_count: u64,
    /// How long it took.
    pub took: Duration,
}
