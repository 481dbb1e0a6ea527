//! The choice of the segment to clean.
//!
//! Cost-benefit (Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File System",
//! 1992, section 3.6): a segment with the share `u` of its bytes live costs `1 + u` to clean (read whole,
//! live part written) and yields `1 - u`, for about as long as it has already existed:
//! `(1 - u) * age / (1 + u)`. So cold segments are cleaned at a higher `u` than hot ones, in which more bytes
//! die if left alone.

/// A sealed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub number: u32,
    /// Bytes of the segment's file.
    pub bytes: u64,
    /// Bytes of it that are live.
    pub live: u64,
    /// Age of the segment, in sequence numbers: the store has no clock, and data ages by later writes.
    pub age: u64,
}

/// Cleaning is not worth it for less than this part of the victim.
const GAIN_PART: u64 = 32;

impl Candidate {
    /// Returns true if cleaning the segment frees enough.
    pub fn is_worth_it(&self) -> bool {
        self.bytes.saturating_sub(self.live) > self.bytes / GAIN_PART
    }

    /// `(1 - u) * age / (1 + u)`, a fraction with 16 binary places.
    fn score(&self) -> u128 {
        // Below 2^64 * 2^41 (a segment is below 2 TiB) * 2^16: no overflow.
        let gain = u128::from(self.bytes.saturating_sub(self.live)) << 16;
        gain * u128::from(self.age.max(1)) / u128::from(self.bytes.saturating_add(self.live).max(1))
    }
}

/// The best of `candidates` that is worth it.
pub fn choose(candidates: impl IntoIterator<Item = Candidate>) -> Option<Candidate> {
    candidates.into_iter().filter(Candidate::is_worth_it).max_by_key(|candidate| {
        // Among equals the lowest number, so that the choice does not depend on the order.
        (candidate.score(), std::cmp::Reverse(candidate.number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(candidates: &[(u64, u64)], expected: Option<u32>) {
        let candidates =
            (1..).zip(candidates).map(|(number, &(live, age))| Candidate { number, bytes: 100, live, age });
        assert_eq!(choose(candidates).map(|candidate| candidate.number), expected);
    }

    #[test]
    fn chooses() {
        check(&[], None);
        check(&[(100, 1000), (97, 1000)], None);
        check(&[(60, 10), (50, 10)], Some(2));
        // Cold and fuller before hot and emptier: 0.25 * 100 / 1.75 > 0.85 * 10 / 1.15.
        check(&[(75, 100), (15, 10)], Some(1));
        // Empty ones first, whatever their age, unless a very cold one is nearly as good.
        check(&[(75, 3), (0, 1)], Some(2));
        // A difference of one part in 2^16 still counts. Equals go by number.
        check(&[(96, 1), (96, 2), (96, 2)], Some(2));
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let old = Candidate { number: 1, bytes: 1 << 41, live: 0, age: u64::MAX };
        assert_eq!(choose([old]), Some(old));
        let odd = Candidate { number: 1, bytes: 0, live: 7, age: 0 };
        assert_eq!(choose([odd]), None);
    }
}
