//! A simulated host: its address, its clocks, its place in the network.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_transport::host::simulated::{Connecting, DatagramSocket, Host, Listener};
use braid_transport::process::Presence;
use braid_wire::control::ProcessMark;
use tokio::time::Instant;

use crate::net::Net;
use crate::random::Random;

/// Wall clock at the beginning of the world: some day in 2026.
const BEGIN_WALL_MS: u64 = 1_780_000_000_000;
/// Standard library's clock at the beginning of the world.
pub(crate) const BEGIN_MS: u64 = 1_000_000;

/// Bound of the time of most steps of work for the disk.
const QUICK_MS: u64 = 4;
/// Bound of the time of a slow step; `SLOW_PERCENT` of the steps are slow.
const SLOW_MS: u64 = 200;
const SLOW_PERCENT: u64 = 3;

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) ip: IpAddr,
    net: Net,
    /// Number of the process that runs on the host now; 0: none.
    process: AtomicU32,
    /// Error of the wall clock, in milliseconds.
    wall_ms: AtomicI64,
    /// Source of the disk's delays; the drives' stores have disks of their own.
    random: Mutex<Random>,
    kernel: Arc<Kernel>,
}

/// The hosts' knowledge of each other's processes.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// True if all hosts are really one machine: each can tell whether a process of another is gone.
    is_shared: bool,
    living: Mutex<BTreeSet<u32>>,
}

impl Kernel {
    pub(crate) fn new(is_shared: bool) -> Arc<Kernel> {
        Arc::new(Kernel { is_shared, living: Mutex::default() })
    }

    fn living(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machine {
    pub(crate) fn new(ip: IpAddr, net: Net, random: Random, kernel: Arc<Kernel>) -> Arc<Machine> {
        let process = AtomicU32::new(0);
        let wall_ms = AtomicI64::new(0);
        let random = Mutex::new(random);
        Arc::new(Machine { ip, net, process, wall_ms, random, kernel })
    }

    /// Notes the process that runs on the host from now on; 0: none.
    pub(crate) fn set_process(&self, process: u32) {
        let before = self.process.swap(process, Ordering::Relaxed);
        let mut living = self.kernel.living();
        living.remove(&before);
        living.insert(process);
    }

    /// Sets the error of the wall clock.
    pub(crate) fn set_wall(&self, by_ms: i64) {
        self.wall_ms.store(by_ms, Ordering::Relaxed);
    }
}

/// The time of the host whose process is running, or the world's if none is; in milliseconds since the
/// beginning of the world. It includes the time that the host slept, which its runtime does not know of.
pub(crate) fn now_ms() -> u64 {
    // The standard library's clock is simulated, and the clock of each runtime began with it.
    let now = Instant::now().into_std();
    let ran = ZERO.with(|zero| now.saturating_duration_since(*zero).as_millis());
    u64::try_from(ran).unwrap_or(0) + SLEPT_MS.get()
}

thread_local! {
    /// Beginning of the world: read first when the thread's clock shows it.
    static ZERO: std::time::Instant = std::time::Instant::now();
    /// Time that the host of the running process has slept since that process began.
    static SLEPT_MS: Cell<u64> = const { Cell::new(0) };
}

/// Sets the time that the host of the next process to run has slept since that process began.
pub(crate) fn set_slept(slept_ms: u64) {
    SLEPT_MS.set(slept_ms);
}

/// Reads the beginning of the world off the thread's clock, which must show it.
pub(crate) fn begin() {
    ZERO.with(|_| {});
}

impl Host for Machine {
    fn boot_ms(&self) -> u64 {
        BEGIN_MS + now_ms()
    }

    fn wall_ms(&self) -> u64 {
        (BEGIN_WALL_MS + now_ms()).saturating_add_signed(self.wall_ms.load(Ordering::Relaxed))
    }

    fn disk_wait(&self) -> Duration {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let most_ms = if random.percent(SLOW_PERCENT) { SLOW_MS } else { QUICK_MS };
        Duration::from_millis(random.below(most_ms))
    }

    fn own_mark(&self) -> ProcessMark {
        let boot = u64::from(self.kernel.is_shared);
        let pid = self.process.load(Ordering::Relaxed);
        ProcessMark { boot: u128::from(boot).to_le_bytes(), pid, ..ProcessMark::default() }
    }

    fn presence(&self, mark: &ProcessMark) -> Presence {
        let knows = self.kernel.is_shared && mark.boot == self.own_mark().boot;
        let gone = knows && !self.kernel.living().contains(&mark.pid);
        if gone { Presence::Gone } else { Presence::MayLive }
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        self.net.listen(self.ip, address)
    }

    fn connect(&self, address: &str) -> Connecting {
        self.net.connect(self.ip, address, now_ms())
    }

    fn datagrams(
        &self,
        address: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> io::Result<Box<dyn DatagramSocket>> {
        self.net.datagrams(self.ip, address, peer)
    }
}
