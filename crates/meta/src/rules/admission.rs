//! Admission of a process as a drive, and the check that its disk is as new as it was. A pure machine: its
//! inputs are the record, the heartbeat, and whether the last process has surely ended.
//!
//! One process at a time is a drive. The manager numbers the processes that it admits (*instances*). A
//! process stores its number in its directory and reports it back before it gets a lease. So the directory
//! with the last number reported back is the one that served last. A directory with a lower number is a copy,
//! or was put back to an older state. (A process that died before it reported back has served nothing.) A
//! process that is not the one on record is admitted only when that one has surely ended. If the one on
//! record is heard again instead, the newcomer is told to stop.
//!
//! Every heartbeat reports the drive's log position. If it is lower than before, the drive has lost what it
//! acknowledged. Such a drive, and one whose number is lower, is *behind*: none of its columns counts until
//! it is caught up. A heartbeat may come late, after a newer one on another connection. So a process is not
//! admitted again once it has said that it stops, nor once another has followed it after it had reported its
//! number back. And a lower log position of a process that has reported a higher one already is ignored.
//!
//! Between two heartbeats receipts say how far the log was (`receipts`). A new process of the drive must have
//! come as far as they say. Receipts are brought by writers: one is ignored if the process on record
//! disproves it, as it has not come so far two heartbeats later. Otherwise any client that may write a file
//! could have a drive put out.

use std::collections::{BTreeMap, VecDeque};

use braid_layout::DriveId;
use braid_wire::control::Heartbeat;

use crate::records::schema::DriveRecord;

/// Maximum number of former processes of a drive that are remembered.
const FORMER_MAX: usize = 16;

/// State of the drives' processes in this term, beyond their records.
#[derive(Debug, Default)]
pub struct Admissions {
    drives: BTreeMap<DriveId, Known>,
}

#[derive(Debug, Clone, Default)]
struct Known {
    /// Highest log position heard. It is stored now and then: see [`Admissions::due`].
    log: u64,
    /// Start number of the process that reported this position.
    log_of: u64,
    /// Log position according to receipts that came before the drive's last heartbeat.
    receipt: u64,
    /// Log position according to receipts that came since that heartbeat.
    fresh: u64,
    /// True if a receipt was disproved that may be on record.
    disproved: bool,
    /// Process that asks to be the drive and is not the one on record.
    rival: Option<Rival>,
    /// The last processes that said that they stop, or that others followed after they had reported their
    /// numbers back. The oldest first.
    former: VecDeque<u64>,
}

impl Known {
    fn receipts(&self) -> u64 {
        self.receipt.max(self.fresh)
    }

    /// Records that a process has ended: it is not admitted again.
    fn end(&mut self, start: u64) {
        self.former.push_back(start);
        if self.former.len() > FORMER_MAX {
            self.former.pop_front();
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Rival {
    start: u64,
    /// True if the process on record was heard since: the rival is to stop.
    refused: bool,
}

/// State of the process on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// The process surely serves no more: its lease has lapsed, it has said that it stops, or its host says
    /// that it is gone.
    Over,
    /// The process may still serve.
    MayServe,
}

/// The judgement on a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// The sender is the drive; with the drive's record, changed or not.
    Drive(Box<DriveRecord>),
    /// The process on record may still serve: the sender is to ask again.
    Wait,
    /// Another process is the drive: the sender is to stop.
    Superseded,
}

impl Admissions {
    /// Judges a heartbeat of a drive that was not replaced.
    pub fn judge(&mut self, record: &DriveRecord, beat: &Heartbeat, last: Last) -> Ruling {
        let known = self.drives.entry(record.drive).or_default();
        known.log = known.log.max(record.log);
        let is_late = beat.start == known.log_of && beat.log < known.log;
        let mut record = record.clone();
        if beat.start != record.start {
            if !beat.restarted || known.former.contains(&beat.start) {
                return Ruling::Superseded;
            }
            match known.rival {
                Some(rival) if rival.start == beat.start && rival.refused => return Ruling::Superseded,
                _ => known.rival = Some(Rival { start: beat.start, refused: false }),
            }
            if record.start != 0 && last == Last::MayServe {
                return Ruling::Wait;
            }
            record.behind |= beat.instance < record.stored || beat.log < known.receipts();
            // A process that has not reported its number back may be alive: it may have been replaced on
            // record by a late heartbeat of a dead one.
            if record.stored == record.instance && record.start != 0 {
                known.end(record.start);
            }
            record.instance = record.instance.max(beat.instance).saturating_add(1);
            record.start = beat.start;
            known.rival = None;
        } else if !is_late {
            if let Some(rival) = &mut known.rival {
                rival.refused = true;
            }
            // These receipts came before the previous heartbeat was answered, and this one was sent after
            // that: so the log must have come as far.
            if beat.log < known.receipt {
                (known.receipt, known.disproved) = (0, true);
            }
            (known.receipt, known.fresh) = (known.receipts(), 0);
        }
        if beat.instance == record.instance {
            record.stored = record.instance;
        }
        record.behind |= beat.log < known.log && !is_late;
        if !record.behind && !is_late {
            (known.log, known.log_of) = (beat.log, beat.start);
        }
        if beat.closing {
            known.end(beat.start);
        }
        Ruling::Drive(Box::new(record))
    }

    /// Takes a receipt of the drive that a writer has brought.
    pub fn handle_receipt(&mut self, drive: DriveId, log: u64) {
        let known = self.drives.entry(drive).or_default();
        known.fresh = known.fresh.max(log);
    }

    /// Highest log position according to receipts of the drive that were not disproved; 0: none.
    pub fn receipt(&self, drive: DriveId) -> u64 {
        self.drives.get(&drive).map_or(0, Known::receipts)
    }

    /// Log positions to be stored: those ahead of the record, and those of drives of which a receipt was
    /// disproved.
    pub fn due<'a>(&mut self, records: impl Iterator<Item = &'a DriveRecord>) -> Vec<(DriveId, u64)> {
        let of = |record: &DriveRecord| {
            let known = self.drives.get_mut(&record.drive)?;
            let is_due = std::mem::take(&mut known.disproved) || known.log > record.log;
            is_due.then_some((record.drive, known.log))
        };
        records.filter_map(of).collect()
    }

    /// Forgets the log position of a drive that was behind and whose columns are out now: the next heartbeat
    /// says it anew.
    pub fn handle_caught(&mut self, drive: DriveId) {
        if let Some(known) = self.drives.get_mut(&drive) {
            (known.log, known.receipt, known.fresh) = (0, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_wire::capability::Key;

    use super::*;
    use crate::rules::drives::examples::beat;

    /// A drive whose last process has reported its number back.
    fn record(start: u64, instance: u64, log: u64) -> DriveRecord {
        DriveRecord {
            drive: DriveId(1),
            name: "d".to_owned(),
            master: Key::new([1; 32]),
            confirmed: true,
            replaced_by: DriveId(0),
            addresses: "".into(),
            host: String::new(),
            rack: String::new(),
            directory: String::new(),
            capacity_bytes: 0,
            joined_ms: 0,
            instance,
            stored: instance,
            start,
            log,
            behind: false,
        }
    }

    fn said(start: u64, instance: u64, log: u64, restarted: bool) -> Heartbeat {
        Heartbeat { start, instance, log, restarted, ..beat("a:1") }
    }

    fn admitted(ruling: Ruling) -> (u64, u64, bool) {
        match ruling {
            Ruling::Drive(record) => (record.start, record.instance, record.behind),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_drive_that_starts_again_is_the_next_instance() {
        let mut admissions = Admissions::default();
        let first = admissions.judge(&record(0, 0, 0), &said(7, 0, 0, true), Last::MayServe);
        assert_eq!(admitted(first), (7, 1, false));
        let same = admissions.judge(&record(7, 1, 0), &said(7, 1, 5, false), Last::MayServe);
        assert_eq!(admitted(same), (7, 1, false));
        let next = said(8, 1, 5, true);
        assert_eq!(admissions.judge(&record(7, 1, 0), &next, Last::MayServe), Ruling::Wait);
        assert_eq!(admitted(admissions.judge(&record(7, 1, 0), &next, Last::Over)), (8, 2, false));
        // The process that was followed by this one is told to stop, should it wake up.
        let late = admissions.judge(&record(8, 2, 5), &said(7, 1, 5, false), Last::MayServe);
        assert_eq!(late, Ruling::Superseded);
    }

    #[test]
    fn late_heartbeats_are_of_no_disk_that_is_behind() {
        let mut admissions = Admissions::default();
        let was = admissions.judge(&record(7, 3, 5), &said(7, 3, 25, true), Last::Over);
        assert_eq!(admitted(was), (7, 3, false));
        // The drive goes on in another process, which has stored its number.
        assert_eq!(
            admitted(admissions.judge(&record(7, 3, 25), &said(8, 3, 26, true), Last::Over)),
            (8, 4, false)
        );
        let late = said(7, 3, 25, true);
        assert_eq!(admissions.judge(&record(8, 4, 26), &late, Last::Over), Ruling::Superseded);
        // Two heartbeats of the process arrive out of order.
        assert_eq!(
            admitted(admissions.judge(&record(8, 4, 26), &said(8, 4, 40, false), Last::Over)),
            (8, 4, false)
        );
        assert_eq!(
            admitted(admissions.judge(&record(8, 4, 26), &said(8, 4, 30, false), Last::Over)),
            (8, 4, false)
        );
        assert_eq!(
            admitted(admissions.judge(&record(8, 4, 26), &said(9, 4, 39, true), Last::Over)),
            (9, 5, true)
        );
    }

    #[test]
    fn who_has_said_that_it_stops_is_not_admitted_again() {
        let mut admissions = Admissions::default();
        let last = Heartbeat { closing: true, ..said(7, 3, 25, true) };
        assert_eq!(admitted(admissions.judge(&record(7, 3, 5), &last, Last::MayServe)), (7, 3, false));
        let late = admissions.judge(&record(0, 3, 25), &said(7, 3, 20, true), Last::Over);
        assert_eq!(late, Ruling::Superseded);
        let next = admissions.judge(&record(0, 3, 25), &said(8, 3, 25, true), Last::Over);
        assert_eq!(admitted(next), (8, 4, false));
    }

    #[test]
    fn a_late_heartbeat_disproves_no_receipt() {
        let mut admissions = Admissions::default();
        let mut beats = |log| admissions.judge(&record(7, 3, 0), &said(7, 3, log, false), Last::MayServe);
        beats(30);
        beats(40);
        admissions.handle_receipt(DriveId(1), 45);
        // The second of these heartbeats was sent before the log had come as far.
        for log in [30, 42] {
            let own = admissions.judge(&record(7, 3, 0), &said(7, 3, log, false), Last::MayServe);
            assert_eq!(admitted(own), (7, 3, false));
        }
        assert_eq!(admissions.receipt(DriveId(1)), 45);
        let next = admissions.judge(&record(7, 3, 0), &said(8, 3, 42, true), Last::Over);
        assert_eq!(admitted(next), (8, 4, true), "it has lost what it acknowledged");
    }

    #[test]
    fn who_was_followed_before_he_had_a_number_comes_again() {
        let mut admissions = Admissions::default();
        let Ruling::Drive(offered) = admissions.judge(&record(7, 3, 5), &said(9, 3, 5, true), Last::Over)
        else {
            panic!("admitted")
        };
        // A heartbeat of a process that started earlier, and has died.
        let Ruling::Drive(late) = admissions.judge(&offered, &said(8, 3, 5, true), Last::Over) else {
            panic!("it cannot be told")
        };
        let again = admissions.judge(&late, &said(9, 3, 5, true), Last::Over);
        assert_eq!(admitted(again), (9, 6, false));
    }

    #[test]
    fn a_process_that_died_before_it_stored_its_number_has_lost_nothing() {
        let mut admissions = Admissions::default();
        let Ruling::Drive(offered) = admissions.judge(&record(7, 3, 5), &said(8, 3, 5, true), Last::Over)
        else {
            panic!("admitted")
        };
        assert_eq!((offered.instance, offered.stored), (4, 3));
        // The next one comes from the same directory.
        let Ruling::Drive(next) = admissions.judge(&offered, &said(9, 3, 5, true), Last::Over) else {
            panic!("admitted")
        };
        assert_eq!((next.instance, next.stored, next.behind), (5, 3, false));
        let Ruling::Drive(back) = admissions.judge(&next, &said(9, 5, 5, true), Last::MayServe) else {
            panic!("it is the drive")
        };
        assert_eq!((back.instance, back.stored, back.behind), (5, 5, false));
        // From now on the directory with the lower number is older.
        assert_eq!(admitted(admissions.judge(&back, &said(10, 3, 5, true), Last::Over)), (10, 6, true));
    }

    #[test]
    fn of_two_directories_the_one_that_serves_stays() {
        let mut admissions = Admissions::default();
        let own = said(7, 3, 5, false);
        let copy = said(9, 3, 5, true);
        assert_eq!(admissions.judge(&record(7, 3, 5), &copy, Last::MayServe), Ruling::Wait);
        assert_eq!(admitted(admissions.judge(&record(7, 3, 5), &own, Last::MayServe)), (7, 3, false));
        assert_eq!(admissions.judge(&record(7, 3, 5), &copy, Last::MayServe), Ruling::Superseded);
    }

    #[test]
    fn a_copy_that_comes_after_the_drive_served_again_is_behind() {
        let mut admissions = Admissions::default();
        // The copy's log is as long, by writes of its own.
        let copy = said(9, 3, 500, true);
        assert_eq!(admitted(admissions.judge(&record(7, 4, 200), &copy, Last::Over)), (9, 5, true));
    }

    #[test]
    fn a_drive_must_come_back_with_what_a_receipt_said() {
        let said_100 = |receipt| {
            let mut admissions = Admissions::default();
            let was = admissions.judge(&record(7, 3, 0), &said(7, 3, 100, false), Last::MayServe);
            assert_eq!(admitted(was), (7, 3, false));
            admissions.handle_receipt(DriveId(1), receipt);
            admissions
        };
        let next = |admissions: &mut Admissions, log| {
            admitted(admissions.judge(&record(7, 3, 100), &said(8, 3, log, true), Last::Over))
        };
        assert_eq!(next(&mut said_100(104), 104), (8, 4, false));
        assert_eq!(next(&mut said_100(104), 103), (8, 4, true), "it has lost a record that it acknowledged");
        // A heartbeat that was on its way disproves nothing, the one after it does.
        let own = said(7, 3, 101, false);
        let mut admissions = said_100(104);
        let late = admissions.judge(&record(7, 3, 100), &own, Last::MayServe);
        assert_eq!((admitted(late), admissions.receipt(DriveId(1))), ((7, 3, false), 104));
        let far = admissions.judge(&record(7, 3, 100), &own, Last::MayServe);
        assert_eq!((admitted(far), admissions.receipt(DriveId(1))), ((7, 3, false), 0));
        assert_eq!(admissions.due([record(7, 3, 101)].iter()), [(DriveId(1), 101)]);
        assert!(admissions.due([record(7, 3, 101)].iter()).is_empty());
        // A receipt on record holds after a start of the manager too.
        let mut after = Admissions::default();
        after.handle_receipt(DriveId(1), 104);
        assert_eq!(next(&mut after, 103), (8, 4, true));
        after.handle_caught(DriveId(1));
        assert_eq!(
            admitted(after.judge(&record(8, 4, 0), &said(9, 4, 103, true), Last::Over)),
            (9, 5, false)
        );
    }

    #[test]
    fn a_log_that_has_come_less_far_is_behind_until_it_was_caught() {
        let mut admissions = Admissions::default();
        let again = said(7, 3, 99, false);
        assert_eq!(admitted(admissions.judge(&record(7, 3, 100), &again, Last::MayServe)), (7, 3, true));
        let far = said(7, 3, 200, false);
        assert_eq!(admitted(admissions.judge(&record(7, 3, 100), &far, Last::MayServe)), (7, 3, false));
        // The position is not on record yet, but was reported.
        let less = said(8, 3, 150, true);
        assert_eq!(admitted(admissions.judge(&record(7, 3, 100), &less, Last::Over)), (8, 4, true));
        assert_eq!(admissions.due([record(7, 3, 100)].iter()), [(DriveId(1), 200)]);
        admissions.handle_caught(DriveId(1));
        let after = admissions.judge(&record(8, 4, 0), &said(8, 4, 151, false), Last::MayServe);
        assert_eq!(admitted(after), (8, 4, false));
        assert_eq!(admissions.due([record(8, 4, 0)].iter()), [(DriveId(1), 151)]);
    }
}
