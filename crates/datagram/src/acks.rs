//! What has arrived, and when it is acknowledged.
//!
//! The numbers that have arrived are also the replay window: one that is among them, or below all that are
//! remembered, is not taken again. A datagram that is refused though it was new only counts as lost.

use crate::MICROSECOND;
use crate::codec::low;
use crate::config::ACK_DELAY_NS;
use crate::frame::Ack;
use crate::ranges::Ranges;

/// Maximum number of ranges that are remembered.
const RANGES_MAX: usize = 128;
/// One past the highest number that is taken, which no honest sender comes to.
const NUMBERS_END: u64 = 1 << 62;
/// Datagrams that may arrive before an acknowledgement is due at once.
const UNACKED_MAX: u32 = 2;

/// The numbers that have arrived.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    arrived: Ranges,
    /// Numbers below this one are forgotten, and not taken.
    floor: u64,
    /// The peer is known to have an acknowledgement of all that had arrived up to here.
    known: u64,
    largest: Option<u64>,
    largest_ns: u64,
    /// Datagrams since the last acknowledgement that ask for one.
    unacked: u32,
    /// The moment at which an acknowledgement is due.
    due_ns: Option<u64>,
}

impl Acks {
    /// The number whose lower 32 bits these are, nearest to what is expected next.
    pub(crate) fn expand(&self, low_bits: u32) -> u64 {
        let expected = self.largest.map_or(0, |largest| largest + 1);
        let ahead = low_bits.wrapping_sub(low(expected));
        match i32::from_le_bytes(ahead.to_le_bytes()) {
            ahead if ahead >= 0 => expected.saturating_add(u64::from(ahead.unsigned_abs())),
            behind => match expected.checked_sub(u64::from(behind.unsigned_abs())) {
                Some(number) => number,
                None => expected.saturating_add(u64::from(ahead)),
            },
        }
    }

    /// Returns true if the number may be taken: it is new.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        (self.floor..NUMBERS_END).contains(&number) && !self.arrived.contains(number)
    }

    /// Returns true if no higher number has arrived.
    pub(crate) fn is_newest(&self, number: u64) -> bool {
        self.largest.is_none_or(|largest| number > largest)
    }

    /// A new datagram has arrived; `asks` if it asks for an acknowledgement.
    pub(crate) fn on_arrived(&mut self, now_ns: u64, number: u64, asks: bool) {
        let is_next = self.largest.map_or(number == 0, |largest| number == largest + 1);
        if self.is_newest(number) {
            (self.largest, self.largest_ns) = (Some(number), now_ns);
        }
        self.arrived.insert(number..number + 1);
        while self.arrived.count() > RANGES_MAX {
            self.floor = self.arrived.pop_first().map_or(self.floor, |forgotten| forgotten.end);
        }
        if !asks {
            return;
        }
        self.unacked += 1;
        // What comes out of order tells of a loss, or ends one: the sender is told at once.
        let wait = if is_next && self.unacked < UNACKED_MAX { ACK_DELAY_NS } else { 0 };
        self.due_ns = Some(self.due_ns.unwrap_or(u64::MAX).min(now_ns + wait));
    }

    /// An acknowledgement that is due later is due now.
    pub(crate) fn hurry(&mut self, now_ns: u64) {
        self.due_ns = self.due_ns.map(|due| due.min(now_ns));
    }

    /// The moment at which an acknowledgement is to be sent, at the latest.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// The acknowledgement, if there is anything new in it.
    pub(crate) fn next(&self, now_ns: u64) -> Option<Ack> {
        if self.unacked == 0 {
            return None;
        }
        let delay_us = now_ns.saturating_sub(self.largest_ns) / MICROSECOND;
        let ranges = self.arrived.iter().rev().take_while(|range| range.end > self.known);
        let ranges = ranges.take(32).cloned().collect();
        Some(Ack { delay_us: u32::try_from(delay_us).unwrap_or(u32::MAX), ranges })
    }

    /// The peer has an acknowledgement whose highest number this is: what it told need not be told again.
    pub(crate) fn on_told(&mut self, largest: u64) {
        self.known = self.known.max(largest);
    }

    pub(crate) fn on_ack_sent(&mut self) {
        (self.unacked, self.due_ns) = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_from_their_lower_half() {
        let mut acks = Acks::default();
        assert_eq!(acks.expand(0), 0);
        assert_eq!(acks.expand(5), 5);
        assert_eq!(acks.expand(u32::MAX), u64::from(u32::MAX), "there is none before 0");
        let number = (7 << 32) + 3;
        acks.on_arrived(0, number, false);
        for near in [number - 1_000_000, number - 4, number, number + 1, number + 2_000_000_000] {
            assert_eq!(acks.expand(low(near)), near);
        }
    }

    #[test]
    fn nothing_is_taken_twice_however_much_is_forgotten() {
        let mut acks = Acks::default();
        for number in (0..1000).step_by(2) {
            assert!(acks.is_new(number));
            acks.on_arrived(0, number, true);
        }
        assert!((0..1000).step_by(2).all(|number| !acks.is_new(number)));
        assert!(acks.is_new(997));
        assert!(acks.arrived.count() <= RANGES_MAX);
    }

    #[test]
    fn numbers_end_before_they_wrap() {
        let mut acks = Acks::default();
        acks.on_arrived(0, NUMBERS_END - 1, true);
        assert!(!acks.is_new(NUMBERS_END - 1));
        let beyond = acks.expand(low(NUMBERS_END + 7));
        assert_eq!(beyond, NUMBERS_END + 7);
        assert!(!acks.is_new(beyond) && !acks.is_new(u64::MAX));
        assert!(acks.is_new(acks.expand(low(NUMBERS_END - 9))));
    }

    #[test]
    fn what_the_peer_knows_to_have_arrived_is_not_told_again() {
        let mut acks = Acks::default();
        for number in [0, 2, 4, 5] {
            acks.on_arrived(0, number, true);
        }
        assert_eq!(acks.next(0).map(|ack| ack.ranges), Some(vec![4..6, 2..3, 0..1]));
        acks.on_told(4);
        assert_eq!(acks.next(0).map(|ack| ack.ranges), Some(std::iter::once(4..6).collect()));
        acks.on_arrived(0, 7, true);
        acks.on_told(2);
        assert_eq!(acks.next(0).map(|ack| ack.ranges), Some(vec![7..8, 4..6]));
    }

    #[test]
    fn an_acknowledgement_waits_for_a_second_datagram_unless_one_is_missing() {
        let mut acks = Acks::default();
        acks.on_arrived(10, 0, true);
        assert_eq!(acks.due_ns(), Some(10 + ACK_DELAY_NS));
        acks.on_arrived(20, 1, true);
        assert_eq!(acks.due_ns(), Some(20));
        acks.on_ack_sent();
        assert_eq!(acks.due_ns(), None);
        acks.on_arrived(30, 3, true);
        assert_eq!(acks.due_ns(), Some(30));
        assert_eq!(acks.next(30).map(|ack| ack.ranges), Some(vec![3..4, 0..2]));
    }
}
