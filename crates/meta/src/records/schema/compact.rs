//! Numbers in as few bytes as they need: seven bits in each byte, the lowest first. The highest bit of a byte
//! says that another byte follows. A number has one encoding: the shortest.

use braid_wire::DecodeError;

/// Maximum number of bytes of an encoded number.
const BYTES_MAX: usize = 10;

/// Appends a number's encoding to `out`.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Appends the difference of a number to another, in either direction: few bytes if they are near.
pub(super) fn put_near(out: &mut Vec<u8>, number: u64, other: u64) {
    let distance = number.wrapping_sub(other);
    put(out, (distance << 1) ^ all_if(distance >> 63 == 1));
}

/// Takes a number off the input.
pub(super) fn take(input: &mut &[u8], field: &'static str) -> Result<u64, DecodeError> {
    let mut number = 0u64;
    for at in 0..BYTES_MAX {
        let Some((&byte, rest)) = input.split_first() else {
            return Err(DecodeError::Truncated { field, needed: 1 });
        };
        *input = rest;
        let bits = u64::from(byte & 0x7f);
        let shifted = bits << (7 * at);
        if shifted >> (7 * at) != bits || at > 0 && byte == 0 {
            return Err(DecodeError::Value { field, value: u64::from(byte) });
        }
        number |= shifted;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(DecodeError::Value { field, value: number })
}

/// Takes a number of at most 32 bits off the input.
pub(super) fn take_u32(input: &mut &[u8], field: &'static str) -> Result<u32, DecodeError> {
    let value = take(input, field)?;
    u32::try_from(value).map_err(|_| DecodeError::Value { field, value })
}

/// Takes a number that [`put_near`] stored as its difference to `other`.
pub(super) fn take_near(input: &mut &[u8], other: u64, field: &'static str) -> Result<u64, DecodeError> {
    let folded = take(input, field)?;
    Ok(other.wrapping_add((folded >> 1) ^ all_if(folded & 1 == 1)))
}

fn all_if(set: bool) -> u64 {
    if set { u64::MAX } else { 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back_and_have_one_encoding(number: u64, shift in 0u32..64, other: u64) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            put_near(&mut bytes, number, other);
            let mut input = bytes.as_slice();
            prop_assert_eq!(take(&mut input, "f").unwrap(), number);
            prop_assert_eq!(take_near(&mut input, other, "f").unwrap(), number);
            prop_assert!(input.is_empty());
        }

        #[test]
        fn what_decodes_is_what_would_be_encoded(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut input = bytes.as_slice();
            if let Ok(number) = take(&mut input, "f") {
                let mut again = Vec::new();
                put(&mut again, number);
                prop_assert_eq!(&bytes[..bytes.len() - input.len()], again.as_slice());
            }
        }
    }

    #[test]
    fn near_numbers_take_one_byte() {
        for (number, other) in [(7, 8), (8, 7), (0, 0), (u64::MAX, 0), (0, u64::MAX)] {
            let mut bytes = Vec::new();
            put_near(&mut bytes, number, other);
            assert_eq!(bytes.len(), 1, "{number} beside {other}");
        }
    }
}
