//! The body of a `ready units` entry: the units with which the object before it, in a joining column, has
//! caught up.

use super::entry::{self, SHORT};
use super::{DecodeError, FieldReader, fields, put};

/// Bytes of a run of units.
pub const RUN_BYTES: usize = 16;

fields! {
    /// A run of units.
    RUN_FIELDS:
    R_FIRST "first" 0..8,
    R_LAST "last" 8..16,
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
        let at = entry::begin(to, entry::READY, 0);
        for &(first, last) in &self.runs {
            let mut bytes = [0; RUN_BYTES];
            put(&mut bytes, R_FIRST, first.to_le_bytes());
            put(&mut bytes, R_LAST, last.to_le_bytes());
            to.extend_from_slice(&bytes);
        }
        entry::end(to, at);
    }

    /// Decodes an entry's body and checks all of it.
    pub fn decode(body: &[u8]) -> Result<ReadyEntry, DecodeError> {
        if body.is_empty() || !body.len().is_multiple_of(RUN_BYTES) {
            return Err(SHORT);
        }
        let mut runs: Vec<(u64, u64)> = Vec::with_capacity(body.len() / RUN_BYTES);
        for run in body.chunks_exact(RUN_BYTES).map(FieldReader) {
            let (first, last) = (run.u64(R_FIRST), run.u64(R_LAST));
            let apart =
                runs.last().is_none_or(|&(_, before)| first.checked_sub(before).is_some_and(|gap| gap > 1));
            if first > last || !apart {
                return Err(DecodeError::Malformed("ready units out of order"));
            }
            runs.push((first, last));
        }
        Ok(ReadyEntry { runs })
    }
}
