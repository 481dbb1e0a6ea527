//! The entries of a checkpoint's page: partitions, objects with their units, and lost ranges.
//!
//! An entry is 8 bytes (kind, length) and a body. Units belong to the object before them or, in a part after
//! the first (see `page`), to the object of that page. Positions in the log are a segment and a log block;
//! segment 0 means none.

use braid_layout::{ObjectId, PartitionId, Version};

use super::extent::{Extent, LogPosition};
use super::page::Key;
use super::{DecodeError, FieldReader, fields, put};
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
    PARTITION_FIELDS:
    P_PARTITION "partition" 0..8,
    P_BIRTH "birth" 8..16,
    P_QUOTA "quota bytes" 16..24,
    P_KEY_EPOCH "key epoch" 24..28,
    P_RESERVED "reserved" 28..32,
}

fields! {
    /// The fixed part of an object's body.
    OBJECT_FIELDS:
    O_PARTITION "partition" 0..8,
    O_OBJECT "object" 8..16,
    O_BIRTH "birth" 16..24,
    O_SET "set" 24..32,
    O_JOINING "joining" 32..40,
    O_CREATED "created ms" 40..48,
    O_MODIFIED "modified ms" 48..56,
    O_UNIT_BYTES "unit bytes" 56..60,
    O_VERSION "object version" 60..64,
    O_G "g" 64..68,
    O_LOST_SEGMENT "lost segment" 68..72,
    O_LOST_BLOCK "lost block" 72..76,
    O_MAP_BYTES "map bytes" 76..80,
    O_OPAQUE_BYTES "opaque bytes" 80..84,
    O_COLUMN "column" 84..85,
    O_FLAGS "flags" 85..86,
    O_RESERVED "reserved" 86..88,
    O_RESERVE "reserve bytes" 88..96,
    O_CLUSTER "cluster" 96..104,
}

fields! {
    /// A plain unit.
    PLAIN_FIELDS:
    N_UNIT "unit" 0..8,
    N_VERSION "version" 8..24,
    N_COLUMNS "columns" 24..32,
    N_FROM "from" 32..36,
    N_TO "to" 36..40,
    N_SEGMENT "segment" 40..44,
    N_BLOCK "block" 44..48,
    N_RESERVED "reserved" 48..56,
}

fields! {
    /// The body of a range of keys that is lost.
    LOST_FIELDS:
    L_FROM_KIND "from kind" 0..1,
    L_TO_KIND "to kind" 1..2,
    L_RESERVED "reserved" 2..4,
    L_CHECKPOINT "checkpoint" 4..8,
    L_SEGMENT "segment" 8..12,
    L_RESERVED_2 "reserved" 12..16,
    L_OFFSET "offset" 16..24,
    L_FROM_PARTITION "from partition" 24..32,
    L_FROM_OBJECT "from object" 32..40,
    L_TO_PARTITION "to partition" 40..48,
    L_TO_OBJECT "to object" 48..56,
}

/// The object's attributes are in its entry. Not set: they are lost.
const FLAG_KNOWN: u8 = 1;
/// Damage may have hit any of the object's units.
const FLAG_LOST: u8 = 2;

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
}

/// A partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionEntry {
    /// Which.
    pub partition: PartitionId,
    /// The sequence number of the record that created it.
    pub birth: u64,
    /// Soft quota in bytes; `None`: no bound.
    pub quota_bytes: Option<u64>,
    /// The epoch of the working keys.
    pub key_epoch: u32,
}

/// An object, without its units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectEntry<'a> {
    /// Its partition.
    pub partition: PartitionId,
    /// Which.
    pub object: ObjectId,
    /// The sequence number of the record that created it.
    pub birth: u64,
    /// The set of columns, as a mask.
    pub set: u64,
    /// The joining columns, as a mask.
    pub joining: u64,
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
    /// The logical version.
    pub object_version: u32,
    /// The generation.
    pub g: u32,
    /// Its column.
    pub column: u8,
    /// Whether the attributes are known.
    pub known: bool,
    /// Where damage was found that may have hit any of its units.
    pub lost: Option<LogPosition>,
    /// The object's map, as the caller gave it.
    pub map: &'a [u8],
    /// Opaque bytes, which only the manager interprets.
    pub opaque: &'a [u8],
}

/// A unit in the common case: one settled version of a data column, all from one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainUnit {
    /// Which.
    pub unit: u64,
    /// Its version.
    pub version: Version,
    /// The columns its write touched, as a mask.
    pub columns: u64,
    /// Its bytes; not a hole.
    pub extent: Extent,
}

/// Keys whose state is unknown: they were on a damaged page, or in records that are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// A partition.
    Partition(PartitionEntry),
    /// An object.
    Object(ObjectEntry<'a>),
    /// Plain units, in order.
    PlainUnits(PlainUnits<'a>),
    /// One unit of any state; its body is decoded by [`super::unit::UnitEntry::decode`].
    Unit(&'a [u8]),
    /// Lost keys.
    Lost(LostRange),
    /// One client's operations on the object; its body is decoded by [`super::dedup::DedupEntry::decode`].
    Dedup(&'a [u8]),
    /// Units the object has caught up with; its body is decoded by [`super::ready::ReadyEntry::decode`].
    Ready(&'a [u8]),
    /// The object's snapshots; its body is decoded by [`super::snapshots::SnapshotsEntry::decode`].
    Snapshots(&'a [u8]),
}

/// A run of plain units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainUnits<'a>(&'a [u8]);

impl PlainUnits<'_> {
    /// Iterates over the units.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = PlainUnit> + '_ {
        self.0.chunks_exact(PLAIN_BYTES).map(|bytes| {
            let view = FieldReader(bytes);
            PlainUnit {
                unit: view.u64(N_UNIT),
                version: view.version(N_VERSION),
                columns: view.u64(N_COLUMNS),
                extent: Extent {
                    from: view.u32(N_FROM),
                    to: view.u32(N_TO),
                    segment: view.u32(N_SEGMENT),
                    block: view.u32(N_BLOCK),
                },
            }
        })
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
            Ok((kind, body, rest)) => (decode(kind, body), rest),
            Err(error) => (Err(error), &[][..]),
        };
        self.0 = if entry.is_ok() { rest } else { &[] };
        Some(entry)
    }
}

fn take(bytes: &[u8]) -> Result<(u8, &[u8], &[u8]), DecodeError> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(SHORT)?;
    let head = FieldReader(head);
    let length = usize::try_from(head.u32(H_BYTES)).unwrap_or(usize::MAX);
    let (body, rest) = rest.split_at_checked(length).ok_or(SHORT)?;
    if !head.is_zero(H_RESERVED) {
        return Err(RESERVED);
    }
    Ok((head.u8(H_KIND), body, rest))
}

fn decode(kind: u8, body: &[u8]) -> Result<Entry<'_>, DecodeError> {
    match kind {
        PARTITION => partition(body).map(Entry::Partition),
        OBJECT => object(body).map(Entry::Object),
        PLAIN_UNITS => plain_units(body).map(Entry::PlainUnits),
        UNIT => Ok(Entry::Unit(body)),
        LOST => lost(body).map(Entry::Lost),
        DEDUP => Ok(Entry::Dedup(body)),
        READY => Ok(Entry::Ready(body)),
        SNAPSHOTS => Ok(Entry::Snapshots(body)),
        _ => Err(DecodeError::Malformed("unknown kind of entry")),
    }
}

fn partition(body: &[u8]) -> Result<PartitionEntry, DecodeError> {
    let view = exactly(body, PARTITION_BYTES)?;
    if !view.is_zero(P_RESERVED) {
        return Err(RESERVED);
    }
    Ok(PartitionEntry {
        partition: PartitionId(view.u64(P_PARTITION)),
        birth: view.u64(P_BIRTH),
        quota_bytes: Some(view.u64(P_QUOTA)).filter(|&quota| quota != u64::MAX),
        key_epoch: view.u32(P_KEY_EPOCH),
    })
}

fn object(body: &[u8]) -> Result<ObjectEntry<'_>, DecodeError> {
    let (fixed, rest) = body.split_at_checked(OBJECT_BYTES).ok_or(SHORT)?;
    let view = FieldReader(fixed);
    let map_bytes = usize::try_from(view.u32(O_MAP_BYTES)).unwrap_or(usize::MAX);
    let (map, opaque) = rest.split_at_checked(map_bytes).ok_or(SHORT)?;
    if map.len().max(opaque.len()) > OPAQUE_BYTES_MAX {
        return Err(DecodeError::Malformed("a map or opaque bytes longer than any object has"));
    }
    if usize::try_from(view.u32(O_OPAQUE_BYTES)) != Ok(opaque.len()) {
        return Err(SHORT);
    }
    let flags = view.u8(O_FLAGS);
    if !view.is_zero(O_RESERVED) || flags & !(FLAG_KNOWN | FLAG_LOST) != 0 {
        return Err(RESERVED);
    }
    let place = LogPosition { segment: view.u32(O_LOST_SEGMENT), block: view.u32(O_LOST_BLOCK) };
    let lost = (flags & FLAG_LOST != 0).then_some(place);
    if lost.is_none() && (place.segment, place.block) != (0, 0) {
        return Err(DecodeError::Malformed("a place of no damage"));
    }
    Ok(ObjectEntry {
        partition: PartitionId(view.u64(O_PARTITION)),
        object: ObjectId(view.u64(O_OBJECT)),
        birth: view.u64(O_BIRTH),
        set: view.u64(O_SET),
        joining: view.u64(O_JOINING),
        created_ms: view.u64(O_CREATED),
        modified_ms: view.u64(O_MODIFIED),
        reserve_bytes: view.u64(O_RESERVE),
        cluster: view.u64(O_CLUSTER),
        unit_bytes: view.u32(O_UNIT_BYTES),
        object_version: view.u32(O_VERSION),
        g: view.u32(O_G),
        column: view.u8(O_COLUMN),
        known: flags & FLAG_KNOWN != 0,
        lost,
        map,
        opaque,
    })
}

fn plain_units(body: &[u8]) -> Result<PlainUnits<'_>, DecodeError> {
    if body.is_empty() || !body.len().is_multiple_of(PLAIN_BYTES) {
        return Err(SHORT);
    }
    for unit in body.chunks_exact(PLAIN_BYTES).map(FieldReader) {
        if !unit.is_zero(N_RESERVED)
            || unit.u32(N_FROM) >= unit.u32(N_TO)
            || unit.u32(N_SEGMENT) == 0
            || unit.u32(N_BLOCK) == 0
        {
            return Err(DecodeError::Malformed("a plain unit"));
        }
    }
    Ok(PlainUnits(body))
}

fn lost(body: &[u8]) -> Result<LostRange, DecodeError> {
    let view = exactly(body, LOST_BYTES)?;
    let key = |kind, partition, object| Key::from_parts(view.u8(kind), view.u64(partition), view.u64(object));
    let range = LostRange {
        from: key(L_FROM_KIND, L_FROM_PARTITION, L_FROM_OBJECT)?,
        to: key(L_TO_KIND, L_TO_PARTITION, L_TO_OBJECT)?,
        checkpoint: view.u32(L_CHECKPOINT),
        segment: view.u32(L_SEGMENT),
        offset: view.u64(L_OFFSET),
    };
    if !view.is_zero(L_RESERVED) || !view.is_zero(L_RESERVED_2) || range.from >= range.to {
        return Err(DecodeError::Malformed("a lost range"));
    }
    Ok(range)
}

fn exactly(body: &[u8], length: usize) -> Result<FieldReader<'_>, DecodeError> {
    if body.len() == length { Ok(FieldReader(body)) } else { Err(SHORT) }
}

pub(crate) const SHORT: DecodeError = DecodeError::Malformed("an entry's length");
pub(crate) const RESERVED: DecodeError = DecodeError::Malformed("reserved bytes are not zero");

/// Begins an entry of `kind` at the end of `to`, with the first `length` bytes of its body zero. Returns the
/// offset of the body.
pub(crate) fn begin(to: &mut Vec<u8>, kind: u8, length: usize) -> usize {
    let at = to.len() + HEAD_BYTES;
    to.resize(at + length, 0);
    put(&mut to[at - HEAD_BYTES..], H_KIND, [kind]);
    at
}

/// Ends the entry whose body begins at `at` by storing its length.
pub(crate) fn end(to: &mut [u8], at: usize) {
    let length = u32::try_from(to.len() - at).expect("a page is bounded");
    put(&mut to[at - HEAD_BYTES..], H_BYTES, length.to_le_bytes());
}

impl PartitionEntry {
    /// Appends the entry to `to`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let at = begin(to, PARTITION, PARTITION_BYTES);
        let body = &mut to[at..];
        put(body, P_PARTITION, self.partition.0.to_le_bytes());
        put(body, P_BIRTH, self.birth.to_le_bytes());
        put(body, P_QUOTA, self.quota_bytes.unwrap_or(u64::MAX).to_le_bytes());
        put(body, P_KEY_EPOCH, self.key_epoch.to_le_bytes());
        end(to, at);
    }
}

impl ObjectEntry<'_> {
    /// Appends the entry to `to`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let at = begin(to, OBJECT, OBJECT_BYTES);
        let body = &mut to[at..];
        put(body, O_PARTITION, self.partition.0.to_le_bytes());
        put(body, O_OBJECT, self.object.0.to_le_bytes());
        put(body, O_BIRTH, self.birth.to_le_bytes());
        put(body, O_SET, self.set.to_le_bytes());
        put(body, O_JOINING, self.joining.to_le_bytes());
        put(body, O_CREATED, self.created_ms.to_le_bytes());
        put(body, O_MODIFIED, self.modified_ms.to_le_bytes());
        put(body, O_RESERVE, self.reserve_bytes.to_le_bytes());
        put(body, O_CLUSTER, self.cluster.to_le_bytes());
        put(body, O_UNIT_BYTES, self.unit_bytes.to_le_bytes());
        put(body, O_VERSION, self.object_version.to_le_bytes());
        put(body, O_G, self.g.to_le_bytes());
        put(body, O_COLUMN, [self.column]);
        let known = if self.known { FLAG_KNOWN } else { 0 };
        put(body, O_FLAGS, [known | if self.lost.is_some() { FLAG_LOST } else { 0 }]);
        if let Some(place) = self.lost {
            put(body, O_LOST_SEGMENT, place.segment.to_le_bytes());
            put(body, O_LOST_BLOCK, place.block.to_le_bytes());
        }
        put(body, O_MAP_BYTES, u32::try_from(self.map.len()).expect("bounded").to_le_bytes());
        put(body, O_OPAQUE_BYTES, u32::try_from(self.opaque.len()).expect("bounded").to_le_bytes());
        to.extend_from_slice(self.map);
        to.extend_from_slice(self.opaque);
        end(to, at);
    }
}

impl PlainUnit {
    /// Appends it to the run with its body at `run`, or to a new run. Returns where the run's body begins.
    pub fn put(&self, to: &mut Vec<u8>, run: Option<usize>) -> usize {
        let run = run.unwrap_or_else(|| begin(to, PLAIN_UNITS, 0));
        let at = to.len();
        to.resize(at + PLAIN_BYTES, 0);
        let body = &mut to[at..];
        put(body, N_UNIT, self.unit.to_le_bytes());
        put(body, N_VERSION, super::version_bytes(self.version));
        put(body, N_COLUMNS, self.columns.to_le_bytes());
        put(body, N_FROM, self.extent.from.to_le_bytes());
        put(body, N_TO, self.extent.to.to_le_bytes());
        put(body, N_SEGMENT, self.extent.segment.to_le_bytes());
        put(body, N_BLOCK, self.extent.block.to_le_bytes());
        end(to, run);
        run
    }
}

impl LostRange {
    /// Appends the entry to `to`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let at = begin(to, LOST, LOST_BYTES);
        let (from, until) = (self.from.parts(), self.to.parts());
        let body = &mut to[at..];
        put(body, L_FROM_KIND, [from.0]);
        put(body, L_TO_KIND, [until.0]);
        put(body, L_CHECKPOINT, self.checkpoint.to_le_bytes());
        put(body, L_SEGMENT, self.segment.to_le_bytes());
        put(body, L_OFFSET, self.offset.to_le_bytes());
        put(body, L_FROM_PARTITION, from.1.to_le_bytes());
        put(body, L_FROM_OBJECT, from.2.to_le_bytes());
        put(body, L_TO_PARTITION, until.1.to_le_bytes());
        put(body, L_TO_OBJECT, until.2.to_le_bytes());
        end(to, at);
    }
}
