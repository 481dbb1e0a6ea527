//! A record's header: the kind of change, with every field that PROTOCOL section 9 asks for.
//!
//! A record is the header (fixed part, cover, ends, checksums, subjects before, inline body, zeros up to the
//! log block or, before a long payload, up to a page), then the payload and zeros up to the log block. The
//! header's CRC covers the whole header including its zeros; the payload has one CRC per 4 KiB block. A field
//! that a kind does not use is zero.

use braid_layout::{
    ClientId, Column, ColumnMask, EndBound, Generation, ObjectId, OperationNumber, PartitionId, Version,
};

use super::extent::LogPosition;
use super::field::{
    Value as _, check_version, check_zero, count, fields, get, length, numbered, put, put_list, split,
    split_list,
};
use super::subject::{self, Subject, TOGETHER_MAX};
use super::{COUNTED_BYTES, DecodeError, FORMAT_VERSION, LOG_BLOCK, VERSION_BYTES, padded, rules};
use crate::crc::crc32c_of;
use crate::mutation::WriteKind;

pub const MAGIC: [u8; 4] = *b"BRec";
/// Bytes of the fixed part.
pub const FIXED_BYTES: usize = 256;
/// The most bytes of an inline body.
pub const INLINE_BYTES_MAX: usize = 256 << 10;
/// The size of a file's page: long payloads begin at multiples of it.
pub const PAGE_BYTES: usize = 4096;
/// Payloads of at least this many bytes begin at a page. The zeros before one are then at most 1/73 of it.
pub const PAGED_BYTES_MIN: u32 = 256 << 10;
/// The most bytes of a header without its padding: the checksums of a whole 64 MiB unit, a cover of 64, seven
/// subjects before and the largest inline body.
pub const HEADER_BYTES_MAX: usize =
    FIXED_BYTES + 64 * COUNTED_BYTES + 16_385 * 4 + (TOGETHER_MAX - 1) * subject::BYTES + INLINE_BYTES_MAX;

fields! {
    /// The fixed part's fields.
    FIELDS of Record:
    F_MAGIC "magic" 0..4,
    F_VERSION "format version" 4..6,
    .kind "kind" 6..7,
    .flags "flags" 7..8,
    F_HEADER_BYTES "header bytes" 8..12,
    .payload_bytes F_PAYLOAD_BYTES "payload bytes" 12..16,
    .sequence "sequence" 16..24,
    .salt F_SALT "salt" 24..32,
    .segment F_SEGMENT "segment" 32..36,
    .block F_BLOCK "block" 36..40,
    .synced_to "synced to" 40..48,
    .commit_first "commit first" 48..56,
    .commit_left "commit left" 56..60,
    .column "column" 60..61,
    F_COVER_COUNT "cover count" 61..62,
    .data "data unit" 62..63,
    "reserved" 63..64,
    .partition "partition" 64..72,
    .object "object" 72..80,
    .birth "birth" 80..88,
    .unit "unit" 88..96,
    .units "units" 96..100,
    .from "from" 100..104,
    .to "to" 104..108,
    .g "g" 108..112,
    .version "version" 112..128,
    .previous "previous" 128..144,
    .settled_below "settled below" 144..160,
    .columns "columns" 160..168,
    .set "set" 168..176,
    .joining "joining" 176..184,
    .client "client" 184..192,
    .operation "operation" 192..200,
    .watermark "watermark" 200..208,
    .prior "prior" 208..233,
    F_BEFORE_COUNT "before count" 233..234,
    "reserved" 234..236,
    F_CRC_COUNT "crc count" 236..240,
    F_INLINE_BYTES "inline bytes" 240..244,
    .end "end" 244..248,
    "reserved" 248..252,
    F_CRC "header crc" 252..256,
}

numbered! {
    /// Kind of a record. The number is part of the format and is never reused for another kind.
    Kind:
    /// Bytes, or a hole, of a data column's unit.
    Data = 1 "data",
    /// A parity column's base.
    ParityBase = 2 "parity base",
    /// A parity column's part of a stripe write.
    StripeParity = 3 "stripe parity",
    /// A change of a data column, stored at a parity column.
    Delta = 4 "delta",
    /// A new generation, set and joining.
    Fence = 5 "fence",
    /// Settles or takes back versions by their stamps.
    Verdict = 6 "verdict",
    /// Settles the versions below `settled_below`; with a unit, also its owed versions up to `version`.
    SettledTo = 7 "settled to",
    /// A joining column has caught up with a unit.
    Ready = 8 "ready",
    /// A new object with its attributes.
    ObjectCreate = 9 "object create",
    /// All attributes of an object, changed.
    ObjectAttributes = 10 "object attributes",
    /// An object is gone, and any earlier one of its number: all up to the birth given.
    ObjectRemove = 11 "object remove",
    /// A new partition.
    PartitionCreate = 12 "partition create",
    /// All of a partition's values, changed.
    PartitionSet = 13 "partition set",
    /// A partition is gone.
    PartitionRemove = 14 "partition remove",
    /// Carries only `synced to`: the log was closed cleanly.
    #[default]
    Mark = 15 "mark",
    /// Bytes of a unit that the cleaner moved here from the places that the body names.
    Move = 16 "move",
    /// The content that is settled in an object now stays readable under this snapshot's number.
    Snapshot = 17 "snapshot",
    /// A snapshot is no longer wanted.
    SnapshotDrop = 18 "snapshot drop",
}

impl Kind {
    /// Returns true if the record writes a unit's bytes.
    pub fn writes(self) -> bool {
        matches!(self, Kind::Data | Kind::ParityBase | Kind::StripeParity | Kind::Delta)
    }

    /// Kind of content that a record of this kind writes to its unit. Of no meaning for kinds that write
    /// none.
    pub(crate) fn write_kind(self) -> WriteKind {
        match self {
            Kind::ParityBase => WriteKind::ParityBase,
            Kind::StripeParity => WriteKind::StripeParity,
            _ => WriteKind::Data,
        }
    }

    /// Returns true if the record holds a unit's bytes, or a hole, and so names a unit and a range in it.
    pub fn has_range(self) -> bool {
        self.writes() || self == Kind::Move
    }
}

impl From<WriteKind> for Kind {
    fn from(kind: WriteKind) -> Kind {
        match kind {
            WriteKind::Data => Kind::Data,
            WriteKind::ParityBase => Kind::ParityBase,
            WriteKind::StripeParity => Kind::StripeParity,
        }
    }
}

/// Bits of the flags byte.
pub mod flags {
    /// The write was installed as settled content (PROTOCOL section 7), not as a pending stripe write.
    pub const INSTALLED: u8 = 1;
    /// The range is a hole: zeros without a payload.
    pub const HOLE: u8 = 2;
    /// A unit write of a data column: owed to the parity columns.
    pub const OWED: u8 = 4;
    /// A parity base that was made here from the base before it and settled deltas.
    pub const FOLDED: u8 = 8;
    /// A newer version stayed above the installed content, in a unit that was not damaged.
    pub const BELOW: u8 = 16;
    /// A pending write of a data column that is the unit's whole content.
    pub const WHOLE: u8 = 32;
    /// A fence of a joining column: what was not settled there is gone.
    pub const DROPPED: u8 = 64;
    /// All defined bits.
    pub const ALL: u8 = INSTALLED | HOLE | OWED | FOLDED | BELOW | WHOLE | DROPPED;
}

/// A decoded header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Kind of the record.
    pub kind: Kind,
    /// Bits of [`flags`].
    pub flags: u8,
    /// Sequence number in the log, from 1, without gaps.
    pub sequence: u64,
    /// The store's salt.
    pub salt: u64,
    /// Number of the segment that holds the record.
    pub segment: u32,
    /// The log block of that segment at which the record begins.
    pub block: u32,
    /// All records up to this number were durable when the record was written.
    pub synced_to: u64,
    /// The sequence number of the commit's first record.
    pub commit_first: u64,
    /// Number of records of the same commit that follow.
    pub commit_left: u32,
    /// The object's partition.
    pub partition: PartitionId,
    pub object: ObjectId,
    /// The sequence number of the record that created the object (or the partition).
    pub birth: u64,
    /// The first unit.
    pub unit: u64,
    /// Number of units: 1 if the record is about one unit, the count of its units for a verdict and for
    /// ready, else 0.
    pub units: u32,
    /// First byte in the unit.
    pub from: u32,
    /// One past the last byte in the unit.
    pub to: u32,
    /// The version written; for a delta, the version it leads to.
    pub version: Version,
    /// The unit's tip when this was written; for a delta, the version it leads from.
    pub previous: Version,
    /// Bound of what is settled: the stamps of this one's lease below it. For a delta, its chain up to and
    /// including this one.
    pub settled_below: Version,
    /// The columns of the stripe write.
    pub columns: ColumnMask,
    /// The object's own column; for a delta, the data column.
    pub column: Column,
    /// For a delta: the index of its version in a cover.
    pub data: u8,
    /// The client that wrote.
    pub client: ClientId,
    /// The client's operation.
    pub operation: OperationNumber,
    /// The client repeats no operation below this one.
    pub watermark: OperationNumber,
    pub g: Generation,
    pub set: ColumnMask,
    /// The columns of the set that are joining.
    pub joining: ColumnMask,
    /// The subject of the record before this one.
    pub prior: Subject,
    /// The subjects of the records before that, newest first, as far as their headers reach the page where
    /// the prior record's header begins.
    pub before: Vec<Subject>,
    /// For a delta: the end of the data unit's bytes in the version it leads to.
    pub end: u32,
    /// The version counted in per data column.
    pub cover: Vec<Version>,
    /// For each version of the cover: the bounds that the write gives for the end of that data unit's bytes.
    pub ends: Vec<EndBound>,
    /// The payload's CRC32C per block.
    pub crcs: Vec<u32>,
    /// Small values specific to the kind, see `body`.
    pub inline: Vec<u8>,
    /// Bytes of payload after the header.
    pub payload_bytes: u32,
}

impl Record {
    /// A record of `kind` with all other fields zero.
    pub fn new(kind: Kind) -> Record {
        Record { kind, ..Record::default() }
    }

    /// The record's position in the log.
    pub fn position(&self) -> LogPosition {
        LogPosition { segment: self.segment, block: self.block }
    }

    /// Returns true if `flag` is set.
    pub fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Bytes of the header without its padding.
    pub fn header_bytes(&self) -> usize {
        self.inline_offset() + self.inline.len()
    }

    /// Bytes of the header with its padding, which is where the payload begins. For a long payload this
    /// depends on the block at which the record begins.
    pub fn header_padded(&self) -> usize {
        header_padded(self.block, self.header_bytes(), self.payload_bytes)
    }

    /// Bytes of the whole record on disk, at its current block.
    pub fn disk_bytes(&self) -> u64 {
        let header = u64::try_from(self.header_padded()).expect("bounded");
        header + super::padded_u64(u64::from(self.payload_bytes))
    }

    /// The most bytes that the record can take on disk, at whichever block it begins and whichever records
    /// come before it.
    pub fn disk_bytes_max(&self) -> u64 {
        let slack = if self.payload_bytes < PAGED_BYTES_MIN { 0 } else { PAGE_BYTES - LOG_BLOCK };
        let before = (TOGETHER_MAX - 1 - self.before.len()) * subject::BYTES;
        let header = u64::try_from(padded(self.header_bytes() + before) + slack).expect("bounded");
        header + super::padded_u64(u64::from(self.payload_bytes))
    }

    fn before_offset(&self) -> usize {
        crc_offset(self.cover.len()) + 4 * self.crcs.len()
    }

    fn inline_offset(&self) -> usize {
        self.before_offset() + subject::BYTES * self.before.len()
    }

    /// Encodes the header with its padding. Panics if a bound is exceeded, which the caller must prevent.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode_behind(&mut bytes);
        bytes
    }

    /// Like [`Record::encode`], appended to `bytes`.
    pub(crate) fn encode_behind(&self, bytes: &mut Vec<u8>) {
        assert!(self.cover.len() <= 64 && self.inline.len() <= INLINE_BYTES_MAX, "lists are bounded");
        assert_eq!(self.cover.len(), self.ends.len(), "each data unit that is counted ends somewhere");
        let begin = bytes.len();
        bytes.resize(begin + self.header_padded(), 0);
        let to = &mut bytes[begin..];
        self.put(to);
        to[F_MAGIC].copy_from_slice(&MAGIC);
        put(to, F_VERSION, FORMAT_VERSION);
        put(to, F_HEADER_BYTES, length(self.header_bytes()));
        put(to, F_COVER_COUNT, u8::try_from(self.cover.len()).expect("at most 64"));
        put(to, F_BEFORE_COUNT, u8::try_from(self.before.len()).expect("at most 7"));
        put(to, F_CRC_COUNT, length(self.crcs.len()));
        put(to, F_INLINE_BYTES, length(self.inline.len()));
        put_list(&mut to[FIXED_BYTES..], &self.cover);
        put_list(&mut to[FIXED_BYTES + VERSION_BYTES * self.cover.len()..], &self.ends);
        put_list(&mut to[crc_offset(self.cover.len())..], &self.crcs);
        put_list(&mut to[self.before_offset()..], &self.before);
        to[self.inline_offset()..][..self.inline.len()].copy_from_slice(&self.inline);
        let crc = header_crc(to);
        put(to, F_CRC, crc);
    }
}

/// Bytes of a header with its padding, for a record that begins at `block`. It is padded to whole log blocks
/// or, if the payload is long enough for that to cost little, to the next page of the file. Each 4 KiB block
/// of the payload then lies in one page of the page cache and of the medium, not in two.
fn header_padded(block: u32, header_bytes: usize, payload_bytes: u32) -> usize {
    if payload_bytes < PAGED_BYTES_MIN {
        return padded(header_bytes);
    }
    let begin = count(block) % (PAGE_BYTES / LOG_BLOCK) * LOG_BLOCK;
    (begin + header_bytes).next_multiple_of(PAGE_BYTES) - begin
}

/// The offset of a record's checksums from its start.
fn crc_offset(cover_count: usize) -> usize {
    FIXED_BYTES + COUNTED_BYTES * cover_count
}

/// Decodes the header at the start of `bytes` and checks all of it: magic, version, CRC, reserved and padding
/// bytes, lengths and the rules of its kind. [`DecodeError::Short`] says how many bytes are needed. Pure,
/// never panics: the entry point of a fuzz target.
pub fn decode_record(bytes: &[u8]) -> Result<Record, DecodeError> {
    let fixed = bytes.get(..FIXED_BYTES).ok_or(DecodeError::Short(FIXED_BYTES))?;
    if fixed[F_MAGIC] != MAGIC {
        return Err(DecodeError::Magic);
    }
    let header_bytes = count(get(fixed, F_HEADER_BYTES)?);
    if !(FIXED_BYTES..=HEADER_BYTES_MAX).contains(&header_bytes) {
        return Err(DecodeError::Malformed("header length"));
    }
    let whole = header_padded(get(fixed, F_BLOCK)?, header_bytes, get(fixed, F_PAYLOAD_BYTES)?);
    let padded = bytes.get(..whole).ok_or(DecodeError::Short(whole))?;
    if header_crc(padded) != get(fixed, F_CRC)? {
        return Err(DecodeError::Checksum);
    }
    check_version(get(fixed, F_VERSION)?)?;
    let (header, padding) = padded.split_at(header_bytes);
    check_zero(padding)?;
    let (mut record, lists) = split::<Record>(header)?;
    let lists_of = |field| get::<u8>(fixed, field).map(usize::from);
    let (cover, lists) = split_list(lists, lists_of(F_COVER_COUNT)?)?;
    let (ends, lists) = split_list(lists, cover.len())?;
    let (crcs, lists) = split_list(lists, count(get(fixed, F_CRC_COUNT)?))?;
    let (before, inline) = split_list(lists, lists_of(F_BEFORE_COUNT)?)?;
    if inline.len() != count(get(fixed, F_INLINE_BYTES)?) {
        return Err(DecodeError::Malformed("the lists do not fill the header"));
    }
    (record.cover, record.ends) = (cover, ends);
    (record.crcs, record.before, record.inline) = (crcs, before, inline.to_vec());
    rules::check(&record)?;
    Ok(record)
}

/// The CRC of a padded header, over everything but the CRC itself.
fn header_crc(header: &[u8]) -> u32 {
    crc32c_of(&[&header[..F_CRC.start], &header[F_CRC.end..]])
}
