//! What was sent and is not acknowledged; which of it is lost (RFC 9002, section 6).
//!
//! A datagram is lost if some later one has arrived and enough others or enough time has passed. If nothing
//! arrives at all, a timeout sends something again, which tells. A number is never used twice: what was lost
//! goes out in a new datagram.

use std::collections::VecDeque;
use std::ops::Range;

use smallvec::SmallVec;

use crate::error::Violation;
use crate::frame::Ack;
use crate::rtt::Rtt;
use crate::streams::StreamId;
use crate::transmit::Ecn;
use crate::{MICROSECOND, SECOND};

/// The longest timeout, however often it has doubled.
const TIMEOUT_NS_MAX: u64 = SECOND;

/// That which a datagram carried that must arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Carried {
    Bytes(StreamId, Range<u64>),
    Credit(StreamId),
    Window,
    /// Nothing but its own length.
    MtuProbe(u16),
}

/// A datagram that asks for an acknowledgement.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) sent_ns: u64,
    pub(crate) bytes: u64,
    pub(crate) ecn: Ecn,
    pub(crate) carried: SmallVec<[Carried; 2]>,
}

/// The datagrams that were sent.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// Number of the first entry of `sent`.
    base: u64,
    /// `None`: acknowledged, lost, or not asking for an acknowledgement.
    sent: VecDeque<Option<Sent>>,
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
    /// Round-trip time, if the highest number is new, and its datagram asked for an acknowledgement.
    pub(crate) sample_ns: Option<u64>,
}

impl Recovery {
    /// The next datagram's number.
    pub(crate) fn next_number(&self) -> u64 {
        self.base + crate::codec::wide(self.sent.len())
    }

    /// Bytes in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub(crate) fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// The next number was used, for a datagram that asks for an acknowledgement or for none (`None`).
    pub(crate) fn on_sent(&mut self, sent: Option<Sent>) {
        match sent {
            Some(sent) => {
                self.in_flight += sent.bytes;
                self.last_sent_ns = sent.sent_ns;
                self.sent.push_back(Some(sent));
            }
            None if self.sent.is_empty() => self.base += 1,
            None => self.sent.push_back(None),
        }
    }

    /// The datagram with this number, which is not in flight any more.
    fn take(&mut self, number: u64) -> Option<Sent> {
        let at = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let sent = self.sent.get_mut(at)?.take()?;
        self.in_flight -= sent.bytes;
        Some(sent)
    }

    fn trim(&mut self) {
        while let Some(None) = self.sent.front() {
            self.sent.pop_front();
            self.base += 1;
        }
    }

    pub(crate) fn handle_ack(&mut self, now_ns: u64, ack: &Ack) -> Result<AckOutcome, Violation> {
        let largest = ack.largest();
        if largest >= self.next_number() {
            return Err(Violation::NotSent);
        }
        let is_newest = self.largest_acked.is_none_or(|before| largest > before);
        self.largest_acked = Some(self.largest_acked.map_or(largest, |before| before.max(largest)));
        let mut outcome = AckOutcome::default();
        for range in ack.ranges.iter().rev() {
            for number in range.start.max(self.base)..range.end {
                outcome.acked.extend(self.take(number));
            }
        }
        self.trim();
        if let Some(newest) = outcome.acked.last() {
            self.timeouts = 0;
            if is_newest && newest.number == largest {
                outcome.sample_ns = Some(now_ns.saturating_sub(newest.sent_ns).max(MICROSECOND));
            }
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
        let mut lost = Vec::new();
        let Some(largest) = self.largest_acked else { return lost };
        let delay = rtt.loss_delay();
        for number in self.base..largest {
            let at = usize::try_from(number - self.base).expect("it is in memory");
            let Some(Some(sent)) = self.sent.get(at) else { continue };
            if largest - number >= reordering || now_ns >= sent.sent_ns + delay {
                lost.extend(self.take(number));
            } else {
                // Later ones were sent later.
                self.loss_ns = Some(sent.sent_ns + delay);
                break;
            }
        }
        if goes_back && lost.iter().any(|sent| !sent.is_probe()) {
            lost.extend(self.take_all());
        }
        self.trim();
        lost
    }

    /// Everything that is in flight, which is not any more.
    pub(crate) fn take_all(&mut self) -> Vec<Sent> {
        let all: Vec<Sent> = self.sent.iter_mut().filter_map(Option::take).collect();
        (self.in_flight, self.loss_ns) = (0, None);
        self.trim();
        all
    }

    /// The oldest datagram in flight.
    pub(crate) fn oldest(&self) -> Option<&Sent> {
        self.sent.iter().flatten().next()
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
