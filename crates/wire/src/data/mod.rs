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

mod bytes;
mod hello;
mod object;
mod partition;
mod recovery;
mod refusals;
mod scrub;
mod snapshot;

use braid_layout::Generation;

pub use bytes::{Delta, Extent, Flush, Read, ReadReply, Retire, StripeWrite, UnitWrite, Want, Written};
pub use hello::{HELLO, HELLO_REFUSED, Hello, PeerRole};
pub use object::{
    Address, Attributes, ColumnMap, Create, GetAttributes, List, ListReply, ListedObject, OPAQUE_BYTES_MAX,
    Remove, SetAttributes,
};
pub use partition::{DriveAttributes, Expect, PartitionAttributes, PartitionListReply, PartitionSet};
pub use recovery::{
    FENCE_UNITS_MAX, Fence, FenceReply, Join, Listing, PendingState, Ready, Tip, UnitState, UnitVerdict,
    VERSIONS_LOOKED_AT_MAX, VERSIONS_UNITS_MAX, Verdict, Versions, VersionsReply,
};
pub use refusals::{REFUSALS, REFUSALS_OF_ALL, may_refuse};
pub use scrub::{
    DamagedUnit, LostKeys, SCRUB_DAMAGED_MAX, Scrub, ScrubAct, ScrubPhase, ScrubReply, ScrubState, WrongFile,
};
pub use snapshot::{SNAPSHOTS_MAX, Snapshot, SnapshotAct};

use crate::refusal::Refusal;

record! {
    /// What every reply of a drive begins with.
    pub struct ReplyHead {
        /// The object's generation at the drive (zero where there is no object).
        g: Generation,
        /// Over `g` and the reply, under the private part of the request's capability, see
        /// [`seal`](crate::seal); zeros where a refusal comes before the capability was found
        /// good.
        mac: [u8; 16],
    }
}

record! {
    /// Nothing but "done".
    pub struct Done {}
}

message_set! {
    /// Requests to a drive: fewer than 20 in all, as NASD has it (Gibson et al., 1998, section 4.1).
    pub enum DriveRequest {
        /// Create an object: Done.
        Create(Create) = 0x0100,
        /// Remove an object, or an empty partition: Done.
        Remove(Remove) = 0x0101,
        /// Read part of a unit: Read.
        Read(Read) = 0x0102,
        /// One column's part of a stripe write: Written.
        StripeWrite(StripeWrite) = 0x0103,
        /// A write through the data drive: Written, when settled.
        UnitWrite(UnitWrite) = 0x0104,
        /// Drive to drive: Written, with the tip.
        Delta(Delta) = 0x0105,
        /// What units hold, or which units there are: Versions.
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
        /// Attributes: Attributes, PartitionAttributes or DriveAttributes.
        GetAttributes(GetAttributes) = 0x010d,
        /// Change attributes: Done.
        SetAttributes(SetAttributes) = 0x010e,
        /// Objects of a partition, or the drive's partitions: List or PartitionList.
        List(List) = 0x010f,
        /// Make or change a partition: Done.
        PartitionSet(PartitionSet) = 0x0110,
        /// Take or drop a snapshot: Done.
        Snapshot(Snapshot) = 0x0111,
        /// Verify all that is stored, or tell how that stands: Scrub.
        Scrub(Scrub) = 0x0112,
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
        /// An object's attributes.
        Attributes(Attributes) = 0x810d,
        /// Objects.
        List(ListReply) = 0x810f,
        /// How a scrub stands.
        Scrub(ScrubReply) = 0x8112,
        /// The drive's attributes.
        DriveAttributes(DriveAttributes) = 0x8120,
        /// A partition's attributes.
        PartitionAttributes(PartitionAttributes) = 0x8121,
        /// Partitions.
        PartitionList(PartitionListReply) = 0x8122,
        /// No.
        Refused(Refusal) = 0x81ff,
    }
}
