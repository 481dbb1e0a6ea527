//! Reservation tags: when a request of a promised rate may go before others, and when it is due.
//!
//! The clock of a flow with rate `R` is the time up to which its promise is used (`finish` below). A request
//! with charge `q` that arrived at `a` has
//!
//! ```text
//! start    = max(a, finish)        an idle flow banks nothing
//! eligible = start - burst / R     but its stated burst
//! due      = start + q / R
//! ```
//!
//! It may go in the reservation phase from `eligible` on, and then `finish` becomes `due`. `eligible` is
//! mClock's R tag (Gulati et al., OSDI 2010, section 3.1). Unlike there, requests that are eligible are
//! served in the order of `due`, not of the R tag: earliest deadline first, as in Virtual Clock (Zhang,
//! SIGCOMM 1990). So the burst of one flow never delays what is due earlier in another.
//!
//! Tags are computed when a request becomes the head of its flow, with the rate of that moment, but from the
//! time of its arrival: a flow that was held up catches up. (dmclock computed tags at arrival first, and
//! a wrong rate stuck to the whole queue: ceph/dmclock pull request 4.)

use crate::cost::SECOND_NS;

/// Time of this many bytes at this rate, in nanoseconds, rounded up. A rate of 0 counts as 1.
pub(crate) fn span_ns(bytes: u64, rate: u64) -> u64 {
    let rate = rate.max(1);
    match bytes.checked_mul(SECOND_NS) {
        Some(product) => product.div_ceil(rate),
        None => scaled(bytes, SECOND_NS, rate),
    }
}

/// `value * by / of` without overflow between, rounded up; `of` is not 0.
pub(crate) fn scaled(value: u64, by: u64, of: u64) -> u64 {
    match value.checked_mul(by) {
        Some(product) => product.div_ceil(of),
        None => {
            u64::try_from((u128::from(value) * u128::from(by)).div_ceil(u128::from(of))).unwrap_or(u64::MAX)
        }
    }
}

/// A promised rate and its price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Bytes a second; 0 promises nothing.
    pub(crate) rate: u64,
    pub(crate) burst: u64,
    pub(crate) operation_bytes: u64,
    /// Device time of an operation of `operation_bytes`.
    pub(crate) operation_ns: u64,
}

impl Rate {
    pub(crate) const NONE: Rate = Rate { rate: 0, burst: 0, operation_bytes: 0, operation_ns: 0 };

    /// Promise bytes that a request uses up: its bytes, or its device time in bytes of the operations that
    /// the rate was priced for, whichever is more. What costs the device nothing is not charged.
    pub(crate) fn charge(&self, bytes: u64, cost_ns: u64) -> u64 {
        if cost_ns == 0 && self.operation_ns > 0 {
            return 0;
        }
        if self.operation_ns == 0 {
            return bytes;
        }
        bytes.max(scaled(self.operation_bytes, cost_ns, self.operation_ns))
    }

    /// Time that the flow may run ahead.
    pub(crate) fn ahead_ns(&self) -> u64 {
        span_ns(self.burst, self.rate)
    }
}

/// Tags of the request at the head of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tags {
    pub(crate) eligible: u64,
    pub(crate) due: u64,
    /// Start of the stretch without idling that the request belongs to.
    origin: u64,
}

/// The clock of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Clock {
    /// Time up to which the promise is used.
    finish: u64,
    origin: u64,
}

impl Clock {
    /// Tags of a request that arrived then.
    pub(crate) fn tags(&self, rate: &Rate, arrival: u64, charge: u64) -> Tags {
        let start = arrival.max(self.finish);
        let origin = if arrival >= self.finish { arrival } else { self.origin };
        let eligible = start.saturating_sub(rate.ahead_ns());
        Tags { eligible, due: start.saturating_add(span_ns(charge, rate.rate)), origin }
    }

    /// The promise begins then, whenever what waits has come.
    pub(crate) fn begin(&mut self, at: u64) {
        *self = Clock { finish: self.finish.max(at), origin: at };
    }

    /// A request with these tags was served by right of the promise.
    pub(crate) fn serve(&mut self, tags: Tags) {
        *self = Clock { finish: tags.due, origin: tags.origin };
    }

    /// A request that was served with these tags cost another charge than was thought. If the flow was idle
    /// since, its clock has begun anew and nothing is to be mended.
    pub(crate) fn correct(&mut self, rate: &Rate, tags: Tags, charged: u64, actual: u64) {
        if tags.origin == self.origin && rate.rate > 0 {
            let moved = |clock: u64| {
                clock.saturating_add(span_ns(actual, rate.rate)).saturating_sub(span_ns(charged, rate.rate))
            };
            self.finish = moved(self.finish).max(self.origin);
        }
    }

    /// True if an idle flow with this clock is as one that was never seen.
    pub(crate) fn is_past(&self, now: u64) -> bool {
        self.finish <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 byte a nanosecond; operations of 1,000 bytes in 100 ns.
    const RATE: Rate = Rate { rate: SECOND_NS, burst: 500, operation_bytes: 1000, operation_ns: 100 };

    #[test]
    fn small_operations_use_up_the_promise_by_their_device_time() {
        for (bytes, cost_ns, charge) in
            [(1000, 100, 1000), (10, 50, 500), (4000, 150, 4000), (10, 0, 0), (0, 1, 10)]
        {
            assert_eq!(RATE.charge(bytes, cost_ns), charge, "{bytes} bytes in {cost_ns} ns");
        }
        assert_eq!(Rate::NONE.charge(7, 3), 7);
    }

    #[test]
    fn an_idle_flow_banks_its_burst_and_no_more() {
        let mut clock = Clock::default();
        let mut eligible = Vec::new();
        for _ in 0..3 {
            let tags = clock.tags(&RATE, 1_000_000, 400);
            eligible.push(tags.eligible);
            clock.serve(tags);
        }
        assert_eq!(eligible, [999_500, 999_900, 1_000_300]);
        assert!(!clock.is_past(1_001_199) && clock.is_past(1_001_200));
    }

    #[test]
    fn a_charge_is_given_back_unless_the_flow_was_idle_since() {
        let mut clock = Clock::default();
        let first = clock.tags(&RATE, 10_000, 400);
        clock.serve(first);
        let second = clock.tags(&RATE, 10_100, 400);
        clock.serve(second);
        clock.correct(&RATE, first, 400, 100);
        assert_eq!(clock.finish, 10_500);
        let later = clock.tags(&RATE, 20_000, 400);
        clock.serve(later);
        clock.correct(&RATE, second, 400, 0);
        assert_eq!(clock.finish, 20_400);
        clock.correct(&RATE, later, 400, 900);
        assert_eq!(clock.finish, 20_900);
    }

    #[test]
    fn times_do_not_overflow() {
        assert_eq!(span_ns(u64::MAX, 1), u64::MAX);
        assert_eq!(span_ns(u64::MAX, u64::MAX), SECOND_NS);
        assert_eq!(span_ns(0, 0), 0);
        let tags = Clock::default().tags(&RATE, u64::MAX, u64::MAX);
        assert_eq!(tags.due, u64::MAX);
    }
}
