//! Writers that wait for room under a quota, while others hold room that they may not need. Pure: time is a
//! parameter.
//!
//! Who holds room is told with the next renewal of its lease to give back what it does not need. So it is
//! worth waiting for a renewal of all, and no longer.

use std::collections::BTreeMap;

use braid_layout::{HolderId, VolumeId};

/// Maximum time, in milliseconds, for which a writer waits for room that others give back: longer than the
/// time between two renewals.
pub const WAIT_MS: u64 = 15_000;
/// Time, in milliseconds, after which a writer that waits is to ask again.
pub const AGAIN_MS: u64 = 250;
/// Time, in milliseconds, without a request after which a writer waits no more.
const WAITS_MS: u64 = 5_000;

/// The writers that wait.
#[derive(Debug, Default)]
pub struct Scarce(BTreeMap<HolderId, Wait>);

#[derive(Debug, Clone, Copy)]
struct Wait {
    volume: VolumeId,
    since_ms: u64,
    asked_ms: u64,
}

impl Scarce {
    /// Notes that there is no room for a writer. Returns true if it may wait for some.
    pub fn waits(&mut self, holder: HolderId, volume: VolumeId, now_ms: u64) -> bool {
        self.0.retain(|_, wait| now_ms < wait.asked_ms + WAITS_MS);
        let wait = self.0.entry(holder).or_insert(Wait { volume, since_ms: now_ms, asked_ms: now_ms });
        wait.asked_ms = now_ms;
        now_ms < wait.since_ms + WAIT_MS
    }

    /// Notes that a writer has what it needs.
    pub fn has_room(&mut self, holder: HolderId) {
        self.0.remove(&holder);
    }

    /// Returns true if nobody waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if writers other than this one wait for room in the volume.
    pub fn is_wanted_of(&self, holder: HolderId, volume: VolumeId, now_ms: u64) -> bool {
        self.0
            .iter()
            .any(|(who, wait)| *who != holder && wait.volume == volume && now_ms < wait.asked_ms + WAITS_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HolderId = HolderId(1);
    const B: HolderId = HolderId(2);
    const V: VolumeId = VolumeId(7);

    #[test]
    fn a_writer_waits_for_one_renewal_of_the_others() {
        let mut scarce = Scarce::default();
        assert!(scarce.waits(A, V, 1000) && scarce.is_wanted_of(B, V, 1001));
        assert!(!scarce.is_wanted_of(A, V, 1001) && !scarce.is_wanted_of(B, VolumeId(8), 1001));
        for at in (1000..1000 + WAIT_MS).step_by(1000) {
            assert!(scarce.waits(A, V, at));
        }
        assert!(!scarce.waits(A, V, 1000 + WAIT_MS), "nobody gave anything back");
        scarce.has_room(A);
        assert!(scarce.is_empty() && scarce.waits(A, V, 1001 + WAIT_MS));
    }

    #[test]
    fn who_asks_no_more_wants_nothing() {
        let mut scarce = Scarce::default();
        assert!(scarce.waits(A, V, 1000) && !scarce.is_wanted_of(B, V, 1000 + WAITS_MS));
        assert!(scarce.waits(A, V, 1000 + WAIT_MS), "it waits anew");
    }
}
