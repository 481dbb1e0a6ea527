//! The use of a part: integrals over time of the busy places and of the waiting jobs.

use crate::number::real;

/// The integrals since the last reset.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    since: u64,
    last: u64,
    busy: u32,
    waiting: u32,
    busy_ns: f64,
    waiting_ns: f64,
    waiting_max: u32,
    pub(crate) served: u64,
    /// Jobs that found no place to wait.
    pub(crate) refused: u64,
}

impl Usage {
    /// Notes the busy places and the waiting jobs from now on.
    pub(crate) fn note(&mut self, now: u64, busy: u32, waiting: u32) {
        self.advance(now);
        self.busy = busy;
        self.waiting = waiting;
        self.waiting_max = self.waiting_max.max(waiting);
    }

    fn advance(&mut self, now: u64) {
        let passed = now - self.last;
        self.busy_ns += real(passed) * f64::from(self.busy);
        self.waiting_ns += real(passed) * f64::from(self.waiting);
        self.last = now;
    }

    /// Counts busy time of a job that was served at once, for example from a bucket.
    pub(crate) fn add_busy(&mut self, ns: u64) {
        self.busy_ns += real(ns);
    }

    /// Forgets the use up to now.
    pub(crate) fn reset(&mut self, now: u64) {
        let busy = self.busy;
        let waiting = self.waiting;
        *self = Usage { since: now, last: now, busy, waiting, waiting_max: waiting, ..Usage::default() };
    }

    /// Share of `lanes` places that was busy, from 0 to 1.
    pub(crate) fn utilisation(&mut self, now: u64, lanes: u32) -> f64 {
        self.advance(now);
        let whole = real(now - self.since) * f64::from(lanes);
        if whole > 0.0 { (self.busy_ns / whole).min(1.0) } else { 0.0 }
    }

    /// Mean and greatest number of jobs that waited.
    pub(crate) fn queue(&mut self, now: u64) -> (f64, u32) {
        self.advance(now);
        let whole = real(now - self.since);
        (if whole > 0.0 { self.waiting_ns / whole } else { 0.0 }, self.waiting_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_since_the_reset() {
        let mut usage = Usage::default();
        usage.note(0, 2, 3);
        usage.reset(10);
        usage.note(20, 1, 0);
        assert_eq!(usage.utilisation(30, 2), 0.75);
        assert_eq!(usage.queue(30), (1.5, 3));
    }
}
