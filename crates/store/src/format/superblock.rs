//! The superblock: the identity of the store. Written once, by rename, when the store is formatted.

use braid_layout::{ClusterId, DriveId};

use super::{DecodeError, FORMAT_VERSION, FieldReader, LOG_BLOCK, fields, put};
use crate::crc::crc32c;

/// "BRAIDSTO".
pub const MAGIC: [u8; 8] = *b"BRAIDSTO";
/// Its length.
pub const BYTES: usize = 512;

fields! {
    /// The superblock's fields.
    FIELDS:
    F_MAGIC "magic" 0..8,
    F_VERSION "format version" 8..10,
    F_RESERVED_1 "reserved" 10..12,
    F_LOG_BLOCK "log block" 12..16,
    F_CLUSTER "cluster" 16..32,
    F_DRIVE "drive" 32..48,
    F_SALT "salt" 48..56,
    F_RESERVED_2 "reserved" 56..508,
    F_CRC "crc" 508..512,
}

/// A decoded superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// The cluster.
    pub cluster: ClusterId,
    /// The drive.
    pub drive: DriveId,
    /// Random; also in every segment and record, so that another store's bytes are never taken for its own.
    pub salt: u64,
}

impl Superblock {
    /// Encodes it.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        put(&mut bytes, F_MAGIC, MAGIC);
        put(&mut bytes, F_VERSION, FORMAT_VERSION.to_le_bytes());
        put(&mut bytes, F_LOG_BLOCK, u32::try_from(LOG_BLOCK).expect("512").to_le_bytes());
        put(&mut bytes, F_CLUSTER, self.cluster.0.to_le_bytes());
        put(&mut bytes, F_DRIVE, self.drive.0.to_le_bytes());
        put(&mut bytes, F_SALT, self.salt.to_le_bytes());
        let crc = crc32c(&bytes[..F_CRC.start]);
        put(&mut bytes, F_CRC, crc.to_le_bytes());
        bytes
    }

    /// Decodes `bytes` and checks all of them.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, DecodeError> {
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
        if usize::try_from(view.u32(F_LOG_BLOCK)) != Ok(LOG_BLOCK) {
            return Err(DecodeError::Malformed("log block is not 512"));
        }
        if !view.is_zero(F_RESERVED_1) || !view.is_zero(F_RESERVED_2) {
            return Err(DecodeError::Malformed("reserved bytes are not zero"));
        }
        Ok(Superblock {
            cluster: ClusterId(view.u128(F_CLUSTER)),
            drive: DriveId(view.u128(F_DRIVE)),
            salt: view.u64(F_SALT),
        })
    }
}
