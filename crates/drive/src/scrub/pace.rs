//! Keeps a scrub to its rate: what was read is paid for by waiting. Pure: `now` is a parameter.
//!
//! A step may read more than the rate gives at once (a unit is not cut); the wait after it makes up for that. Time in which
//! nothing was read is not saved up.

use crate::clock::Moment;

/// While clients read or write, a byte costs as many.
const COST_WHEN_BUSY: u64 = 4;

/// What was read since some moment and is not paid for yet.
#[derive(Debug, Default)]
pub(super) struct Pace {
    from: Option<Moment>,
    bytes: u64,
    /// The rate at which it was read: a lower one since does not make it dearer.
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

    /// A step that ended now has read `bytes`, beside clients' work if `busy`.
    pub(super) fn charge(&mut self, now: Moment, rate: u64, bytes: u64, busy: bool) {
        if self.wait_ms(now, rate) == 0 {
            *self = Pace { from: Some(now), bytes: 0, rate };
        }
        self.rate = rate;
        self.bytes = self.bytes.saturating_add(bytes.saturating_mul(if busy { COST_WHEN_BUSY } else { 1 }));
    }
}
