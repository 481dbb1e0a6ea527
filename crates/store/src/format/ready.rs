//! The body of a `ready units` entry: the units with which the object before it, in a joining column, has
//! caught up.

use super::field::{append_list, decode_list, fields};
use super::{DecodeError, entry};

/// Bytes of a run of units.
pub const RUN_BYTES: usize = 16;

fields! {
    /// A run of units.
    RUN_FIELDS of (u64, u64):
    .0 "first" 0..8,
    .1 "last" 8..16,
}

/// Units that are caught up: first and last of each run, in order, with a gap between any two runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyEntry {
    /// At least one.
    pub runs: Vec<(u64, u64)>,
}

impl ReadyEntry {
    /// Appends the entry to `to`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let at = entry::begin(to, entry::READY);
        append_list(to, &self.runs);
        entry::end(to, at);
    }

    /// Decodes an entry's body and checks all of it.
    pub fn decode(body: &[u8]) -> Result<ReadyEntry, DecodeError> {
        let runs: Vec<(u64, u64)> = decode_list(body)?;
        let apart = |pair: &[(u64, u64)]| pair[0].1.checked_add(1).is_some_and(|next| next < pair[1].0);
        if runs.is_empty() || runs.iter().any(|(first, last)| first > last) || !runs.windows(2).all(apart) {
            return Err(DecodeError::Malformed("ready units out of order"));
        }
        Ok(ReadyEntry { runs })
    }
}
