//! What a flow has got, and why its late requests were late.

use crate::flow::FlowId;

/// The cause of a late request: what held it up the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The flow's rate: more was sent, or smaller operations than it was priced for.
    Rate,
    /// Other requests before it.
    Queue,
    /// The device, and what was in flight there.
    Device,
}

/// Figures of a flow since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Requests that are done.
    pub requests: u64,
    /// Bytes done that were served by right of a promise.
    pub bytes_promised: u64,
    /// Bytes done that were served from the share by weight.
    pub bytes_shared: u64,
    /// Requests done later than their due time and the stated bound on lateness.
    pub late: u64,
    /// Largest time that a request was done after its due time; 0 if none was.
    pub worst_lateness_ns: u64,
    /// Late requests by what held them up: rate, queue, device.
    pub causes: [u64; 3],
}

/// A flow and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowFigures {
    pub flow: FlowId,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests given out and not done.
    pub in_flight: usize,
    pub figures: Figures,
}

/// Times of a request under a promise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Time from which the request was the flow's turn: its arrival, or the due time of the one before.
    pub(crate) start: u64,
    /// Time from which its tag let it go by right.
    pub(crate) eligible: u64,
    pub(crate) given: u64,
    pub(crate) due: u64,
}

impl Times {
    /// The part that took the longest of the time from the request's turn until it was done.
    fn cause(&self, done: u64) -> Cause {
        let eligible = self.eligible.min(self.given);
        let rate = eligible.saturating_sub(self.start);
        let queue = self.given.saturating_sub(self.start.max(eligible));
        let device = done.saturating_sub(self.given);
        if rate > queue && rate > device {
            Cause::Rate
        } else if queue > device {
            Cause::Queue
        } else {
            Cause::Device
        }
    }
}

impl Figures {
    /// Late requests that this held up.
    pub fn late_by(&self, cause: Cause) -> u64 {
        self.causes[cause as usize]
    }

    /// A request under a promise is done.
    pub(crate) fn count(&mut self, times: &Times, done: u64, bound_ns: u64) {
        let lateness = done.saturating_sub(times.due);
        self.worst_lateness_ns = self.worst_lateness_ns.max(lateness);
        if lateness > bound_ns {
            self.late += 1;
            self.causes[times.cause(done) as usize] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_request_says_why() {
        for (eligible, given, done, cause) in
            [(900, 950, 1200, Cause::Rate), (0, 900, 1200, Cause::Queue), (0, 120, 1200, Cause::Device)]
        {
            let mut figures = Figures::default();
            let times = Times { start: 100, eligible, given, due: 200 };
            figures.count(&times, done, 1000);
            assert_eq!((figures.late, figures.worst_lateness_ns), (0, 1000));
            figures.count(&times, done, 999);
            assert_eq!((figures.late, figures.late_by(cause)), (1, 1));
        }
    }
}
