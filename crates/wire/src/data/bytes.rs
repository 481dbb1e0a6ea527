//! The bytes of a unit: reads and the two kinds of write (PROTOCOL sections 3 to 5).

use braid_layout::{ClientId, Column, ColumnMask, EndBound, Generation, OperationNumber, Version};

use super::object::Address;
use super::receipt::Receipt;
use super::times::Times;
use crate::frame::PAYLOAD_BYTES_MAX;
use crate::refusal::Refusal;

choice! {
    /// The version that a read asks for.
    pub enum Want {
        /// The newest version, pending or not.
        Newest = 0,
        /// The newest settled version.
        Settled = 1,
        /// Exactly the version given (for parity: exactly the cover given).
        Exactly = 2,
    }
}

record! {
    /// A part of a unit in the reply to a read.
    pub struct Extent {
        /// First byte, counted from the start of the unit.
        from: u32,
        /// One past the last byte, counted from the start of the unit.
        to: u32,
        /// True for a hole, which reads as zeros; no payload bytes are sent for it.
        hole: bool,
    }
}

record! {
    /// Reads part of one unit.
    pub struct Read {
        /// The object to read.
        at: Address,
        /// Index of the unit, which is its stripe's index.
        unit: u64,
        /// First byte to read, counted from the start of the unit.
        from: u32,
        /// One past the last byte; above `from`, at most the length of the unit.
        to: u32,
        /// The version to read.
        want: Want,
        /// For [`Want::Exactly`]: the version of a data unit (one entry) or the cover of a parity unit (k
        /// entries); else empty.
        exactly: Vec<Version>,
        /// True if the answer is to say how long the request took at the drive.
        timed: bool,
    }
}

impl Read {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        if self.exactly.is_empty() == (self.want == Want::Exactly) {
            return Err(Refusal::malformed(
                "a read names versions if, and only if, it asks for exactly those",
            ));
        }
        Ok(())
    }
}

record! {
    /// The answer to a [`Read`]. The frame's payload is the bytes of the data extents, one after another.
    pub struct ReadReply {
        /// Version of the bytes; zero: the unit was never written, and all of it is a hole.
        version: Version,
        /// True if the version is pending: the drive does not know that it is settled.
        pending: bool,
        /// Columns touched by the stripe write that made the version (empty for a unit write).
        columns: ColumnMask,
        /// For a parity unit: the version of each data column that it includes; for a data unit: empty.
        cover: Vec<Version>,
        /// One past the last byte that is not in a hole. For a parity unit: one entry for each data unit,
        /// in the version that the parity includes; for a data unit: one entry, in this version. Empty:
        /// never written.
        ends: Vec<u32>,
        /// The extents of the range asked for, in order, without gaps.
        extents: Vec<Extent>,
        /// CRC32C of each block of each data extent, cut at multiples of 4 KiB of the unit. The reader
        /// verifies them.
        crcs: Vec<u32>,
        /// The time that the request took, if it asks for that.
        times: Option<Times>,
    }
}

record! {
    /// One column's part of a stripe write. The bytes are the payload.
    pub struct StripeWrite {
        /// The object to write.
        at: Address,
        /// Index of the unit, which is its stripe's index.
        unit: u64,
        /// First byte to write, counted from the start of the unit.
        from: u32,
        /// One past the last byte; above `from`, at most the length of the unit.
        to: u32,
        /// True if the range becomes a hole: then there is no payload, and `crcs` is empty.
        hole: bool,
        /// True for rebuild and catch-up (PROTOCOL section 7), to a joining column or a damaged unit only.
        /// The version is settled on the other columns already. It becomes the unit's whole settled
        /// content; a newer pending version stays above it (the store's `Standing::Installed`).
        install: bool,
        /// True if the range is the unit's whole content, and the rest of the unit becomes a hole; to a
        /// data column only, and not with `install`. Joining columns are sent whole units, as they may lack
        /// the bytes around a part.
        whole: bool,
        /// The version of the whole stripe write. Its lease is the capability's. With `install`, the stamp
        /// is instead the version that the other columns hold.
        stamp: Version,
        /// The data columns touched and all parity columns, whether in the set or not.
        columns: ColumnMask,
        /// The version of each data unit after this write, in data order; for parity columns, else empty.
        cover: Vec<Version>,
        /// For each version in `cover`: the write's statement about the end of that data unit's bytes. With
        /// `install` the statement is exact.
        ends: Vec<EndBound>,
        /// All writes of this lease with stamps below this one are settled.
        settled_below: Version,
        /// The writer's number.
        client: ClientId,
        /// The writer's operation number.
        operation: OperationNumber,
        /// CRC32C of each block of the payload.
        crcs: Vec<u32>,
        /// True if the answer is to say how long the request took at the drive.
        timed: bool,
    }
}

record! {
    /// A write to one unit through its data drive, which owes the delta to the parity drives. The bytes are
    /// the payload.
    pub struct UnitWrite {
        /// The object to write.
        at: Address,
        /// Index of the unit, which is its stripe's index.
        unit: u64,
        /// First byte to write, counted from the start of the unit.
        from: u32,
        /// One past the last byte; above `from`, at most the length of the unit.
        to: u32,
        /// True if the range becomes a hole: then there is no payload, and `crcs` is empty.
        hole: bool,
        /// The writer's number.
        client: ClientId,
        /// The writer's operation number: the same when the write is repeated (PROTOCOL C4).
        operation: OperationNumber,
        /// The stamp that the client gives, under an exclusive lease only; absent: the drive makes the
        /// version.
        stamp: Option<Version>,
        /// All writes of this lease with stamps below this one are settled.
        settled_below: Version,
        /// CRC32C of each block of the payload.
        crcs: Vec<u32>,
        /// The writer repeats none of its operations below this number, so the drive may drop their dedup
        /// entries.
        watermark: OperationNumber,
        /// True if the answer is to say how long the request took at the drive.
        timed: bool,
    }
}

record! {
    /// The xor of the old and the new bytes of a unit write, from its data drive to a parity drive. The
    /// bytes are the payload. The capability names the sender (`holder`) and is for the whole partition. It
    /// carries no generation, so `g` is a field here.
    pub struct Delta {
        /// The parity object to change.
        at: Address,
        /// Index of the unit, which is its stripe's index.
        unit: u64,
        /// First byte that changed, counted from the start of the unit.
        from: u32,
        /// One past the last byte; above `from`, at most the length of the unit.
        to: u32,
        /// The data column that was written; its drive in the object's column map must be the capability's
        /// holder.
        column: Column,
        /// The version to which the delta applies.
        from_version: Version,
        /// The version that results from the delta.
        to_version: Version,
        /// One past the last byte of the data unit in that version that is not in a hole; 0: the unit has
        /// only holes.
        end: u32,
        /// The writer's number.
        client: ClientId,
        /// The writer's operation number.
        operation: OperationNumber,
        /// All versions of this column up to and including this one are settled and may be folded in.
        settled_to: Version,
        /// CRC32C of each block of the payload.
        crcs: Vec<u32>,
        /// The generation that the sender was last told. A drive that was told another generation refuses
        /// the delta.
        g: Generation,
        /// The writer repeats none of its operations below this number.
        watermark: OperationNumber,
    }
}

record! {
    /// The answer to a write that is durable.
    pub struct Written {
        /// The unit's tip after the write.
        version: Version,
        /// True if the stamp was there already, so that nothing was written.
        already: bool,
        /// For unit writes: parity columns that have not taken the delta in time. Empty: the write is
        /// settled. Otherwise the write is durable here and its delta stays owed: repeat the write, or
        /// report these columns.
        owed_to: ColumnMask,
        /// Receipts that say how far the log of this drive is durable, and for a unit write also the logs
        /// of the parity drives that have taken the delta.
        receipts: Vec<Receipt>,
        /// True if the link to the drive is congested: ask for a [`WriteTurn`] before each further write, for
        /// a second.
        turns: bool,
        /// The time that the request took, if it asks for that.
        times: Option<Times>,
    }
}

record! {
    /// Asks for leave to send a write's bytes to a drive whose link is congested. Answered when it is the
    /// client's turn, after some seconds at most. Nothing refuses a write that had none.
    pub struct WriteTurn {
        /// The object that will be written.
        at: Address,
        /// Bytes of the write; at most what a payload may have.
        bytes: u64,
    }
}

impl WriteTurn {
    pub(super) fn check_form(&self) -> Result<(), Refusal> {
        if self.bytes <= u64::from(PAYLOAD_BYTES_MAX) {
            return Ok(());
        }
        Err(Refusal::malformed(format!(
            "a turn for {} bytes is for too many: a write has at most {PAYLOAD_BYTES_MAX}",
            self.bytes
        )))
    }
}

impl Written {
    /// Creates the answer to a write that owes no delta. Its receipts are added when it is sent.
    pub fn new(version: Version, already: bool) -> Written {
        let owed_to = ColumnMask::EMPTY;
        Written { version, already, owed_to, receipts: Vec::new(), turns: false, times: None }
    }
}

record! {
    /// Tells the drive that all writes of the capability's lease up to and including this stamp are
    /// settled.
    pub struct Retire {
        /// The object that was written.
        at: Address,
        /// The highest settled stamp, inclusive.
        settled_to: Version,
        /// True to answer when this is durable, false to answer at once.
        durable: bool,
        /// The number of the writer whose watermark follows; 0: none.
        client: ClientId,
        /// The writer named in `client` repeats none of its operations below this number.
        watermark: OperationNumber,
        /// True if the lease has ended: from now on the drive refuses writes under its capabilities. It is
        /// no error if the object does not exist.
        ends_lease: bool,
    }
}

impl Retire {
    /// The settled stamps in the form that writes use: all writes of the lease below this stamp are
    /// settled.
    pub fn settled_below(&self) -> Version {
        Version { n: self.settled_to.n.saturating_add(1), ..self.settled_to }
    }
}
