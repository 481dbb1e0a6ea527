//! Ways to send the bytes of a read: copied through a buffer, or by `sendfile` from the page cache.
//!
//! The way that takes less processor time is used. A drive finds out by trying both (`send_costs`), when it
//! starts and every ten minutes, and stays with what it has unless the other is clearly better.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use braid_store::disk::is_residency_told;

use crate::connections::send_costs::{Cost, LENGTHS, Pair, measure};

/// Time between two measurements: they take a tenth of a second.
pub(crate) const MEASURED_EVERY: Duration = Duration::from_secs(600);

/// Where nothing was measured, reads of this many bytes by other machines are sent by `sendfile`.
const BYTES_MIN: u32 = 256 << 10;
/// `sendfile` replaces the copy, or the copy `sendfile`, if it costs at most this share of it, in percent.
const BETTER_PERCENT: u64 = 95;

/// Way to send bytes that are in the page cache. Other bytes are always read into a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sending {
    /// The way that takes less processor time, by measurement. Where nothing can be measured: `sendfile` for
    /// long reads (256 KiB and more) by other machines, else a copy.
    #[default]
    Auto,
    /// A copy through a buffer, never `sendfile`.
    Copy,
    /// `sendfile` for all bytes that are in the page cache.
    Sendfile,
}

impl Sending {
    /// Reason why this way cannot be used on this system; `None` if it can.
    pub(crate) fn refusal(self) -> Option<&'static str> {
        match self {
            Sending::Sendfile if !is_residency_told() => Some(
                "the system does not tell what is in the page cache (cachestat: Linux 6.5, or the container's policy)",
            ),
            _ => None,
        }
    }
}

/// The way that a drive sends, for each length and peer.
pub(crate) struct Chosen {
    told: Sending,
    /// Reads of this many bytes or more are sent to this machine by `sendfile`.
    local_min: AtomicU32,
    /// The same, to other machines.
    remote_min: AtomicU32,
    /// The reason, for people.
    why: Mutex<String>,
}

/// A length that no read has.
const NEVER: u32 = u32::MAX;

impl Chosen {
    /// The choice before anything was measured.
    pub(crate) fn new(told: Sending) -> Chosen {
        let (local, remote) = match told {
            Sending::Copy => (NEVER, NEVER),
            Sending::Auto => (NEVER, BYTES_MIN),
            Sending::Sendfile => (1, 1),
        };
        Chosen {
            told,
            local_min: AtomicU32::new(local),
            remote_min: AtomicU32::new(remote),
            why: Mutex::default(),
        }
    }

    /// Reads of this many bytes or more are sent by `sendfile`, to a peer on this machine (`is_local`) or
    /// another.
    pub(crate) fn bytes_min(&self, is_local: bool) -> u32 {
        let min = if is_local { &self.local_min } else { &self.remote_min };
        min.load(Ordering::Relaxed)
    }

    /// Measures, and chooses by it, if that was left to the drive.
    pub(crate) fn measure(&self, directory: &Path) {
        if self.told != Sending::Auto || !is_residency_told() {
            return;
        }
        match measure(directory) {
            Ok(pairs) => self.heed(&pairs),
            Err(error) => tracing::info!(%error, "what sending costs cannot be measured here"),
        }
    }

    fn heed(&self, pairs: &[Pair; LENGTHS.len()]) {
        let local = shortest(self.bytes_min(true), pairs, Cost::both_ns);
        let remote = shortest(self.bytes_min(false), pairs, |cost| cost.sender_ns);
        self.local_min.store(local, Ordering::Relaxed);
        self.remote_min.store(remote, Ordering::Relaxed);
        let last = pairs[LENGTHS.len() - 1];
        let why = format!(
            "CPU s/GiB: sendfile {:.2} (here {:.2}), copy {:.2} ({:.2})",
            Cost::seconds_per_gib(last.sendfile.sender_ns),
            Cost::seconds_per_gib(last.sendfile.both_ns()),
            Cost::seconds_per_gib(last.copy.sender_ns),
            Cost::seconds_per_gib(last.copy.both_ns()),
        );
        tracing::info!(local, remote, why, "lengths from which reads are sent by sendfile");
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// The measured lengths, for people; empty if nothing was measured.
    pub(crate) fn why(&self) -> String {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The shortest of the lengths from which on `sendfile` costs less; [`NEVER`] if there is none. `now`: the
/// one that is used, which stays where there is little between the two ways.
fn shortest(now: u32, pairs: &[Pair; LENGTHS.len()], of: impl Fn(Cost) -> u64) -> u32 {
    let is_better = |length: u32, pair: &Pair| {
        let copy = of(pair.copy);
        let sendfile = of(pair.sendfile);
        if length >= now {
            // In use: the copy must be clearly better to replace it.
            copy.saturating_mul(100) > sendfile.saturating_mul(BETTER_PERCENT)
        } else {
            sendfile.saturating_mul(100) <= copy.saturating_mul(BETTER_PERCENT)
        }
    };
    let mut from = NEVER;
    for (length, pair) in LENGTHS.into_iter().zip(pairs).rev() {
        if !is_better(length, pair) {
            break;
        }
        from = length;
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(copy: [u64; 2], sendfile: [u64; 2]) -> Pair {
        let cost = |[sender_ns, receiver_ns]: [u64; 2]| Cost { sender_ns, receiver_ns };
        Pair { copy: cost(copy), sendfile: cost(sendfile) }
    }

    #[test]
    fn what_is_named_is_used_and_before_a_measurement_the_peer_decides() {
        let min = |told| [true, false].map(|is_local| Chosen::new(told).bytes_min(is_local));
        assert_eq!(min(Sending::Sendfile), [1, 1]);
        assert_eq!(min(Sending::Copy), [NEVER, NEVER]);
        assert_eq!(min(Sending::Auto), [NEVER, BYTES_MIN]);
    }

    #[test]
    fn the_cheaper_way_is_chosen_and_kept_until_the_other_is_clearly_better() {
        let chosen = Chosen::new(Sending::Auto);
        // To other machines sendfile wins from 256 KiB on, to this one never: the reader pays more.
        let dear = pair([100, 50], [150, 80]);
        let cheap = pair([100, 50], [60, 100]);
        chosen.heed(&[dear, cheap, cheap]);
        assert_eq!((chosen.bytes_min(false), chosen.bytes_min(true)), (256 << 10, NEVER));
        assert!(chosen.why().contains("sendfile"));
        // Nearly equal: each stays as it is.
        let even = pair([100, 50], [103, 50]);
        chosen.heed(&[dear, even, even]);
        assert_eq!((chosen.bytes_min(false), chosen.bytes_min(true)), (256 << 10, NEVER));
        // Clearly the other way round.
        let best = pair([100, 50], [40, 50]);
        chosen.heed(&[best, best, best]);
        assert_eq!((chosen.bytes_min(false), chosen.bytes_min(true)), (64 << 10, 64 << 10));
        chosen.heed(&[dear, dear, dear]);
        assert_eq!((chosen.bytes_min(false), chosen.bytes_min(true)), (NEVER, NEVER));
    }
}
