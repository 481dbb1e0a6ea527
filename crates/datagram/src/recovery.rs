//! What was sent and is not acknowledged; which of it is lost (RFC 9002, section 6).
//!
//! A datagram is lost if some later one has arrived and enough others or enough time has passed. If nothing
//! arrives at all, a timeout sends something again, which tells. A number is never used twice: what was lost
//! goes out in a new datagram. One that counts as lost is remembered for a while: it may only be late, and
//! then what it carried need not go again, and the time that it took counts.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use smallvec::SmallVec;

use crate::error::Violation;
use crate::frame::Ack;
use crate::rtt::Rtt;
use crate::streams::StreamId;
use crate::transmit::Ecn;
use crate::{MICROSECOND, SECOND};

/// The longest timeout, however often it has doubled; one that is longer does not double.
const TIMEOUT_NS_MAX: u64 = SECOND;
/// Number of datagrams that count as lost and are remembered, and the time for which they are.
const LOST_MAX: usize = 4096;
const LOST_NS: u64 = 4 * SECOND;
/// Number of datagrams without need of acknowledgement whose times are remembered.
const QUIET_MAX: usize = 16;

/// That which a datagram carried that must arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Carried {
    Bytes(StreamId, Range<u64>),
    Credit(StreamId),
    Window,
    /// An acknowledgement whose highest number this is.
    Ack(u64),
    /// Nothing but its own length.
    MtuProbe(u16),
}

/// A datagram that asks for an acknowledgement.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) sent_ns: u64,
    pub(crate) bytes: u64,
    pub(crate) ecn: Ecn,
    pub(crate) carried: SmallVec<[Carried; 2]>,
}

/// The datagrams that were sent. Those that do not ask for an acknowledgement take no memory, so whoever
/// never acknowledges costs no more than what may be in flight.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// The next datagram's number.
    next: u64,
    sent: BTreeMap<u64, Sent>,
    /// Those that count as lost.
    lost: BTreeMap<u64, Sent>,
    /// Numbers and times of the last that do not ask.
    quiet: VecDeque<(u64, u64)>,
    in_flight: u64,
    largest_acked: Option<u64>,
    /// When the next datagram will have been away for too long.
    loss_ns: Option<u64>,
    last_sent_ns: u64,
    /// Timeouts since the last acknowledgement.
    timeouts: u32,
}

/// That which an acknowledgement came to.
#[derive(Debug, Default)]
pub(crate) struct AckOutcome {
    pub(crate) acked: Vec<Sent>,
    /// Those that had counted as lost.
    pub(crate) late: Vec<Sent>,
    /// Round-trip time, if the highest number is new.
    pub(crate) sample_ns: Option<u64>,
}

impl Recovery {
    /// The next datagram's number.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// Bytes in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub(crate) fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// The next number was used for a datagram that asks for an acknowledgement.
    pub(crate) fn on_sent(&mut self, sent: Sent) {
        self.in_flight += sent.bytes;
        self.last_sent_ns = sent.sent_ns;
        self.next = sent.number + 1;
        self.sent.insert(sent.number, sent);
    }

    /// The next number was used for a datagram that asks for none.
    pub(crate) fn on_sent_quietly(&mut self, now_ns: u64) {
        self.quiet.truncate(QUIET_MAX - 1);
        self.quiet.push_front((self.next, now_ns));
        self.next += 1;
    }

    pub(crate) fn handle_ack(&mut self, now_ns: u64, ack: &Ack) -> Result<AckOutcome, Violation> {
        let largest = ack.largest();
        if largest >= self.next {
            return Err(Violation::NotSent);
        }
        let is_newest = self.largest_acked.is_none_or(|before| largest > before);
        self.largest_acked = Some(self.largest_acked.map_or(largest, |before| before.max(largest)));
        let mut outcome = AckOutcome::default();
        for range in ack.ranges.iter().rev() {
            outcome.acked.extend(self.sent.extract_if(range.clone(), |_, _| true).map(|(_, sent)| sent));
            outcome.late.extend(self.lost.extract_if(range.clone(), |_, _| true).map(|(_, sent)| sent));
        }
        self.in_flight -= outcome.acked.iter().map(|sent| sent.bytes).sum::<u64>();
        if outcome.acked.is_empty() && outcome.late.is_empty() {
            return Ok(outcome);
        }
        self.timeouts = 0;
        if is_newest {
            let asking = [outcome.acked.last(), outcome.late.last()].into_iter().flatten();
            let asking = asking.map(|sent| (sent.number, sent.sent_ns));
            let of_largest = asking.chain(self.quiet.iter().copied()).find(|(number, _)| *number == largest);
            outcome.sample_ns =
                of_largest.map(|(_, sent_ns)| now_ns.saturating_sub(sent_ns).max(MICROSECOND));
        }
        Ok(outcome)
    }

    /// The datagrams that are lost by now, with all that is in flight if the policy goes back.
    pub(crate) fn take_lost(
        &mut self,
        now_ns: u64,
        rtt: &Rtt,
        reordering: u64,
        goes_back: bool,
    ) -> Vec<Sent> {
        self.loss_ns = None;
        while self.lost.first_key_value().is_some_and(|(_, sent)| sent.sent_ns + LOST_NS < now_ns) {
            self.lost.pop_first();
        }
        let mut lost = Vec::new();
        let Some(largest) = self.largest_acked else { return lost };
        let delay = rtt.loss_delay();
        while let Some(first) = self.sent.first_entry().filter(|entry| *entry.key() < largest) {
            let lost_ns = first.get().sent_ns + delay;
            if largest - first.key() < reordering && now_ns < lost_ns {
                // Later ones were sent later.
                self.loss_ns = Some(lost_ns);
                break;
            }
            lost.push(first.remove());
        }
        self.in_flight -= lost.iter().map(|sent| sent.bytes).sum::<u64>();
        self.remember(&lost);
        if goes_back && lost.iter().any(|sent| !sent.is_probe()) {
            lost.extend(self.take_all());
        }
        lost
    }

    /// Everything that is in flight, which is not any more. A probe of the path's length stays: that it is
    /// not there yet says nothing of the path.
    pub(crate) fn take_all(&mut self) -> Vec<Sent> {
        let all: Vec<Sent> =
            self.sent.extract_if(.., |_, sent| !sent.is_probe()).map(|(_, sent)| sent).collect();
        (self.in_flight, self.loss_ns) = (0, None);
        self.remember(&all);
        all
    }

    fn remember(&mut self, lost: &[Sent]) {
        self.lost.extend(lost.iter().map(|sent| (sent.number, sent.clone())));
        while self.lost.len() > LOST_MAX {
            self.lost.pop_first();
        }
    }

    /// The path is another from now on: what happened before says nothing of it.
    pub(crate) fn on_path(&mut self) {
        self.timeouts = 0;
    }

    /// The oldest datagram in flight.
    pub(crate) fn oldest(&self) -> Option<&Sent> {
        self.sent.values().find(|sent| !sent.is_probe())
    }

    /// The moment of [`Recovery::is_timeout`] or of the next loss.
    pub(crate) fn deadline(&self, rtt: &Rtt) -> Option<u64> {
        self.loss_ns.or_else(|| self.timeout_at(rtt))
    }

    fn timeout_at(&self, rtt: &Rtt) -> Option<u64> {
        let timeout = rtt.timeout();
        let pause = (timeout << self.timeouts.min(10)).min(TIMEOUT_NS_MAX.max(timeout));
        (self.in_flight > 0).then_some(self.last_sent_ns + pause)
    }

    /// Returns true if nothing has arrived for so long that something is to be sent again; it counts.
    pub(crate) fn is_timeout(&mut self, now_ns: u64, rtt: &Rtt) -> bool {
        let is_due = self.loss_ns.is_none() && self.timeout_at(rtt).is_some_and(|at| now_ns >= at);
        if is_due {
            self.timeouts += 1;
            // The next is counted from here, whether or not anything can be sent.
            self.last_sent_ns = now_ns;
        }
        is_due
    }
}

impl Sent {
    /// Returns true if it carried nothing but its length.
    pub(crate) fn is_probe(&self) -> bool {
        matches!(self.carried[..], [Carried::MtuProbe(_)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(number: u64, sent_ns: u64) -> Sent {
        let carried = std::iter::once(Carried::Bytes(0, number..number + 1)).collect();
        Sent { number, sent_ns, bytes: 1000, ecn: Ecn::Unaware, carried }
    }

    fn ack(recovery: &mut Recovery, now_ns: u64, range: Range<u64>) -> AckOutcome {
        let ranges = std::iter::once(range).collect();
        recovery.handle_ack(now_ns, &Ack { delay_us: 0, ranges }).unwrap()
    }

    #[test]
    fn what_counts_as_lost_and_arrives_all_the_same_is_told_and_timed() {
        let mut recovery = Recovery::default();
        (0..6).for_each(|number| recovery.on_sent(sent(number, number)));
        assert!(recovery.is_timeout(SECOND, &Rtt::default()));
        assert_eq!((recovery.take_all().len(), recovery.in_flight()), (6, 0));
        let outcome = ack(&mut recovery, 2 * SECOND, 2..4);
        assert_eq!(outcome.late.iter().map(|sent| sent.number).collect::<Vec<_>>(), [2, 3]);
        assert_eq!((outcome.acked.len(), outcome.sample_ns), (0, Some(2 * SECOND - 3)));
        assert_eq!(recovery.timeouts(), 0);
        // It is not remembered for ever.
        recovery.take_lost(LOST_NS + SECOND, &Rtt::default(), 3, false);
        assert_eq!(ack(&mut recovery, LOST_NS + SECOND, 4..6).late.len(), 0);
    }

    #[test]
    fn datagrams_that_ask_for_nothing_take_no_memory_and_are_timed() {
        let mut recovery = Recovery::default();
        recovery.on_sent(sent(0, 5));
        (0..100_000).for_each(|at| recovery.on_sent_quietly(10 + at));
        assert_eq!((recovery.sent.len(), recovery.quiet.len()), (1, QUIET_MAX));
        let outcome = ack(&mut recovery, SECOND, 0..100_001);
        assert_eq!(outcome.acked.len(), 1);
        assert_eq!(outcome.sample_ns, Some(SECOND - 10 - 99_999));
    }

    #[test]
    fn a_probe_on_its_way_is_not_lost_with_all_else() {
        let mut recovery = Recovery::default();
        let probe =
            Sent { bytes: 0, carried: std::iter::once(Carried::MtuProbe(9000)).collect(), ..sent(0, 0) };
        recovery.on_sent(probe);
        recovery.on_sent(sent(1, 1));
        assert!(recovery.take_all().iter().all(|sent| sent.number == 1));
        assert!(recovery.oldest().is_none());
        assert!(ack(&mut recovery, 9, 0..1).acked[0].is_probe());
    }
}
