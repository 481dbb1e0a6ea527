//! The bytes that jobs write, and by which a mistake shows: each word says to which request it belongs, and
//! where in it.

/// Fills `into` with the bytes of request `number`.
pub(crate) fn fill(number: u64, into: &mut [u8]) {
    for (index, word) in (0_u64..).zip(into.chunks_mut(8)) {
        let bytes = word_of(number, index).to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
}

/// Whether `bytes` are those of request `number`.
pub(crate) fn is_filled(number: u64, bytes: &[u8]) -> bool {
    (0_u64..).zip(bytes.chunks(8)).all(|(index, word)| word_of(number, index).to_le_bytes().starts_with(word))
}

fn word_of(number: u64, index: u64) -> u64 {
    (number << 20 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A sequence of numbers that look random (splitmix64), the same for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misplaced_byte_is_seen() {
        let mut bytes = [0; 37];
        fill(5, &mut bytes);
        assert!(is_filled(5, &bytes));
        assert!(!is_filled(6, &bytes) && !is_filled(5, &bytes[8..]));
        bytes[36] ^= 1;
        assert!(!is_filled(5, &bytes));
    }

    #[test]
    fn places_are_spread_and_inside() {
        let mut random = Random(1);
        let places: std::collections::BTreeSet<u64> = (0..100).map(|_| random.below(1 << 20)).collect();
        assert!(places.len() > 95 && places.iter().all(|&place| place < 1 << 20));
    }
}
