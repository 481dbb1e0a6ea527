//! The receiver: its window, the rate, and who is next.

use std::collections::BTreeMap;

use crate::turns::{Ticket, Turns};
use crate::window::{Late, Window};
use crate::{AWAY_MAX_NS, AWAY_NS, BEYOND_NS, LATE_NS, LOSS_TELLS_NS, Rate, SECOND, SMALL_BYTES};

/// Time of which the shortest is taken, or up to twice of it.
const SHORTEST_OVER_NS: u64 = 10 * SECOND;

/// An answer that is there, as its request was when it went.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// Who sent it, and its bytes.
    pub peer: u128,
    pub bytes: u64,
    /// Time at which the request went.
    pub at: u64,
    /// Time at which the last byte arrived.
    pub arrived: u64,
    /// The most bytes that are known to have been on their way to this receiver meanwhile.
    pub flying: u64,
    /// Bytes that arrived meanwhile, of all drives.
    pub delivered: u64,
}

/// Figures of a receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes that may be on their way; `None` if there is no bound.
    pub window: Option<u64>,
    /// The greatest rate of the last seconds, in bytes a second.
    pub rate: u64,
    /// Bytes of requests on their way, of those that a window bounds.
    pub flying: u64,
    /// Requests that wait now.
    pub waiting: u64,
    /// Answers that were late after losses.
    pub stalls: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// Sum of their waits in nanoseconds.
    pub waited_ns: u64,
}

/// One receiver's credit.
#[derive(Debug, Default)]
pub struct Receiver {
    window: Window,
    rate: Rate,
    turns: Turns,
    /// By peer and by length in bits: the shortest time for which the link could have been idle until an
    /// answer came, in the last and in this part of time; and this part's number.
    shortest: [BTreeMap<(u128, u32), u64>; 2],
    part: u64,
    /// Time of the last loss.
    lost: Option<u64>,
    stalls: u64,
    waits: u64,
}

impl Receiver {
    /// A caller wants to ask a drive for this many bytes. True: it goes now. Else it waits until
    /// [`Receiver::poll_send`] names it. In any case it counts until [`Receiver::handle_end`].
    pub fn handle_request(&mut self, now: u64, caller: u64, drive: u128, bytes: u64) -> (Ticket, bool) {
        let Some(window) = self.window.bytes() else { return (self.turns.go(now, drive, bytes), true) };
        if bytes <= SMALL_BYTES {
            return (self.turns.go(now, drive, bytes), true);
        }
        self.window.handle_request(bytes);
        let flying = self.turns.flying_bytes();
        if self.turns.waiting() == 0 && (flying == 0 || flying.saturating_add(bytes) <= window) {
            return (self.turns.go(now, drive, bytes), true);
        }
        self.waits += 1;
        self.window.handle_short(now);
        (self.turns.wait(now, caller, drive, bytes), false)
    }

    /// A request has ended: all of its answer is there, it failed, or nobody waits for it any more.
    pub fn handle_end(&mut self, ticket: Ticket) {
        self.turns.end(ticket);
    }

    /// Segments to this receiver were lost lately.
    pub fn handle_loss(&mut self, now: u64) {
        self.lost = Some(now);
    }

    /// An answer took at least [`LATE_NS`]. The largest request since the last such answer was for
    /// `largest` bytes.
    pub fn handle_late(&mut self, sent: Sent, largest: u64) {
        if self.lost.is_none_or(|lost| lost.saturating_add(LOSS_TELLS_NS) < sent.at) {
            return;
        }
        let took = sent.arrived.saturating_sub(sent.at);
        let [idle, base] = self.idle(sent);
        let idle = idle.saturating_sub(base);
        // What was on its way before it may all come first, and the link may be shared.
        let explained = self.rate.time_of(sent.flying).saturating_mul(2).saturating_add(base);
        let beyond = took.saturating_sub(explained);
        let lost = if beyond >= BEYOND_NS { idle.max(beyond) } else { idle };
        if lost < LATE_NS {
            return;
        }
        self.stalls += 1;
        self.window.handle_request(largest);
        let late = Late { asked: sent.at, now: sent.arrived, lost, flying: sent.flying };
        self.window.handle_late(late, &mut self.rate);
    }

    /// The time for which the link could have been idle until an answer came, and the shortest such time of
    /// answers like it in the last seconds: what the peer and the way from it take in any case. Others may be
    /// nearer, and shorter answers say nothing of a slow way.
    fn idle(&mut self, sent: Sent) -> [u64; 2] {
        let part = sent.arrived / SHORTEST_OVER_NS;
        if part != self.part {
            self.shortest.swap(0, 1);
            self.shortest[1].clear();
            self.part = part;
        }
        let took = sent.arrived.saturating_sub(sent.at);
        let idle = took.saturating_sub(self.rate.time_of(sent.delivered));
        let kind = (sent.peer, u64::BITS - sent.bytes.leading_zeros());
        let [before, lately] = &mut self.shortest;
        let lately = lately.entry(kind).or_insert(idle);
        *lately = idle.min(*lately);
        [idle, before.get(&kind).map_or(*lately, |before| *before.min(lately))]
    }

    /// Answers have arrived, this one last: `all` bytes so far. The largest request lately was for `largest`
    /// bytes. Call it about every [`SAMPLE_NS`](crate::SAMPLE_NS) while they do.
    pub fn handle_delivered(&mut self, sent: Sent, all: u64, largest: u64) {
        let now = sent.arrived;
        self.idle(sent);
        self.rate.handle_delivered(now, all, largest);
        if self.window.bytes().is_some_and(|window| sent.flying > window) {
            self.window.handle_short(now);
        }
        self.window.handle_time(now, self.turns.waiting() > 0, &mut self.rate);
    }

    /// The next request that goes now.
    pub fn poll_send(&mut self, now: u64) -> Option<Ticket> {
        let away = self.rate.time_of(self.turns.flying_bytes()).saturating_mul(4).saturating_add(AWAY_NS);
        self.turns.next(now, self.window.bytes(), away.min(AWAY_MAX_NS))
    }

    /// Returns true if nothing is bounded, and nothing waits.
    pub fn is_open(&self) -> bool {
        self.window.bytes().is_none() && self.turns.waiting() == 0
    }

    /// Returns true if the window was short in the last two seconds: those who send unasked are to ask first.
    pub fn is_congested(&self, now: u64) -> bool {
        self.window.is_short(now)
    }

    /// Everything seen so far. The time of waits is the owner's to add.
    pub fn counts(&self) -> Counts {
        Counts {
            window: self.window.bytes(),
            rate: self.rate.greatest(),
            flying: self.turns.flying_bytes(),
            waiting: u64::try_from(self.turns.waiting()).unwrap_or(u64::MAX),
            stalls: self.stalls,
            waits: self.waits,
            waited_ns: 0,
        }
    }
}
