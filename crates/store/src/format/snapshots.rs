//! The body of a `snapshots` entry: the snapshots of the object before it.

use super::field::{append, append_list, decode_list, fields, split};
use super::{DecodeError, entry};
use crate::mutation::STILLS_MAX;

/// Bytes of the fixed part of the body; the numbers follow.
pub const SNAPSHOTS_BYTES: usize = 8;

fields! {
    /// The fixed part of the body.
    SNAPSHOTS_FIELDS of SnapshotsEntry:
    .highest "highest" 0..4,
    "reserved" 4..8,
}

/// An object's snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotsEntry {
    /// The highest snapshot number that was ever taken.
    pub highest: u32,
    /// The snapshots that can be read, in order.
    pub live: Vec<u32>,
}

impl SnapshotsEntry {
    /// Appends the entry to `to`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let at = entry::begin(to, entry::SNAPSHOTS);
        append(to, self);
        append_list(to, &self.live);
        entry::end(to, at);
    }

    /// Decodes an entry's body and checks all of it.
    pub fn decode(body: &[u8]) -> Result<SnapshotsEntry, DecodeError> {
        let (mut entry, live) = split::<SnapshotsEntry>(body)?;
        entry.live = decode_list(live)?;
        let highest = entry.highest;
        let live = &entry.live;
        let rising = live.windows(2).all(|pair| pair[0] < pair[1]);
        let bounded = live.first() != Some(&0) && live.last().is_none_or(|&last| last <= highest);
        if highest == 0 || !rising || !bounded || live.len() > STILLS_MAX {
            return Err(DecodeError::Malformed("an object's snapshots"));
        }
        Ok(entry)
    }
}
