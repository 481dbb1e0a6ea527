//! The handshake: the opener's side as a machine, and what both sides compute.
//!
//! The opener sends an Open, gets a Retry, sends the Open again with its cookie, and gets an Accept. The
//! proof in the Open is over the cookie, so an Open that was recorded is of no use once its cookie is old. On
//! a long path several Opens are on their way at a time, and several Retries: the keys do not depend on the
//! cookie, so an Accept of any of them is understood.
//! Both sides draw a nonce, so the keys of two connections always differ.

use std::net::SocketAddr;

use aws_lc_rs::hmac;

use crate::config::{Config, Settings};
use crate::error::EndReason;
use crate::keys::{Keys, Secret, Side, derive, proof, proofs_match};
use crate::packet::{Accept, COOKIE_BYTES, Open, Packet};
use crate::rtt::Rtt;
use crate::{MILLISECOND, SECOND};

/// Time after which the first Open is sent again; the next pauses are twice as long each.
const AGAIN_NS: u64 = 100 * MILLISECOND;
/// The longest pause between two Opens.
const AGAIN_NS_MAX: u64 = SECOND;
/// Time for which a refusal waits for an Accept, which would show that it was forged, or that the Open was
/// changed on its way: as long as the handshake has taken, between these bounds.
const REFUSAL_NS_MIN: u64 = 150 * MILLISECOND;
const REFUSAL_NS_MAX: u64 = SECOND;

/// A connection that is being opened.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) peer: SocketAddr,
    own_id: u32,
    settings: Settings,
    secret: Secret,
    identity: Vec<u8>,
    nonce: [u8; 32],
    /// That of the last Retry.
    cookie: Option<[u8; COOKIE_BYTES]>,
    /// Opens since the beginning or the first cookie.
    tries: u32,
    /// The time at which the first of these was sent.
    first_ns: u64,
    /// The moment to send the Open.
    send_ns: u64,
    begun_ns: u64,
    /// The end of the handshake's time.
    until_ns: u64,
    /// That which an acceptor said, or somebody in its name, and until when it may turn out to be wrong.
    refusal: Option<(u64, EndReason)>,
    believes_refusals: bool,
}

/// That which an opened connection begins with.
pub(crate) struct Opened {
    pub(crate) peer_id: u32,
    pub(crate) peer_settings: Settings,
    pub(crate) keys: Keys,
    /// That which the handshake tells of the path.
    pub(crate) rtt: Rtt,
}

impl Opening {
    pub(crate) fn new(
        now_ns: u64,
        config: &Config,
        peer: SocketAddr,
        own_id: u32,
        identity: Vec<u8>,
        secret: Secret,
        nonce: [u8; 32],
    ) -> Opening {
        Opening {
            peer,
            own_id,
            settings: config.settings,
            secret,
            identity,
            nonce,
            cookie: None,
            tries: 0,
            first_ns: now_ns,
            send_ns: now_ns,
            begun_ns: now_ns,
            until_ns: now_ns.saturating_add(config.open_ns),
            refusal: None,
            believes_refusals: config.believes_refusals,
        }
    }

    pub(crate) fn deadline(&self) -> u64 {
        let until_ns = self.refusal.as_ref().map_or(self.until_ns, |(at, _)| self.until_ns.min(*at));
        self.send_ns.min(until_ns)
    }

    /// The Open, if it is due.
    pub(crate) fn poll_transmit(&mut self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        if now_ns < self.send_ns {
            return false;
        }
        out.extend_from_slice(&Packet::Open(self.open()).emit());
        if self.tries == 0 {
            self.first_ns = now_ns;
        }
        self.send_ns = now_ns + (AGAIN_NS << self.tries.min(10)).min(AGAIN_NS_MAX);
        self.tries += 1;
        true
    }

    /// The reason that the handshake has failed by now, if it has.
    pub(crate) fn handle_timeout(&mut self, now_ns: u64) -> Option<EndReason> {
        if let Some((_, why)) = self.refusal.take_if(|(at, _)| now_ns >= *at) {
            return Some(why);
        }
        (now_ns >= self.until_ns).then_some(EndReason::NotOpened)
    }

    /// The acceptor's cookie. The first is shown at once. Others are answers to Opens that were sent before
    /// it came, or the first was no good: they are shown when the Open is sent again anyway, so that a flood
    /// of them is not answered by one.
    pub(crate) fn handle_retry(&mut self, now_ns: u64, cookie: [u8; COOKIE_BYTES]) {
        if self.cookie.replace(cookie).is_none() {
            (self.send_ns, self.tries) = (now_ns, 0);
        }
        // Who sends a Retry is there, and speaks this version.
        self.refusal.take_if(|(_, why)| matches!(why, EndReason::Version { .. } | EndReason::NotOpened));
    }

    /// Somebody at the acceptor's address says that there will be no connection. It is not proved.
    pub(crate) fn handle_refusal(&mut self, now_ns: u64, why: EndReason) {
        // An acceptor refuses those alone who have shown a cookie.
        let is_possible = match why {
            EndReason::Version { .. } => self.cookie.is_none(),
            EndReason::NotOpened => true,
            _ => self.cookie.is_some(),
        };
        if is_possible && self.refusal.is_none() {
            let pause = (now_ns - self.begun_ns).clamp(REFUSAL_NS_MIN, REFUSAL_NS_MAX);
            self.refusal = Some((now_ns + if self.believes_refusals { 0 } else { pause }, why));
        }
    }

    /// The acceptor's answer. `None` if it is not proved.
    pub(crate) fn handle_accept(&self, now_ns: u64, accept: &Accept) -> Option<Opened> {
        let base = base_key(&self.secret, &self.open(), accept);
        if !proofs_match(&accept_proof(&base), &accept.proof) {
            return None;
        }
        // Which of several Opens is answered is not known: it was the first at the earliest.
        let took_ns = now_ns.saturating_sub(self.first_ns);
        let rtt = if self.tries == 1 { Rtt::measured(took_ns) } else { Rtt::assumed(took_ns) };
        let keys = Keys::new(base, Side::Opener);
        Some(Opened { peer_id: accept.from, peer_settings: accept.settings, keys, rtt })
    }

    fn open(&self) -> Open<'_> {
        let mut open = Open {
            from: self.own_id,
            settings: self.settings,
            nonce: self.nonce,
            cookie: self.cookie.unwrap_or_default(),
            proof: [0; 16],
            identity: &self.identity,
        };
        open.proof = open_proof(&self.secret, &open);
        open
    }
}

/// The proof that an Open must carry.
pub(crate) fn open_proof(secret: &Secret, open: &Open<'_>) -> [u8; 16] {
    proof(&secret.key(), "braid datagram open 1", &[&open.head(), open.identity])
}

/// The key that all keys of the connection follow from. The cookie is no part of it: whichever of its Opens
/// an acceptor answers, the opener can tell.
pub(crate) fn base_key(secret: &Secret, open: &Open<'_>, accept: &Accept) -> hmac::Key {
    let head = open.head();
    let lasting = &head[..head.len() - COOKIE_BYTES];
    derive(&secret.key(), "braid datagram connection 1", &[lasting, &accept.head(), open.identity])
}

/// The proof that an Accept must carry.
pub(crate) fn accept_proof(base: &hmac::Key) -> [u8; 16] {
    proof(base, "braid datagram accept 1", &[])
}
