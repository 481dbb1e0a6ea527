//! The superblock: the identity of the store. Written once, by rename, when the store is formatted.

use braid_layout::{ClusterId, DriveId};

use super::field::{Value as _, decode, fields, get, length, put, seal, unseal};
use super::{DecodeError, LOG_BLOCK};

pub const MAGIC: [u8; 8] = *b"BRAIDSTO";
pub const BYTES: usize = LOG_BLOCK;

fields! {
    /// The superblock's fields.
    FIELDS of Superblock:
    "magic" 0..8,
    "format version" 8..10,
    "reserved" 10..12,
    F_LOG_BLOCK "log block" 12..16,
    .cluster "cluster" 16..32,
    .drive "drive" 32..48,
    .salt "salt" 48..56,
    "reserved" 56..508,
    "crc" 508..512,
}

/// A decoded superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Superblock {
    pub cluster: ClusterId,
    pub drive: DriveId,
    /// Random; also in every segment and record, so that another store's bytes are never taken for its own.
    pub salt: u64,
}

impl Superblock {
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        self.put(&mut bytes);
        put(&mut bytes, F_LOG_BLOCK, length(LOG_BLOCK));
        seal(&mut bytes, MAGIC);
        bytes
    }

    /// Decodes `bytes` and checks all of them.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, DecodeError> {
        let block = unseal(bytes, MAGIC)?;
        if get(block, F_LOG_BLOCK) != Ok(length(LOG_BLOCK)) {
            return Err(DecodeError::Malformed("log block is not 512"));
        }
        decode(block)
    }
}
