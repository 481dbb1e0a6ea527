//! What a drive is told when it starts.

use std::path::PathBuf;
use std::time::Duration;

use braid_store::Options;
use braid_store::disk::Method;
use braid_transport::Limits;
use braid_wire::token::Token;

use crate::clock::Clock;
use crate::error::DriveError;
use crate::sending::Sending;

/// The least capacity of a drive, in bytes: what the smallest segments need.
pub const CAPACITY_BYTES_MIN: u64 = 1 << 20;

/// What a drive's own scrub reads by default, in bytes a second.
pub const SCRUB_RATE: u64 = 8 << 20;

/// One drive: one directory, one store, one address. A process may run several.
#[derive(Debug, Clone)]
pub struct Config {
    /// The drive's directory: its identity (`drive.toml`), its lock and its store. Made if it is missing.
    pub dir: PathBuf,
    /// Where it listens: `host:port`; port 0 takes a free one.
    pub listen: String,
    /// The address that others are told; `None`: the one it listens on. Needed when it listens on all addresses.
    pub advertise: Option<String>,
    /// The manager's address; `None`: where it was last found.
    pub manager: Option<String>,
    /// A join token: needed until the drive has joined, and checked against the directory's cluster afterwards.
    pub token: Option<Token>,
    /// The drive's name in the cluster; `None`: the one of the last start, or one made from its identity.
    pub name: Option<String>,
    /// The machine, for placement; `None`: the system's name.
    pub host: Option<String>,
    /// The rack, for placement; may be empty.
    pub rack: String,
    /// Bytes that may be stored, at least [`CAPACITY_BYTES_MIN`]; `None`: what the file system has.
    pub capacity_bytes: Option<u64>,
    /// Bounds and sizes.
    pub settings: Settings,
}

/// A drive's bounds. The defaults suit a disk or an SSD on a machine with a few GiB of memory.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Payload bytes in memory at a time, of all connections. Default 256 MiB. One connection holds at most an eighth
    /// (or one payload, if that is more).
    pub payload_bytes_max: usize,
    /// Connections at a time of peers that have shown a capability, the manager's besides. Default 1024.
    pub connections_max: usize,
    /// How long a request may wait for the drive's own store, or for memory. Then its connection is ended, so that a disk that hangs
    /// does not fill the drive. Default 40 s: clients have given up by then.
    pub store_wait: Duration,
    /// Requests of one connection that are accepted and not yet answered. Default 256.
    pub requests_max: usize,
    /// Reads that run at a time, each in a thread. Default 32.
    pub reads_max: usize,
    /// How long a peer may keep the drive waiting.
    pub limits: Limits,
    /// How long the first start tries to reach the manager, about. Default 30 s.
    pub join_wait: Duration,
    /// How long a shutdown waits until peers have taken the answers to what was accepted. Default 2 s.
    pub shutdown_wait: Duration,
    /// Whether commits are synced to the medium. `false` is for tests and benches: a power cut then loses writes.
    pub sync: bool,
    /// A segment of the log is sealed past this many bytes; `None`: the store's default.
    pub segment_bytes: Option<u64>,
    /// Bytes that the store's cleaner moves for 100 of the clients' where space begins to be scarce. Default 25.
    pub clean_share_percent: u32,
    /// How the operating system is asked to read and write the disk. Default: what measured better. What is named and cannot be had is
    /// refused.
    pub method: Method,
    /// Past the page cache (`O_DIRECT`), or not at all. Default: through it.
    pub direct: bool,
    /// How the bytes of reads leave. Default: what measured better. [`Sending::Sendfile`] is refused where nothing could leave so.
    pub sending: Sending,
    /// Bytes a second that the drive's own scrub reads; 0: it makes none. Default 8 MiB: about 700 GB a day, and lost in the
    /// noise of any disk. While clients read or write it takes a quarter of that.
    pub scrub_rate: u64,
    /// What leases are counted on.
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            payload_bytes_max: 256 << 20,
            connections_max: 1024,
            store_wait: Duration::from_secs(40),
            requests_max: 256,
            reads_max: 32,
            limits: Limits::default(),
            join_wait: Duration::from_secs(30),
            shutdown_wait: Duration::from_secs(2),
            sync: true,
            segment_bytes: None,
            clean_share_percent: Options::default().clean_share_percent,
            method: Method::Auto,
            direct: false,
            sending: Sending::Auto,
            scrub_rate: SCRUB_RATE,
            clock: Clock::Boottime,
        }
    }
}

impl Config {
    /// A drive in `dir` that listens on `listen`, all else as at its last start.
    pub fn new(dir: impl Into<PathBuf>, listen: impl Into<String>) -> Config {
        Config {
            dir: dir.into(),
            listen: listen.into(),
            advertise: None,
            manager: None,
            token: None,
            name: None,
            host: None,
            rack: String::new(),
            capacity_bytes: None,
            settings: Settings::default(),
        }
    }

    /// Refuses what no drive can be run with.
    pub(crate) fn validate(&self) -> Result<(), DriveError> {
        if let Some(asked) = self.capacity_bytes
            && asked < CAPACITY_BYTES_MIN
        {
            return Err(DriveError::Capacity { asked, min: CAPACITY_BYTES_MIN });
        }
        let refusal = self.settings.sending.refusal(self.settings.direct);
        refusal.map_or(Ok(()), |why| Err(DriveError::NoSendfile(why)))
    }
}
