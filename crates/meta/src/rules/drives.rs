//! The drives and their heartbeat leases. A pure machine: time is a parameter.
//!
//! A drive serves while its heartbeat lease holds (PROTOCOL R8). The drive counts the lease from when it
//! *sent* the heartbeat, the manager from when it answered, plus a margin for clocks that run at different
//! speeds. So when [`DriveTable::lapsed`] says so, the drive has surely stopped. A new manager does not know
//! the leases that its predecessor granted, so no lease lapses for one term after its start. Nor for one term
//! after a pause of this process, because heartbeats may have waited for it.
//!
//! Before its lease has lapsed, a drive counts as dead only on its host's word: its last heartbeat named its
//! process, and the kernel says that this process is gone. An address that refuses connections proves
//! nothing, as a firewall can do that too.
//!
//! A drive whose columns went out must not serve them to old capabilities when it returns. So it gets no
//! lease while a procedure is about to take one of its columns out (*holds*), nor before it was fenced for
//! every column that went out (*untold*). While it is being told (*returning*), none of its columns go out
//! because of a lapsed lease: otherwise the telling might never end.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_layout::DriveId;
use braid_wire::control::{DriveState, FileSystem, Heartbeat, Latency, ProcessMark, WholeRate};
use braid_wire::data::{DriveCounts, DriveParts, ScrubState};
use braid_wire::frame::WIRE_VERSION_OLDEST;
use braid_wire::{Reason, Refusal};

use self::heard::heard;
use crate::records::schema::{DriveKeyRecord, DriveRecord};
use crate::rules::pauses::Pauses;

pub mod examples;
mod heard;

/// Maximum number of drives of a cluster that were not replaced. A status names each, in one reply.
pub const DRIVES_MAX: usize = 1000;

/// The refusal for a drive that does not exist.
pub fn no_drive(name: &str) -> Refusal {
    Refusal::new(Reason::NoDrive, format!("no drive {name:?}"))
}

/// Maximum time, in milliseconds, that writers wait while a drive that returned is told of all that it
/// missed.
pub const RETURN_MAX_MS: u64 = 60_000;
/// Maximum time, in milliseconds, that writers wait while the telling makes no progress: the drive sends
/// heartbeats, but answers no fences.
pub const RETURN_STALLED_MS: u64 = 10_000;

/// Maximum number of processes remembered for one drive. A healthy drive has one; one that was just restarted
/// has two.
const PROCESSES_MAX: usize = 8;

/// Table of the drives, by identity.
#[derive(Debug)]
pub struct DriveTable {
    lease_ms: u64,
    started_ms: u64,
    pauses: Arc<Pauses>,
    drives: BTreeMap<DriveId, Drive>,
    /// The rates of all drives together, once they were measured.
    whole: Option<WholeRate>,
}

#[derive(Debug)]
pub struct Drive {
    /// The drive's stored record.
    pub record: DriveRecord,
    /// Newest wire version that the drive speaks, as last reported; the oldest there is, before that.
    pub version: u16,
    /// Process id, as last reported; 0: not yet.
    pub pid: u32,
    /// Bytes that the drive can hold, as last reported.
    pub capacity_bytes: u64,
    /// Bytes of the drive's log.
    pub used_bytes: u64,
    /// Bytes of the drive's log that a read could return.
    pub live_bytes: u64,
    /// Bytes that writes may take, as last reported; 0 once a client has found the drive full.
    pub free_bytes: u64,
    /// Part of `free_bytes` that is in files kept for new segments.
    pub spare_bytes: u64,
    /// File system of the drive's directory.
    pub file_system: FileSystem,
    /// State of the drive's scrub, as last reported.
    pub scrub: ScrubState,
    /// Method by which the drive sends the bytes of reads, for people.
    pub io: String,
    /// Milliseconds for which the drive's disk has not answered, if that is too long; else 0.
    pub stalled_ms: u64,
    /// Latency of the drive's reads.
    pub reads: Latency,
    /// Latency of the drive's commits.
    pub commits: Latency,
    /// Counts since the drive's start.
    pub counts: DriveCounts,
    /// Cost of the drive's parts, as last told; `None`: it never was.
    pub parts: Option<DriveParts>,
    /// The number of the drive's master key, and its next turn.
    pub keys: DriveKeyRecord,
    /// True if the drive is being drained: its columns move to other drives, and it gets no new ones.
    pub draining: bool,
    /// Time until which the drive's silence does not make it a lost one; 0: it was not paused.
    pub paused_until_ms: u64,
    heard_ms: Option<u64>,
    granted_ms: Option<u64>,
    /// True if the process has sent its closing heartbeat, and no other process was heard since.
    closed: bool,
    /// Processes heard as this drive within a lease, each with the time when it was last heard. Two while a
    /// killed one's heartbeat is still in flight.
    processes: Vec<(ProcessMark, u64)>,
    /// True if the drive does not serve, whatever was granted: its process is gone, or its last heartbeat got
    /// no lease.
    stopped: bool,
    holds: u32,
    untold: bool,
    /// Times when the telling began, and when it last made progress; `None`: it is not under way.
    returning: Option<(u64, u64)>,
    outs: u64,
    starts: u64,
    /// The value of `starts` when all partitions were last made on the drive.
    made: u64,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// Milliseconds for which the drive may serve; 0: it may not serve yet.
    pub lease_ms: u32,
    /// True if the drive was replaced.
    pub replaced: bool,
    /// True if the drive must be fenced for its columns that went out before it gets a lease.
    pub readmit: bool,
    /// Changed record of the drive, to be stored, if the heartbeat differs from the one on record. The
    /// table's record follows ([`DriveTable::set_record`]) once that is durable.
    pub changed: Option<DriveRecord>,
}

/// Time by which a lease lasts longer at the manager than at the drive: a tenth of the lease and a fifth of a
/// second.
pub fn margin_ms(lease_ms: u64) -> u64 {
    lease_ms / 10 + 200
}

impl DriveTable {
    /// An empty table of a manager that started at `started_ms`.
    pub fn new(lease_ms: u32, started_ms: u64, pauses: Arc<Pauses>) -> DriveTable {
        DriveTable { lease_ms: u64::from(lease_ms), started_ms, pauses, drives: BTreeMap::new(), whole: None }
    }

    /// Length of a heartbeat lease, in milliseconds.
    pub fn lease_ms(&self) -> u64 {
        self.lease_ms
    }

    /// The margin ([`margin_ms`]) of this table's lease.
    pub fn margin_ms(&self) -> u64 {
        margin_ms(self.lease_ms)
    }

    /// Adds a drive, joined or on record, that was told of all its columns that are out; else
    /// [`DriveTable::set_untold`] follows.
    pub fn insert(&mut self, record: DriveRecord) {
        let drive = Drive {
            capacity_bytes: record.capacity_bytes,
            record,
            version: WIRE_VERSION_OLDEST,
            pid: 0,
            used_bytes: 0,
            live_bytes: 0,
            free_bytes: 0,
            spare_bytes: 0,
            file_system: FileSystem::default(),
            scrub: ScrubState::default(),
            io: String::new(),
            stalled_ms: 0,
            reads: Latency::default(),
            commits: Latency::default(),
            counts: DriveCounts::default(),
            parts: None,
            keys: DriveKeyRecord::FIRST,
            heard_ms: None,
            granted_ms: None,
            closed: false,
            processes: Vec::new(),
            stopped: false,
            holds: 0,
            untold: false,
            returning: None,
            outs: 0,
            starts: 0,
            made: 0,
            draining: false,
            paused_until_ms: 0,
        };
        self.drives.insert(drive.record.drive, drive);
    }

    pub fn drive(&self, drive: DriveId) -> Option<&Drive> {
        self.drives.get(&drive)
    }

    /// Takes over a changed record of a drive. Concurrent transactions may report here out of order. The
    /// process numbers only rise, so the highest one is kept.
    pub fn set_record(&mut self, mut record: DriveRecord) {
        let Some(drive) = self.drives.get_mut(&record.drive) else { return };
        let known = &drive.record;
        if (record.instance, record.stored) < (known.instance, known.stored) {
            (record.start, record.instance, record.stored) = (known.start, known.instance, known.stored);
        }
        drive.record = record;
    }

    /// All drives, by identity.
    pub fn iter(&self) -> impl Iterator<Item = &Drive> {
        self.drives.values()
    }

    /// The drive of this name (a replaced one only if no other has it) or of this identity in 32 hex digits.
    pub fn find(&self, name: &str) -> Option<&Drive> {
        let named = |drive: &&Drive| drive.record.name == name;
        let by_name = self.iter().filter(named).min_by_key(|drive| drive.record.replaced_by != DriveId(0));
        by_name.or_else(|| self.iter().find(|drive| drive.record.drive.to_string() == name))
    }

    /// Notes the newest wire version that a drive speaks. Unknown drives are passed over.
    pub fn set_version(&mut self, drive: DriveId, version: u16) {
        if let Some(drive) = self.drives.get_mut(&drive) {
            drive.version = version;
        }
    }

    /// Takes a heartbeat. `None` if the drive is unknown.
    pub fn heartbeat(&mut self, drive: DriveId, beat: &Heartbeat, now_ms: u64) -> Option<Admission> {
        let (lease_ms, promised_ms) = (self.lease_ms, self.lease_ms + self.margin_ms());
        let drive = self.drives.get_mut(&drive)?;
        let replaced = drive.record.replaced_by != DriveId(0);
        // The process number must be stored in the drive's directory, or the drive could not be told from an
        // older copy of itself.
        let is_stored = drive.record.stored == drive.record.instance;
        let admitted = !replaced
            && is_stored
            && drive.holds == 0
            && !drive.untold
            && !drive.record.behind
            && !beat.closing
            && beat.stalled_ms == 0;
        drive.closed = beat.closing;
        (drive.stalled_ms, drive.reads, drive.commits) = (beat.stalled_ms, beat.reads, beat.commits);
        drive.counts = beat.counts;
        (drive.pid, drive.used_bytes, drive.live_bytes) = (beat.pid, beat.used_bytes, beat.live_bytes);
        (drive.free_bytes, drive.spare_bytes) = (beat.free_bytes, beat.spare_bytes);
        drive.file_system = beat.file_system;
        (drive.scrub, drive.io) = (beat.scrub.clone(), beat.io.clone());
        if drive.silent_ms(now_ms) >= lease_ms {
            drive.returning = None;
        }
        if drive.untold && drive.returning.is_none() {
            drive.returning = Some((now_ms, now_ms));
        }
        (drive.heard_ms, drive.stopped) = (Some(now_ms), !admitted);
        drive.heard_from(&beat.process, now_ms, promised_ms);
        drive.starts += u64::from(beat.restarted);
        if admitted {
            drive.granted_ms = Some(now_ms);
        }
        drive.capacity_bytes = beat.capacity_bytes;
        Some(Admission {
            lease_ms: if admitted { u32::try_from(lease_ms).unwrap_or(u32::MAX) } else { 0 },
            replaced,
            readmit: !replaced && beat.stalled_ms == 0 && (drive.untold || drive.record.behind),
            changed: heard(&drive.record, beat),
        })
    }

    /// Notes that a client found the drive full: nothing may be written there until it reports otherwise.
    pub fn met_full(&mut self, drive: DriveId) {
        if let Some(drive) = self.drives.get_mut(&drive) {
            drive.free_bytes = 0;
        }
    }

    /// `Some`, to be handed to [`DriveTable::partitions_made`], if the drive has started since all partitions
    /// were made on it. A start that finds damage may have lost partitions.
    pub fn partitions_due(&self, drive: DriveId) -> Option<u64> {
        self.drives.get(&drive).filter(|drive| drive.starts > drive.made).map(|drive| drive.starts)
    }

    /// Number of starts of the drive that this manager has seen.
    pub fn starts(&self, drive: DriveId) -> u64 {
        self.drives.get(&drive).map_or(0, |drive| drive.starts)
    }

    /// Notes that all partitions were made on the drive.
    pub fn partitions_made(&mut self, drive: DriveId, starts: u64) {
        if let Some(drive) = self.drives.get_mut(&drive) {
            drive.made = drive.made.max(starts);
        }
    }

    /// The drive's state. Unknown drives count as replaced. A drive that held its lease when a pause of this
    /// process began is not called away before it had time to send a heartbeat.
    pub fn state(&self, drive: DriveId, now_ms: u64) -> DriveState {
        match self.drives.get(&drive) {
            Some(drive) if drive.record.replaced_by == DriveId(0) => {
                let pause = self.pauses.last();
                let holds = drive.granted_ms.is_some_and(|granted| {
                    let held = pause.began_ms < granted + self.lease_ms;
                    now_ms < granted.max(if held { pause.ended_ms } else { 0 }) + self.lease_ms
                });
                if holds && !drive.stopped { DriveState::Up } else { DriveState::Away }
            }
            _ => DriveState::Replaced,
        }
    }

    /// Milliseconds for which the drive has surely been silent.
    pub fn silent_for(&self, drive: DriveId, now_ms: u64) -> u64 {
        let heard = self.drives.get(&drive).and_then(|known| known.heard_ms).unwrap_or(0);
        now_ms.saturating_sub(heard.max(self.listening_ms()))
    }

    /// Returns true if the drive is away, was silent for `lost_after_ms` (0: no time makes it lost), and is
    /// not paused.
    pub fn is_lost(&self, drive: DriveId, lost_after_ms: u64, now_ms: u64) -> bool {
        let paused = self.drives.get(&drive).is_some_and(|known| known.paused_ms(now_ms) > 0);
        lost_after_ms > 0
            && !paused
            && self.state(drive, now_ms) == DriveState::Away
            && self.silent_for(drive, now_ms) >= lost_after_ms
    }

    /// Notes that the drive is paused until then; 0: that it is not.
    pub fn set_paused(&mut self, drive: DriveId, until_ms: u64) {
        if let Some(known) = self.drives.get_mut(&drive) {
            known.paused_until_ms = until_ms;
        }
    }

    /// Notes that the drive is being drained, or is no more.
    pub fn set_draining(&mut self, drive: DriveId, draining: bool) {
        if let Some(known) = self.drives.get_mut(&drive) {
            known.draining = draining;
        }
    }

    /// Takes over what the drive has told of its parts, once that is durable.
    pub fn set_parts(&mut self, drive: DriveId, parts: DriveParts) {
        if let Some(known) = self.drives.get_mut(&drive) {
            known.parts = Some(parts);
        }
    }

    /// Takes over the state of the drive's master key, once that is durable.
    pub fn set_keys(&mut self, drive: DriveId, keys: DriveKeyRecord) {
        if let Some(known) = self.drives.get_mut(&drive) {
            known.keys = keys;
        }
    }

    /// The rates of all drives together, once they were measured.
    pub fn whole(&self) -> Option<&WholeRate> {
        self.whole.as_ref()
    }

    /// Takes over the rates of all drives together, or that they are not known, once that is durable.
    pub fn set_whole(&mut self, whole: Option<WholeRate>) {
        self.whole = whole;
    }

    /// Removes a drive that does not belong to this cluster any more.
    pub fn remove(&mut self, drive: DriveId) {
        self.drives.remove(&drive);
    }

    /// Returns true if the manager has listened for long enough to judge a drive by its silence.
    pub fn may_judge(&self, now_ms: u64) -> bool {
        now_ms >= self.listening_ms() + self.lease_ms + self.margin_ms()
    }

    /// Time since which messages to the manager were not delayed: the start, or the end of the last pause.
    fn listening_ms(&self) -> u64 {
        self.started_ms.max(self.pauses.last().ended_ms)
    }

    /// Returns true if the drive is back and being told what it missed, with progress. A write to one of its
    /// columns that is in its file's set should then wait for the drive's lease instead of taking the column
    /// out. The wait is bounded, as the drive may stay silent.
    pub fn returning(&self, drive: DriveId, now_ms: u64) -> bool {
        self.drives.get(&drive).is_some_and(|known| {
            let in_time = |(began, went_on): (u64, u64)| {
                now_ms < began + RETURN_MAX_MS && now_ms < went_on + RETURN_STALLED_MS
            };
            let heard = known.silent_ms(now_ms) < self.lease_ms;
            known.untold && heard && known.returning.is_some_and(in_time)
        })
    }

    /// Notes that the drive was told of some columns that are out: the telling makes progress.
    pub fn told_some(&mut self, drive: DriveId, now_ms: u64) {
        if let Some((_, went_on)) = self.drives.get_mut(&drive).and_then(|known| known.returning.as_mut()) {
            *went_on = now_ms;
        }
    }

    /// Returns true if the drive surely serves no more.
    pub fn lapsed(&self, drive: DriveId, now_ms: u64) -> bool {
        let Some(known) = self.drives.get(&drive) else { return true };
        if known.closed {
            return true;
        }
        let granted = known.granted_ms.unwrap_or(0).max(self.listening_ms());
        now_ms >= granted + self.lease_ms + self.margin_ms()
    }

    /// If the drive's lease has lapsed and it is not returning, holds it back: no lease until
    /// [`DriveTable::release`]. Returns true if it did.
    pub fn hold_lapsed(&mut self, drive: DriveId, now_ms: u64) -> bool {
        let lapsed = self.lapsed(drive, now_ms) && !self.returning(drive, now_ms);
        if let Some(known) = self.drives.get_mut(&drive).filter(|_| lapsed) {
            known.hold();
        }
        lapsed
    }

    /// The processes that may hold the drive's lease, to be looked up on their host. Empty: the drive was not
    /// heard in this term.
    pub fn processes(&self, drive: DriveId) -> Vec<ProcessMark> {
        let known = self.drives.get(&drive).map(|known| &known.processes);
        known.into_iter().flatten().map(|(process, _)| process.clone()).collect()
    }

    /// Takes the host's word that these processes are gone. Holds the drive back if no other process was
    /// heard as this drive. Returns true if it did.
    pub fn hold_gone(&mut self, drive: DriveId, gone: &[ProcessMark]) -> bool {
        let Some(known) = self.drives.get_mut(&drive) else { return false };
        let all = known.processes.iter().all(|(process, _)| gone.contains(process));
        if known.processes.is_empty() || !all {
            return false;
        }
        known.stopped = true;
        known.hold();
        true
    }

    /// Holds a drive back that may be alive: no new lease until [`DriveTable::release`]. The lease that it
    /// has goes on.
    pub fn hold_live(&mut self, drive: DriveId) {
        if let Some(known) = self.drives.get_mut(&drive) {
            known.hold();
        }
    }

    /// Ends a hold under which no column of the drive went out.
    pub fn release(&mut self, drive: DriveId) {
        if let Some(known) = self.drives.get_mut(&drive) {
            known.holds = known.holds.saturating_sub(1);
        }
    }

    /// Ends a hold under which columns of the drive went out: it must be told of them.
    pub fn release_out(&mut self, drive: DriveId) {
        if let Some(known) = self.drives.get_mut(&drive) {
            known.untold = true;
        }
        self.release(drive);
    }

    /// Number of times that columns of the drive may have gone out so far: holds, and marks of untold. For
    /// [`DriveTable::readmit`].
    pub fn outs(&self, drive: DriveId) -> u64 {
        self.drives.get(&drive).map_or(0, |known| known.outs)
    }

    /// Notes that the drive was told of all its columns that are out. `outs` is the count from before the
    /// columns were looked up: if it has risen since, more may have gone out, and nothing changes here.
    pub fn readmit(&mut self, drive: DriveId, outs: u64) {
        if let Some(known) =
            self.drives.get_mut(&drive).filter(|known| known.outs == outs && known.holds == 0)
        {
            (known.untold, known.returning) = (false, None);
        }
    }

    /// Drives that wait to be told of columns that went out, and were heard within a lease. A process that
    /// has not reported its number back may not know yet that it is the drive, and then takes no fence.
    pub fn to_readmit(&self, now_ms: u64) -> Vec<DriveId> {
        let waits = |drive: &&Drive| {
            drive.untold
                && drive.record.stored == drive.record.instance
                && drive.record.replaced_by == DriveId(0)
                && !drive.record.behind
                && drive.heard_ms.is_some_and(|heard| now_ms < heard + self.lease_ms)
        };
        self.iter().filter(waits).map(|drive| drive.record.drive).collect()
    }

    /// Drives that are behind: their columns are to be taken out of their files' sets.
    pub fn behind(&self) -> Vec<DriveId> {
        let is = |drive: &&Drive| drive.record.behind && drive.record.replaced_by == DriveId(0);
        self.iter().filter(is).map(|drive| drive.record.drive).collect()
    }

    /// Notes that columns of the drive went out without a hold: it must be told of them.
    pub fn set_untold(&mut self, drive: DriveId) {
        if let Some(known) = self.drives.get_mut(&drive) {
            (known.untold, known.outs) = (true, known.outs + 1);
        }
    }

    /// If the drive surely serves no more, lets it have no lease before it was told of what is listed for it
    /// ([`DriveTable::set_untold`]). Returns true if it serves no more.
    pub fn set_untold_if_lapsed(&mut self, drive: DriveId, now_ms: u64) -> bool {
        let lapsed = self.lapsed(drive, now_ms);
        if lapsed {
            self.set_untold(drive);
        }
        lapsed
    }

    /// Drives whose lease holds.
    pub fn up(&self, now_ms: u64) -> Vec<DriveId> {
        self.in_state(DriveState::Up, now_ms)
    }

    /// Drives in this state.
    pub fn in_state(&self, state: DriveState, now_ms: u64) -> Vec<DriveId> {
        self.drives.keys().copied().filter(|&drive| self.state(drive, now_ms) == state).collect()
    }

    /// The drive in the place of `drive` now: `drive` itself, or the last in its chain of replacements.
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

    /// The drive's name, or its short identity if it is unknown.
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
    /// Remembers the process that sent a heartbeat, and forgets those whose leases have lapsed.
    fn heard_from(&mut self, process: &ProcessMark, now_ms: u64, promised_ms: u64) {
        self.processes.retain(|(other, heard)| other != process && now_ms < heard + promised_ms);
        if self.processes.len() >= PROCESSES_MAX {
            // The drive restarts over and over. No host can judge this empty mark, so only the lease decides.
            self.processes = vec![(ProcessMark::default(), now_ms)];
        }
        self.processes.push((process.clone(), now_ms));
    }

    fn hold(&mut self) {
        (self.holds, self.outs) = (self.holds + 1, self.outs + 1);
    }

    /// Milliseconds since the drive's last heartbeat; `u64::MAX` if there was none since the manager's start.
    pub fn silent_ms(&self, now_ms: u64) -> u64 {
        self.heard_ms.map_or(u64::MAX, |heard| now_ms.saturating_sub(heard))
    }

    /// Milliseconds for which the drive is still paused; 0: it is not.
    pub fn paused_ms(&self, now_ms: u64) -> u64 {
        self.paused_until_ms.saturating_sub(now_ms)
    }
}

#[cfg(test)]
mod tests;
