//! The inline bodies: small values that a record's header carries, in kinds other than writes.

use braid_layout::{Column, Version};

use super::base::BASE_BYTES;
use super::extent::Extent;
use super::field::{
    SHORT, Value, append, append_list, count, decode_list, exactly, fields, get, length, put, split,
    split_list,
};
use super::record::{INLINE_BYTES_MAX, Kind, Record};
use super::{DecodeError, VERSION_BYTES};
use crate::mutation::{Attributes, Base, OPAQUE_BYTES_MAX, UnitVerdict, VERDICT_STAMPS_MAX};

/// Bytes of the fixed part of an attributes body.
const ATTRIBUTES_BYTES: usize = 48;
/// Bytes of the fixed part of one unit's verdict.
const VERDICT_BYTES: usize = 16;
/// Bytes of one piece of a move.
const PIECE_BYTES: usize = 16;
/// The most pieces of one move.
pub const PIECES_MAX: usize = 4096;

const _: () = assert!(PIECES_MAX * PIECE_BYTES <= INLINE_BYTES_MAX, "the largest move fits");
/// Bytes of a cut-off.
const CUT_OFF_BYTES: usize = 24;

const _: () = assert!(
    VERDICT_STAMPS_MAX * (VERDICT_BYTES + CUT_OFF_BYTES) <= INLINE_BYTES_MAX && CUT_OFF_BYTES > VERSION_BYTES,
    "the largest verdict, one cut-off per unit, fits"
);
const _: () = assert!(
    ATTRIBUTES_BYTES + 2 * OPAQUE_BYTES_MAX + BASE_BYTES <= INLINE_BYTES_MAX,
    "the largest attributes fit"
);

fields! {
    /// The body of `object create` and `object attributes`; column, g, set and joining are in the header.
    ATTRIBUTES_FIELDS of Attributes:
    .unit_bytes "unit bytes" 0..4,
    "not used" 4..8,
    .created_ms "created ms" 8..16,
    .modified_ms "modified ms" 16..24,
    .reserve_bytes "reserve bytes" 24..32,
    .cluster "cluster" 32..40,
    A_MAP_BYTES "map bytes" 40..44,
    A_OPAQUE_BYTES "opaque bytes" 44..48,
}

fields! {
    /// The body of `partition create` and `partition set`.
    PARTITION_FIELDS of (Option<u64>, u32):
    .0 "quota bytes" 0..8,
    .1 "key epoch" 8..12,
    "reserved" 12..16,
}

fields! {
    /// One unit in the body of `verdict`. Its stamps follow (forward before back), then its cut-offs.
    VERDICT_FIELDS of UnitVerdict:
    .unit "unit" 0..8,
    V_FORWARD "forward count" 8..10,
    V_BACK "back count" 10..12,
    V_CUT_OFFS "cut-off count" 12..14,
    "reserved" 14..16,
}

fields! {
    /// One cut-off in the body of `verdict`.
    CUT_OFF_FIELDS of (Column, Version):
    .1 "version" 0..16,
    .0 "column" 16..17,
    "reserved" 17..24,
}

fields! {
    /// The body of `snapshot` and `snapshot drop`.
    SNAPSHOT_FIELDS of Number:
    .0 "number" 0..4,
    "reserved" 4..8,
}

fields! {
    /// One piece in the body of `move`: where bytes of the unit lay before.
    PIECE_FIELDS of Piece:
    .0.segment "segment" 0..4,
    .0.block "block" 4..8,
    .0.from "from" 8..12,
    .0.to "to" 12..16,
}

/// A snapshot's number, in its body.
#[derive(Default)]
struct Number(u32);

/// A piece of a move, whose fields are not in an extent's order.
#[derive(Clone, Default)]
struct Piece(Extent);

/// Puts `attributes` into `record`.
pub fn put_attributes(record: &mut Record, attributes: &Attributes) {
    let mut bytes = Vec::new();
    append(&mut bytes, attributes);
    put(&mut bytes, A_MAP_BYTES, length(attributes.map.len()));
    put(&mut bytes, A_OPAQUE_BYTES, length(attributes.opaque.len()));
    bytes.extend_from_slice(&attributes.map);
    bytes.extend_from_slice(&attributes.opaque);
    if let Some(base) = attributes.base {
        base.put_body(&mut bytes);
    }
    record.inline = bytes;
    record.column = attributes.column;
    record.g = attributes.g;
    record.set = attributes.set;
    record.joining = attributes.joining;
}

/// Decodes the attributes in `record`.
pub fn attributes(record: &Record) -> Result<Attributes, DecodeError> {
    let (mut attributes, rest) = split::<Attributes>(&record.inline)?;
    let map_bytes = count(get(&record.inline, A_MAP_BYTES)?);
    let opaque_bytes = count(get(&record.inline, A_OPAQUE_BYTES)?);
    let (map, rest) = rest.split_at_checked(map_bytes).ok_or(SHORT)?;
    let (opaque, base) = rest.split_at_checked(opaque_bytes).ok_or(SHORT)?;
    if map_bytes.max(opaque_bytes) > OPAQUE_BYTES_MAX {
        return Err(SHORT);
    }
    attributes.base = if base.is_empty() { None } else { Some(Base::decode(base)?) };
    (attributes.map, attributes.opaque) = (map.to_vec(), opaque.to_vec());
    (attributes.column, attributes.g) = (record.column, record.g);
    (attributes.set, attributes.joining) = (record.set, record.joining);
    Ok(attributes)
}

/// The body for a partition with this quota (`None`: no limit, stored as all ones) and key epoch.
pub fn partition_body(quota_bytes: Option<u64>, key_epoch: u32) -> Vec<u8> {
    body_of(&(quota_bytes, key_epoch))
}

/// Decodes quota and key epoch in `record`.
pub fn partition(record: &Record) -> Result<(Option<u64>, u32), DecodeError> {
    exactly(&record.inline)
}

/// The body of a snapshot with this number.
pub fn snapshot_body(number: u32) -> Vec<u8> {
    body_of(&Number(number))
}

/// Decodes the snapshot number in `record`, which is never 0.
pub fn snapshot(record: &Record) -> Result<u32, DecodeError> {
    match exactly(&record.inline)? {
        Number(0) => Err(DecodeError::Malformed("snapshot body")),
        Number(number) => Ok(number),
    }
}

/// The body of a verdict, with at most [`VERDICT_STAMPS_MAX`] stamps; a unit without any counts as one.
pub fn verdict_body(units: &[UnitVerdict]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for unit in units {
        let at = bytes.len();
        append(&mut bytes, unit);
        let lengths = [unit.forward.len(), unit.back.len(), unit.cut_offs.len()];
        for (field, length) in [V_FORWARD, V_BACK, V_CUT_OFFS].into_iter().zip(lengths) {
            put(&mut bytes[at..], field, u16::try_from(length).expect("at most 4096 stamps"));
        }
        append_list(&mut bytes, &unit.forward);
        append_list(&mut bytes, &unit.back);
        append_list(&mut bytes, &unit.cut_offs);
    }
    bytes
}

/// Decodes the verdict in `record`.
pub fn verdict(record: &Record) -> Result<Vec<UnitVerdict>, DecodeError> {
    let mut body = &record.inline[..];
    let mut units = Vec::new();
    while !body.is_empty() {
        let (mut unit, rest) = split::<UnitVerdict>(body)?;
        let count = |field| get::<u16>(body, field).map(usize::from);
        let (forward, rest) = split_list(rest, count(V_FORWARD)?)?;
        let (back, rest) = split_list(rest, count(V_BACK)?)?;
        let (cut_offs, rest) = split_list(rest, count(V_CUT_OFFS)?)?;
        (unit.forward, unit.back, unit.cut_offs) = (forward, back, cut_offs);
        units.push(unit);
        body = rest;
    }
    Ok(units)
}

/// The body of a move: contiguous pieces in order, at most [`PIECES_MAX`].
pub fn move_body(pieces: &[Extent]) -> Vec<u8> {
    let mut bytes = Vec::new();
    pieces.iter().for_each(|&piece| append(&mut bytes, &Piece(piece)));
    bytes
}

/// Decodes the pieces of the move `record`, which together are exactly its range.
pub fn moved_pieces(record: &Record) -> Result<Vec<Extent>, DecodeError> {
    let pieces: Vec<Piece> = decode_list(&record.inline)?;
    let mut at = record.from;
    for Piece(piece) in &pieces {
        if piece.from != at || piece.to <= at || piece.segment == 0 || piece.block == 0 {
            return Err(DecodeError::Malformed("a move's pieces are not one range"));
        }
        at = piece.to;
    }
    if at != record.to || pieces.is_empty() || pieces.len() > PIECES_MAX {
        return Err(DecodeError::Malformed("a move's pieces are not its range"));
    }
    Ok(pieces.into_iter().map(|Piece(piece)| piece).collect())
}

/// Checks that the inline body is valid for the record's kind.
pub(super) fn check(record: &Record) -> Result<(), DecodeError> {
    match record.kind {
        Kind::ObjectCreate | Kind::ObjectAttributes => attributes(record).map(drop),
        Kind::PartitionCreate | Kind::PartitionSet => partition(record).map(drop),
        Kind::Verdict => verdict(record).map(drop),
        Kind::Move => moved_pieces(record).map(drop),
        Kind::Snapshot | Kind::SnapshotDrop => snapshot(record).map(drop),
        _ if record.inline.is_empty() => Ok(()),
        _ => Err(DecodeError::Malformed("a body on a kind that has none")),
    }
}

fn body_of<T: Value>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(&mut bytes, value);
    bytes
}
