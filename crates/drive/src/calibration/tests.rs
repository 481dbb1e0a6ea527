use std::sync::atomic::AtomicU64;

use braid_store::disk::memory::Memory;
use braid_store::disk::modelled::{Device, Modelled, Time};

use super::measure::{SHORT, WHOLE, measure};
use super::*;

/// Time that stands still but for sleeping.
#[derive(Debug, Clone, Default)]
struct Still(Arc<AtomicU64>);

impl Time for Still {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep_until(&self, ns: u64) {
        self.0.fetch_max(ns, Ordering::SeqCst);
    }
}

fn device(charge: Charge, operation_ns: u64, bytes_per_second: u64, sync_ns: u64) -> DeviceCost {
    let way = DirectionCost { operation_ns, bytes_per_second };
    DeviceCost { charge, read: way, write: way, sync_ns }
}

fn run(cost: DeviceCost, effort: &measure::Effort) -> std::io::Result<Measured> {
    let time = Still::default();
    let device = Arc::new(Device::in_time(cost, Box::new(time.clone())));
    measure(&Modelled::new(Memory::new(1), device), &time, effort, &|_| {})
}

fn near(found: u64, expected: u64) {
    assert!(found.abs_diff(expected) <= expected / 10, "{found} is not near {expected}");
}

#[test]
fn a_disk_is_found_to_cost_what_it_does() {
    let flash = device(Charge::Larger, 100_000, 480_000_000, 500_000);
    let spindle = device(Charge::Sum, 8_000_000, 200_000_000, 1_000_000);
    // Three sizes do not tell a slow head from flash: what the system says does.
    let hint = Some(Charge::Sum);
    for (cost, effort, hint) in
        [(flash, &WHOLE, None), (spindle, &WHOLE, None), (flash, &SHORT, None), (spindle, &SHORT, hint)]
    {
        let measured = run(cost, effort).expect("measured");
        let found = cost_of(&judge(&measured, None, hint, 7).expect("a cost").disk);
        assert_eq!(found.charge, cost.charge);
        for direction in [Direction::Read, Direction::Write] {
            for bytes in [4 << 10, 48_000, 1 << 20] {
                near(found.time_ns(direction, bytes), cost.time_ns(direction, bytes));
            }
        }
        near(found.sync_ns, cost.sync_ns);
    }
}

#[test]
fn a_disk_that_is_too_slow_for_a_short_run_ends_it() {
    let tape = device(Charge::Sum, 900_000_000, 10_000_000, 0);
    let error = run(tape, &SHORT).expect_err("too slow");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}

fn result(device: &DeviceCost, points: usize) -> DriveCost {
    let way = Default::default();
    let point = CurvePoint { write: false, bytes: 1, operation_ns: 1 };
    DriveCost {
        disk: told(device),
        read_processor: way,
        write_processor: way,
        measured_ms: 1,
        points: vec![point; points],
    }
}

#[test]
fn what_is_far_from_the_last_result_is_refused_in_either_direction_and_the_last_one_stays() {
    let usual = device(Charge::Larger, 100_000, 480_000_000, 500_000);
    let slow = device(Charge::Larger, 1_000_000, 48_000_000, 500_000);
    let measured = run(slow, &WHOLE).expect("measured");
    let why = judge(&measured, Some(&result(&usual, 12)), None, 9).expect_err("far off");
    assert!(why.contains("--anew") && why.contains("reads of 4 KiB"), "{why}");
    assert!(judge(&measured, Some(&result(&usual, 6)), None, 9).is_ok(), "a short run is too rough");
    let fast = run(usual, &WHOLE).expect("measured");
    assert!(judge(&fast, Some(&result(&slow, 12)), None, 9).is_err(), "too good");
    let mut calibration = Calibration::new(Some(result(&usual, 12)), None, 0);
    calibration.handle_end(Err(why.clone()));
    let parts = calibration.parts();
    assert_eq!(device_cost(&parts), Some(usual));
    assert_eq!((parts.cost, parts.refused), (Some(result(&usual, 12)), why));
    let anew = judge(&measured, None, None, 9).expect("another disk");
    calibration.handle_end(Ok(anew.clone()));
    let parts = calibration.parts();
    assert_eq!((parts.cost, parts.refused.as_str()), (Some(anew), ""));
}

#[test]
fn a_drive_in_use_is_not_calibrated() {
    let mut calibration = Calibration::new(None, None, 0);
    calibration.handle_traffic((5, 0), Moment(0));
    let ask = |calibration: &mut Calibration, traffic, ms| {
        calibration.handle_request(CalibrateAct::Start, traffic, Moment(ms))
    };
    assert_eq!(ask(&mut calibration, (5, 0), IN_USE_MS - 1).unwrap_err().reason, Reason::DriveInUse);
    assert_eq!(ask(&mut calibration, (5, 1), IN_USE_MS).unwrap_err().reason, Reason::DriveInUse);
    assert!(!calibration.state().running && calibration.poll().is_none());
    ask(&mut calibration, (5, 1), 2 * IN_USE_MS).expect("nobody uses it");
    assert!(calibration.state().running);
    assert_eq!(calibration.poll().expect("it begins").0, Before::Counts);
    ask(&mut calibration, (9, 9), 2 * IN_USE_MS).expect("it runs already");
    assert!(calibration.poll().is_none());
    calibration.handle_end(Err("why".to_owned()));
    assert_eq!((calibration.state().running, calibration.state().ended), (false, 1));
}
