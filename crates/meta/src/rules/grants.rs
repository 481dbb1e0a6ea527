//! Capabilities that the manager makes for clients, and for itself, at drives. Pure: keys, records and time
//! are parameters.

use braid_layout::version::Lease;
use braid_layout::{ClientId, Column, ColumnMask, DriveId, FileId, Generation, ObjectId, PartitionId};
pub use braid_wire::capability::CAPABILITY_MS;
use braid_wire::capability::{Capability, KEY_EPOCH_MANAGER, Key, LeaseKind, Promise, Protection, Rights};
use braid_wire::control::{Grant, Methods};
use braid_wire::data::ColumnMap;

use crate::records::schema::{InodeRecord, SegmentRecord};

/// The epoch of a partition's working keys before any rotation.
pub const KEY_EPOCH_FIRST: u32 = 1;

/// Rights of a client that reads a column's object.
const READER: Rights = Rights::READ.and(Rights::GET_ATTRIBUTES);
const WRITER: Rights = READER.and(Rights::WRITE).and(Rights::CREATE);
/// Rights of the manager on an object.
const MANAGER: Rights =
    READER.and(Rights::CREATE).and(Rights::REMOVE).and(Rights::MANAGE).and(Rights::SET_ATTRIBUTES);

/// The lease in the capability of a drive that brings its own joining column up to date: such a drive writes
/// nothing of its own, and installs versions of every lease.
pub const ANY_LEASE: Lease = Lease(u32::MAX);

/// Stripes of a segment: the first, and one past the last, or 2^64 - 1 for all from the first on.
pub type Stripes = (u64, u64);
/// All stripes of a segment.
pub const ALL_STRIPES: Stripes = (0, u64::MAX);

/// Use for which a column is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// To read the column.
    Read,
    /// To read the column, and to write these stripes of it under this lease.
    Write(Lease, LeaseKind, Stripes),
}

/// The asker of requests under a grant, and its promise: by these the drive shares its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub client: ClientId,
    pub promise: Promise,
    /// The methods that the drive runs for it.
    pub runs: Methods,
}

/// The column map of one column, which is stored with its object.
pub fn column_map(file: FileId, segment: &SegmentRecord, column: Column) -> ColumnMap {
    ColumnMap {
        file,
        segment: segment.number,
        scheme: segment.shape.scheme,
        k: segment.shape.k,
        m: segment.shape.m,
        unit_bytes: segment.shape.unit_bytes,
        column,
        drives: segment.drives.clone(),
        objects: vec![segment.object; segment.drives.len()],
    }
}

/// A client's grant for one column, with the working key of an epoch and the volume's protection. The caller
/// decides whether the column may be granted at all.
pub fn for_client(
    master: &Key,
    keys: (u32, Protection),
    file: FileId,
    inode: &InodeRecord,
    segment: &SegmentRecord,
    column: Column,
    granted: Use,
    of: Standing,
    expires_ms: u64,
) -> Grant {
    let (key_epoch, protection) = keys;
    let (rights, lease, map, kind, stripes) = match granted {
        Use::Read => (READER, Lease(0), [0; 16], LeaseKind::Exclusive, ALL_STRIPES),
        Use::Write(lease, kind, stripes) => {
            (WRITER, lease, column_map(file, segment, column).digest(), kind, stripes)
        }
    };
    let rights = match of.runs {
        Methods::Wasm => rights.and(Rights::RUN).and(Rights::RUN_CODE),
        Methods::Builtin => rights.and(Rights::RUN),
        Methods::None => rights,
    };
    let capability = Capability {
        drive: segment.drive(column),
        partition: inode.volume.into(),
        object: segment.object,
        rights,
        key_epoch,
        g: inode.g,
        set: segment.set,
        joining: segment.joining,
        lease,
        kind,
        first_stripe: stripes.0,
        end_stripe: stripes.1,
        reach: if lease == ANY_LEASE { u64::MAX } else { reach_in(segment, inode.reach) },
        map,
        file,
        promise: of.promise,
        client: of.client,
        protection,
        ..blank(expires_ms)
    };
    sign(master, capability)
}

/// The manager's own grant for an object: to fence it, to judge its stamps, to create it with the map of this
/// digest, and to remove it.
pub fn for_object(
    master: &Key,
    drive: DriveId,
    partition: PartitionId,
    object: ObjectId,
    file: FileId,
    standing: (Generation, ColumnMask, ColumnMask),
    map: [u8; 16],
    expires_ms: u64,
) -> Grant {
    let rights = MANAGER;
    let (g, set, joining) = standing;
    let blank = blank(expires_ms);
    sign(master, Capability { drive, partition, object, rights, g, set, joining, map, file, ..blank })
}

/// The manager's own grant for an object of the catalogue: to make it, to write frames under this lease, and
/// to remove it.
pub fn for_catalogue(
    master: &Key,
    drive: DriveId,
    partition: PartitionId,
    object: ObjectId,
    standing: (Generation, ColumnMask, Lease),
    expires_ms: u64,
) -> Grant {
    let rights = MANAGER.and(Rights::WRITE);
    let (g, set, lease) = standing;
    // Frames have names in them.
    let blank = Capability { protection: Protection::Privacy, ..blank(expires_ms) };
    sign(master, Capability { drive, partition, object, rights, g, set, lease, ..blank })
}

/// The manager's own grant for the drive itself: to manage and list its partitions.
pub fn for_drive(master: &Key, drive: DriveId, expires_ms: u64) -> Grant {
    let rights = Rights::MANAGE.and(Rights::LIST).and(Rights::GET_ATTRIBUTES);
    sign(master, Capability { drive, rights, ..blank(expires_ms) })
}

/// The manager's own grant for a partition: to list its objects.
pub fn for_partition(master: &Key, drive: DriveId, partition: PartitionId, expires_ms: u64) -> Grant {
    sign(master, Capability { drive, partition, rights: Rights::LIST, ..blank(expires_ms) })
}

/// The grant of the drive `holder` to send deltas to a partition of the drive.
pub fn for_deltas(
    master: &Key,
    keys: (u32, Protection),
    drive: DriveId,
    partition: PartitionId,
    holder: DriveId,
    expires_ms: u64,
) -> Grant {
    let rights = Rights::DELTA;
    let (key_epoch, protection) = keys;
    let blank = blank(expires_ms);
    sign(master, Capability { drive, partition, rights, key_epoch, holder, protection, ..blank })
}

/// One past the last stripe of the segment that may get bytes, if the file may reach to this byte.
fn reach_in(segment: &SegmentRecord, reach: Option<u64>) -> u64 {
    let Some(reach) = reach else { return u64::MAX };
    let stripe_bytes = u64::from(segment.shape.k) * u64::from(segment.shape.unit_bytes);
    reach.saturating_sub(segment.start).div_ceil(stripe_bytes.max(1))
}

fn blank(expires_ms: u64) -> Capability {
    Capability {
        drive: DriveId(0),
        partition: PartitionId(0),
        object: ObjectId(0),
        rights: Rights::NONE,
        expires_ms,
        promise: Promise::NONE,
        client: ClientId::NONE,
        key_epoch: KEY_EPOCH_MANAGER,
        g: Generation(0),
        set: ColumnMask::EMPTY,
        joining: ColumnMask::EMPTY,
        lease: Lease(0),
        kind: LeaseKind::Exclusive,
        first_stripe: 0,
        end_stripe: u64::MAX,
        reach: u64::MAX,
        protection: Protection::Integrity,
        holder: DriveId(0),
        map: [0; 16],
        file: FileId(0),
    }
}

fn sign(master: &Key, capability: Capability) -> Grant {
    let partition = master.drive_key(capability.drive).partition_key(capability.partition);
    let private = partition.working_key(capability.key_epoch).private_part(&capability);
    Grant { capability, private }
}
