//! The entries of a checkpoint's page: partitions, objects with their units, and lost ranges.
//!
//! An entry is 8 bytes (kind, length) and a body. Units belong to the object before them or, in a part after
//! the first (see `page`), to the object of that page. Positions in the log are a segment and a log block;
//! segment 0 means none.

use braid_layout::{Column, ColumnMask, Generation, ObjectId, PartitionId, Version};

use super::DecodeError;
use super::extent::{Extent, LogPosition};
use super::field::{
    RESERVED, SHORT, append, check_zero, count, decode, exactly, fields, get, length, put, split,
};
use super::page::Key;
use crate::mutation::OPAQUE_BYTES_MAX;

/// Bytes before a body.
pub const HEAD_BYTES: usize = 8;
/// Bytes of a partition's body.
pub const PARTITION_BYTES: usize = 32;
/// Bytes of the fixed part of an object's body; map and opaque bytes follow.
pub const OBJECT_BYTES: usize = 104;
/// Bytes of a plain unit.
pub const PLAIN_BYTES: usize = 56;
/// Bytes of a lost range's body.
pub const LOST_BYTES: usize = 56;

fields! {
    /// The fields before a body.
    HEAD_FIELDS:
    H_KIND "kind" 0..1,
    H_RESERVED "reserved" 1..4,
    H_BYTES "body bytes" 4..8,
}

fields! {
    /// A partition's body.
    PARTITION_FIELDS of PartitionEntry:
    .partition "partition" 0..8,
    .birth "birth" 8..16,
    .quota_bytes "quota bytes" 16..24,
    .key_epoch "key epoch" 24..28,
    "reserved" 28..32,
}

fields! {
    /// The fixed part of an object's body.
    OBJECT_FIELDS of ObjectEntry<'_>:
    .partition "partition" 0..8,
    .object "object" 8..16,
    .birth "birth" 16..24,
    .set "set" 24..32,
    .joining "joining" 32..40,
    .created_ms "created ms" 40..48,
    .modified_ms "modified ms" 48..56,
    .unit_bytes "unit bytes" 56..60,
    "not used" 60..64,
    .g "g" 64..68,
    O_LOST "lost at" 68..76,
    O_MAP_BYTES "map bytes" 76..80,
    O_OPAQUE_BYTES "opaque bytes" 80..84,
    .column "column" 84..85,
    O_FLAGS "flags" 85..86,
    "reserved" 86..88,
    .reserve_bytes "reserve bytes" 88..96,
    .cluster "cluster" 96..104,
}

fields! {
    /// A plain unit.
    PLAIN_FIELDS of PlainUnit:
    .unit "unit" 0..8,
    .version "version" 8..24,
    .columns "columns" 24..32,
    .extent.from "from" 32..36,
    .extent.to "to" 36..40,
    .extent.segment "segment" 40..44,
    .extent.block "block" 44..48,
    "reserved" 48..56,
}

fields! {
    /// The body of a range of keys that is lost.
    LOST_FIELDS of LostRange:
    L_FROM_KIND "from kind" 0..1,
    L_TO_KIND "to kind" 1..2,
    "reserved" 2..4,
    .checkpoint "checkpoint" 4..8,
    .segment "segment" 8..12,
    "reserved" 12..16,
    .offset "offset" 16..24,
    L_FROM_PARTITION "from partition" 24..32,
    L_FROM_OBJECT "from object" 32..40,
    L_TO_PARTITION "to partition" 40..48,
    L_TO_OBJECT "to object" 48..56,
}

/// Flag: the object's attributes are in its entry. Not set: they are lost.
const FLAG_KNOWN: u8 = 1;
/// Flag: damage may have hit any of the object's units.
const FLAG_LOST: u8 = 2;
/// Flag: the object was removed, and lives for its stills.
const FLAG_HUSK: u8 = 4;

macro_rules! entry_kinds {
    ($($name:ident = $number:literal $text:literal,)*) => {
        $(pub(crate) const $name: u8 = $number;)*
        /// All kinds of entries with their numbers and names in the document.
        pub const KINDS: &[(u8, &str)] = &[$(($number, $text),)*];
    };
}

entry_kinds! {
    PARTITION = 1 "partition",
    OBJECT = 2 "object",
    PLAIN_UNITS = 3 "plain units",
    UNIT = 4 "unit",
    LOST = 5 "lost range",
    DEDUP = 6 "dedup",
    READY = 7 "ready units",
    SNAPSHOTS = 8 "snapshots",
    STILL = 9 "still",
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartitionEntry {
    pub partition: PartitionId,
    /// The sequence number of the record that created it.
    pub birth: u64,
    /// Soft quota in bytes; `None`: no bound.
    pub quota_bytes: Option<u64>,
    /// The epoch of the working keys.
    pub key_epoch: u32,
}

/// An object, without its units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectEntry<'a> {
    pub partition: PartitionId,
    pub object: ObjectId,
    /// The sequence number of the record that created it.
    pub birth: u64,
    /// The set of columns.
    pub set: ColumnMask,
    /// The joining columns.
    pub joining: ColumnMask,
    /// Creation time in milliseconds, as the caller gave it.
    pub created_ms: u64,
    /// Modification time in milliseconds, as the caller gave it.
    pub modified_ms: u64,
    /// Bytes to preallocate.
    pub reserve_bytes: u64,
    /// The cluster hint.
    pub cluster: u64,
    /// Bytes per unit; 0 only if the attributes are lost.
    pub unit_bytes: u32,
    pub g: Generation,
    pub column: Column,
    /// True if the attributes are known.
    pub known: bool,
    /// Position of damage that may have hit any of the object's units.
    pub lost: Option<LogPosition>,
    /// True if the object was removed, and lives for its stills.
    pub husk: bool,
    /// The object's map, as the caller gave it.
    pub map: &'a [u8],
    /// Opaque bytes, which only the manager interprets.
    pub opaque: &'a [u8],
}

/// A unit in the common case: one settled version of a data column, all from one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlainUnit {
    pub unit: u64,
    pub version: Version,
    /// The columns that the write touched.
    pub columns: ColumnMask,
    /// The unit's bytes; not a hole.
    pub extent: Extent,
}

/// Keys whose state is unknown: they were on a damaged page, or in records that are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LostRange {
    /// The first key.
    pub from: Key,
    /// The first key after the range.
    pub to: Key,
    /// The damaged checkpoint's number; 0: the damage was in the log.
    pub checkpoint: u32,
    /// The damaged segment's number; 0: the damage was in a checkpoint.
    pub segment: u32,
    /// Byte offset in the file.
    pub offset: u64,
}

/// An entry of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<'a> {
    Partition(PartitionEntry),
    Object(ObjectEntry<'a>),
    /// Plain units, in order.
    PlainUnits(PlainUnits<'a>),
    /// One unit of any state; its body is decoded by [`super::unit::UnitEntry::decode`].
    Unit(&'a [u8]),
    Lost(LostRange),
    /// One client's operations on the object; its body is decoded by [`super::dedup::DedupEntry::decode`].
    Dedup(&'a [u8]),
    /// Units that the object has caught up with; its body is decoded by [`super::ready::ReadyEntry::decode`].
    Ready(&'a [u8]),
    /// The object's snapshots; its body is decoded by [`super::snapshots::SnapshotsEntry::decode`].
    Snapshots(&'a [u8]),
    /// The object's base, if it is a still; its body is decoded by [`crate::Base::decode`].
    Still(&'a [u8]),
}

/// A run of plain units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlainUnits<'a>(&'a [u8]);

impl PlainUnits<'_> {
    /// Iterates over the units.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = PlainUnit> + '_ {
        self.0.chunks_exact(PLAIN_BYTES).map(|unit| decode(unit).expect("checked"))
    }
}

/// Iterates over the entries of a page. Ends after the first invalid one.
#[derive(Debug, Clone)]
pub struct Entries<'a>(&'a [u8]);

impl<'a> Entries<'a> {
    /// From the bytes that [`super::page::PageHead::decode`] returned.
    pub fn new(bytes: &'a [u8]) -> Entries<'a> {
        Entries(bytes)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let (entry, rest) = match take(self.0) {
            Ok((kind, body, rest)) => (decode_entry(kind, body), rest),
            Err(error) => (Err(error), &[][..]),
        };
        self.0 = if entry.is_ok() { rest } else { &[] };
        Some(entry)
    }
}

fn take(bytes: &[u8]) -> Result<(u8, &[u8], &[u8]), DecodeError> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(SHORT)?;
    check_zero(&head[H_RESERVED])?;
    let (body, rest) = rest.split_at_checked(count(get(head, H_BYTES)?)).ok_or(SHORT)?;
    Ok((get(head, H_KIND)?, body, rest))
}

fn decode_entry(kind: u8, body: &[u8]) -> Result<Entry<'_>, DecodeError> {
    match kind {
        PARTITION => exactly(body).map(Entry::Partition),
        OBJECT => object(body).map(Entry::Object),
        PLAIN_UNITS => plain_units(body).map(Entry::PlainUnits),
        UNIT => Ok(Entry::Unit(body)),
        LOST => lost(body).map(Entry::Lost),
        DEDUP => Ok(Entry::Dedup(body)),
        READY => Ok(Entry::Ready(body)),
        SNAPSHOTS => Ok(Entry::Snapshots(body)),
        STILL => Ok(Entry::Still(body)),
        _ => Err(DecodeError::Malformed("unknown kind of entry")),
    }
}

fn object(body: &[u8]) -> Result<ObjectEntry<'_>, DecodeError> {
    let (mut entry, rest) = split::<ObjectEntry<'_>>(body)?;
    let (map, opaque) = rest.split_at_checked(count(get(body, O_MAP_BYTES)?)).ok_or(SHORT)?;
    if map.len().max(opaque.len()) > OPAQUE_BYTES_MAX {
        return Err(DecodeError::Malformed("a map or opaque bytes longer than any object has"));
    }
    if count(get(body, O_OPAQUE_BYTES)?) != opaque.len() {
        return Err(SHORT);
    }
    let flags: u8 = get(body, O_FLAGS)?;
    if flags & !(FLAG_KNOWN | FLAG_LOST | FLAG_HUSK) != 0 {
        return Err(RESERVED);
    }
    entry.known = flags & FLAG_KNOWN != 0;
    entry.husk = flags & FLAG_HUSK != 0;
    let lost = get(body, O_LOST)?;
    entry.lost = if flags & FLAG_LOST != 0 { Some(lost) } else { not_lost(lost)? };
    (entry.map, entry.opaque) = (map, opaque);
    Ok(entry)
}

/// Without damage: the position of damage must be zero.
pub(super) fn not_lost(position: LogPosition) -> Result<Option<LogPosition>, DecodeError> {
    if position != LogPosition::default() {
        return Err(DecodeError::Malformed("the place of damage in an entry without damage"));
    }
    Ok(None)
}

fn plain_units(body: &[u8]) -> Result<PlainUnits<'_>, DecodeError> {
    if body.is_empty() || !body.len().is_multiple_of(PLAIN_BYTES) {
        return Err(SHORT);
    }
    for unit in body.chunks_exact(PLAIN_BYTES) {
        let PlainUnit { extent, .. } = decode(unit)?;
        extent.check()?;
        if extent.segment == 0 {
            return Err(DecodeError::Malformed("a plain unit"));
        }
    }
    Ok(PlainUnits(body))
}

fn lost(body: &[u8]) -> Result<LostRange, DecodeError> {
    let mut range: LostRange = exactly(body)?;
    range.from = Key::get(body, L_FROM_KIND, L_FROM_PARTITION, L_FROM_OBJECT)?;
    range.to = Key::get(body, L_TO_KIND, L_TO_PARTITION, L_TO_OBJECT)?;
    if range.from >= range.to {
        return Err(DecodeError::Malformed("a lost range"));
    }
    Ok(range)
}

/// Begins an entry of `kind` at the end of `to`. Returns the offset of the body, which is to be appended.
pub(crate) fn begin(to: &mut Vec<u8>, kind: u8) -> usize {
    let at = to.len();
    to.resize(at + HEAD_BYTES, 0);
    put(&mut to[at..], H_KIND, kind);
    at + HEAD_BYTES
}

/// Ends the entry whose body begins at `at` by storing its length.
pub(crate) fn end(to: &mut [u8], at: usize) {
    let bytes = length(to.len() - at);
    put(&mut to[at - HEAD_BYTES..], H_BYTES, bytes);
}

impl PartitionEntry {
    /// Appends the entry to `to`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let at = begin(to, PARTITION);
        append(to, self);
        end(to, at);
    }
}

impl ObjectEntry<'_> {
    /// Appends the entry to `to`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let at = begin(to, OBJECT);
        append(to, self);
        let body = &mut to[at..];
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let lost = flag(self.lost.is_some(), FLAG_LOST);
        put(body, O_FLAGS, flag(self.known, FLAG_KNOWN) | lost | flag(self.husk, FLAG_HUSK));
        put(body, O_LOST, self.lost.unwrap_or_default());
        put(body, O_MAP_BYTES, length(self.map.len()));
        put(body, O_OPAQUE_BYTES, length(self.opaque.len()));
        to.extend_from_slice(self.map);
        to.extend_from_slice(self.opaque);
        end(to, at);
    }
}

impl PlainUnit {
    /// Appends the unit to the run with its body at `run`, or to a new run. Returns the offset of the run's
    /// body.
    pub fn put(&self, to: &mut Vec<u8>, run: Option<usize>) -> usize {
        let run = run.unwrap_or_else(|| begin(to, PLAIN_UNITS));
        append(to, self);
        end(to, run);
        run
    }
}

impl LostRange {
    /// Appends the entry to `to`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let at = begin(to, LOST);
        append(to, self);
        self.from.put(&mut to[at..], L_FROM_KIND, L_FROM_PARTITION, L_FROM_OBJECT);
        self.to.put(&mut to[at..], L_TO_KIND, L_TO_PARTITION, L_TO_OBJECT);
        end(to, at);
    }
}
