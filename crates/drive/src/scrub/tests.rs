use braid_layout::FileId;

use super::*;

const MIB: u64 = 1 << 20;

fn at(unit: u64) -> Position {
    Position { partition: PartitionId(1), object: ObjectId(1), unit }
}

fn damaged(unit: u64) -> DamagedUnit {
    let Position { partition, object, .. } = at(0);
    DamagedUnit { partition, object, unit: Some(unit), file: FileId(1), what: "wrong".to_owned() }
}

/// The figures of a store with this many live bytes.
fn live(bytes: u64) -> Stat {
    Stat { live: bytes, ..Stat::default() }
}

/// A drive with `units` units of `unit_bytes`, some of them wrong, and a clock that is set by hand.
struct Drive {
    scrub: Scrub,
    now: Moment,
    units: u64,
    unit_bytes: u64,
    wrong: Vec<u64>,
    files: (Vec<WrongFile>, u64),
    read: u64,
}

impl Drive {
    fn new(own_rate: u64, units: u64, unit_bytes: u64) -> Drive {
        let scrub = Scrub::new(Progress::default(), own_rate);
        Drive {
            scrub,
            now: Moment(5_000),
            units,
            unit_bytes,
            wrong: Vec::new(),
            files: Default::default(),
            read: 0,
        }
    }

    fn step(&self, from: Position) -> Step {
        let unit = from.unit;
        Step {
            bytes: self.unit_bytes,
            units: 1,
            files: (unit == 0).then(|| self.files.clone()),
            damaged: self.wrong.iter().filter(|&&wrong| wrong == unit).map(|_| damaged(unit)).collect(),
            next: (unit + 1 < self.units).then(|| at(unit + 1)),
        }
    }

    /// Lets `for_ms` milliseconds pass, one by one.
    fn run(&mut self, for_ms: u64, clients: Clients) {
        for _ in 0..for_ms {
            let manager_ms = self.now.0;
            while let Next::Verify { turn, from } = self.scrub.poll(self.now, Some(manager_ms)) {
                let step = self.step(from);
                self.read += step.bytes;
                self.scrub.handle_step(turn, step, clients, self.now, manager_ms);
            }
            self.now.0 += 1;
        }
    }
}

#[test]
fn a_pass_keeps_to_its_rate_and_to_a_quarter_of_it_beside_clients() {
    for (rate, unit_bytes) in [(50 * MIB, 512 << 10), (MIB, 4096), (8 * MIB, 64 * MIB), (1000, 4096)] {
        for (clients, cost) in [(Clients::Idle, 1), (Clients::Busy, 4)] {
            let mut drive = Drive::new(0, u64::MAX, unit_bytes);
            drive.scrub.handle_start(rate, 5_000);
            drive.run(20_000, clients);
            let due = rate * 20 / cost;
            // One unit may be read ahead of its time.
            assert!(drive.read <= due + unit_bytes, "{} of {due} at {rate}", drive.read);
            assert!(drive.read + unit_bytes >= due * 9 / 10, "{} of {due} at {rate}", drive.read);
        }
    }
}

#[test]
fn time_without_the_lease_is_neither_used_nor_saved_up() {
    let mut drive = Drive::new(0, u64::MAX, 4096);
    drive.scrub.handle_start(MIB, 5_000);
    drive.run(1000, Clients::Idle);
    let before = drive.read;
    for _ in 0..60_000 {
        assert_eq!(drive.scrub.poll(drive.now, None), Next::Wait(PAUSED_MS));
        drive.now.0 += 1;
    }
    assert_eq!(drive.scrub.state(&live(0)).phase, ScrubPhase::Paused);
    drive.run(1000, Clients::Idle);
    assert!(drive.read - before <= MIB + 2 * 4096, "{}", drive.read - before);
    assert_eq!(drive.scrub.state(&live(0)).phase, ScrubPhase::Running);
}

#[test]
fn a_new_rate_counts_from_now() {
    let mut drive = Drive::new(0, u64::MAX, MIB);
    drive.scrub.handle_start(MIB, 5_000);
    drive.run(10_000, Clients::Idle);
    drive.scrub.handle_start(10 * MIB, 15_000);
    let before = drive.read;
    drive.run(10_000, Clients::Idle);
    assert!((90 * MIB..=101 * MIB).contains(&(drive.read - before)), "{}", drive.read - before);
    assert_eq!(drive.scrub.state(&live(0)).units, drive.read / MIB, "it goes on where it was");
}

#[test]
fn the_drives_own_passes_rest_in_between_and_an_asked_one_takes_their_place() {
    let mut drive = Drive::new(MIB, 4, MIB);
    drive.run(2_500, Clients::Idle);
    let state = drive.scrub.state(&live(4 * MIB));
    assert_eq!((state.phase, state.asked, state.units), (ScrubPhase::Running, false, 3));
    drive.scrub.handle_start(4 * MIB, drive.now.0);
    assert_eq!(drive.scrub.state(&live(4 * MIB)).units, 0, "from the beginning");
    drive.run(2_000, Clients::Idle);
    let state = drive.scrub.state(&live(4 * MIB));
    assert_eq!((state.phase, state.passes, state.units), (ScrubPhase::Idle, 1, 4));
    assert!(matches!(drive.scrub.poll(drive.now, Some(drive.now.0)), Next::Wait(1..=REST_MS)));
    drive.now.0 += REST_MS;
    assert!(matches!(drive.scrub.poll(drive.now, Some(drive.now.0)), Next::Verify { .. }));
    assert!(!drive.scrub.state(&live(0)).asked);
    let mut off = Drive::new(0, 4, MIB);
    off.run(100, Clients::Idle);
    assert_eq!((off.read, off.scrub.state(&live(0)).phase), (0, ScrubPhase::Idle));
}

#[test]
fn a_step_of_an_earlier_pass_is_not_counted() {
    let mut drive = Drive::new(MIB, 10, MIB);
    let Next::Verify { turn, from } = drive.scrub.poll(drive.now, Some(1)) else { panic!() };
    drive.scrub.handle_start(MIB, 2);
    let mut late = drive.step(from);
    late.next = None;
    assert!(!drive.scrub.handle_step(turn, late, Clients::Idle, drive.now, 3));
    let state = drive.scrub.state(&live(0));
    assert_eq!((state.phase, state.units, state.passes), (ScrubPhase::Running, 0, 0));
}

#[test]
fn what_is_damaged_is_listed_until_a_whole_pass_does_not_find_it() {
    let mut drive = Drive::new(0, 10, 1000);
    drive.wrong = vec![3, 7];
    drive.scrub.handle_start(10_000, 1);
    drive.run(2_000, Clients::Idle);
    let found = |drive: &Drive| -> Vec<u64> {
        drive.scrub.report(&live(0), Vec::new()).damaged.iter().filter_map(|unit| unit.unit).collect()
    };
    assert_eq!((found(&drive), drive.scrub.state(&live(0)).damaged), (vec![3, 7], 2));
    drive.wrong = vec![7, 8];
    drive.scrub.handle_start(10_000, 2);
    drive.run(350, Clients::Idle);
    assert_eq!(found(&drive), [3, 7], "not verified again yet");
    drive.run(2_000, Clients::Idle);
    assert_eq!(found(&drive), [7, 8]);
    assert_eq!(drive.scrub.state(&live(0)).passes, 2);
}

#[test]
fn files_that_are_wrong_are_told_until_a_pass_finds_them_well() {
    let mut drive = Drive::new(0, 10, 1000);
    let file = WrongFile { name: "log/00000003.seg".to_owned(), what: "gone".to_owned() };
    drive.files = (vec![file.clone()], 7);
    drive.scrub.handle_start(10_000, 1);
    drive.run(2_000, Clients::Idle);
    let report = drive.scrub.report(&live(0), Vec::new());
    assert_eq!((report.files, report.state.wrong_files), (vec![file], 7));
    drive.files = Default::default();
    drive.scrub.handle_start(10_000, 2);
    drive.run(2_000, Clients::Idle);
    assert_eq!(drive.scrub.state(&live(0)).wrong_files, 0);
}

#[test]
fn the_list_of_damage_is_bounded_and_the_rest_is_counted() {
    let most = u64::try_from(SCRUB_DAMAGED_MAX).unwrap();
    let mut drive = Drive::new(0, most + 50, 1);
    drive.wrong = (0..most + 50).collect();
    for _ in 0..2 {
        drive.scrub.handle_start(1 << 30, 1);
        drive.run(400, Clients::Idle);
        let report = drive.scrub.report(&live(0), Vec::new());
        assert_eq!((report.damaged.len(), report.state.damaged), (SCRUB_DAMAGED_MAX, most + 50));
    }
}

#[test]
fn a_restart_goes_on_where_it_was() {
    let mut drive = Drive::new(0, 100, MIB);
    drive.scrub.handle_start(MIB, 1);
    drive.run(10_000, Clients::Idle);
    let before = drive.scrub.state(&live(0));
    drive.scrub = Scrub::new(drive.scrub.progress().clone(), 0);
    assert_eq!(drive.scrub.state(&live(0)).units, before.units);
    let Next::Verify { from, .. } = drive.scrub.poll(drive.now, Some(9)) else { panic!() };
    assert_eq!(from, at(before.units));
}
