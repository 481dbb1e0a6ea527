//! Contents that jobs write, in which mistakes show: each word identifies its request, and its place in it.

/// An odd factor and its inverse: their product is 1 (modulo 2^64).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = 0xf1de_83e1_9937_733d;

/// Fills `into` with the bytes of request `number`.
pub(crate) fn fill(number: u64, into: &mut [u8]) {
    for (index, word) in (0_u64..).zip(into.chunks_mut(8)) {
        let bytes = word_of(number, index).to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
}

/// Returns true if `bytes` are those of request `number`.
pub(crate) fn is_filled(number: u64, bytes: &[u8]) -> bool {
    (0_u64..).zip(bytes.chunks(8)).all(|(index, word)| word_of(number, index).to_le_bytes().starts_with(word))
}

/// The number of the request that these bytes belong to, by their first and last words; `None` if they are
/// no request's.
pub(crate) fn number_of(bytes: &[u8]) -> Option<u64> {
    let first = bytes.first_chunk()?;
    let last = bytes.last_chunk()?;
    let word = u64::from_le_bytes(*first).wrapping_mul(INVERSE);
    let number = word >> 20;
    let last_index = u64::try_from(bytes.len() / 8).ok()? - 1;
    let is_whole = u64::from_le_bytes(*last) == word_of(number, last_index);
    (word & 0xf_ffff == 0 && is_whole).then_some(number)
}

fn word_of(number: u64, index: u64) -> u64 {
    (number << 20 | index).wrapping_mul(FACTOR)
}

/// A sequence of pseudo-random numbers (splitmix64), the same for the same seed.
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
    fn bytes_say_whose_they_are() {
        assert_eq!(FACTOR.wrapping_mul(INVERSE), 1);
        let mut bytes = [0; 4096];
        for number in [0, 5, 1 << 43] {
            fill(number, &mut bytes);
            assert_eq!(number_of(&bytes), Some(number));
        }
        bytes[4095] ^= 1;
        assert_eq!((number_of(&bytes), number_of(&bytes[8..]), number_of(&bytes[..4])), (None, None, None));
    }

    #[test]
    fn places_are_spread_and_inside() {
        let mut random = Random(1);
        let places: std::collections::BTreeSet<u64> = (0..100).map(|_| random.below(1 << 20)).collect();
        assert!(places.len() > 95 && places.iter().all(|&place| place < 1 << 20));
    }
}
