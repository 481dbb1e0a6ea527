//! The handshake: the opener's side as a machine, and what both sides compute.
//!
//! The opener sends an Open, gets a Retry, sends the Open again with its cookie, and gets an Accept. The
//! proof in the Open is over the cookie, so an Open that was recorded is of no use once its cookie is old.
//! Both sides draw a nonce, so the keys of two connections always differ.

use std::net::SocketAddr;

use aws_lc_rs::hmac;

use crate::config::{Config, Settings};
use crate::error::EndReason;
use crate::keys::{Keys, Secret, Side, derive, proof, proofs_match};
use crate::packet::{Accept, COOKIE_BYTES, Open, Packet};
use crate::{MILLISECOND, SECOND};

/// Time after which the first Open is sent again; the next pauses are twice as long each.
const AGAIN_NS: u64 = 100 * MILLISECOND;
/// The longest pause between two Opens.
const AGAIN_NS_MAX: u64 = SECOND;
/// Retries that are answered at most: more are no acceptor's.
const RETRIES_MAX: u8 = 8;

/// A connection that is being opened.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) peer: SocketAddr,
    own_id: u32,
    settings: Settings,
    secret: Secret,
    identity: Vec<u8>,
    nonce: [u8; 32],
    cookie: [u8; COOKIE_BYTES],
    retries: u8,
    tries: u32,
    /// The moment to send the Open.
    send_ns: u64,
    /// The end of the handshake's time.
    until_ns: u64,
}

/// That which an opened connection begins with.
pub(crate) struct Opened {
    pub(crate) peer_id: u32,
    pub(crate) peer_settings: Settings,
    pub(crate) keys: Keys,
    /// When the first datagram that led here was sent, if it is the last one that was.
    pub(crate) sent_ns: Option<u64>,
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
            cookie: [0; COOKIE_BYTES],
            retries: 0,
            tries: 0,
            send_ns: now_ns,
            until_ns: now_ns.saturating_add(config.open_ns),
        }
    }

    pub(crate) fn deadline(&self) -> u64 {
        self.send_ns.min(self.until_ns)
    }

    /// The Open, if it is due.
    pub(crate) fn poll_transmit(&mut self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        if now_ns < self.send_ns {
            return false;
        }
        out.extend_from_slice(&Packet::Open(self.open()).emit());
        self.send_ns = now_ns + (AGAIN_NS << self.tries.min(10)).min(AGAIN_NS_MAX);
        self.tries += 1;
        true
    }

    /// The reason that the handshake has failed by now, if it has.
    pub(crate) fn handle_timeout(&self, now_ns: u64) -> Option<EndReason> {
        (now_ns >= self.until_ns).then_some(EndReason::NotOpened)
    }

    pub(crate) fn handle_retry(&mut self, now_ns: u64, cookie: [u8; COOKIE_BYTES]) {
        if self.retries < RETRIES_MAX && cookie != self.cookie {
            self.retries += 1;
            (self.cookie, self.send_ns, self.tries) = (cookie, now_ns, 0);
        }
    }

    /// The acceptor's answer. `None` if it is not proved.
    pub(crate) fn handle_accept(&self, accept: &Accept) -> Option<Opened> {
        let base = base_key(&self.secret, &self.open(), accept);
        if !proofs_match(&accept_proof(&base), &accept.proof) {
            return None;
        }
        let sent_ns = (self.tries == 1).then(|| self.send_ns - AGAIN_NS);
        Some(Opened {
            peer_id: accept.from,
            peer_settings: accept.settings,
            keys: Keys::new(base, Side::Opener),
            sent_ns,
        })
    }

    fn open(&self) -> Open<'_> {
        let mut open = Open {
            from: self.own_id,
            settings: self.settings,
            nonce: self.nonce,
            cookie: self.cookie,
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

/// The key that all keys of the connection follow from.
pub(crate) fn base_key(secret: &Secret, open: &Open<'_>, accept: &Accept) -> hmac::Key {
    derive(&secret.key(), "braid datagram connection 1", &[&open.head(), &accept.head(), open.identity])
}

/// The proof that an Accept must carry.
pub(crate) fn accept_proof(base: &hmac::Key) -> [u8; 16] {
    proof(base, "braid datagram accept 1", &[])
}
