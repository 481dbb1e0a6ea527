//! Progress and rate limit of heals.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Burst of the rate limit: a heal that was idle may write at once what it could have written in this time.
const BURST: Duration = Duration::from_millis(250);

/// Counts of a drive's heals, and their common rate.
#[derive(Debug, Default)]
pub struct HealTally {
    compared_bytes: AtomicU64,
    under_way_bytes: AtomicU64,
    written_bytes: AtomicU64,
    pace: Mutex<Pace>,
}

impl HealTally {
    /// Bytes of units that were compared.
    pub fn compared_bytes(&self) -> u64 {
        self.compared_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of units that were compared, of columns that are not ready yet.
    pub fn under_way_bytes(&self) -> u64 {
        self.under_way_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of units that were written.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Sets the bytes a second that may be written from now on; 0: no limit.
    pub fn set_rate(&self, rate: u64) {
        self.pace().rate = rate;
    }

    /// The tally of one comparison of a file, which counts as under way until it is dropped.
    pub(super) fn comparison(&self) -> ComparisonTally<'_> {
        ComparisonTally { all: self, under_way: Some(AtomicU64::new(0)) }
    }

    /// The tally of work on a file that brings no stale column up to date.
    pub(super) fn other_work(&self) -> ComparisonTally<'_> {
        ComparisonTally { all: self, under_way: None }
    }

    fn compared(&self, bytes: u64) {
        self.compared_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Waits until `bytes` more bytes may be written.
    async fn take(&self, bytes: u64) {
        let wait = self.pace().take(bytes, Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    fn pace(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.pace.lock().expect("no holder panics")
    }
}

/// Counts for one file, which are counts of the drive too.
#[derive(Debug)]
pub(super) struct ComparisonTally<'a> {
    all: &'a HealTally,
    under_way: Option<AtomicU64>,
}

impl ComparisonTally<'_> {
    pub(super) fn compared(&self, bytes: u64) {
        self.all.compared(bytes);
        if let Some(own) = &self.under_way {
            own.fetch_add(bytes, Ordering::Relaxed);
            self.all.under_way_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn written(&self, bytes: u64) {
        self.all.written(bytes);
    }

    /// Waits until `bytes` more bytes may be written.
    pub(super) async fn take(&self, bytes: u64) {
        self.all.take(bytes).await;
    }
}

impl Drop for ComparisonTally<'_> {
    fn drop(&mut self) {
        if let Some(own) = &mut self.under_way {
            self.all.under_way_bytes.fetch_sub(*own.get_mut(), Ordering::Relaxed);
        }
    }
}

/// A rate. Pure: time is a parameter.
#[derive(Debug, Default)]
struct Pace {
    /// Bytes a second; 0: no limit.
    rate: u64,
    /// Time at which the bytes granted so far will have been written at this rate.
    busy_until: Option<Instant>,
}

impl Pace {
    /// Grants `bytes` bytes. Returns the time to wait before they are written.
    fn take(&mut self, bytes: u64, now: Instant) -> Duration {
        if self.rate == 0 {
            self.busy_until = None;
            return Duration::ZERO;
        }
        let begin = self.busy_until.map_or(now, |until| until.max(now.checked_sub(BURST).unwrap_or(now)));
        let micros = u128::from(bytes) * 1_000_000 / u128::from(self.rate);
        self.busy_until = Some(begin + Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)));
        begin.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compared_is_under_way_until_the_comparison_ends() {
        let tally = HealTally::default();
        let first = tally.comparison();
        let second = tally.comparison();
        first.compared(100);
        second.compared(20);
        tally.other_work().compared(3);
        assert_eq!((tally.compared_bytes(), tally.under_way_bytes()), (123, 120));
        drop(first);
        assert_eq!((tally.compared_bytes(), tally.under_way_bytes()), (123, 20));
    }

    #[test]
    fn a_rate_spaces_what_is_written_and_can_be_changed() {
        let start = Instant::now();
        let mut pace = Pace { rate: 1000, busy_until: None };
        let seconds = |at: f64| start + Duration::from_secs_f64(at);
        assert_eq!(pace.take(500, start), Duration::ZERO);
        assert_eq!(pace.take(500, start), Duration::from_millis(500));
        assert_eq!(pace.take(500, seconds(0.5)), Duration::from_millis(500));
        // After a pause it begins a little early, not by all that it has missed.
        assert_eq!(pace.take(250, seconds(60.0)), Duration::ZERO);
        assert_eq!(pace.take(250, seconds(60.0)), Duration::ZERO);
        assert_eq!(pace.take(250, seconds(60.0)), Duration::from_millis(250));
        pace.rate = 0;
        assert_eq!(pace.take(u64::MAX, seconds(60.0)), Duration::ZERO);
    }
}
