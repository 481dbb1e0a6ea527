//! Slots for connections, bounded in total and per holder. When none is free, the connection that has been
//! idle longest gives up its slot.
//!
//! A listener and its server have one set of slots for each kind of peer, so that one kind never takes
//! another's. A flood of connections hurts mostly its sender, whose own oldest connections go first; of peers
//! that have proved nothing, those go first whose address has most. A peer whose idle connection was closed
//! connects again.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_layout::DriveId;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Holder of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// An IPv4 address or a 64-bit IPv6 prefix, all of which one machine may control.
    Address(IpAddr),
    /// A drive that has proved its identity.
    Drive(DriveId),
}

/// Location of a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The holder is on this machine.
    Here,
    /// The holder is on another machine.
    Elsewhere,
}

/// Maximum numbers of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub all: usize,
    /// Maximum for one holder on another machine.
    pub each: usize,
    /// Maximum for one holder on this machine, where many processes share an address.
    pub each_here: usize,
    /// Number of slots, out of `all`, that are reserved for holders on this machine, so that its operator can
    /// always connect.
    pub kept_here: usize,
}

/// Connections that may lose their slot to a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivesWay {
    /// Any connection: none of them is authenticated.
    Anyone,
    /// Only a connection without work in progress.
    Idle,
}

/// The slots of one kind of peer. Cheap to clone; clones share the slots.
#[derive(Debug, Clone)]
pub struct ConnectionSlots {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bounds: Bounds,
    gives_way: GivesWay,
    began: Instant,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    by_number: BTreeMap<u64, (Holder, Arc<Life>)>,
}

/// The state of a connection that decides whether it gives up its slot.
#[derive(Debug)]
struct Life {
    began: Instant,
    /// Number of [`Work`] values, each for work in progress.
    busy: AtomicU32,
    /// Time when the connection became idle, in milliseconds since `began`.
    idle_since_ms: AtomicU64,
    gave_way: AtomicBool,
    told: Notify,
}

/// A slot, freed on drop.
#[derive(Debug)]
pub struct ConnectionSlot {
    number: u64,
    shared: Arc<Shared>,
    life: Arc<Life>,
    displaced: Option<Holder>,
}

/// Work in progress for a connection, which is not idle while one exists.
#[derive(Debug)]
pub struct Work(Arc<Life>);

impl Holder {
    /// The holder at this address.
    pub fn at(address: IpAddr) -> Holder {
        Holder::Address(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(
                address.to_bits() >> 64 << 64 | u128::from(address.is_loopback()),
            )),
            address => address,
        })
    }
}

impl Bounds {
    /// Bounds of `all` in total and `each` per holder, wherever the holder is.
    pub fn new(all: usize, each: usize) -> Bounds {
        Bounds { all, each, each_here: each, kept_here: 0 }
    }
}

impl ConnectionSlots {
    /// Slots of which all are free.
    pub fn new(bounds: Bounds, gives_way: GivesWay) -> ConnectionSlots {
        let began = Instant::now();
        let taken = Mutex::default();
        ConnectionSlots { shared: Arc::new(Shared { bounds, gives_way, began, taken }) }
    }

    /// Takes a slot. If none is free, the holder's own oldest connection (at its limit) or the oldest of all
    /// gives up its slot; of connections that prove nothing, the oldest of the holder that has most. `None`
    /// if no connection may.
    pub fn take(&self, holder: Holder, origin: Origin) -> Option<ConnectionSlot> {
        let Shared { bounds, gives_way, began, .. } = *self.shared;
        let (all, each) = match origin {
            Origin::Here => (bounds.all, bounds.each_here),
            Origin::Elsewhere => (bounds.all.saturating_sub(bounds.kept_here), bounds.each),
        };
        let mut taken = self.shared.lock();
        let own = taken.by_number.values().filter(|(other, _)| *other == holder).count();
        let displaced = if own >= each.max(1) {
            Some(taken.give_way(gives_way, |other| *other == holder)?)
        } else if taken.by_number.len() >= all.max(1) {
            let greediest = taken.greediest().filter(|_| gives_way == GivesWay::Anyone);
            Some(taken.give_way(gives_way, |other| greediest.is_none_or(|holder| *other == holder))?)
        } else {
            None
        };
        let number = taken.next;
        taken.next += 1;
        let life = Arc::new(Life {
            began,
            busy: AtomicU32::new(0),
            idle_since_ms: AtomicU64::new(milliseconds(began)),
            gave_way: AtomicBool::new(false),
            told: Notify::new(),
        });
        taken.by_number.insert(number, (holder, Arc::clone(&life)));
        Some(ConnectionSlot { number, shared: Arc::clone(&self.shared), life, displaced })
    }

    /// Number of slots that are taken.
    pub fn taken(&self) -> usize {
        self.shared.lock().by_number.len()
    }

    /// The total number of slots.
    pub fn all(&self) -> usize {
        self.shared.bounds.all
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// The holder that has most slots; of several, one of them. `None` if no slot is taken.
    fn greediest(&self) -> Option<Holder> {
        let mut counts: BTreeMap<Holder, usize> = BTreeMap::new();
        for (holder, _) in self.by_number.values() {
            *counts.entry(*holder).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        // Of several, the one whose oldest connection came first.
        self.by_number.values().map(|(holder, _)| *holder).find(|holder| counts.get(holder) == Some(&most))
    }

    /// Frees the slot of the connection that was idle longest, notifies it, and returns its holder.
    fn give_way(&mut self, gives_way: GivesWay, of: impl Fn(&Holder) -> bool) -> Option<Holder> {
        let may = |life: &Life| gives_way == GivesWay::Anyone || life.busy.load(Ordering::Acquire) == 0;
        let candidates = self.by_number.iter().filter(|(_, (holder, life))| of(holder) && may(life));
        // Within the same millisecond, the connection that came first.
        let oldest = candidates.min_by_key(|(_, (_, life))| match gives_way {
            GivesWay::Anyone => 0,
            GivesWay::Idle => life.idle_since_ms.load(Ordering::Acquire),
        });
        let number = *oldest?.0;
        let gone = self.by_number.remove(&number)?;
        gone.1.gave_way.store(true, Ordering::Release);
        gone.1.told.notify_one();
        Some(gone.0)
    }
}

impl ConnectionSlot {
    /// Completes once the slot went to another connection: this connection must end.
    pub async fn given_away(&self) {
        while !self.has_given_way() {
            self.life.told.notified().await;
        }
    }

    /// Returns true once the slot went to another connection.
    pub(crate) fn has_given_way(&self) -> bool {
        self.life.gave_way.load(Ordering::Acquire)
    }

    /// The holder of the connection that gave up its slot for this one, if one did.
    pub fn displaced(&self) -> Option<Holder> {
        self.displaced
    }

    /// Marks the connection busy until the value is dropped.
    pub fn work(&self) -> Work {
        self.life.busy.fetch_add(1, Ordering::AcqRel);
        Work(Arc::clone(&self.life))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.shared.lock().by_number.remove(&self.number);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.idle_since_ms.store(milliseconds(self.0.began), Ordering::Release);
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

fn milliseconds(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn holder(last: u8) -> Holder {
        Holder::at(IpAddr::from([10, 0, 0, last]))
    }

    fn has_gone(slot: &ConnectionSlot) -> bool {
        slot.life.gave_way.load(Ordering::Acquire)
    }

    #[tokio::test]
    async fn the_oldest_idle_gives_way_and_never_one_with_work() {
        let slots = ConnectionSlots::new(Bounds::new(3, 3), GivesWay::Idle);
        let take = |last| slots.take(holder(last), Origin::Elsewhere);
        let first = take(1).unwrap();
        let second = take(2).unwrap();
        let third = take(3).unwrap();
        let working = first.work();
        // Idle times are compared in milliseconds.
        tokio::time::sleep(Duration::from_millis(5)).await;
        // The second was used after the third.
        drop(second.work());
        let fourth = take(4).unwrap();
        third.given_away().await;
        assert!(!has_gone(&first) && !has_gone(&second) && slots.taken() == 3);
        let _second_works = second.work();
        let _fourth_works = fourth.work();
        assert!(take(5).is_none(), "all of them work");
        drop(working);
        assert!(take(5).is_some());
        first.given_away().await;
        // A connection that lost its slot has none to free.
        let before = slots.taken();
        drop(first);
        assert_eq!(slots.taken(), before);
    }

    #[tokio::test]
    async fn who_takes_many_gives_up_its_own_and_the_machine_itself_has_room() {
        let bounds = Bounds { all: 6, each: 2, each_here: 5, kept_here: 2 };
        let slots = ConnectionSlots::new(bounds, GivesWay::Idle);
        let take = |last| slots.take(holder(last), Origin::Elsewhere);
        let quiet = take(1).unwrap();
        let greedy: Vec<ConnectionSlot> = (0..20).filter_map(|_| take(2)).collect();
        assert!(!has_gone(&quiet));
        assert_eq!(greedy.iter().filter(|slot| !has_gone(slot)).count(), 2);
        let busy: Vec<(Work, ConnectionSlot)> =
            greedy.into_iter().filter(|slot| !has_gone(slot)).map(|slot| (slot.work(), slot)).collect();
        assert!(take(2).is_none(), "its own work, and others' slots are not its");
        let more = take(3).unwrap();
        let _works = (quiet.work(), more.work());
        assert!(take(4).is_none(), "four of six are taken, and two are kept");
        let here = Holder::at(IpAddr::from([127, 0, 0, 1]));
        let owner: Vec<ConnectionSlot> = (0..2).filter_map(|_| slots.take(here, Origin::Here)).collect();
        assert_eq!((owner.len(), slots.taken()), (2, 6));
        drop((owner, busy));
        assert_eq!(slots.taken(), 2);
    }

    #[test]
    fn of_strangers_those_go_first_whose_address_has_most() {
        let slots = ConnectionSlots::new(Bounds::new(7, 4), GivesWay::Anyone);
        let take = |last| slots.take(holder(last), Origin::Elsewhere).unwrap();
        let quiet = take(1);
        let greedy: Vec<ConnectionSlot> = (0..4).map(|_| take(2)).collect();
        let others = [take(3), take(3)];
        // All are taken, and the quiet one is the oldest of all.
        let new = take(4);
        assert_eq!(new.displaced(), Some(holder(2)));
        assert!(!has_gone(&quiet) && has_gone(&greedy[0]) && !others.iter().any(has_gone));
        // At its share a holder gives way to itself, whoever has most.
        let more: Vec<ConnectionSlot> = (0..20).map(|_| take(2)).collect();
        assert!(more.iter().all(|slot| slot.displaced() == Some(holder(2))));
        assert!(!has_gone(&quiet) && !has_gone(&new) && !others.iter().any(has_gone));
        // If all have as many, the oldest goes.
        let slots = ConnectionSlots::new(Bounds::new(2, 2), GivesWay::Anyone);
        let first = slots.take(holder(1), Origin::Elsewhere).unwrap();
        let _second = slots.take(holder(2), Origin::Elsewhere).unwrap();
        assert_eq!(slots.take(holder(3), Origin::Elsewhere).unwrap().displaced(), Some(holder(1)));
        assert!(has_gone(&first));
    }

    #[test]
    fn strangers_give_way_whatever_they_do_and_a_network_is_one_holder() {
        let slots = ConnectionSlots::new(Bounds::new(1, 1), GivesWay::Anyone);
        let first = slots.take(holder(1), Origin::Elsewhere).unwrap();
        let _begun = first.work();
        assert!(slots.take(holder(2), Origin::Elsewhere).is_some() && has_gone(&first));
        let at = |text: &str| Holder::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), holder(1));
        assert_ne!(at("::1"), at("::2"));
    }
}
