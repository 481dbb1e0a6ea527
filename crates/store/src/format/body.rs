//! The inline bodies: small values that a record's header carries, in kinds other than writes.

use braid_layout::{Column, Version};

use super::extent::Extent;
use super::record::{INLINE_BYTES_MAX, Kind, Record};
use super::{DecodeError, FieldReader, VERSION_BYTES, fields, put, version_at, version_bytes};
use crate::mutation::{Attributes, OPAQUE_BYTES_MAX, UnitVerdict, VERDICT_STAMPS_MAX};

/// Bytes of the fixed part of an attributes body.
const ATTRIBUTES_BYTES: usize = 48;
/// Bytes of a partition body.
const PARTITION_BYTES: usize = 16;
/// Bytes of the fixed part of one unit's verdict.
const VERDICT_BYTES: usize = 16;
/// Bytes of a snapshot's body.
const SNAPSHOT_BYTES: usize = 8;
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
const _: () =
    assert!(ATTRIBUTES_BYTES + 2 * OPAQUE_BYTES_MAX <= INLINE_BYTES_MAX, "the largest attributes fit");

fields! {
    /// The body of `object create` and `object attributes`; column, g, set and joining are in the header.
    ATTRIBUTES_FIELDS:
    A_UNIT_BYTES "unit bytes" 0..4,
    A_OBJECT_VERSION "object version" 4..8,
    A_CREATED "created ms" 8..16,
    A_MODIFIED "modified ms" 16..24,
    A_RESERVE "reserve bytes" 24..32,
    A_CLUSTER "cluster" 32..40,
    A_MAP_BYTES "map bytes" 40..44,
    A_OPAQUE_BYTES "opaque bytes" 44..48,
}

fields! {
    /// The body of `partition create` and `partition set`.
    PARTITION_FIELDS:
    P_QUOTA "quota bytes" 0..8,
    P_KEY_EPOCH "key epoch" 8..12,
    P_RESERVED "reserved" 12..16,
}

fields! {
    /// One unit in the body of `verdict`. Its stamps follow (forward before back), then its cut-offs.
    VERDICT_FIELDS:
    V_UNIT "unit" 0..8,
    V_FORWARD "forward count" 8..10,
    V_BACK "back count" 10..12,
    V_CUT_OFFS "cut-off count" 12..14,
    V_RESERVED "reserved" 14..16,
}

fields! {
    /// One cut-off in the body of `verdict`.
    CUT_OFF_FIELDS:
    X_VERSION "version" 0..16,
    X_COLUMN "column" 16..17,
    X_RESERVED "reserved" 17..24,
}

fields! {
    /// The body of `snapshot` and `snapshot drop`.
    SNAPSHOT_FIELDS:
    S_NUMBER "number" 0..4,
    S_RESERVED "reserved" 4..8,
}

fields! {
    /// One piece in the body of `move`: where bytes of the unit lay before.
    PIECE_FIELDS:
    M_SEGMENT "segment" 0..4,
    M_BLOCK "block" 4..8,
    M_FROM "from" 8..12,
    M_TO "to" 12..16,
}

/// Puts `attributes` into `record`.
pub fn put_attributes(record: &mut Record, attributes: &Attributes) {
    let mut bytes = vec![0; ATTRIBUTES_BYTES];
    put(&mut bytes, A_UNIT_BYTES, attributes.unit_bytes.to_le_bytes());
    put(&mut bytes, A_OBJECT_VERSION, attributes.object_version.to_le_bytes());
    put(&mut bytes, A_CREATED, attributes.created_ms.to_le_bytes());
    put(&mut bytes, A_MODIFIED, attributes.modified_ms.to_le_bytes());
    put(&mut bytes, A_RESERVE, attributes.reserve_bytes.to_le_bytes());
    put(&mut bytes, A_CLUSTER, attributes.cluster.to_le_bytes());
    put(&mut bytes, A_MAP_BYTES, bounded(attributes.map.len()).to_le_bytes());
    put(&mut bytes, A_OPAQUE_BYTES, bounded(attributes.opaque.len()).to_le_bytes());
    bytes.extend_from_slice(&attributes.map);
    bytes.extend_from_slice(&attributes.opaque);
    record.inline = bytes;
    record.column = attributes.column;
    record.g = attributes.g;
    record.set = attributes.set;
    record.joining = attributes.joining;
}

/// Decodes the attributes in `record`.
pub fn attributes(record: &Record) -> Result<Attributes, DecodeError> {
    let fixed = FieldReader(record.inline.get(..ATTRIBUTES_BYTES).ok_or(SHORT)?);
    let rest = &record.inline[ATTRIBUTES_BYTES..];
    let map_bytes = usize::try_from(fixed.u32(A_MAP_BYTES)).map_err(|_| SHORT)?;
    let opaque_bytes = usize::try_from(fixed.u32(A_OPAQUE_BYTES)).map_err(|_| SHORT)?;
    if map_bytes > OPAQUE_BYTES_MAX
        || opaque_bytes > OPAQUE_BYTES_MAX
        || map_bytes + opaque_bytes != rest.len()
    {
        return Err(SHORT);
    }
    let (map, opaque) = rest.split_at(map_bytes);
    Ok(Attributes {
        unit_bytes: fixed.u32(A_UNIT_BYTES),
        column: record.column,
        g: record.g,
        set: record.set,
        joining: record.joining,
        object_version: fixed.u32(A_OBJECT_VERSION),
        created_ms: fixed.u64(A_CREATED),
        modified_ms: fixed.u64(A_MODIFIED),
        reserve_bytes: fixed.u64(A_RESERVE),
        cluster: fixed.u64(A_CLUSTER),
        map: map.to_vec(),
        opaque: opaque.to_vec(),
    })
}

/// The body for a partition with this quota (`None`: no limit, stored as all ones) and key epoch.
pub fn partition_body(quota_bytes: Option<u64>, key_epoch: u32) -> Vec<u8> {
    let mut bytes = vec![0; PARTITION_BYTES];
    put(&mut bytes, P_QUOTA, quota_bytes.unwrap_or(u64::MAX).to_le_bytes());
    put(&mut bytes, P_KEY_EPOCH, key_epoch.to_le_bytes());
    bytes
}

/// Decodes quota and key epoch in `record`.
pub fn partition(record: &Record) -> Result<(Option<u64>, u32), DecodeError> {
    let view = FieldReader(&record.inline);
    if record.inline.len() != PARTITION_BYTES || !view.is_zero(P_RESERVED) {
        return Err(DecodeError::Malformed("partition body"));
    }
    Ok((Some(view.u64(P_QUOTA)).filter(|&quota| quota != u64::MAX), view.u32(P_KEY_EPOCH)))
}

/// The body of a snapshot with this number.
pub fn snapshot_body(number: u32) -> Vec<u8> {
    let mut bytes = vec![0; SNAPSHOT_BYTES];
    put(&mut bytes, S_NUMBER, number.to_le_bytes());
    bytes
}

/// Decodes the snapshot number in `record`, which is never 0.
pub fn snapshot(record: &Record) -> Result<u32, DecodeError> {
    let view = FieldReader(&record.inline);
    if record.inline.len() != SNAPSHOT_BYTES || !view.is_zero(S_RESERVED) || view.u32(S_NUMBER) == 0 {
        return Err(DecodeError::Malformed("snapshot body"));
    }
    Ok(view.u32(S_NUMBER))
}

/// The body of a verdict, with at most [`VERDICT_STAMPS_MAX`] stamps; a unit without any counts as one.
pub fn verdict_body(units: &[UnitVerdict]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for unit in units {
        let mut fixed = [0; VERDICT_BYTES];
        put(&mut fixed, V_UNIT, unit.unit.to_le_bytes());
        put(&mut fixed, V_FORWARD, counted(unit.forward.len()).to_le_bytes());
        put(&mut fixed, V_BACK, counted(unit.back.len()).to_le_bytes());
        put(&mut fixed, V_CUT_OFFS, counted(unit.cut_offs.len()).to_le_bytes());
        bytes.extend_from_slice(&fixed);
        for &stamp in unit.forward.iter().chain(&unit.back) {
            bytes.extend_from_slice(&version_bytes(stamp));
        }
        for &(column, version) in &unit.cut_offs {
            let mut cut_off = [0; CUT_OFF_BYTES];
            put(&mut cut_off, X_VERSION, version_bytes(version));
            put(&mut cut_off, X_COLUMN, [column.0]);
            bytes.extend_from_slice(&cut_off);
        }
    }
    bytes
}

/// Decodes the verdict in `record`.
pub fn verdict(record: &Record) -> Result<Vec<UnitVerdict>, DecodeError> {
    let mut rest = &record.inline[..];
    let mut units = Vec::new();
    while !rest.is_empty() {
        let (fixed, tail) =
            rest.split_at_checked(VERDICT_BYTES).ok_or(DecodeError::Malformed("verdict body"))?;
        let fixed = FieldReader(fixed);
        let (forward, back) = (usize::from(fixed.u16(V_FORWARD)), usize::from(fixed.u16(V_BACK)));
        let split = tail.split_at_checked((forward + back) * VERSION_BYTES);
        let (stamps, tail) = split.ok_or(DecodeError::Malformed("verdict body"))?;
        let split = tail.split_at_checked(usize::from(fixed.u16(V_CUT_OFFS)) * CUT_OFF_BYTES);
        let (cut_offs, tail) = split.ok_or(DecodeError::Malformed("verdict body"))?;
        let cut_offs: Vec<(Column, Version)> =
            cut_offs.chunks_exact(CUT_OFF_BYTES).map(cut_off).collect::<Result<_, _>>()?;
        if !fixed.is_zero(V_RESERVED) {
            return Err(DecodeError::Malformed("verdict body"));
        }
        let mut forward_stamps: Vec<Version> = stamps.chunks_exact(VERSION_BYTES).map(version_at).collect();
        let back_stamps = forward_stamps.split_off(forward);
        units.push(UnitVerdict {
            unit: fixed.u64(V_UNIT),
            forward: forward_stamps,
            back: back_stamps,
            cut_offs,
        });
        rest = tail;
    }
    Ok(units)
}

/// The body of a move: contiguous pieces in order, at most [`PIECES_MAX`].
pub fn move_body(pieces: &[Extent]) -> Vec<u8> {
    let mut bytes = vec![0; PIECE_BYTES * pieces.len()];
    for (row, piece) in bytes.chunks_exact_mut(PIECE_BYTES).zip(pieces) {
        put(row, M_SEGMENT, piece.segment.to_le_bytes());
        put(row, M_BLOCK, piece.block.to_le_bytes());
        put(row, M_FROM, piece.from.to_le_bytes());
        put(row, M_TO, piece.to.to_le_bytes());
    }
    bytes
}

/// Decodes the pieces of the move `record`, which together are exactly its range.
pub fn moved_pieces(record: &Record) -> Result<Vec<Extent>, DecodeError> {
    let rows = record.inline.chunks_exact(PIECE_BYTES);
    if record.inline.is_empty() || !rows.remainder().is_empty() || rows.len() > PIECES_MAX {
        return Err(DecodeError::Malformed("move body"));
    }
    let mut at = record.from;
    let mut pieces = Vec::with_capacity(rows.len());
    for row in rows.map(FieldReader) {
        let (segment, block) = (row.u32(M_SEGMENT), row.u32(M_BLOCK));
        let (from, to) = (row.u32(M_FROM), row.u32(M_TO));
        if from != at || to <= from || segment == 0 || block == 0 {
            return Err(DecodeError::Malformed("a move's pieces are not one range"));
        }
        pieces.push(Extent { from, to, segment, block });
        at = to;
    }
    if at == record.to {
        Ok(pieces)
    } else {
        Err(DecodeError::Malformed("a move's pieces are not its range"))
    }
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

const SHORT: DecodeError = DecodeError::Malformed("attributes body");

fn bounded(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("at most 4 KiB")
}

fn counted(stamps: usize) -> u16 {
    u16::try_from(stamps).expect("at most 4096 stamps")
}

fn cut_off(bytes: &[u8]) -> Result<(Column, Version), DecodeError> {
    let view = FieldReader(bytes);
    let column = Column(view.u8(X_COLUMN));
    if column.0 >= 64 || !view.is_zero(X_RESERVED) {
        return Err(DecodeError::Malformed("a cut-off"));
    }
    Ok((column, view.version(X_VERSION)))
}
