//! The bytes that may be on their way. Found at run time, from answers that were late after losses, and from
//! the rate.
//!
//! - Late answers *lose time*, which is forgotten by and by: the hundredth part of the time that passes. So
//!   what costs less than a hundredth of the link is let pass. One pause loses at most [`ONCE_NS`].
//! - *Open*: no bound. When [`LOST_NS`] are lost it is clamped, to half of what was on its way. So is a
//!   window that has held before; less is enough above it, where the window was only tried.
//! - The window that was too large is the *ceiling*. Below it the window grows in quick steps; at it, it
//!   rests for the *hold* before it goes beyond. Each failure there doubles the hold, as each costs a
//!   timeout.
//! - A window at which nothing was late for some seconds is *good*. What fails above it returns to it; what
//!   fails at it is halved.
//! - If the link delivers more than when the ceiling was found, or if growth has raised the rate, the ceiling
//!   says nothing any more, and the window doubles in quick steps.
//! - *It must not cost*: if less arrives after a decrease than before, it was not the link that was late (say
//!   that slow disks need many requests), and the decrease is undone. For a while, none follows; for twice as
//!   long the next time, until a decrease has helped.
//!
//! Late answers are those of requests that went after the last decision: others tell of the window before.
//! Growth needs requests that wait: a window that nobody fills is not tried. It opens after
//! [`UNFILLED_NS`] instead.

use crate::{MILLISECOND, Rate, SECOND};

/// Time lost that leads to a decrease: of a window that was only tried, and of others. A timeout of TCP takes
/// 200 ms.
const LOST_NS: (u64, u64) = (100 * MILLISECOND, 250 * MILLISECOND);
/// The most that is lost at one time, however long answers came late: a process may have been stopped. It
/// takes two such times to clamp what was not tried.
const ONCE_NS: u64 = 200 * MILLISECOND;
/// The part of the time that passes which may be lost.
const FORGOTTEN_PART: u64 = 100;
/// Time that a window is kept before it grows, without a ceiling and below it.
const STEP_NS: (u64, u64) = (250 * MILLISECOND, 2 * SECOND);
/// Time after which a decrease is judged by what arrives.
const JUDGED_NS: u64 = 2 * SECOND;
/// Time after which a window at which nothing was late is good.
const GOOD_NS: u64 = 5 * SECOND;
/// The first and the longest rest at the ceiling.
const HOLD_NS: (u64, u64) = (20 * SECOND, 160 * SECOND);
/// The first and the longest time without a decrease, after one that had to be undone.
const TRUCE_NS: (u64, u64) = (4 * SECOND, 320 * SECOND);
/// Part by which a request that is smaller than those before lets the floor sink.
const SMALLER_PART: u64 = 64;
/// Time after which a window that was never short meanwhile opens again.
const UNFILLED_NS: u64 = 10 * SECOND;
/// For so long after it was short, the window says that its link is congested.
const SHORT_FOR_NS: u64 = 2 * SECOND;
/// A window of this size bounds nothing: it is open again.
const OPEN_BYTES: u64 = 64 << 20;

/// The bytes that may be on their way to a receiver.
#[derive(Debug)]
pub struct Window {
    /// `None`: no bound.
    bytes: Option<u64>,
    /// About the largest request lately: no window is smaller, and it grows by at least so much.
    floor: u64,
    good: Option<u64>,
    ceiling: Option<Ceiling>,
    /// Time of the last decision.
    decided: u64,
    hold: u64,
    /// Time lost since the last decision, as it was at the last late answer, and the time of that.
    lost: u64,
    lost_at: u64,
    /// Time lost by answers that were asked for before the first of them was late, and when that came.
    once: u64,
    once_at: u64,
    /// The last time at which the window was short: a request waited, more was on its way, or time was lost.
    short_at: u64,
    /// The decrease that is not judged yet.
    before: Option<Before>,
    /// The mean rate before the window grew, until that is judged.
    grew_at: Option<u64>,
    truce: u64,
    truce_until: u64,
}

/// A late answer.
#[derive(Debug, Clone, Copy)]
pub struct Late {
    /// Time at which it was asked for.
    pub asked: u64,
    /// Time at which it has come.
    pub now: u64,
    /// Time that was lost by it.
    pub lost: u64,
    /// The most bytes that were on their way lately.
    pub flying: u64,
}

#[derive(Debug, Clone, Copy)]
struct Ceiling {
    bytes: u64,
    /// The greatest rate when it was found.
    rate: u64,
}

#[derive(Debug, Clone, Copy)]
struct Before {
    bytes: Option<u64>,
    mean_rate: u64,
}

impl Default for Window {
    fn default() -> Window {
        Window {
            bytes: None,
            floor: 0,
            good: None,
            ceiling: None,
            decided: 0,
            hold: HOLD_NS.0,
            lost: 0,
            lost_at: 0,
            once: 0,
            once_at: 0,
            short_at: 0,
            before: None,
            grew_at: None,
            truce: TRUCE_NS.0,
            truce_until: 0,
        }
    }
}

impl Window {
    /// The most bytes that may be on their way; `None` if there is no bound.
    pub fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// An answer was late.
    pub fn handle_late(&mut self, late: Late, rate: &mut Rate) {
        let Late { asked, now, lost, flying } = late;
        self.short_at = now;
        // One decrease is judged before the next.
        if asked < self.decided || now < self.truce_until || self.before.is_some() {
            return;
        }
        // What several answers lose at the same time is lost once.
        if asked >= self.once_at {
            (self.once, self.once_at) = (0, now);
        }
        let lost = lost.min(now.saturating_sub(self.lost_at)).min(ONCE_NS - self.once);
        self.once += lost;
        self.lost = self.lost_now(now) + lost;
        self.lost_at = now;
        let is_tried = self.bytes.is_some_and(|bytes| self.good.is_some_and(|good| bytes > good));
        if self.lost < if is_tried { LOST_NS.0 } else { LOST_NS.1 } {
            return;
        }
        let failed = self.bytes.unwrap_or(flying).min(flying.max(self.floor));
        let is_above = self.ceiling.is_some_and(|ceiling| failed >= ceiling.bytes);
        if is_above {
            self.hold = (self.hold * 2).min(HOLD_NS.1);
        }
        self.before = Some(Before { bytes: self.bytes, mean_rate: rate.mean() });
        self.ceiling = Some(Ceiling { bytes: failed, rate: rate.greatest() });
        // Most of the link is idle: half of it would not be enough.
        let part = if rate.mean() < rate.greatest() / 2 { failed / 4 } else { failed / 2 };
        // Whole requests: half of three is two.
        let whole = part.next_multiple_of(self.floor.max(1));
        let next = self.good.filter(|&good| good < failed).unwrap_or(whole);
        self.good = self.good.filter(|&good| good < failed);
        self.decide(now, Some(next.max(self.floor)));
        rate.restart_mean();
    }

    /// A request of this size was made.
    pub fn handle_request(&mut self, bytes: u64) {
        self.floor = bytes.max(self.floor - self.floor / SMALLER_PART);
    }

    /// A request waits, or more than the window is on its way, as nobody asked for it.
    pub fn handle_short(&mut self, now: u64) {
        self.short_at = now;
    }

    /// Returns true if there is a bound, and it was short lately.
    pub fn is_short(&self, now: u64) -> bool {
        self.bytes.is_some() && now.saturating_sub(self.short_at) < SHORT_FOR_NS
    }

    /// Time has passed. `is_limiting`: requests wait for the window.
    pub fn handle_time(&mut self, now: u64, is_limiting: bool, rate: &mut Rate) {
        let Some(bytes) = self.bytes else { return };
        let age = now.saturating_sub(self.decided);
        if age >= JUDGED_NS
            && let Some(before) = self.before.take()
        {
            if is_limiting && rate.mean() < before.mean_rate / 4 * 3 {
                return self.undo(now, before);
            }
            if rate.mean() > before.mean_rate / 4 * 5 {
                self.truce = TRUCE_NS.0;
            }
        }
        if !is_limiting {
            if now.saturating_sub(self.short_at) >= UNFILLED_NS {
                self.decide(now, None);
            }
            return;
        }
        self.short_at = now;
        if age >= GOOD_NS && self.lost_now(now) < LOST_NS.0 {
            self.good = self.good.max(Some(bytes));
        }
        let has_helped =
            age >= STEP_NS.1 && self.grew_at.take().is_some_and(|before| rate.mean() > before / 10 * 11);
        if has_helped || self.ceiling.is_some_and(|ceiling| rate.greatest() > ceiling.rate / 4 * 5) {
            (self.ceiling, self.hold) = (None, HOLD_NS.0);
        }
        let step = bytes + self.floor.max(bytes / 4);
        let (grown, rest) = match self.ceiling {
            None => (bytes.saturating_mul(2), STEP_NS.0),
            Some(ceiling) if step < ceiling.bytes => (step, STEP_NS.1),
            Some(_) => (step, self.hold),
        };
        if age >= rest && self.before.is_none() {
            let mean = rate.mean();
            self.decide(now, Some(grown).filter(|&grown| grown < OPEN_BYTES));
            self.grew_at = Some(mean);
            rate.restart_mean();
        }
    }

    fn lost_now(&self, now: u64) -> u64 {
        self.lost.saturating_sub(now.saturating_sub(self.lost_at) / FORGOTTEN_PART)
    }

    /// A decrease was wrong.
    fn undo(&mut self, now: u64, before: Before) {
        (self.good, self.ceiling) = (None, None);
        self.truce_until = now + self.truce;
        self.truce = (self.truce * 2).min(TRUCE_NS.1);
        self.decide(now, before.bytes);
    }

    fn decide(&mut self, now: u64, bytes: Option<u64>) {
        self.bytes = bytes;
        self.decided = now;
        self.grew_at = None;
        (self.lost, self.lost_at) = (0, now);
        if bytes.is_none() {
            (self.good, self.ceiling) = (None, None);
        }
    }
}
