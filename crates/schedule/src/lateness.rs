//! A client's account of a promise: what was due, and what was late.
//!
//! A request of `b` bytes that arrives at `a` is due at `max(a, due of the one before) + b / rate`, and late
//! if it is done after that and the bound on lateness that admission told. A period is late if a request that
//! was due in it is late. Periods count from the first arrival; what is due at the end of a period belongs to
//! it.
//!
//! When a drive dies, there is one pause, whose longest time admission told too. From when the client meets
//! the loss until it has caught up, a request is late if it is done after the bound *and* that pause. One
//! that is done after the bound, but within both, counts apart: its period is paused, not late. The client
//! has caught up when a request that arrived after the loss is done within the bound, and at the latest after
//! ten times the pause, whether it has or not.

use crate::cost::SECOND_NS;
use crate::tags::{scaled, span_ns};

/// A pause ends at the latest after this many times its stated length.
const PAUSES_MAX: u64 = 10;

/// Late periods whose number is this far behind the newest one are counted for each late request.
const REMEMBERED: u64 = 64;

/// Account of one reserved handle.
#[derive(Debug, Clone)]
pub struct Lateness {
    rate: u64,
    period_ns: u64,
    bound_ns: u64,
    /// Time of the first arrival.
    began: Option<u64>,
    /// Due time of the last arrival.
    due: u64,
    /// Time at which a request was done last.
    ended: u64,
    bytes: u64,
    worst_ns: u64,
    late: Marked,
    /// The stated length of a pause; 0: no loss is survived.
    failover_ns: u64,
    /// Time of the last loss, until it is overcome.
    lost: Option<u64>,
    paused: Marked,
    paused_worst_ns: u64,
}

/// Periods that are counted once each.
#[derive(Debug, Clone, Default)]
struct Marked {
    count: u64,
    /// Newest period, and by bits which of those before it are counted.
    newest: u64,
    bits: u64,
}

/// A request whose time runs.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    pub arrived_ns: u64,
    pub due_ns: u64,
    pub bytes: u64,
    /// Number of the period that the request is due in, from 0.
    pub period: u64,
}

/// A request that was late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late {
    pub period: u64,
    /// Time from the due time until it was done.
    pub lateness_ns: u64,
    /// True if it is the first late request of its period.
    pub is_first: bool,
}

/// Sum of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    pub bytes: u64,
    /// Bytes a second from the first arrival to the last end.
    pub rate: u64,
    /// Periods in which something was due.
    pub periods: u64,
    pub periods_late: u64,
    /// Largest time from a due time until the request was done, but for pauses.
    pub worst_ns: u64,
    /// Periods in which something was late by a loss, within the stated pause; not among the late ones.
    pub periods_paused: u64,
    /// Largest time from the due time of such a request until it was done.
    pub paused_worst_ns: u64,
    /// Time that the worst was within the bound; negative if it was beyond.
    pub margin_ns: i64,
}

impl Lateness {
    /// An account for this many bytes a second, with the bound on lateness of the admission.
    pub fn new(rate: u64, period_ns: u64, bound_ns: u64) -> Lateness {
        Lateness::with_failover(rate, period_ns, bound_ns, 0)
    }

    /// The same, with the stated length of the pause at a loss.
    pub fn with_failover(rate: u64, period_ns: u64, bound_ns: u64, failover_ns: u64) -> Lateness {
        Lateness {
            rate,
            period_ns: period_ns.max(1),
            bound_ns,
            began: None,
            due: 0,
            ended: 0,
            bytes: 0,
            worst_ns: 0,
            late: Marked::default(),
            failover_ns,
            lost: None,
            paused: Marked::default(),
            paused_worst_ns: 0,
        }
    }

    /// A drive was lost: its pause begins. The caller says so once for each drive.
    pub fn lost(&mut self, now: u64) {
        if self.failover_ns > 0 {
            self.lost = Some(now);
        }
    }

    /// A request arrives.
    pub fn arrived(&mut self, now: u64, bytes: u64) -> Due {
        let began = *self.began.get_or_insert(now);
        self.due = self.due.max(now).saturating_add(span_ns(bytes, self.rate));
        Due { arrived_ns: now, due_ns: self.due, bytes, period: self.period(began, self.due) }
    }

    /// A request is done. Returns it if it was late.
    pub fn done(&mut self, now: u64, due: Due) -> Option<Late> {
        self.ended = self.ended.max(now);
        self.bytes += due.bytes;
        self.given_up(now, due)
    }

    /// A request has failed or was given up: its bytes are not there. Returns it if it was late by then.
    pub fn given_up(&mut self, now: u64, due: Due) -> Option<Late> {
        let lateness_ns = now.saturating_sub(due.due_ns);
        let is_late = lateness_ns > self.bound_ns;
        if let Some(lost) = self.lost {
            let is_over = now > lost.saturating_add(self.failover_ns.saturating_mul(PAUSES_MAX));
            if is_over || !is_late && due.arrived_ns > lost {
                self.lost = None;
            } else if is_late && lateness_ns <= self.bound_ns.saturating_add(self.failover_ns) {
                self.paused.mark(due.period);
                self.paused_worst_ns = self.paused_worst_ns.max(lateness_ns);
                return None;
            }
        }
        self.worst_ns = self.worst_ns.max(lateness_ns);
        is_late.then(|| {
            let period = due.period;
            Late { period, lateness_ns, is_first: self.late.mark(period) }
        })
    }

    pub fn delivered(&self) -> Delivered {
        let began = self.began.unwrap_or(0);
        let time_ns = self.ended.saturating_sub(began);
        let signed = |time_ns| i64::try_from(time_ns).unwrap_or(i64::MAX);
        Delivered {
            bytes: self.bytes,
            rate: if time_ns == 0 { 0 } else { scaled(self.bytes, SECOND_NS, time_ns) },
            periods: self.began.map_or(0, |began| self.period(began, self.due) + 1),
            periods_late: self.late.count,
            worst_ns: self.worst_ns,
            periods_paused: self.paused.count,
            paused_worst_ns: self.paused_worst_ns,
            margin_ns: signed(self.bound_ns).saturating_sub(signed(self.worst_ns)),
        }
    }

    fn period(&self, began: u64, due: u64) -> u64 {
        due.saturating_sub(began).saturating_sub(1) / self.period_ns
    }
}

impl Marked {
    /// Counts a period; returns true if it was not counted yet.
    fn mark(&mut self, period: u64) -> bool {
        let is_first = if self.bits == 0 || period > self.newest {
            let passed = u32::try_from(period.saturating_sub(self.newest)).unwrap_or(u32::MAX);
            self.bits = self.bits.checked_shl(passed).unwrap_or(0) | 1;
            self.newest = period;
            true
        } else {
            let back = self.newest - period;
            let bit = if back < REMEMBERED { 1 << back } else { 0 };
            let is_new = self.bits & bit == 0;
            self.bits |= bit;
            is_new
        };
        self.count += u64::from(is_first);
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// 10 MB/s in periods of 100 ms, 20 ms late at most.
    fn account() -> Lateness {
        Lateness::new(10_000_000, 100 * MS, 20 * MS)
    }

    #[test]
    fn requests_are_due_at_the_rate() {
        let mut account = account();
        let due: Vec<Due> = [5, 5, 5, 500].map(|at| account.arrived(at * MS, 500_000)).to_vec();
        let expected = [(55, 0), (105, 0), (155, 1), (550, 5)];
        for (due, (at, period)) in due.iter().zip(expected) {
            assert_eq!((due.due_ns, due.period), (at * MS, period));
        }
    }

    #[test]
    fn a_period_is_late_once() {
        let mut account = account();
        let due: Vec<Due> = (0..6).map(|_| account.arrived(0, 500_000)).collect();
        let late: Vec<Option<Late>> = [70, 121, 171, 200, 250, 400]
            .iter()
            .zip(&due)
            .map(|(at, due)| account.done(at * MS, *due))
            .collect();
        let of = |period, lateness_ns, is_first| Some(Late { period, lateness_ns, is_first });
        let expected = [None, of(0, 21 * MS, true), of(1, 21 * MS, true), None, None, of(2, 100 * MS, true)];
        assert_eq!(late, expected);
        assert_eq!(account.done(500 * MS, due[0]), of(0, 450 * MS, false));
        let delivered = account.delivered();
        let expected = Delivered {
            bytes: 3_500_000,
            rate: 7_000_000,
            periods: 3,
            periods_late: 3,
            worst_ns: 450 * MS,
            periods_paused: 0,
            paused_worst_ns: 0,
            margin_ns: -430_000_000,
        };
        assert_eq!(delivered, expected);
    }

    #[test]
    fn an_account_that_keeps_its_promise_has_a_margin() {
        let mut account = account();
        assert_eq!(account.delivered().rate, 0);
        for i in 0..100 {
            let due = account.arrived(i * 50 * MS, 500_000);
            assert_eq!(account.done(i * 50 * MS + 65 * MS, due), None);
        }
        let delivered = account.delivered();
        assert_eq!((delivered.periods, delivered.periods_late), (50, 0));
        assert_eq!((delivered.worst_ns, delivered.margin_ns), (15 * MS, 5_000_000));
    }

    #[test]
    fn a_request_that_fails_after_its_time_is_late_and_delivers_nothing() {
        let mut account = account();
        let due = [account.arrived(0, 500_000), account.arrived(0, 500_000)];
        assert_eq!(account.given_up(60 * MS, due[0]), None);
        let late = account.given_up(200 * MS, due[1]).map(|late| (late.period, late.lateness_ns));
        assert_eq!(late, Some((0, 100 * MS)));
        let delivered = account.delivered();
        assert_eq!((delivered.bytes, delivered.periods, delivered.periods_late), (0, 1, 1));
    }

    /// The same with a pause of a second at a loss.
    fn surviving() -> Lateness {
        Lateness::with_failover(10_000_000, 100 * MS, 20 * MS, SECOND_NS)
    }

    #[test]
    fn a_loss_is_one_pause_within_its_stated_length() {
        let mut account = surviving();
        let mut due: Vec<Due> = (0..20).map(|i| account.arrived(i * 50 * MS, 500_000)).collect();
        // Before the loss is met nothing is excused.
        assert!(account.done(75 * MS, due[0]).is_some());
        account.lost(900 * MS);
        assert_eq!(account.done(950 * MS, due[1]), None);
        assert_eq!(account.done(1170 * MS, due[2]), None, "late by the bound and the pause");
        let late = account.done(1221 * MS, due[3]).map(|late| late.lateness_ns);
        assert_eq!(late, Some(1021 * MS), "beyond both");
        // It has caught up: what was sent before the loss, and is done in time, does not say so.
        assert_eq!((account.done(950 * MS, due[18]), account.done(1230 * MS, due[4])), (None, None));
        due.push(account.arrived(1500 * MS, 500_000));
        assert_eq!(account.done(1550 * MS, due[20]), None);
        assert!(account.done(1560 * MS, due[19]).is_some());
        let delivered = account.delivered();
        assert_eq!((delivered.periods_paused, delivered.paused_worst_ns), (3, 1020 * MS));
        assert_eq!((delivered.periods_late, delivered.worst_ns), (3, 1021 * MS));
    }

    #[test]
    fn a_pause_that_is_not_overcome_ends_all_the_same() {
        let mut account = surviving();
        account.lost(0);
        let late = |account: &mut Lateness, at: u64| {
            let due = account.arrived(at, 500_000);
            account.done(at + 150 * MS, due).is_some()
        };
        assert!(!late(&mut account, 5 * SECOND_NS) && !late(&mut account, 9 * SECOND_NS));
        assert!(late(&mut account, 10 * SECOND_NS));
        // Where no loss is survived, none excuses anything.
        let mut account = Lateness::new(10_000_000, 100 * MS, 20 * MS);
        account.lost(0);
        assert!(late(&mut account, 0));
    }

    #[test]
    fn late_periods_far_apart_are_told_apart() {
        let mut account = account();
        let mut first = Vec::new();
        for period in [3, 200, 199, 200, 137, 136, 136] {
            let due = Due { arrived_ns: 0, due_ns: 0, bytes: 0, period };
            first.push(account.done(21 * MS, due).unwrap().is_first);
        }
        // 136 is no longer remembered, and so counts twice.
        assert_eq!(first, [true, true, true, false, true, true, true]);
    }
}
