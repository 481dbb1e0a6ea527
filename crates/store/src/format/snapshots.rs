//! The body of a `snapshots` entry: the snapshots of the object before it.

use super::entry::{self, RESERVED, SHORT};
use super::{DecodeError, FieldReader, fields, put};
use crate::mutation::SNAPSHOTS_MAX;

/// Bytes of the fixed part of the body; the numbers follow.
pub const SNAPSHOTS_BYTES: usize = 8;

fields! {
    /// The fixed part of the body.
    SNAPSHOTS_FIELDS:
    S_HIGHEST "highest" 0..4,
    S_RESERVED "reserved" 4..8,
}

/// An object's snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotsEntry {
    /// The highest number that was ever taken.
    pub highest: u32,
    /// The snapshots that can be read, in order.
    pub live: Vec<u32>,
}

impl SnapshotsEntry {
    /// Appends the entry to `to`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let at = entry::begin(to, entry::SNAPSHOTS, SNAPSHOTS_BYTES);
        put(&mut to[at..], S_HIGHEST, self.highest.to_le_bytes());
        self.live.iter().for_each(|number| to.extend_from_slice(&number.to_le_bytes()));
        entry::end(to, at);
    }

    /// Decodes an entry's body and checks all of it.
    pub fn decode(body: &[u8]) -> Result<SnapshotsEntry, DecodeError> {
        let (fixed, rest) = body.split_at_checked(SNAPSHOTS_BYTES).ok_or(SHORT)?;
        let fixed = FieldReader(fixed);
        if !fixed.is_zero(S_RESERVED) {
            return Err(RESERVED);
        }
        if rest.len() % 4 != 0 || rest.len() / 4 > SNAPSHOTS_MAX {
            return Err(SHORT);
        }
        let live: Vec<u32> = rest.chunks_exact(4).map(|number| FieldReader(number).u32(0..4)).collect();
        let highest = fixed.u32(S_HIGHEST);
        let rising = live.windows(2).all(|pair| pair[0] < pair[1]);
        let bounded = live.first() != Some(&0) && live.last().is_none_or(|&last| last <= highest);
        if highest == 0 || !rising || !bounded {
            return Err(DecodeError::Malformed("an object's snapshots"));
        }
        Ok(SnapshotsEntry { highest, live })
    }
}
