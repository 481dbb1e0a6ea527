//! Random numbers: one stream for each source of randomness of a run, all from the run's seed.
//!
//! A part that draws more or fewer numbers does not change those of another part, so runs that differ in
//! one thing are comparable (common random numbers; Law, Simulation Modeling and Analysis, chapter 11). The
//! generator is xoshiro256++, by name, so that another release of a library gives the same numbers.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::number::real;

/// The numbers of one source.
#[derive(Debug, Clone)]
pub(crate) struct Stream(Xoshiro256PlusPlus);

/// A source of randomness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Times between the requests of a load.
    Arrivals(u32),
    /// Contents of a load's requests: client, file, offset, size, read or write.
    Requests(u32),
    /// Positioning times of a disk.
    Disk(u32),
}

impl Stream {
    /// The stream of a source in the run with this seed.
    pub(crate) fn new(seed: u64, source: Source) -> Stream {
        let number = match source {
            Source::Arrivals(load) => (1 << 32) | u64::from(load),
            Source::Requests(load) => (2 << 32) | u64::from(load),
            Source::Disk(disk) => (3 << 32) | u64::from(disk),
        };
        // An odd multiplier keeps the seeds of different sources apart; the generator's own seeding mixes.
        Stream(Xoshiro256PlusPlus::seed_from_u64(
            seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        ))
    }

    /// A uniform number, at least 0 and below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        real(self.0.next_u64() >> 11) * (-53_f64).exp2()
    }

    /// An exponential number with this mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// A uniform whole number below `bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The bias of a 64-bit product is below 2^-32 for the bounds of a simulation.
        let product = u128::from(self.0.next_u64()) * u128::from(bound);
        u64::try_from(product >> 64).expect("the upper half of a product of 64-bit numbers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_never_change() {
        let mut stream = Stream::new(1, Source::Disk(0));
        let drawn = [0; 4].map(|_| stream.below(1000));
        assert_eq!(drawn, [581, 126, 473, 768]);
        let mut other = Stream::new(1, Source::Disk(1));
        assert_ne!(drawn, [0; 4].map(|_| other.below(1000)));
    }

    #[test]
    fn the_means_are_those_asked_for() {
        let mut stream = Stream::new(7, Source::Arrivals(0));
        let draws = 200_000;
        let uniform: f64 = (0..draws).map(|_| stream.unit()).sum::<f64>() / f64::from(draws);
        let exponential: f64 = (0..draws).map(|_| stream.exponential(3.0)).sum::<f64>() / f64::from(draws);
        // Five standard errors.
        assert!((uniform - 0.5).abs() < 5.0 * 0.2887 / f64::from(draws).sqrt(), "{uniform}");
        assert!((exponential - 3.0).abs() < 5.0 * 3.0 / f64::from(draws).sqrt(), "{exponential}");
    }
}
