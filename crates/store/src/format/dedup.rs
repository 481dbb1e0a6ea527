//! The body of a `dedup` entry: the known operations of one client on the object before it.

use braid_layout::Version;

use super::entry::{self, RESERVED, SHORT};
use super::{DecodeError, FieldReader, fields, put, version_bytes};

/// Bytes of the fixed part of the body; the operations follow.
pub const DEDUP_BYTES: usize = 24;
/// Bytes of an operation.
pub const OPERATION_BYTES: usize = 40;

fields! {
    /// The fixed part of the body.
    DEDUP_FIELDS:
    D_CLIENT "client" 0..8,
    D_WATERMARK "watermark" 8..16,
    D_RESERVED "reserved" 16..24,
}

fields! {
    /// An operation.
    OPERATION_FIELDS:
    N_OPERATION "operation" 0..8,
    N_UNIT "unit" 8..16,
    N_VERSION "version" 16..32,
    N_DATA "data unit" 32..33,
    N_RESERVED "reserved" 33..40,
}

/// A client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupEntry {
    /// Which.
    pub client: u64,
    /// The client repeats no operation below this one.
    pub watermark: u64,
    /// The completed operations.
    pub operations: Vec<OperationEntry>,
}

/// A completed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationEntry {
    /// The client's number for it.
    pub operation: u64,
    /// The unit.
    pub unit: u64,
    /// The version that it made.
    pub version: Version,
    /// At a parity column: which data unit of the stripe.
    pub data: u8,
}

impl DedupEntry {
    /// Appends the entry to `to`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let at = entry::begin(to, entry::DEDUP, DEDUP_BYTES);
        put(&mut to[at..], D_CLIENT, self.client.to_le_bytes());
        put(&mut to[at..], D_WATERMARK, self.watermark.to_le_bytes());
        for operation in &self.operations {
            let mut bytes = [0; OPERATION_BYTES];
            put(&mut bytes, N_OPERATION, operation.operation.to_le_bytes());
            put(&mut bytes, N_UNIT, operation.unit.to_le_bytes());
            put(&mut bytes, N_VERSION, version_bytes(operation.version));
            put(&mut bytes, N_DATA, [operation.data]);
            to.extend_from_slice(&bytes);
        }
        entry::end(to, at);
    }

    /// Decodes an entry's body and checks all of it.
    pub fn decode(body: &[u8]) -> Result<DedupEntry, DecodeError> {
        let (fixed, rest) = body.split_at_checked(DEDUP_BYTES).ok_or(SHORT)?;
        let fixed = FieldReader(fixed);
        if !fixed.is_zero(D_RESERVED) {
            return Err(RESERVED);
        }
        if rest.len() % OPERATION_BYTES != 0 {
            return Err(SHORT);
        }
        let operation = |bytes| {
            let view = FieldReader(bytes);
            if !view.is_zero(N_RESERVED) || view.u8(N_DATA) >= 64 {
                return Err(RESERVED);
            }
            Ok(OperationEntry {
                operation: view.u64(N_OPERATION),
                unit: view.u64(N_UNIT),
                version: view.version(N_VERSION),
                data: view.u8(N_DATA),
            })
        };
        let operations = rest.chunks_exact(OPERATION_BYTES).map(operation).collect::<Result<_, _>>()?;
        Ok(DedupEntry { client: fixed.u64(D_CLIENT), watermark: fixed.u64(D_WATERMARK), operations })
    }
}
