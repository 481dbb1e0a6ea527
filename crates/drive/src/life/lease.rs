//! The heartbeat lease: whether the drive may serve now, and what time it is at the manager. Pure: `now` is a
//! parameter.
//!
//! - The lease is counted from the moment the heartbeat was *sent*, so it ends here before it ends at the
//!   manager (R8).
//! - Manager time is the time in the last reply plus the time since its heartbeat was sent. It is ahead of
//!   the manager's by at most the duration of that exchange, so at worst a capability ends a little early. It
//!   never goes back.
//! - A reply of an older term than one already heard is from a manager that no longer leads: it renews
//!   nothing.

use braid_wire::control::{Admission, ControlHead, HeartbeatReply};
use braid_wire::{Reason, Refusal};

use crate::life::clock::Moment;

/// The drive's standing with the manager.
#[derive(Debug, Clone, Default)]
pub struct Lease {
    heard: Option<Heard>,
    term: u64,
    replaced: bool,
    closing: bool,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
    /// Moment at which the heartbeat was sent.
    sent: Moment,
    /// The lease's length in milliseconds, counted from `sent`.
    lease_ms: u32,
    /// Manager time in the reply, in milliseconds.
    manager_ms: u64,
}

/// Effect of a heartbeat's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// The lease is renewed.
    Renewed,
    /// The drive was replaced, and never serves again.
    Replaced,
    /// The reply is from a manager that no longer leads, or whose state is older than one seen before;
    /// nothing changed.
    OldTerm,
}

impl Lease {
    /// Creates the state of a drive that last heard a manager of this term; 0: it has heard none.
    pub fn new(term: u64) -> Lease {
        Lease { term, ..Lease::default() }
    }

    /// The manager answered a heartbeat that was sent at `sent`.
    pub fn handle_heartbeat(&mut self, sent: Moment, head: &ControlHead, reply: &HeartbeatReply) -> Beat {
        if self.is_over(head) || reply.admission == Admission::ManagerOlder {
            return Beat::OldTerm;
        }
        self.term = head.term;
        if reply.admission == Admission::Replaced {
            self.replaced = true;
        }
        if self.replaced {
            return Beat::Replaced;
        }
        let manager_ms = self.manager_ms(sent).map_or(head.now_ms, |before| before.max(head.now_ms));
        self.heard = Some(Heard { sent, lease_ms: reply.lease_ms, manager_ms });
        Beat::Renewed
    }

    /// Returns true if a reply is from a manager that no longer leads.
    pub fn is_over(&self, head: &ControlHead) -> bool {
        head.term < self.term
    }

    /// A request from the manager carries `term`: one of an older term is refused.
    pub fn handle_term(&mut self, term: u64) -> Result<(), Refusal> {
        if term < self.term {
            let detail = format!("term {term} is over: a manager of term {} leads", self.term);
            return Err(Refusal::new(Reason::NotLeading, detail));
        }
        self.term = term;
        Ok(())
    }

    /// The disk hangs: the lease is given up until the manager grants another.
    pub fn handle_stall(&mut self) {
        if let Some(heard) = &mut self.heard {
            heard.lease_ms = 0;
        }
    }

    /// The process is stopping: no new requests are served.
    pub fn handle_closing(&mut self) {
        self.closing = true;
    }

    /// Ok if new requests may be served; otherwise the refusal says why not.
    pub fn serving(&self, now: Moment) -> Result<(), Refusal> {
        if self.closing {
            return Err(Refusal::new(Reason::Closing, "the drive is shutting down"));
        }
        self.holds(now)
    }

    /// Ok if replies may be sent. Unlike [`Lease::serving`], this still lets accepted requests be answered
    /// while the drive is closing.
    pub fn holds(&self, now: Moment) -> Result<(), Refusal> {
        let no = |detail: &str| Err(Refusal::new(Reason::NotServing, detail));
        if self.replaced {
            return no("the drive was replaced and serves no more");
        }
        match self.heard {
            None => no("the drive has not yet heard from the manager since it started"),
            Some(heard) if now.since(heard.sent) >= u64::from(heard.lease_ms) => {
                no("the drive's heartbeat lease has lapsed: it cannot reach the manager")
            }
            Some(_) => Ok(()),
        }
    }

    /// Manager time in milliseconds; `None` before the first reply.
    pub fn manager_ms(&self, now: Moment) -> Option<u64> {
        self.heard.map(|heard| heard.manager_ms + now.since(heard.sent))
    }

    /// Returns true if the manager has said that the drive was replaced.
    pub fn replaced(&self) -> bool {
        self.replaced
    }
}

#[cfg(test)]
mod tests {
    use braid_wire::control::{KeyTurn, StateMark};

    use super::*;

    fn reply(lease_ms: u32) -> HeartbeatReply {
        let state = StateMark { term: 1, mark: 1, changes: 1 };
        let admission = Admission::Serve;
        let detail = String::new();
        let ended = Vec::new();
        let key = KeyTurn::FIRST;
        HeartbeatReply { lease_ms, admission, detail, instance: 1, state, epoch: 0, ended, key }
    }

    fn head(term: u64, now_ms: u64) -> ControlHead {
        ControlHead { term, now_ms, managers: 0 }
    }

    fn reason(result: Result<(), Refusal>) -> Option<Reason> {
        result.err().map(|refusal| refusal.reason)
    }

    #[test]
    fn serves_from_the_first_reply_until_the_lease_lapses() {
        let mut lease = Lease::default();
        assert_eq!(reason(lease.serving(Moment(0))), Some(Reason::NotServing));
        assert_eq!(lease.manager_ms(Moment(0)), None);
        assert_eq!(lease.handle_heartbeat(Moment(1000), &head(1, 77_000), &reply(6000)), Beat::Renewed);
        assert_eq!(lease.serving(Moment(6999)), Ok(()));
        assert_eq!(reason(lease.serving(Moment(7000))), Some(Reason::NotServing));
        lease.handle_heartbeat(Moment(7500), &head(1, 83_500), &reply(6000));
        assert_eq!(lease.serving(Moment(7500)), Ok(()));
    }

    #[test]
    fn manager_time_goes_on_and_never_back() {
        let mut lease = Lease::default();
        lease.handle_heartbeat(Moment(1000), &head(1, 50_000), &reply(6000));
        assert_eq!(lease.manager_ms(Moment(1400)), Some(50_400));
        lease.handle_heartbeat(Moment(2000), &head(1, 50_100), &reply(6000));
        assert_eq!(lease.manager_ms(Moment(2000)), Some(51_000));
    }

    #[test]
    fn an_older_term_gives_nothing() {
        let mut lease = Lease::default();
        lease.handle_heartbeat(Moment(0), &head(5, 1), &reply(1000));
        assert_eq!(lease.handle_heartbeat(Moment(900), &head(4, 2), &reply(1000)), Beat::OldTerm);
        assert_eq!(reason(lease.serving(Moment(1000))), Some(Reason::NotServing));
        assert_eq!(reason(lease.handle_term(4)), Some(Reason::NotLeading));
        assert_eq!(lease.handle_term(6), Ok(()));
        assert_eq!(reason(lease.handle_term(5)), Some(Reason::NotLeading));
    }

    #[test]
    fn a_manager_whose_state_is_older_gives_nothing() {
        let mut lease = Lease::new(7);
        assert_eq!(lease.handle_heartbeat(Moment(0), &head(6, 1), &reply(1000)), Beat::OldTerm);
        let older = HeartbeatReply { admission: Admission::ManagerOlder, ..reply(1000) };
        assert_eq!(lease.handle_heartbeat(Moment(0), &head(9, 1), &older), Beat::OldTerm);
        assert_eq!(reason(lease.serving(Moment(1))), Some(Reason::NotServing));
        assert_eq!(lease.handle_heartbeat(Moment(2), &head(7, 1), &reply(1000)), Beat::Renewed);
        assert_eq!(lease.serving(Moment(3)), Ok(()));
    }

    #[test]
    fn replaced_is_for_good() {
        let mut lease = Lease::default();
        lease.handle_heartbeat(Moment(0), &head(1, 1), &reply(1000));
        let gone = HeartbeatReply { admission: Admission::Replaced, ..reply(1000) };
        assert_eq!(lease.handle_heartbeat(Moment(10), &head(1, 11), &gone), Beat::Replaced);
        assert_eq!(lease.handle_heartbeat(Moment(20), &head(1, 21), &reply(1000)), Beat::Replaced);
        assert_eq!(reason(lease.serving(Moment(30))), Some(Reason::NotServing));
    }

    #[test]
    fn closing_takes_nothing_new_and_answers_what_was_accepted() {
        let mut lease = Lease::default();
        lease.handle_heartbeat(Moment(0), &head(1, 1), &reply(1000));
        lease.handle_closing();
        assert_eq!(reason(lease.serving(Moment(1))), Some(Reason::Closing));
        assert_eq!(lease.holds(Moment(1)), Ok(()));
    }
}
