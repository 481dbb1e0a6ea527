//! The ways to carry a block: datagrams under a policy, TCP as Braid has it, TCP as the system has it.

use std::fmt;
use std::str::FromStr;

use braid_datagram::policy::{Kind, UnknownPolicy};

/// Bytes of a full frame on a link with an MTU of 1500, Ethernet's header among them, as `tc` counts them.
const FRAME_BYTES: f64 = 1514.0;
/// Bytes of UDP's payload in it: less the headers of Ethernet, IPv4 and UDP.
const UDP_BYTES: f64 = 1472.0;

const TCP: &str = "tcp";
const TCP_OF_SYSTEM: &str = "tcp-of-system";

/// A way to carry blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Braid's TCP connections, whose congestion control is cubic where the system allows it.
    Tcp,
    /// A plain TCP connection with whatever congestion control the system has.
    TcpOfSystem,
    /// Datagrams under this policy, at both ends.
    Datagrams(Kind),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Tcp => f.write_str(TCP),
            Way::TcpOfSystem => f.write_str(TCP_OF_SYSTEM),
            Way::Datagrams(policy) => policy.fmt(f),
        }
    }
}

impl FromStr for Way {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Way, UnknownPolicy> {
        match name {
            TCP => Ok(Way::Tcp),
            TCP_OF_SYSTEM => Ok(Way::TcpOfSystem),
            policy => policy.parse().map(Way::Datagrams),
        }
    }
}

impl Way {
    /// The ways with these names.
    ///
    /// # Panics
    ///
    /// If a name is none.
    pub(super) fn named(names: &[&str]) -> Vec<Way> {
        names.iter().map(|name| name.parse().expect("a way's name")).collect()
    }

    /// Its name in the rows' text: TCP with its congestion control.
    pub(super) fn shown(self) -> String {
        match self {
            Way::Tcp => "TCP (cubic)".to_owned(),
            Way::TcpOfSystem => format!("TCP ({})", congestion_of_system()),
            Way::Datagrams(policy) => policy.to_string(),
        }
    }

    pub(super) fn is_credit(self) -> bool {
        self == Way::Datagrams(Kind::Credit)
    }
}

/// The congestion control that connections have unless they choose.
fn congestion_of_system() -> String {
    let name = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    name.map_or_else(|_| "the system's".to_owned(), |name| name.trim().to_owned())
}

/// Bytes a second of UDP's payload that a link of so many bits a second carries. All shares are of this,
/// those of TCP too, which can reach 0.984 of it; Braid's datagrams, whose own headers have 38 bytes, 0.974.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub(super) fn carried(bits: u64) -> f64 {
    bits as f64 / 8.0 * UDP_BYTES / FRAME_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        let names = ["tcp", "tcp-of-system", "cubic", "window-3", "stop-and-wait"];
        for (way, name) in Way::named(&names).into_iter().zip(names) {
            assert_eq!(way.to_string(), name);
        }
        assert!("udp".parse::<Way>().is_err());
        assert!(Way::named(&["credit"])[0].is_credit());
    }
}
