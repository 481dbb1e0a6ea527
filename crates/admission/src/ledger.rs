//! The ledger: sums of all bookings on each drive and client, in every state that was promised.
//!
//! With drive f lost, a drive's load is the sum of the healthy demands of all bookings, for each booking with
//! f the difference that the loss makes, and the reads and writes of the rebuild. So the ledger has one sum
//! for each drive, and one of differences for each pair of drives that have a booking in common. A booking
//! that survives no loss keeps its place when one of its drives is lost: its capability allows no more.
//!
//! With several drives lost, the differences of the greatest of them are added. That is exact for one loss.
//! For two and more a booking with both is counted with both, and its difference is the worst of all sets.
//!
//! A drive that is out now is lost in every state, and what further losses would make others do is counted
//! beside it, also where a booking does not survive them any more. So a degraded cluster admits less.

mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use braid_layout::{ClientId, DriveId};
use braid_schedule::Direction;

use crate::demand::{Demand, PARTS, Part, Sum, add, greatest, less};
use crate::parts::{Capacity, DriveParts};
use crate::price::{Booking, DriveBooking, plain_demand};
use order::{Domains, Rooms};

pub(crate) use order::{Need, NoDrives, Room};

/// Share of a part that is booked at most, in thousandths.
pub const SHARE_PERMILLE: u32 = 800;

/// Work of a drive that nobody reserved, for which it keeps a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Background {
    /// Work at all times: scrubbing, checkpoints.
    pub standing: Demand,
    /// Reads and writes of rebuilds, while any drive is lost.
    pub rebuild: Demand,
}

/// Rates of such work on a drive, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackgroundRates {
    /// Reads of scrubbing, which stay on the drive.
    pub scrub: u64,
    /// Reads of rebuilds, which are sent.
    pub rebuild_reads: u64,
    /// Writes of rebuilds, which are received.
    pub rebuild_writes: u64,
    /// Bytes of each operation.
    pub operation_bytes: u64,
}

impl Background {
    /// The demands of work at these rates.
    pub fn priced(parts: &DriveParts, rates: &BackgroundRates) -> Background {
        let work = |direction, rate| plain_demand(parts, direction, rate, rates.operation_bytes);
        let scrub = Demand { out_bytes: 0, ..work(Direction::Read, rates.scrub) };
        let reads = work(Direction::Read, rates.rebuild_reads);
        Background { standing: scrub, rebuild: reads.plus(&work(Direction::Write, rates.rebuild_writes)) }
    }
}

/// Sums of bookings.
#[derive(Debug, Clone)]
pub struct Ledger {
    share_permille: u32,
    slots: Vec<Slot>,
    index: BTreeMap<DriveId, usize>,
    out: BTreeSet<usize>,
    clients: BTreeMap<ClientId, ClientSlot>,
    bookings: BTreeMap<u64, Booking>,
    /// Reservations by the time of their end.
    ends: BTreeSet<Ending>,
    domains: Domains,
    /// Drives in service by their greatest load, as parts of a million of what may be used.
    order: BTreeSet<Loaded>,
    rooms: Rooms,
}

/// The end of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ending {
    /// Time in milliseconds of the manager's time.
    pub until_ms: u64,
    /// The reservation that ends.
    pub reservation: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Loaded {
    parts_per_million: u64,
    /// Order among equals: spread over hosts, however drives were entered, and another one after each
    /// booking. With a fixed order the same drives would be chosen together again and again, and if one of
    /// them were lost the others would take over all that it did.
    draw: u64,
    slot: usize,
}

/// One drive and its sums.
#[derive(Debug, Clone)]
struct Slot {
    parts: DriveParts,
    capacity: Capacity,
    background: Background,
    healthy: Sum,
    /// Differences by lost drive.
    lost: BTreeMap<usize, Shared>,
    /// Number of bookings by the losses they survive.
    survive: [u32; 5],
    /// Bytes that will be stored each second, and the sum of each rate times its end in milliseconds.
    stored: Stored,
    /// The greatest load on each part in any promised state, background included.
    worst: Sum,
    /// Capacity without that load; `None` if the drive does not serve.
    room: Option<Sum>,
    loaded: Loaded,
}

#[derive(Debug, Clone, Copy, Default)]
struct Shared {
    bookings: u32,
    difference: Sum,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Stored {
    bytes_per_second: i128,
    until: i128,
}

#[derive(Debug, Clone)]
struct ClientSlot {
    sum: Sum,
    bookings: u32,
}

/// A part that does not suffice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// The drive; `None`: the client.
    pub drive: Option<DriveId>,
    /// The part of it.
    pub part: Part,
    /// The drive that is lost in the state in which the part does not suffice; `None`: with all there, or
    /// with any or several lost.
    pub lost: Option<DriveId>,
    /// Demand that the booking adds there, per second.
    pub needed: u64,
    /// Demand that could be added, per second.
    pub free: u64,
}

/// Reason that a booking was not entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The reservation has a booking already.
    #[error("reservation {0} is booked already")]
    Twice(u64),
    /// A drive is not known.
    #[error("drive {0} is not in the ledger")]
    UnknownDrive(DriveId),
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger::new(SHARE_PERMILLE)
    }
}

impl Ledger {
    /// A ledger without drives, which books at most this share of each part, in thousandths.
    pub fn new(share_permille: u32) -> Ledger {
        Ledger {
            share_permille: share_permille.min(1000),
            slots: Vec::new(),
            index: BTreeMap::new(),
            out: BTreeSet::new(),
            clients: BTreeMap::new(),
            bookings: BTreeMap::new(),
            ends: BTreeSet::new(),
            domains: Domains::default(),
            order: BTreeSet::new(),
            rooms: Rooms::default(),
        }
    }

    /// Enters a drive, or what is new about it. Bookings stay as they were priced: enter them again if its
    /// costs are new.
    pub fn set_drive(&mut self, parts: DriveParts) {
        let capacity = parts.capacity(self.share_permille);
        let alive = parts.alive;
        self.rooms.know(&parts);
        let slot = match self.index.get(&parts.drive) {
            Some(&slot) => {
                self.order.remove(&self.slots[slot].loaded);
                self.slots[slot].parts = parts;
                self.slots[slot].capacity = capacity;
                slot
            }
            None => {
                let slot = self.slots.len();
                self.index.insert(parts.drive, slot);
                self.slots.push(Slot::new(parts, capacity));
                slot
            }
        };
        self.domains.enter(slot, &self.slots[slot].parts.domain);
        let changed = if alive { self.out.remove(&slot) } else { self.out.insert(slot) };
        self.refresh(slot);
        if changed {
            let others: Vec<usize> = self.slots[slot].lost.keys().copied().collect();
            others.into_iter().for_each(|other| self.refresh(other));
        }
    }

    /// Sets what a drive keeps for work that nobody reserved.
    pub fn set_background(&mut self, drive: DriveId, background: Background) -> Result<(), LedgerError> {
        let slot = self.slot(drive)?;
        self.slots[slot].background = background;
        self.refresh(slot);
        Ok(())
    }

    /// A drive's parts; `None` if it is not known.
    pub fn parts(&self, drive: DriveId) -> Option<&DriveParts> {
        self.index.get(&drive).map(|&slot| &self.slots[slot].parts)
    }

    /// All drives, in the order in which they were entered.
    pub fn drives(&self) -> impl Iterator<Item = &DriveParts> {
        self.slots.iter().map(|slot| &slot.parts)
    }

    /// Number of drives that serve.
    pub fn serving(&self) -> usize {
        self.order.len()
    }

    /// A reservation's booking.
    pub fn booking(&self, reservation: u64) -> Option<&Booking> {
        self.bookings.get(&reservation)
    }

    /// Enters a booking, whether it fits or not.
    pub fn add(&mut self, reservation: u64, booking: Booking) -> Result<(), LedgerError> {
        if self.bookings.contains_key(&reservation) {
            return Err(LedgerError::Twice(reservation));
        }
        for drive in &booking.drives {
            self.slot(drive.drive)?;
            drive.lost.iter().try_for_each(|loss| self.slot(loss.drive).map(|_| ()))?;
        }
        self.enter(&booking, 1);
        if let Some(until_ms) = booking.until_ms {
            self.ends.insert(Ending { until_ms, reservation });
        }
        self.bookings.insert(reservation, booking);
        Ok(())
    }

    /// Takes a booking out. All sums are then as if it had never been there.
    pub fn remove(&mut self, reservation: u64) -> Option<Booking> {
        let booking = self.bookings.remove(&reservation)?;
        self.enter(&booking, -1);
        if let Some(until_ms) = booking.until_ms {
            self.ends.remove(&Ending { until_ms, reservation });
        }
        Some(booking)
    }

    /// The reservations that have an end, the next to end first.
    pub fn ends(&self) -> impl Iterator<Item = Ending> {
        self.ends.iter().copied()
    }

    /// The load of a drive with these others lost, background included; `None` if the drive is not known.
    /// Drives that are out are lost anyway.
    pub fn load(&self, drive: DriveId, lost: &[DriveId]) -> Option<Demand> {
        let slot = &self.slots[*self.index.get(&drive)?];
        let lost: BTreeSet<usize> =
            lost.iter().filter_map(|drive| self.index.get(drive)).chain(&self.out).copied().collect();
        let mut sum = add(&slot.healthy, &slot.background.standing.sum());
        if !lost.is_empty() {
            sum = add(&sum, &slot.background.rebuild.sum());
        }
        for shared in lost.iter().filter_map(|lost| slot.lost.get(lost)) {
            sum = add(&sum, &shared.difference);
        }
        Some(Demand::from_sum(&sum))
    }

    /// The greatest load of a drive in any state that was promised.
    pub fn worst(&self, drive: DriveId) -> Option<Demand> {
        Some(Demand::from_sum(&self.slots[*self.index.get(&drive)?].worst))
    }

    /// Most that is booked of a drive's parts; `u64::MAX` where nothing is booked.
    pub fn capacity(&self, drive: DriveId) -> Option<Demand> {
        let capacity = &self.slots[*self.index.get(&drive)?].capacity;
        let all = |part: usize| match capacity[part] {
            i64::MAX => u64::MAX,
            booked => booked.cast_unsigned(),
        };
        let [device_ns, whole_ns, in_bytes, out_bytes, processor_ns] = [0, 1, 2, 3, 4].map(all);
        Some(Demand { device_ns, whole_ns, in_bytes, out_bytes, processor_ns })
    }

    /// The use of the busiest part of a drive like this by a demand alone, as parts of a million of what may
    /// be booked.
    pub(crate) fn busy(&self, parts: &DriveParts, demand: &Demand) -> u64 {
        parts_per_million(&demand.sum(), &parts.capacity(self.share_permille))
    }

    /// The least loaded drive that serves.
    pub(crate) fn least_loaded(&self) -> Option<&DriveParts> {
        self.order.first().map(|loaded| &self.slots[loaded.slot].parts)
    }

    /// Bytes of a drive that are neither stored nor booked at this time; below 0: too much is booked.
    pub fn free_bytes(&self, drive: DriveId, now_ms: u64) -> Option<i128> {
        Some(self.slots[*self.index.get(&drive)?].free_bytes(now_ms))
    }

    /// The reservations of which more drives are out than they survive: their promises have ended.
    pub fn broken(&self) -> Vec<u64> {
        let out = |booking: &DriveBooking| self.out.contains(&self.index[&booking.drive]);
        let is_broken = |booking: &Booking| {
            booking.drives.iter().filter(|drive| out(drive)).count() > usize::from(booking.survive)
        };
        let broken = self.bookings.iter().filter(|(_, booking)| is_broken(booking));
        broken.map(|(reservation, _)| *reservation).collect()
    }

    /// The first state in which more is booked on a drive than may be: the present one, then with any drive
    /// lost, with each that matters, and with several. The shortage's demand is the whole load, and the free
    /// one all that may be booked.
    pub fn overbooked(&self, drive: DriveId) -> Option<Shortage> {
        let slot = &self.slots[*self.index.get(&drive)?];
        let over = |lost: Option<DriveId>, load: &Sum| {
            fits(Some(drive), lost, &[0; PARTS], load, &slot.capacity).err()
        };
        let base = self.base(slot);
        let left = || slot.lost.iter().filter(|(lost, _)| !self.out.contains(lost));
        let one = |(lost, shared): (&usize, &Shared)| {
            over(Some(self.slots[*lost].parts.drive), &add(&base, &shared.difference))
        };
        over(None, &self.load(drive, &[])?.sum())
            .or_else(|| over(None, &base))
            .or_else(|| left().find_map(one))
            .or_else(|| over(None, &slot.worst))
    }

    /// Checks that one more booking fits in every state that is promised.
    pub fn check(&self, booking: &Booking) -> Result<(), Shortage> {
        if let Some(client) = booking.client {
            let sum = self.clients.get(&client.parts.client).map_or([0; PARTS], |known| known.sum);
            let capacity = client.parts.capacity(self.share_permille);
            fits(None, None, &sum, &client.demand.sum(), &capacity)?;
        }
        booking.drives.iter().try_for_each(|drive| self.check_drive(drive, booking.survive))
    }

    fn check_drive(&self, booking: &DriveBooking, survive: u8) -> Result<(), Shortage> {
        let Some(&at) = self.index.get(&booking.drive) else {
            let drive = Some(booking.drive);
            return Err(Shortage {
                drive,
                part: Part::Disk,
                lost: None,
                needed: booking.healthy.device_ns,
                free: 0,
            });
        };
        let slot = &self.slots[at];
        let drive = Some(booking.drive);
        let healthy = booking.healthy.sum();
        // A rebuild may run for the sake of any drive.
        let base = self.base(slot);
        fits(drive, None, &base, &healthy, &slot.capacity)?;
        let mut differences: BTreeMap<usize, Sum> =
            slot.lost.iter().map(|(&lost, shared)| (lost, shared.difference)).collect();
        let mut own: BTreeMap<usize, Sum> = BTreeMap::new();
        for loss in &booking.lost {
            let Some(&lost) = self.index.get(&loss.drive) else { continue };
            let difference = less(&loss.demand.sum(), &healthy);
            own.insert(lost, difference);
            let known = differences.entry(lost).or_default();
            *known = add(known, &difference);
        }
        differences.retain(|lost, _| !self.out.contains(lost));
        for (lost, difference) in &differences {
            let needed = own.get(lost).map_or(healthy, |own| add(&healthy, own));
            let others = less(&add(&base, &add(&healthy, difference)), &needed);
            fits(drive, Some(self.slots[*lost].parts.drive), &others, &needed, &slot.capacity)?;
        }
        let level = slot.level().max(usize::from(survive));
        if level > 1 {
            let needed = add(&healthy, &greatest(own.values(), level));
            let all = add(&add(&base, &healthy), &greatest(differences.values(), level));
            fits(drive, None, &less(&all, &needed), &needed, &slot.capacity)?;
        }
        Ok(())
    }

    /// The load of a drive with those drives lost that are out now, and with a rebuild.
    fn base(&self, slot: &Slot) -> Sum {
        let background = slot.background.standing.sum();
        let mut sum = add(&add(&slot.healthy, &background), &slot.background.rebuild.sum());
        for shared in self.out.iter().filter_map(|lost| slot.lost.get(lost)) {
            sum = add(&sum, &shared.difference);
        }
        sum
    }

    fn slot(&self, drive: DriveId) -> Result<usize, LedgerError> {
        self.index.get(&drive).copied().ok_or(LedgerError::UnknownDrive(drive))
    }

    /// Adds a booking to all sums, or subtracts it.
    fn enter(&mut self, booking: &Booking, sign: i64) {
        for drive in &booking.drives {
            let at = self.index[&drive.drive];
            let healthy = drive.healthy.sum();
            let lost: Vec<(usize, Sum)> = drive
                .lost
                .iter()
                .map(|loss| (self.index[&loss.drive], less(&loss.demand.sum(), &healthy)))
                .collect();
            let slot = &mut self.slots[at];
            slot.healthy = add(&slot.healthy, &healthy.map(|value| value * sign));
            count(&mut slot.survive[usize::from(booking.survive.min(4))], sign);
            for (other, difference) in lost {
                let shared = slot.lost.entry(other).or_default();
                shared.difference = add(&shared.difference, &difference.map(|value| value * sign));
                count(&mut shared.bookings, sign);
                if shared.bookings == 0 {
                    slot.lost.remove(&other);
                }
            }
            if let Some(until_ms) = booking.until_ms {
                let rate = i128::from(drive.stored_bytes_per_second) * i128::from(sign);
                slot.stored.bytes_per_second += rate;
                slot.stored.until += rate * i128::from(until_ms);
            }
            self.refresh(at);
        }
        if let Some(client) = booking.client {
            let id = client.parts.client;
            let known = ClientSlot { sum: [0; PARTS], bookings: 0 };
            let known = self.clients.entry(id).or_insert(known);
            known.sum = add(&known.sum, &client.demand.sum().map(|value| value * sign));
            count(&mut known.bookings, sign);
            if known.bookings == 0 {
                self.clients.remove(&id);
            }
        }
    }

    /// Computes a drive's greatest load anew, and its place in the order.
    fn refresh(&mut self, at: usize) {
        let slot = &self.slots[at];
        let base = self.base(slot);
        let lost = || slot.lost.iter().filter(|(lost, _)| !self.out.contains(lost));
        let differences: Vec<Sum> = lost().map(|(_, shared)| shared.difference).collect();
        let worst = add(&base, &greatest(differences.iter(), slot.level().max(1)));
        let parts_per_million = parts_per_million(&worst, &slot.capacity);
        let draw = draw(slot.parts.drive, slot.survive.iter().sum());
        let loaded = Loaded { parts_per_million, draw, slot: at };
        self.order.remove(&slot.loaded);
        if slot.parts.alive {
            self.order.insert(loaded);
        }
        let room = slot.parts.alive.then(|| room(&slot.capacity, &worst));
        self.rooms.set(at, slot.room, room);
        let slot = &mut self.slots[at];
        slot.worst = worst;
        slot.room = room;
        slot.loaded = loaded;
    }
}

impl Slot {
    fn new(parts: DriveParts, capacity: Capacity) -> Slot {
        Slot {
            parts,
            capacity,
            background: Background::default(),
            healthy: [0; PARTS],
            lost: BTreeMap::new(),
            survive: [0; 5],
            stored: Stored::default(),
            worst: [0; PARTS],
            room: None,
            loaded: Loaded { parts_per_million: u64::MAX, draw: 0, slot: usize::MAX },
        }
    }

    /// The most losses that a booking here survives.
    fn level(&self) -> usize {
        (0..self.survive.len()).rev().find(|&losses| self.survive[losses] > 0).unwrap_or(0)
    }

    fn free_bytes(&self, now_ms: u64) -> i128 {
        let booked = (self.stored.until - self.stored.bytes_per_second * i128::from(now_ms)) / 1000;
        i128::from(self.parts.free_bytes) - booked.max(0)
    }
}

fn count(counter: &mut u32, sign: i64) {
    *counter = if sign > 0 { *counter + 1 } else { *counter - 1 };
}

/// The room that a load leaves.
fn room(capacity: &Capacity, load: &Sum) -> Sum {
    std::array::from_fn(|part| capacity[part].saturating_sub(load[part]))
}

/// The load of the busiest part, as parts of a million of what may be used.
fn parts_per_million(load: &Sum, capacity: &Capacity) -> u64 {
    let of_part = |part: usize| {
        let booked = u128::from(capacity[part].max(1).cast_unsigned());
        let load = u128::from(load[part].max(0).cast_unsigned());
        if capacity[part] == i64::MAX {
            0
        } else {
            u64::try_from(load * 1_000_000 / booked).unwrap_or(u64::MAX)
        }
    };
    (0..PARTS).map(of_part).max().unwrap_or(0)
}

/// A drive's place among those that are loaded alike, with so many bookings.
fn draw(drive: DriveId, bookings: u32) -> u64 {
    // 2^128 divided by the golden ratio: the upper bits of a product depend on all bits.
    const ODD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    let mixed = drive.0.wrapping_add(u128::from(bookings) << 64).wrapping_mul(ODD);
    let product = (mixed ^ (mixed >> 71)).wrapping_mul(ODD);
    u64::try_from(product >> 64).expect("half of the bits are left")
}

/// Checks that `others` and `needed` together are within the capacity. What needs nothing fits always.
fn fits(
    drive: Option<DriveId>,
    lost: Option<DriveId>,
    others: &Sum,
    needed: &Sum,
    capacity: &Capacity,
) -> Result<(), Shortage> {
    for part in Part::ALL {
        let at = part as usize;
        if needed[at] > 0 && others[at].saturating_add(needed[at]) > capacity[at] {
            let whole = |value: i64| value.max(0).cast_unsigned();
            let free = whole(capacity[at] - others[at]);
            return Err(Shortage { drive, part, lost, needed: whole(needed[at]), free });
        }
    }
    Ok(())
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.drive {
            Some(drive) => write!(f, "drive {}'s {}", drive.short(), self.part)?,
            None => write!(f, "the client's {}", self.part)?,
        }
        match self.part {
            Part::RailIn | Part::RailOut => {
                write!(f, " would need {} B/s and has {} B/s free", self.needed, self.free)?;
            }
            Part::Disk | Part::Whole | Part::Processor => {
                let ms = |ns: u64| ns / 1_000_000;
                let needed = ms(self.needed);
                let free = ms(self.free);
                write!(f, " would need {needed} ms of each second and has {free} ms free")?;
            }
        }
        match self.lost {
            Some(lost) => write!(f, " while drive {} is lost", lost.short()),
            None => Ok(()),
        }
    }
}
