//! A page of a checkpoint: the state of all keys of a range as it was after one record, the page's `as of`.
//!
//! A key is a partition itself or an object; a partition comes before its objects. The pages of a whole
//! checkpoint cover all keys, and each page begins where the one before it ended. An object that is too large
//! for one page gets several of its own: *parts*, which have the same range and the same `as of`.

use std::ops::Range;

use braid_layout::{ObjectId, PartitionId};

use super::field::{self, Value as _, check_version, check_zero, count, decode, fields, get, put};
use super::{DecodeError, FORMAT_VERSION, padded};
use crate::crc::crc32c_of;

pub const MAGIC: [u8; 4] = *b"BPag";
/// Bytes of the fixed part, which the entries follow.
pub const FIXED_BYTES: usize = 96;
/// About how many bytes of entries a page has. One entry may be longer.
pub const TARGET_BYTES: usize = 64 << 10;
/// The most bytes of a page.
pub const PAGE_BYTES_MAX: usize = 64 << 20;

fields! {
    /// The fixed part's fields.
    FIELDS of PageHead:
    F_MAGIC "magic" 0..4,
    F_VERSION "format version" 4..6,
    F_FROM_KIND "from kind" 6..7,
    F_TO_KIND "to kind" 7..8,
    F_BYTES "page bytes" 8..12,
    .checkpoint "checkpoint" 12..16,
    .salt "salt" 16..24,
    .as_of "as of" 24..32,
    F_FROM_PARTITION "from partition" 32..40,
    F_FROM_OBJECT "from object" 40..48,
    F_TO_PARTITION "to partition" 48..56,
    F_TO_OBJECT "to object" 56..64,
    .part "part" 64..68,
    .parts "parts" 68..72,
    .index "page" 72..80,
    "reserved" 80..92,
    F_CRC "crc" 92..96,
}

/// Key of an entry: a partition itself, an object, or, as the end of a range, the end of all keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Key {
    /// A partition's values (`None`) or one of its objects.
    At(PartitionId, Option<ObjectId>),
    /// After all keys.
    #[default]
    End,
}

impl Key {
    /// The first key of all.
    pub const FIRST: Key = Key::At(PartitionId(0), None);

    /// The next possible key; that of [`Key::End`] is [`Key::End`] itself.
    pub fn next(self) -> Key {
        match self {
            Key::At(partition, None) => Key::At(partition, Some(ObjectId(0))),
            Key::At(partition, Some(ObjectId(object))) => match object.checked_add(1) {
                Some(object) => Key::At(partition, Some(ObjectId(object))),
                None => partition.0.checked_add(1).map_or(Key::End, |next| Key::At(PartitionId(next), None)),
            },
            Key::End => Key::End,
        }
    }

    /// Writes the key to fields of a structure.
    pub(super) fn put(
        self,
        to: &mut [u8],
        kind: Range<usize>,
        partition: Range<usize>,
        object: Range<usize>,
    ) {
        let (number, of, id) = match self {
            Key::At(of, None) => (0_u8, of, ObjectId(0)),
            Key::At(of, Some(id)) => (1, of, id),
            Key::End => (2, PartitionId(0), ObjectId(0)),
        };
        put(to, kind, number);
        put(to, partition, of);
        put(to, object, id);
    }

    /// Reads a key from fields of a structure.
    pub(super) fn get(
        from: &[u8],
        kind: Range<usize>,
        partition: Range<usize>,
        object: Range<usize>,
    ) -> Result<Key, DecodeError> {
        match (get::<u8>(from, kind)?, get(from, partition)?, get(from, object)?) {
            (0, partition, ObjectId(0)) => Ok(Key::At(partition, None)),
            (1, partition, object) => Ok(Key::At(partition, Some(object))),
            (2, PartitionId(0), ObjectId(0)) => Ok(Key::End),
            _ => Err(DecodeError::Malformed("a page's range")),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::At(partition, None) => write!(f, "partition {partition}"),
            Key::At(partition, Some(object)) => write!(f, "object {object} of partition {partition}"),
            Key::End => f.write_str("the end"),
        }
    }
}

/// A page's fixed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageHead {
    /// The checkpoint's number.
    pub checkpoint: u32,
    /// The store's salt.
    pub salt: u64,
    /// The page's number in the file, from 0.
    pub index: u64,
    /// The sequence number of the last record that is counted in.
    pub as_of: u64,
    /// The first key that the page covers.
    pub from: Key,
    /// The first key after the page's range.
    pub to: Key,
    /// The number of this part among [`PageHead::parts`], from 0.
    pub part: u32,
    /// Number of pages with this range; more than 1 only for an object that is too large for one page.
    pub parts: u32,
}

impl PageHead {
    /// Encodes the page with these entries, as whole log blocks.
    pub fn encode(&self, entries: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; padded(FIXED_BYTES + entries.len())];
        bytes[FIXED_BYTES..FIXED_BYTES + entries.len()].copy_from_slice(entries);
        self.seal(&mut bytes, FIXED_BYTES + entries.len());
        bytes
    }

    /// Writes the fixed part and the checksum to `page`, which holds entries up to `length` already.
    pub(crate) fn seal(&self, page: &mut [u8], length: usize) {
        assert!(length <= PAGE_BYTES_MAX && page.len() == padded(length), "a page is bounded");
        page[..FIXED_BYTES].fill(0);
        self.put(page);
        page[F_MAGIC].copy_from_slice(&MAGIC);
        put(page, F_VERSION, FORMAT_VERSION);
        put(page, F_BYTES, field::length(length));
        self.from.put(page, F_FROM_KIND, F_FROM_PARTITION, F_FROM_OBJECT);
        self.to.put(page, F_TO_KIND, F_TO_PARTITION, F_TO_OBJECT);
        let crc = crc32c_of(&[&page[..F_CRC.start], &page[F_CRC.end..]]);
        put(page, F_CRC, crc);
    }

    /// Padded length of the page that begins with `fixed`, unverified; for reading the rest of the page.
    pub fn length(fixed: &[u8]) -> Result<usize, DecodeError> {
        let fixed = fixed.get(..FIXED_BYTES).ok_or(DecodeError::Short(FIXED_BYTES))?;
        if fixed[F_MAGIC] != MAGIC {
            return Err(DecodeError::Magic);
        }
        let length = count(get(fixed, F_BYTES)?);
        if !(FIXED_BYTES..=PAGE_BYTES_MAX).contains(&length) {
            return Err(DecodeError::Malformed("a page's length"));
        }
        Ok(padded(length))
    }

    /// Decodes and checks the page at the start of `bytes`, and returns its entries, which are not checked.
    pub fn decode(bytes: &[u8]) -> Result<(PageHead, &[u8]), DecodeError> {
        let length = PageHead::length(bytes)?;
        let page = bytes.get(..length).ok_or(DecodeError::Short(length))?;
        if crc32c_of(&[&page[..F_CRC.start], &page[F_CRC.end..]]) != get(page, F_CRC)? {
            return Err(DecodeError::Checksum);
        }
        check_version(get(page, F_VERSION)?)?;
        let end = count(get(page, F_BYTES)?);
        check_zero(&page[end..])?;
        let mut head: PageHead = decode(page)?;
        head.from = Key::get(page, F_FROM_KIND, F_FROM_PARTITION, F_FROM_OBJECT)?;
        head.to = Key::get(page, F_TO_KIND, F_TO_PARTITION, F_TO_OBJECT)?;
        if head.from >= head.to || head.part >= head.parts {
            return Err(DecodeError::Malformed("a page's range"));
        }
        if head.parts > 1 && head.from.next() != head.to {
            return Err(DecodeError::Malformed("parts of more than one object"));
        }
        Ok((head, &page[FIXED_BYTES..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_order_without_a_gap() {
        let object = |partition, object| Key::At(PartitionId(partition), Some(ObjectId(object)));
        let order = [
            (Key::FIRST, object(0, 0)),
            (object(3, 7), object(3, 8)),
            (object(3, u64::MAX), Key::At(PartitionId(4), None)),
            (object(u64::MAX, u64::MAX), Key::End),
        ];
        for (key, next) in order {
            assert_eq!(key.next(), next);
            assert!(key < next);
        }
        assert_eq!(Key::End.next(), Key::End);
    }
}
