//! Hosts: a network namespace for each drive, all on one bridge, whose links can be limited (`tc tbf`). The
//! manager and the clients stay in this process's namespace, on one link to that bridge. Needs root and
//! iproute2. The namespaces' names hold this process's id; dropping the value removes them.

use std::process::{Command, Stdio};

use braid_cli::output::exit::{Doing, Exit, Failure};

/// Share of each frame that TCP carries: 1448 of 1514 bytes.
pub(super) const PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;
/// Bytes that a limited link may send at once.
pub(super) const BURST_BYTES: u64 = 64 << 10;
/// Time for which a limited link lets a frame wait before it drops it.
const LATENCY: &str = "50ms";
/// Bytes that a link with a short queue may send at once: two frames and some.
const FRAMES_BYTES: u64 = 4 << 10;

pub(super) struct Hosts {
    pid: u32,
    count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    Drives,
    /// The link that all clients share.
    Clients,
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

    /// Makes `count` hosts.
    pub(super) fn up(count: usize) -> Result<Hosts, Failure> {
        // Made first, so that dropping it removes what exists if a later step fails.
        let hosts = Hosts { pid: std::process::id(), count };
        let switch = hosts.switch();
        let here = hosts.here();
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "br0", "up"])?;
        let own = hosts.pid.to_string();
        ip(&["-n", &switch, "link", "add", "clients", "type", "veth", "peer", "name", &here, "netns", &own])?;
        ip(&["-n", &switch, "link", "set", "clients", "master", "br0", "up"])?;
        ip(&["addr", "add", &format!("{}/24", hosts.address(None)), "dev", &here])?;
        ip(&["link", "set", &here, "up"])?;
        for index in 0..count {
            let name = hosts.name(index);
            let port = port(index);
            ip(&["netns", "add", &name])?;
            ip(&[
                "-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &name,
            ])?;
            ip(&["-n", &switch, "link", "set", &port, "master", "br0", "up"])?;
            ip(&["-n", &name, "addr", "add", &format!("{}/24", hosts.address(Some(index))), "dev", "eth0"])?;
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
        }
        Ok(hosts)
    }

    /// Limits links to `bits` bits a second, in both directions.
    pub(super) fn limit(&self, links: Links, bits: u64) -> Result<(), Failure> {
        let switch = self.switch();
        let queue = ["latency", LATENCY].map(str::to_owned);
        let limit = |namespace: Option<&str>, device: &str| tbf(namespace, device, bits, BURST_BYTES, &queue);
        match links {
            Links::Clients => {
                limit(None, &self.here())?;
                limit(Some(&switch), "clients")
            }
            Links::Drives => (0..self.count).try_for_each(|index| {
                limit(Some(&self.name(index)), "eth0")?;
                limit(Some(&switch), &port(index))
            }),
        }
    }

    /// Limits links to `bits` bits a second in the direction from the switch, with a queue of this many bytes
    /// before them, as of a switch with little memory. Senders are kept from handing over many frames as one.
    pub(super) fn narrow(&self, links: Links, bits: u64, queue_bytes: u64) -> Result<(), Failure> {
        let switch = self.switch();
        for (namespace, device) in (0..self.count).map(|index| (self.name(index), "eth0".to_owned())) {
            ip(&["-n", &namespace, "link", "set", &device, "gso_max_segs", "1"])?;
        }
        ip(&["link", "set", &self.here(), "gso_max_segs", "1"])?;
        let queue = ["limit".to_owned(), format!("{queue_bytes}b")];
        match links {
            Links::Clients => tbf(Some(&switch), "clients", bits, FRAMES_BYTES, &queue),
            Links::Drives => (0..self.count)
                .try_for_each(|index| tbf(Some(&switch), &port(index), bits, FRAMES_BYTES, &queue)),
        }
    }

    /// IP address of a host, or of the manager and the clients for `None`. 198.18.0.0/15 is for benchmarks
    /// (RFC 2544).
    pub(super) fn address(&self, host: Option<usize>) -> String {
        format!("198.18.{}.{}", self.pid % 256, host.map_or(254, |index| index + 1))
    }

    /// Name of a host's network namespace.
    pub(super) fn name(&self, index: usize) -> String {
        format!("braid-{}-{index}", self.pid)
    }

    fn switch(&self) -> String {
        format!("braid-{}-sw", self.pid)
    }

    /// Device at the clients' end of their link.
    fn here(&self) -> String {
        format!("brb{}", self.pid)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = ip(&["link", "del", &self.here()]);
        for index in 0..self.count {
            let _ = ip(&["netns", "del", &self.name(index)]);
        }
        let _ = ip(&["netns", "del", &self.switch()]);
    }
}

/// Device at the switch's end of a host's link.
fn port(index: usize) -> String {
    format!("to-{index}")
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
