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

    /// The age of the Open's cookie, if it was made for it lately.
    pub(crate) fn age(&self, now_ns: u64, from: SocketAddr, open: &Open<'_>) -> Option<u64> {
        let (time, shown) = open.cookie.split_at(8);
        let made_ns = u64::from_le_bytes(time.try_into().expect("eight bytes"));
        let shown = shown.try_into().expect("sixteen bytes");
        let age = now_ns.checked_sub(made_ns).filter(|age| *age < COOKIE_NS)?;
        proofs_match(&self.proof(made_ns, from, open), shown).then_some(age)
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
        assert_eq!(cookies.age(9, home, &open), None);
        open.cookie = cookies.make(9, home, &open);
        assert_eq!(cookies.age(9 + COOKIE_NS - 1, home, &open), Some(COOKIE_NS - 1));
        assert_eq!(cookies.age(9 + COOKIE_NS, home, &open), None);
        assert_eq!(cookies.age(8, home, &open), None);
        assert_eq!(cookies.age(9, "10.0.0.1:8".parse().unwrap(), &open), None);
        assert_eq!(cookies.age(9, "10.0.0.2:7".parse().unwrap(), &open), None);
        assert_eq!(cookies.age(9, home, &Open { nonce: [3; 32], ..open }), None);
        assert_eq!(cookies.age(9, home, &Open { from: 4, ..open }), None);
    }
}
