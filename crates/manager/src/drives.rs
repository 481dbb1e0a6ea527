//! The drives and their heartbeat leases. A pure machine: time is a parameter.
//!
//! A drive serves while its heartbeat lease holds (PROTOCOL R8). It counts the lease from when it *sent* the heartbeat, we from
//! when we answered, plus a margin for clocks that run at different speeds: when [`DriveTable::lapsed`] says so, the drive has
//! surely stopped. A new manager does not know what its predecessor promised, so for one lease from its start nothing lapses, and a
//! drive counts as dead only if it was heard in this term and its address refuses connections since.
//!
//! A drive whose columns went out must not serve them by an old capability when it returns. So it gets no lease while
//! somebody is about to take a column of it out (*holds*), nor before it was fenced for every column that went out (*untold*).

use std::collections::BTreeMap;

use braid_layout::DriveId;
use braid_wire::control::{DriveState, Heartbeat};
use braid_wire::data::ScrubState;

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
    /// How its scrub stood.
    pub scrub: ScrubState,
    /// How it reaches its disk, for people.
    pub io: String,
    heard_ms: Option<u64>,
    granted_ms: Option<u64>,
    /// It does not serve, whatever was granted: its address refused connections, or its last heartbeat got no lease.
    refused: bool,
    sessions: u32,
    holds: u32,
    untold: bool,
    outs: u64,
    starts: u64,
    /// How many of its starts there had been when all partitions were made on it.
    made: u64,
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
            scrub: ScrubState::default(),
            io: String::new(),
            heard_ms: None,
            granted_ms: None,
            refused: false,
            sessions: 0,
            holds: 0,
            untold,
            outs: 0,
            starts: 0,
            made: 0,
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

    /// A session with the drive has begun.
    pub fn session_begun(&mut self, drive: DriveId) {
        if let Some(known) = self.drives.get_mut(&drive) {
            known.sessions += 1;
        }
    }

    /// A session with the drive has ended.
    pub fn session_ended(&mut self, drive: DriveId) {
        if let Some(known) = self.drives.get_mut(&drive) {
            known.sessions = known.sessions.saturating_sub(1);
        }
    }

    /// A heartbeat came.
    pub fn heartbeat(&mut self, drive: DriveId, beat: &Heartbeat, now_ms: u64) -> Option<Admission> {
        let lease_ms = self.lease_ms;
        let drive = self.drives.get_mut(&drive)?;
        let replaced = drive.record.replaced_by != DriveId(0);
        let admitted = !replaced && drive.holds == 0 && !drive.untold;
        (drive.pid, drive.used_bytes, drive.live_bytes) = (beat.pid, beat.used_bytes, beat.live_bytes);
        (drive.scrub, drive.io) = (beat.scrub.clone(), beat.io.clone());
        (drive.heard_ms, drive.refused) = (Some(now_ms), !admitted);
        drive.starts += u64::from(beat.restarted);
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

    /// `Some`, to be handed to [`DriveTable::partitions_made`], if the drive has started since all partitions were made on it. It
    /// may have found damage, and is then without those whose values are lost.
    pub fn partitions_due(&self, drive: DriveId) -> Option<u64> {
        self.drives.get(&drive).filter(|drive| drive.starts > drive.made).map(|drive| drive.starts)
    }

    /// All partitions were made on the drive.
    pub fn partitions_made(&mut self, drive: DriveId, starts: u64) {
        if let Some(drive) = self.drives.get_mut(&drive) {
            drive.made = drive.made.max(starts);
        }
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
    /// [`DriveTable::release`]. Whether it is held. An address proves something only if it is the drive's own word in this
    /// term, or there was time enough for any lease of a predecessor's to lapse.
    pub fn hold_dead(&mut self, drive: DriveId, refuses: bool, now_ms: u64) -> bool {
        let heard = self.drives.get(&drive).is_some_and(|known| known.heard_ms.is_some());
        let dead = self.lapsed(drive, now_ms) || (refuses && (heard || self.may_judge(now_ms)));
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
    /// Whether a session of its own with us is open. The system closes it with the drive's process.
    pub fn connected(&self) -> bool {
        self.sessions > 0
    }

    /// Milliseconds since its last heartbeat; `u64::MAX` if there was none since the manager's start.
    pub fn silent_ms(&self, now_ms: u64) -> u64 {
        self.heard_ms.map_or(u64::MAX, |heard| now_ms.saturating_sub(heard))
    }
}

#[cfg(test)]
mod tests {
    use braid_wire::capability::Key;

    use super::*;

    const D: DriveId = DriveId(1);

    fn record(id: u128, name: &str) -> DriveRecord {
        DriveRecord {
            drive: DriveId(id),
            name: name.to_owned(),
            master: Key::new([0; 32]),
            confirmed: false,
            replaced_by: DriveId(0),
            address: "a:1".to_owned(),
            host: String::new(),
            rack: String::new(),
            directory: String::new(),
            capacity_bytes: 1,
            joined_ms: 0,
        }
    }

    fn beat(address: &str) -> Heartbeat {
        Heartbeat {
            address: address.to_owned(),
            host: String::new(),
            directory: String::new(),
            pid: 1,
            capacity_bytes: 1,
            used_bytes: 0,
            live_bytes: 0,
            restarted: false,
            epoch: 0,
            io: String::new(),
            scrub: ScrubState::default(),
        }
    }

    /// One drive, in a table of a manager that started at 0, with leases of 1000 ms (and a margin of 300).
    fn table() -> DriveTable {
        let mut table = DriveTable::new(1000, 0);
        table.insert(record(1, "one"), false);
        table
    }

    #[test]
    fn a_drive_is_up_while_its_lease_holds_and_dead_a_margin_later() {
        let mut table = table();
        assert_eq!(table.state(D, 0), DriveState::Away);
        assert_eq!(table.heartbeat(D, &beat("a:1"), 5000).unwrap().lease_ms, 1000);
        assert_eq!((table.state(D, 5999), table.state(D, 6000)), (DriveState::Up, DriveState::Away));
        assert_eq!((table.lapsed(D, 6299), table.lapsed(D, 6300)), (false, true));
        assert!(!table.hold_dead(D, false, 6299) && table.hold_dead(D, false, 6300));
    }

    #[test]
    fn nothing_is_judged_before_a_lease_has_passed_since_the_start() {
        let mut table = table();
        assert!(!table.lapsed(D, 1299) && table.lapsed(D, 1300));
        assert!(!table.hold_dead(D, true, 1299), "not even by its address");
        assert!(table.hold_dead(D, true, 1300));
    }

    #[test]
    fn an_address_that_refuses_proves_death_while_the_lease_holds() {
        let mut table = table();
        table.heartbeat(D, &beat("a:1"), 5000);
        assert!(!table.hold_dead(D, false, 5001));
        assert!(table.hold_dead(D, true, 5001));
        assert_eq!(table.state(D, 5001), DriveState::Away);
    }

    #[test]
    fn an_address_given_in_this_term_is_proof_from_the_start() {
        let mut table = table();
        table.heartbeat(D, &beat("a:1"), 10);
        assert!(!table.hold_dead(D, false, 11) && table.hold_dead(D, true, 11));
    }

    #[test]
    fn a_drive_held_or_untold_gets_no_lease() {
        let mut table = table();
        assert!(table.hold_dead(D, false, 5000));
        let held = table.heartbeat(D, &beat("a:1"), 5001).unwrap();
        assert_eq!((held.lease_ms, held.readmit), (0, false), "somebody is about to take a column out");
        table.release(D, true);
        let untold = table.heartbeat(D, &beat("a:1"), 5002).unwrap();
        assert_eq!((untold.lease_ms, untold.readmit), (0, true));
        assert_eq!(table.to_readmit(5003), [D]);
        let outs = table.outs(D);
        // Another column goes out while it is told of the first.
        assert!(table.hold_dead(D, false, 5004));
        table.release(D, true);
        table.readmit(D, outs);
        assert_eq!(table.heartbeat(D, &beat("a:1"), 5005).unwrap().lease_ms, 0);
        let outs = table.outs(D);
        table.readmit(D, outs);
        assert_eq!(table.heartbeat(D, &beat("a:1"), 5006).unwrap().lease_ms, 1000);
        assert_eq!(table.state(D, 5007), DriveState::Up);
    }

    #[test]
    fn a_start_makes_the_partitions_due_until_they_were_made_since() {
        let mut table = table();
        let due = |table: &mut DriveTable, restarted| {
            table.heartbeat(D, &Heartbeat { restarted, ..beat("a:1") }, 1);
            table.partitions_due(D)
        };
        assert_eq!(due(&mut table, false), None);
        let first = due(&mut table, true).expect("due");
        assert_eq!(due(&mut table, false), Some(first));
        let second = due(&mut table, true).expect("due");
        table.partitions_made(D, first);
        assert_eq!(due(&mut table, false), Some(second), "made before the second start");
        table.partitions_made(D, second);
        assert_eq!(due(&mut table, false), None);
    }

    #[test]
    fn a_hold_that_came_to_nothing_costs_nothing() {
        let mut table = table();
        assert!(table.hold_dead(D, false, 5000));
        table.release(D, false);
        assert_eq!(table.heartbeat(D, &beat("a:1"), 5001).unwrap().lease_ms, 1000);
    }

    #[test]
    fn a_replaced_drive_serves_no_more() {
        let mut table = table();
        table.insert(record(2, "two"), false);
        table.set_record(DriveRecord { replaced_by: DriveId(2), ..record(1, "one") });
        let answer = table.heartbeat(D, &beat("a:1"), 1).unwrap();
        assert_eq!((answer.lease_ms, answer.replaced), (0, true));
        assert_eq!(table.state(D, 2), DriveState::Replaced);
        assert_eq!((table.successor(D), table.successor(DriveId(2))), (DriveId(2), DriveId(2)));
    }

    #[test]
    fn a_changed_record_is_stored_once() {
        let mut table = table();
        assert!(
            table
                .heartbeat(D, &beat("b:2"), 1)
                .unwrap()
                .changed
                .is_some_and(|r| r.confirmed && r.address == "b:2")
        );
        assert_eq!(table.heartbeat(D, &beat("b:2"), 2).unwrap().changed, None);
        assert_eq!(table.heartbeat(DriveId(9), &beat("b:2"), 2), None);
    }

    #[test]
    fn a_drive_is_found_by_name_or_identity() {
        let mut table = table();
        table.insert(DriveRecord { replaced_by: D, ..record(2, "one") }, false);
        assert_eq!(table.find("one").unwrap().record.drive, D);
        assert_eq!(table.find(&DriveId(2).to_string()).unwrap().record.drive, DriveId(2));
        assert!(table.find("none").is_none());
    }
}
