//! The components on one drive of 256 files with consecutive numbers: the value of a row of `c`.
//!
//! Files that are created together have consecutive numbers, and a component is a few bytes. With a row for
//! each component a row would be nearly all key, and a file of five columns would write five rows, in five
//! places. Here a commit of many new files rewrites one row for each drive.
//!
//! A component is stored as the lowest byte of its file's number and a byte with its column in the lower six
//! bits. Bit 6 says that its segment has another number than 0, and that this number follows. The components
//! are in order of file, segment and column, and each is there once.

use braid_layout::{Column, FileId};
use braid_wire::DecodeError;

use super::compact;

/// Lowest bits of a file's number, which are in the value and not in the key.
const LOW_BITS: u32 = 8;
/// Bits of the second byte that hold the column. A layout has 64 columns at most.
const COLUMN_BITS: u8 = 0x3f;
/// Bit of the second byte that says that the segment's number follows.
const HAS_SEGMENT: u8 = 0x40;

/// A component in its chunk: the lowest byte of its file's number, its segment and its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The lowest byte of the file's number.
    pub low: u8,
    /// The segment's number.
    pub segment: u32,
    pub column: Column,
}

/// The chunk that a file belongs to.
pub fn of_file(file: FileId) -> u64 {
    file.0 >> LOW_BITS
}

/// The lowest byte of a file's number.
pub fn low(file: FileId) -> u8 {
    file.0.to_le_bytes()[0]
}

/// The number of the file that has this lowest byte in a chunk.
pub fn file(chunk: u64, low: u8) -> FileId {
    FileId(chunk << LOW_BITS | u64::from(low))
}

/// Encodes spots, which must be in order.
pub fn encode(spots: &[Spot]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 * spots.len());
    for spot in spots {
        assert!(spot.column.0 <= COLUMN_BITS, "a layout has 64 columns at most");
        bytes.push(spot.low);
        if spot.segment == 0 {
            bytes.push(spot.column.0);
        } else {
            bytes.push(spot.column.0 | HAS_SEGMENT);
            compact::put(&mut bytes, u64::from(spot.segment));
        }
    }
    bytes
}

/// Decodes spots. Refused if they are not in order, as a lookup would not find one that is out of place.
pub fn decode(mut bytes: &[u8]) -> Result<Vec<Spot>, DecodeError> {
    let mut spots: Vec<Spot> = Vec::with_capacity(bytes.len() / 2);
    while let Some((&low, rest)) = bytes.split_first() {
        let Some((&column, rest)) = rest.split_first() else {
            return Err(DecodeError::Truncated { field: "column", needed: 1 });
        };
        bytes = rest;
        let bad = |value| DecodeError::Value { field: "component", value };
        let segment = match column & !COLUMN_BITS {
            0 => 0,
            HAS_SEGMENT => match compact::take_u32(&mut bytes, "segment")? {
                0 => return Err(bad(0)),
                segment => segment,
            },
            _ => return Err(bad(u64::from(column))),
        };
        let spot = Spot { low, segment, column: Column(column & COLUMN_BITS) };
        if spots.last().is_some_and(|last| *last >= spot) {
            return Err(bad(u64::from(low)));
        }
        spots.push(spot);
    }
    Ok(spots)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn spots() -> impl Strategy<Value = BTreeSet<Spot>> {
        let segment = prop_oneof![3 => Just(0u32), 1 => any::<u32>()];
        let spot = (any::<u8>(), segment, 0u8..64).prop_map(|(low, segment, column)| Spot {
            low,
            segment,
            column: Column(column),
        });
        prop::collection::btree_set(spot, 0..300)
    }

    proptest! {
        #[test]
        fn components_come_back_in_order(spots in spots()) {
            let all: Vec<Spot> = spots.into_iter().collect();
            prop_assert_eq!(decode(&encode(&all)).unwrap(), all);
        }

        #[test]
        fn what_decodes_is_what_would_be_encoded(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(spots) = decode(&bytes) {
                prop_assert_eq!(encode(&spots), bytes);
            }
        }

        #[test]
        fn a_file_is_its_chunk_and_its_low_byte(number: u64) {
            let all = FileId(number);
            prop_assert_eq!(file(of_file(all), low(all)), all);
        }
    }

    #[test]
    fn what_is_out_of_order_twice_or_of_no_column_is_damage() {
        for bytes in [&[2, 0, 1, 0][..], &[1, 0, 1, 0], &[1, 0x80], &[1], &[1, 0x41], &[1, 0x41, 0]] {
            assert!(decode(bytes).is_err(), "{bytes:02x?}");
        }
        let spot = Spot { low: 1, segment: 3, column: Column(2) };
        assert_eq!(encode(&[spot]), [1, 0x42, 3]);
    }
}
