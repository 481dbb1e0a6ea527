//! Messages with drives (PROTOCOL section 3 and the object interface).
//!
//! The body of a request is [`Authority`](crate::capability::Authority) followed by the arguments declared here; the body of
//! a reply is [`ReplyHead`] followed by its arguments. A unit's bytes are the frame's payload; their checksums are in the
//! arguments. `g`, set and joining travel in every request's capability.

use braid_layout::{Column, ColumnMask, DriveId, Generation, ObjectId, PartitionId, Version};

use crate::refusal::Refusal;

/// The kind number of [`Hello`], the first frame of every connection, sent by the side that accepts.
pub const HELLO: u16 = 0x0001;

choice! {
    /// Who accepts connections here.
    pub enum PeerRole {
        /// A drive.
        Drive = 1,
        /// The manager.
        Manager = 2,
    }
}

record! {
    /// The first frame of every connection.
    pub struct Hello {
        /// Who is here.
        role: PeerRole,
        /// Lowest wire version spoken.
        version_min: u16,
        /// Highest wire version spoken.
        version_max: u16,
        /// The cluster.
        cluster: braid_layout::ClusterId,
        /// The drive; zero for the manager.
        drive: DriveId,
        /// Optional abilities, one bit each; none is defined yet.
        features: u64,
        /// This connection's challenge.
        challenge: [u8; 16],
    }
}

record! {
    /// What every reply of a drive begins with.
    pub struct ReplyHead {
        /// The object's generation at the drive (zero where there is no object).
        g: Generation,
        /// Over the reply's arguments, under the private part of the request's capability; zeros where a refusal
        /// comes before the capability was found good.
        mac: [u8; 16],
    }
}

record! {
    /// An object's place: the partition and object are the capability's too; a drive refuses if they differ.
    pub struct Address {
        /// Partition.
        partition: PartitionId,
        /// Object.
        object: ObjectId,
    }
}

record! {
    /// The column map: what the manager says of the object's file, kept in the object's attributes. With it a drive can
    /// find its sisters (deltas, later) and a survivor's disk can be read without the manager.
    pub struct ColumnMap {
        /// The file.
        file: braid_layout::FileId,
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
        /// The drive of each column.
        drives: Vec<DriveId>,
        /// The object of each column.
        objects: Vec<ObjectId>,
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
        /// Where the object belongs.
        map: ColumnMap,
        /// One past the highest byte ever written, in bytes of the object.
        size: u64,
        /// Log bytes held by the object.
        stored_bytes: u64,
        /// Manager time of creation, in milliseconds.
        created_ms: u64,
        /// Manager time of the last change.
        modified_ms: u64,
        /// The manager's, uninterpreted; at most 4 KiB.
        opaque: Vec<u8>,
    }
}

choice! {
    /// Which version a read asks for.
    pub enum Want {
        /// The newest, pending or not.
        Newest = 0,
        /// The newest settled one.
        Settled = 1,
        /// Exactly the version (parity: cover) given.
        Exactly = 2,
    }
}

record! {
    /// Part of a unit in a read's reply.
    pub struct Extent {
        /// First byte, in the unit.
        from: u32,
        /// One past the last byte.
        to: u32,
        /// Reads as zeros; no payload bytes are sent for it.
        hole: bool,
    }
}

record! {
    /// What a unit holds, version by version.
    pub struct UnitState {
        /// The unit's index.
        unit: u64,
        /// The settled version.
        settled: Version,
        /// The settled version's cover, one per data column, if the column is parity in this stripe.
        cover: Vec<Version>,
        /// The pending stamp, if any.
        pending: Option<PendingState>,
        /// Owed versions, oldest first.
        owed: Vec<Version>,
        /// Per delta chain: its column and tip.
        tips: Vec<Tip>,
        /// The unit's record is damaged: it is lost here, not old (PROTOCOL R9).
        damaged: bool,
    }
}

record! {
    /// A pending stripe write.
    pub struct PendingState {
        /// Its stamp.
        stamp: Version,
        /// Columns it touches.
        columns: ColumnMask,
        /// Its cover, parity columns only.
        cover: Vec<Version>,
    }
}

record! {
    /// The tip of a delta chain.
    pub struct Tip {
        /// The data column.
        column: Column,
        /// The newest version counted.
        version: Version,
    }
}

record! {
    /// A stripe's stamps, by name, to roll forward and back.
    pub struct UnitVerdict {
        /// The unit's index.
        unit: u64,
        /// Stamps that stay.
        forward: Vec<Version>,
        /// Stamps that go.
        back: Vec<Version>,
        /// Per lost data column: versions above this are cut off.
        cutoff: Vec<Tip>,
    }
}

record! {
    /// Creates the component object. Carries what a fence carries (in the capability). Idempotent.
    pub struct Create { at: Address, attributes: Attributes }
}
record! {
    /// Removes the object and frees its space. Removing what is not there succeeds.
    pub struct Remove { at: Address }
}
record! {
    /// Reads part of one unit.
    pub struct Read {
        at: Address,
        /// The unit's index: the stripe.
        unit: u64,
        /// First byte, in the unit.
        from: u32,
        /// One past the last byte; at most the unit.
        to: u32,
        want: Want,
        /// For [`Want::Exactly`]: the version of a data unit (one entry) or the cover of a parity unit (k entries).
        exactly: Vec<Version>,
    }
}
record! {
    /// The bytes of a read are the frame's payload: the data extents' bytes, one after another.
    pub struct ReadReply {
        /// Version of the bytes.
        version: Version,
        /// Whether it is pending: the drive does not know that it is settled.
        pending: bool,
        /// Columns touched by the stripe write that made the version (empty for a unit write).
        columns: ColumnMask,
        /// Parity units: the version of each data column counted in; empty for data units.
        cover: Vec<Version>,
        /// Together they are the range asked for.
        extents: Vec<Extent>,
        /// CRC32C of each block of each data extent, cut at multiples of 4 KiB of the unit.
        crcs: Vec<u32>,
    }
}
record! {
    /// A stripe write's part for one column.
    pub struct StripeWrite {
        at: Address,
        /// The unit's index: the stripe.
        unit: u64,
        /// First byte, in the unit.
        from: u32,
        /// One past the last byte.
        to: u32,
        /// The range becomes a hole: there is no payload.
        hole: bool,
        /// The version of the whole stripe write.
        stamp: Version,
        /// Touched data columns and all parity columns, in the set or out.
        columns: ColumnMask,
        /// The version of each data unit after this write, in data order; for parity columns, else empty.
        cover: Vec<Version>,
        /// Everything of this lease below this stamp is settled.
        settled_below: Version,
        /// The writer.
        client: u64,
        /// The writer's operation number.
        operation: u64,
        /// CRC32C of each block of the payload.
        crcs: Vec<u32>,
    }
}
record! {
    /// A write to one unit through its data drive, which owes the parity drives the delta.
    pub struct UnitWrite {
        at: Address,
        unit: u64,
        from: u32,
        to: u32,
        hole: bool,
        client: u64,
        operation: u64,
        /// Given by the client under an exclusive lease only.
        stamp: Option<Version>,
        settled_below: Version,
        crcs: Vec<u32>,
    }
}
record! {
    /// Old xor new of a unit write, from its data drive to a parity drive.
    pub struct Delta {
        at: Address,
        unit: u64,
        from: u32,
        to: u32,
        /// The data column.
        column: Column,
        /// The version it was made on.
        from_version: Version,
        /// The version it makes.
        to_version: Version,
        client: u64,
        operation: u64,
        settled_to: Version,
        crcs: Vec<u32>,
    }
}
record! {
    /// A durable write's answer.
    pub struct Written {
        /// The tip after it.
        version: Version,
        /// The stamp was there already: nothing was written.
        already: bool,
    }
}
record! {
    /// Asks what units hold.
    pub struct Versions {
        at: Address,
        /// Unit indices, at most 4096.
        units: Vec<u64>,
    }
}
record! {
    /// Answer of [`Versions`].
    pub struct VersionsReply { units: Vec<UnitState> }
}
record! {
    /// Everything of the capability's lease up to and with this stamp is settled.
    pub struct Retire { at: Address, settled_to: Version, /// Answer when durable.
        durable: bool }
}
record! {
    /// Stores the capability's g, set and joining; from now on everything older is refused.
    pub struct Fence { at: Address, term: u64 }
}
record! {
    /// Units with unsettled versions, at most 65,536; `more` if there are others.
    pub struct FenceReply { unsettled: Vec<u64>, more: bool }
}
record! {
    /// Rolls stamps forward and back.
    pub struct Verdict { at: Address, term: u64, units: Vec<UnitVerdict> }
}
record! {
    /// A column joins: it takes writes and is brought up to date from the sources.
    pub struct Join { at: Address, term: u64, sources: Vec<DriveId> }
}
record! {
    /// A drive says that a joining column is caught up.
    pub struct Ready { at: Address }
}
record! {
    /// Everything acknowledged before is durable when this is answered.
    pub struct Flush { at: Address }
}
record! {
    /// Asks for an object's attributes.
    pub struct GetAttributes { at: Address }
}
record! {
    /// Sets the opaque bytes and the logical version.
    pub struct SetAttributes { at: Address, object_version: u32, opaque: Vec<u8> }
}
record! {
    /// Lists a partition's objects.
    pub struct List {
        partition: PartitionId,
        /// Those above this number.
        after: ObjectId,
        /// At most this many; the drive may return fewer, and none only at the end.
        limit: u32,
    }
}
record! {
    /// Object numbers, ascending.
    pub struct ListReply { objects: Vec<ObjectId> }
}
record! {
    /// Creates a partition. Idempotent.
    pub struct PartitionCreate { partition: PartitionId, quota_bytes: u64, key_epoch: u32 }
}
record! {
    /// Sets a partition's quota and key epoch (rotates its working keys).
    pub struct PartitionSet { partition: PartitionId, quota_bytes: u64, key_epoch: u32 }
}
record! {
    /// Removes an empty partition. Removing what is not there succeeds.
    pub struct PartitionRemove { partition: PartitionId }
}
record! {
    /// Lists partitions.
    pub struct PartitionList { after: PartitionId, limit: u32 }
}
record! {
    /// A partition.
    pub struct PartitionRow { partition: PartitionId, quota_bytes: u64, used_bytes: u64, objects: u64, key_epoch: u32 }
}
record! {
    /// Partitions, ascending.
    pub struct PartitionListReply { partitions: Vec<PartitionRow> }
}
record! {
    /// Asks for the drive's figures.
    pub struct Stat {}
}
record! {
    /// The drive's figures.
    pub struct StatReply {
        drive: DriveId,
        /// Bytes it may store.
        capacity_bytes: u64,
        /// Bytes of log.
        used_bytes: u64,
        /// Bytes of log that a read could return.
        live_bytes: u64,
        segments: u64,
        objects: u64,
        partitions: u64,
        /// Bytes served to readers since the start.
        read_bytes: u64,
        /// Bytes taken from writers since the start.
        written_bytes: u64,
        /// Requests refused since the start.
        refused: u64,
        /// Milliseconds since the start.
        uptime_ms: u64,
    }
}
record! {
    /// Nothing but "done".
    pub struct Done {}
}

message_set! {
    /// Requests to a drive.
    pub enum DriveRequest {
        /// Create an object.
        Create(Create) = 0x0100,
        /// Remove an object.
        Remove(Remove) = 0x0101,
        /// Read part of a unit.
        Read(Read) = 0x0102,
        /// One column's part of a stripe write.
        StripeWrite(StripeWrite) = 0x0103,
        /// A write through the data drive.
        UnitWrite(UnitWrite) = 0x0104,
        /// Drive to drive.
        Delta(Delta) = 0x0105,
        /// What units hold.
        Versions(Versions) = 0x0106,
        /// Stamps are settled.
        Retire(Retire) = 0x0107,
        /// A higher generation.
        Fence(Fence) = 0x0108,
        /// Forward and back.
        Verdict(Verdict) = 0x0109,
        /// A column joins.
        Join(Join) = 0x010a,
        /// A column is caught up.
        Ready(Ready) = 0x010b,
        /// Durable.
        Flush(Flush) = 0x010c,
        /// Attributes.
        GetAttributes(GetAttributes) = 0x010d,
        /// Attributes.
        SetAttributes(SetAttributes) = 0x010e,
        /// Objects.
        List(List) = 0x010f,
        /// A partition.
        PartitionCreate(PartitionCreate) = 0x0110,
        /// A partition.
        PartitionSet(PartitionSet) = 0x0111,
        /// A partition.
        PartitionRemove(PartitionRemove) = 0x0112,
        /// Partitions.
        PartitionList(PartitionList) = 0x0113,
        /// Figures.
        Stat(Stat) = 0x0114,
    }
}

message_set! {
    /// A drive's replies. Kinds have [`REPLY_BIT`](crate::frame::REPLY_BIT) set.
    pub enum DriveReply {
        /// Done.
        Done(Done) = 0x8100,
        /// Bytes.
        Read(ReadReply) = 0x8102,
        /// Durable.
        Written(Written) = 0x8103,
        /// What units hold.
        Versions(VersionsReply) = 0x8106,
        /// Unsettled units.
        Fence(FenceReply) = 0x8108,
        /// Attributes.
        Attributes(Attributes) = 0x810d,
        /// Objects.
        List(ListReply) = 0x810f,
        /// Partitions.
        PartitionList(PartitionListReply) = 0x8113,
        /// Figures.
        Stat(StatReply) = 0x8114,
        /// No.
        Refused(Refusal) = 0x81ff,
    }
}
