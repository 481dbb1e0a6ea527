//! Times of a stream's pieces, and what was late. Pure: times are handed in.
//!
//! A stream moves its file in pieces of whole stripes, about a period's bytes each. Piece `i` begins at `i`
//! times the piece's time at the rate. It is due that time later, and late after the bound: the promise's, or
//! a period without one. A source or a reader that comes late moves all later pieces.

use braid_schedule::{Due, Lateness};

/// Most pieces of a stream that are under way at a time.
const AHEAD_MAX: u64 = 32;
/// Nanoseconds in a second.
const SECOND_NS: u64 = 1_000_000_000;

/// Sizes and times of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Bytes a second.
    pub(crate) rate: u64,
    pub(crate) period_ns: u64,
    /// Time after which something due is late.
    pub(crate) bound_ns: u64,
    /// Bytes of a piece.
    pub(crate) piece_bytes: u64,
}

impl Plan {
    /// A stream of a file with stripes of this many bytes.
    pub(crate) fn new(rate: u64, period_ns: u64, bound_ns: u64, stripe_bytes: u64) -> Plan {
        let stripe = stripe_bytes.max(1);
        let of_period = u128::from(rate) * u128::from(period_ns) / u128::from(SECOND_NS);
        let of_period = u64::try_from(of_period).unwrap_or(u64::MAX);
        let piece_bytes = (of_period / stripe).max(1).saturating_mul(stripe);
        Plan { rate, period_ns, bound_ns, piece_bytes }
    }

    /// Time of this many bytes at the rate.
    pub(crate) fn time_ns(&self, bytes: u64) -> u64 {
        let time = u128::from(bytes) * u128::from(SECOND_NS) / u128::from(self.rate.max(1));
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Pieces that may be under way: as many as begin before one that is barely in time is done.
    pub(crate) fn ahead(&self) -> u64 {
        (self.bound_ns / self.time_ns(self.piece_bytes).max(1) + 3).min(AHEAD_MAX)
    }
}

/// The schedule of a stream, and its account.
#[derive(Debug)]
pub(crate) struct Account {
    plan: Plan,
    lateness: Lateness,
    began_ns: u64,
    /// Time at which the next piece begins.
    next_ns: u64,
    /// Time from the beginning until the first piece was done.
    start_ns: Option<u64>,
    /// Number of pieces that the other side was late with.
    others_late: u64,
}

impl Account {
    pub(crate) fn new(plan: Plan, now: u64) -> Account {
        Account {
            plan,
            lateness: Lateness::new(plan.rate, plan.period_ns, plan.bound_ns),
            began_ns: now,
            next_ns: now,
            start_ns: None,
            others_late: 0,
        }
    }

    /// Time at which the next piece begins.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// The source was asked for the next piece and has brought it, or the reader was asked for room and has
    /// it, at these times. It was late if that took until long after the piece should have begun, and long
    /// after it was asked: if the store has held the stream up, the other side is asked late. Long is a
    /// period, or a piece's time if that is shorter, so that small delays which add up are seen too. After a
    /// late piece the stream goes on from there.
    pub(crate) fn other_side(&mut self, asked: u64, came: u64) {
        let long = self.plan.period_ns.min(self.plan.time_ns(self.plan.piece_bytes));
        if came > self.next_ns.max(asked).saturating_add(long) {
            self.others_late += 1;
            self.next_ns = came;
        }
    }

    /// The next piece begins, when it should have begun.
    pub(crate) fn begin(&mut self, bytes: u64) -> Due {
        let due = self.lateness.arrived(self.next_ns, bytes);
        self.next_ns = self.next_ns.saturating_add(self.plan.time_ns(bytes));
        due
    }

    /// A piece is done.
    pub(crate) fn done(&mut self, now: u64, due: Due) {
        self.start_ns.get_or_insert(now.saturating_sub(self.began_ns));
        self.lateness.done(now, due);
    }

    pub(crate) fn total(&self) -> Total {
        let delivered = self.lateness.delivered();
        Total {
            streams: 1,
            bytes: delivered.bytes,
            periods: delivered.periods,
            late_periods: delivered.periods_late,
            late_streams: u64::from(delivered.periods_late > 0),
            worst_ns: delivered.worst_ns,
            bound_ns: self.plan.bound_ns,
            start_ns: self.start_ns.unwrap_or(0),
            others_late: self.others_late,
        }
    }
}

/// Sum over streams; the worst of what is not a sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) streams: u64,
    pub(crate) bytes: u64,
    pub(crate) periods: u64,
    pub(crate) late_periods: u64,
    pub(crate) late_streams: u64,
    pub(crate) worst_ns: u64,
    pub(crate) bound_ns: u64,
    pub(crate) start_ns: u64,
    pub(crate) others_late: u64,
}

impl Total {
    pub(crate) fn and(self, other: Total) -> Total {
        Total {
            streams: self.streams + other.streams,
            bytes: self.bytes + other.bytes,
            periods: self.periods + other.periods,
            late_periods: self.late_periods + other.late_periods,
            late_streams: self.late_streams + other.late_streams,
            worst_ns: self.worst_ns.max(other.worst_ns),
            bound_ns: self.bound_ns.max(other.bound_ns),
            start_ns: self.start_ns.max(other.start_ns),
            others_late: self.others_late + other.others_late,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// 10 MB/s in periods of 100 ms: a million bytes each.
    fn plan(stripe_bytes: u64) -> Plan {
        Plan::new(10_000_000, 100 * MS, 20 * MS, stripe_bytes)
    }

    #[test]
    fn pieces_are_whole_stripes_of_about_a_period() {
        for (stripe, piece) in
            [(0, 1_000_000), (300_000, 900_000), (1_000_000, 1_000_000), (4 << 20, 4 << 20)]
        {
            assert_eq!(plan(stripe).piece_bytes, piece, "{stripe}");
        }
        assert_eq!(plan(0).ahead(), 3);
        assert_eq!(Plan::new(10_000_000, 100 * MS, 10_000 * MS, 1).ahead(), AHEAD_MAX);
    }

    #[test]
    fn pieces_begin_at_the_rate_whatever_comes_late() {
        let mut account = Account::new(plan(0), 5 * MS);
        let due: Vec<Due> = (0..3).map(|_| account.begin(1_000_000)).collect();
        assert_eq!(due.iter().map(|due| due.due_ns / MS).collect::<Vec<_>>(), [105, 205, 305]);
        assert_eq!(account.next_ns(), 305 * MS);
        for (due, at) in due.iter().zip([65, 226, 310]) {
            account.done(at * MS, *due);
        }
        let total = account.total();
        assert_eq!((total.start_ns, total.periods, total.late_periods), (60 * MS, 3, 1));
        assert_eq!((total.worst_ns, total.others_late), (21 * MS, 0));
    }

    #[test]
    fn a_late_source_is_not_a_late_store() {
        let mut account = Account::new(plan(0), 0);
        account.other_side(0, 80 * MS);
        assert_eq!(account.next_ns(), 0, "within a period it is in time");
        let first = account.begin(1_000_000);
        account.done(50 * MS, first);
        account.other_side(80 * MS, 500 * MS);
        let second = account.begin(1_000_000);
        assert_eq!(second.due_ns, 600 * MS);
        account.done(610 * MS, second);
        let total = account.total();
        assert_eq!((total.late_periods, total.others_late), (0, 1));
    }

    #[test]
    fn a_late_store_is_not_a_late_source() {
        let mut account = Account::new(plan(0), 0);
        let first = account.begin(1_000_000);
        // The store had no room for more until now; then the source had its piece at once.
        account.done(700 * MS, first);
        account.other_side(700 * MS, 701 * MS);
        assert_eq!(account.next_ns(), 100 * MS);
        let second = account.begin(1_000_000);
        account.done(710 * MS, second);
        let total = account.total();
        assert_eq!((total.late_periods, total.others_late), (2, 0));
    }

    #[test]
    fn a_source_that_is_a_little_slow_is_found() {
        // Pieces of 60 ms, each of which takes the source 66 ms.
        let mut account = Account::new(plan(600_000), 0);
        for piece in 1..200 {
            let due = account.begin(600_000);
            account.done((66 * piece - 65) * MS, due);
            account.other_side(66 * (piece - 1) * MS, 66 * piece * MS);
        }
        let total = account.total();
        assert_eq!(total.late_periods, 0);
        assert!(total.others_late > 10, "{}", total.others_late);
    }

    #[test]
    fn totals_add_up() {
        let one =
            Total { streams: 1, bytes: 5, periods: 2, late_periods: 1, worst_ns: 7, ..Total::default() };
        let both = one.and(Total { start_ns: 3, worst_ns: 9, late_periods: 0, ..one });
        assert_eq!((both.streams, both.bytes, both.periods, both.late_periods), (2, 10, 4, 1));
        assert_eq!((both.worst_ns, both.start_ns), (9, 3));
    }
}
