//! Keys of a connection, and the sealing of its datagrams by AES-256-GCM.
//!
//! All keys follow from the secret that both sides know and from the handshake's datagrams, in which each
//! side has drawn a nonce: so no two connections have the same. Each direction has keys of its own. A key
//! seals the datagrams of one *epoch*, 2^22 numbers, which is below the bound of RFC 9001, section 6.6; the
//! epoch follows from the number, so nobody has to agree on a change. The nonce of a datagram is the
//! direction's, XOR the number.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;

use crate::packet::{DATA_HEADER_BYTES, TAG_BYTES};

/// Bits of a number below its epoch.
pub const EPOCH_BITS: u32 = 22;

/// The secret of an identity, which both sides know. Its `Debug` form does not show it.
#[derive(Clone)]
pub struct Secret {
    bytes: [u8; 32],
    /// At an acceptor: another that the opener may know in its place.
    other: Option<[u8; 32]>,
}

/// The keys of one connection.
pub(crate) struct Keys {
    base: hmac::Key,
    sending: Direction,
    receiving: Direction,
}

/// The side of a connection that a direction begins at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Opener,
    Acceptor,
}

struct Direction {
    key: hmac::Key,
    nonce: [u8; 12],
    /// The keys of the two epochs used last.
    epochs: [Option<(u64, LessSafeKey)>; 2],
}

impl Secret {
    /// The secret with these bytes.
    pub fn new(bytes: [u8; 32]) -> Secret {
        Secret { bytes, other: None }
    }

    /// At an acceptor: this secret, or `other` in its place. So both are taken for a time when the key that
    /// secrets are made of has changed.
    pub fn or(self, other: &Secret) -> Secret {
        Secret { other: Some(other.bytes), ..self }
    }

    /// The one of both that the opener has proved to know, if any.
    pub(crate) fn proved(self, is_proved: impl Fn(&Secret) -> bool) -> Option<Secret> {
        let both = [Some(self.bytes), self.other];
        both.into_iter().flatten().map(Secret::new).find(is_proved)
    }

    pub(crate) fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.bytes)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(secret)")
    }
}

/// The HMAC-SHA256 of a label, which ends in NUL, and of parts whose lengths are fixed but for the last.
pub(crate) fn mac(key: &hmac::Key, label: &'static str, parts: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(key);
    context.update(label.as_bytes());
    context.update(&[0]);
    parts.iter().for_each(|part| context.update(part));
    context.sign().as_ref().try_into().expect("an HMAC-SHA256 has 32 bytes")
}

/// The first half of an HMAC: a proof (RFC 2104, section 5 allows it).
pub(crate) fn proof(key: &hmac::Key, label: &'static str, parts: &[&[u8]]) -> [u8; 16] {
    *mac(key, label, parts).first_chunk().expect("32 bytes have a first half")
}

/// Returns true if two proofs are equal, in time that does not depend on where they differ.
pub(crate) fn proofs_match(a: &[u8; 16], b: &[u8; 16]) -> bool {
    verify_slices_are_equal(a, b).is_ok()
}

/// A key that follows from another.
pub(crate) fn derive(key: &hmac::Key, label: &'static str, parts: &[&[u8]]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &mac(key, label, parts))
}

impl Keys {
    /// The keys of the connection with this base key, at `side`.
    pub(crate) fn new(base: hmac::Key, side: Side) -> Keys {
        let opener = Direction::new(&base, "braid datagram from opener 1");
        let acceptor = Direction::new(&base, "braid datagram from acceptor 1");
        match side {
            Side::Opener => Keys { base, sending: opener, receiving: acceptor },
            Side::Acceptor => Keys { base, sending: acceptor, receiving: opener },
        }
    }

    /// Seals the datagram whose header and content are in `out` from `begin` on, and appends the tag.
    pub(crate) fn seal(&mut self, number: u64, begin: usize, out: &mut Vec<u8>) {
        let nonce = self.sending.nonce(number);
        let (header, content) = out[begin..].split_at_mut(DATA_HEADER_BYTES);
        let key = self.sending.epoch(number >> EPOCH_BITS);
        let tag = key
            .seal_in_place_separate_tag(nonce, Aad::from(&*header), content)
            .expect("a datagram is shorter than what AES-GCM seals");
        out.extend_from_slice(tag.as_ref());
    }

    /// Opens a datagram in place. Returns its content; `None` if it is not the peer's.
    pub(crate) fn open<'a>(&mut self, number: u64, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        if datagram.len() < DATA_HEADER_BYTES + TAG_BYTES {
            return None;
        }
        let nonce = self.receiving.nonce(number);
        let (header, sealed) = datagram.split_at_mut(DATA_HEADER_BYTES);
        let key = self.receiving.epoch(number >> EPOCH_BITS);
        key.open_in_place(nonce, Aad::from(&*header), sealed).ok().map(|content| &*content)
    }

    /// The challenge to an address with this number: nobody else can know it.
    pub(crate) fn challenge(&self, number: u64) -> [u8; 8] {
        let mac = mac(&self.base, "braid datagram path 1", &[&number.to_le_bytes()]);
        *mac.first_chunk().expect("32 bytes have a first quarter")
    }
}

impl Direction {
    fn new(base: &hmac::Key, label: &'static str) -> Direction {
        let key = derive(base, label, &[]);
        let nonce = mac(&key, "braid datagram nonce 1", &[]);
        let nonce = *nonce.first_chunk().expect("32 bytes have a first 12");
        Direction { key, nonce, epochs: [None, None] }
    }

    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.nonce;
        for (byte, of_number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= of_number;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    fn epoch(&mut self, epoch: u64) -> &LessSafeKey {
        let is_it = |kept: &Option<(u64, LessSafeKey)>| kept.as_ref().is_some_and(|(of, _)| *of == epoch);
        if !is_it(&self.epochs[0]) {
            self.epochs.swap(0, 1);
        }
        if !is_it(&self.epochs[0]) {
            let key = mac(&self.key, "braid datagram epoch 1", &[&epoch.to_le_bytes()]);
            let key = UnboundKey::new(&AES_256_GCM, &key).expect("an HMAC-SHA256 has 32 bytes");
            self.epochs[0] = Some((epoch, LessSafeKey::new(key)));
        }
        let kept = self.epochs[0].as_ref().expect("it was just made");
        &kept.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> [Keys; 2] {
        [Side::Opener, Side::Acceptor].map(|side| Keys::new(Secret::new([7; 32]).key(), side))
    }

    #[test]
    fn a_datagram_opens_at_the_other_side_alone_under_its_number_alone_and_unchanged_alone() {
        let [mut opener, mut acceptor] = pair();
        let plain = [[1; DATA_HEADER_BYTES].as_slice(), b"content"].concat();
        for number in [0, 5, (1 << EPOCH_BITS) - 1, 1 << EPOCH_BITS, 1 << 40] {
            let mut sealed = plain.clone();
            opener.seal(number, 0, &mut sealed);
            assert_eq!(sealed.len(), plain.len() + TAG_BYTES);
            assert_eq!(acceptor.open(number, &mut sealed.clone()), Some(b"content".as_slice()));
            assert_eq!(acceptor.open(number + 1, &mut sealed.clone()), None);
            assert_eq!(opener.open(number, &mut sealed.clone()), None, "the directions differ");
            for at in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[at] ^= 1;
                assert_eq!(acceptor.open(number, &mut changed), None);
            }
            sealed.truncate(20);
            assert_eq!(acceptor.open(number, &mut sealed), None);
        }
    }
}
