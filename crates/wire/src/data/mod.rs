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
//! Requests that only the manager makes carry its `term`. A drive refuses a term that is lower than the
//! highest it has seen.

mod bytes;
mod hello;
mod object;
mod partition;
mod parts;
mod receipt;
mod recovery;
mod refusals;
mod requests;
mod rules;
mod run;
mod scrub;
mod snapshot;
mod times;

use braid_layout::Generation;

pub use bytes::*;
pub use hello::*;
pub use object::*;
pub use partition::*;
pub use parts::*;
pub use receipt::*;
pub use recovery::*;
pub use refusals::*;
pub use requests::*;
pub use rules::*;
pub use run::*;
pub use scrub::*;
pub use snapshot::*;
pub use times::*;

use crate::refusal::Refusal;

record! {
    /// The head of every reply of a drive.
    pub struct ReplyHead {
        /// The object's generation at the drive (zero where there is no object).
        g: Generation,
        /// MAC over `g` and the reply, under the private part of the request's capability, see
        /// [`seal`](crate::seal); zeros in the refusal of a request that could not be verified.
        mac: [u8; 16],
    }
}

record! {
    /// An answer without content: the request was carried out.
    pub struct Done {}
}

message_set! {
    /// A drive's replies. Kinds have [`REPLY_BIT`](crate::frame::REPLY_BIT) set.
    pub enum DriveReply {
        /// The request was carried out.
        Done(Done) = 0x8100,
        /// The bytes of a unit.
        Read(ReadReply) = 0x8102,
        /// A write is durable.
        Written(Written) = 0x8103,
        /// The versions that units hold.
        Versions(VersionsReply) = 0x8106,
        /// The unsettled units of a fenced object.
        Fence(FenceReply) = 0x8108,
        /// The attributes of an object.
        Attributes(Attributes) = 0x810d,
        /// A list of objects.
        List(ListReply) = 0x810f,
        /// The state of a scrub.
        Scrub(ScrubReply) = 0x8112,
        /// The state of a calibration.
        Calibrate(CalibrateReply) = 0x8113,
        /// The partial answer of a method.
        Run(RunReply) = 0x8115,
        /// The attributes of the drive.
        DriveAttributes(DriveAttributes) = 0x8120,
        /// The attributes of a partition.
        PartitionAttributes(PartitionAttributes) = 0x8121,
        /// A list of partitions.
        PartitionList(PartitionListReply) = 0x8122,
        /// A refusal of any request.
        Refused(Refusal) = 0x81ff,
    }
}
