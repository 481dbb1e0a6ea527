//! What a drive's store does with its disk: where units lie, how writes are made durable, what is cached.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Span};

/// The store of every drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreModel {
    /// Where the units of an object lie.
    pub placement: Placement,
    /// Whether writes go to the end of a log. A commit takes all writes that wait, and positions only after
    /// something else moved the head. Otherwise writes go to where the unit is.
    pub log: bool,
    /// The time of a sync, once for each commit.
    pub sync: Span,
    /// The most bytes of a commit.
    pub commit: Bytes,
    /// Whether a disk finishes what one request asks of it before it begins another's (Swift, section 5.1:
    /// "Multiblock requests are allowed to complete before the resource is relinquished").
    pub whole_requests: bool,
    /// Memory that holds units read or written last. 0: none.
    pub cache: Bytes,
    /// Bytes read further when a read goes on where the last one of its object ended. 0: none.
    pub read_ahead: Bytes,
}

/// Where the units of an object lie on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Anywhere: every unit needs positioning. Swift's assumption.
    Scattered,
    /// Those of one request lie together: it needs one positioning for each disk.
    Clustered,
    /// Preallocated as one extent: positioning only if the head is elsewhere.
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
