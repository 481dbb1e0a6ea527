//! Exclusive leases on files: who holds one, and until when. A pure machine: time is a parameter.
//!
//! A lease's number, and that it was granted, is durable in the file's record. Only its expiry is kept here.
//! After a restart every lease on record lasts a full term from the start: longer than its holder thinks,
//! never shorter.
//!
//! A lapsed lease can still be renewed until its end has begun ([`Leases::begin_end`]): a late client does no
//! harm as long as nobody acted on the lapse. After a pause of this process every lease lasts a full term, as
//! its renewals may have waited for us.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use braid_layout::FileId;
use braid_layout::version::Lease;

use crate::pauses::Pauses;

/// The leases in force.
#[derive(Debug)]
pub struct Leases {
    lease_ms: u64,
    pauses: Arc<Pauses>,
    held: BTreeMap<FileId, Held>,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    lease: Lease,
    until_ms: u64,
    ending: bool,
}

/// The state of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// It is held for so many milliseconds more.
    Live(u64),
    /// It has lapsed or is being ended, or there is none.
    Over,
}

impl Leases {
    /// Leases that last `lease_ms` from each renewal.
    pub fn new(lease_ms: u32, pauses: Arc<Pauses>) -> Leases {
        Leases { lease_ms: u64::from(lease_ms), pauses, held: BTreeMap::new() }
    }

    /// The file's lease is granted, or taken over from the record at a start.
    pub fn grant(&mut self, file: FileId, lease: Lease, now_ms: u64) {
        self.held.insert(file, Held { lease, until_ms: now_ms + self.lease_ms, ending: false });
    }

    /// The lease on record has no holder: it cannot be renewed, and must be ended.
    pub fn leave(&mut self, file: FileId, lease: Lease) {
        self.held.insert(file, Held { lease, until_ms: 0, ending: true });
    }

    /// Renews the lease. False if it is not held, or its end has begun.
    pub fn renew(&mut self, file: FileId, lease: Lease, now_ms: u64) -> bool {
        match self.held.get_mut(&file) {
            Some(held) if held.lease == lease && !held.ending => {
                held.until_ms = held.until_ms.max(now_ms + self.lease_ms);
                true
            }
            _ => false,
        }
    }

    /// The state of the file's lease.
    pub fn state(&self, file: FileId, now_ms: u64) -> LeaseState {
        match self.held.get(&file) {
            Some(held) if !held.ending && now_ms < self.until_ms(held) => {
                LeaseState::Live(self.until_ms(held) - now_ms)
            }
            _ => LeaseState::Over,
        }
    }

    /// Begins to end the file's lease if it has lapsed: from now on it cannot be renewed. False if it is
    /// live. [`Leases::end`] completes it.
    pub fn begin_end(&mut self, file: FileId, now_ms: u64) -> bool {
        let resumed_ms = self.resumed_ms();
        match self.held.get_mut(&file) {
            Some(held) if !held.ending && now_ms < held.until_ms.max(resumed_ms) => false,
            Some(held) => {
                held.ending = true;
                true
            }
            None => true,
        }
    }

    /// The lease's holder has given it up: begins to end it, even if it has not lapsed.
    pub fn give_up(&mut self, file: FileId) {
        if let Some(held) = self.held.get_mut(&file) {
            held.ending = true;
        }
    }

    /// The file's lease has ended.
    pub fn end(&mut self, file: FileId) {
        self.held.remove(&file);
    }

    /// Files whose lease has lapsed or is being ended: those above `after` first, then the others.
    pub fn lapsed(&self, now_ms: u64, after: FileId) -> impl Iterator<Item = FileId> {
        let over = move |held: &Held| held.ending || self.until_ms(held) <= now_ms;
        let above = self.held.range((Bound::Excluded(after), Bound::Unbounded));
        let all = above.chain(self.held.range(..=after));
        all.filter(move |(_, held)| over(held)).map(|(&file, _)| file)
    }
}

impl Leases {
    fn until_ms(&self, held: &Held) -> u64 {
        held.until_ms.max(self.resumed_ms())
    }

    /// No lease lapses before this time, a full term after the last pause; 0: there was no pause.
    fn resumed_ms(&self) -> u64 {
        match self.pauses.last().ended_ms {
            0 => 0,
            ended_ms => ended_ms + self.lease_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(7);

    fn leases() -> Leases {
        Leases::new(10, Arc::new(Pauses::new(5, 0)))
    }

    fn lapsed(leases: &Leases, now_ms: u64) -> Vec<FileId> {
        leases.lapsed(now_ms, FileId(0)).collect()
    }

    #[test]
    fn each_has_its_turn_from_any_file_on() {
        let mut leases = leases();
        (1..=4).for_each(|file| leases.grant(FileId(file), Lease(1), if file == 3 { 90 } else { 0 }));
        assert_eq!(leases.lapsed(50, FileId(2)).collect::<Vec<_>>(), [FileId(4), FileId(1), FileId(2)]);
        assert_eq!(leases.lapsed(50, FileId(9)).count(), 3);
    }

    #[test]
    fn a_lease_that_was_left_is_nobodys_also_after_a_pause() {
        let pauses = Arc::new(Pauses::new(5, 0));
        let mut leases = Leases::new(10, Arc::clone(&pauses));
        leases.leave(FILE, Lease(1));
        pauses.look(9000);
        assert_eq!(leases.state(FILE, 9000), LeaseState::Over);
        assert!(!leases.renew(FILE, Lease(1), 9000) && leases.begin_end(FILE, 9000));
        assert_eq!(lapsed(&leases, 0), [FILE]);
    }

    #[test]
    fn a_renewal_that_waited_for_us_counts() {
        let pauses = Arc::new(Pauses::new(5, 0));
        let mut leases = Leases::new(10, Arc::clone(&pauses));
        leases.grant(FILE, Lease(1), 100);
        leases.grant(FileId(8), Lease(1), 100);
        leases.give_up(FileId(8));
        pauses.listen(105);
        // The process is stopped; then the loop that ends leases runs before the session with the renewal.
        pauses.look(9000);
        assert_eq!(lapsed(&leases, 9000), [FileId(8)]);
        assert!(!leases.begin_end(FILE, 9000));
        assert_eq!(leases.state(FILE, 9001), LeaseState::Live(9));
        assert!(leases.renew(FILE, Lease(1), 9005));
        assert_eq!(leases.state(FILE, 9014), LeaseState::Live(1));
        // Without another it ends a term after that.
        assert_eq!(lapsed(&leases, 9015), [FILE, FileId(8)]);
    }

    #[test]
    fn a_lease_lives_from_renewal_to_renewal() {
        let mut leases = leases();
        leases.grant(FILE, Lease(1), 100);
        assert_eq!(leases.state(FILE, 109), LeaseState::Live(1));
        assert!(leases.renew(FILE, Lease(1), 109));
        assert_eq!(leases.state(FILE, 110), LeaseState::Live(9));
        assert_eq!(leases.state(FILE, 119), LeaseState::Over);
        assert_eq!(lapsed(&leases, 119), [FILE]);
        assert!(lapsed(&leases, 118).is_empty());
    }

    #[test]
    fn only_its_holder_renews_it() {
        let mut leases = leases();
        leases.grant(FILE, Lease(2), 0);
        assert!(!leases.renew(FILE, Lease(1), 1));
        assert!(!leases.renew(FileId(8), Lease(2), 1));
    }

    #[test]
    fn a_late_renewal_counts_until_the_end_has_begun() {
        let mut leases = leases();
        leases.grant(FILE, Lease(1), 0);
        assert!(leases.renew(FILE, Lease(1), 50));
        assert!(!leases.begin_end(FILE, 55), "it is live again");
        assert!(leases.begin_end(FILE, 60));
        assert!(!leases.renew(FILE, Lease(1), 60));
        assert_eq!(lapsed(&leases, 60), [FILE], "until the end is over it is to be ended");
        leases.end(FILE);
        assert!(lapsed(&leases, 60).is_empty());
    }

    #[test]
    fn a_lease_given_up_ends_while_it_is_live() {
        let mut leases = leases();
        leases.grant(FILE, Lease(1), 0);
        leases.give_up(FILE);
        assert_eq!(leases.state(FILE, 1), LeaseState::Over);
    }
}
