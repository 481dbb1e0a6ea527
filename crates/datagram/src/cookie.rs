//! Cookies: an acceptor's proof to itself that an opener receives what is sent to its address. It keeps
//! nothing of the opener meanwhile.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::hmac;

use crate::SECOND;
use crate::keys::{proof, proofs_match};
use crate::packet::{COOKIE_BYTES, Open};

/// Time for which a cookie is good.
pub(crate) const COOKIE_NS: u64 = 5 * SECOND;

/// Makes and checks the cookies of one acceptor.
pub(crate) struct Cookies(hmac::Key);

impl Cookies {
    pub(crate) fn new(key: hmac::Key) -> Cookies {
        Cookies(key)
    }

    /// The cookie for this Open from this address.
    pub(crate) fn make(&self, now_ns: u64, from: SocketAddr, open: &Open<'_>) -> [u8; COOKIE_BYTES] {
        let mut cookie = [0; COOKIE_BYTES];
        cookie[..8].copy_from_slice(&now_ns.to_le_bytes());
        cookie[8..].copy_from_slice(&self.proof(now_ns, from, open));
        cookie
    }

    /// Returns true if the Open has a cookie that was made for it lately.
    pub(crate) fn holds(&self, now_ns: u64, from: SocketAddr, open: &Open<'_>) -> bool {
        let (time, shown) = open.cookie.split_at(8);
        let made_ns = u64::from_le_bytes(time.try_into().expect("eight bytes"));
        let shown = shown.try_into().expect("sixteen bytes");
        let is_recent = made_ns <= now_ns && now_ns - made_ns < COOKIE_NS;
        is_recent && proofs_match(&self.proof(made_ns, from, open), shown)
    }

    fn proof(&self, made_ns: u64, from: SocketAddr, open: &Open<'_>) -> [u8; 16] {
        let ip = match from.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&made_ns.to_le_bytes());
        bytes.extend_from_slice(&ip.octets());
        bytes.extend_from_slice(&from.port().to_le_bytes());
        bytes.extend_from_slice(&open.from.to_le_bytes());
        bytes.extend_from_slice(&open.nonce);
        proof(&self.0, "braid datagram cookie 1", &[&bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    #[test]
    fn a_cookie_is_good_for_its_address_nonce_and_time_alone() {
        let cookies = Cookies::new(hmac::Key::new(hmac::HMAC_SHA256, &[1; 32]));
        let home: SocketAddr = "10.0.0.1:7".parse().unwrap();
        let mut open = Open {
            from: 3,
            settings: Settings::default(),
            nonce: [2; 32],
            cookie: [0; COOKIE_BYTES],
            proof: [0; 16],
            identity: b"who",
        };
        assert!(!cookies.holds(9, home, &open));
        open.cookie = cookies.make(9, home, &open);
        assert!(cookies.holds(9 + COOKIE_NS - 1, home, &open));
        assert!(!cookies.holds(9 + COOKIE_NS, home, &open));
        assert!(!cookies.holds(8, home, &open));
        assert!(!cookies.holds(9, "10.0.0.1:8".parse().unwrap(), &open));
        assert!(!cookies.holds(9, "10.0.0.2:7".parse().unwrap(), &open));
        assert!(!cookies.holds(9, home, &Open { nonce: [3; 32], ..open }));
        assert!(!cookies.holds(9, home, &Open { from: 4, ..open }));
    }
}
