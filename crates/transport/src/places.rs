//! Places for connections: so many in all, so many for one holder; when they are taken, the oldest idle holder gives way.
//!
//! A listener and its server have one set of places for each kind of peer, so that one kind never takes another's. A flood of
//! connections costs those who flood: their own oldest go first. A peer whose idle connection was closed connects anew.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_layout::DriveId;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Who has a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// An address; of IPv6 the network of 64 bits, which one machine has to itself.
    Address(IpAddr),
    /// A drive that has proved that it is this one.
    Drive(DriveId),
}

/// Where a holder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// On this machine.
    Here,
    /// On another.
    Elsewhere,
}

/// How many places there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// In all.
    pub all: usize,
    /// For one holder on another machine.
    pub each: usize,
    /// For one holder on this machine, where many processes share an address.
    pub each_here: usize,
    /// Of all, those that only holders on this machine get: its operator comes in whoever else is there.
    pub kept_here: usize,
}

/// Which holders give way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivesWay {
    /// Any: none of them has proved anything.
    Anyone,
    /// Only one that has no request under way.
    Idle,
}

/// The places of one kind of peer. Cheap to clone: clones are the same places.
#[derive(Debug, Clone)]
pub struct Places {
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

/// What a connection shows of itself to those who look for a place.
#[derive(Debug)]
struct Life {
    began: Instant,
    /// Pieces of work under way.
    busy: AtomicU32,
    /// Since when there is none, in milliseconds from `began`.
    idle_since_ms: AtomicU64,
    gave_way: AtomicBool,
    told: Notify,
}

/// A place. Dropped: free again.
#[derive(Debug)]
pub struct Place {
    number: u64,
    shared: Arc<Shared>,
    life: Arc<Life>,
}

/// Work of a connection under way: while there is some, the connection is not idle.
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
    /// So many in all, and so many for each holder wherever it is.
    pub fn new(all: usize, each: usize) -> Bounds {
        Bounds { all, each, each_here: each, kept_here: 0 }
    }
}

impl Places {
    /// All free.
    pub fn new(bounds: Bounds, gives_way: GivesWay) -> Places {
        let (began, taken) = (Instant::now(), Mutex::default());
        Places { shared: Arc::new(Shared { bounds, gives_way, began, taken }) }
    }

    /// A place, if need be that of the holder's own oldest, or of the oldest of all, that gives way. `None`: nobody does.
    pub fn take(&self, holder: Holder, origin: Origin) -> Option<Place> {
        let Shared { bounds, gives_way, began, .. } = *self.shared;
        let (all, each) = match origin {
            Origin::Here => (bounds.all, bounds.each_here),
            Origin::Elsewhere => (bounds.all.saturating_sub(bounds.kept_here), bounds.each),
        };
        let mut taken = self.shared.lock();
        let own = taken.by_number.values().filter(|(other, _)| *other == holder).count();
        if own >= each.max(1) {
            taken.give_way(gives_way, |other| *other == holder)?;
        } else if taken.by_number.len() >= all.max(1) {
            taken.give_way(gives_way, |_| true)?;
        }
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
        Some(Place { number, shared: Arc::clone(&self.shared), life })
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.shared.lock().by_number.len()
    }

    /// The most that can be.
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
    /// Takes the place of the one that was idle for the longest, and tells it.
    fn give_way(&mut self, gives_way: GivesWay, of: impl Fn(&Holder) -> bool) -> Option<()> {
        let may = |life: &Life| gives_way == GivesWay::Anyone || life.busy.load(Ordering::Acquire) == 0;
        let candidates = self.by_number.iter().filter(|(_, (holder, life))| of(holder) && may(life));
        // Among those of one millisecond the first that came.
        let oldest = candidates.min_by_key(|(_, (_, life))| match gives_way {
            GivesWay::Anyone => 0,
            GivesWay::Idle => life.idle_since_ms.load(Ordering::Acquire),
        });
        let number = *oldest?.0;
        let (_, life) = self.by_number.remove(&number)?;
        life.gave_way.store(true, Ordering::Release);
        life.told.notify_one();
        Some(())
    }
}

impl Place {
    /// Done once another connection has this place: this one is to end.
    pub async fn given_away(&self) {
        while !self.life.gave_way.load(Ordering::Acquire) {
            self.life.told.notified().await;
        }
    }

    /// Some work begins, until the value is dropped.
    pub fn work(&self) -> Work {
        self.life.busy.fetch_add(1, Ordering::AcqRel);
        Work(Arc::clone(&self.life))
    }
}

impl Drop for Place {
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

    fn has_gone(place: &Place) -> bool {
        place.life.gave_way.load(Ordering::Acquire)
    }

    #[tokio::test]
    async fn the_oldest_idle_gives_way_and_never_one_with_work() {
        let places = Places::new(Bounds::new(3, 3), GivesWay::Idle);
        let take = |last| places.take(holder(last), Origin::Elsewhere);
        let (first, second, third) = (take(1).unwrap(), take(2).unwrap(), take(3).unwrap());
        let working = first.work();
        // Idle times are told apart by milliseconds.
        tokio::time::sleep(Duration::from_millis(5)).await;
        // The second was used after the third.
        drop(second.work());
        let fourth = take(4).unwrap();
        third.given_away().await;
        assert!(!has_gone(&first) && !has_gone(&second) && places.taken() == 3);
        let (_second_works, _fourth_works) = (second.work(), fourth.work());
        assert!(take(5).is_none(), "all of them work");
        drop(working);
        assert!(take(5).is_some());
        first.given_away().await;
        // One that gave way has no place to free.
        let before = places.taken();
        drop(first);
        assert_eq!(places.taken(), before);
    }

    #[tokio::test]
    async fn who_takes_many_gives_up_its_own_and_the_machine_itself_has_room() {
        let bounds = Bounds { all: 6, each: 2, each_here: 5, kept_here: 2 };
        let places = Places::new(bounds, GivesWay::Idle);
        let take = |last| places.take(holder(last), Origin::Elsewhere);
        let quiet = take(1).unwrap();
        let greedy: Vec<Place> = (0..20).filter_map(|_| take(2)).collect();
        assert!(!has_gone(&quiet));
        assert_eq!(greedy.iter().filter(|place| !has_gone(place)).count(), 2);
        let busy: Vec<(Work, Place)> =
            greedy.into_iter().filter(|place| !has_gone(place)).map(|place| (place.work(), place)).collect();
        assert!(take(2).is_none(), "its own work, and others' places are not its");
        let more = take(3).unwrap();
        let _works = (quiet.work(), more.work());
        assert!(take(4).is_none(), "four of six are taken, and two are kept");
        let here = Holder::at(IpAddr::from([127, 0, 0, 1]));
        let owner: Vec<Place> = (0..2).filter_map(|_| places.take(here, Origin::Here)).collect();
        assert_eq!((owner.len(), places.taken()), (2, 6));
        drop((owner, busy));
        assert_eq!(places.taken(), 2);
    }

    #[test]
    fn strangers_give_way_whatever_they_do_and_a_network_is_one_holder() {
        let places = Places::new(Bounds::new(1, 1), GivesWay::Anyone);
        let first = places.take(holder(1), Origin::Elsewhere).unwrap();
        let _begun = first.work();
        assert!(places.take(holder(2), Origin::Elsewhere).is_some() && has_gone(&first));
        let at = |text: &str| Holder::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), holder(1));
        assert_ne!(at("::1"), at("::2"));
    }
}
