//! Messages with drives (PROTOCOL section 3, and the object interface of NASD, section 3).
//!
//! The body of a request is [`Authority`](crate::capability::Authority) followed by the arguments declared here; the body of
//! a reply is [`ReplyHead`] followed by its arguments. A unit's bytes are the frame's payload; their checksums are in the
//! arguments. `g`, set and joining travel in every request's capability, and `g` in every reply's head.
//!
//! Units, unless a field says otherwise: `unit` is the index of a unit in its object (the stripe), `from` and `to` are
//! bytes in that unit, `to` exclusive; times are manager time in milliseconds; sizes are bytes.
//!
//! Requests that only the manager makes carry its `term`; a drive refuses one lower than the highest it has seen.

use braid_layout::{
    ClusterId, Column, ColumnMask, DriveId, FileId, Generation, ObjectId, PartitionId, Version,
};
use sha2::{Digest, Sha256};

use crate::capability::Binding;
use crate::codec::Wire;
use crate::frame::REPLY_BIT;
use crate::refusal::Refusal;

/// The kind number of [`Hello`], the first frame of every connection, sent by the side that accepts.
pub const HELLO: u16 = 0x0001;
/// The kind number of the frame that comes in place of a hello when the peer takes no connection now; its body is a
/// [`Refusal`] with [`Reason::Busy`](crate::Reason::Busy) or [`Reason::Closing`](crate::Reason::Closing).
pub const HELLO_REFUSED: u16 = HELLO | REPLY_BIT;
/// Most units that one [`Versions`] may ask for.
pub const VERSIONS_UNITS_MAX: usize = 4096;
/// Most units that one [`FenceReply`] lists.
pub const FENCE_UNITS_MAX: usize = 65_536;
/// Most opaque bytes among an object's attributes.
pub const OPAQUE_BYTES_MAX: usize = 4096;

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
    /// The first frame of every connection, request number 0, no payload. Its layout and the frame header's never change,
    /// in any version, so that any two builds can find out what they have in common.
    pub struct Hello {
        /// Who is here.
        role: PeerRole,
        /// Lowest wire version spoken.
        version_min: u16,
        /// Highest wire version spoken.
        version_max: u16,
        /// The cluster.
        cluster: ClusterId,
        /// The drive; zero for the manager.
        drive: DriveId,
        /// Optional abilities, one bit each; none is defined yet. Bits that the asker does not know are ignored.
        features: u64,
        /// This connection's challenge: random, never used again.
        challenge: [u8; 16],
    }
}

impl Hello {
    /// What the MACs and proofs of this connection are bound to: all of the hello, so that nobody on the way can alter
    /// the versions, features or role it offers (a downgrade) and stay unnoticed.
    pub fn binding(&self) -> Binding {
        let digest = Sha256::new().chain_update(b"braid hello\0").chain_update(self.to_bytes()).finalize();
        Binding(*digest.first_chunk().expect("SHA-256 has 32 bytes"))
    }
}

record! {
    /// What every reply of a drive begins with.
    pub struct ReplyHead {
        /// The object's generation at the drive (zero where there is no object).
        g: Generation,
        /// Over `g` and the reply, under the private part of the request's capability, see
        /// [`Key::reply_mac`](crate::capability::Key::reply_mac); zeros where a refusal comes before the capability was found
        /// good.
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
    /// The first half of the map's SHA-256: what [`Capability::map`](crate::capability::Capability::map) binds a creation to.
    pub fn digest(&self) -> [u8; 16] {
        let digest =
            Sha256::new().chain_update(b"braid column map\0").chain_update(self.to_bytes()).finalize();
        *digest.first_chunk().expect("SHA-256 has 32 bytes")
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
        /// Manager time of the last change, in milliseconds.
        modified_ms: u64,
        /// The manager's, uninterpreted; at most [`OPAQUE_BYTES_MAX`].
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
    /// What a unit holds, version by version (PROTOCOL section 2).
    pub struct UnitState {
        /// The unit's index.
        unit: u64,
        /// The settled version; zero: never written.
        settled: Version,
        /// The settled version's cover, one per data column, if the column is parity in this stripe; else empty.
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
        /// Its cover, parity columns only; else empty.
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
    /// A stripe's stamps, by name, to roll forward and back. Stamps that the column does not have pending are ignored, so
    /// that a repeated or late verdict touches nothing newer.
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
    /// Creates the component object. Carries what a fence carries (in the capability). Idempotent. The drive takes object
    /// version, `g`, set and joining from the capability; of the attributes it keeps map, opaque and times.
    pub struct Create {
        /// The object.
        at: Address,
        /// Its first attributes; the map must be the one that the capability binds, if it binds one.
        attributes: Attributes,
    }
}
record! {
    /// Removes the object and frees its space. Removing what is not there succeeds.
    pub struct Remove {
        /// The object.
        at: Address,
        /// The manager's term.
        term: u64,
    }
}
record! {
    /// Reads part of one unit.
    pub struct Read {
        /// The object.
        at: Address,
        /// The unit's index: the stripe.
        unit: u64,
        /// First byte, in the unit.
        from: u32,
        /// One past the last byte; above `from`, at most the unit.
        to: u32,
        /// Which version.
        want: Want,
        /// For [`Want::Exactly`]: the version of a data unit (one entry) or the cover of a parity unit (k entries); else
        /// empty.
        exactly: Vec<Version>,
    }
}
record! {
    /// The bytes of a read are the frame's payload: the data extents' bytes, one after another.
    pub struct ReadReply {
        /// Version of the bytes; zero: never written, all of it a hole.
        version: Version,
        /// Whether it is pending: the drive does not know that it is settled.
        pending: bool,
        /// Columns touched by the stripe write that made the version (empty for a unit write).
        columns: ColumnMask,
        /// Parity units: the version of each data column counted in; empty for data units.
        cover: Vec<Version>,
        /// Together they are the range asked for, in order, without gaps.
        extents: Vec<Extent>,
        /// CRC32C of each block of each data extent, cut at multiples of 4 KiB of the unit. The reader verifies.
        crcs: Vec<u32>,
    }
}
record! {
    /// A stripe write's part for one column. The bytes are the payload.
    pub struct StripeWrite {
        /// The object.
        at: Address,
        /// The unit's index: the stripe.
        unit: u64,
        /// First byte, in the unit.
        from: u32,
        /// One past the last byte; above `from`, at most the unit.
        to: u32,
        /// The range becomes a hole: there is no payload, and `crcs` is empty.
        hole: bool,
        /// Rebuild and catch-up (PROTOCOL section 7), to a joining column only: the version is settled elsewhere already;
        /// it becomes the unit's whole settled content, below a newer pending one (the store's `Standing::Settled`).
        install: bool,
        /// The version of the whole stripe write. Its lease is the capability's, unless `install`: then it is the version
        /// that the other columns hold.
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
    /// A write to one unit through its data drive, which owes the parity drives the delta. The bytes are the payload.
    pub struct UnitWrite {
        /// The object.
        at: Address,
        /// The unit's index: the stripe.
        unit: u64,
        /// First byte, in the unit.
        from: u32,
        /// One past the last byte; above `from`, at most the unit.
        to: u32,
        /// The range becomes a hole: there is no payload, and `crcs` is empty.
        hole: bool,
        /// The writer.
        client: u64,
        /// The writer's operation number: the same when the write is repeated (PROTOCOL C4).
        operation: u64,
        /// Given by the client under an exclusive lease only; absent, the drive makes the version.
        stamp: Option<Version>,
        /// Everything of this lease below this stamp is settled.
        settled_below: Version,
        /// CRC32C of each block of the payload.
        crcs: Vec<u32>,
        /// The writer repeats none of its operations below this number: their dedup entries may go.
        watermark: u64,
    }
}
record! {
    /// Old xor new of a unit write, from its data drive to a parity drive. The bytes are the payload. Its capability names
    /// the sender (`holder`), is for the whole partition, and carries no `g`: the file's is a field here.
    pub struct Delta {
        /// The parity object.
        at: Address,
        /// The unit's index: the stripe.
        unit: u64,
        /// First byte, in the unit.
        from: u32,
        /// One past the last byte; above `from`, at most the unit.
        to: u32,
        /// The data column; its drive in the object's column map must be the capability's holder.
        column: Column,
        /// The version it was made on.
        from_version: Version,
        /// The version it makes.
        to_version: Version,
        /// The writer.
        client: u64,
        /// The writer's operation number.
        operation: u64,
        /// Everything of this column up to and with this version is settled: may be folded in.
        settled_to: Version,
        /// CRC32C of each block of the payload.
        crcs: Vec<u32>,
        /// The generation that the sender was last told; a drive with another refuses.
        g: Generation,
        /// The writer repeats none of its operations below this number.
        watermark: u64,
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
        /// The object.
        at: Address,
        /// Unit indices, ascending, at most [`VERSIONS_UNITS_MAX`].
        units: Vec<u64>,
    }
}
record! {
    /// Answer of [`Versions`]: the first so many of the units asked for, at least one if any was asked for. The asker asks
    /// again for the rest.
    pub struct VersionsReply {
        /// One per unit, in the order asked.
        units: Vec<UnitState>,
    }
}
record! {
    /// Everything of the capability's lease up to and with this stamp is settled.
    pub struct Retire {
        /// The object.
        at: Address,
        /// The highest settled stamp, inclusive.
        settled_to: Version,
        /// Answer when durable; else at once.
        durable: bool,
        /// The writer whose watermark follows; 0: none.
        client: u64,
        /// That writer repeats none of its operations below this number.
        watermark: u64,
    }
}
record! {
    /// Stores the capability's g, set and joining; from now on everything older is refused. Answered when durable and
    /// drained (PROTOCOL R7). Repeated with the same g it changes nothing and lists again.
    pub struct Fence {
        /// The object.
        at: Address,
        /// The manager's term.
        term: u64,
        /// List unsettled units from this index on; 0 first, then one past the last listed while there are more.
        units_from: u64,
    }
}
record! {
    /// Answer of [`Fence`].
    pub struct FenceReply {
        /// Units with unsettled versions, ascending, at most [`FENCE_UNITS_MAX`].
        unsettled: Vec<u64>,
        /// There are others above the last.
        more: bool,
    }
}
record! {
    /// Rolls stamps forward and back. Answered when durable.
    pub struct Verdict {
        /// The object.
        at: Address,
        /// The manager's term.
        term: u64,
        /// One per unit; a long verdict is sent in several messages.
        units: Vec<UnitVerdict>,
    }
}
record! {
    /// A column joins: it takes writes and is brought up to date from the sources.
    pub struct Join {
        /// The object.
        at: Address,
        /// The manager's term.
        term: u64,
        /// Drives of ready columns to read a cut from.
        sources: Vec<DriveId>,
    }
}
record! {
    /// The manager lists a caught-up column as ready, from the capability's g on.
    pub struct Ready {
        /// The object.
        at: Address,
        /// The manager's term.
        term: u64,
    }
}
record! {
    /// Everything acknowledged before is durable when this is answered.
    pub struct Flush {
        /// The object.
        at: Address,
    }
}
record! {
    /// Asks for an object's attributes.
    pub struct GetAttributes {
        /// The object.
        at: Address,
    }
}
record! {
    /// Sets the opaque bytes and the logical version.
    pub struct SetAttributes {
        /// The object.
        at: Address,
        /// The new logical version: not below the present one. A bump revokes every capability.
        object_version: u32,
        /// The new opaque bytes, at most [`OPAQUE_BYTES_MAX`].
        opaque: Vec<u8>,
        /// The manager's term.
        term: u64,
    }
}
record! {
    /// Lists a partition's objects.
    pub struct List {
        /// The partition.
        partition: PartitionId,
        /// Those above this number.
        after: ObjectId,
        /// At most this many; the drive may return fewer, and none only at the end.
        limit: u32,
    }
}
record! {
    /// Object numbers, ascending.
    pub struct ListReply {
        /// The objects.
        objects: Vec<ObjectId>,
    }
}
record! {
    /// Creates a partition. Idempotent.
    pub struct PartitionCreate {
        /// Its number; not 0.
        partition: PartitionId,
        /// Bytes of log that it may hold; 0: no quota.
        quota_bytes: u64,
        /// The epoch of its newer working key, from 1.
        key_epoch: u32,
        /// The manager's term.
        term: u64,
    }
}
record! {
    /// Sets a partition's quota and key epoch (rotates its working keys).
    pub struct PartitionSet {
        /// Its number.
        partition: PartitionId,
        /// Bytes of log that it may hold; 0: no quota.
        quota_bytes: u64,
        /// The epoch of its newer working key; not below the present one.
        key_epoch: u32,
        /// The manager's term.
        term: u64,
    }
}
record! {
    /// Removes an empty partition. Removing what is not there succeeds.
    pub struct PartitionRemove {
        /// Its number.
        partition: PartitionId,
        /// The manager's term.
        term: u64,
    }
}
record! {
    /// Lists partitions.
    pub struct PartitionList {
        /// Those above this number.
        after: PartitionId,
        /// At most this many; the drive may return fewer, and none only at the end.
        limit: u32,
    }
}
record! {
    /// A partition.
    pub struct PartitionRow {
        /// Its number.
        partition: PartitionId,
        /// Bytes of log that it may hold; 0: no quota.
        quota_bytes: u64,
        /// Bytes of log that it holds.
        used_bytes: u64,
        /// Objects in it.
        objects: u64,
        /// The epoch of its newer working key.
        key_epoch: u32,
    }
}
record! {
    /// Partitions, ascending.
    pub struct PartitionListReply {
        /// The partitions.
        partitions: Vec<PartitionRow>,
    }
}
record! {
    /// Asks for the drive's figures.
    pub struct Stat {}
}
record! {
    /// The drive's figures.
    pub struct StatReply {
        /// The drive.
        drive: DriveId,
        /// Bytes it may store.
        capacity_bytes: u64,
        /// Bytes of log.
        used_bytes: u64,
        /// Bytes of log that a read could return.
        live_bytes: u64,
        /// Segments of log.
        segments: u64,
        /// Objects.
        objects: u64,
        /// Partitions.
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
        /// Create an object: Done.
        Create(Create) = 0x0100,
        /// Remove an object: Done.
        Remove(Remove) = 0x0101,
        /// Read part of a unit: Read.
        Read(Read) = 0x0102,
        /// One column's part of a stripe write: Written.
        StripeWrite(StripeWrite) = 0x0103,
        /// A write through the data drive: Written, when settled.
        UnitWrite(UnitWrite) = 0x0104,
        /// Drive to drive: Written, with the tip.
        Delta(Delta) = 0x0105,
        /// What units hold: Versions.
        Versions(Versions) = 0x0106,
        /// Stamps are settled: Done.
        Retire(Retire) = 0x0107,
        /// A higher generation: Fence.
        Fence(Fence) = 0x0108,
        /// Forward and back: Done.
        Verdict(Verdict) = 0x0109,
        /// A column joins: Done.
        Join(Join) = 0x010a,
        /// A caught-up column is ready: Done.
        Ready(Ready) = 0x010b,
        /// All before is durable: Done.
        Flush(Flush) = 0x010c,
        /// Attributes: Attributes.
        GetAttributes(GetAttributes) = 0x010d,
        /// Change attributes: Done.
        SetAttributes(SetAttributes) = 0x010e,
        /// Objects: List.
        List(List) = 0x010f,
        /// Make a partition: Done.
        PartitionCreate(PartitionCreate) = 0x0110,
        /// Change a partition: Done.
        PartitionSet(PartitionSet) = 0x0111,
        /// Remove a partition: Done.
        PartitionRemove(PartitionRemove) = 0x0112,
        /// Partitions: PartitionList.
        PartitionList(PartitionList) = 0x0113,
        /// Figures: Stat.
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
