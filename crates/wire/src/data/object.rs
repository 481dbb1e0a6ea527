//! Objects: their addresses and attributes, and how they are made and removed.

use braid_layout::{Column, ColumnMask, DriveId, FileId, Generation, ObjectId, PartitionId, Scheme, Shape};
use sha2::{Digest, Sha256};

use crate::codec::Wire;
use crate::refusal::Refusal;

/// Maximum number of opaque bytes among an object's attributes.
pub const OPAQUE_BYTES_MAX: usize = 4096;

record! {
    /// An object's address. A drive refuses a request whose capability is for another address. Object 0 is
    /// well known: it stands for its partition, and in partition 0 for the drive.
    pub struct Address {
        /// Number of the partition; 0 is the drive itself.
        partition: PartitionId,
        /// Number of the object in its partition; 0 is the partition itself.
        object: ObjectId,
    }
}

impl Copy for Address {}

impl Address {
    /// The address of the drive's own object.
    pub const DRIVE: Address = Address::of_partition(PartitionId(0));

    /// The address of a partition's own object.
    pub const fn of_partition(partition: PartitionId) -> Address {
        Address { partition, object: ObjectId(0) }
    }

    /// Returns true if the address stands for a partition or the drive, which have no bytes of their own.
    pub fn is_well_known(&self) -> bool {
        self.object == ObjectId(0)
    }
}

record! {
    /// The column map: the layout of the object's segment of its file, kept in the object's attributes.
    /// With it a drive finds the drives of the other columns, to which it sends deltas. The map also allows
    /// the disks to be read without the manager.
    pub struct ColumnMap {
        /// The file that the object belongs to.
        file: FileId,
        /// Index of the segment in the file's layout.
        segment: u32,
        /// Scheme number (see `braid_layout::Scheme`).
        scheme: u8,
        /// Number of data units of a stripe.
        k: u8,
        /// Number of parity units of a stripe.
        m: u8,
        /// Length of a unit, in bytes.
        unit_bytes: u32,
        /// The column that this object holds.
        column: Column,
        /// The drive of each column, `k + m` in all.
        drives: Vec<DriveId>,
        /// The object of each column, `k + m` in all.
        objects: Vec<ObjectId>,
    }
}

impl ColumnMap {
    /// The first half of the map's SHA-256, to which
    /// [`Capability::map`](crate::capability::Capability::map) binds a creation.
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
            return Err(Refusal::malformed(format!("the column map does not have {width} columns")));
        }
        Ok(())
    }
}

record! {
    /// The attributes of an object.
    pub struct Attributes {
        /// Generation of the object, as the drive was last told.
        g: Generation,
        /// The set of that generation: the columns that every write must reach.
        set: ColumnMask,
        /// The columns of that generation that are joining.
        joining: ColumnMask,
        /// The column map of the object.
        map: ColumnMap,
        /// One past the object's last byte that is not in a hole. A truncation writes a hole, and so lowers
        /// the size.
        size: u64,
        /// One past the highest byte ever written, as data or as a hole. Units up to here have versions.
        /// The reach never falls.
        reach: u64,
        /// Bytes of log that the object holds.
        stored_bytes: u64,
        /// Manager time of creation, in milliseconds.
        created_ms: u64,
        /// Manager time of the last change, in milliseconds.
        modified_ms: u64,
        /// Preallocated bytes of payload, at most 2^48. Those that the object does not hold yet count
        /// against the partition's quota and the drive's space, so that no other object can take them.
        reserve_bytes: u64,
        /// Number of the object's cluster, a hint: objects of the same partition and cluster are stored
        /// near each other on the medium; 0: no cluster.
        cluster: u64,
        /// Bytes of the manager's own, which drives do not interpret; at most [`OPAQUE_BYTES_MAX`].
        opaque: Vec<u8>,
        /// Of a still: the object that it was taken of, which may be gone. Else 0.
        base: ObjectId,
    }
}

impl Attributes {
    /// Checks the parts of an object's first attributes that a drive relies on.
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        self.map.check_form()?;
        check_opaque(&self.opaque)
    }
}

record! {
    /// Creates the component object. Idempotent. The drive takes object version, `g`, set and joining from
    /// the capability, as with a fence. Of the attributes the drive keeps map, opaque, times, reserve and
    /// cluster.
    pub struct Create {
        /// The address of the new object.
        at: Address,
        /// The first attributes of the object; the map must be the one that the capability binds, if it
        /// binds one.
        attributes: Attributes,
    }
}

impl Create {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        self.attributes.check_form()
    }
}

fn check_opaque(bytes: &[u8]) -> Result<(), Refusal> {
    if bytes.len() <= OPAQUE_BYTES_MAX {
        return Ok(());
    }
    Err(Refusal::malformed(format!(
        "{} opaque bytes are too many: at most {OPAQUE_BYTES_MAX} are allowed",
        bytes.len()
    )))
}

record! {
    /// Removes the object and frees its space. For a partition's own object it removes the partition, which
    /// must be empty. Removing what does not exist succeeds.
    pub struct Remove {
        /// The object to remove.
        at: Address,
        /// The manager's term.
        term: u64,
    }
}

record! {
    /// Asks for an object's attributes, or, of a well-known object, for the partition's or the drive's.
    pub struct GetAttributes {
        /// The object asked about.
        at: Address,
    }
}

record! {
    /// Sets the opaque bytes and the logical version, and, where they are given, reserve and cluster.
    pub struct SetAttributes {
        /// The object to change.
        at: Address,
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
    /// Lists a partition's objects, or for partition 0, the drive, the drive's partitions. Well-known
    /// objects are not listed.
    pub struct List {
        /// The partition to list; 0: the drive.
        partition: PartitionId,
        /// The number after which the list begins: only higher numbers are listed.
        after: u64,
        /// Maximum number of entries; the drive may return fewer, and none only at the end.
        limit: u32,
    }
}

record! {
    /// The answer to [`List`] for a partition.
    pub struct ListReply {
        /// The objects, ascending by number.
        objects: Vec<ListedObject>,
    }
}

record! {
    /// An object as its own record describes it.
    pub struct ListedObject {
        /// Number of the object.
        object: ObjectId,
        /// The file that the object belongs to; 0: the record is damaged, and nothing more is known of the
        /// object.
        file: FileId,
        /// Index of the segment in the file's layout.
        segment: u32,
        /// The column that the object holds.
        column: Column,
        /// Generation of the object.
        g: Generation,
        /// The set of that generation: the columns that every write must reach.
        set: ColumnMask,
        /// The columns of that generation that are joining.
        joining: ColumnMask,
    }
}
