//! The rate at which bytes arrive: the greatest of the last seconds, which is the link's if it was ever busy
//! in them, and the mean of about the last second.

use crate::{MILLISECOND, SAMPLE_NS, SECOND};

/// Seconds that the greatest rate is taken of.
const GREATEST_OVER: usize = 10;
/// The shortest time that a rate is measured over: shorter ones tell of bursts, not of the link.
const SPAN_MIN_NS: u64 = SAMPLE_NS / 2;
/// The fewest answers of the largest size: an answer counts as a whole when its last byte is there.
const ANSWERS_MIN: u64 = 4;
/// The longest time: what came in it is too little to matter.
const SPAN_MAX_NS: u64 = SECOND;
/// Time after which the mean begins anew; it is of this time or up to twice of it.
const MEAN_NS: u64 = 500 * MILLISECOND;

/// Measures the rate, in bytes a second.
#[derive(Debug, Default)]
pub struct Rate {
    /// Time and bytes so far of the last sample.
    last: Option<Mark>,
    /// By second, in turn: the greatest rate.
    greatest: [u64; GREATEST_OVER],
    /// The second of the newest entry of `greatest`.
    second: u64,
    /// Beginnings of the mean, the older first.
    means: Option<[Mark; 2]>,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    at: u64,
    bytes: u64,
}

impl Rate {
    /// All bytes that have arrived until now, in answers of at most `largest` bytes. Calls count as one until
    /// enough has come.
    pub fn handle_delivered(&mut self, now: u64, bytes: u64, largest: u64) {
        let mark = Mark { at: now, bytes };
        let Some(last) = self.last else {
            self.last = Some(mark);
            self.means = Some([mark; 2]);
            return;
        };
        let span = now.saturating_sub(last.at);
        let is_few = bytes.saturating_sub(last.bytes) < largest.saturating_mul(ANSWERS_MIN);
        if span < SPAN_MIN_NS || (is_few && span < SPAN_MAX_NS) {
            return;
        }
        self.last = Some(mark);
        let second = now / SECOND;
        let passed = usize::try_from(second.saturating_sub(self.second)).unwrap_or(usize::MAX);
        for step in 1..=passed.min(GREATEST_OVER) {
            self.greatest[index(self.second, step)] = 0;
        }
        self.second = second.max(self.second);
        let slot = &mut self.greatest[index(self.second, 0)];
        *slot = (*slot).max(per_second(bytes.saturating_sub(last.bytes), span));
        if let Some([older, newer]) = &mut self.means
            && now.saturating_sub(newer.at) >= MEAN_NS
        {
            (*older, *newer) = (*newer, mark);
        }
    }

    /// The greatest rate of the last seconds; 0 if it is unknown.
    pub fn greatest(&self) -> u64 {
        self.greatest.iter().copied().max().unwrap_or(0)
    }

    /// The mean rate of about the last second until the last sample.
    pub fn mean(&self) -> u64 {
        let Some(([older, _], last)) = self.means.zip(self.last) else { return 0 };
        per_second(last.bytes.saturating_sub(older.bytes), last.at.saturating_sub(older.at))
    }

    /// The mean begins anew at the last sample.
    pub fn restart_mean(&mut self) {
        self.means = self.last.map(|last| [last; 2]);
    }

    /// Time in which this many bytes arrive at the greatest rate; 0 if it is unknown.
    pub fn time_of(&self, bytes: u64) -> u64 {
        let time = (u128::from(bytes) * u128::from(SECOND)).checked_div(u128::from(self.greatest()));
        u64::try_from(time.unwrap_or(0)).unwrap_or(u64::MAX)
    }
}

fn index(second: u64, step: usize) -> usize {
    let of = u64::try_from(GREATEST_OVER).expect("it is small");
    (usize::try_from(second % of).expect("it is small") + step) % GREATEST_OVER
}

fn per_second(bytes: u64, span: u64) -> u64 {
    let rate = (u128::from(bytes) * u128::from(SECOND)).checked_div(u128::from(span));
    u64::try_from(rate.unwrap_or(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED_NS: u64 = 20 * MILLISECOND;

    #[test]
    fn the_greatest_rate_is_forgotten_after_ten_seconds_and_the_mean_after_one() {
        let mut rate = Rate::default();
        let mut bytes = 0;
        for step in 0..1000u64 {
            bytes += if step < 100 { 2000 } else { 1000 };
            rate.handle_delivered(step * MEASURED_NS, bytes, 0);
            if step == 99 {
                assert_eq!((rate.greatest(), rate.mean()), (100_000, 100_000));
            }
            if step == 200 {
                assert_eq!((rate.greatest(), rate.mean()), (100_000, 50_000));
            }
        }
        assert_eq!((rate.greatest(), rate.mean()), (50_000, 50_000));
        assert_eq!(rate.time_of(25_000), SECOND / 2);
    }

    #[test]
    fn nothing_is_known_at_first_and_time_may_stand_still() {
        let mut rate = Rate::default();
        assert_eq!((rate.greatest(), rate.mean(), rate.time_of(1)), (0, 0, 0));
        for _ in 0..3 {
            rate.handle_delivered(5, 100, 0);
        }
        assert_eq!((rate.greatest(), rate.mean()), (0, 0));
    }
}
