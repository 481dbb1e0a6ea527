//! The index: everything the store knows, in memory. A pure machine: records in, state out.
//!
//! It changes by one road only, [`Index::apply`], which the committer walks with each record once it is durable, and
//! recovery with each record it finds; so what is replayed is what was. [`check`] decides, against the same state, what
//! a mutation becomes before it is written.
//!
//! Beside the objects it keeps, per segment, how much of it is live (`live`). A checkpoint is its image (`image`).

mod apply;
pub(crate) mod attributes;
pub(crate) mod big;
pub(crate) mod bounds;
pub(crate) mod check;
mod check_step;
mod damage;
pub(crate) mod dedup;
pub(crate) mod extent;
pub(crate) mod growth;
pub(crate) mod image;
pub(crate) mod live;
pub(crate) mod locked;
pub(crate) mod lost;
pub(crate) mod owed;
pub(crate) mod paged;
mod pages;
pub(crate) mod parity;
pub(crate) mod query;
pub(crate) mod runs;
pub(crate) mod slot;
pub(crate) mod snapshots;
pub(crate) mod unit;
mod unit_image;

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{Column, ColumnMask, ObjectId, PartitionId, Version};

use crate::format::checkpoint::{Appended, ReplayPoint};
use crate::mutation::WriteKind;
use attributes::PackedAttributes;
use big::Watched;
use bounds::Bounds;
use dedup::Dedup;
use live::Segments;
use lost::Lost;
use paged::PagedMap;
use runs::Runs;
use slot::Slot;
use snapshots::Snapshots;
use unit::Place;

/// The store's state in memory.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) partitions: BTreeMap<PartitionId, Partition>,
    pub(crate) segments: Segments,
    /// Keys of which nothing is known.
    pub(crate) lost: Lost,
    /// Units in which something waits to be folded.
    pub(crate) foldable: BTreeSet<(PartitionId, ObjectId, u64)>,
    /// Objects that were without attributes when they were loaded, or at some time of replay.
    pub(crate) unknown: BTreeSet<(PartitionId, ObjectId)>,
    /// Bytes that objects have reserved and do not hold yet.
    pub(crate) reserved: u64,
    /// Whether the store serves: what was owed before is in doubt.
    pub(crate) serving: bool,
    /// Where the next record goes: all before it are in here.
    pub(crate) head: ReplayPoint,
    /// What all these were in bytes.
    pub(crate) appended: Appended,
    pub(crate) bounds: Bounds,
    /// The big object whose pages are being made.
    pub(crate) watched: Option<Box<Watched>>,
}

/// A partition.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    pub(crate) quota_bytes: Option<u64>,
    pub(crate) key_epoch: u32,
    /// The sequence number of the record that created it.
    pub(crate) birth: u64,
    /// Whether its values are known: damage may have hit them.
    pub(crate) known: bool,
    /// Payload bytes its objects refer to.
    pub(crate) used: u64,
    /// Bytes that its objects have reserved and do not hold yet.
    pub(crate) reserved: u64,
    /// Boxed: nodes of a tree are half empty after appends.
    pub(crate) objects: BTreeMap<ObjectId, Box<Object>>,
}

/// An object.
#[derive(Debug)]
pub(crate) struct Object {
    /// The sequence number of the record that created it; tells records of an earlier object of the same number.
    pub(crate) birth: u64,
    pub(crate) attributes: PackedAttributes,
    /// Whether its attributes are known: damage may have hit them.
    pub(crate) known: bool,
    /// Damage that may have hit any of its units.
    pub(crate) lost: Option<Place>,
    pub(crate) units: PagedMap<u64, Slot>,
    /// Pending versions. `None` if there are none: a map of its own would be most of an object that is at rest.
    pub(crate) pending: Option<Box<PendingVersions>>,
    /// Payload bytes its units refer to.
    pub(crate) bytes: u64,
    /// What most objects have nothing of.
    pub(crate) extra: Option<Box<Extra>>,
}

/// (lease, g, n, unit) each, so that what a lease has settled is one range.
pub(crate) type PendingVersions = PagedMap<(u32, u32, u64, u64), ()>;

/// What an object with unit writes, snapshots, or of a joining column, has besides.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Extra {
    /// Units with owed versions, or deltas not known to be settled.
    pub(crate) unsettled: PagedMap<u64, ()>,
    /// Operations that are done.
    pub(crate) dedup: Dedup,
    /// Of a joining column: units that are caught up.
    pub(crate) ready: Runs,
    /// Its snapshots.
    pub(crate) snapshots: Snapshots,
}

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
    /// Bytes that its objects have reserved and do not hold yet: they count against the quota too.
    pub reserved: u64,
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
    /// One past the last byte that was ever written, as bytes or as a hole, in the newest versions: unit and offset in it.
    /// Holes count, as they have versions too. `None`: never written.
    pub end: Option<(u64, u32)>,
    /// The same without holes: what a truncation, which writes holes, lowers.
    pub size: Option<(u64, u32)>,
}

/// What is known of a client's operations on an object: one that is repeated is answered, not done again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOperations {
    /// The client.
    pub client: u64,
    /// It repeats no operation below this one.
    pub watermark: u64,
    /// (operation, unit, data unit; 0 at a data column) and the version that it made, in order.
    pub done: Vec<((u64, u64, u8), Version)>,
}

/// The versions of one unit, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The unit.
    pub unit: u64,
    /// At most one settled entry, then at most one pending one, or owed ones.
    pub entries: Vec<ChainEntry>,
    /// Parity: per data column with deltas here, the newest version counted.
    pub tips: Vec<(Column, Version)>,
    /// Whether owed versions are in doubt since the store was opened (PROTOCOL R4).
    pub in_doubt: bool,
    /// Whether the unit was found damaged: it is lost here, whatever the entries say (PROTOCOL R9).
    pub lost: bool,
    /// One past its last byte that is no hole, in the settled content or in what stands above it, whichever is more; 0: it has
    /// only holes.
    pub end: u32,
}

/// One version of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainEntry {
    /// Its name.
    pub version: Version,
    /// Whether it is known here to be settled.
    pub settled: bool,
    /// Whether it is a unit write that is owed to the parity columns.
    pub owed: bool,
    /// What it is.
    pub kind: WriteKind,
    /// The columns its write touched.
    pub columns: ColumnMask,
    /// Parity kinds: per data column the version counted in.
    pub cover: Vec<Version>,
}
