//! Marks of congestion (RFC 3168, RFC 9002 section 7.1), in both directions.
//!
//! The sender lets queues mark what asks for an acknowledgement, if its policy heeds marks. The receiver
//! counts marked datagrams, and tells the count beside every acknowledgement, so that none is lost. As some
//! paths drop what may be marked, the sender stops if its first such datagrams get no answer; what only
//! acknowledges, and probes of the path's length, may never be marked, so these tell nothing wrong.

use crate::transmit::Ecn;

/// Timeouts in a row without any answer to a datagram that may be marked, after which none is.
const UNANSWERED_TIMEOUTS: u32 = 2;

/// The marks of one connection.
#[derive(Debug)]
pub(crate) struct Marks {
    trial: Trial,
    /// Datagrams sent that may be marked.
    capable: u64,
    /// Marked ones among them, as far as the peer has told.
    told: u64,
    /// Marked datagrams that have come.
    arrived: u64,
}

/// That which is known of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// Nothing that may be marked has arrived yet.
    Begun,
    Passed,
    /// Nothing may be marked any more.
    Ended,
}

impl Marks {
    /// Lets datagrams be marked if the policy heeds it.
    pub(crate) fn new(heeds: bool) -> Marks {
        let trial = if heeds { Trial::Begun } else { Trial::Ended };
        Marks { trial, capable: 0, told: 0, arrived: 0 }
    }

    /// The path is another from now on. The counts go on, as the peer's do.
    pub(crate) fn begin_again(&mut self, heeds: bool) {
        self.trial = if heeds { Trial::Begun } else { Trial::Ended };
    }

    /// The field of the next datagram that asks for an acknowledgement.
    pub(crate) fn on_sent(&mut self) -> Ecn {
        match self.trial {
            Trial::Ended => Ecn::Unaware,
            Trial::Begun | Trial::Passed => {
                self.capable += 1;
                Ecn::Capable
            }
        }
    }

    /// A datagram with this field was acknowledged.
    pub(crate) fn on_acked(&mut self, ecn: Ecn) {
        if ecn == Ecn::Capable && self.trial == Trial::Begun {
            self.trial = Trial::Passed;
        }
    }

    /// So many timeouts have passed since anything was acknowledged.
    pub(crate) fn on_timeouts(&mut self, timeouts: u32) {
        match self.trial {
            Trial::Begun if timeouts >= UNANSWERED_TIMEOUTS => self.trial = Trial::Ended,
            // The path may have become another: it is tried again.
            Trial::Passed if timeouts > UNANSWERED_TIMEOUTS => self.trial = Trial::Begun,
            _ => {}
        }
    }

    /// The peer has got so many marked datagrams. Returns true if it had not told of all of them before.
    pub(crate) fn handle_told(&mut self, total: u64) -> bool {
        if total > self.capable {
            // The path marks what may not be marked: its marks say nothing.
            self.trial = Trial::Ended;
            return false;
        }
        let is_more = total > self.told && self.trial != Trial::Ended;
        self.told = self.told.max(total);
        is_more
    }

    /// A datagram with this field has come.
    pub(crate) fn on_arrived(&mut self, ecn: Ecn) {
        self.arrived += u64::from(ecn == Ecn::Marked);
    }

    /// The count to tell the peer; `None` if there were none.
    pub(crate) fn arrived(&self) -> Option<u64> {
        (self.arrived > 0).then_some(self.arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_counts_once_and_one_that_cannot_be_ends_marking() {
        let mut marks = Marks::new(true);
        assert_eq!([marks.on_sent(), marks.on_sent()], [Ecn::Capable; 2]);
        assert!(marks.handle_told(1));
        assert!(!marks.handle_told(1), "it was told before");
        assert!(!marks.handle_told(0), "this came late");
        assert!(marks.handle_told(2));
        assert!(!marks.handle_told(3), "no more than 2 were sent");
        assert_eq!(marks.on_sent(), Ecn::Unaware);
    }

    #[test]
    fn a_path_that_drops_what_may_be_marked_gets_nothing_that_may_be() {
        let mut marks = Marks::new(true);
        assert_eq!(marks.on_sent(), Ecn::Capable);
        marks.on_timeouts(1);
        assert_eq!(marks.on_sent(), Ecn::Capable);
        marks.on_timeouts(2);
        assert_eq!(marks.on_sent(), Ecn::Unaware);
        // One that has carried it before is tried again first.
        let mut marks = Marks::new(true);
        marks.on_acked(Ecn::Capable);
        marks.on_timeouts(2);
        assert_eq!(marks.on_sent(), Ecn::Capable);
        marks.on_timeouts(3);
        assert_eq!(marks.on_sent(), Ecn::Capable);
        marks.on_timeouts(4);
        assert_eq!(marks.on_sent(), Ecn::Unaware);
        assert_eq!(Marks::new(false).on_sent(), Ecn::Unaware);
    }
}
