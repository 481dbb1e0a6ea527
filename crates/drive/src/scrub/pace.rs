//! Keeps a scrub to its rate by waits after each read. Pure: `now` is a parameter.
//!
//! A step may read more than the rate allows at once, as a unit is not split; the wait after it makes up for
//! that. Idle time is not saved up.

use crate::life::clock::Moment;

/// While clients read or write, each byte counts this many times.
const COST_WHEN_BUSY: u64 = 4;

/// Activity of clients during a step: they read or write (`Busy`), or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clients {
    Idle,
    Busy,
}

/// Bytes that were read since the moment `from`, while the time that they take at the scrub's rate has not
/// passed yet.
#[derive(Debug, Default)]
pub(super) struct Pace {
    from: Option<Moment>,
    bytes: u64,
    /// The rate at which they were read: if it is lowered later, the wait for these bytes does not get
    /// longer.
    rate: u64,
}

impl Pace {
    /// Milliseconds until the next step may begin at `rate` bytes a second.
    pub(super) fn wait_ms(&self, now: Moment, rate: u64) -> u64 {
        let Some(from) = self.from else { return 0 };
        let owed_ms = u128::from(self.bytes) * 1000;
        let rate = rate.max(self.rate);
        let due_ms = u64::try_from(owed_ms.div_ceil(u128::from(rate.max(1)))).unwrap_or(u64::MAX);
        due_ms.saturating_sub(now.since(from))
    }

    /// A step that ended now has read `bytes`.
    pub(super) fn charge(&mut self, now: Moment, rate: u64, bytes: u64, clients: Clients) {
        if self.wait_ms(now, rate) == 0 {
            *self = Pace { from: Some(now), bytes: 0, rate };
        }
        self.rate = rate;
        let cost = match clients {
            Clients::Idle => 1,
            Clients::Busy => COST_WHEN_BUSY,
        };
        self.bytes = self.bytes.saturating_add(bytes.saturating_mul(cost));
    }
}
