//! Leases on files: who holds one, and until when. A pure machine: time is a parameter.
//!
//! A lease's number, its kind, and that it was granted, are durable in the file's record. Only its holders
//! and their expiry are kept here. After a restart every lease on record lasts a full term from the start:
//! longer than its holders think, never shorter. Who held a shared one is not known then: whoever renews it
//! with a right number within that term is a holder.
//!
//! A holder that lapsed can still renew until its end has begun ([`Leases::step`]): a late client does no
//! harm as long as nobody acted on the lapse. After a pause of this process every lease lasts a full
//! term, as its renewals may have waited for us.
//!
//! When a lease is replaced by one of the other kind its holders keep their places, and may still name the
//! former number until they have heard of the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use braid_layout::FileId;
use braid_layout::version::Lease;

use crate::records::schema::{InodeRecord, PartRecord};
use crate::rules::parts;
use crate::rules::pauses::Pauses;
use crate::rules::turns::Turns;

/// A shared lease whose holders do not write the same stripes becomes exclusive after so long.
pub const ALONE_MS: u64 = 2000;
/// Stands for the holders that are not known after a restart.
const UNKNOWN: u64 = 0;

/// The leases in force.
#[derive(Debug)]
pub struct Leases {
    lease_ms: u64,
    pauses: Arc<Pauses>,
    held: BTreeMap<FileId, Held>,
}

#[derive(Debug)]
struct Held {
    /// The lease on record.
    lease: Lease,
    /// The first one that its holders may name.
    since: Lease,
    shared: bool,
    holders: BTreeMap<u64, Place>,
    /// Who has it for itself in turn, and who is next.
    turns: Turns,
    /// What holders asked for who write by range.
    parts: Vec<PartRecord>,
    /// Who was fenced out of it, and is not known again.
    gone: BTreeSet<u64>,
    /// Since when nobody has left.
    left_ms: u64,
    ending: bool,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    until_ms: u64,
    ending: bool,
    /// The client whose open file it is; 0: it does not watch, or was not heard of since a start.
    client: u64,
    /// It is from before a start, and nobody has said since whose it is.
    is_resumed: bool,
}

/// The state of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// Some holder has it for so many milliseconds more.
    Live(u64),
    /// It has lapsed or is being ended, or there is none.
    Over,
}

/// What is to be done about a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// It is over: to be ended.
    End,
    /// These of its holders are gone without a clean release; others are there.
    Without(Vec<u64>),
    /// It is shared, and no two of its holders need the same stripes.
    Apart,
}

impl Leases {
    /// Leases that last `lease_ms` from each renewal.
    pub fn new(lease_ms: u32, pauses: Arc<Pauses>) -> Leases {
        Leases { lease_ms: u64::from(lease_ms), pauses, held: BTreeMap::new() }
    }

    /// The file's lease is granted to one holder.
    pub fn grant(&mut self, file: FileId, lease: Lease, holder: u64, now_ms: u64) {
        let place = Place { until_ms: now_ms + self.lease_ms, ending: false, client: 0, is_resumed: false };
        let held = Held {
            lease,
            since: lease,
            shared: false,
            holders: BTreeMap::from([(holder, place)]),
            turns: Turns::default(),
            parts: Vec::new(),
            gone: BTreeSet::new(),
            left_ms: now_ms,
            ending: false,
        };
        self.held.insert(file, held);
    }

    /// Takes a lease over from the record at a start. If somebody was fenced out of it of whom only that was
    /// known, after an earlier start, nobody is known again who is not on record: it might be that one.
    pub fn resume(&mut self, file: FileId, inode: &InodeRecord, now_ms: u64) {
        let may_be_gone = inode.gone.contains(&UNKNOWN) && !inode.is_parted();
        if may_be_gone && inode.shared {
            return self.leave(file, inode.lease);
        }
        self.grant(file, inode.lease, if inode.shared { UNKNOWN } else { inode.client }, now_ms);
        if inode.is_parted() {
            self.end(file);
            self.grant(file, inode.lease, UNKNOWN, now_ms);
            inode.parts.iter().for_each(|part| self.join(file, part.holder, now_ms));
            self.forget(file, UNKNOWN, now_ms);
        } else if inode.since != Lease(0) && !may_be_gone {
            self.join(file, UNKNOWN, now_ms);
        }
        self.changed(file, inode);
        let places = self.held.get_mut(&file).into_iter().flat_map(|held| held.holders.values_mut());
        places.for_each(|place| place.is_resumed = true);
    }

    /// Whether somebody may write the file who was not heard since a start, or is one of these clients.
    pub fn are_silent(&self, file: FileId, clients: &BTreeSet<u64>) -> bool {
        let mut places = self.held.get(&file).into_iter().flat_map(|held| held.holders.values());
        places.any(|place| place.is_resumed || clients.contains(&place.client))
    }

    /// The places of these are over.
    pub fn give_up_silent(&mut self, file: FileId, clients: &BTreeSet<u64>) {
        let places = self.held.get_mut(&file).into_iter().flat_map(|held| held.holders.values_mut());
        let silent = places.filter(|place| place.is_resumed || clients.contains(&place.client));
        silent.for_each(|place| place.ending = true);
    }

    /// The file's lease was replaced by that of the record; the holders keep their places.
    pub fn changed(&mut self, file: FileId, inode: &InodeRecord) {
        if let Some(held) = self.held.get_mut(&file) {
            (held.lease, held.shared, held.parts) = (inode.lease, inode.shared, inode.parts.clone());
            held.since = if inode.since == Lease(0) { inode.lease } else { inode.since };
            held.gone = inode.gone.iter().copied().collect();
        }
    }

    /// The lease on record has no holder: it cannot be renewed, and must be ended.
    pub fn leave(&mut self, file: FileId, lease: Lease) {
        self.grant(file, lease, UNKNOWN, 0);
        self.give_up(file);
    }

    /// One more holds the file's lease.
    pub fn join(&mut self, file: FileId, holder: u64, now_ms: u64) {
        let until_ms = now_ms + self.lease_ms;
        if let Some(held) = self.held.get_mut(&file) {
            held.holders.insert(holder, Place { until_ms, ending: false, client: 0, is_resumed: false });
            held.turns.has_it(holder);
        }
    }

    /// Renews the lease for a holder. False if that does not hold it, or its end has begun.
    pub fn renew(&mut self, file: FileId, lease: Lease, holder: u64, now_ms: u64) -> bool {
        let until_ms = now_ms + self.lease_ms;
        let Some(held) = self.held.get_mut(&file).filter(|held| held.may_name(lease)) else { return false };
        let may_be_known_again = held.holders.get(&UNKNOWN).is_some_and(|place| !place.ending);
        match held.holders.get_mut(&holder) {
            _ if held.ending || holder == UNKNOWN => false,
            Some(place) if place.ending => false,
            Some(place) => {
                place.until_ms = place.until_ms.max(until_ms);
                true
            }
            None if may_be_known_again && !held.gone.contains(&holder) => {
                held.holders.insert(holder, Place { until_ms, ending: false, client: 0, is_resumed: true });
                true
            }
            None => false,
        }
    }

    /// Whether it holds the lease, or did until its end began.
    pub fn holds(&self, file: FileId, lease: Lease, holder: u64) -> bool {
        let held = self.held.get(&file).filter(|held| held.may_name(lease));
        held.is_some_and(|held| held.holders.contains_key(&holder))
    }

    /// Whether anything is known of a lease on the file.
    pub fn is_known(&self, file: FileId) -> bool {
        self.held.contains_key(&file)
    }

    /// Who holds the file's lease.
    pub fn holders(&self, file: FileId) -> BTreeSet<u64> {
        self.held.get(&file).into_iter().flat_map(|held| held.holders.keys().copied()).collect()
    }

    /// Whose open file a holder is; 0: that is not known.
    pub fn is_of(&mut self, file: FileId, holder: u64, client: u64) {
        if let Some(place) = self.held.get_mut(&file).and_then(|held| held.holders.get_mut(&holder))
            && client != 0
        {
            (place.client, place.is_resumed) = (client, false);
        }
    }

    /// A client's places in the file's lease are over, whether or not they have lapsed; so are those of which
    /// nobody was heard since a start, as they may be its own. Returns whether there were any.
    pub fn give_up_all_of(&mut self, file: FileId, client: u64) -> bool {
        let places = self.held.get_mut(&file).into_iter().flat_map(|held| held.holders.values_mut());
        let of_client = places.filter(|place| place.is_resumed || client != 0 && place.client == client);
        of_client.map(|place| place.ending = true).count() > 0
    }

    /// Whether others than this one hold the file's lease.
    pub fn has_others(&self, file: FileId, holder: u64) -> bool {
        self.held.get(&file).is_some_and(|held| held.holders.keys().any(|other| *other != holder))
    }

    /// Whose turn it is to have the file, if it has a lease.
    pub fn turns(&mut self, file: FileId) -> Option<&mut Turns> {
        self.held.get_mut(&file).map(|held| &mut held.turns)
    }

    /// The state of the file's lease.
    pub fn state(&self, file: FileId, now_ms: u64) -> LeaseState {
        let held = self.held.get(&file).filter(|held| !held.ending);
        let places = held.into_iter().flat_map(|held| held.holders.values());
        let left =
            places.filter(|place| !self.is_over(place, now_ms)).map(|place| self.until_ms(place) - now_ms);
        left.max().map_or(LeaseState::Over, LeaseState::Live)
    }

    /// Whether somebody is gone who was not fenced yet, or has given its place up so.
    pub fn has_gone(&self, file: FileId, now_ms: u64) -> bool {
        self.held.get(&file).is_some_and(|held| self.is_left(held, now_ms))
    }

    fn is_left(&self, held: &Held, now_ms: u64) -> bool {
        held.ending || held.holders.values().any(|place| self.is_over(place, now_ms))
    }

    /// Whether a client may write any file: it is known to, or somebody is who was not heard since a start.
    pub fn may_write(&self, client: u64) -> bool {
        let mut places = self.held.values().flat_map(|held| held.holders.values());
        places.any(|place| place.is_resumed || place.client == client)
    }

    /// Begins to end the file's lease if it has lapsed for all: from now on it cannot be renewed. False if it
    /// is live. [`Leases::end`] completes it.
    pub fn begin_end(&mut self, file: FileId, now_ms: u64) -> bool {
        let is_over = self.state(file, now_ms) == LeaseState::Over;
        if is_over {
            self.give_up(file);
        }
        is_over
    }

    /// The lease is given up for all its holders: begins to end it, even if it has not lapsed.
    pub fn give_up(&mut self, file: FileId) {
        if let Some(held) = self.held.get_mut(&file) {
            held.ending = true;
        }
    }

    /// A holder has given the lease up, uncleanly.
    pub fn give_up_one(&mut self, file: FileId, holder: u64) {
        if let Some(place) = self.held.get_mut(&file).and_then(|held| held.holders.get_mut(&holder)) {
            place.ending = true;
        }
    }

    /// A holder is no holder any more, and nothing is left to do about it.
    pub fn forget(&mut self, file: FileId, holder: u64, now_ms: u64) {
        if let Some(held) = self.held.get_mut(&file) {
            held.holders.remove(&holder);
            held.left_ms = now_ms;
            held.turns.left(holder);
        }
    }

    /// The file's lease has ended.
    pub fn end(&mut self, file: FileId) {
        self.held.remove(&file);
    }

    /// What is to be done about the file's lease. From now on holders that are over cannot renew.
    pub fn step(&mut self, file: FileId, now_ms: u64) -> Step {
        if self.begin_end(file, now_ms) {
            return Step::End;
        }
        let Some(held) = self.held.get(&file) else { return Step::End };
        let over = held.holders.iter().filter(|(_, place)| self.is_over(place, now_ms));
        let over: Vec<u64> = over.map(|(holder, _)| *holder).collect();
        if over.is_empty() {
            return if held.apart(now_ms) { Step::Apart } else { Step::Nothing };
        }
        over.iter().for_each(|holder| self.give_up_one(file, *holder));
        Step::Without(over)
    }

    /// Files about whose lease something is to be done: those above `after` first, then the others.
    pub fn due(&self, now_ms: u64, after: FileId) -> impl Iterator<Item = FileId> {
        let is_due = move |held: &Held| self.is_left(held, now_ms) || held.apart(now_ms);
        let above = self.held.range((Bound::Excluded(after), Bound::Unbounded));
        let all = above.chain(self.held.range(..=after));
        all.filter(move |(_, held)| is_due(held)).map(|(&file, _)| file)
    }
}

impl Leases {
    fn is_over(&self, place: &Place, now_ms: u64) -> bool {
        place.ending || self.until_ms(place) <= now_ms
    }

    fn until_ms(&self, place: &Place) -> u64 {
        place.until_ms.max(self.resumed_ms())
    }

    /// No lease lapses before this time, a full term after the last pause; 0: there was no pause.
    fn resumed_ms(&self) -> u64 {
        match self.pauses.last().ended_ms {
            0 => 0,
            ended_ms => ended_ms + self.lease_ms,
        }
    }
}

impl Held {
    fn may_name(&self, lease: Lease) -> bool {
        (self.since..=self.lease).contains(&lease)
    }

    /// Whether it is shared, and for long enough no two of its holders have needed the same stripes.
    fn apart(&self, now_ms: u64) -> bool {
        if !self.shared || now_ms < self.left_ms + ALONE_MS || self.holders.contains_key(&UNKNOWN) {
            return false;
        }
        self.holders.len() == 1 || {
            let holders = self.holders.keys().copied().collect();
            parts::apart(&self.parts, &holders).is_some()
        }
    }
}

#[cfg(test)]
mod tests;
