//! One flow's requests, in the order of their arrival, and the flow's clocks.

use crate::cost::Direction;
use crate::figures::Figures;
use crate::flow::{BackgroundRate, FlowId, Promise};
use crate::tags::{Clock, Rate, Tags, span_ns};
use crate::tree::Node;
use std::collections::VecDeque;

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    pub(crate) direction: Direction,
    pub(crate) bytes: u64,
    pub(crate) cost_ns: u64,
    pub(crate) arrival: u64,
    /// Arrival by the clocks of the promises, which lag while they are overbooked.
    pub(crate) begins: u64,
    pub(crate) item: T,
}

/// A token bucket, kept as the time at which it is full again. It holds a flow back to a rate.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Meter {
    full_at: u64,
}

impl Meter {
    /// Time from which something may pass, if this much time may be used ahead.
    pub(crate) fn opens(&self, ahead_ns: u64) -> u64 {
        self.full_at.saturating_sub(ahead_ns)
    }

    pub(crate) fn take(&mut self, now: u64, span_ns: u64) {
        self.full_at = self.full_at.max(now).saturating_add(span_ns);
    }

    /// Mends what was taken as `taken_ns` and was `actual_ns` after all.
    pub(crate) fn correct(&mut self, taken_ns: u64, actual_ns: u64) {
        self.full_at = self.full_at.saturating_add(actual_ns).saturating_sub(taken_ns);
    }
}

#[derive(Debug)]
pub(crate) struct Queue<T> {
    pub(crate) id: FlowId,
    pub(crate) node: Node,
    pub(crate) waiting: VecDeque<Pending<T>>,
    pub(crate) in_flight: usize,
    pub(crate) figures: Figures,
    pub(crate) rate: Rate,
    /// Direction of the promise; none for both.
    direction: Option<Direction>,
    until_ns: u64,
    pub(crate) clock: Clock,
    /// Tags of the head, if it is promised.
    pub(crate) tags: Option<Tags>,
    /// Due time of the request served last, in whichever phase.
    pub(crate) due: u64,
    /// Bytes a second that the flow never exceeds.
    pub(crate) limit: Option<Rate>,
    pub(crate) meter: Meter,
    /// True while the queue is in the list of those that may be forgotten.
    pub(crate) listed: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new(id: FlowId, node: Node) -> Queue<T> {
        Queue {
            id,
            node,
            waiting: VecDeque::new(),
            in_flight: 0,
            figures: Figures::default(),
            rate: Rate::NONE,
            direction: None,
            until_ns: 0,
            clock: Clock::default(),
            tags: None,
            due: 0,
            limit: None,
            meter: Meter::default(),
            listed: false,
        }
    }

    /// Takes the promise; returns true if it is another than before. If nothing was promised before, it
    /// begins then.
    pub(crate) fn set_promise(&mut self, now: u64, begins: u64, promise: &Promise) -> bool {
        self.begin(now, begins);
        let Promise { direction, rate, burst, operation_bytes, operation_ns, until_ns } = *promise;
        let rate = Rate { rate, burst, operation_bytes, operation_ns };
        let direction = Some(direction);
        let changed = self.rate != rate || self.direction != direction || self.until_ns != until_ns;
        self.rate = rate;
        self.direction = direction;
        self.until_ns = until_ns;
        changed
    }

    /// Takes the rates of background work. If there was none before, it begins then.
    pub(crate) fn set_background(&mut self, now: u64, begins: u64, rates: &BackgroundRate) {
        self.begin(now, begins);
        let BackgroundRate { rate, limit, burst, operation_bytes, operation_ns } = *rates;
        self.rate = Rate { rate, burst, operation_bytes, operation_ns };
        self.until_ns = u64::MAX;
        self.limit = (limit < u64::MAX).then_some(Rate { rate: limit, ..self.rate });
    }

    /// If nothing is promised, a promise that is made now begins then, also for what waits since long.
    fn begin(&mut self, now: u64, begins: u64) {
        if self.rate.rate == 0 || self.is_over(now) {
            self.clock.begin(begins);
        }
    }

    /// True if a request in this direction is promised now.
    pub(crate) fn promises(&self, direction: Direction, now: u64) -> bool {
        self.rate.rate > 0 && now < self.until_ns && self.direction.is_none_or(|own| own == direction)
    }

    /// True if the promise is over.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        now >= self.until_ns
    }

    /// Ends the promise.
    pub(crate) fn end(&mut self) {
        self.until_ns = 0;
    }

    /// Direction of the head; of no use if nothing waits.
    pub(crate) fn direction(&self) -> Direction {
        self.waiting.front().map_or(Direction::Read, |head| head.direction)
    }

    /// Time from which the limit lets the next request go.
    pub(crate) fn opens(&self) -> u64 {
        self.limit.map_or(0, |limit| self.meter.opens(limit.ahead_ns()))
    }

    /// Counts a request that goes against the limit.
    pub(crate) fn meter(&mut self, now: u64, bytes: u64, cost_ns: u64) {
        if let Some(limit) = self.limit {
            self.meter.take(now, span_ns(limit.charge(bytes, cost_ns), limit.rate));
        }
    }
}
