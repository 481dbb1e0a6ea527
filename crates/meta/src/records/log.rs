//! The log of a state that several managers share: the bytes of its records, its checkpoints and its keys'
//! values. Pure: where they are kept is the caller's concern.
//!
//! Each commit is one record. It has the number of its place in the log and the sum of the record before it,
//! so a log in which a record is damaged, missing, or of another history is found out by whoever reads it.
//! `docs/format-manager.md` has the tables.

use braid_wire::{Wire, record};
use sha2::{Digest, Sha256};

use crate::records::kv::{Batch, Pair};

/// Version of the format of the log and of the values beside it.
pub const LOG_VERSION: u8 = 1;

/// Maximum bytes of a batch, or of rows, in one value. Etcd takes requests of up to 1.5 MiB by default.
pub const PART_BYTES: usize = 1 << 20;

/// Maximum bytes of one batch: a longer record is damage.
const BATCH_MAX: u64 = 4 << 30;

/// Bytes of a sum.
const SUM_BYTES: usize = 16;

/// A place in the log: the number of its last record, and that record's sum. The log begins after record 0,
/// which does not exist and has the sum 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    pub index: u64,
    pub sum: u128,
}

record! {
    /// The front of a record.
    pub struct LogRecord {
        index: u64,
        /// The leader that wrote it: the revision at which etcd made its leader key.
        leader: u64,
        /// Sum of the record before it.
        before: u128,
        /// Number of values with parts of the batch before this value, which has the rest of it.
        parts: u32,
        /// Bytes of the whole batch.
        bytes: u64,
    }
}
record! {
    /// The newest checkpoint: the state after a record of the log.
    pub struct HeadRecord {
        index: u64,
        /// Sum of that record.
        sum: u128,
        /// Number that tells its chunks from those of others for the same index.
        writer: u64,
        chunks: u32,
        /// Bytes of all chunks.
        bytes: u64,
    }
}
record! {
    /// The manager that leads.
    pub struct LeaderRecord {
        address: String,
        name: String,
    }
}
record! {
    /// A manager that runs.
    pub struct FellowRecord {
        address: String,
        name: String,
        /// The build's version.
        version: String,
        /// The last record that it has applied.
        applied: u64,
    }
}
record! {
    /// The mark that tells this state from all others.
    pub struct StateRecord {
        identity: u128,
    }
}
record! {
    /// The state that a manager's own copy is of, and how far it has come.
    pub struct AppliedRecord {
        identity: u128,
        index: u64,
        sum: u128,
    }
}

/// Reason for which bytes are no part of this log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// A newer build wrote it.
    #[error("is of version {found}, and this build reads version {LOG_VERSION}: run a newer build")]
    Version {
        /// Version that was found.
        found: u8,
    },
    /// It follows another record than the one before it here.
    #[error("does not follow the record before it: that one is of another history of the state")]
    History,
    /// It does not decode, or its sum is wrong.
    #[error("is damaged: {0}")]
    Damaged(String),
}

/// A record, cut for etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Values of the parts before the last one; none for most records.
    pub parts: Vec<Vec<u8>>,
    /// The value that makes the record valid.
    pub last: Vec<u8>,
    /// Place of the record.
    pub after: Place,
}

/// Makes the record of a batch that follows `before`, in values of at most about `part_bytes`.
pub fn cut(before: Place, leader: u64, batch: &Batch, part_bytes: usize) -> Cut {
    let bytes = encode_batch(batch);
    let mut parts: Vec<Vec<u8>> = bytes.chunks(part_bytes.max(1)).map(<[u8]>::to_vec).collect();
    let rest = parts.pop().unwrap_or_default();
    let front = LogRecord {
        index: before.index + 1,
        leader,
        before: before.sum,
        parts: u32::try_from(parts.len()).expect("a batch is in memory"),
        bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
    };
    let mut last = encode(&front);
    let sum = sum_of(&[&last, &bytes]);
    last.extend(rest);
    last.extend(sum.to_le_bytes());
    Cut { parts, last, after: Place { index: front.index, sum } }
}

/// The front of a record's value.
pub fn front(value: &[u8]) -> Result<LogRecord, LogError> {
    let mut fields = versioned(value)?;
    LogRecord::take(&mut fields).map_err(|error| LogError::Damaged(error.to_string()))
}

/// Reads the record that follows `before` from its value and its parts.
pub fn join(before: Place, value: &[u8], parts: &[Vec<u8>]) -> Result<(Batch, Place), LogError> {
    let front = front(value)?;
    if front.index != before.index + 1 || front.before != before.sum {
        return Err(LogError::History);
    }
    let head = 1 + LogRecord::BYTES_MIN;
    let damaged = |what: &str| LogError::Damaged(what.to_owned());
    let (body, sum) = value.split_last_chunk::<SUM_BYTES>().ok_or_else(|| damaged("it is too short"))?;
    let rest = body.get(head..).ok_or_else(|| damaged("it is too short"))?;
    let bytes = match parts {
        [] => rest.to_vec(),
        parts => [parts.concat().as_slice(), rest].concat(),
    };
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if length != front.bytes || length > BATCH_MAX {
        return Err(LogError::Damaged(format!("it has {length} of {} bytes", front.bytes)));
    }
    let sum = u128::from_le_bytes(*sum);
    if sum_of(&[&body[..head], &bytes]) != sum {
        return Err(damaged("its checksum is wrong"));
    }
    Ok((decode_batch(&bytes)?, Place { index: front.index, sum }))
}

/// The value of a checkpoint's chunk of this number.
pub fn encode_chunk(number: u32, rows: &[Pair]) -> Vec<u8> {
    let mut value = encode(&number);
    for (key, row) in rows {
        put_change(&mut value, key, Some(row));
    }
    let sum = sum_of(&[&value]);
    value.extend(sum.to_le_bytes());
    value
}

/// The rows of a checkpoint's chunk of this number.
pub fn decode_chunk(number: u32, value: &[u8]) -> Result<Batch, LogError> {
    versioned(value)?;
    let damaged = |what: &str| LogError::Damaged(what.to_owned());
    let (body, sum) = value.split_last_chunk::<SUM_BYTES>().ok_or_else(|| damaged("it is too short"))?;
    if sum_of(&[body]) != u128::from_le_bytes(*sum) {
        return Err(damaged("its checksum is wrong"));
    }
    let mut rows = versioned(body)?;
    match u32::take(&mut rows) {
        Ok(found) if found == number => decode_batch(rows),
        _ => Err(damaged("it is another chunk")),
    }
}

/// The bytes of a change in a batch or a chunk.
pub fn change_bytes(key: &[u8], value: &[u8]) -> usize {
    4 + key.len() + 1 + 4 + value.len()
}

fn encode_batch(batch: &Batch) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, change) in batch {
        put_change(&mut bytes, key, change.as_deref());
    }
    bytes
}

fn put_change(out: &mut Vec<u8>, key: &[u8], change: Option<&[u8]>) {
    put_bytes(out, key);
    out.push(u8::from(change.is_some()));
    if let Some(value) = change {
        put_bytes(out, value);
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u32::try_from(bytes.len()).expect("keys and values are short").to_le_bytes());
    out.extend(bytes);
}

fn decode_batch(mut bytes: &[u8]) -> Result<Batch, LogError> {
    let damaged = |error: braid_wire::codec::DecodeError| LogError::Damaged(error.to_string());
    let mut batch = Batch::new();
    while !bytes.is_empty() {
        let key = Vec::<u8>::take(&mut bytes).map_err(damaged)?;
        let change = match u8::take(&mut bytes).map_err(damaged)? {
            0 => None,
            1 => Some(Vec::<u8>::take(&mut bytes).map_err(damaged)?),
            other => return Err(LogError::Damaged(format!("{other} is no kind of change"))),
        };
        batch.insert(key, change);
    }
    Ok(batch)
}

/// The bytes of a value beside the log.
pub fn encode(value: &impl Wire) -> Vec<u8> {
    let mut bytes = vec![LOG_VERSION];
    value.put(&mut bytes);
    bytes
}

/// Reads a value beside the log.
pub fn decode<R: Wire>(bytes: &[u8]) -> Result<R, LogError> {
    R::from_bytes(versioned(bytes)?).map_err(|error| LogError::Damaged(error.to_string()))
}

fn versioned(bytes: &[u8]) -> Result<&[u8], LogError> {
    match bytes.split_first() {
        Some((&LOG_VERSION, fields)) => Ok(fields),
        Some((&found, _)) => Err(LogError::Version { found }),
        None => Err(LogError::Damaged("it is empty".to_owned())),
    }
}

/// The first bytes of the SHA-256 of all these.
fn sum_of(pieces: &[&[u8]]) -> u128 {
    let mut hash = Sha256::new();
    pieces.iter().for_each(|piece| hash.update(piece));
    let digest = hash.finalize();
    let mut sum = [0; SUM_BYTES];
    sum.copy_from_slice(&digest[..SUM_BYTES]);
    u128::from_le_bytes(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(bytes: usize) -> Batch {
        [(b"a".to_vec(), Some(vec![7; bytes])), (b"b".to_vec(), None), (Vec::new(), Some(Vec::new()))].into()
    }

    #[test]
    fn a_record_in_parts_is_one_and_in_its_place_only() {
        let before = Place { index: 4, sum: 9 };
        for (bytes, parts) in [(0, 0), (75, 0), (76, 1), (1000, 10)] {
            let batch = batch(bytes);
            let record = cut(before, 3, &batch, 100);
            assert_eq!(record.parts.len(), parts);
            assert_eq!(join(before, &record.last, &record.parts).unwrap(), (batch, record.after));
            let elsewhere = Place { index: 4, sum: 8 };
            assert_eq!(join(elsewhere, &record.last, &record.parts), Err(LogError::History));
            let mut short = record.parts.clone();
            if short.pop().is_some() {
                assert!(join(before, &record.last, &short).is_err());
            }
        }
    }

    #[test]
    fn a_changed_bit_is_found_anywhere() {
        let record = cut(Place::default(), 3, &batch(30), 20);
        for at in 0..record.last.len() {
            let mut last = record.last.clone();
            last[at] ^= 1;
            assert!(join(Place::default(), &last, &record.parts).is_err(), "byte {at}");
        }
        let mut parts = record.parts.clone();
        parts[0][3] ^= 1;
        assert!(join(Place::default(), &record.last, &parts).is_err());
        let chunk = encode_chunk(2, &[(b"a".to_vec(), b"1".to_vec())]);
        assert_eq!(decode_chunk(2, &chunk).unwrap(), [(b"a".to_vec(), Some(b"1".to_vec()))].into());
        assert!(decode_chunk(3, &chunk).is_err(), "another chunk");
        for at in 0..chunk.len() {
            let mut chunk = chunk.clone();
            chunk[at] ^= 1;
            assert!(decode_chunk(2, &chunk).is_err(), "byte {at}");
        }
    }

    #[test]
    fn bytes_of_a_newer_build_are_said_to_be_so() {
        let newer = LogError::Version { found: 2 };
        assert_eq!(decode::<StateRecord>(&[2, 0]), Err(newer.clone()));
        assert!(newer.to_string().contains("run a newer build"));
        assert!(matches!(decode::<StateRecord>(&[]), Err(LogError::Damaged(_))));
    }
}
