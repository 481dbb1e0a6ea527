//! A checkpoint's two ends: the header, and a trailer that repeats it and adds the totals. The pages are
//! between them (`page`).
//!
//! Each end is a table of the log's segments and one log block that describes the table. The header begins
//! with that block and the trailer ends with it, so that each can be found without the other.

use braid_layout::{DriveId, ObjectId, PartitionId};

use super::record::Kind;
use super::subject::Subject;
use super::{DecodeError, FORMAT_VERSION, FieldReader, LOG_BLOCK, fields, padded, put};
use crate::crc::crc32c;

/// "BRAIDCKP".
pub const MAGIC: [u8; 8] = *b"BRAIDCKP";
/// Bytes of the block that describes an end.
pub const BYTES: usize = LOG_BLOCK;
/// Bytes of a row of the table.
pub const ROW_BYTES: usize = 24;
/// The most rows of a table: 2^20 segments of 512 MiB are 512 TiB.
pub const ROWS_MAX: usize = 1 << 20;

fields! {
    /// The fields of an end's block.
    FIELDS:
    F_MAGIC "magic" 0..8,
    F_VERSION "format version" 8..10,
    F_END "end" 10..11,
    F_PRIOR_KIND "prior kind" 11..12,
    F_NUMBER "checkpoint" 12..16,
    F_DRIVE "drive" 16..32,
    F_SALT "salt" 32..40,
    F_REPLAY_SEGMENT "replay segment" 40..44,
    F_REPLAY_BLOCK "replay block" 44..48,
    F_REPLAY_SEQUENCE "replay sequence" 48..56,
    F_PRIOR_PARTITION "prior partition" 56..64,
    F_PRIOR_OBJECT "prior object" 64..72,
    F_PRIOR_UNIT "prior unit" 72..80,
    F_ROWS "segments" 80..84,
    F_ROWS_CRC "table crc" 84..88,
    F_PAGES "pages" 88..96,
    F_DURABLE "durable to" 96..104,
    F_WRITTEN "written bytes" 104..112,
    F_MOVED "moved bytes" 112..120,
    F_RESERVED "reserved" 120..508,
    F_CRC "crc" 508..512,
}

fields! {
    /// One row of the table of segments.
    ROW_FIELDS:
    R_NUMBER "segment" 0..4,
    R_DAMAGED "damaged" 4..5,
    R_RESERVED "reserved" 5..8,
    R_BYTES "bytes" 8..16,
    R_FIRST "first sequence" 16..24,
}

/// Where replay begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayPoint {
    /// The segment; 0: the log was empty.
    pub segment: u32,
    /// The log block of the first record to replay, or where the segment ended.
    pub block: u32,
    /// That record's sequence number.
    pub sequence: u64,
    /// The subject of the record before it.
    pub prior: Subject,
}

impl Default for ReplayPoint {
    fn default() -> Self {
        ReplayPoint { segment: 0, block: 0, sequence: 1, prior: Subject::default() }
    }
}

/// A segment as it was when the checkpoint was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentRow {
    /// Its number.
    pub number: u32,
    /// Whether damage was found in it.
    pub damaged: bool,
    /// Length of its file.
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

/// What the trailer adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// The number of pages in the file.
    pub pages: u64,
    /// All records up to this one were durable before the file was renamed to its final name.
    pub durable_to: u64,
}

/// A header or a trailer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointEnd {
    /// The checkpoint's number, from 1; also in its file's name.
    pub number: u32,
    /// The drive.
    pub drive: DriveId,
    /// The store's salt.
    pub salt: u64,
    /// Where replay begins.
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
    /// The bytes: whole log blocks.
    pub fn encode(&self) -> Vec<u8> {
        let table = self.table();
        let block = self.block(crc32c(&table));
        if self.totals.is_some() { [&table[..], &block].concat() } else { [&block[..], &table].concat() }
    }

    fn table(&self) -> Vec<u8> {
        assert!(self.segments.len() <= ROWS_MAX, "the number of segments is bounded");
        let mut bytes = vec![0; padded(self.segments.len() * ROW_BYTES)];
        for (row, segment) in bytes.chunks_exact_mut(ROW_BYTES).zip(&self.segments) {
            put(row, R_NUMBER, segment.number.to_le_bytes());
            put(row, R_DAMAGED, [u8::from(segment.damaged)]);
            put(row, R_BYTES, segment.bytes.to_le_bytes());
            put(row, R_FIRST, segment.first_sequence.to_le_bytes());
        }
        bytes
    }

    fn block(&self, rows_crc: u32) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let to = &mut bytes[..];
        put(to, F_MAGIC, MAGIC);
        put(to, F_VERSION, FORMAT_VERSION.to_le_bytes());
        put(to, F_END, [if self.totals.is_some() { 2 } else { 1 }]);
        put(to, F_NUMBER, self.number.to_le_bytes());
        put(to, F_DRIVE, self.drive.0.to_le_bytes());
        put(to, F_SALT, self.salt.to_le_bytes());
        put(to, F_REPLAY_SEGMENT, self.replay.segment.to_le_bytes());
        put(to, F_REPLAY_BLOCK, self.replay.block.to_le_bytes());
        put(to, F_REPLAY_SEQUENCE, self.replay.sequence.to_le_bytes());
        let prior = self.replay.prior;
        put(to, F_PRIOR_KIND, [prior.kind.map_or(0, Kind::number)]);
        put(to, F_PRIOR_PARTITION, prior.partition.0.to_le_bytes());
        put(to, F_PRIOR_OBJECT, prior.object.0.to_le_bytes());
        put(to, F_PRIOR_UNIT, prior.unit.to_le_bytes());
        put(to, F_ROWS, u32::try_from(self.segments.len()).expect("bounded").to_le_bytes());
        put(to, F_ROWS_CRC, rows_crc.to_le_bytes());
        put(to, F_WRITTEN, self.appended.written.to_le_bytes());
        put(to, F_MOVED, self.appended.moved.to_le_bytes());
        if let Some(totals) = self.totals {
            put(to, F_PAGES, totals.pages.to_le_bytes());
            put(to, F_DURABLE, totals.durable_to.to_le_bytes());
        }
        let crc = crc32c(&to[..F_CRC.start]);
        put(to, F_CRC, crc.to_le_bytes());
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
        let view = FieldReader(bytes.get(..BYTES).ok_or(DecodeError::Short(BYTES))?);
        if view.0[F_MAGIC] != MAGIC {
            return Err(DecodeError::Magic);
        }
        if crc32c(&view.0[..F_CRC.start]) != view.u32(F_CRC) {
            return Err(DecodeError::Checksum);
        }
        if view.u16(F_VERSION) != FORMAT_VERSION {
            return Err(DecodeError::Version(view.u16(F_VERSION)));
        }
        if !view.is_zero(F_RESERVED) {
            return Err(DecodeError::Malformed("reserved bytes are not zero"));
        }
        let totals = match view.u8(F_END) {
            1 if view.is_zero(F_PAGES) && view.is_zero(F_DURABLE) => None,
            2 => Some(Totals { pages: view.u64(F_PAGES), durable_to: view.u64(F_DURABLE) }),
            _ => return Err(DecodeError::Malformed("neither a header nor a trailer")),
        };
        let kind = match view.u8(F_PRIOR_KIND) {
            0 => None,
            number => Some(Kind::from_number(number).ok_or(DecodeError::Malformed("unknown prior kind"))?),
        };
        let prior = Subject {
            kind,
            partition: PartitionId(view.u64(F_PRIOR_PARTITION)),
            object: ObjectId(view.u64(F_PRIOR_OBJECT)),
            unit: view.u64(F_PRIOR_UNIT),
        };
        let replay = ReplayPoint {
            segment: view.u32(F_REPLAY_SEGMENT),
            block: view.u32(F_REPLAY_BLOCK),
            sequence: view.u64(F_REPLAY_SEQUENCE),
            prior,
        };
        let rows = usize::try_from(view.u32(F_ROWS)).unwrap_or(usize::MAX);
        if rows > ROWS_MAX {
            return Err(DecodeError::Malformed("too many segments"));
        }
        let end = CheckpointEnd {
            number: view.u32(F_NUMBER),
            drive: DriveId(view.u128(F_DRIVE)),
            salt: view.u64(F_SALT),
            replay,
            appended: Appended { written: view.u64(F_WRITTEN), moved: view.u64(F_MOVED) },
            segments: Vec::new(),
            totals,
        };
        Ok(Block { end, rows, rows_crc: view.u32(F_ROWS_CRC) })
    }

    /// Whether it belongs to a header.
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
        if rest.iter().any(|&byte| byte != 0) {
            return Err(DecodeError::Malformed("reserved bytes are not zero"));
        }
        for row in rows.chunks_exact(ROW_BYTES).map(FieldReader) {
            let last = self.end.segments.last().map_or(0, |segment| segment.number);
            if !row.is_zero(R_RESERVED) || row.u8(R_DAMAGED) > 1 || row.u32(R_NUMBER) <= last {
                return Err(DecodeError::Malformed("a row of the table of segments"));
            }
            self.end.segments.push(SegmentRow {
                number: row.u32(R_NUMBER),
                damaged: row.u8(R_DAMAGED) == 1,
                bytes: row.u64(R_BYTES),
                first_sequence: row.u64(R_FIRST),
            });
        }
        Ok(self.end)
    }
}
