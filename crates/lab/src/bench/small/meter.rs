//! The processor time of a cluster's processes and of a client, and the sockets that the client has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use braid_bench::small::{CpuTime, Processes};
use braid_cli::machine::local::MANAGER;
use braid_cli::machine::process::CpuTicks;
use braid_cli::output::exit::{Doing, Exit, Failure};
use tokio::time::{Instant, sleep};

use crate::bench::cluster::Cluster;

/// Interval between two looks whether servers still work.
const QUIET_POLL: Duration = Duration::from_millis(100);
/// Maximum processor time of all servers together in that interval that counts as at rest, in clock ticks: a
/// fifth of a processor.
const QUIET_TICKS: u64 = 2;
/// Time limit for servers to come to rest.
const QUIET_BOUND: Duration = Duration::from_secs(10);

/// The servers whose time is counted.
pub(in crate::bench) struct Meter {
    manager: (u32, u16),
    drives: Vec<(u32, u16)>,
    /// Microseconds of a clock tick.
    tick_us: f64,
}

/// The ticks of all processes at one moment.
#[derive(Debug, Clone, Copy)]
pub(in crate::bench) struct Reading {
    client: CpuTicks,
    drives: CpuTicks,
    manager: CpuTicks,
}

impl Meter {
    pub(in crate::bench) fn of(cluster: &Cluster) -> Result<Meter, Failure> {
        let mut manager = None;
        let mut drives = Vec::new();
        for server in &cluster.running.servers {
            let process = (server.record.pid, port(&server.record.address)?);
            match server.name == MANAGER {
                true => manager = Some(process),
                false => drives.push(process),
            }
        }
        let missing = || Failure::new(Exit::Failed, "count processor time", "there is no manager");
        let a_second = u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1);
        Ok(Meter { manager: manager.ok_or_else(missing)?, drives, tick_us: 1e6 / f64::from(a_second) })
    }

    /// Reads the times until now. Without a client's process id, the client's times are 0.
    pub(in crate::bench) fn read(&self, client: Option<u32>) -> Result<Reading, Failure> {
        let mut drives = CpuTicks::default();
        for (pid, _) in &self.drives {
            add(&mut drives, ticks("a drive", *pid)?);
        }
        let client = client.map_or(Ok(CpuTicks::default()), |pid| ticks("a client", pid))?;
        Ok(Reading { client, drives, manager: ticks("the manager", self.manager.0)? })
    }

    /// Processor time between two readings, in microseconds.
    pub(in crate::bench) fn between(&self, before: Reading, after: Reading) -> Processes {
        let part = |before: CpuTicks, after: CpuTicks| CpuTime {
            user: self.us(after.user.saturating_sub(before.user)),
            kernel: self.us(after.kernel.saturating_sub(before.kernel)),
        };
        Processes {
            client: part(before.client, after.client),
            drives: part(before.drives, after.drives),
            manager: part(before.manager, after.manager),
        }
    }

    /// Processor time of other processes than the cluster's, in microseconds.
    pub(in crate::bench) fn sum(&self, pids: &[u32]) -> Result<f64, Failure> {
        let mut sum = CpuTicks::default();
        for pid in pids {
            add(&mut sum, ticks("a process of the bench", *pid)?);
        }
        Ok(self.us(sum.user + sum.kernel))
    }

    /// Microseconds of clock ticks.
    pub(in crate::bench) fn us(&self, ticks: u64) -> f64 {
        f64::from(u32::try_from(ticks).unwrap_or(u32::MAX)) * self.tick_us
    }

    /// Waits until the servers have nothing left to do: work done after an answer belongs to the operation
    /// too, and not to the next sample.
    pub(in crate::bench) async fn at_rest(&self) -> Result<(), Failure> {
        until_quiet(|| {
            self.read(None)
                .map(|now| now.drives.user + now.drives.kernel + now.manager.user + now.manager.kernel)
        })
        .await
    }

    /// Number of a client's sockets to the manager, and to each drive.
    pub(in crate::bench) fn sockets(&self, client: u32) -> Result<(u32, Vec<u32>), Failure> {
        let of_ports = sockets(client)?;
        let count = |(_, port): &(u32, u16)| of_ports.get(port).copied().unwrap_or(0);
        Ok((count(&self.manager), self.drives.iter().map(count).collect()))
    }
}

/// Waits until processes that have taken so many clock ticks in all have nothing left to do.
async fn until_quiet(taken: impl Fn() -> Result<u64, Failure>) -> Result<(), Failure> {
    let end = Instant::now() + QUIET_BOUND;
    let mut before = taken()?;
    while Instant::now() < end {
        sleep(QUIET_POLL).await;
        let now = taken()?;
        if now.saturating_sub(before) <= QUIET_TICKS {
            break;
        }
        before = now;
    }
    Ok(())
}

/// Waits until this process has nothing left to do.
pub(in crate::bench) async fn at_rest(pid: u32) -> Result<(), Failure> {
    until_quiet(|| ticks("a drive", pid).map(|now| now.user + now.kernel)).await
}

fn ticks(what: &str, pid: u32) -> Result<CpuTicks, Failure> {
    CpuTicks::of(pid).doing(|| format!("read the processor time of {what}, process {pid}"))
}

fn add(sum: &mut CpuTicks, more: CpuTicks) {
    sum.user += more.user;
    sum.kernel += more.kernel;
}

/// Port number of an address.
fn port(address: &str) -> Result<u16, Failure> {
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
    port.ok_or_else(|| Failure::new(Exit::Failed, format!("find the port of {address}"), "it has none"))
}

/// Number of connected TCP sockets of a process, by the port at their other end.
fn sockets(pid: u32) -> Result<BTreeMap<u16, u32>, Failure> {
    let what = || format!("count the sockets of process {pid}");
    let mut inodes = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).doing(what)?.flatten() {
        // A descriptor may be closed meanwhile.
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let inode = target.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']'));
        inodes.extend(inode.map(str::to_owned));
    }
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).doing(what)?;
    Ok(connected(&table, &inodes))
}

/// Reads the kernel's table of TCP sockets over IPv4.
fn connected(table: &str, inodes: &BTreeSet<String>) -> BTreeMap<u16, u32> {
    const ESTABLISHED: &str = "01";
    let mut counts = BTreeMap::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, remote, ESTABLISHED, _, _, _, _, _, inode, ..] = fields.as_slice() else { continue };
        let port = remote.rsplit(':').next().and_then(|port| u16::from_str_radix(port, 16).ok());
        if let Some(port) = port.filter(|_| inodes.contains(*inode)) {
            *counts.entry(port).or_default() += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_counted_by_the_port_at_their_other_end() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1\n   \
            1: 0100007F:D431 0100007F:0BB8 01 00000000:00000000 00:00000000 00000000     0        0 12 1\n   \
            2: 0100007F:D432 0100007F:0BB8 01 00000000:00000000 00:00000000 00000000     0        0 13 1\n   \
            3: 0100007F:D433 0100007F:0BB9 01 00000000:00000000 00:00000000 00000000     0        0 14 1\n";
        let inodes = ["11", "12", "14"].map(str::to_owned).into();
        assert_eq!(connected(table, &inodes), BTreeMap::from([(3000, 1), (3001, 1)]));
    }

    #[test]
    fn a_connection_of_this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let _connections = [(); 2].map(|()| std::net::TcpStream::connect(address).expect("connected"));
        assert_eq!(sockets(std::process::id()).expect("counted").get(&address.port()), Some(&2));
    }
}
