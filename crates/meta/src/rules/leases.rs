//! Leases on files: their holders, and their expiry. A pure machine: time is a parameter.
//!
//! A lease's number, its kind, and that it was granted, are durable in the file's record. Only its holders
//! and their expiry are kept here. After a restart every lease on record lasts its full length from the
//! start: longer than its holders think, never shorter. The holders of a shared lease are not known then: any
//! client that renews it with a right number within that time is a holder.
//!
//! A holder that lapsed can still renew until the end of its lease has begun ([`Leases::step`]): a late
//! client does no harm as long as nothing was done about the lapse. After a pause of this process every lease
//! lasts its full length, as renewals may have waited for the manager.
//!
//! When a lease is replaced by one of the other kind its holders keep their places, and may still name the
//! former number until they have heard of the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use braid_layout::version::Lease;
use braid_layout::{ClientId, FileId, HolderId};

use crate::records::schema::{InodeRecord, PartRecord};
use crate::rules::parts;
use crate::rules::pauses::Pauses;
use crate::rules::turns::Turns;

/// Time, in milliseconds, after which a shared lease becomes exclusive if its holders do not write the same
/// stripes.
pub const ALONE_MS: u64 = 2000;
/// Number that stands for all holders that are not known after a restart.
const UNKNOWN: HolderId = HolderId::NONE;

/// The leases in force.
#[derive(Debug)]
pub struct Leases {
    lease_ms: u64,
    pauses: Arc<Pauses>,
    held: BTreeMap<FileId, LeaseInForce>,
}

#[derive(Debug)]
struct LeaseInForce {
    /// The lease on record.
    lease: Lease,
    /// The first lease that the holders may name.
    since: Lease,
    shared: bool,
    holders: BTreeMap<HolderId, HolderPlace>,
    /// Turns of holders that want the file for themselves.
    turns: Turns,
    /// Ranges asked for by holders that write by range.
    parts: Vec<PartRecord>,
    /// Holders that were fenced out of the lease, and are not accepted again.
    gone: BTreeSet<HolderId>,
    /// Time when the last holder left, or of the grant.
    left_ms: u64,
    ending: bool,
}

#[derive(Debug, Clone, Copy)]
struct HolderPlace {
    until_ms: u64,
    ending: bool,
    /// Client that has the file open as this holder; none: it does not watch, or was not heard of since a
    /// start.
    client: ClientId,
    /// True if the place is from before a start, and no client has claimed it since.
    is_resumed: bool,
}

/// The state of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// Some holder has the lease for this many milliseconds more.
    Live(u64),
    /// The lease has lapsed or is being ended, or there is none.
    Over,
}

/// Next step to be taken for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// End the lease: it is over for all its holders.
    End,
    /// Fence out these holders, which are gone without a clean release; others are there.
    Without(Vec<HolderId>),
    /// Make the shared lease exclusive: no two of its holders need the same stripes.
    Apart,
}

impl Leases {
    /// A table without leases. Each lease will last `lease_ms` from its last renewal.
    pub fn new(lease_ms: u32, pauses: Arc<Pauses>) -> Leases {
        Leases { lease_ms: u64::from(lease_ms), pauses, held: BTreeMap::new() }
    }

    /// Enters the grant of the file's lease to one holder.
    pub fn grant(&mut self, file: FileId, lease: Lease, holder: HolderId, now_ms: u64) {
        let place = HolderPlace {
            until_ms: now_ms + self.lease_ms,
            ending: false,
            client: ClientId::NONE,
            is_resumed: false,
        };
        let held = LeaseInForce {
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

    /// Takes a lease over from the record at a start. If an unknown holder was fenced out after an earlier
    /// start, no holder is accepted that is not on record: it might be that one.
    pub fn resume(&mut self, file: FileId, inode: &InodeRecord, now_ms: u64) {
        let may_be_gone = inode.gone.contains(&UNKNOWN) && !inode.is_parted();
        if may_be_gone && inode.shared {
            return self.leave(file, inode.lease);
        }
        self.grant(file, inode.lease, if inode.shared { UNKNOWN } else { inode.holder }, now_ms);
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

    /// Returns true if one of these clients, or a holder that was not heard since a start, may write the
    /// file.
    pub fn are_silent(&self, file: FileId, clients: &BTreeSet<ClientId>) -> bool {
        let mut places = self.held.get(&file).into_iter().flat_map(|held| held.holders.values());
        places.any(|place| place.is_resumed || clients.contains(&place.client))
    }

    /// Ends the places of these clients, and those of holders that were not heard since a start.
    pub fn give_up_silent(&mut self, file: FileId, clients: &BTreeSet<ClientId>) {
        let places = self.held.get_mut(&file).into_iter().flat_map(|held| held.holders.values_mut());
        let silent = places.filter(|place| place.is_resumed || clients.contains(&place.client));
        silent.for_each(|place| place.ending = true);
    }

    /// Replaces the file's lease by that of the record. The holders keep their places.
    pub fn changed(&mut self, file: FileId, inode: &InodeRecord) {
        if let Some(held) = self.held.get_mut(&file) {
            (held.lease, held.shared, held.parts) = (inode.lease, inode.shared, inode.parts.clone());
            held.since = if inode.since == Lease(0) { inode.lease } else { inode.since };
            held.gone = inode.gone.iter().copied().collect();
        }
    }

    /// Enters a lease on record that has no holder: it cannot be renewed, and must be ended.
    pub fn leave(&mut self, file: FileId, lease: Lease) {
        self.grant(file, lease, UNKNOWN, 0);
        self.give_up(file);
    }

    /// Adds a holder to the file's lease.
    pub fn join(&mut self, file: FileId, holder: HolderId, now_ms: u64) {
        let until_ms = now_ms + self.lease_ms;
        if let Some(held) = self.held.get_mut(&file) {
            held.holders.insert(
                holder,
                HolderPlace { until_ms, ending: false, client: ClientId::NONE, is_resumed: false },
            );
            held.turns.has_it(holder);
        }
    }

    /// Renews the lease for a holder. Returns false if that does not hold it, or its end has begun.
    pub fn renew(&mut self, file: FileId, lease: Lease, holder: HolderId, now_ms: u64) -> bool {
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
                held.holders.insert(
                    holder,
                    HolderPlace { until_ms, ending: false, client: ClientId::NONE, is_resumed: true },
                );
                true
            }
            None => false,
        }
    }

    /// Returns true if `holder` holds the lease, or did until its end began.
    pub fn holds(&self, file: FileId, lease: Lease, holder: HolderId) -> bool {
        let held = self.held.get(&file).filter(|held| held.may_name(lease));
        held.is_some_and(|held| held.holders.contains_key(&holder))
    }

    /// Returns true if a lease on the file is known.
    pub fn is_known(&self, file: FileId) -> bool {
        self.held.contains_key(&file)
    }

    /// Holders of the file's lease.
    pub fn holders(&self, file: FileId) -> BTreeSet<HolderId> {
        self.held.get(&file).into_iter().flat_map(|held| held.holders.keys().copied()).collect()
    }

    /// Records the client that has the file open as this holder; none: not known, and nothing changes.
    pub fn is_of(&mut self, file: FileId, holder: HolderId, client: ClientId) {
        if let Some(place) = self.held.get_mut(&file).and_then(|held| held.holders.get_mut(&holder))
            && client != ClientId::NONE
        {
            (place.client, place.is_resumed) = (client, false);
        }
    }

    /// Ends a client's places in the file's lease, whether or not they have lapsed, and those of holders that
    /// were not heard since a start, as they may be the client's own. Returns true if there were any.
    pub fn give_up_all_of(&mut self, file: FileId, client: ClientId) -> bool {
        let places = self.held.get_mut(&file).into_iter().flat_map(|held| held.holders.values_mut());
        let of_client =
            places.filter(|place| place.is_resumed || client != ClientId::NONE && place.client == client);
        of_client.map(|place| place.ending = true).count() > 0
    }

    /// Returns true if others than `holder` hold the file's lease.
    pub fn has_others(&self, file: FileId, holder: HolderId) -> bool {
        self.held.get(&file).is_some_and(|held| held.holders.keys().any(|other| *other != holder))
    }

    /// Turns of the file's holders, if it has a lease.
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

    /// Returns true if a holder's place is over (lapsed, or given up uncleanly) and nothing was done about it
    /// yet.
    pub fn has_gone(&self, file: FileId, now_ms: u64) -> bool {
        self.held.get(&file).is_some_and(|held| self.is_left(held, now_ms))
    }

    fn is_left(&self, held: &LeaseInForce, now_ms: u64) -> bool {
        held.ending || held.holders.values().any(|place| self.is_over(place, now_ms))
    }

    /// Returns true if a client may write any file: it is a holder, or a holder was not heard since a start,
    /// which may be this client.
    pub fn may_write(&self, client: ClientId) -> bool {
        let mut places = self.held.values().flat_map(|held| held.holders.values());
        places.any(|place| place.is_resumed || place.client == client)
    }

    /// Files that a client may write: it is a holder, or a holder was not heard since a start, which may be
    /// this client.
    pub fn files_of(&self, client: ClientId) -> BTreeSet<FileId> {
        let is_its = |held: &LeaseInForce| {
            held.holders.values().any(|place| place.is_resumed || place.client == client)
        };
        self.held.iter().filter(|(_, held)| is_its(held)).map(|(file, _)| *file).collect()
    }

    /// Files of which a holder was not heard since a start.
    pub fn unheard(&self) -> BTreeSet<FileId> {
        let is_one = |held: &LeaseInForce| held.holders.values().any(|place| place.is_resumed);
        self.held.iter().filter(|(_, held)| is_one(held)).map(|(file, _)| *file).collect()
    }

    /// Begins to end the file's lease if it has lapsed for all: from now on it cannot be renewed. Returns
    /// false if it is live. [`Leases::end`] completes the end.
    pub fn begin_end(&mut self, file: FileId, now_ms: u64) -> bool {
        let is_over = self.state(file, now_ms) == LeaseState::Over;
        if is_over {
            self.give_up(file);
        }
        is_over
    }

    /// Begins to end the lease for all its holders, even if it has not lapsed.
    pub fn give_up(&mut self, file: FileId) {
        if let Some(held) = self.held.get_mut(&file) {
            held.ending = true;
        }
    }

    /// Notes that a holder has given the lease up uncleanly.
    pub fn give_up_one(&mut self, file: FileId, holder: HolderId) {
        if let Some(place) = self.held.get_mut(&file).and_then(|held| held.holders.get_mut(&holder)) {
            place.ending = true;
        }
    }

    /// Removes a holder about which nothing is left to do.
    pub fn forget(&mut self, file: FileId, holder: HolderId, now_ms: u64) {
        if let Some(held) = self.held.get_mut(&file) {
            held.holders.remove(&holder);
            held.left_ms = now_ms;
            held.turns.left(holder);
        }
    }

    /// Removes the file's lease, which has ended.
    pub fn end(&mut self, file: FileId) {
        self.held.remove(&file);
    }

    /// Returns the next step for the file's lease. From now on holders whose places are over cannot renew.
    pub fn step(&mut self, file: FileId, now_ms: u64) -> Step {
        if self.begin_end(file, now_ms) {
            return Step::End;
        }
        let Some(held) = self.held.get(&file) else { return Step::End };
        let over = held.holders.iter().filter(|(_, place)| self.is_over(place, now_ms));
        let over: Vec<HolderId> = over.map(|(holder, _)| *holder).collect();
        if over.is_empty() {
            return if held.apart(now_ms) { Step::Apart } else { Step::Nothing };
        }
        over.iter().for_each(|holder| self.give_up_one(file, *holder));
        Step::Without(over)
    }

    /// Files whose lease needs a step: those above `after` first, then the others.
    pub fn due(&self, now_ms: u64, after: FileId) -> impl Iterator<Item = FileId> {
        let is_due = move |held: &LeaseInForce| self.is_left(held, now_ms) || held.apart(now_ms);
        let above = self.held.range((Bound::Excluded(after), Bound::Unbounded));
        let all = above.chain(self.held.range(..=after));
        all.filter(move |(_, held)| is_due(held)).map(|(&file, _)| file)
    }
}

impl Leases {
    fn is_over(&self, place: &HolderPlace, now_ms: u64) -> bool {
        place.ending || self.until_ms(place) <= now_ms
    }

    fn until_ms(&self, place: &HolderPlace) -> u64 {
        place.until_ms.max(self.resumed_ms())
    }

    /// Time before which no lease lapses, a full term after the last pause; 0: there was no pause.
    fn resumed_ms(&self) -> u64 {
        match self.pauses.last().ended_ms {
            0 => 0,
            ended_ms => ended_ms + self.lease_ms,
        }
    }
}

impl LeaseInForce {
    fn may_name(&self, lease: Lease) -> bool {
        (self.since..=self.lease).contains(&lease)
    }

    /// Returns true if the lease is shared, and for long enough no two of its holders have needed the same
    /// stripes.
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
