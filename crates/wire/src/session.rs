//! State that a drive keeps of one connection: the last sequence number, and the private parts of the
//! capabilities that were used last.
//!
//! Only *derived* values are kept: a private part follows from the bytes of the public part and from the
//! drive's keys. When the drive's master key is turned, all are forgotten. Whether a capability still holds
//! (epoch, expiry, generation, lease) is checked anew for each request, as for a capability that was never
//! seen. So a kept capability allows nothing that the same one would not allow on a new connection; it costs
//! one MAC instead of two.
//!
//! A capability is kept only once a request has proved it, so a stranger cannot fill the memory. It is
//! dropped when a request under it is refused because of its key or its expiry.

use crate::capability::{Authority, Capability, MacKey};
use crate::codec::{DecodeError, Wire};
use crate::refusal::{Reason, Refusal};
use crate::seal::split;

/// Length of a public part, in bytes: all its fields are of fixed length.
const PUBLIC_BYTES: usize = Capability::BYTES_MIN;
/// Number of sets of capabilities. A hash of the public part's bytes chooses the set.
const SETS: usize = 16;
/// Maximum number of capabilities in a set: together 64.
const WAYS: usize = 4;

/// The state kept of one connection.
#[derive(Debug, Default)]
pub struct Session {
    /// The highest sequence number of a request with a good MAC.
    sequence: u64,
    /// Number of the drive's master key from which the private parts follow.
    key_number: u32,
    /// True if nobody reads along: the connection is in TLS.
    is_private: bool,
    /// The kept capabilities by set, in each set the one used last first.
    known: [Vec<Known>; SETS],
}

/// The private part of a capability.
#[derive(Debug, Clone)]
pub(crate) struct PrivatePart {
    pub(crate) key: MacKey,
    /// True if it follows from the drive's master key before the last turn.
    pub(crate) is_former: bool,
}

/// A capability that was proved on this connection.
#[derive(Debug)]
struct Known {
    public: [u8; PUBLIC_BYTES],
    capability: Capability,
    private: PrivatePart,
}

/// The authority of a request, and the private part of its capability if that is kept.
pub(crate) struct Shown {
    pub(crate) authority: Authority,
    pub(crate) private: Option<PrivatePart>,
}

impl Session {
    /// Creates the state of a connection whose last proven request had this sequence number; 0: none has
    /// come.
    pub fn after(sequence: u64) -> Session {
        Session { sequence, ..Session::default() }
    }

    /// Creates the state of a new connection; `is_private`: it is in TLS, or it never leaves the process.
    pub fn begun(is_private: bool) -> Session {
        Session { is_private, ..Session::default() }
    }

    /// Returns true if nobody reads along.
    pub(crate) fn is_private(&self) -> bool {
        self.is_private
    }

    /// The highest sequence number of a request with a good MAC; 0: none has come.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Number of capabilities that are kept.
    pub fn known(&self) -> usize {
        self.known.iter().map(Vec::len).sum()
    }

    /// The number of the drive's master key now.
    pub(crate) fn handle_keys(&mut self, key_number: u32) {
        if self.key_number != key_number {
            self.key_number = key_number;
            self.known.iter_mut().for_each(Vec::clear);
        }
    }

    /// Splits a request's body into its authority and its arguments. Nothing is checked here.
    pub(crate) fn split<'a>(&mut self, body: &'a [u8]) -> Result<(Shown, &'a [u8]), DecodeError> {
        let known = body.split_first_chunk::<PUBLIC_BYTES>().and_then(|(public, rest)| {
            let set = &mut self.known[set_of(public)];
            let at = set.iter().position(|known| known.public == *public)?;
            set[..=at].rotate_right(1);
            Some((&set[0], rest))
        });
        let Some((known, mut rest)) = known else {
            let (authority, arguments) = split(body)?;
            return Ok((Shown { authority, private: None }, arguments));
        };
        let authority = Authority {
            capability: known.capability.clone(),
            sequence: Wire::take(&mut rest)?,
            nonce: Wire::take(&mut rest)?,
            mac: Wire::take(&mut rest)?,
        };
        Ok((Shown { authority, private: Some(known.private.clone()) }, rest))
    }

    /// Takes note of a request with this `body` and a valid MAC. `refused` is the refusal, if a later check
    /// refused the request.
    pub(crate) fn handle_proven(
        &mut self,
        sequence: u64,
        body: &[u8],
        capability: &Capability,
        private: PrivatePart,
        refused: Option<&Refusal>,
    ) {
        self.sequence = sequence;
        let Some(&public) = body.first_chunk::<PUBLIC_BYTES>() else { return };
        let set = &mut self.known[set_of(&public)];
        let is_known = set.first().is_some_and(|known| known.public == public);
        let is_over = |refusal: &Refusal| {
            matches!(refusal.reason, Reason::Expired | Reason::StaleKey | Reason::NoPartition)
        };
        if refused.is_some_and(is_over) {
            if is_known {
                set.remove(0);
            }
        } else if !is_known {
            set.truncate(WAYS - 1);
            set.insert(0, Known { public, capability: capability.clone(), private });
        }
    }
}

/// The set of a public part: FNV-1a over 8-byte words. A collision does no harm: it only costs a second
/// MAC.
fn set_of(public: &[u8; PUBLIC_BYTES]) -> usize {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for word in public.chunks(8) {
        let mut whole = [0; 8];
        whole[..word.len()].copy_from_slice(word);
        hash = (hash ^ u64::from_le_bytes(whole)).wrapping_mul(0x0100_0000_01b3);
    }
    usize::try_from(hash >> 60).expect("four bits")
}

const _: () = assert!(SETS == 16, "four bits of the hash choose one");
