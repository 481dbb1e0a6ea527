//! The model of a drive's store: where units lie on its disk, how writes become durable, what is cached.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Span};

/// The store of every drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreModel {
    /// Placement of the units of an object.
    pub placement: Placement,
    /// True if writes go to the end of a log. A commit then takes all writes that wait, and positions only
    /// if something else has moved the head. Otherwise writes go to the place of their unit.
    pub log: bool,
    /// Time of a sync, once for each commit.
    pub sync: Span,
    /// Most bytes of a commit.
    pub commit: Bytes,
    /// True if a disk finishes all commands of one request before it begins those of another (Swift,
    /// section 5.1: "Multiblock requests are allowed to complete before the resource is relinquished").
    pub whole_requests: bool,
    /// Bytes of memory that hold the units read or written last. 0: no cache.
    pub cache: Bytes,
    /// Bytes that are read ahead when a read begins where the last one of its object ended. 0: none.
    pub read_ahead: Bytes,
}

/// Placement of an object's units on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Anywhere: every unit needs positioning. Swift's assumption.
    Scattered,
    /// The units of one request lie together: each disk positions once for a request.
    Clustered,
    /// Preallocated as one extent: a disk positions only if the head is elsewhere.
    Contiguous,
}

impl Default for StoreModel {
    fn default() -> Self {
        StoreModel {
            placement: Placement::Contiguous,
            log: false,
            sync: Span(0),
            commit: Bytes(8 << 20),
            whole_requests: false,
            cache: Bytes(0),
            read_ahead: Bytes(0),
        }
    }
}
