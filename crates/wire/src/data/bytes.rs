//! A unit's bytes: reads and the two kinds of write (PROTOCOL sections 3 to 5).

use braid_layout::{Column, ColumnMask, Generation, Version};

use super::object::Address;
use crate::refusal::Refusal;

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
        /// For [`Want::Exactly`]: the version of a data unit (one entry) or the cover of a parity unit (k
        /// entries); else empty.
        exactly: Vec<Version>,
        /// Read what this snapshot sees, with [`Want::Newest`] only; 0: the newest state. One that is not
        /// there (any more) is [`NoSnapshot`](crate::Reason::NoSnapshot).
        snapshot: u32,
    }
}

impl Read {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        if self.exactly.is_empty() == (self.want == Want::Exactly) {
            return Err(Refusal::malformed("versions are given to read exactly those, and only then"));
        }
        if self.snapshot != 0 && self.want != Want::Newest {
            return Err(Refusal::malformed("a snapshot has one state of each unit: the newest is asked for"));
        }
        Ok(())
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
        /// CRC32C of each block of each data extent, cut at multiples of 4 KiB of the unit. The reader
        /// verifies.
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
        /// Rebuild and catch-up (PROTOCOL section 7), to a joining column only: the version is settled
        /// elsewhere already; it becomes the unit's whole settled content, below a newer pending one (the
        /// store's `Standing::Installed`).
        install: bool,
        /// The version of the whole stripe write. Its lease is the capability's, unless `install`: then it is
        /// the version that the other columns hold.
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
    /// A write to one unit through its data drive, which owes the parity drives the delta. The bytes are the
    /// payload.
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
    /// Old xor new of a unit write, from its data drive to a parity drive. The bytes are the payload. Its
    /// capability names the sender (`holder`), is for the whole partition, and carries no `g`: the file's is
    /// a field here.
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
        /// The lease is over: from now on no capability of it writes here. An object that is not there is as
        /// good.
        ends_lease: bool,
    }
}

impl Retire {
    /// The same said as the writes say it: everything of the lease below this stamp is settled.
    pub fn settled_below(&self) -> Version {
        Version { n: self.settled_to.n.saturating_add(1), ..self.settled_to }
    }
}

record! {
    /// Everything acknowledged before is durable when this is answered.
    pub struct Flush {
        /// The object.
        at: Address,
    }
}
