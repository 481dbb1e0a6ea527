//! Random bytes that follow from a seed.

use aws_lc_rs::hmac;

use crate::keys::{derive, mac};

/// Draws that nobody who lacks the seed can foretell.
pub(crate) struct Draws {
    key: hmac::Key,
    drawn: u64,
}

impl Draws {
    pub(crate) fn new(seed: &[u8; 32]) -> Draws {
        Draws { key: hmac::Key::new(hmac::HMAC_SHA256, seed), drawn: 0 }
    }

    /// A key that has nothing to do with the draws.
    pub(crate) fn key(&self, label: &'static str) -> hmac::Key {
        derive(&self.key, label, &[])
    }

    /// The next 32 bytes.
    pub(crate) fn draw(&mut self) -> [u8; 32] {
        self.drawn += 1;
        mac(&self.key, "braid datagram draw 1", &[&self.drawn.to_le_bytes()])
    }
}
