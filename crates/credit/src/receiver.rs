//! The receiver: its window, the rate, and who is next.

use crate::turns::{Ticket, Turns};
use crate::window::{Late, Window};
use crate::{AWAY_MAX_NS, AWAY_NS, BEYOND_NS, LATE_NS, LOSS_TELLS_NS, Rate, SECOND, SMALL_BYTES};

/// Time of which the shortest answer is taken, or up to twice of it.
const SHORTEST_OVER_NS: u64 = 10 * SECOND;

/// An answer that is there, as its request was when it went.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// Time at which the request went.
    pub at: u64,
    /// Time at which the last byte arrived.
    pub arrived: u64,
    /// The most bytes that were on their way to this receiver meanwhile.
    pub flying: u64,
    /// Bytes that arrived meanwhile, of all drives.
    pub delivered: u64,
}

/// Arrivals until now.
#[derive(Debug, Clone, Copy)]
pub struct Delivered {
    /// All bytes so far.
    pub bytes: u64,
    /// Bytes of the largest request lately.
    pub largest: u64,
    /// Time that the last answer took.
    pub took: u64,
    /// Bytes on their way now, also those that nobody asked for.
    pub flying: u64,
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
#[derive(Debug)]
pub struct Receiver {
    window: Window,
    rate: Rate,
    turns: Turns,
    /// The shortest answer that was told of, in the last and in this part of time, and this part's number.
    shortest: [u64; 2],
    part: u64,
    /// Time of the last loss.
    lost: Option<u64>,
    stalls: u64,
    waits: u64,
}

impl Default for Receiver {
    fn default() -> Receiver {
        Receiver {
            window: Window::default(),
            rate: Rate::default(),
            turns: Turns::default(),
            shortest: [u64::MAX; 2],
            part: 0,
            lost: None,
            stalls: 0,
            waits: 0,
        }
    }
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
        let base = self.shortest(sent.arrived, took);
        // The link could have been idle for so long.
        let idle = took.saturating_sub(self.rate.time_of(sent.delivered)).saturating_sub(base);
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

    /// The shortest time of the answers that were told of, of the last seconds: what the way and the drives
    /// take in any case.
    fn shortest(&mut self, now: u64, took: u64) -> u64 {
        let part = now / SHORTEST_OVER_NS;
        if part != self.part {
            self.shortest = [self.shortest[1], u64::MAX];
            self.part = part;
        }
        self.shortest[1] = self.shortest[1].min(took);
        self.shortest[0].min(self.shortest[1])
    }

    /// Answers have arrived. Call it about every [`SAMPLE_NS`](crate::SAMPLE_NS) while they do.
    pub fn handle_delivered(&mut self, now: u64, delivered: Delivered) {
        self.shortest(now, delivered.took);
        self.rate.handle_delivered(now, delivered.bytes, delivered.largest);
        if self.window.bytes().is_some_and(|window| delivered.flying > window) {
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
