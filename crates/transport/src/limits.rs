//! Bounds on waiting for a peer.

use std::time::Duration;

/// The bounds of every wait. The defaults suit a local network; a longer `stall` suits a link with long
/// outages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Timeout for connecting, and for the peer's Hello, each. Default 3 s.
    pub connect: Duration,
    /// Timeout for the next byte of a started frame, in either direction. Default 10 s.
    pub stall: Duration,
    /// Timeout for the first byte of a reply. Default 30 s.
    pub reply: Duration,
    /// Timeout for a peer's authentication, from accept on; until then the peer may use few resources.
    /// Default 5 s.
    pub proof: Duration,
    /// Timeout for the next request on a connection. Default 15 min; the peer then reconnects.
    pub idle: Duration,
    /// Minimum rate of a frame, in bytes per second, so that a peer which trickles bytes cannot hold a
    /// frame's resources: a frame of `b` bytes takes at most `stall + b / rate_min`. Default 64 KiB/s.
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
    /// Maximum time that a frame of `bytes` may take.
    pub(crate) fn whole(&self, bytes: u64) -> Duration {
        self.stall + Duration::from_millis(bytes.saturating_mul(1000) / u64::from(self.rate_min.max(1)))
    }
}
