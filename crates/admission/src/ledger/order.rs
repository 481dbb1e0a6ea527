//! The choice of the least loaded drives, as far apart as placement puts them.

use std::collections::{BTreeMap, BTreeSet};

use braid_layout::DriveId;

use super::Ledger;
use crate::demand::{Demand, PARTS, Part, Sum};
use crate::ledger::{Shortage, fits};
use crate::parts::DriveParts;

/// Needs of one column of a new file on whichever drive gets it.
pub(crate) struct Need<'a> {
    /// Number of columns.
    pub(crate) width: u8,
    /// Room that a drive must have.
    pub(crate) room: Room,
    /// The demand on a drive with these parts for which there must be room.
    pub(crate) demand: &'a dyn Fn(&DriveParts) -> Demand,
    /// Bytes that will be stored on it.
    pub(crate) stored_bytes: u64,
    pub(crate) now_ms: u64,
    /// Drives that are not to be taken.
    pub(crate) except: BTreeSet<DriveId>,
}

/// Room on a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// Beside the greatest load of any state. What is the greatest demand in any state fits then for certain,
    /// whatever is lost.
    Certain,
    /// Beside the present load, so that it may fit.
    Possible,
}

/// Reason that no drives were chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoDrives {
    /// Too few drives serve.
    Few { serving: usize },
    /// Too few drives have as much space. The one with the most of those that have not.
    Space { drive: DriveId, free: u64 },
    /// Too few drives carry the demand. The least loaded that does not.
    Load(Shortage),
}

/// Most kinds of drives by whose costs a choice is cut short.
const KINDS_MAX: usize = 64;

/// Drives by the room that is left on each part, and the kinds of drives: a choice for which there is
/// certainly too little room looks at no drive.
#[derive(Debug, Clone, Default)]
pub(super) struct Rooms {
    by_part: [BTreeSet<Free>; PARTS],
    /// One drive of each kind that ever was; none if there are too many.
    kinds: Vec<DriveParts>,
    many: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Free {
    room: i64,
    slot: usize,
}

impl Rooms {
    /// Enters a drive's costs.
    pub(super) fn know(&mut self, parts: &DriveParts) {
        if !self.many && !self.kinds.iter().any(|kind| kind.is_like(parts)) {
            self.kinds.push(parts.clone());
            self.many = self.kinds.len() > KINDS_MAX;
        }
    }

    /// Replaces the room of a drive; `None`: it does not serve.
    pub(super) fn set(&mut self, slot: usize, old: Option<Sum>, new: Option<Sum>) {
        for (part, rooms) in self.by_part.iter_mut().enumerate() {
            let old = old.map(|room| room[part]);
            let new = new.map(|room| room[part]);
            if old != new {
                old.map(|room| rooms.remove(&Free { room, slot }));
                new.map(|room| rooms.insert(Free { room, slot }));
            }
        }
    }

    /// The part of which too few drives have enough, and the first drive that has not.
    fn short(&self, width: usize, demand: &dyn Fn(&DriveParts) -> Demand) -> Option<Short> {
        let least = self.kinds.iter().map(demand).reduce(|least, demand| least.min(&demand))?;
        let needed = if self.many { return None } else { least.sum() };
        let short = |part: Part| {
            let last = self.by_part[part as usize].iter().rev().nth(width - 1)?;
            let needed = needed[part as usize];
            (last.room < needed && needed > 0).then_some(Short {
                part,
                slot: last.slot,
                needed,
                room: last.room,
            })
        };
        Part::ALL.into_iter().find_map(short)
    }
}

struct Short {
    part: Part,
    slot: usize,
    needed: i64,
    room: i64,
}

/// The domains of drives, as numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Domains {
    numbers: BTreeMap<Vec<String>, usize>,
    /// By drive: its host, then what is around it.
    of: Vec<Vec<usize>>,
    /// Drives by domain.
    drives: Vec<usize>,
    /// Number of domains that have drives, by level: 0 the hosts.
    levels: Vec<usize>,
}

impl Domains {
    /// Enters a drive's domains, or the new ones of a drive that is there.
    pub(super) fn enter(&mut self, slot: usize, domain: &[String]) {
        if self.of.len() <= slot {
            self.of.resize(slot + 1, Vec::new());
        }
        for (level, number) in std::mem::take(&mut self.of[slot]).into_iter().enumerate() {
            self.drives[number] -= 1;
            self.levels[level] -= usize::from(self.drives[number] == 0);
        }
        for level in 0..domain.len().max(1) {
            let next = self.numbers.len();
            let name = &domain[..domain.len().saturating_sub(level)];
            let number = *self.numbers.entry(name.to_vec()).or_insert(next);
            if number == self.drives.len() {
                self.drives.push(0);
            }
            if level == self.levels.len() {
                self.levels.push(0);
            }
            self.levels[level] += usize::from(self.drives[number] == 0);
            self.drives[number] += 1;
            self.of[slot].push(number);
        }
    }
}

/// Drives among which is chosen, least loaded first.
struct Pool<'a> {
    domains: &'a Domains,
    width: usize,
    slots: Vec<usize>,
    /// Drives of the pool by domain.
    drives: BTreeMap<usize, usize>,
    /// Number of domains by level that have their part of the columns, or all the drives they can.
    filled: Vec<usize>,
}

impl<'a> Pool<'a> {
    fn new(domains: &'a Domains, width: usize) -> Pool<'a> {
        let filled = vec![0; domains.levels.len()];
        Pool { domains, width, slots: Vec::new(), drives: BTreeMap::new(), filled }
    }

    /// Domains of a level over which the columns go.
    fn spread(&self, level: usize) -> usize {
        self.width.min(self.domains.levels[level]).max(1)
    }

    /// Takes a drive, unless less loaded ones of its host were taken for all columns that the host may get.
    fn offer(&mut self, slot: usize) {
        let domains = self.domains;
        let of_host = self.drives.get(&domains.of[slot][0]).copied().unwrap_or(0);
        if of_host >= self.width.div_ceil(self.spread(0)) {
            return;
        }
        for (level, number) in domains.of[slot].iter().enumerate() {
            let enough = self.width.div_ceil(self.spread(level)).min(domains.drives[*number]);
            let drives = self.drives.entry(*number).or_insert(0);
            *drives += 1;
            self.filled[level] += usize::from(*drives == enough);
        }
        self.slots.push(slot);
    }

    /// Returns true if more drives would make the choice no better: on each level there are enough in as many
    /// domains as the columns can be in.
    fn is_full(&self) -> bool {
        let enough = |level: usize| self.filled[level] >= self.spread(level);
        self.slots.len() >= self.width && (0..self.filled.len()).all(enough)
    }

    /// Takes the columns' drives: each time the least loaded of those whose host has the fewest columns, then
    /// whose rack has, and so on.
    fn choose(mut self) -> Vec<usize> {
        let mut columns: BTreeMap<usize, usize> = BTreeMap::new();
        let mut chosen = Vec::with_capacity(self.width);
        for _ in 0..self.width {
            let around = |slot: usize| {
                let of = &self.domains.of[slot];
                of.iter().map(|number| columns.get(number).copied().unwrap_or(0)).collect::<Vec<_>>()
            };
            let least = (0..self.slots.len()).min_by_key(|&place| around(self.slots[place]));
            let slot = self.slots.remove(least.expect("the pool has a drive for each column"));
            for number in &self.domains.of[slot] {
                *columns.entry(*number).or_insert(0) += 1;
            }
            chosen.push(slot);
        }
        chosen
    }
}

impl Ledger {
    /// Chooses drives for the columns of a new file. `checked` counts the drives that were looked at.
    pub(crate) fn choose(&self, need: &Need<'_>, checked: &mut u64) -> Result<Vec<DriveId>, NoDrives> {
        let width = usize::from(need.width);
        if self.order.len() < width {
            return Err(NoDrives::Few { serving: self.order.len() });
        }
        if need.room == Room::Certain
            && let Some(Short { part, slot, needed, room }) = self.rooms.short(width, need.demand)
        {
            let drive = Some(self.slots[slot].parts.drive);
            let [needed, free] = [needed, room].map(|value| value.max(0).cast_unsigned());
            return Err(NoDrives::Load(Shortage { drive, part, lost: None, needed, free }));
        }
        let mut pool = Pool::new(&self.domains, width);
        let mut like: Option<(&DriveParts, Demand)> = None;
        let mut space: Option<(i128, DriveId)> = None;
        let mut short = None;
        for loaded in &self.order {
            if pool.is_full() {
                break;
            }
            *checked += 1;
            let slot = &self.slots[loaded.slot];
            if need.except.contains(&slot.parts.drive) {
                continue;
            }
            let free = slot.free_bytes(need.now_ms);
            if free < i128::from(need.stored_bytes) {
                space = space.max(Some((free, slot.parts.drive)));
                continue;
            }
            let demand = match like {
                Some((parts, demand)) if parts.is_like(&slot.parts) => demand,
                _ => (need.demand)(&slot.parts),
            };
            like = Some((&slot.parts, demand));
            let load = match need.room {
                Room::Certain => slot.worst,
                Room::Possible => self.base(slot),
            };
            match fits(Some(slot.parts.drive), None, &load, &demand.sum(), &slot.capacity) {
                Ok(()) => pool.offer(loaded.slot),
                Err(shortage) => {
                    short.get_or_insert(shortage);
                }
            }
        }
        if pool.slots.len() < width {
            return Err(match (short, space) {
                (Some(short), _) => NoDrives::Load(short),
                (None, Some((free, drive))) => {
                    NoDrives::Space { drive, free: u64::try_from(free.max(0)).unwrap_or(u64::MAX) }
                }
                (None, None) => NoDrives::Few { serving: self.order.len() - need.except.len() },
            });
        }
        Ok(pool.choose().into_iter().map(|slot| self.slots[slot].parts.drive).collect())
    }
}
