//! The base of a still: the end of its attributes' body, and the body of a `still` entry.

use super::field::{append, exactly, fields};
use super::{DecodeError, entry};
use crate::mutation::Base;

/// Bytes of the body.
pub const BASE_BYTES: usize = 24;

fields! {
    /// The object that a still was taken of.
    BASE_FIELDS of Base:
    .object "object" 0..8,
    .birth "birth" 8..16,
    .number "number" 16..20,
    "reserved" 20..24,
}

impl Base {
    /// Appends the body to `to`.
    pub(super) fn put_body(&self, to: &mut Vec<u8>) {
        append(to, self);
    }

    /// Appends an entry to `to`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let at = entry::begin(to, entry::STILL);
        append(to, self);
        entry::end(to, at);
    }

    /// Decodes a body and checks all of it.
    pub fn decode(body: &[u8]) -> Result<Base, DecodeError> {
        let base: Base = exactly(body)?;
        if base.number == 0 {
            return Err(DecodeError::Malformed("a still of no snapshot"));
        }
        Ok(base)
    }
}
