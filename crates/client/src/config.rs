//! What a client can be told: where the manager is, how long to wait, how much to have in flight.

use std::time::Duration;

use braid_transport::Limits;
use braid_wire::token::Token;

/// A client's settings. [`Config::new`] gives the defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// The manager's address, `HOST:PORT`.
    pub manager: String,
    /// A client token of the cluster (the manager's `client.token`).
    pub token: Token,
    /// The bounds of single waits on one connection.
    pub limits: Limits,
    /// In place of `limits.reply`, for drives. Default 10 s: longer than any drive that works takes for a commit; what a
    /// mute one delays a read.
    pub drive_reply: Duration,
    /// Longest that one request of the caller goes on trying before it gives an error. Default 60 s, which is enough for a
    /// manager to restart and for a dead drive's lease to lapse. A part of a request that makes progress is not cut short.
    pub patience: Duration,
    /// Longest that a request goes on trying when too many columns are away for no passing reason: time for a drive to be
    /// started again. Default 3 s.
    pub grace: Duration,
    /// How long a drive that refused or did not answer is passed over by new requests. Default 2 s, and
    /// longer, up to 16 times, as it stays away; one request in that time pays for finding out.
    pub avoid: Duration,
    /// Instructions in flight per drive and session. Default 8, which hides a round trip for units of 64 KiB and up.
    pub flights_per_drive: usize,
    /// Bytes in flight per drive and session. Default 8 MiB; one instruction may go over it.
    pub flight_bytes: u64,
    /// Plan sets that a client has under way, over all its files; each uses at most one session per drive. Default 16.
    pub sets: usize,
    /// Plan sets under way for one call of `read_at` or `write_at`. Default 3: so that no drive waits for another's last unit.
    pub sets_per_request: usize,
    /// Bytes of file in one plan set, rounded to whole stripes, at least one. Default 8 MiB.
    pub set_bytes: u64,
    /// Idle sessions kept per drive. Default 16: as many as plan sets may be under way, so that many small requests make none anew.
    pub idle_sessions: usize,
    /// Sessions with the manager. Default 16: a client that opens and closes many files waits for its answers at once.
    pub control_sessions: usize,
    /// Told the manager's address when a request has waited for the manager for [`WAIT_TOLD_AFTER`], once for each request; so that
    /// whoever waits knows what for. Default: nobody.
    pub on_wait: Option<fn(&str)>,
}

/// A request that waits for the manager for longer is told of.
pub const WAIT_TOLD_AFTER: Duration = Duration::from_secs(1);

impl Config {
    /// The defaults, for this manager and token.
    pub fn new(manager: impl Into<String>, token: Token) -> Config {
        Config {
            manager: manager.into(),
            token,
            limits: Limits::default(),
            drive_reply: Duration::from_secs(10),
            patience: Duration::from_secs(60),
            grace: Duration::from_secs(3),
            avoid: Duration::from_secs(2),
            flights_per_drive: 8,
            flight_bytes: 8 << 20,
            sets: 16,
            sets_per_request: 3,
            set_bytes: 8 << 20,
            idle_sessions: 16,
            control_sessions: 16,
            on_wait: None,
        }
    }
}
