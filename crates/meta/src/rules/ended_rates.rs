//! Reservations that have ended while capabilities that promise their rates may be in use. Their share of the
//! drives is free once each drive has said that it honours them no more, or the last capability is over.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::{DriveId, ReservationId};
use braid_wire::control::ENDED_TOLD_MAX;

/// The ended reservations.
#[derive(Debug, Default)]
pub struct EndedRates {
    of: BTreeMap<ReservationId, Ended>,
}

#[derive(Debug)]
struct Ended {
    /// Manager time at which the last capability is over, in milliseconds.
    until_ms: u64,
    /// Drives that promised the rate and have not said yet that they do no more.
    waits: BTreeSet<DriveId>,
    is_booked: bool,
}

impl EndedRates {
    /// Enters a reservation that ends now on these drives. Capabilities of it may be in use until `until_ms`.
    pub fn end(&mut self, id: ReservationId, until_ms: u64, drives: impl IntoIterator<Item = DriveId>) {
        let waits = drives.into_iter().collect();
        self.of.insert(id, Ended { until_ms, waits, is_booked: true });
    }

    /// The reservations that drives are to honour no more; the latest, if there are more than one message
    /// takes. The others end with their capabilities.
    pub fn to_tell(&self, now_ms: u64) -> Vec<ReservationId> {
        let there = self.of.iter().rev().filter(|(_, ended)| now_ms < ended.until_ms);
        there.map(|(id, _)| *id).take(ENDED_TOLD_MAX).collect()
    }

    /// A drive has said that it honours these no more.
    pub fn handle_drive(&mut self, drive: DriveId, ended: &[ReservationId]) {
        for id in ended {
            if let Some(ended) = self.of.get_mut(id) {
                ended.waits.remove(&drive);
            }
        }
    }

    /// Returns true if the share of some is not free yet.
    pub fn is_waiting(&self) -> bool {
        self.of.values().any(|ended| ended.is_booked)
    }

    /// Takes those whose share of the drives is free now. A drive that does not serve is told before it does.
    pub fn take_free(&mut self, now_ms: u64, serves: impl Fn(DriveId) -> bool) -> Vec<ReservationId> {
        let mut free = Vec::new();
        for (id, ended) in &mut self.of {
            let is_free = ended.until_ms <= now_ms || !ended.waits.iter().any(|drive| serves(*drive));
            if ended.is_booked && is_free {
                ended.is_booked = false;
                free.push(*id);
            }
        }
        self.of.retain(|_, ended| now_ms < ended.until_ms);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ReservationId = ReservationId(10);
    const B: ReservationId = ReservationId(11);

    fn drive(number: u128) -> DriveId {
        DriveId(number)
    }

    #[test]
    fn a_share_is_free_when_all_drives_that_serve_have_said_so() {
        let mut ended = EndedRates::default();
        ended.end(A, 1000, [drive(1), drive(2), drive(3)]);
        let serves = |of| of != drive(3);
        assert_eq!((ended.to_tell(0), ended.take_free(0, serves)), (vec![A], vec![]));
        ended.handle_drive(drive(1), &[B, A]);
        assert_eq!((ended.take_free(1, serves), ended.is_waiting()), (vec![], true));
        ended.handle_drive(drive(2), &[A]);
        assert_eq!(ended.take_free(2, serves), [A]);
        assert_eq!((ended.take_free(3, serves), ended.is_waiting()), (vec![], false), "once");
        assert_eq!(ended.to_tell(3), [A], "the third is told when it is back");
    }

    #[test]
    fn the_end_of_the_last_capability_frees_it_too() {
        let mut ended = EndedRates::default();
        ended.end(A, 1000, [drive(1)]);
        ended.end(B, 2000, [drive(1)]);
        assert_eq!(ended.take_free(999, |_| true), []);
        assert_eq!(ended.take_free(1000, |_| true), [A]);
        assert_eq!(ended.to_tell(1000), [B]);
    }
}
