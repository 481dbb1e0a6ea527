//! A page of a checkpoint: the state of all keys of a range as it was after one record, the page's `as of`.
//!
//! A key is a partition itself or an object; a partition comes before its objects. The pages of a whole
//! checkpoint cover all keys, and each page begins where the one before it ended. An object that is too large
//! for one page gets several of its own: *parts*, which have the same range and the same `as of`.

use braid_layout::{ObjectId, PartitionId};

use super::{DecodeError, FORMAT_VERSION, FieldReader, fields, padded, put};
use crate::crc::crc32c_of;

/// "BPag".
pub const MAGIC: [u8; 4] = *b"BPag";
/// Bytes of the fixed part, which the entries follow.
pub const FIXED_BYTES: usize = 96;
/// About how many bytes of entries a page has. One entry may be longer.
pub const TARGET_BYTES: usize = 64 << 10;
/// The most bytes of a page.
pub const PAGE_BYTES_MAX: usize = 64 << 20;

fields! {
    /// The fixed part's fields.
    FIELDS:
    F_MAGIC "magic" 0..4,
    F_VERSION "format version" 4..6,
    F_FROM_KIND "from kind" 6..7,
    F_TO_KIND "to kind" 7..8,
    F_BYTES "page bytes" 8..12,
    F_CHECKPOINT "checkpoint" 12..16,
    F_SALT "salt" 16..24,
    F_AS_OF "as of" 24..32,
    F_FROM_PARTITION "from partition" 32..40,
    F_FROM_OBJECT "from object" 40..48,
    F_TO_PARTITION "to partition" 48..56,
    F_TO_OBJECT "to object" 56..64,
    F_PART "part" 64..68,
    F_PARTS "parts" 68..72,
    F_INDEX "page" 72..80,
    F_RESERVED "reserved" 80..92,
    F_CRC "crc" 92..96,
}

/// What an entry is about: a partition itself, an object, or, as the end of a range, the end of all keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A partition's values (`None`) or one of its objects.
    At(PartitionId, Option<ObjectId>),
    /// After all keys.
    End,
}

impl Key {
    /// The first key of all.
    pub const FIRST: Key = Key::At(PartitionId(0), None);

    /// The next possible key; [`Key::End`] is its own.
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

    pub(crate) fn parts(self) -> (u8, u64, u64) {
        match self {
            Key::At(partition, None) => (0, partition.0, 0),
            Key::At(partition, Some(object)) => (1, partition.0, object.0),
            Key::End => (2, 0, 0),
        }
    }

    pub(crate) fn from_parts(kind: u8, partition: u64, object: u64) -> Result<Key, DecodeError> {
        match (kind, partition, object) {
            (0, partition, 0) => Ok(Key::At(PartitionId(partition), None)),
            (1, partition, object) => Ok(Key::At(PartitionId(partition), Some(ObjectId(object)))),
            (2, 0, 0) => Ok(Key::End),
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageHead {
    /// The checkpoint's number.
    pub checkpoint: u32,
    /// The store's salt.
    pub salt: u64,
    /// The page's number in the file, from 0.
    pub index: u64,
    /// The sequence number of the last record that is counted in.
    pub as_of: u64,
    /// The first key it covers.
    pub from: Key,
    /// The first key after its range.
    pub to: Key,
    /// The number of this part among [`PageHead::parts`], from 0.
    pub part: u32,
    /// How many pages have this range; more than 1 only for an object that is too large for one page.
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
        let (from, to) = (self.from.parts(), self.to.parts());
        put(page, F_MAGIC, MAGIC);
        put(page, F_VERSION, FORMAT_VERSION.to_le_bytes());
        put(page, F_FROM_KIND, [from.0]);
        put(page, F_TO_KIND, [to.0]);
        put(page, F_BYTES, u32::try_from(length).expect("bounded").to_le_bytes());
        put(page, F_CHECKPOINT, self.checkpoint.to_le_bytes());
        put(page, F_SALT, self.salt.to_le_bytes());
        put(page, F_AS_OF, self.as_of.to_le_bytes());
        put(page, F_FROM_PARTITION, from.1.to_le_bytes());
        put(page, F_FROM_OBJECT, from.2.to_le_bytes());
        put(page, F_TO_PARTITION, to.1.to_le_bytes());
        put(page, F_TO_OBJECT, to.2.to_le_bytes());
        put(page, F_PART, self.part.to_le_bytes());
        put(page, F_PARTS, self.parts.to_le_bytes());
        put(page, F_INDEX, self.index.to_le_bytes());
        page[F_RESERVED].fill(0);
        let crc = crc32c_of(&[&page[..F_CRC.start], &page[F_CRC.end..]]);
        put(page, F_CRC, crc.to_le_bytes());
    }

    /// Padded length of the page that begins with `fixed`, unverified; for reading the rest of the page.
    pub fn length(fixed: &[u8]) -> Result<usize, DecodeError> {
        let view = FieldReader(fixed.get(..FIXED_BYTES).ok_or(DecodeError::Short(FIXED_BYTES))?);
        if view.0[F_MAGIC] != MAGIC {
            return Err(DecodeError::Magic);
        }
        let length = usize::try_from(view.u32(F_BYTES)).unwrap_or(usize::MAX);
        if !(FIXED_BYTES..=PAGE_BYTES_MAX).contains(&length) {
            return Err(DecodeError::Malformed("a page's length"));
        }
        Ok(padded(length))
    }

    /// Decodes and checks the page at the start of `bytes`, and returns its entries, which are not checked.
    pub fn decode(bytes: &[u8]) -> Result<(PageHead, &[u8]), DecodeError> {
        let length = PageHead::length(bytes)?;
        let page = bytes.get(..length).ok_or(DecodeError::Short(length))?;
        let view = FieldReader(page);
        if crc32c_of(&[&page[..F_CRC.start], &page[F_CRC.end..]]) != view.u32(F_CRC) {
            return Err(DecodeError::Checksum);
        }
        if view.u16(F_VERSION) != FORMAT_VERSION {
            return Err(DecodeError::Version(view.u16(F_VERSION)));
        }
        let end = usize::try_from(view.u32(F_BYTES)).expect("checked");
        if !view.is_zero(F_RESERVED) || !view.is_zero(end..page.len()) {
            return Err(DecodeError::Malformed("reserved bytes are not zero"));
        }
        let head = PageHead {
            checkpoint: view.u32(F_CHECKPOINT),
            salt: view.u64(F_SALT),
            index: view.u64(F_INDEX),
            as_of: view.u64(F_AS_OF),
            from: Key::from_parts(view.u8(F_FROM_KIND), view.u64(F_FROM_PARTITION), view.u64(F_FROM_OBJECT))?,
            to: Key::from_parts(view.u8(F_TO_KIND), view.u64(F_TO_PARTITION), view.u64(F_TO_OBJECT))?,
            part: view.u32(F_PART),
            parts: view.u32(F_PARTS),
        };
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
