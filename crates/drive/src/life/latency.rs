//! Latencies of requests: a histogram of the last minute or two, of fixed size. Pure: time is a parameter.
//!
//! Each power of two has four buckets of the same width. A figure is the end of its bucket, so it is at most
//! a quarter too high. Two windows take turns, and figures cover both: once a minute has passed, they never
//! cover less than a minute.

use braid_wire::control::Latency;

use crate::life::clock::Moment;

/// The length of a window, in milliseconds.
const WINDOW_MS: u64 = 60_000;
/// Buckets per power of two.
const PARTS: u64 = 4;
/// Number of buckets. They reach up to 2^34 microseconds; longer times count in the last one.
const BUCKETS: usize = 34 * 4;

#[derive(Debug)]
pub(crate) struct Latencies {
    /// The present window, and the one before.
    windows: [[u32; BUCKETS]; 2],
    began: Moment,
}

impl Latencies {
    pub(crate) fn new(now: Moment) -> Latencies {
        Latencies { windows: [[0; BUCKETS]; 2], began: now }
    }

    /// Counts a request that took `took_us` microseconds.
    pub(crate) fn note(&mut self, took_us: u64, now: Moment) {
        self.turn(now);
        let count = &mut self.windows[0][bucket(took_us)];
        *count = count.saturating_add(1);
    }

    /// Count and percentiles of the last minute or two.
    pub(crate) fn figures(&mut self, now: Moment) -> Latency {
        self.turn(now);
        let counts = self.windows[0].iter().zip(&self.windows[1]).map(|(a, b)| u64::from(*a) + u64::from(*b));
        let counts: Vec<u64> = counts.collect();
        let count: u64 = counts.iter().sum();
        Latency {
            count,
            p50_us: below(&counts, count.div_ceil(2)),
            p99_us: below(&counts, count - count / 100),
        }
    }

    fn turn(&mut self, now: Moment) {
        let passed = now.since(self.began) / WINDOW_MS;
        if passed == 0 {
            return;
        }
        self.windows[1] = if passed == 1 { self.windows[0] } else { [0; BUCKETS] };
        (self.windows[0], self.began) = ([0; BUCKETS], Moment(self.began.0 + passed * WINDOW_MS));
    }
}

fn bucket(took_us: u64) -> usize {
    let took_us = took_us.max(1);
    let power = u64::from(took_us.ilog2());
    // The two bits below the highest.
    let part = (took_us << 2 >> power) & (PARTS - 1);
    usize::try_from(power * PARTS + part).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// End of the bucket that has the request of this rank, in microseconds; 0 if there was no such request.
fn below(counts: &[u64], rank: u64) -> u64 {
    let mut seen = 0;
    for (at, count) in (0u64..).zip(counts) {
        seen += count;
        if seen >= rank && rank > 0 {
            return (PARTS + at % PARTS + 1) << (at / PARTS) >> 2;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_near_and_forget() {
        let mut latencies = Latencies::new(Moment(5));
        assert_eq!(latencies.figures(Moment(5)), Latency::default());
        (0..1000).for_each(|_| latencies.note(100, Moment(10)));
        (0..30).for_each(|_| latencies.note(50_000, Moment(20)));
        let figures = latencies.figures(Moment(WINDOW_MS + 10));
        assert_eq!(figures.count, 1030);
        assert!((100..=125).contains(&figures.p50_us), "{figures:?}");
        assert!((50_000..=62_500).contains(&figures.p99_us), "{figures:?}");
        assert_eq!(latencies.figures(Moment(3 * WINDOW_MS)), Latency::default());
    }

    #[test]
    fn every_time_is_in_a_bucket_that_ends_above_it() {
        for took in (0..40).map(|power| 1u64 << power).flat_map(|power| [power, power + power / 3]) {
            let mut counts = vec![0; BUCKETS];
            counts[bucket(took)] = 1;
            let end = below(&counts, 1);
            assert!(took >= 1 << 34 || (took <= end && end <= took + took / 4 + 2), "{took} {end}");
        }
    }
}
