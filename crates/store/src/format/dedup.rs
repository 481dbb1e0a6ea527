//! The body of a `dedup` entry: the known operations of one client on the object before it.

use braid_layout::{ClientId, OperationNumber, Version};

use super::field::{append, append_list, decode_list, fields, split};
use super::{DecodeError, entry};

/// Bytes of the fixed part of the body; the operations follow.
pub const DEDUP_BYTES: usize = 24;
/// Bytes of an operation.
pub const OPERATION_BYTES: usize = 40;

fields! {
    /// The fixed part of the body.
    DEDUP_FIELDS of DedupEntry:
    .client "client" 0..8,
    .watermark "watermark" 8..16,
    "reserved" 16..24,
}

fields! {
    OPERATION_FIELDS of OperationEntry:
    .operation "operation" 0..8,
    .unit "unit" 8..16,
    .version "version" 16..32,
    .data "data unit" 32..33,
    "reserved" 33..40,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DedupEntry {
    pub client: ClientId,
    /// The client repeats no operation below this one.
    pub watermark: OperationNumber,
    /// The completed operations.
    pub operations: Vec<OperationEntry>,
}

/// A completed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationEntry {
    /// The client's number for the operation.
    pub operation: OperationNumber,
    pub unit: u64,
    /// The version that it made.
    pub version: Version,
    /// At a parity column: the data unit's index in the stripe.
    pub data: u8,
}

impl DedupEntry {
    /// Appends the entry to `to`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let at = entry::begin(to, entry::DEDUP);
        append(to, self);
        append_list(to, &self.operations);
        entry::end(to, at);
    }

    /// Decodes an entry's body and checks all of it.
    pub fn decode(body: &[u8]) -> Result<DedupEntry, DecodeError> {
        let (mut entry, operations) = split::<DedupEntry>(body)?;
        entry.operations = decode_list(operations)?;
        if entry.operations.iter().any(|operation| operation.data >= 64) {
            return Err(DecodeError::Malformed("a data unit past the last"));
        }
        Ok(entry)
    }
}
