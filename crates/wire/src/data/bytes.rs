//! A unit's bytes: reads and the two kinds of write (PROTOCOL sections 3 to 5).

use braid_layout::{Column, ColumnMask, EndBound, Generation, Version};

use super::object::Address;
use super::receipt::Receipt;
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
        /// It is a hole: it reads as zeros, and no payload bytes are sent for it.
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
        /// The snapshot to read, with [`Want::Newest`] only; 0: the present state. One that does not exist,
        /// or no longer, is [`NoSnapshot`](crate::Reason::NoSnapshot).
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
    /// The answer to a read. The frame's payload is the bytes of the data extents, one after another.
    pub struct ReadReply {
        /// Version of the bytes; zero: never written, all of it a hole.
        version: Version,
        /// Whether it is pending: the drive does not know that it is settled.
        pending: bool,
        /// Columns touched by the stripe write that made the version (empty for a unit write).
        columns: ColumnMask,
        /// Of a parity unit: the version of each data column that it includes; of a data unit: empty.
        cover: Vec<Version>,
        /// One past the last byte that is not in a hole. Of a parity unit: of each data unit, in the version
        /// that it includes; of a data unit: its own, in this version. Empty: never written.
        ends: Vec<u32>,
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
        /// For rebuild and catch-up (PROTOCOL section 7), to a joining column or a damaged unit only. The
        /// version is settled on the other columns already. It becomes the unit's whole settled content; a
        /// newer pending version stays above it (the store's `Standing::Installed`).
        install: bool,
        /// To a data column, and not with `install`: the range is the unit's whole content, and the rest of
        /// it becomes a hole. Joining columns are sent whole units, as they may lack what is around a part.
        whole: bool,
        /// The version of the whole stripe write. Its lease is the capability's, unless `install`: then it is
        /// the version that the other columns hold.
        stamp: Version,
        /// Touched data columns and all parity columns, in the set or out.
        columns: ColumnMask,
        /// The version of each data unit after this write, in data order; for parity columns, else empty.
        cover: Vec<Version>,
        /// For each of these: what the write says of the end of that data unit's bytes. One that is installed
        /// says it exactly.
        ends: Vec<EndBound>,
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
        /// Given by the client under an exclusive lease only; if it is absent, the drive makes the version.
        stamp: Option<Version>,
        /// Everything of this lease below this stamp is settled.
        settled_below: Version,
        /// CRC32C of each block of the payload.
        crcs: Vec<u32>,
        /// The writer repeats none of its operations below this number, so the drive may drop their dedup
        /// entries.
        watermark: u64,
    }
}

record! {
    /// The xor of the old and the new bytes of a unit write, from its data drive to a parity drive. The bytes
    /// are the payload. The capability names the sender (`holder`) and is for the whole partition. It carries
    /// no generation, so `g` is a field here.
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
        /// One past the last byte of the data unit in that version that is not in a hole; 0: it has only
        /// holes.
        end: u32,
        /// The writer.
        client: u64,
        /// The writer's operation number.
        operation: u64,
        /// Everything of this column up to and including this version is settled and may be folded in.
        settled_to: Version,
        /// CRC32C of each block of the payload.
        crcs: Vec<u32>,
        /// The generation that the sender was last told; a drive that was told another refuses.
        g: Generation,
        /// The writer repeats none of its operations below this number.
        watermark: u64,
    }
}

record! {
    /// A durable write's answer.
    pub struct Written {
        /// The unit's tip after the write.
        version: Version,
        /// The stamp was there already: nothing was written.
        already: bool,
        /// Unit writes: parity columns that have not taken it in time. Empty: it is settled. Otherwise it is
        /// durable here and stays owed: repeat it, or report these columns.
        owed_to: ColumnMask,
        /// How far the log of this drive is durable, and of a unit write the logs of the parity drives that
        /// have taken it.
        receipts: Vec<Receipt>,
    }
}

impl Written {
    /// For a write that is owed to nobody. Its receipts are added when it is sent.
    pub fn new(version: Version, already: bool) -> Written {
        Written { version, already, owed_to: ColumnMask::EMPTY, receipts: Vec::new() }
    }
}

record! {
    /// Tells the drive that everything of the capability's lease up to and including this stamp is settled.
    pub struct Retire {
        /// The object.
        at: Address,
        /// The highest settled stamp, inclusive.
        settled_to: Version,
        /// Answer when this is durable; else at once.
        durable: bool,
        /// The writer whose watermark follows; 0: none.
        client: u64,
        /// That writer repeats none of its operations below this number.
        watermark: u64,
        /// The lease is over: from now on the drive refuses writes under its capabilities. It is no error if
        /// the object does not exist.
        ends_lease: bool,
    }
}

impl Retire {
    /// The same in the form that writes use: everything of the lease below this stamp is settled.
    pub fn settled_below(&self) -> Version {
        Version { n: self.settled_to.n.saturating_add(1), ..self.settled_to }
    }
}

record! {
    /// Answered when everything acknowledged before is durable.
    pub struct Flush {
        /// The object.
        at: Address,
    }
}
