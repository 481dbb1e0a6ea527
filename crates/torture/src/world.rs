//! The world: hosts with one process each, and the time that passes for all of them.
//!
//! Each process has a runtime of its own with a paused clock, so that it can be killed or stopped as a
//! whole, whatever it is doing. Time passes in short steps. In a step each process runs alone, with its own
//! timers, until the step's end; then the network delivers. The work of a process within a step does not
//! depend on the others, so the order in which they run does not limit what is possible, and is drawn at
//! random.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_transport::host::simulated;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::fate;
use crate::host::{self, BEGIN_MS, Kernel, Machine};
use crate::net::Net;
use crate::random::{Random, mix};
use crate::trace::Trace;

/// Duration of a step while the network has something to deliver.
const STEP_MS: u64 = 1;
/// Duration of a step while the network has nothing to deliver.
const IDLE_STEP_MS: u64 = 5;

/// The number of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostId(pub(crate) usize);

/// The hosts, the network and the time.
pub(crate) struct World {
    pub(crate) net: Net,
    pub(crate) trace: Trace,
    random: Random,
    hosts: Vec<Process>,
    now_ms: u64,
    started: u32,
    begin: Instant,
    kernel: Arc<Kernel>,
    /// True if the standard library's clock of a host stands still while it is suspended, as on a real
    /// host.
    stands_still: bool,
}

/// A host and the process on it.
struct Process {
    name: String,
    machine: Arc<Machine>,
    runtime: Option<Runtime>,
    paused: bool,
    /// Time that the host has slept since the process began.
    slept_ms: u64,
    /// Time at which the host fell asleep, if it sleeps.
    asleep_ms: Option<u64>,
}

impl World {
    pub(crate) fn new(mut random: Random, trace: Trace) -> World {
        fate::set_now_ms(BEGIN_MS);
        host::begin();
        let net = Net::new(random.fork(), trace.clone());
        let kernel = Kernel::new(random.percent(30));
        let hosts = Vec::new();
        let begin = Instant::now();
        World { net, trace, random, hosts, now_ms: 0, started: 0, begin, kernel, stands_still: false }
    }

    /// Makes the standard library's clock of a host stand still while it is suspended, from now on.
    pub(crate) fn stand_still_in_suspend(&mut self) {
        self.stands_still = true;
    }

    /// Milliseconds since the beginning of the world.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Adds a host without a process.
    pub(crate) fn add_host(&mut self, name: &str) -> HostId {
        let number = u8::try_from(self.hosts.len() + 1).expect("few hosts");
        let ip = IpAddr::V4(Ipv4Addr::new(10, 0, number, 1));
        // The number is drawn from a copy of the stream, which goes on as if it had not been drawn.
        let random = Random::new(mix(self.random.clone().draw() ^ u64::from(number)));
        let machine = Machine::new(ip, self.net.clone(), random, Arc::clone(&self.kernel));
        self.hosts.push(Process {
            name: name.to_owned(),
            machine,
            runtime: None,
            paused: false,
            slept_ms: 0,
            asleep_ms: None,
        });
        HostId(self.hosts.len() - 1)
    }

    pub(crate) fn machine(&self, host: HostId) -> Arc<Machine> {
        Arc::clone(&self.hosts[host.0].machine)
    }

    pub(crate) fn ip(&self, host: HostId) -> IpAddr {
        self.hosts[host.0].machine.ip
    }

    pub(crate) fn name(&self, host: HostId) -> &str {
        &self.hosts[host.0].name
    }

    /// Starts a process on a host, whose main task is `main`.
    pub(crate) fn start(&mut self, host: HostId, main: impl Future<Output = ()> + Send + 'static) {
        self.started += 1;
        let process = &mut self.hosts[host.0];
        assert!(process.runtime.is_none(), "one process at a time");
        self.net.set_up(process.machine.ip);
        process.machine.set_process(self.started);
        (process.paused, process.slept_ms, process.asleep_ms) = (false, 0, None);
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without input and output needs nothing");
        runtime.spawn(main);
        process.runtime = Some(runtime);
    }

    /// Returns true if a process runs or is paused on the host.
    pub(crate) fn is_running(&self, host: HostId) -> bool {
        self.hosts[host.0].runtime.is_some()
    }

    /// Ends the host's process at once. Its connections are closed, unless the host is down.
    pub(crate) fn kill(&mut self, host: HostId) {
        let process = &mut self.hosts[host.0];
        let runtime = process.runtime.take();
        self.net.set_dying(Some(process.machine.ip));
        simulated::on(process.machine.clone(), || drop(runtime));
        self.net.set_dying(None);
        process.machine.set_process(0);
    }

    /// Pauses the host's process: it does nothing until it is resumed.
    pub(crate) fn pause(&mut self, host: HostId) {
        self.hosts[host.0].paused = true;
    }

    /// Resumes the host's process. Its clock leaps to the present; but if the host was suspended, the clock
    /// of its timers goes on where it was.
    pub(crate) fn resume(&mut self, host: HostId) {
        let process = &mut self.hosts[host.0];
        process.paused = false;
        if let Some(since_ms) = process.asleep_ms.take() {
            process.slept_ms += self.now_ms - since_ms;
        }
    }

    /// Suspends the host as a whole until it is resumed.
    pub(crate) fn suspend(&mut self, host: HostId) {
        self.hosts[host.0].asleep_ms = Some(self.now_ms);
        self.pause(host);
    }

    pub(crate) fn is_paused(&self, host: HostId) -> bool {
        self.hosts[host.0].paused
    }

    /// Adds a task to the host's process. Its result is put into the slot when it is done.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        host: HostId,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Slot<T> {
        let slot = Slot::default();
        let result = slot.clone();
        if let Some(runtime) = &self.hosts[host.0].runtime {
            runtime.spawn(async move {
                let done = task.await;
                result.put(done);
            });
        }
        slot
    }

    /// Lets one step of time pass.
    pub(crate) fn step(&mut self) {
        let step_ms = if self.net.is_busy() { STEP_MS } else { IDLE_STEP_MS };
        let first = usize::try_from(self.random.below(self.hosts.len() as u64)).unwrap_or(0);
        for index in (0..self.hosts.len()).map(|index| (index + first) % self.hosts.len()) {
            let process = &self.hosts[index];
            let Some(runtime) = process.runtime.as_ref().filter(|_| !process.paused) else { continue };
            let awake_ms = self.now_ms - process.slept_ms;
            let from = self.at(awake_ms);
            let to = self.at(awake_ms + step_ms);
            host::set_slept(process.slept_ms);
            if self.stands_still {
                fate::set_now_ms(BEGIN_MS + awake_ms);
            }
            let run = async {
                let behind = from.saturating_duration_since(Instant::now());
                if !behind.is_zero() {
                    tokio::time::advance(behind).await;
                }
                tokio::time::sleep_until(to).await;
            };
            simulated::on(process.machine.clone(), || runtime.block_on(run));
        }
        host::set_slept(0);
        self.now_ms += step_ms;
        fate::set_now_ms(BEGIN_MS + self.now_ms);
        self.trace.set_now_ms(self.now_ms);
        self.net.deliver(self.now_ms);
    }

    fn at(&self, ms: u64) -> Instant {
        self.begin + Duration::from_millis(ms)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for index in 0..self.hosts.len() {
            self.kill(HostId(index));
        }
    }
}

/// A place for the result of a task.
#[derive(Debug)]
pub(crate) struct Slot<T>(Arc<Mutex<Option<T>>>);

impl<T> Slot<T> {
    pub(crate) fn put(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot(Arc::default())
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Slot<T> {
        Slot(Arc::clone(&self.0))
    }
}
