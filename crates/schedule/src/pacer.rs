//! A client's side of a promise: sends that are spread evenly.
//!
//! A program that writes a period's data at once would send it at once, and what is in front of the drive, a
//! switch or a socket, queues it where no scheduler sees it. So each reserved handle has a pacer: a request
//! of `b` bytes takes `b / rate`, and the next one goes after. A full period's data takes a period.
//!
//! A handle that asked for less than it might catches up, but by no more than its burst, which the drives'
//! schedulers grant too, and no more than a period. Time in which requests of it were under way is never
//! lost: if the drives held them up, as when one of them dies, what gathered meanwhile goes as fast as they
//! take it. What is beyond the rate is shaped there, where all that competes is seen, and not here.

use crate::tags::span_ns;

/// Times of the sends of one reserved handle.
#[derive(Debug, Clone, Copy)]
pub struct Pacer {
    rate: u64,
    /// Time that the handle may run ahead.
    ahead_ns: u64,
    /// Time up to which the rate is used.
    used: u64,
    /// Number of requests under way.
    under_way: u64,
    /// Time at which the last request ended that was under way.
    ended: u64,
}

impl Pacer {
    /// A pacer for this many bytes a second. A rate of 0 is of no promise: it holds nothing back.
    pub fn new(rate: u64, burst: u64, period_ns: u64) -> Pacer {
        Pacer { rate, ahead_ns: span_ns(burst, rate).min(period_ns), used: 0, under_way: 0, ended: 0 }
    }

    /// Time from which a request of this many bytes may be sent. It counts as sent, and as under way until
    /// [`Pacer::ended`].
    pub fn when(&mut self, now: u64, bytes: u64) -> u64 {
        if self.rate == 0 {
            return now;
        }
        if self.under_way == 0 {
            let idle = now.saturating_sub(self.used.max(self.ended));
            self.used = self.used.saturating_add(idle.saturating_sub(self.ahead_ns));
        }
        self.under_way += 1;
        let start = self.used;
        self.used = start.saturating_add(span_ns(bytes, self.rate));
        start.max(now)
    }

    /// A request has ended, in one way or another.
    pub fn ended(&mut self, now: u64) {
        self.under_way = self.under_way.saturating_sub(1);
        self.ended = self.ended.max(now);
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
    fn a_handle_that_was_idle_catches_up_by_its_burst_or_a_period() {
        for (burst, together) in [(0, 1), (200_000, 3), (5_000_000, 11)] {
            let mut pacer = pacer(burst);
            pacer.when(0, 100_000);
            pacer.ended(0);
            let late = 10 * SECOND_NS;
            let sent = (0..20).map(|_| pacer.when(late, 100_000)).filter(|at| *at == late).count();
            assert_eq!(sent, together, "burst {burst}");
        }
    }

    #[test]
    fn a_handle_that_was_held_up_catches_up_by_all_that_gathered() {
        // It waits for its one request for a second: 100 others might have gone.
        let mut pacer = pacer(0);
        assert_eq!(pacer.when(0, 100_000), 0);
        pacer.ended(SECOND_NS);
        let mut at_once = 0;
        while pacer.when(SECOND_NS, 100_000) == SECOND_NS {
            pacer.ended(SECOND_NS);
            at_once += 1;
        }
        assert_eq!(at_once, 100);
        // Once it has caught up it is paced again, and what was under way when it was idle counts no more.
        pacer.ended(SECOND_NS);
        assert_eq!(pacer.when(9 * SECOND_NS, 100_000), 9 * SECOND_NS);
        assert_eq!(pacer.when(9 * SECOND_NS, 100_000), 9 * SECOND_NS + 10 * MS);
    }

    #[test]
    fn time_before_and_after_a_request_is_idle() {
        let mut pacer = pacer(0);
        assert_eq!(pacer.when(SECOND_NS, 100_000), SECOND_NS);
        pacer.ended(SECOND_NS + 500 * MS);
        // It was held up for half a second, and then idle for another.
        let sent = (0..60).map(|_| pacer.when(2 * SECOND_NS, 100_000));
        assert_eq!(sent.filter(|at| *at == 2 * SECOND_NS).count(), 50);
    }

    #[test]
    fn without_a_rate_nothing_is_held_back() {
        let mut pacer = Pacer::new(0, 0, 0);
        assert_eq!([pacer.when(7, 100_000), pacer.when(7, 100_000)], [7, 7]);
    }
}
