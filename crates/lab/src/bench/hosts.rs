//! Hosts: a network namespace for each drive, all on one bridge, whose links can be limited (`tc tbf`). The
//! manager and the clients stay in this process's namespace, on one link to that bridge. With several rails
//! there are as many bridges, and each host and this namespace have a link to each. Needs root and iproute2.
//! The namespaces' names hold this process's id; dropping the value removes them.

use std::fmt;
use std::process::{Command, Stdio};

use braid_cli::machine::local::NamespaceHost;
use braid_cli::output::exit::{Doing, Exit, Failure};

/// Share of each frame that TCP carries: 1448 of 1514 bytes.
pub(super) const PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;
/// Bytes that a limited link may send at once.
pub(super) const BURST_BYTES: u64 = 64 << 10;
/// Time for which a limited link lets a frame wait before it drops it.
const LATENCY: &str = "50ms";
/// Bytes that a link with a short queue may send at once: two frames and some.
const FRAMES_BYTES: u64 = 4 << 10;
/// Usual round trips in a second, through a switch and two busy systems.
const PER_ROUND_TRIP: u64 = 5000;

pub(super) struct Hosts {
    pid: u32,
    count: usize,
    rails: usize,
}

/// The clients' link as [`Hosts::shape`] makes it, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) bits: u64,
    /// Bytes that wait before it at most, in each direction.
    pub(super) queue_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    Drives,
    /// The link that all clients share.
    Clients,
}

impl Shape {
    /// Slow and fast, each with a deep queue and with a shallow one.
    pub(super) const ALL: [Shape; 4] = [
        Shape { bits: 100_000_000, queue_bytes: 1 << 20 },
        Shape { bits: 100_000_000, queue_bytes: 32 << 10 },
        Shape { bits: 1_000_000_000, queue_bytes: 1 << 20 },
        Shape { bits: 1_000_000_000, queue_bytes: 64 << 10 },
    ];

    /// Bytes that a receiver may let be in flight: what the link carries in a usual round trip, and half of
    /// the queue, so that the link is not idle when somebody is late.
    pub(super) fn product(&self) -> u64 {
        self.bits / 8 / PER_ROUND_TRIP + self.queue_bytes / 2
    }

    /// Bytes that the link may send at once: those of a quarter of a millisecond, as timers are not finer,
    /// and at least two frames and some.
    fn burst_bytes(&self) -> u64 {
        FRAMES_BYTES.max(self.bits / 8 / 4000)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Mbit/s with a queue of {} KiB", self.bits / 1_000_000, self.queue_bytes >> 10)
    }
}

impl Hosts {
    /// Reason why no hosts can be made here; `None` if they can.
    pub(super) fn lacking() -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("limited links need root, for network namespaces".into());
        }
        for tool in ["ip", "tc"] {
            let mut command = Command::new(tool);
            command.arg("-V").stdout(Stdio::null()).stderr(Stdio::null());
            if !command.status().is_ok_and(|status| status.success()) {
                return Some(format!("limited links need iproute2, and there is no `{tool}`"));
            }
        }
        let probe = format!("braid-{}-probe", std::process::id());
        let made = ip(&["netns", "add", &probe]);
        let _ = ip(&["netns", "del", &probe]);
        made.err().map(|failure| failure.to_string())
    }

    /// Makes `count` hosts with one link each.
    pub(super) fn up(count: usize) -> Result<Hosts, Failure> {
        Hosts::with_rails(count, 1)
    }

    /// Makes `count` hosts with `rails` links each, at most two.
    pub(super) fn with_rails(count: usize, rails: usize) -> Result<Hosts, Failure> {
        // Made first, so that dropping it removes what exists if a later step fails.
        let hosts = Hosts { pid: std::process::id(), count, rails };
        ip(&["netns", "add", &hosts.switch()])?;
        for index in 0..count {
            let name = hosts.name(index);
            ip(&["netns", "add", &name])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
        }
        (0..rails).try_for_each(|rail| hosts.connect(rail))?;
        Ok(hosts)
    }

    /// Makes one rail: a bridge, and a link to it from here and from each host.
    fn connect(&self, rail: usize) -> Result<(), Failure> {
        let switch = self.switch();
        let here = self.here(rail);
        let bridge = format!("br{rail}");
        let clients = clients(rail);
        ip(&["-n", &switch, "link", "add", &bridge, "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", &bridge, "up"])?;
        let own = self.pid.to_string();
        ip(&["-n", &switch, "link", "add", &clients, "type", "veth", "peer", "name", &here, "netns", &own])?;
        ip(&["-n", &switch, "link", "set", &clients, "master", &bridge, "up"])?;
        ip(&["addr", "add", &format!("{}/24", self.address_on(None, rail)), "dev", &here])?;
        ip(&["link", "set", &here, "up"])?;
        for index in 0..self.count {
            let name = self.name(index);
            let port = port(index, rail);
            let device = device(rail);
            ip(&[
                "-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", &device, "netns", &name,
            ])?;
            ip(&["-n", &switch, "link", "set", &port, "master", &bridge, "up"])?;
            let address = format!("{}/24", self.address_on(Some(index), rail));
            ip(&["-n", &name, "addr", "add", &address, "dev", &device])?;
            ip(&["-n", &name, "link", "set", &device, "up"])?;
        }
        Ok(())
    }

    /// Limits links to `bits` bits a second, in both directions.
    pub(super) fn limit(&self, links: Links, bits: u64) -> Result<(), Failure> {
        let switch = self.switch();
        let queue = ["latency", LATENCY].map(str::to_owned);
        let limit = |namespace: Option<&str>, device: &str| tbf(namespace, device, bits, BURST_BYTES, &queue);
        (0..self.rails).try_for_each(|rail| match links {
            Links::Clients => {
                limit(None, &self.here(rail))?;
                limit(Some(&switch), &clients(rail))
            }
            Links::Drives => (0..self.count).try_for_each(|index| {
                limit(Some(&self.name(index)), &device(rail))?;
                limit(Some(&switch), &port(index, rail))
            }),
        })
    }

    /// Limits links to `bits` bits a second in the direction from the switch, with a queue of this many bytes
    /// before them, on the first rail, as of a switch with little memory. Senders are kept from handing over
    /// many frames as one.
    pub(super) fn narrow(&self, links: Links, bits: u64, queue_bytes: u64) -> Result<(), Failure> {
        let switch = self.switch();
        for (namespace, device) in (0..self.count).map(|index| (self.name(index), device(0))) {
            ip(&["-n", &namespace, "link", "set", &device, "gso_max_segs", "1"])?;
        }
        ip(&["link", "set", &self.here(0), "gso_max_segs", "1"])?;
        let queue = ["limit".to_owned(), format!("{queue_bytes}b")];
        match links {
            Links::Clients => tbf(Some(&switch), &clients(0), bits, FRAMES_BYTES, &queue),
            Links::Drives => (0..self.count)
                .try_for_each(|index| tbf(Some(&switch), &port(index, 0), bits, FRAMES_BYTES, &queue)),
        }
    }

    /// Shapes the clients' link, in both directions. Senders hand over single frames, as a queue of a switch
    /// counts them.
    pub(super) fn shape(&self, shape: &Shape) -> Result<(), Failure> {
        let Shape { bits, queue_bytes } = *shape;
        for (namespace, device) in (0..self.count).map(|index| (self.name(index), device(0))) {
            ip(&["-n", &namespace, "link", "set", &device, "gso_max_segs", "1"])?;
        }
        ip(&["link", "set", &self.here(0), "gso_max_segs", "1"])?;
        let queue = ["limit".to_owned(), format!("{queue_bytes}b")];
        tbf(None, &self.here(0), bits, shape.burst_bytes(), &queue)?;
        tbf(Some(&self.switch()), &clients(0), bits, shape.burst_bytes(), &queue)
    }

    /// Has the switch lose this many of 1,000 frames with IPv4, in both directions; 0: none.
    pub(super) fn lose(&self, of_1000: u32) -> Result<(), Failure> {
        let switch = self.switch();
        let rules = format!(
            "add table bridge loss; delete table bridge loss; add table bridge loss; \
             add chain bridge loss frames {{ type filter hook forward priority 0; }}; \
             add rule bridge loss frames ether type ip numgen random mod 1000 < {of_1000} drop"
        );
        if of_1000 == 0 { Ok(()) } else { ip(&["netns", "exec", &switch, "nft", &rules]) }
    }

    /// IP address of a host on the first rail, or of the manager and the clients for `None`.
    pub(super) fn address(&self, host: Option<usize>) -> String {
        self.address_on(host, 0)
    }

    /// IP address on a rail. 198.18.0.0/15 is for benchmarks (RFC 2544).
    pub(super) fn address_on(&self, host: Option<usize>, rail: usize) -> String {
        format!("198.{}.{}.{}", 18 + rail % 2, self.pid % 256, host.map_or(254, |index| index + 1))
    }

    /// A host for a drive, at its addresses on the first `rails` rails.
    pub(super) fn host(&self, index: usize, rails: usize) -> NamespaceHost {
        let addresses = (0..rails.min(self.rails)).map(|rail| self.address_on(Some(index), rail));
        NamespaceHost { name: self.name(index), addresses: addresses.collect() }
    }

    /// Name of a host's network namespace.
    pub(super) fn name(&self, index: usize) -> String {
        format!("braid-{}-{index}", self.pid)
    }

    fn switch(&self) -> String {
        format!("braid-{}-sw", self.pid)
    }

    /// Bytes that have come to the clients so far, on their link on the first rail: of frames, as the device
    /// counts them.
    pub(super) fn received(&self) -> Result<u64, Failure> {
        let path = format!("/sys/class/net/{}/statistics/rx_bytes", self.here(0));
        let doing = || format!("read {path}");
        let text = std::fs::read_to_string(&path).doing(doing)?;
        text.trim().parse().map_err(std::io::Error::other).doing(doing)
    }

    /// Device at the clients' end of their link on a rail.
    fn here(&self, rail: usize) -> String {
        let letter = if rail == 0 { 'b' } else { 'c' };
        format!("br{letter}{}", self.pid)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for rail in 0..self.rails {
            let _ = ip(&["link", "del", &self.here(rail)]);
        }
        for index in 0..self.count {
            let _ = ip(&["netns", "del", &self.name(index)]);
        }
        let _ = ip(&["netns", "del", &self.switch()]);
    }
}

/// Device at the switch's end of a host's link.
fn port(index: usize, rail: usize) -> String {
    format!("to-{index}-{rail}")
}

/// Device at a host's end of its link.
fn device(rail: usize) -> String {
    format!("eth{rail}")
}

/// Device at the switch's end of the clients' link.
fn clients(rail: usize) -> String {
    format!("clients{rail}")
}

/// `queue`: what is dropped, as words for `tc`.
fn tbf(
    namespace: Option<&str>,
    device: &str,
    bits: u64,
    burst: u64,
    queue: &[String; 2],
) -> Result<(), Failure> {
    let rate = format!("{bits}bit");
    let burst = format!("{burst}b");
    let [kind, value] = queue;
    tc(
        namespace,
        &["qdisc", "replace", "dev", device, "root", "tbf", "rate", &rate, "burst", &burst, kind, value],
    )
}

fn tc(namespace: Option<&str>, arguments: &[&str]) -> Result<(), Failure> {
    let within = namespace.map_or(vec![], |name| vec!["-n", name]);
    run("tc", &[within.as_slice(), arguments].concat())
}

fn ip(arguments: &[&str]) -> Result<(), Failure> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<(), Failure> {
    let what = || format!("run {program} {}", arguments.join(" "));
    let ended = Command::new(program).args(arguments).stdin(Stdio::null()).output().doing(what)?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    Err(Failure::new(Exit::Failed, what(), said))
}
