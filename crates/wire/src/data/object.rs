//! Objects: where they are, what is known of them, their making and removing.

use braid_layout::{Column, ColumnMask, DriveId, FileId, Generation, ObjectId, PartitionId, Scheme, Shape};
use sha2::{Digest, Sha256};

use crate::codec::Wire;
use crate::refusal::Refusal;

/// Most opaque bytes among an object's attributes.
pub const OPAQUE_BYTES_MAX: usize = 4096;

record! {
    /// An object's address. A drive refuses a request whose capability is for another. Object 0 is well
    /// known: it stands for its partition, and in partition 0 for the drive.
    pub struct Address {
        /// Partition.
        partition: PartitionId,
        /// Object.
        object: ObjectId,
    }
}

impl Copy for Address {}

impl Address {
    /// The drive's own object.
    pub const DRIVE: Address = Address::of_partition(PartitionId(0));

    /// A partition's own object.
    pub const fn of_partition(partition: PartitionId) -> Address {
        Address { partition, object: ObjectId(0) }
    }

    /// Whether it stands for a partition or the drive, and has no bytes of its own.
    pub fn is_well_known(&self) -> bool {
        self.object == ObjectId(0)
    }
}

record! {
    /// The column map: the layout of the object's segment of its file, kept in the object's attributes. With
    /// it a drive finds the drives of the other columns, to which it is to send deltas. It also allows the
    /// disks to be read without the manager.
    pub struct ColumnMap {
        /// The file.
        file: FileId,
        /// Index of the segment in the file's layout.
        segment: u32,
        /// Scheme number (see `braid_layout::Scheme`).
        scheme: u8,
        /// Data units of a stripe.
        k: u8,
        /// Parity units of a stripe.
        m: u8,
        /// Bytes of a unit.
        unit_bytes: u32,
        /// The column this object holds.
        column: Column,
        /// The drive of each column: `k + m`.
        drives: Vec<DriveId>,
        /// The object of each column: `k + m`.
        objects: Vec<ObjectId>,
    }
}

impl ColumnMap {
    /// The first half of the map's SHA-256: what [`Capability::map`](crate::capability::Capability::map)
    /// binds a creation to.
    pub fn digest(&self) -> [u8; 16] {
        let digest =
            Sha256::new().chain_update(b"braid column map\0").chain_update(self.to_bytes()).finalize();
        *digest.first_chunk().expect("SHA-256 has 32 bytes")
    }

    fn check_form(&self) -> Result<(), Refusal> {
        let shape = Scheme::from_number(self.scheme)
            .and_then(|scheme| Shape::new(scheme, self.k, self.m, self.unit_bytes))
            .map_err(|error| Refusal::malformed(error.to_string()))?;
        let width = usize::from(shape.width());
        if self.drives.len() != width || self.objects.len() != width || self.column.index() >= width {
            return Err(Refusal::malformed(format!("column map does not have {width} columns")));
        }
        Ok(())
    }
}

record! {
    /// An object's attributes.
    pub struct Attributes {
        /// Logical version; a bump revokes every capability.
        object_version: u32,
        /// Generation.
        g: Generation,
        /// Set of that generation.
        set: ColumnMask,
        /// Joining columns of that generation.
        joining: ColumnMask,
        /// The column map.
        map: ColumnMap,
        /// One past the object's last byte that is not in a hole. A truncation writes a hole, and so lowers
        /// it.
        size: u64,
        /// One past the highest byte ever written, as data or as a hole. Units up to here have versions. It
        /// never falls.
        reach: u64,
        /// Log bytes held by the object.
        stored_bytes: u64,
        /// Manager time of creation, in milliseconds.
        created_ms: u64,
        /// Manager time of the last change, in milliseconds.
        modified_ms: u64,
        /// Preallocated bytes of payload, at most 2^48. Those that the object does not hold yet count against
        /// the partition's quota and the drive's space, so that nobody else can take them.
        reserve_bytes: u64,
        /// A hint: objects of the same partition and cluster are stored near each other on the medium; 0: no
        /// cluster.
        cluster: u64,
        /// The manager's own bytes, which drives do not interpret; at most [`OPAQUE_BYTES_MAX`].
        opaque: Vec<u8>,
        /// Snapshots that can be read, ascending; at most [`SNAPSHOTS_MAX`](super::SNAPSHOTS_MAX).
        snapshots: Vec<u32>,
    }
}

record! {
    /// Creates the component object. Idempotent. The drive takes object version, `g`, set and joining from
    /// the capability, as with a fence. Of the attributes it keeps map, opaque, times, reserve and cluster.
    pub struct Create {
        /// The object.
        at: Address,
        /// Its first attributes; the map must be the one that the capability binds, if it binds one.
        attributes: Attributes,
    }
}

impl Create {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        self.attributes.map.check_form()?;
        check_opaque(&self.attributes.opaque)
    }
}

fn check_opaque(bytes: &[u8]) -> Result<(), Refusal> {
    if bytes.len() <= OPAQUE_BYTES_MAX {
        return Ok(());
    }
    Err(Refusal::malformed(format!("{} opaque bytes; at most {OPAQUE_BYTES_MAX}", bytes.len())))
}

record! {
    /// Removes the object and frees its space. For a partition's own object it removes the partition, which
    /// must be empty. Removing what does not exist succeeds.
    pub struct Remove {
        /// The object.
        at: Address,
        /// The manager's term.
        term: u64,
    }
}

record! {
    /// Asks for an object's attributes, or, of a well-known object, for the partition's or the drive's.
    pub struct GetAttributes {
        /// The object.
        at: Address,
    }
}

record! {
    /// Sets the opaque bytes and the logical version, and, where they are given, reserve and cluster.
    pub struct SetAttributes {
        /// The object.
        at: Address,
        /// The new logical version: not below the present one. A bump revokes every capability.
        object_version: u32,
        /// The new reserve; absent: unchanged.
        reserve_bytes: Option<u64>,
        /// The new cluster; absent: unchanged.
        cluster: Option<u64>,
        /// The new opaque bytes, at most [`OPAQUE_BYTES_MAX`].
        opaque: Vec<u8>,
        /// The manager's term.
        term: u64,
    }
}

impl SetAttributes {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        check_opaque(&self.opaque)
    }
}

record! {
    /// Lists a partition's objects; of partition 0, the drive, lists the partitions. Well-known objects are
    /// not listed.
    pub struct List {
        /// The partition; 0: the drive.
        partition: PartitionId,
        /// Only those above this number.
        after: u64,
        /// At most this many; the drive may return fewer, and none only at the end.
        limit: u32,
    }
}

record! {
    /// Objects, by number.
    pub struct ListReply {
        /// The objects.
        objects: Vec<ListedObject>,
    }
}

record! {
    /// An object, by what its own record says.
    pub struct ListedObject {
        /// Its number.
        object: ObjectId,
        /// Its file; 0: its record is damaged, and nothing more is known of it.
        file: FileId,
        /// Index of the segment in the file's layout.
        segment: u32,
        /// The column it holds.
        column: Column,
        /// Its generation.
        g: Generation,
        /// Set of that generation.
        set: ColumnMask,
        /// Joining columns of that generation.
        joining: ColumnMask,
    }
}
