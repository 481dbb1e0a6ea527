//! Pacing: a bucket of bytes that fills at a rate, so that a burst is never longer than a switch's queue.

use crate::SECOND;

/// Time whose bytes a burst may have.
const BURST_NS: u64 = SECOND / 4000;
/// Datagrams that a burst may always have, whatever the rate is.
const BURST_DATAGRAMS: u64 = 10;
/// Bytes of the first burst: RFC 9002's initial window.
const BURST_BYTES_MIN: u64 = 14_720;
/// The longest burst, in bytes: a quarter of a millisecond at 2 GB/s. Timers are no finer than a millisecond
/// at many owners: with shorter bursts, fast links would wait for them.
const BURST_BYTES_MAX: u64 = 512 << 10;

/// The bytes that may be sent now.
#[derive(Debug, Clone)]
pub(crate) struct Pacer {
    /// Bytes in the bucket.
    tokens: u64,
    filled_ns: u64,
}

impl Pacer {
    /// A bucket that fills from `now_ns` on, with a burst in it.
    pub(crate) fn new(now_ns: u64) -> Pacer {
        Pacer { tokens: BURST_BYTES_MIN, filled_ns: now_ns }
    }

    /// The moment at which `bytes` may be sent at `rate` bytes per second: `now_ns` or later. A rate of
    /// `None` is unlimited.
    pub(crate) fn ready_at(&mut self, now_ns: u64, rate: Option<u64>, bytes: u64) -> u64 {
        let Some(rate) = rate.map(|rate| rate.max(1)) else { return now_ns };
        let per = |ns: u64| u128::from(ns) * u128::from(rate) / u128::from(SECOND);
        let most = u64::try_from(per(BURST_NS)).unwrap_or(u64::MAX);
        let most = most.min(BURST_BYTES_MAX).max(BURST_DATAGRAMS * bytes);
        let more = u64::try_from(per(now_ns.saturating_sub(self.filled_ns))).unwrap_or(u64::MAX);
        // Less than a byte's time is not lost: it counts at the next call.
        if more > 0 {
            self.tokens = self.tokens.saturating_add(more).min(most);
            self.filled_ns = now_ns;
        }
        let missing = bytes.saturating_sub(self.tokens);
        if missing == 0 {
            return now_ns;
        }
        let wait = (u128::from(missing) * u128::from(SECOND)).div_ceil(u128::from(rate));
        self.filled_ns.max(now_ns).saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    pub(crate) fn on_sent(&mut self, bytes: u64) {
        self.tokens = self.tokens.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_keeps_to_the_rate() {
        for rate in [50_000, 12_500_000, 1_250_000_000] {
            let mut pacer = Pacer::new(7 * SECOND);
            let mut now = 7 * SECOND;
            let mut sent = 0;
            let begin = now;
            while now < begin + SECOND {
                let at = pacer.ready_at(now, Some(rate), 1400);
                if at > now {
                    now = at;
                    continue;
                }
                pacer.on_sent(1400);
                sent += 1400;
            }
            let most = rate + BURST_BYTES_MAX.max(BURST_DATAGRAMS * 1400) + 1400;
            assert!(sent <= most, "{sent} of {rate}");
            assert!(sent + 2 * 1400 >= rate, "{sent} of {rate}");
        }
    }
}
