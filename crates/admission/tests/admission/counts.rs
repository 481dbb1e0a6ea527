//! Counts of plan sets: turned, scaled and bounded, against plan sets that are compiled as they are.

use braid_admission::{Access, Background, BackgroundRates, Demand, DriveParts, Ledger, Prices, Terms};
use braid_layout::{ColumnMask, DriveId, Generation, Segment};
use braid_plan::{Health, Target, Want};
use braid_schedule::Direction;

use crate::common::{MIB, admitted, ask, drive, ledger, of_segment, segment, shape, terms};

/// Bytes that each column is asked to read for one rotation, as compiled.
fn compiled(segment: &Segment, lost: ColumnMask) -> Vec<u64> {
    let shape = segment.shape;
    let mut health = Health::whole(&shape, Generation(1));
    health.set = health.set.minus(lost);
    let target = Target { segment, index: 0, health };
    let mut bytes = vec![0; usize::from(shape.width())];
    for stripe in 0..u64::from(shape.width()) {
        let range = stripe * shape.stripe_bytes()..(stripe + 1) * shape.stripe_bytes();
        let set = braid_plan::read(&target, range, 0, Want::Newest).expect("enough is left");
        for column in set.totals().columns {
            bytes[column.column.index()] += column.read_bytes;
        }
    }
    bytes
}

#[test]
fn lost_columns_cost_the_same_wherever_they_are() {
    let mut prices = Prices::default();
    for text in ["raid4:3+1", "raid5:4+1", "raid1:1+2", "rs(4,2)", "rs(3,3)"] {
        let shape = shape(text, 64 << 10);
        let segment = segment(shape, 0);
        for lost in 0..1_u64 << shape.width() {
            let lost = ColumnMask(lost);
            if lost.count() > u32::from(shape.m()) {
                assert!(prices.counted(shape, lost, Direction::Read, Access::Whole).is_err());
                continue;
            }
            let counted =
                prices.counted(shape, lost, Direction::Read, Access::Whole).expect("enough is left");
            let rotation = u64::from(shape.width()) * shape.stripe_bytes();
            let times = rotation / counted.file_bytes();
            let columns = 0..shape.width();
            let read: Vec<u64> =
                columns.map(|column| counted.column(column).out_bytes * counted.scale() * times).collect();
            assert_eq!(read, compiled(&segment, lost), "{text} without {lost}");
        }
    }
}

#[test]
fn many_sets_cost_no_more_than_the_bound() {
    // Of 14 columns 4 may be lost: 1,470 sets. With as many lost as are redundant every other column is read
    // in every stripe, which is the bound.
    let rs =
        |survive| of_segment(terms(Direction::Read, 100 * MIB, survive), segment(shape("rs(10,4)", MIB), 0));
    let stripes = 10;
    let bound = stripes * 20_000_000;
    for survive in 1..5 {
        let booked = admitted(&ledger(14), &rs(survive)).booking;
        let mut ledger = ledger(14);
        ledger.add(1, booked.clone()).expect("it is new");
        let lost: Vec<DriveId> = (1..=survive).map(|drive| DriveId(u128::from(drive))).collect();
        let load = ledger.load(DriveId(0), &lost).expect("it is there").device_ns;
        assert!(survive < 4 || load >= bound, "{load}");
        assert!(load <= 2 * bound, "{load}");
    }
}

#[test]
fn no_state_loads_a_drive_more_than_is_booked() {
    // A rotation of stripes per second: what plan sets read is what they read per second.
    for text in ["raid4:3+1", "raid5:4+1", "raid1:1+2", "rs(4,2)", "rs(3,3)", "rs(4,4)"] {
        let shape = shape(text, MIB);
        let segment = segment(shape, 0);
        let width = u32::from(shape.width());
        let rate = u64::from(width) * shape.stripe_bytes();
        for survive in 1..=shape.m() {
            let mut ledger = Ledger::new(1000);
            (0..width).for_each(|number| {
                let cost = braid_schedule::DeviceCost::FREE;
                ledger.set_drive(DriveParts { cost, ..drive(number, number) });
            });
            let ask = of_segment(terms(Direction::Read, rate, survive), segment.clone());
            ledger.add(1, admitted(&ledger, &ask).booking).expect("it is new");
            for lost in (0..1_u64 << width).map(ColumnMask) {
                if lost.count() > u32::from(survive) {
                    continue;
                }
                let read = compiled(&segment, lost);
                let drives: Vec<DriveId> = lost.iter().map(|column| DriveId(u128::from(column.0))).collect();
                for (number, bytes) in (0..).zip(read) {
                    let id = DriveId(number);
                    let load = ledger.load(id, &drives).expect("it is there").out_bytes;
                    assert!(drives.contains(&id) || load >= bytes, "{text} {survive} {lost}: {load} {bytes}");
                    if lost.count() <= 1 && survive == 1 && !drives.contains(&id) {
                        assert_eq!(load, bytes, "{text} without {lost}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_stream_is_in_one_segment_at_a_time() {
    // The first drives have both segments: the larger of the two counts for them, not their sum.
    let raid5 = segment(shape("raid5:4+1", MIB), 0);
    let mirror = segment(shape("raid1:1+1", MIB), 1);
    let terms = terms(Direction::Read, 20 * MIB, 1);
    let both = ask(terms, braid_admission::About::Segments(vec![raid5, mirror]));
    let booking = admitted(&ledger(5), &both).booking;
    let healthy: Vec<u64> = booking.drives.iter().map(|drive| drive.healthy.out_bytes / MIB).collect();
    assert_eq!(healthy, [4, 10, 10, 4, 4]);
    // Without drive 0 the mirror on drive 1 is as before; without drive 2 all of it is read there.
    let lost: Vec<u64> = booking.drives[1].lost.iter().map(|loss| loss.demand.out_bytes / MIB).collect();
    assert_eq!(lost, [10, 20, 10, 10]);
}

#[test]
fn work_that_nobody_reserved_is_priced_alike() {
    let rates =
        BackgroundRates { scrub: 2 * MIB, rebuild_reads: 4 * MIB, rebuild_writes: MIB, operation_bytes: MIB };
    let background = Background::priced(&DriveParts { moved_permille: 1000, ..drive(0, 0) }, &rates);
    assert_eq!(background.standing, Demand { device_ns: 40_000_000, ..Demand::ZERO });
    // Four reads, one write, and for that a read and a write of the log's cleaning.
    let expected = Demand { device_ns: 7 * 20_000_000, in_bytes: MIB, out_bytes: 4 * MIB, ..Demand::ZERO };
    assert_eq!(background.rebuild, expected);
}

#[test]
fn more_is_lost_than_was_promised() {
    let mut ledger = ledger(8);
    let raid5 = of_segment(terms(Direction::Read, MIB, 1), segment(shape("raid5:4+1", MIB), 0));
    let raid0 = of_segment(terms(Direction::Read, MIB, 0), segment(shape("raid0:2", MIB), 4));
    let other = of_segment(terms(Direction::Read, MIB, 0), segment(shape("raid0:2", MIB), 6));
    for (reservation, ask) in [(1, raid5), (2, raid0), (3, other)] {
        ledger.add(reservation, admitted(&ledger, &ask).booking).expect("it is new");
    }
    let out = |number: u32| DriveParts { alive: false, ..drive(number, number) };
    ledger.set_drive(out(4));
    assert_eq!(ledger.broken(), [2]);
    ledger.set_drive(out(0));
    assert_eq!(ledger.broken(), [1, 2]);
    ledger.set_drive(drive(4, 4));
    assert!(ledger.broken().is_empty());
}

#[test]
fn bursts_are_the_unevenness_of_a_rotation() {
    // A column of raid5 4+1 has data in four stripes, then parity in one: four units while 3 * 0.8 are due,
    // and so 1.6 units at once, rounded up for units of 4 KiB and scaled.
    let raid5 = || segment(shape("raid5:4+1", MIB), 0);
    let read = admitted(&ledger(5), &of_segment(terms(Direction::Read, 20 * MIB, 0), raid5()));
    for promise in &read.promises {
        assert_eq!(promise.read.expect("it reads").burst_bytes, (16_u64 * 4096).div_ceil(10) * 256);
    }
    let pieces = Terms { access: Access::Pieces { bytes: 4096 }, ..terms(Direction::Read, MIB, 0) };
    let small = admitted(&ledger(5), &of_segment(pieces, raid5()));
    for promise in &small.promises {
        let read = promise.read.expect("it reads");
        assert_eq!((read.operation_bytes, read.bytes_per_second), (4096, MIB.div_ceil(5)));
        assert!(read.burst_bytes >= 4096 && read.burst_bytes <= 2 * 4096, "{read:?}");
    }
}
