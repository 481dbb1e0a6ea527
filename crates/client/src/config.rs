//! A client's settings: where the managers are, how long to wait, how much to have in flight.

use std::sync::Arc;
use std::time::Duration;

use braid_methods::Engine;
use braid_transport::{Credentials, Limits, Managers, Transport};
use braid_wire::token::Token;

use crate::sealed::keys::VolumeKeys;

/// A client's settings. [`Config::new`] gives the defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster's managers. What a session tells of them is known to all copies.
    pub managers: Managers,
    /// Credentials of the client. They prove to the manager that it knows a token of the cluster (such as the
    /// manager's `client.token`), or, to heal a drive's columns, that it is that drive.
    pub credentials: Credentials,
    /// Bounds of the single waits on one connection.
    pub limits: Limits,
    /// Timeout for a drive's reply; replaces `limits.reply` for drives. Default 8 s: longer than any working
    /// drive needs for a commit. An unresponsive drive delays a read by this much, and a write by little
    /// more: then the drive's column is taken out.
    pub drive_reply: Duration,
    /// Longest time for which one request of the caller is retried before it fails. Default 60 s: enough for
    /// a manager to restart and for a dead drive's lease to lapse. A part of a request that makes progress is
    /// not cut short.
    pub patience: Duration,
    /// Longest time for which a request is retried when too many columns are away for no temporary reason:
    /// time for a drive to be restarted. Default 3 s.
    pub grace: Duration,
    /// Period for which new requests avoid a drive that refused or did not answer. Default 2 s, growing up to
    /// 16 times that while the drive stays away; one request per period tries it.
    pub avoid: Duration,
    /// Instructions in flight per drive and session. Default 8, which hides a round trip for units of 64 KiB
    /// and up.
    pub flights_per_drive: usize,
    /// Bytes in flight per drive and session. Default 8 MiB; one instruction may exceed it.
    pub flight_bytes: u64,
    /// Plan sets in flight for a client, over all its files; each uses at most one session per drive. Default
    /// 16. Plan sets of requests for at most 16 KiB do not count: they have a bound of their own, 128.
    pub sets: usize,
    /// Plan sets in flight for one `read_at` or `write_at` call. Default 3: no drive idles until another's
    /// last unit.
    pub sets_per_request: usize,
    /// Bytes of the file in one plan set, rounded to whole stripes, at least one. Default 8 MiB.
    pub set_bytes: u64,
    /// Idle sessions kept per drive. Default 16, the number of plan sets in flight: many small requests then
    /// need no new sessions.
    pub idle_sessions: usize,
    /// Sessions with the manager. Default 16: a client that opens and closes many files then waits for its
    /// answers in parallel.
    pub control_sessions: usize,
    /// Method by which parts of a unit are written. Only experiments change it. Default
    /// [`PartWrites::Cheapest`].
    pub part_writes: PartWrites,
    /// True if reads wait for their turn where the link to this client is too slow for the answers of many
    /// drives at once, so that no switch drops what it has no room for. Costs nothing elsewhere; only
    /// experiments switch it off. Default: true.
    pub credit: bool,
    /// The way of sessions with drives: TCP (the default), datagrams over UDP, or what comes through. What is
    /// private, and the managers, are asked over TCP in any case.
    pub transport: Transport,
    /// The engine that runs modules of users; `None` (the default): the method `wasm` is refused.
    pub engine: Option<Arc<dyn Engine>>,
    /// The keys of encrypted volumes: files or commands, by volume. Default: none.
    pub volume_keys: VolumeKeys,
    /// Called with the manager's address, once per request, when a request has waited for the manager for
    /// [`WAIT_TOLD_AFTER`], beyond the time for which the manager may wait for others: users can then be
    /// told. Default: none.
    pub on_wait: Option<fn(&str)>,
}

/// Method by which a part of one unit is written under an exclusive lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartWrites {
    /// As a unit write where that moves fewer bytes: the data drive gets the bytes, and sends the parity
    /// drives what changed.
    Cheapest,
    /// Always as a stripe write: the client reads old data and old parity, and sends both anew. This variant
    /// exists for comparisons (`braid bench stripes`).
    ByStripe,
}

/// After this long, a request that waits for the manager is reported.
pub const WAIT_TOLD_AFTER: Duration = Duration::from_secs(1);

impl Config {
    /// The defaults, for these managers and this token.
    pub fn new(managers: impl Into<Managers>, token: Token) -> Config {
        Config::with(managers, Credentials::from(&token))
    }

    /// The defaults, for these managers and these credentials.
    pub fn with(managers: impl Into<Managers>, credentials: Credentials) -> Config {
        Config {
            managers: managers.into(),
            credentials,
            limits: Limits::default(),
            drive_reply: Duration::from_secs(8),
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
            part_writes: PartWrites::Cheapest,
            credit: true,
            transport: Transport::Tcp,
            engine: None,
            volume_keys: VolumeKeys::default(),
            on_wait: None,
        }
    }
}
