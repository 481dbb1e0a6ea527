//! A client's side of a promise: sends that are spread evenly.
//!
//! A program that writes a period's data at once would send it at once, and what is in front of the drive, a
//! switch or a socket, queues it where no scheduler sees it. So each reserved handle has a pacer: a request
//! of `b` bytes takes `b / rate`, and the next one goes after. A full period's data takes a period. A handle
//! that sent less than it might catches up, but by no more than its burst, which the drives' schedulers grant
//! too, and no more than a period.

use crate::tags::span_ns;

/// Times of the sends of one reserved handle.
#[derive(Debug, Clone, Copy)]
pub struct Pacer {
    rate: u64,
    /// Time that the handle may run ahead.
    ahead_ns: u64,
    /// Time up to which the rate is used.
    used: u64,
}

impl Pacer {
    /// A pacer for this many bytes a second. A rate of 0 is of no promise: it holds nothing back.
    pub fn new(rate: u64, burst: u64, period_ns: u64) -> Pacer {
        Pacer { rate, ahead_ns: span_ns(burst, rate).min(period_ns), used: 0 }
    }

    /// Time from which a request of this many bytes may be sent. It counts as sent.
    pub fn when(&mut self, now: u64, bytes: u64) -> u64 {
        if self.rate == 0 {
            return now;
        }
        let start = self.used.max(now.saturating_sub(self.ahead_ns));
        self.used = start.saturating_add(span_ns(bytes, self.rate));
        start.max(now)
    }

    /// Takes another rate. What is sent already keeps its times.
    pub fn set_rate(&mut self, rate: u64, burst: u64, period_ns: u64) {
        *self = Pacer { used: self.used, ..Pacer::new(rate, burst, period_ns) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::SECOND_NS;

    const MS: u64 = 1_000_000;

    /// 10 MB/s: 10 kB take a millisecond.
    fn pacer(burst: u64) -> Pacer {
        Pacer::new(10_000_000, burst, 100 * MS)
    }

    #[test]
    fn a_periods_data_is_spread_over_the_period() {
        let mut pacer = pacer(0);
        let sent: Vec<u64> = (0..10).map(|_| pacer.when(SECOND_NS, 100_000)).collect();
        let even: Vec<u64> = (0..10).map(|i| SECOND_NS + i * 10 * MS).collect();
        assert_eq!(sent, even);
        assert_eq!(pacer.when(SECOND_NS, 1), SECOND_NS + 100 * MS);
    }

    #[test]
    fn a_late_handle_catches_up_by_its_burst_or_a_period() {
        for (burst, together) in [(0, 1), (200_000, 3), (5_000_000, 11)] {
            let mut pacer = pacer(burst);
            pacer.when(0, 100_000);
            let late = 10 * SECOND_NS;
            let sent = (0..20).map(|_| pacer.when(late, 100_000)).filter(|at| *at == late).count();
            assert_eq!(sent, together, "burst {burst}");
        }
    }

    #[test]
    fn a_rate_changes_for_what_comes() {
        let mut pacer = pacer(0);
        assert_eq!(pacer.when(0, 100_000), 0);
        pacer.set_rate(20_000_000, 0, 100 * MS);
        assert_eq!(pacer.when(0, 100_000), 10 * MS);
        assert_eq!(pacer.when(0, 100_000), 15 * MS);
        pacer.set_rate(0, 0, 0);
        assert_eq!(pacer.when(7, 100_000), 7);
    }
}
