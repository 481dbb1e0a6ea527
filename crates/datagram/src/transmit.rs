//! Datagrams as a socket sends them.

use std::net::SocketAddr;

/// The congestion field of a datagram's IP header (RFC 3168, section 5).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Nobody heeds marks of it: a queue that is too long drops it.
    #[default]
    Unaware,
    /// ECT(0): a queue that is too long may mark it instead.
    Capable,
    /// CE: a queue on the way was too long.
    Marked,
}

/// A datagram to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The address that it goes to.
    pub to: SocketAddr,
    /// That which its IP header says.
    pub ecn: Ecn,
    /// True if the path may be too short for it: it goes in a system call of its own, so that nothing else is
    /// lost with it.
    pub is_probe: bool,
}

impl Transmit {
    /// A datagram that any path carries.
    pub(crate) fn plain(to: SocketAddr) -> Transmit {
        Transmit { to, ecn: Ecn::Unaware, is_probe: false }
    }
}
