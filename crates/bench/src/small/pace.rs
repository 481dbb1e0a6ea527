//! A fixed number of operations in flight: that many slots, each of which begins the next operation when
//! its last one has ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::error::{Doing, Error};

/// The limits of a sample, which ends at whichever is reached first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Seconds after which no operation begins; `None`: the number of operations alone counts.
    pub seconds: Option<f64>,
    /// Number of operations that begin.
    pub operations: u64,
}

/// The result of a job.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Operations that were begun, all of which have ended.
    pub operations: u64,
    /// Seconds from the beginning of the first operation to the end of the last one.
    pub seconds: f64,
    /// Median time of an operation, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the operations' times, in microseconds.
    pub p99_us: f64,
}

/// The source of the operations' numbers, from 0.
#[derive(Debug)]
pub(super) struct Turns {
    next: AtomicU64,
    operations: u64,
    began: Instant,
    end: Option<Instant>,
}

impl Turns {
    /// Starts the clock.
    pub(super) fn begin(limit: Limit) -> Turns {
        let began = Instant::now();
        let end = limit.seconds.map(|seconds| began + Duration::from_secs_f64(seconds));
        Turns { next: AtomicU64::new(0), operations: limit.operations, began, end }
    }

    /// The number of the next operation; `None`: the sample is over.
    pub(super) fn next(&self) -> Option<u64> {
        if self.end.is_some_and(|end| Instant::now() >= end) {
            return None;
        }
        // A number that is taken is an operation that is begun: the operations done are those below the
        // last number.
        let take = |number: u64| (number < self.operations).then_some(number + 1);
        self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()
    }

    /// Waits for all slots, each of which returns the times of its operations. The first error ends them
    /// all.
    pub(super) async fn end(&self, mut slots: JoinSet<Result<Vec<Duration>, Error>>) -> Result<Done, Error> {
        let mut took = Vec::new();
        while let Some(ended) = slots.join_next().await {
            took.extend(ended.map_err(std::io::Error::other).doing("run an operation")??);
        }
        let seconds = self.began.elapsed().as_secs_f64();
        took.sort_unstable();
        Ok(Done {
            operations: u64::try_from(took.len()).unwrap_or(u64::MAX),
            seconds,
            p50_us: percentile(&took, 50),
            p99_us: percentile(&took, 99),
        })
    }
}

/// The value at the nearest rank, in microseconds; zero if there is none.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map_or(0.0, |took| took.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let took: Vec<Duration> = (1..=200).map(Duration::from_micros).collect();
        assert_eq!((percentile(&took, 50).round(), percentile(&took, 99).round()), (100.0, 198.0));
        assert_eq!(percentile(&took[..1], 99).round(), 1.0);
        assert_eq!(percentile(&[], 50), 0.0);
    }

    #[test]
    fn numbers_are_handed_out_once_up_to_the_limit() {
        let turns = Turns::begin(Limit { seconds: None, operations: 3 });
        let taken: Vec<u64> = std::iter::from_fn(|| turns.next()).collect();
        assert_eq!((taken.as_slice(), turns.next()), ([0, 1, 2].as_slice(), None));
        let over = Turns::begin(Limit { seconds: Some(0.0), operations: 3 });
        assert_eq!(over.next(), None);
    }
}
