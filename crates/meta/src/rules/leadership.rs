//! Leadership: the proof that this manager's state is the current one. A pure machine: time is a parameter.
//!
//! A state can be put back from an older copy (a backup, a snapshot of the machine, a directory copied by
//! hand). Its names, placement and leases are then out of date, so nothing of it may be served. The drives
//! can tell: each remembers the mark of the last term and the number of changes that it was told
//! ([`StateMark`]), and reports them with its heartbeats. So:
//!
//! - After its start a manager answers no client before it has heard from more than half of its drives, or
//!   from one drive when a whole heartbeat lease has passed.
//! - One drive that has seen a term that this state does not know, or more changes than it has, is enough:
//!   the state is *older*. The manager then answers no client and gives no lease, even after a restart, until
//!   an operator decides.
//! - A state that an operator has restored is *compared* with what the drives hold before it answers clients.

use std::collections::BTreeSet;

use braid_layout::DriveId;
use braid_wire::control::StateMark;
use braid_wire::{Reason, Refusal};

/// Permission of the manager to serve, by what it knows of its own state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// The manager has not heard from enough drives since its start.
    Asking {
        /// Drives that were heard, and have seen nothing newer.
        heard: BTreeSet<DriveId>,
        /// Time of the manager's start.
        since_ms: u64,
    },
    /// The state is current, as far as any drive has said.
    Leading,
    /// The state is older than what a drive has seen; with the evidence.
    Older(String),
    /// The state was restored, and is being compared with what the drives hold; with the progress.
    Comparing(String),
}

/// Comparison of the mark that a drive has seen with the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The state has all that the drive has seen.
    Known,
    /// The drive has seen a term, or changes, that the state does not have.
    Newer,
}

impl Leadership {
    /// Leadership at a start. `drives`: number of drives on record that were not replaced.
    pub fn begin(drives: usize, since_ms: u64) -> Leadership {
        if drives == 0 {
            Leadership::Leading
        } else {
            Leadership::Asking { heard: BTreeSet::new(), since_ms }
        }
    }

    /// Takes a heartbeat of a drive that was not replaced. Returns true if it showed the state to be older.
    pub fn handle_heartbeat(&mut self, drive: DriveId, name: &str, seen: (Seen, &StateMark)) -> bool {
        match (&mut *self, seen) {
            (Leadership::Older(_) | Leadership::Comparing(_), _) => false,
            (_, (Seen::Newer, mark)) => {
                *self = Leadership::Older(format!(
                    "{name} has seen a state of term {} with {} changes (mark {:016x})",
                    mark.term, mark.changes, mark.mark
                ));
                true
            }
            (Leadership::Asking { heard, .. }, (Seen::Known, _)) => {
                heard.insert(drive);
                false
            }
            (Leadership::Leading, (Seen::Known, _)) => false,
        }
    }

    /// Begins to lead once enough drives of `drives` were heard. `lease_ms` is a heartbeat lease. Returns
    /// true if leading begins now.
    pub fn handle_time(&mut self, now_ms: u64, drives: usize, lease_ms: u64) -> bool {
        match self {
            Leadership::Asking { heard, since_ms } => {
                let most = heard.len() * 2 > drives;
                let some = !heard.is_empty() && now_ms >= *since_ms + lease_ms;
                if most || some || drives == 0 {
                    *self = Leadership::Leading;
                    return true;
                }
                false
            }
            _ => false,
        }
    }

    /// Refuses clients' requests unless the manager leads.
    pub fn serving(&self) -> Result<(), Refusal> {
        let no = |reason, detail: String| Err(Refusal::new(reason, detail));
        match self {
            Leadership::Leading => Ok(()),
            Leadership::Asking { heard, .. } => {
                let detail = format!(
                    "the manager has just started, and has heard from {} of its drives: it answers once enough of them have \
                     confirmed that its state is the newest (start the drives if none runs)",
                    heard.len()
                );
                no(Reason::NotLeading, detail)
            }
            Leadership::Older(why) => no(Reason::StateOlder, older(why)),
            Leadership::Comparing(how) => no(Reason::NotLeading, comparing(how)),
        }
    }

    /// Returns an error, with the reason, if drives may get no leases.
    pub fn admits_drives(&self) -> Result<(), String> {
        match self {
            Leadership::Older(why) => Err(older(why)),
            _ => Ok(()),
        }
    }

    /// Returns true if drives should remember that they have seen this state.
    pub fn may_be_remembered(&self) -> bool {
        matches!(self, Leadership::Leading | Leadership::Comparing(_))
    }

    /// Notice for users while the manager does not lead; else empty.
    pub fn notice(&self) -> String {
        match self {
            Leadership::Leading => String::new(),
            other => other.serving().err().map(|refusal| refusal.detail).unwrap_or_default(),
        }
    }
}

fn older(why: &str) -> String {
    format!(
        "the manager's state is older than what its drives have seen of it: {why}. It was put back from a copy. Stop the manager, and \
         put the newest state back in its directory; or, if that is lost, go on with this one: braid manager restore --dir \
         DIR compares its names with what the drives hold"
    )
}

fn comparing(how: &str) -> String {
    format!("the manager's state was restored, and is being compared with what the drives hold: {how}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: StateMark = StateMark { term: 3, mark: 5, changes: 100 };

    fn hear(leadership: &mut Leadership, drive: u128, seen: Seen) {
        leadership.handle_heartbeat(DriveId(drive), "d", (seen, &MARK));
    }

    #[test]
    fn it_leads_when_most_drives_know_nothing_newer() {
        let mut leadership = Leadership::begin(4, 1000);
        assert_eq!(leadership.serving().unwrap_err().reason, Reason::NotLeading);
        hear(&mut leadership, 1, Seen::Known);
        hear(&mut leadership, 1, Seen::Known);
        hear(&mut leadership, 2, Seen::Known);
        assert!(!leadership.handle_time(1001, 4, 600));
        hear(&mut leadership, 3, Seen::Known);
        assert!(leadership.handle_time(1002, 4, 600));
        assert!(leadership.serving().is_ok() && leadership.notice().is_empty());
    }

    #[test]
    fn one_drive_is_enough_after_a_lease_and_none_never() {
        let mut leadership = Leadership::begin(4, 1000);
        assert!(!leadership.handle_time(99_000, 4, 600));
        hear(&mut leadership, 2, Seen::Known);
        assert!(!Leadership::handle_time(&mut leadership.clone(), 1599, 4, 600));
        assert!(leadership.handle_time(1600, 4, 600));
        assert_eq!(Leadership::begin(0, 1000), Leadership::Leading);
    }

    #[test]
    fn one_drive_that_has_seen_more_ends_it_for_good() {
        for leading in [false, true] {
            let mut leadership = Leadership::begin(3, 0);
            if leading {
                hear(&mut leadership, 1, Seen::Known);
                leadership.handle_time(600, 3, 600);
            }
            hear(&mut leadership, 2, Seen::Newer);
            hear(&mut leadership, 3, Seen::Known);
            assert!(!leadership.handle_time(9000, 3, 600));
            let refusal = leadership.serving().unwrap_err();
            assert_eq!(refusal.reason, Reason::StateOlder);
            assert!(
                refusal.detail.contains("100 changes") && refusal.detail.contains("braid manager restore")
            );
            assert!(leadership.admits_drives().is_err());
        }
    }
}
