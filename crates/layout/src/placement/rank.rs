//! A drive's rank for a file: a draw of an exponentially distributed number, in integers only.
//!
//! The draw of a drive of weight `w` is `-log2(u) / w`, where `u` is a hash of drive and seed, uniform in
//! 0..1; the smallest draw comes first. So each drive comes first with a probability proportional to its
//! weight, and a drive's draw depends on no other drive. Two draws `e1 / w1` and `e2 / w2` are compared
//! exactly, as `e1 * w2` and `e2 * w1`. The logarithm is computed bit by bit with integer squarings:
//! mathematics libraries may differ between builds in the last bit, and two managers would then disagree on
//! where a file belongs.

use std::cmp::Ordering;

use crate::DriveId;

/// Purpose of a hash: each gives an independent number for a drive and seed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Use {
    /// The draw by which drives are chosen.
    Draw = 1,
    /// The order of the chosen drives.
    Column = 2,
}

/// A drive's draw for one seed; the lowest comes first. Equal draws, which hardly occur, are ordered by the
/// drive's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rank {
    exponent: u64,
    weight: u32,
    drive: DriveId,
}

/// Bits of the logarithm after the binary point.
const FRACTION_BITS: u32 = 48;

impl Rank {
    /// The rank of a drive of `weight`, which is not zero.
    pub(super) fn new(drive: DriveId, weight: u32, seed: u64) -> Rank {
        Rank { exponent: negative_log2(hash(drive, seed, Use::Draw)), weight, drive }
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Rank) -> Ordering {
        let own = u128::from(self.exponent) * u128::from(other.weight);
        let others = u128::from(other.exponent) * u128::from(self.weight);
        own.cmp(&others).then(self.drive.cmp(&other.drive))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Rank) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A number for a drive and a seed, uniform over 64 bits: `mix(mix(mix(seed + use * G) ^ low) ^ high)`, where
/// `low` and `high` are the halves of the drive's number, `G` is 2^64 divided by the golden ratio, and `+`
/// and `*` wrap.
pub(super) fn hash(drive: DriveId, seed: u64, use_: Use) -> u64 {
    let [low, high] = halves(drive.0);
    mix(mix(mix(seed.wrapping_add((use_ as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))) ^ low) ^ high)
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014; constants by Stafford).
fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// `-log2((hash + 1/2) / 2^64)`, rounded up to a multiple of 2^-48: from 2^-48 to 65, counted in 2^-48.
fn negative_log2(hash: u64) -> u64 {
    let odd = u128::from(hash) << 1 | 1;
    let mut log = u64::from(odd.ilog2());
    // From 1 to 2, exclusive, with 63 bits after the point.
    let [_, mut mantissa] = halves(odd << (127 - odd.ilog2()));
    for _ in 0..FRACTION_BITS {
        // Squaring doubles the logarithm: the carry past 2 is its next bit.
        let square = u128::from(mantissa) * u128::from(mantissa);
        let carry = square >> 127 != 0;
        log = log << 1 | u64::from(carry);
        [_, mantissa] = halves(if carry { square } else { square << 1 });
    }
    (65 << FRACTION_BITS) - log
}

/// The low and the high 64 bits.
fn halves(wide: u128) -> [u64; 2] {
    let bytes = wide.to_le_bytes();
    let (halves, _) = bytes.as_chunks::<8>();
    [u64::from_le_bytes(halves[0]), u64::from_le_bytes(halves[1])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_low_and_high() {
        assert_eq!(halves(3 << 64 | 7), [7, 3]);
    }

    #[test]
    fn the_mix_is_splitmix64() {
        // The first outputs of SplitMix64 seeded with 1234567, as published with it.
        let outputs =
            (1..=3).map(|i: u64| mix(1_234_567u64.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
        assert_eq!(
            outputs.collect::<Vec<_>>(),
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn the_logarithm_is_the_logarithm() {
        let one = (1u64 << FRACTION_BITS) as f64;
        let mut hash = 1;
        for _ in 0..10_000 {
            hash = mix(hash);
            for hash in [hash, hash >> 40, u64::MAX - (hash >> 20)] {
                let expected = 64.0 - (hash as f64 + 0.5).log2();
                let found = negative_log2(hash) as f64 / one;
                assert!(
                    (found - expected).abs() < 1e-12 * expected.max(1.0),
                    "{hash}: {found}, not {expected}"
                );
            }
        }
        assert_eq!(negative_log2(0), 65 << FRACTION_BITS);
        assert_eq!(negative_log2(u64::MAX), 1, "never zero, or weight would not matter");
    }

    #[test]
    fn a_known_logarithm_to_all_its_bits() {
        // 2 - log2(3) = 0.41503749927884381854..., and 2^48 times that is 116822670443561.47.
        assert_eq!(negative_log2(3 << 62), 116_822_670_443_562);
    }

    #[test]
    fn the_logarithm_falls() {
        let mut hash = 99;
        for _ in 0..10_000 {
            hash = mix(hash);
            let other = mix(hash);
            assert!(negative_log2(hash.max(other)) <= negative_log2(hash.min(other)));
        }
    }
}
