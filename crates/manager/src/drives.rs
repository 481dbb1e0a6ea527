//! The drives and their heartbeat leases. A pure machine: time is a parameter.
//!
//! A drive serves while its heartbeat lease holds (PROTOCOL R8). It counts the lease from when it *sent* the heartbeat, we from
//! when we answered, plus a margin for clocks that run at different speeds: when [`DriveTable::lapsed`] says so, the drive has
//! surely stopped. A new manager does not know what its predecessor promised, so for one lease from its start nothing lapses.
//!
//! A drive whose columns went out must not serve them by an old capability when it returns. So it gets no lease while
//! somebody is about to take a column of it out (*holds*), nor before it was fenced for every column that went out (*untold*).

use std::collections::BTreeMap;

use braid_layout::DriveId;
use braid_wire::control::{DriveState, Heartbeat};

use crate::schema::DriveRecord;

/// The drives, by identity.
#[derive(Debug)]
pub struct DriveTable {
    lease_ms: u64,
    started_ms: u64,
    drives: BTreeMap<DriveId, Drive>,
}

/// One drive.
#[derive(Debug)]
pub struct Drive {
    /// What is on record.
    pub record: DriveRecord,
    /// Its process, as it last said.
    pub pid: u32,
    /// Bytes of log.
    pub used_bytes: u64,
    /// Bytes of log that a read could return.
    pub live_bytes: u64,
    heard_ms: Option<u64>,
    granted_ms: Option<u64>,
    refused: bool,
    holds: u32,
    untold: bool,
    outs: u64,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// For how long the drive may serve; 0: not yet.
    pub lease_ms: u32,
    /// It was replaced.
    pub replaced: bool,
    /// It must be fenced for its columns that went out, and then gets a lease.
    pub readmit: bool,
    /// Its record has changed: store it.
    pub changed: Option<DriveRecord>,
}

impl DriveTable {
    /// No drive yet. The manager started at `started_ms`.
    pub fn new(lease_ms: u32, started_ms: u64) -> DriveTable {
        DriveTable { lease_ms: u64::from(lease_ms), started_ms, drives: BTreeMap::new() }
    }

    /// Length of a heartbeat lease, in milliseconds.
    pub fn lease_ms(&self) -> u64 {
        self.lease_ms
    }

    /// What the lease is longer here than at the drive: a tenth and a fifth of a second.
    pub fn margin_ms(&self) -> u64 {
        self.lease_ms / 10 + 200
    }

    /// A drive has joined, or is on record at a start, with columns out that it was not told of or not.
    pub fn insert(&mut self, record: DriveRecord, untold: bool) {
        let drive = Drive {
            record,
            pid: 0,
            used_bytes: 0,
            live_bytes: 0,
            heard_ms: None,
            granted_ms: None,
            refused: false,
            holds: 0,
            untold,
            outs: 0,
        };
        self.drives.insert(drive.record.drive, drive);
    }

    /// The drive.
    pub fn drive(&self, drive: DriveId) -> Option<&Drive> {
        self.drives.get(&drive)
    }

    /// Its record has changed.
    pub fn set_record(&mut self, record: DriveRecord) {
        if let Some(drive) = self.drives.get_mut(&record.drive) {
            drive.record = record;
        }
    }

    /// All drives, by identity.
    pub fn iter(&self) -> impl Iterator<Item = &Drive> {
        self.drives.values()
    }

    /// The drive of this name (one that was replaced only if no other has it) or identity in 32 hex digits.
    pub fn find(&self, name: &str) -> Option<&Drive> {
        let named = |drive: &&Drive| drive.record.name == name;
        let by_name = self.iter().filter(named).min_by_key(|drive| drive.record.replaced_by != DriveId(0));
        by_name.or_else(|| self.iter().find(|drive| drive.record.drive.to_string() == name))
    }

    /// A heartbeat came.
    pub fn heartbeat(&mut self, drive: DriveId, beat: &Heartbeat, now_ms: u64) -> Option<Admission> {
        let lease_ms = self.lease_ms;
        let drive = self.drives.get_mut(&drive)?;
        let replaced = drive.record.replaced_by != DriveId(0);
        let admitted = !replaced && drive.holds == 0 && !drive.untold;
        (drive.pid, drive.used_bytes, drive.live_bytes) = (beat.pid, beat.used_bytes, beat.live_bytes);
        (drive.heard_ms, drive.refused) = (Some(now_ms), false);
        if admitted {
            drive.granted_ms = Some(now_ms);
        }
        let before = drive.record.clone();
        drive.record.confirmed = true;
        drive.record.address.clone_from(&beat.address);
        drive.record.host.clone_from(&beat.host);
        drive.record.directory.clone_from(&beat.directory);
        drive.record.capacity_bytes = beat.capacity_bytes;
        Some(Admission {
            lease_ms: if admitted { u32::try_from(lease_ms).unwrap_or(u32::MAX) } else { 0 },
            replaced,
            readmit: !replaced && drive.untold,
            changed: (drive.record != before).then(|| drive.record.clone()),
        })
    }

    /// How the drive stands. Unknown drives count as replaced.
    pub fn state(&self, drive: DriveId, now_ms: u64) -> DriveState {
        match self.drives.get(&drive) {
            Some(drive) if drive.record.replaced_by == DriveId(0) => {
                let holds = drive.granted_ms.is_some_and(|granted| now_ms < granted + self.lease_ms);
                if holds && !drive.refused { DriveState::Up } else { DriveState::Away }
            }
            _ => DriveState::Replaced,
        }
    }

    /// Whether the manager has run for long enough to judge a drive by what it has heard since.
    pub fn may_judge(&self, now_ms: u64) -> bool {
        now_ms >= self.started_ms + self.lease_ms + self.margin_ms()
    }

    /// Whether the drive surely serves no more.
    pub fn lapsed(&self, drive: DriveId, now_ms: u64) -> bool {
        let Some(known) = self.drives.get(&drive) else { return true };
        let granted = known.granted_ms.unwrap_or(self.started_ms).max(self.started_ms);
        now_ms >= granted + self.lease_ms + self.margin_ms()
    }

    /// If the drive has lapsed, or its address `refuses` connections, holds it back: no lease until
    /// [`DriveTable::release`]. Whether it is held.
    pub fn hold_dead(&mut self, drive: DriveId, refuses: bool, now_ms: u64) -> bool {
        let dead = self.lapsed(drive, now_ms) || (refuses && self.may_judge(now_ms));
        if let Some(known) = self.drives.get_mut(&drive).filter(|_| dead) {
            known.refused |= refuses;
            (known.holds, known.outs) = (known.holds + 1, known.outs + 1);
        }
        dead
    }

    /// Ends a hold, under which columns of the drive `went_out` or not.
    pub fn release(&mut self, drive: DriveId, went_out: bool) {
        if let Some(known) = self.drives.get_mut(&drive) {
            known.untold |= went_out;
            known.holds = known.holds.saturating_sub(1);
        }
    }

    /// How often the drive was held so far: for [`DriveTable::readmit`].
    pub fn outs(&self, drive: DriveId) -> u64 {
        self.drives.get(&drive).map_or(0, |known| known.outs)
    }

    /// The drive was told of all its columns that are out; `outs` is from before that was looked up. If it was held since,
    /// nothing changes: there may be others.
    pub fn readmit(&mut self, drive: DriveId, outs: u64) {
        if let Some(known) =
            self.drives.get_mut(&drive).filter(|known| known.outs == outs && known.holds == 0)
        {
            known.untold = false;
        }
    }

    /// Drives that wait to be told of columns that went out, and have been heard of lately.
    pub fn to_readmit(&self, now_ms: u64) -> Vec<DriveId> {
        let waits = |drive: &&Drive| {
            drive.untold
                && drive.record.replaced_by == DriveId(0)
                && drive.heard_ms.is_some_and(|heard| now_ms < heard + self.lease_ms)
        };
        self.iter().filter(waits).map(|drive| drive.record.drive).collect()
    }

    /// Drives whose lease holds.
    pub fn up(&self, now_ms: u64) -> Vec<DriveId> {
        self.in_state(DriveState::Up, now_ms)
    }

    /// Drives in this state.
    pub fn in_state(&self, state: DriveState, now_ms: u64) -> Vec<DriveId> {
        self.drives.keys().copied().filter(|&drive| self.state(drive, now_ms) == state).collect()
    }

    /// The drive that holds the place of `drive` now: itself, unless it was replaced, maybe several times.
    pub fn successor(&self, drive: DriveId) -> DriveId {
        let mut at = drive;
        for _ in 0..self.drives.len() {
            match self.drives.get(&at) {
                Some(known) if known.record.replaced_by != DriveId(0) => at = known.record.replaced_by,
                _ => break,
            }
        }
        at
    }

    /// What people call the drive.
    pub fn name(&self, drive: DriveId) -> String {
        self.drives.get(&drive).map_or_else(|| drive.short(), |known| known.record.name.clone())
    }

    /// The names of several drives, for messages.
    pub fn names(&self, drives: impl IntoIterator<Item = DriveId>) -> String {
        let names: Vec<String> = drives.into_iter().map(|drive| self.name(drive)).collect();
        names.join(", ")
    }
}

impl Drive {
    /// Milliseconds since its last heartbeat; `u64::MAX` if there was none since the manager's start.
    pub fn silent_ms(&self, now_ms: u64) -> u64 {
        self.heard_ms.map_or(u64::MAX, |heard| now_ms.saturating_sub(heard))
    }
}
