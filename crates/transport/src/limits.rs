//! How long a peer may keep us waiting.

use std::time::Duration;

/// The bounds of every wait. The defaults suit a local network; a longer `stall` suits a link with long outages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For a connection and its peer's Hello, each. Default 3 s.
    pub connect: Duration,
    /// For the next byte of a started frame, in either direction. Default 10 s.
    pub stall: Duration,
    /// For the first byte of a reply. Default 30 s.
    pub reply: Duration,
    /// For a peer's proof of its key, from when it was accepted: until then it has little else. Default 5 s.
    pub proof: Duration,
    /// For the next request of a connection. Default 15 min; the asker connects anew.
    pub idle: Duration,
    /// The slowest that a frame may move, in bytes per second, so that a peer which sends a byte now and then cannot hold
    /// what its frame holds: a frame of `b` bytes takes at most `stall + b / rate_min`. Default 64 KiB/s.
    pub rate_min: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connect: Duration::from_secs(3),
            stall: Duration::from_secs(10),
            reply: Duration::from_secs(30),
            proof: Duration::from_secs(5),
            idle: Duration::from_secs(15 * 60),
            rate_min: 64 << 10,
        }
    }
}

impl Limits {
    /// The longest that `bytes` may take in all.
    pub(crate) fn whole(&self, bytes: u64) -> Duration {
        self.stall + Duration::from_millis(bytes.saturating_mul(1000) / u64::from(self.rate_min.max(1)))
    }
}
