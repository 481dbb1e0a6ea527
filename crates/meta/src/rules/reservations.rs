//! The reservations in force: the one that a file is under, and the reports of clients. The table follows the
//! records, and a start makes it again; reports are not stored.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use braid_layout::{DriveId, FileId, ReservationId};
use braid_wire::capability::DataDirection;
use braid_wire::control::{EntryKind, Lateness, LatenessReport, NamePlace, PromiseRow};
use braid_wire::{Reason, Refusal};

use crate::records::inodes;
use crate::records::schema::{InodeRecord, ReservationRecord};
use crate::records::tx::Tx;
use crate::rules::active::Active;
use crate::tree::directories::{resolve_to_end, slot};

/// The most directories above a file that are looked at: more than a path can name.
const DEPTH_MAX: usize = 4096;

/// The most handles of a reservation whose reports are kept apart.
const HANDLES_MAX: usize = 10_000;

/// A reservation in force.
#[derive(Debug, Clone)]
pub struct Reservation {
    pub record: ReservationRecord,
    /// The reason why the rate may not be kept at present, for people; empty: it will be.
    pub risk: String,
    /// The last report of each handle, with its number in the order of reports.
    reported: BTreeMap<u64, (u64, Lateness)>,
    /// Handles in the order of their last reports.
    handles: BTreeMap<u64, u64>,
    /// Number of reports so far.
    reports: u64,
    /// The sum of the reports of handles that are forgotten.
    before: Lateness,
    /// Time in which handles delivered, as far as their reports tell.
    active: Active,
    /// The figures of each drive for its own part, since it was started.
    at_drives: BTreeMap<DriveId, PromiseRow>,
}

/// The target of a reservation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A file or directory that exists.
    Node(FileId),
    /// Whatever has this name in a directory.
    Name(FileId, Vec<u8>),
}

/// The table of reservations.
#[derive(Debug, Default)]
pub struct Reservations {
    all: BTreeMap<ReservationId, Reservation>,
    by_target: BTreeMap<(DataDirection, Target), ReservationId>,
    /// Files without a name that are open under a reservation, which no place tells.
    unnamed: BTreeMap<FileId, ReservationId>,
}

impl Reservation {
    /// A reservation of which nothing was reported yet.
    pub fn new(record: ReservationRecord) -> Reservation {
        Reservation {
            record,
            risk: String::new(),
            reported: BTreeMap::new(),
            handles: BTreeMap::new(),
            reports: 0,
            before: Lateness::NONE,
            active: Active::default(),
            at_drives: BTreeMap::new(),
        }
    }

    /// The sum of what clients have reported, with the causes that drives have told.
    pub fn lateness(&self) -> Lateness {
        let mut sum = self.before;
        self.reported.values().for_each(|(_, report)| add(&mut sum, report));
        sum.active_ms = self.active.ms();
        for told in self.at_drives.values() {
            sum.beyond_rate = sum.beyond_rate.saturating_add(told.beyond_rate);
            sum.in_queue = sum.in_queue.saturating_add(told.in_queue);
            sum.at_disk = sum.at_disk.saturating_add(told.at_disk);
        }
        sum
    }
}

impl Target {
    /// The target of a record.
    pub fn of(record: &ReservationRecord) -> Target {
        match record.file {
            FileId(0) => Target::Name(record.parent, record.name.clone()),
            file => Target::Node(file),
        }
    }

    /// The target that a place names. A directory, or a file that is to be read, must exist. A rate for
    /// writing is for the name: a copy replaces the file that has it.
    pub fn find(tx: &Tx, at: &NamePlace, direction: DataDirection) -> Result<Target, Refusal> {
        if direction == DataDirection::Write && !at.path.is_empty() {
            let slot = slot(tx, at)?;
            if slot.entry.is_none_or(|entry| entry.kind == EntryKind::File) {
                return Ok(Target::Name(slot.directory.file, slot.name.to_vec()));
            }
        }
        let found = resolve_to_end(tx, at)?.changeable(at)?;
        match found.inode.kind {
            EntryKind::File | EntryKind::Directory => Ok(Target::Node(found.file)),
            _ => Err(Refusal::new(Reason::NotFile, "a rate is reserved for a file, a directory or a volume")),
        }
    }
}

impl Reservations {
    /// Takes a reservation in, or its changed record.
    pub fn put(&mut self, record: ReservationRecord) {
        let id = record.reservation;
        self.by_target.insert((record.direction, Target::of(&record)), id);
        match self.all.entry(id) {
            Entry::Occupied(mut known) => known.get_mut().record = record,
            Entry::Vacant(new) => drop(new.insert(Reservation::new(record))),
        }
    }

    /// Takes a reservation out.
    pub fn end(&mut self, id: ReservationId) -> Option<Reservation> {
        let ended = self.all.remove(&id)?;
        self.by_target.remove(&(ended.record.direction, Target::of(&ended.record)));
        Some(ended)
    }

    /// Returns true if no reservation is in force.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The reservation of this number.
    pub fn get(&self, id: ReservationId) -> Result<&Reservation, Refusal> {
        self.all.get(&id).ok_or_else(|| no_reservation(id))
    }

    /// The reservation of exactly this target.
    pub fn at(&self, direction: DataDirection, target: &Target) -> Option<&Reservation> {
        self.by_target.get(&(direction, target.clone())).and_then(|id| self.all.get(id))
    }

    /// All reservations, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Reservation> {
        self.all.values()
    }

    /// The numbers of the reservations after this one.
    pub fn after(&self, id: ReservationId) -> impl Iterator<Item = ReservationId> {
        self.all.range((Bound::Excluded(id), Bound::Unbounded)).map(|(id, _)| *id)
    }

    /// Sets the reason why a reservation's rate may not be kept.
    pub fn set_risk(&mut self, id: ReservationId, risk: String) {
        if let Some(reservation) = self.all.get_mut(&id) {
            reservation.risk = risk;
        }
    }

    /// The reservation that a file is under: its own, or that of the nearest directory above it.
    pub fn over_file(
        &self,
        tx: &Tx,
        direction: DataDirection,
        file: FileId,
        inode: &InodeRecord,
    ) -> Result<Option<&ReservationRecord>, Refusal> {
        if self.all.is_empty() {
            return Ok(None);
        }
        if let Some(found) = self.at(direction, &Target::Node(file)) {
            return Ok(Some(&found.record));
        }
        if !inode.is_named() {
            let known = self.unnamed.get(&file).and_then(|id| self.all.get(id));
            return Ok(known
                .map(|known| &known.record)
                .filter(|record| record.direction == direction && record.volume == inode.volume));
        }
        self.over_name(tx, direction, inode.parent, &inode.name)
    }

    /// Notes that a file without a name is open under a reservation.
    pub fn is_under(&mut self, file: FileId, id: ReservationId) {
        if self.all.contains_key(&id) {
            self.unnamed.insert(file, id);
        }
    }

    /// Forgets the files without a name of which `lives` is false.
    pub fn forget_unnamed(&mut self, lives: impl Fn(FileId) -> bool) {
        self.unnamed.retain(|file, id| self.all.contains_key(id) && lives(*file));
    }

    /// Files without a name that are open under a reservation.
    pub fn unnamed(&self) -> Vec<FileId> {
        self.unnamed.keys().copied().collect()
    }

    /// The reservation that what gets this name will be under.
    pub fn over_name(
        &self,
        tx: &Tx,
        direction: DataDirection,
        directory: FileId,
        name: &[u8],
    ) -> Result<Option<&ReservationRecord>, Refusal> {
        if self.all.is_empty() {
            return Ok(None);
        }
        let mut name = name.to_vec();
        let mut above = directory;
        for _ in 0..DEPTH_MAX {
            let targets = [Target::Name(above, name), Target::Node(above)];
            if let Some(found) = targets.iter().find_map(|target| self.at(direction, target)) {
                return Ok(Some(&found.record));
            }
            let inode = inodes::get(tx, above)?;
            // The root has no directory above it.
            if inode.parent == FileId(0) {
                return Ok(None);
            }
            above = inode.parent;
            name = inode.name;
        }
        Ok(None)
    }

    /// The reservation for writing that a new file at this place will be under; `None` too if there is no
    /// such place: the request that makes the file says so.
    pub fn over_new(&self, tx: &Tx, at: &NamePlace) -> Result<Option<&ReservationRecord>, Refusal> {
        if self.all.is_empty() || at.path.is_empty() {
            return Ok(None);
        }
        let Ok(slot) = slot(tx, at) else { return Ok(None) };
        self.over_name(tx, DataDirection::Write, slot.directory.file, slot.name)
    }

    /// Takes what a drive says of its part in reservations, in place of what it said last.
    pub fn told_by_drive(&mut self, drive: DriveId, rows: &[PromiseRow]) {
        for row in rows {
            if let Some(reservation) = self.all.get_mut(&row.reservation) {
                reservation.at_drives.insert(drive, row.clone());
            }
        }
    }

    /// Takes a handle's report at this time, in place of its last one. The handle was active until now, as it
    /// reports soon: a time in which several were counts once, so that bytes over time are the rate of all.
    pub fn report(&mut self, report: &LatenessReport, now_ms: u64) -> Result<(), Refusal> {
        let reservation =
            self.all.get_mut(&report.reservation).ok_or_else(|| no_reservation(report.reservation))?;
        reservation.reports += 1;
        let number = reservation.reports;
        let mut active_before = 0;
        if let Some((before, last)) = reservation.reported.insert(report.handle, (number, report.total)) {
            reservation.handles.remove(&before);
            active_before = last.active_ms;
        }
        let active_ms = report.total.active_ms.saturating_sub(active_before);
        reservation.active.add(now_ms.saturating_sub(active_ms), now_ms);
        reservation.handles.insert(number, report.handle);
        // The handle that has been silent the longest is forgotten: it is closed, and reports no more, so
        // nothing is counted twice.
        if reservation.handles.len() > HANDLES_MAX
            && let Some((_, silent)) = reservation.handles.pop_first()
            && let Some((_, last)) = reservation.reported.remove(&silent)
        {
            add(&mut reservation.before, &last);
        }
        Ok(())
    }
}

/// The refusal of a request about a reservation that is not in force.
fn no_reservation(id: ReservationId) -> Refusal {
    let detail = format!("there is no reservation {id}: it has ended, or never was (braid reserve ls)");
    Refusal::new(Reason::NotFound, detail)
}

/// Adds figures of another handle or a later time, but for the active time.
fn add(sum: &mut Lateness, more: &Lateness) {
    sum.bytes = sum.bytes.saturating_add(more.bytes);
    sum.periods = sum.periods.saturating_add(more.periods);
    sum.late_periods = sum.late_periods.saturating_add(more.late_periods);
    sum.worst_us = sum.worst_us.max(more.worst_us);
    sum.paused_periods = sum.paused_periods.saturating_add(more.paused_periods);
    sum.paused_us = sum.paused_us.max(more.paused_us);
    sum.beyond_rate = sum.beyond_rate.saturating_add(more.beyond_rate);
    sum.in_queue = sum.in_queue.saturating_add(more.in_queue);
    sum.at_disk = sum.at_disk.saturating_add(more.at_disk);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_layout::{ClientId, DriveId, VolumeId};
    use braid_wire::control::{NewAttributes, ShapeSpec};

    use super::*;
    use crate::records::db::Db;
    use crate::records::memory::MemoryKv;
    use crate::records::schema::DriveShare;
    use crate::tree::directories::{self, Parents};
    use crate::tree::volumes;

    const SHAPE: ShapeSpec = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 };
    const NEW: NewAttributes = NewAttributes { mode: 0o755, uid: 0, gid: 0 };

    fn at(path: &str) -> NamePlace {
        NamePlace::of("v", path)
    }

    /// A volume with the directory `a/b`.
    fn tree() -> Db {
        let db = Db::new(Arc::new(MemoryKv::new()));
        db.write(|tx| {
            volumes::create(tx, "v", SHAPE, 0, 0)?;
            directories::make(tx, &at("a/b"), &NEW, Parents::Made, 0)?;
            Ok(())
        })
        .expect("written");
        db
    }

    fn share(drive: u128, rate: u64) -> DriveShare {
        DriveShare { drive: DriveId(drive), rate, burst: rate * 2 }
    }

    fn record(id: u64, direction: DataDirection, target: &Target) -> ReservationRecord {
        let (file, parent, name) = match target.clone() {
            Target::Node(file) => (file, FileId(0), Vec::new()),
            Target::Name(parent, name) => (FileId(0), parent, name),
        };
        ReservationRecord {
            reservation: ReservationId(id),
            volume: VolumeId(1),
            file,
            parent,
            name,
            path: Vec::new(),
            direction,
            rate: 1000,
            streams: 1,
            period_ms: 100,
            survive: 1,
            rail: 0,
            client: ClientId::NONE,
            begun_ms: 0,
            ends_ms: 10_000,
            claim_until_ms: 5000,
            shape: SHAPE,
            drives: vec![DriveId(1), DriveId(2), DriveId(3)],
            booked: [(1, 500), (2, 700), (3, 0)].map(|(drive, rate)| share(drive, rate)).to_vec(),
            operation_bytes: 4096,
            buffer_bytes: 0,
            lateness_us: 0,
            failover_us: 0,
            start_us: 0,
        }
    }

    /// The reservation that a new file at this place would be under.
    fn over(table: &Reservations, db: &Db, path: &str) -> Option<u64> {
        db.read(|tx| Ok(table.over_new(tx, &at(path))?.map(|record| record.reservation.0))).expect("read")
    }

    #[test]
    fn the_nearest_reservation_counts_and_only_in_its_direction() {
        let db = tree();
        let target =
            |path: &str, direction| db.read(|tx| Target::find(tx, &at(path), direction)).expect("found");
        let mut table = Reservations::default();
        assert_eq!(over(&table, &db, "a/b/f"), None);
        let write = DataDirection::Write;
        table.put(record(1, write, &target("", write)));
        table.put(record(2, write, &target("a", write)));
        table.put(record(3, DataDirection::Read, &target("a/b", DataDirection::Read)));
        let file = target("a/b/cam", write);
        assert!(matches!(&file, Target::Name(_, name) if name == b"cam"), "a name that nothing has yet");
        table.put(record(4, write, &file));
        for (path, expected) in [("f", 1), ("a/f", 2), ("a/b/f", 2), ("a/b/cam", 4)] {
            assert_eq!(over(&table, &db, path), Some(expected), "{path}");
        }
        assert_eq!(over(&table, &db, "nowhere/f"), None, "the request that makes it says what is wrong");
        assert!(table.end(ReservationId(2)).is_some() && table.end(ReservationId(2)).is_none());
        assert_eq!(over(&table, &db, "a/b/f"), Some(1), "the next one above");
        table.end(ReservationId(1));
        assert_eq!(over(&table, &db, "a/b/f"), None, "nothing up to the root");
    }

    #[test]
    fn what_does_not_exist_is_reserved_for_writing_only() {
        let db = tree();
        let found = |path: &str, direction| db.read(|tx| Target::find(tx, &at(path), direction));
        assert!(found("a/new", DataDirection::Write).is_ok());
        assert!(found("a/new", DataDirection::Read).is_err());
        assert!(found("nowhere/new", DataDirection::Write).is_err());
    }

    #[test]
    fn a_promise_is_for_booked_drives() {
        let record = record(1, DataDirection::Write, &Target::Node(FileId(7)));
        let carried = |drive| {
            let promise = record.promise(DriveId(drive));
            [promise.rate, promise.burst]
        };
        assert_eq!([1, 2].map(carried), [[500, 1000], [700, 1400]], "to each its own");
        for unasked in [3, 9] {
            assert_eq!(record.promise(DriveId(unasked)), braid_wire::capability::Promise::NONE);
        }
    }

    #[test]
    fn a_repeated_report_counts_once() {
        let mut table = Reservations::default();
        table.put(record(1, DataDirection::Write, &Target::Node(FileId(7))));
        let report = |handle, bytes, late_periods| {
            let total = Lateness { bytes, periods: 10, late_periods, ..Lateness::NONE };
            LatenessReport { reservation: ReservationId(1), handle, total }
        };
        for (handle, bytes, late) in [(1, 100, 0), (2, 50, 1), (1, 300, 2), (1, 300, 2)] {
            table.report(&report(handle, bytes, late), 0).expect("known");
        }
        let sum = table.get(ReservationId(1)).expect("known").lateness();
        assert_eq!((sum.bytes, sum.periods, sum.late_periods), (350, 20, 3));
        for (drive, in_queue) in [(1, 2), (2, 5), (1, 3)] {
            let reservation = ReservationId(1);
            let row = PromiseRow { reservation, late: 9, beyond_rate: 1, in_queue, at_disk: 0, worst_us: 7 };
            table.told_by_drive(DriveId(drive), &[row]);
        }
        let sum = table.get(ReservationId(1)).expect("known").lateness();
        assert_eq!(
            (sum.late_periods, sum.beyond_rate, sum.in_queue),
            (3, 2, 8),
            "each drive's last word counts"
        );
        table.end(ReservationId(1));
        assert_eq!(table.report(&report(1, 1, 0), 0).expect_err("it has ended").reason, Reason::NotFound);
    }

    #[test]
    fn what_handles_deliver_at_the_same_time_is_the_rate_of_all() {
        let mut table = Reservations::default();
        table.put(record(1, DataDirection::Read, &Target::Node(FileId(7))));
        // Two seconds of 16 handles, of which each delivers 10 MB a second; then one that goes on alone.
        for (second, handles) in [(2, 16), (4, 16), (6, 1)] {
            for handle in 0..handles {
                let total =
                    Lateness { bytes: second * 10_000_000, active_ms: second * 1000, ..Lateness::NONE };
                let now_ms = second * 1000 + handle;
                table
                    .report(&LatenessReport { reservation: ReservationId(1), handle, total }, now_ms)
                    .expect("known");
            }
        }
        let sum = table.get(ReservationId(1)).expect("known").lateness();
        assert_eq!((sum.bytes, sum.active_ms), (660_000_000, 6000));
    }

    #[test]
    fn reports_of_many_handles_are_summed_up() {
        let mut table = Reservations::default();
        table.put(record(1, DataDirection::Read, &Target::Node(FileId(7))));
        let handles = u64::try_from(HANDLES_MAX).expect("few") + 10;
        for handle in 0..handles {
            let total = Lateness { bytes: 2, ..Lateness::NONE };
            table.report(&LatenessReport { reservation: ReservationId(1), handle, total }, 0).expect("known");
            // One that still reports is not forgotten, and counts once.
            table
                .report(&LatenessReport { reservation: ReservationId(1), handle: 0, total }, 0)
                .expect("known");
        }
        let reservation = table.get(ReservationId(1)).expect("known");
        assert_eq!((reservation.reported.len(), reservation.lateness().bytes), (HANDLES_MAX, 2 * handles));
    }
}
