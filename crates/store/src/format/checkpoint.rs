//! A checkpoint's two ends: the header, and a trailer that repeats it and adds the totals. The pages are
//! between them (`page`).
//!
//! Each end is a table of the log's segments and one log block that describes the table. The header begins
//! with that block and the trailer ends with it, so that each can be found without the other.

use braid_layout::DriveId;

use super::field::{
    Value as _, check_zero, count, decode, decode_list, fields, get, length, put, put_list, seal, unseal,
};
use super::record::Kind;
use super::subject::Subject;
use super::{DecodeError, LOG_BLOCK, padded};
use crate::crc::crc32c;

pub const MAGIC: [u8; 8] = *b"BRAIDCKP";
/// Bytes of the block that describes an end.
pub const BYTES: usize = LOG_BLOCK;
/// Bytes of a row of the table.
pub const ROW_BYTES: usize = 24;
/// The most rows of a table: 2^20 segments of 512 MiB are 512 TiB.
pub const ROWS_MAX: usize = 1 << 20;

fields! {
    /// The fields of an end's block.
    FIELDS of CheckpointEnd:
    "magic" 0..8,
    "format version" 8..10,
    F_END "end" 10..11,
    .replay.prior.kind "prior kind" 11..12,
    .number "checkpoint" 12..16,
    .drive "drive" 16..32,
    .salt "salt" 32..40,
    .replay.segment "replay segment" 40..44,
    .replay.block "replay block" 44..48,
    .replay.sequence "replay sequence" 48..56,
    .replay.prior.partition "prior partition" 56..64,
    .replay.prior.object "prior object" 64..72,
    .replay.prior.unit "prior unit" 72..80,
    F_ROWS "segments" 80..84,
    F_ROWS_CRC "table crc" 84..88,
    F_PAGES "pages" 88..96,
    F_DURABLE "durable to" 96..104,
    .appended.written "written bytes" 104..112,
    .appended.moved "moved bytes" 112..120,
    "reserved" 120..508,
    "crc" 508..512,
}

fields! {
    /// One row of the table of segments.
    ROW_FIELDS of SegmentRow:
    .number "segment" 0..4,
    .damaged "damaged" 4..5,
    "reserved" 5..8,
    .bytes "bytes" 8..16,
    .first_sequence "first sequence" 16..24,
}

/// Position in the log where replay begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayPoint {
    /// The segment; 0: the log was empty.
    pub segment: u32,
    /// The log block of the first record to replay, or the block where the segment ended.
    pub block: u32,
    /// Sequence number of the first record to replay.
    pub sequence: u64,
    /// The subject of the record before the first.
    pub prior: Subject,
}

impl Default for ReplayPoint {
    fn default() -> Self {
        ReplayPoint { segment: 0, block: 0, sequence: 1, prior: Subject::default() }
    }
}

/// A segment as it was when the checkpoint was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentRow {
    pub number: u32,
    /// True if damage was found in the segment.
    pub damaged: bool,
    /// Length of the segment's file in bytes.
    pub bytes: u64,
    /// The sequence number of its first record.
    pub first_sequence: u64,
}

/// Bytes of all records ever appended to the log, including those freed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Appended {
    /// All records except the cleaner's.
    pub written: u64,
    /// The cleaner's records: moves.
    pub moved: u64,
}

impl Appended {
    /// Counts one more record, of `bytes` including padding.
    pub(crate) fn count(&mut self, kind: Kind, bytes: u64) {
        let total = if kind == Kind::Move { &mut self.moved } else { &mut self.written };
        // Totals loaded from a checkpoint are not validated, so this must not overflow.
        *total = total.saturating_add(bytes);
    }

    /// Total bytes written per byte of records that are not the cleaner's. `None`: there are no such records.
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no sixteen digits")]
    pub fn amplification(&self) -> Option<f64> {
        (self.written > 0).then(|| 1.0 + self.moved as f64 / self.written as f64)
    }
}

/// Totals of a checkpoint, which only the trailer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// The number of pages in the file.
    pub pages: u64,
    /// All records up to this one were durable before the file was renamed to its final name.
    pub durable_to: u64,
}

/// A header or a trailer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckpointEnd {
    /// The checkpoint's number, from 1; also in its file's name.
    pub number: u32,
    pub drive: DriveId,
    /// The store's salt.
    pub salt: u64,
    /// Position in the log where replay begins.
    pub replay: ReplayPoint,
    /// Totals of all records before `replay`.
    pub appended: Appended,
    /// The log's segments, in order.
    pub segments: Vec<SegmentRow>,
    /// `None`: this is the header.
    pub totals: Option<Totals>,
}

/// A decoded block of an end, without its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    end: CheckpointEnd,
    rows: usize,
    rows_crc: u32,
}

impl CheckpointEnd {
    /// Encodes the end with its table, as whole log blocks.
    pub fn encode(&self) -> Vec<u8> {
        let table = self.table();
        let block = self.block(crc32c(&table));
        if self.totals.is_some() { [&table[..], &block].concat() } else { [&block[..], &table].concat() }
    }

    fn table(&self) -> Vec<u8> {
        assert!(self.segments.len() <= ROWS_MAX, "the number of segments is bounded");
        let mut bytes = vec![0; padded(self.segments.len() * ROW_BYTES)];
        put_list(&mut bytes, &self.segments);
        bytes
    }

    fn block(&self, rows_crc: u32) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        self.put(&mut bytes);
        put(&mut bytes, F_END, if self.totals.is_some() { 2_u8 } else { 1 });
        put(&mut bytes, F_ROWS, length(self.segments.len()));
        put(&mut bytes, F_ROWS_CRC, rows_crc);
        if let Some(totals) = self.totals {
            put(&mut bytes, F_PAGES, totals.pages);
            put(&mut bytes, F_DURABLE, totals.durable_to);
        }
        seal(&mut bytes, MAGIC);
        bytes
    }

    /// Decodes `bytes`, which must be exactly one end, and checks all of it.
    pub fn decode(bytes: &[u8]) -> Result<CheckpointEnd, DecodeError> {
        let block = bytes.get(..BYTES).ok_or(DecodeError::Short(BYTES))?;
        if let Ok(block) = Block::decode(block)
            && block.end.totals.is_none()
        {
            return block.with_table(&bytes[BYTES..]);
        }
        let (table, last) = bytes.split_at(bytes.len() - BYTES);
        Block::decode(last)?.with_table(table)
    }
}

impl Block {
    /// Decodes an end's block.
    pub fn decode(bytes: &[u8]) -> Result<Block, DecodeError> {
        let block = unseal(bytes, MAGIC)?;
        let mut end: CheckpointEnd = decode(block)?;
        let totals = Totals { pages: get(block, F_PAGES)?, durable_to: get(block, F_DURABLE)? };
        end.totals = match get(block, F_END)? {
            1_u8 if totals == Totals::default() => None,
            2 => Some(totals),
            _ => return Err(DecodeError::Malformed("neither a header nor a trailer")),
        };
        let rows = count(get(block, F_ROWS)?);
        if rows > ROWS_MAX {
            return Err(DecodeError::Malformed("too many segments"));
        }
        Ok(Block { end, rows, rows_crc: get(block, F_ROWS_CRC)? })
    }

    /// Returns true if the block belongs to a header, false for a trailer.
    pub fn is_header(&self) -> bool {
        self.end.totals.is_none()
    }

    /// Bytes of the table.
    pub fn table_bytes(&self) -> usize {
        padded(self.rows * ROW_BYTES)
    }

    /// Decodes the table. Returns the whole end.
    pub fn with_table(mut self, table: &[u8]) -> Result<CheckpointEnd, DecodeError> {
        if table.len() < self.table_bytes() {
            return Err(DecodeError::Short(BYTES + self.table_bytes()));
        }
        if table.len() > self.table_bytes() {
            return Err(DecodeError::Malformed("more than a table"));
        }
        if crc32c(table) != self.rows_crc {
            return Err(DecodeError::Checksum);
        }
        let (rows, rest) = table.split_at(self.rows * ROW_BYTES);
        check_zero(rest)?;
        self.end.segments = decode_list(rows)?;
        let numbers = || self.end.segments.iter().map(|segment| segment.number);
        if numbers().next() == Some(0) || !numbers().is_sorted_by(|one, next| one < next) {
            return Err(DecodeError::Malformed("a row of the table of segments"));
        }
        Ok(self.end)
    }
}
