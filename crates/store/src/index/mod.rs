//! The index: the store's whole metadata, in memory. A pure state machine without I/O: records in, state out.
//!
//! Only [`Index::apply`] changes it. The committer calls it for each record once that is durable, and
//! recovery for each record that it finds, so replay rebuilds the same state. [`check`] decides, against that
//! state, the outcome of a mutation before it is written.
//!
//! The index also counts the live bytes of each segment (`live`). A checkpoint is the index's image
//! (`image`).

mod apply;
pub(crate) mod attributes;
mod damage;
pub(crate) mod deciding;
pub(crate) mod dedup;
pub(crate) mod extent;
pub(crate) mod found;
pub(crate) mod image;
pub(crate) mod large_object;
pub(crate) mod list;
pub(crate) mod live;
pub(crate) mod locked;
pub(crate) mod lost;
pub(crate) mod owed;
pub(crate) mod paged;
pub(crate) mod parity;
pub(crate) mod query;
pub(crate) mod runs;
pub(crate) mod shown;
pub(crate) mod slot;
pub(crate) mod snapshots;
pub(crate) mod unit;
mod unit_image;

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{ClientId, Column, ColumnMask, ObjectId, OperationNumber, PartitionId, Version};

use crate::format::checkpoint::{Appended, ReplayPoint};
use crate::format::extent::LogPosition;
use crate::mutation::WriteKind;
use attributes::PackedAttributes;
use deciding::bounds::Bounds;
use dedup::Dedup;
use large_object::Watched;
use live::Segments;
use lost::Lost;
use paged::PagedMap;
use runs::Runs;
use slot::Slot;
use snapshots::Snapshots;

/// The store's state in memory.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) partitions: BTreeMap<PartitionId, Partition>,
    pub(crate) segments: Segments,
    /// Keys whose state is unknown because of damage.
    pub(crate) lost: Lost,
    /// Parity units with settled deltas or layers that wait to be folded into the base.
    pub(crate) foldable: BTreeSet<(PartitionId, ObjectId, u64)>,
    /// Objects that had no attributes when they were loaded, or at some point of replay.
    pub(crate) unknown: BTreeSet<(PartitionId, ObjectId)>,
    /// Bytes that objects have reserved but not yet filled.
    pub(crate) reserved: u64,
    /// True once the store has been opened. Versions owed before that are in doubt.
    pub(crate) serving: bool,
    /// True if replay has missed records that the checkpoint does not include.
    pub(crate) lost_records: bool,
    /// Position of the next record: all earlier records are applied here.
    pub(crate) head: ReplayPoint,
    /// Bytes of all those records.
    pub(crate) appended: Appended,
    pub(crate) bounds: Bounds,
    /// Changes of objects that have a cluster, since the store was opened: whether any is to be gathered.
    pub(crate) clustered: u64,
    /// The large object whose checkpoint pages are being made.
    pub(crate) watched: Option<Box<Watched>>,
}

#[derive(Debug, Default)]
pub(crate) struct Partition {
    pub(crate) quota_bytes: Option<u64>,
    pub(crate) key_epoch: u32,
    /// The sequence number of the record that created the partition.
    pub(crate) birth: u64,
    /// True if the partition's values (quota and key epoch) are known; damage may have hit them.
    pub(crate) known: bool,
    /// Payload bytes that the partition's objects refer to.
    pub(crate) used: u64,
    /// Bytes that the partition's objects have reserved but not yet filled.
    pub(crate) reserved: u64,
    /// Boxed because B-tree nodes are half empty after appends.
    pub(crate) objects: BTreeMap<ObjectId, Box<Object>>,
}

#[derive(Debug)]
pub(crate) struct Object {
    /// The sequence number of the record that created the object. It distinguishes records of an earlier
    /// object with the same number.
    pub(crate) birth: u64,
    pub(crate) attributes: PackedAttributes,
    /// True if the object's attributes are known: damage may have hit them.
    pub(crate) known: bool,
    /// Position of damage that may have hit any of the object's units.
    pub(crate) lost: Option<LogPosition>,
    /// True if the object was removed, and lives for its stills: requests do not find it.
    pub(crate) husk: bool,
    pub(crate) units: PagedMap<u64, Slot>,
    /// Pending versions. `None` if there are none: an empty map would take most of the memory of an object at
    /// rest.
    pub(crate) pending: Option<Box<PendingVersions>>,
    /// Payload bytes that the object's units refer to.
    pub(crate) bytes: u64,
    /// State that most objects do not have.
    pub(crate) extra: Option<Box<Extra>>,
}

/// Pending versions by (lease, g, n, unit), so that the versions that a lease has settled are one range.
pub(crate) type PendingVersions = PagedMap<(u32, u32, u64, u64), ()>;

/// Additional state of an object with unit writes or snapshots, or of a joining column.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Extra {
    /// Units with owed versions, or with deltas not known to be settled.
    pub(crate) unsettled: PagedMap<u64, ()>,
    pub(crate) dedup: Dedup,
    /// For a joining column: the units that it has caught up with.
    pub(crate) ready: Runs,
    pub(crate) snapshots: Snapshots,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionState {
    pub partition: PartitionId,
    /// Soft quota in bytes; `None`: no bound.
    pub quota_bytes: Option<u64>,
    /// The epoch of the working keys.
    pub key_epoch: u32,
    /// Payload bytes that the partition's objects hold, retained versions included.
    pub used: u64,
    /// Bytes that the partition's objects have reserved but not yet filled. They also count against the
    /// quota.
    pub reserved: u64,
    /// Number of objects in the partition.
    pub objects: u64,
}

/// Space usage of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectUsage {
    /// Payload bytes, retained versions included. Of a still: those that no other object refers to.
    pub bytes: u64,
    /// Units ever written.
    pub units: u64,
    /// One past the last byte ever written, as data or as a hole, in the newest versions: unit and offset in
    /// the unit. Holes count because they have versions too. `None`: never written.
    pub end: Option<(u64, u32)>,
    /// As `end`, without counting holes. A truncation writes holes, and so lowers it.
    pub size: Option<(u64, u32)>,
}

/// The known operations of a client on an object. A repeated operation is answered, not executed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOperations {
    pub client: ClientId,
    /// The client repeats no operation below this one.
    pub watermark: OperationNumber,
    /// (operation, unit, data unit (0 at a data column)) and the version that it made, in order.
    pub done: Vec<((OperationNumber, u64, u8), Version)>,
}

/// The versions of one unit, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    pub unit: u64,
    /// At most one settled entry, followed by at most one pending one or by owed ones.
    pub entries: Vec<ChainEntry>,
    /// Parity: for each data column with deltas here, the newest version counted in.
    pub tips: Vec<ChainTip>,
    /// True if owed versions are in doubt because the store was reopened (PROTOCOL R4).
    pub in_doubt: bool,
    /// True if damage was found in the unit: it is lost here, whatever the entries say (PROTOCOL R9).
    pub lost: bool,
    /// One past the last byte that is not a hole, in the settled content or in the versions above it,
    /// whichever is greater; of parity, also the greatest such end of a data unit; 0: it has only holes.
    pub end: u32,
}

/// The newest version of a data column's unit that deltas bring to a parity unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainTip {
    /// The data column.
    pub column: Column,
    /// Identifies the version.
    pub version: Version,
    /// One past the last byte of the data unit in that version that is not in a hole.
    pub end: u32,
}

/// One version of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChainEntry {
    /// Identifies the version.
    pub version: Version,
    /// True if this drive knows that the version is settled.
    pub settled: bool,
    /// True if the version is a unit write that is owed to the parity columns.
    pub owed: bool,
    /// Kind of the write that made the version.
    pub kind: WriteKind,
    /// The columns that the write touched.
    pub columns: ColumnMask,
    /// Parity kinds: the version counted in per data column.
    pub cover: Vec<Version>,
    /// Parity kinds: for each version of `cover`, one past the last byte of the data unit that is not in a
    /// hole.
    pub ends: Vec<u32>,
}
