//! The addresses of this machine that peers have called, on a socket that is at all of them.
//!
//! An answer leaves from the address that was called: a peer's socket hears no other. Before a peer is known
//! its last datagram decides. While it has a connection nothing that somebody sends in its name does.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Peers without a connection that are remembered at least; more than as many again as have one are not.
const SPARE: usize = 256;

/// By each peer's address, the one that it has called.
#[derive(Debug)]
pub(crate) struct Called {
    ips: BTreeMap<SocketAddr, IpAddr>,
    /// Number of peers beyond which those without a connection are forgotten.
    most: usize,
}

impl Called {
    pub(crate) fn new() -> Called {
        Called { ips: BTreeMap::new(), most: SPARE }
    }

    /// The address that this peer has called, if it is known.
    pub(crate) fn by(&self, peer: SocketAddr) -> Option<IpAddr> {
        self.ips.get(&peer).copied()
    }

    /// A datagram of this peer came to this address.
    pub(crate) fn note(&mut self, peer: SocketAddr, ip: IpAddr, has_connection: impl Fn(SocketAddr) -> bool) {
        if self.by(peer).is_some_and(|known| known == ip || has_connection(peer)) {
            return;
        }
        if self.ips.len() >= self.most {
            self.ips.retain(|peer, _| has_connection(*peer));
            self.most = 2 * self.ips.len() + SPARE;
        }
        self.ips.insert(peer, ip);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], number))
    }

    #[test]
    fn strangers_take_a_bounded_place_and_no_peer_s() {
        let [first, second] = [[10, 0, 0, 8], [10, 0, 0, 9]].map(IpAddr::from);
        let mut called = Called::new();
        let has_connection = |peer: SocketAddr| peer.port() < 1000;
        for number in 0..1000 {
            called.note(peer(number), first, has_connection);
        }
        for number in 1000..=u16::MAX {
            called.note(peer(number), first, has_connection);
            assert_eq!(called.by(peer(number)), Some(first));
            assert!(called.ips.len() <= 2000 + SPARE, "{}", called.ips.len());
        }
        assert!((0..1000).all(|number| called.by(peer(number)) == Some(first)));
        // A stranger may call another address next.
        for number in [7, u16::MAX] {
            called.note(peer(number), second, has_connection);
        }
        assert_eq!([7, u16::MAX].map(|number| called.by(peer(number))), [Some(first), Some(second)]);
    }
}
