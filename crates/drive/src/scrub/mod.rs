//! Scrub: the drive reads everything it stores and verifies it against its checksums, again and again, in the
//! background.
//!
//! A *pass* walks all units in the order of partition, object and unit. The drive makes its own passes
//! slowly, with a rest between them. A requested pass starts from the beginning and replaces the drive's own.
//! The position of a pass is kept in [`Progress`], which is stored now and then ([`record`]), so that it
//! continues after a restart.
//!
//! - A pass reads at most its rate ([`pace`]), and a quarter of it while clients read or write. It verifies
//!   one unit at a time; small ones are verified in batches of bounded size.
//! - It pauses while the drive holds no heartbeat lease: a drive that is cut off does nothing.
//! - Data that the store has lost as a whole (a partition's values, ranges of keys) is not walked: the store
//!   reports it when the scrub's state is requested.
//! - A unit is whole only if its bytes are right and lie in the file that the directory entry names: a file
//!   deleted under a running drive can be read as before until the next start. So a pass begins and ends with
//!   a check of all files in use.
//! - Damaged units are listed, at most [`SCRUB_DAMAGED_MAX`], until a later complete pass does not find them
//!   again.
//!
//! [`Scrub`] decides on the next action and is pure: moments and manager time are parameters. [`walk`] finds
//! and verifies units; [`scrubber`](crate::scrubber) connects the two.

mod pace;
mod record;
mod walk;

use std::collections::BTreeMap;

use braid_layout::{ObjectId, PartitionId};
use braid_store::Stat;
use braid_wire::data::{DamagedUnit, LostKeys, SCRUB_DAMAGED_MAX};
use braid_wire::data::{ScrubPhase, ScrubReply, ScrubState, WrongFile};

use crate::damage::UnitPlace;
use crate::life::clock::Moment;
use pace::Pace;

pub(crate) use pace::Clients;
pub(crate) use record::{load, save as save_progress};
pub(crate) use walk::{STEP_BYTES, Step, lost, step};

/// Rest between the end of a pass and the drive's own next one, in milliseconds: a day.
const REST_MS: u64 = 24 * 60 * 60 * 1000;
/// Interval at which a paused pass checks for the lease, in milliseconds.
const PAUSED_MS: u64 = 500;

/// The position of a pass: the next unit to verify is the first at or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Position {
    pub(crate) partition: PartitionId,
    pub(crate) object: ObjectId,
    pub(crate) unit: u64,
}

/// The part of a drive's scrub that is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// The running pass.
    pub(crate) pass: Option<Pass>,
    /// Complete passes so far.
    pub(crate) passes: u64,
    /// Manager time of the end of the last complete pass, in milliseconds; 0: there was none.
    pub(crate) ended_ms: u64,
    /// The last pass, complete or not, while none runs.
    pub(crate) last: Verified,
    /// Damaged units, each with the last pass that found it.
    pub(crate) damaged: BTreeMap<DamageKey, (u64, DamagedUnit)>,
    /// Damaged units that this pass found beyond those listed.
    pub(crate) more: u64,
    /// Damaged units that were made anew, ever.
    pub(crate) repaired: u64,
    /// Files in use that are wrong, as a pass last saw them: those that are listed, and how many there are.
    /// Not stored: the next opening of the store finds missing files by itself.
    pub(crate) files: (Vec<WrongFile>, u64),
}

/// Place of damage: a unit, or with `None`, which sorts first, an object as a whole.
pub(crate) type DamageKey = (PartitionId, ObjectId, Option<u64>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pass {
    /// The rate at which the pass was requested; `None`: it is the drive's own.
    pub(crate) asked: Option<u64>,
    pub(crate) verified: Verified,
    pub(crate) next: Position,
}

/// Amount of data that a pass has verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verified {
    /// Manager time of the pass's start, in milliseconds; 0: there was no pass.
    pub(crate) began_ms: u64,
    pub(crate) bytes: u64,
    pub(crate) units: u64,
}

/// A drive's scrub.
#[derive(Debug)]
pub(crate) struct Scrub {
    progress: Progress,
    /// The rate of the drive's own passes, in bytes a second; 0: it makes none.
    own_rate: u64,
    pace: Pace,
    /// Counts the passes that began, so that a step of an earlier pass is not counted.
    turn: u64,
    holds_lease: bool,
}

/// Next action of the scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, for this many milliseconds or until a pass is requested.
    Wait(u64),
    /// Verify the units from here on, then call [`Scrub::handle_step`].
    Verify { turn: u64, from: Position },
}

impl Scrub {
    pub(crate) fn new(progress: Progress, own_rate: u64) -> Scrub {
        Scrub { progress, own_rate, pace: Pace::default(), turn: 0, holds_lease: false }
    }

    /// A pass is requested.
    pub(crate) fn handle_start(&mut self, rate: u64, manager_ms: u64) {
        match &mut self.progress.pass {
            Some(Pass { asked: asked @ Some(_), .. }) => *asked = Some(rate),
            _ => self.begin(Some(rate), manager_ms),
        }
    }

    /// Returns the next action. `manager_ms` is manager time while the drive holds its lease.
    pub(crate) fn poll(&mut self, now: Moment, manager_ms: Option<u64>) -> Next {
        self.holds_lease = manager_ms.is_some();
        let Some(manager_ms) = manager_ms else { return Next::Wait(PAUSED_MS) };
        if self.progress.pass.is_none() {
            let rests = (self.progress.ended_ms + REST_MS).saturating_sub(manager_ms);
            match (self.own_rate, self.progress.ended_ms) {
                (0, _) => return Next::Wait(REST_MS),
                (_, ended_ms) if ended_ms > 0 && rests > 0 => return Next::Wait(rests),
                _ => self.begin(None, manager_ms),
            }
        }
        let rate = self.rate();
        let Some(pass) = &self.progress.pass else { return Next::Wait(REST_MS) };
        match self.pace.wait_ms(now, rate) {
            // The pass is the drive's own from before a restart, and the drive now makes none.
            _ if rate == 0 => Next::Wait(REST_MS),
            0 => Next::Verify { turn: self.turn, from: pass.next },
            wait_ms => Next::Wait(wait_ms),
        }
    }

    /// Units were verified. Returns true if the pass ended or found damage: then the progress should be
    /// stored at once.
    pub(crate) fn handle_step(
        &mut self,
        turn: u64,
        step: Step,
        clients: Clients,
        now: Moment,
        manager_ms: u64,
    ) -> bool {
        let rate = self.rate();
        self.pace.charge(now, rate, step.bytes, clients);
        let number = self.progress.passes;
        let Some(pass) = self.progress.pass.as_mut().filter(|_| turn == self.turn) else { return false };
        pass.verified.bytes = pass.verified.bytes.saturating_add(step.bytes);
        pass.verified.units = pass.verified.units.saturating_add(step.units);
        let found_any = !step.damaged.is_empty();
        let next = step.next;
        if let Some(files) = step.files {
            self.progress.files = files;
        }
        if let Some(next) = next {
            pass.next = next;
        }
        step.damaged.into_iter().for_each(|found| self.handle_damaged(found));
        if next.is_none() {
            self.end(number, manager_ms);
        }
        found_any || next.is_none()
    }

    /// A unit was found damaged.
    pub(crate) fn handle_damaged(&mut self, found: DamagedUnit) {
        let place = (found.partition, found.object, found.unit);
        let number = self.progress.passes;
        let damaged = &mut self.progress.damaged;
        if damaged.contains_key(&place) || damaged.len() < SCRUB_DAMAGED_MAX {
            damaged.insert(place, (number, found));
        } else {
            self.progress.more += 1;
        }
    }

    /// Objects that are not lost as a whole any more leave the list.
    pub(crate) fn retain_objects(&mut self, is_lost: impl Fn((PartitionId, ObjectId)) -> bool) {
        self.progress
            .damaged
            .retain(|&(partition, object, unit), _| unit.is_some() || is_lost((partition, object)));
    }

    /// A unit was verified, and is whole.
    pub(crate) fn handle_whole(&mut self, place: UnitPlace) {
        let (partition, object, unit) = place;
        self.progress.damaged.remove(&(partition, object, Some(unit)));
    }

    /// A damaged unit was made anew.
    pub(crate) fn handle_repaired(&mut self, place: UnitPlace) {
        if self.progress.damaged.remove(&(place.0, place.1, Some(place.2))).is_none() {
            self.progress.more = self.progress.more.saturating_sub(1);
        }
        self.progress.repaired += 1;
    }

    /// The scrub's state. `stat` is the store's: its live bytes are about what a pass has to verify.
    pub(crate) fn state(&self, stat: &Stat) -> ScrubState {
        let pass = self.progress.pass.as_ref();
        let verified = pass.map_or(self.progress.last, |pass| pass.verified);
        ScrubState {
            phase: match pass {
                None => ScrubPhase::Idle,
                Some(_) if self.holds_lease => ScrubPhase::Running,
                Some(_) => ScrubPhase::Paused,
            },
            asked: pass.is_some_and(|pass| pass.asked.is_some()),
            rate: self.rate(),
            bytes: verified.bytes,
            units: verified.units,
            of_bytes: if pass.is_some() { stat.live.max(verified.bytes) } else { verified.bytes },
            damaged: u64::try_from(self.progress.damaged.len())
                .unwrap_or(u64::MAX)
                .saturating_add(self.progress.more),
            lost: stat.lost,
            wrong_files: self.progress.files.1,
            began_ms: verified.began_ms,
            ended_ms: self.progress.ended_ms,
            passes: self.progress.passes,
            repaired: self.progress.repaired,
            // Filled in by the caller, from the store.
            objects: 0,
        }
    }

    /// The scrub's state, the damage that it found, and the keys that the store has `lost`, as far as they
    /// are listed.
    pub(crate) fn report(&self, stat: &Stat, lost: Vec<LostKeys>) -> ScrubReply {
        let damaged = self.progress.damaged.values().map(|(_, unit)| unit.clone()).collect();
        ScrubReply { state: self.state(stat), damaged, lost, files: self.progress.files.0.clone() }
    }

    /// Progress that is to be stored.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    fn rate(&self) -> u64 {
        let asked = self.progress.pass.as_ref().and_then(|pass| pass.asked);
        asked.unwrap_or(self.own_rate)
    }

    fn begin(&mut self, asked: Option<u64>, manager_ms: u64) {
        let verified = Verified { began_ms: manager_ms, ..Verified::default() };
        self.progress.pass = Some(Pass { asked, verified, next: Position::default() });
        self.progress.more = 0;
        self.turn += 1;
    }

    /// The pass with this number is complete: damage that it did not find again is removed from the list.
    fn end(&mut self, number: u64, manager_ms: u64) {
        if let Some(pass) = self.progress.pass.take() {
            self.progress.last = pass.verified;
        }
        self.progress.damaged.retain(|_, (found_by, _)| *found_by == number);
        self.progress.passes += 1;
        self.progress.ended_ms = manager_ms.max(1);
    }
}

#[cfg(test)]
mod tests;
