//! A drive's configuration.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use braid_methods::Engine;
use braid_store::Options;
use braid_store::disk::modelled::Device;
use braid_transport::{Limits, Managers, Policy};
use braid_wire::addresses::{BadAddresses, RAILS_MAX};
use braid_wire::token::Token;

use crate::connections::sending::Sending;
use crate::error::DriveError;
use crate::life::clock::Clock;

/// The smallest capacity of a drive, in bytes: the smallest segments need this much.
pub const CAPACITY_BYTES_MIN: u64 = 1 << 20;

/// The default rate of a drive's own scrub, in bytes a second.
pub const SCRUB_RATE: u64 = 8 << 20;

/// The default bytes that are read ahead of a drive's sequential readers.
pub const READ_AHEAD_BYTES: u64 = 128 << 20;

/// One drive: one directory, one store, one address or several. A process may run several.
#[derive(Debug, Clone)]
pub struct Config {
    /// The drive's directory: its identity (`drive.toml`), its lock and its store. Created if it is missing.
    pub dir: PathBuf,
    /// The addresses to listen on, one for each rail, at most [`RAILS_MAX`]: `host:port`; port 0 takes a free
    /// one.
    pub listen: Vec<String>,
    /// The addresses given to others, as many as `listen` has and in its order; empty: those it listens on.
    /// Required when it listens on all addresses of the machine.
    pub advertise: Vec<String>,
    /// The managers' addresses, with commas between; `None`: those stored by the last start.
    pub manager: Option<String>,
    /// A join token. Required until the drive has joined; afterwards it is checked against the directory's
    /// cluster.
    pub token: Option<Token>,
    /// The drive's name in the cluster; `None`: the name from the last start. A drive that has joined under
    /// another name refuses to start.
    pub name: Option<String>,
    /// The name of a new drive that is told none; `None`: one made from its identity.
    pub name_at_first: Option<String>,
    /// The machine, for placement; `None`: the system's host name.
    pub host: Option<String>,
    /// The rack, for placement; may be empty.
    pub rack: String,
    /// Bytes that may be stored, at least [`CAPACITY_BYTES_MIN`]; `None`: the size of the file system.
    pub capacity_bytes: Option<u64>,
    /// Limits and sizes.
    pub settings: Settings,
}

/// A drive's limits. The defaults suit a disk or an SSD on a machine with a few GiB of memory.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Payload bytes in memory at a time, over all connections. Default 256 MiB. One connection holds at most
    /// an eighth (or one payload, if that is larger).
    pub payload_bytes_max: usize,
    /// Connections at a time from peers that have shown a capability, without the manager's. Default 1024.
    pub connections_max: usize,
    /// Longest wait of a request for the drive's own store or for memory. After that its connection is
    /// closed, so that a hanging disk does not exhaust the drive. Default 40 s: clients have given up by
    /// then.
    pub store_wait: Duration,
    /// Requests of one connection that are accepted and not yet answered. Default 256.
    pub requests_max: usize,
    /// Reads that run at the same time, each in a thread. Default 32.
    pub reads_max: usize,
    /// Timeouts for peers that keep the drive waiting, and the minimum rate of their frames.
    pub limits: Limits,
    /// Approximate time for which the first start tries to reach the manager. Default 30 s.
    pub join_wait: Duration,
    /// Longest wait of a shutdown for peers to take the answers to accepted requests. Default 2 s.
    pub shutdown_wait: Duration,
    /// True if commits are synced to the medium. `false` is for tests and benchmarks: a power cut then loses
    /// writes.
    pub sync: bool,
    /// A segment of the log is sealed once it is longer than this; `None`: the store's default.
    pub segment_bytes: Option<u64>,
    /// Bytes that the store's cleaner may move per 100 bytes that clients write, when space becomes scarce.
    /// Default 25.
    pub clean_share_percent: u32,
    /// Way in which the bytes of reads are sent. Default: the way that measured better. [`Sending::Sendfile`]
    /// is refused on a system where it cannot be used.
    pub sending: Sending,
    /// Bytes a second that the drive's own scrub reads; 0: it runs none. Default 8 MiB: about 700 GB a day, a
    /// load that no disk notices. While clients read or write, it uses a quarter of that.
    pub scrub_rate: u64,
    /// Bytes of the page cache that are read ahead of sequential readers, of all together; 0: nothing is.
    /// Default [`READ_AHEAD_BYTES`].
    pub read_ahead_bytes: u64,
    /// Modelled device whose time the drive's disk takes; `None`: the disk is as fast as it is.
    pub disk_model: Option<Arc<Device>>,
    /// True if a start without a known cost of the disk measures it, which takes up to 0.3 s. Default: no.
    pub calibrate: bool,
    /// Bytes a second of the drive's rail, for those who promise rates; 0 (the default): not known.
    pub rail_bytes_per_second: u64,
    /// Policy of what the drive sends by datagrams; `None`: it does not listen for them. Default: cubic.
    pub udp: Option<Policy>,
    /// The engine that runs modules of users; `None` (the default): the drive runs none.
    pub engine: Option<Arc<dyn Engine>>,
    /// The clock that leases are counted on.
    pub clock: Clock,
    /// Simulated disk that has the drive's files and its store; `None`: they are in its directory.
    #[cfg(feature = "simulated")]
    pub medium: Option<Arc<dyn crate::medium::Medium>>,
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
            sending: Sending::Auto,
            scrub_rate: SCRUB_RATE,
            read_ahead_bytes: READ_AHEAD_BYTES,
            disk_model: None,
            calibrate: false,
            rail_bytes_per_second: 0,
            udp: Some(Policy::Cubic),
            engine: None,
            clock: Clock::Boottime,
            #[cfg(feature = "simulated")]
            medium: None,
        }
    }
}

impl Config {
    /// A drive in `dir` that listens on `listen`; everything else as at its last start.
    pub fn new(dir: impl Into<PathBuf>, listen: impl Into<String>) -> Config {
        Config {
            dir: dir.into(),
            listen: vec![listen.into()],
            advertise: Vec::new(),
            manager: None,
            token: None,
            name: None,
            name_at_first: None,
            host: None,
            rack: String::new(),
            capacity_bytes: None,
            settings: Settings::default(),
        }
    }

    /// The managers, if they are told.
    pub(crate) fn managers(&self) -> Result<Option<Managers>, DriveError> {
        self.manager.as_deref().map(str::parse).transpose().map_err(DriveError::Managers)
    }

    /// Refuses a configuration that no drive can run with.
    pub(crate) fn validate(&self) -> Result<(), DriveError> {
        if let Some(asked) = self.capacity_bytes
            && asked < CAPACITY_BYTES_MIN
        {
            return Err(DriveError::Capacity { asked, min: CAPACITY_BYTES_MIN });
        }
        let told = self.advertise.len();
        if told > 0 && told != self.listen.len() {
            return Err(DriveError::Advertised { listen: self.listen.len(), advertise: told });
        }
        let twice = self.listen.iter().enumerate().find(|(at, listen)| {
            // Of port 0 each takes another.
            !listen.ends_with(":0") && self.listen[..*at].contains(listen)
        });
        match (self.listen.len(), twice) {
            (0, _) => return Err(DriveError::Rails(BadAddresses::None)),
            (rails, _) if rails > RAILS_MAX => return Err(DriveError::Rails(BadAddresses::TooMany(rails))),
            (_, Some((_, listen))) => return Err(DriveError::Rails(BadAddresses::Twice(listen.clone()))),
            (_, None) => {}
        }
        self.managers()?;
        let refusal = self.settings.sending.refusal();
        refusal.map_or(Ok(()), |why| Err(DriveError::NoSendfile(why)))
    }
}
