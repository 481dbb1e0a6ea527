//! One simulated host: its address, its clocks, its place in the network.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use braid_transport::host::simulated::{Connecting, Host, Listener};
use braid_transport::process::Presence;
use braid_wire::control::ProcessMark;
use tokio::time::Instant;

use crate::net::Net;

/// The wall clock at the world's begin: some day in 2026.
const BEGIN_WALL_MS: u64 = 1_780_000_000_000;
/// The world's begin on the standard library's clock.
pub(crate) const BEGIN_MS: u64 = 1_000_000;

/// A host.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) ip: IpAddr,
    net: Net,
    /// The process that runs on it now; 0: none.
    process: AtomicU32,
    /// How far its wall clock is ahead.
    wall_ahead_ms: AtomicU64,
}

impl Machine {
    pub(crate) fn new(ip: IpAddr, net: Net) -> Arc<Machine> {
        Arc::new(Machine { ip, net, process: AtomicU32::new(0), wall_ahead_ms: AtomicU64::new(0) })
    }

    /// Another process runs on it.
    pub(crate) fn set_process(&self, process: u32) {
        self.process.store(process, Ordering::Relaxed);
    }
}

/// The time of the runtime that is running, or the world's if none is; in milliseconds since the world's
/// begin.
pub(crate) fn now_ms() -> u64 {
    // The standard library's clock is ours, and that of each runtime began with it.
    let now = Instant::now().into_std();
    ZERO.with(|zero| u64::try_from(now.saturating_duration_since(*zero).as_millis()).unwrap_or(0))
}

thread_local! {
    /// The world's begin: read first when the thread's clock stands there.
    static ZERO: std::time::Instant = std::time::Instant::now();
}

/// Reads the world's begin off the thread's clock, which must stand there.
pub(crate) fn begin() {
    ZERO.with(|_| {});
}

impl Host for Machine {
    fn boot_ms(&self) -> u64 {
        BEGIN_MS + now_ms()
    }

    fn wall_ms(&self) -> u64 {
        BEGIN_WALL_MS + now_ms() + self.wall_ahead_ms.load(Ordering::Relaxed)
    }

    fn own_mark(&self) -> ProcessMark {
        ProcessMark::default()
    }

    fn presence(&self, _mark: &ProcessMark) -> Presence {
        Presence::MayLive
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        self.net.listen(self.ip, address)
    }

    fn connect(&self, address: &str) -> Connecting {
        self.net.connect(self.ip, address, now_ms())
    }
}
