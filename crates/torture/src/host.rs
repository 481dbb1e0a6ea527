//! One simulated host: its address, its clocks, its place in the network.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use braid_transport::host::simulated::{Connecting, Host, Listener};
use braid_transport::process::Presence;
use braid_wire::control::ProcessMark;
use tokio::time::Instant;

use crate::net::Net;
use crate::random::Random;

/// The wall clock at the world's begin: some day in 2026.
const BEGIN_WALL_MS: u64 = 1_780_000_000_000;
/// The world's begin on the standard library's clock.
pub(crate) const BEGIN_MS: u64 = 1_000_000;

/// A step of work for the disk takes less than this...
const QUICK_MS: u64 = 4;
/// ... but so many in a hundred less than that.
const SLOW_MS: u64 = 200;
const SLOW_PERCENT: u64 = 3;

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) ip: IpAddr,
    net: Net,
    /// The process that runs on it now; 0: none.
    process: AtomicU32,
    /// By how much its wall clock is wrong.
    wall_ms: AtomicI64,
    /// How long its disk takes; what drives store has disks of its own.
    random: Mutex<Random>,
    kernel: Arc<Kernel>,
}

/// What the hosts know of each other's processes.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// They are one machine in truth: each can tell whether a process of another is gone.
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

    /// Another process runs on it; 0: none.
    pub(crate) fn set_process(&self, process: u32) {
        let before = self.process.swap(process, Ordering::Relaxed);
        let mut living = self.kernel.living();
        living.remove(&before);
        living.insert(process);
    }

    /// Its wall clock is wrong by this much from now on.
    pub(crate) fn set_wall(&self, by_ms: i64) {
        self.wall_ms.store(by_ms, Ordering::Relaxed);
    }
}

/// The time of the host whose process is running, or the world's if none is; in milliseconds since the
/// world's begin. It also counts what the host slept, which its runtime does not know of.
pub(crate) fn now_ms() -> u64 {
    // The standard library's clock is ours, and that of each runtime began with it.
    let now = Instant::now().into_std();
    let ran = ZERO.with(|zero| now.saturating_duration_since(*zero).as_millis());
    u64::try_from(ran).unwrap_or(0) + SLEPT_MS.get()
}

thread_local! {
    /// The world's begin: read first when the thread's clock stands there.
    static ZERO: std::time::Instant = std::time::Instant::now();
    /// How long the host of the running process slept since that process began.
    static SLEPT_MS: Cell<u64> = const { Cell::new(0) };
}

/// The host of the process that runs next has slept for so long since it began.
pub(crate) fn set_slept(slept_ms: u64) {
    SLEPT_MS.set(slept_ms);
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
}
