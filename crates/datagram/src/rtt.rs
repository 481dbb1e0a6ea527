//! The estimate of a path's round-trip time (RFC 6298, RFC 9002 section 5), with fine timers.

use crate::MILLISECOND;
use crate::config::ACK_DELAY_NS;

/// The round-trip time that is assumed before the first sample.
const INITIAL_NS: u64 = 50 * MILLISECOND;
/// The least time that a timer adds to the estimate: what a busy machine may take to answer.
const GRANULARITY_NS: u64 = MILLISECOND;

/// The estimate, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rtt {
    latest: u64,
    smoothed: u64,
    deviation: u64,
    least: Option<u64>,
}

impl Default for Rtt {
    fn default() -> Rtt {
        Rtt { latest: INITIAL_NS, smoothed: INITIAL_NS, deviation: INITIAL_NS / 2, least: None }
    }
}

impl Rtt {
    /// The estimate after a first sample.
    pub(crate) fn measured(sample: u64) -> Rtt {
        let mut rtt = Rtt::default();
        rtt.on_sample(sample.max(1), 0);
        rtt
    }

    /// A guess, which the first sample replaces.
    pub(crate) fn assumed(guess: u64) -> Rtt {
        let guess = guess.max(1);
        Rtt { latest: guess, smoothed: guess, deviation: guess / 2, least: None }
    }

    /// An acknowledgement came `sample` after its datagram was sent; the peer says that it waited `delay`.
    pub(crate) fn on_sample(&mut self, sample: u64, delay: u64) {
        let Some(least) = self.least else {
            *self = Rtt { latest: sample, smoothed: sample, deviation: sample / 2, least: Some(sample) };
            return;
        };
        let least = least.min(sample);
        self.least = Some(least);
        let delay = delay.min(ACK_DELAY_NS);
        // The peer's word may not make the path faster than it was ever seen.
        self.latest = if sample >= least + delay { sample - delay } else { sample };
        let away = self.smoothed.abs_diff(self.latest);
        self.deviation = (3 * self.deviation + away) / 4;
        self.smoothed = (7 * self.smoothed + self.latest) / 8;
    }

    /// The smoothed estimate.
    pub(crate) fn smoothed(&self) -> u64 {
        self.smoothed
    }

    /// The last sample.
    pub(crate) fn latest(&self) -> u64 {
        self.latest
    }

    /// Time after which something sent last is asked for again (RFC 9002, section 6.2.1).
    pub(crate) fn timeout(&self) -> u64 {
        self.smoothed + (4 * self.deviation).max(GRANULARITY_NS) + ACK_DELAY_NS
    }

    /// Time after which a datagram is lost, once a later one is acknowledged (RFC 9002, section 6.1.2).
    pub(crate) fn loss_delay(&self) -> u64 {
        (self.smoothed.max(self.latest) * 9 / 8).max(GRANULARITY_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_rfc_6298() {
        let mut rtt = Rtt::default();
        rtt.on_sample(800, 0);
        assert_eq!((rtt.smoothed, rtt.deviation), (800, 400));
        rtt.on_sample(1600, 0);
        assert_eq!((rtt.smoothed, rtt.deviation), (900, 500));
        assert_eq!(rtt.least, Some(800));
    }

    #[test]
    fn the_peers_delay_counts_only_above_the_least_time() {
        let mut rtt = Rtt::default();
        rtt.on_sample(1000, 0);
        rtt.on_sample(1500, 400);
        assert_eq!(rtt.latest(), 1100);
        rtt.on_sample(1500, 900);
        assert_eq!(rtt.latest(), 1500);
    }
}
