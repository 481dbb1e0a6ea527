//! Messages with drives (PROTOCOL section 3, and the object interface of NASD, section 3).
//!
//! The body of a request is [`Authority`](crate::capability::Authority) followed by the arguments declared
//! here; the body of a reply is [`ReplyHead`] followed by its arguments. A unit's bytes are the frame's
//! payload; their checksums are in the arguments. `g`, set and joining travel in every request's capability,
//! and `g` in every reply's head.
//!
//! Units, unless a field says otherwise: `unit` is the index of a unit in its object (the stripe), `from` and
//! `to` are bytes in that unit, `to` exclusive; times are manager time in milliseconds; sizes are bytes.
//!
//! Requests that only the manager makes carry its `term`; a drive refuses one lower than the highest it has
//! seen.

mod bytes;
mod hello;
mod object;
mod partition;
mod receipt;
mod recovery;
mod refusals;
mod requests;
mod rules;
mod scrub;
mod snapshot;

use braid_layout::Generation;

pub use bytes::*;
pub use hello::*;
pub use object::*;
pub use partition::*;
pub use receipt::*;
pub use recovery::*;
pub use refusals::*;
pub use requests::*;
pub use rules::*;
pub use scrub::*;
pub use snapshot::*;

use crate::refusal::Refusal;

record! {
    /// What every reply of a drive begins with.
    pub struct ReplyHead {
        /// The object's generation at the drive (zero where there is no object).
        g: Generation,
        /// Over `g` and the reply, under the private part of the request's capability, see
        /// [`seal`](crate::seal); zeros in the refusal of a request that could not be verified.
        mac: [u8; 16],
    }
}

record! {
    /// Says "done" and nothing else.
    pub struct Done {}
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
        /// The state of a scrub.
        Scrub(ScrubReply) = 0x8112,
        /// The drive's attributes.
        DriveAttributes(DriveAttributes) = 0x8120,
        /// A partition's attributes.
        PartitionAttributes(PartitionAttributes) = 0x8121,
        /// Partitions.
        PartitionList(PartitionListReply) = 0x8122,
        /// A refusal.
        Refused(Refusal) = 0x81ff,
    }
}
