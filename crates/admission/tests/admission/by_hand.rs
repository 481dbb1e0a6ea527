//! Prices that can be computed by hand.

use crate::common::{MIB, admitted, drive, ledger, of_segment, refused, segment, shape, spindle, terms};
use braid_admission::{Access, Demand, DriveParts, Part, Promise, Qualified, Resource, Terms, Whole};
use braid_layout::{ClientId, DriveId};
use braid_schedule::Direction::{Read, Write};

const MS: u64 = 1_000_000;

/// The healthy demand on the first drive, and the worst with another one lost.
fn first(admitted: &braid_admission::Admitted) -> [Demand; 2] {
    let first = &admitted.booking.drives[0];
    let worst = first.lost.iter().fold(Demand::ZERO, |worst, loss| worst.max(&loss.demand));
    [first.healthy, worst]
}

#[test]
fn reads_of_raid5() {
    // 20 MiB/s in stripes of 4 MiB are 5 stripes per second, each of 4 units of 20 ms. Of 5 columns each has
    // the data of 4 stripes in 5: 4 units per second. With one lost, each of the others is read in every
    // stripe: where the lost unit is parity for its data, else to make the lost unit.
    let raid5 = segment(shape("raid5:4+1", MIB), 0);
    let admitted = admitted(&ledger(5), &of_segment(terms(Read, 20 * MIB, 1), raid5));
    assert_eq!(admitted.booking.drives.len(), 5);
    for booked in &admitted.booking.drives {
        assert_eq!((booked.healthy.device_ns, booked.healthy.out_bytes), (4 * 20 * MS, 4 * MIB));
        assert_eq!(booked.healthy.in_bytes, 0);
        assert_eq!(booked.lost.len(), 4);
        for loss in &booked.lost {
            assert_eq!((loss.demand.device_ns, loss.demand.out_bytes), (5 * 20 * MS, 5 * MIB));
        }
    }
    for promise in &admitted.promises {
        let read = promise.read.expect("it reads");
        assert_eq!((read.bytes_per_second, read.operation_bytes), (5 * MIB, MIB));
        assert_eq!(promise.write, None);
    }
    assert_eq!((admitted.client.in_bytes, admitted.client.out_bytes), (20 * MIB, 0));
    // Two stripes, parity included, of one stream; 200 ms for a stripe.
    assert_eq!(admitted.buffer_bytes, 10 * MIB);
    assert_eq!(admitted.lateness_ns, 70 * MS);
    assert_eq!(admitted.start_latency_ns, 270 * MS);
}

#[test]
fn writes_of_raid5() {
    // Every column gets a unit of each of the 5 stripes per second, and no less with one lost.
    let raid5 = segment(shape("raid5:4+1", MIB), 0);
    let admitted = admitted(&ledger(5), &of_segment(terms(Write, 20 * MIB, 1), raid5));
    let [healthy, lost] = first(&admitted);
    assert_eq!((healthy.device_ns, healthy.in_bytes, healthy.out_bytes), (5 * 20 * MS, 5 * MIB, 0));
    assert_eq!(lost, healthy);
    assert_eq!((admitted.client.in_bytes, admitted.client.out_bytes), (0, 25 * MIB));
    let write = admitted.promises[0].write.expect("it writes");
    assert_eq!(write, Promise { bytes_per_second: 5 * MIB, burst_bytes: MIB, operation_bytes: MIB });
}

#[test]
fn what_is_out_is_booked_of_the_clients_rail() {
    // It comes back, and then the client sends 25 MiB/s again.
    let mut ledger = ledger(5);
    ledger.set_drive(DriveParts { alive: false, ..drive(3, 3) });
    let raid5 = segment(shape("raid5:4+1", MIB), 0);
    let admitted = admitted(&ledger, &of_segment(terms(Write, 20 * MIB, 0), raid5));
    assert_eq!(admitted.client.out_bytes, 25 * MIB);
}

#[test]
fn reads_of_rs_with_two_lost() {
    // 24 MiB/s are 6 stripes per second. A column has data in 4 stripes of 6; with two lost, all four others
    // are read in every stripe.
    let rs = segment(shape("rs(4,2)", MIB), 0);
    let two = admitted(&ledger(6), &of_segment(terms(Read, 24 * MIB, 2), rs.clone()));
    let [healthy, worst] = first(&two);
    assert_eq!((healthy.device_ns, worst.device_ns), (4 * 20 * MS, 5 * 20 * MS));
    let mut ledger = ledger(6);
    ledger.add(1, two.booking).expect("it is new");
    for lost in [[1, 2], [1, 3], [2, 4], [4, 5]] {
        let load = ledger.load(DriveId(0), &lost.map(DriveId)).expect("it is there");
        assert_eq!(load.device_ns, 6 * 20 * MS);
    }
    // With one lost: of 6 stripes, in 4 the lost unit is data, and one of two parity units is read for it,
    // the first that is there. So a column is read as data in 4, and as first parity in 1; as second never,
    // as the first is there whenever data is lost.
    let one = admitted(&crate::common::ledger(6), &of_segment(terms(Read, 24 * MIB, 1), rs));
    let [healthy, worst] = first(&one);
    assert_eq!((healthy.device_ns, worst.device_ns), (4 * 20 * MS, 5 * 20 * MS));
}

#[test]
fn mirrors() {
    // 10 MiB/s of units of a MiB: each copy is read for half of the stripes, or for all if the other is lost.
    // Both are written.
    let mirror = segment(shape("raid1:1+1", MIB), 0);
    let read = admitted(&ledger(2), &of_segment(terms(Read, 10 * MIB, 1), mirror.clone()));
    assert_eq!(first(&read).map(|demand| demand.device_ns), [5 * 20 * MS, 10 * 20 * MS]);
    let write = admitted(&ledger(2), &of_segment(terms(Write, 10 * MIB, 1), mirror));
    assert_eq!(first(&write).map(|demand| demand.device_ns), [10 * 20 * MS, 10 * 20 * MS]);
    // Reads come one unit every second stripe: one unit at once.
    assert_eq!(read.promises[0].read.expect("it reads").burst_bytes, MIB);
}

#[test]
fn raid0_survives_nothing() {
    let raid0 = segment(shape("raid0:4", MIB), 0);
    let answer = refused(&ledger(4), &of_segment(terms(Read, MIB, 1), raid0.clone()));
    assert_eq!((answer.resource, answer.needed, answer.free), (Resource::Survive { missing: None }, 1, 0));
    let admitted = admitted(&ledger(4), &of_segment(terms(Read, 20 * MIB, 0), raid0));
    assert_eq!(
        first(&admitted),
        [Demand { device_ns: 100 * MS, out_bytes: 5 * MIB, ..Demand::ZERO }, Demand::ZERO]
    );
}

#[test]
fn small_writes_cost_deltas() {
    // 4 MiB/s in pieces of 64 KiB are 64 pieces per second on raid5 4+1: 64 / 5 on each column as data (the
    // write, and a read of what was there) and as parity (the delta, and a read and a write to fold it).
    // 64 KiB take 10 ms + 0.625 ms.
    let raid5 = segment(shape("raid5:4+1", MIB), 0);
    let access = Access::Pieces { bytes: 64 << 10 };
    let pieces = Terms { access, ..terms(Write, MIB, 0) };
    let admitted = admitted(&ledger(5), &of_segment(pieces, raid5));
    let [healthy, _] = first(&admitted);
    assert_eq!(healthy.device_ns, 16 * (2 + 3) * 10_625_000 / 5);
    // The data drive receives a piece and sends its delta, the parity drive receives it.
    assert_eq!((healthy.in_bytes, healthy.out_bytes), ((2 * MIB).div_ceil(5), MIB.div_ceil(5)));
    assert_eq!(admitted.client.out_bytes, MIB);
    let write = admitted.promises[0].write.expect("it writes");
    assert_eq!((write.operation_bytes, write.bytes_per_second), (64 << 10, (2 * MIB).div_ceil(5)));
}

#[test]
fn the_idle_time_before_a_large_operation_counts() {
    let of = |unit_bytes| {
        let raid0 = segment(shape("raid0:1", unit_bytes), 0);
        admitted(&ledger(1), &of_segment(terms(Read, 8 * MIB, 0), raid0)).booking.drives[0].healthy
    };
    // About 100 ms are in flight, and answers come up to 5 ms later: 30 ms fit twice, and 50 ms do not.
    assert_eq!(of(2 * MIB).device_ns, 4 * 30 * MS);
    assert_eq!(of(4 * MIB).device_ns, 2 * (50 + 5) * MS);
}

#[test]
fn syncs_cleaning_and_qualified_rates_count() {
    let raid0 = || of_segment(terms(Write, 10 * MIB, 0), segment(shape("raid0:1", MIB), 0));
    let of = |parts: DriveParts| {
        let mut ledger = ledger(0);
        ledger.set_drive(parts);
        admitted(&ledger, &raid0()).booking.drives[0].healthy
    };
    let plain = of(drive(0, 0));
    assert_eq!(plain.device_ns, 10 * 20 * MS);
    // Ten writes and ten periods per second: ten syncs.
    let synced =
        of(DriveParts { cost: braid_schedule::DeviceCost { sync_ns: 2 * MS, ..spindle() }, ..drive(0, 0) });
    assert_eq!(synced.device_ns, plain.device_ns + 10 * 2 * MS);
    // A half moved for each byte written: 5 MiB read and written, in operations of a MiB.
    let cleaned = of(DriveParts { moved_permille: 500, ..drive(0, 0) });
    assert_eq!(cleaned.device_ns, plain.device_ns + 5 * 2 * 20 * MS);
    let qualified = Qualified { read_bytes_per_second: None, write_bytes_per_second: Some(20 * MIB) };
    let whole = of(DriveParts { qualified, ..drive(0, 0) });
    assert_eq!((whole.device_ns, whole.whole_ns), (plain.device_ns, 500 * MS));
    // Its whole is slower than its parts: 16 MiB/s is 0.8 of it.
    let mut ledger = ledger(0);
    ledger.set_drive(DriveParts { qualified, ..drive(0, 0) });
    let fast = of_segment(terms(Write, 17 * MIB, 0), segment(shape("raid0:1", MIB), 0));
    let Resource::Drive { part, .. } = refused(&ledger, &fast).resource else { panic!("it is the drive's") };
    assert_eq!(part, Part::Whole);
}

#[test]
fn the_smaller_of_the_parts_and_of_the_share_of_the_whole_counts() {
    let ledger_of = |write_bytes_per_second| {
        let whole = Whole { read_bytes_per_second: 1, write_bytes_per_second, drives: 4 };
        let mut ledger = ledger(0);
        ledger.set_drive(DriveParts { qualified: whole.share(), ..drive(0, 0) });
        ledger
    };
    let ask = |rate| of_segment(terms(Write, rate, 0), segment(shape("raid0:1", MIB), 0));
    let part_of = |ledger: &_, rate| match refused(ledger, &ask(rate)).resource {
        Resource::Drive { part, .. } => part,
        other => panic!("{other:?}"),
    };
    // A MiB takes the disk 20 ms: 40 MiB a second are 0.8 of it. A fourth of 80 is 20, of which 16 are 0.8.
    let slow = ledger_of(80 * MIB);
    admitted(&slow, &ask(16 * MIB));
    assert_eq!(part_of(&slow, 17 * MIB), Part::Whole);
    let fast = ledger_of(8000 * MIB);
    admitted(&fast, &ask(39 * MIB));
    assert_eq!(part_of(&fast, 41 * MIB), Part::Disk);
    assert_eq!(
        Whole { read_bytes_per_second: 9, write_bytes_per_second: 9, drives: 0 }.share(),
        Qualified::default()
    );
}

#[test]
fn rails_processors_and_clients_count() {
    use braid_admission::{ClientParts, ProcessorCost, Rail};
    let processor = ProcessorCost { request_ns: 1000, byte_ps: 500, arithmetic_byte_ps: 250, cores: 1 };
    let mut ledger = ledger(0);
    let rail = Rail { in_bytes_per_second: Some(50 * MIB), out_bytes_per_second: Some(5 * MIB) };
    (0..5).for_each(|n| ledger.set_drive(DriveParts { rail, processor: Some(processor), ..drive(n, n) }));
    let raid5 = || segment(shape("raid5:4+1", MIB), 0);
    let client_rail = Rail { in_bytes_per_second: None, out_bytes_per_second: Some(20 * MIB) };
    let client = ClientParts { client: ClientId(7), rail: client_rail, processor: Some(processor) };
    let mut write = of_segment(terms(Write, 12 * MIB, 0), raid5());
    write.client = Some(client);
    // Three stripes per second: 15 units are sent, and 16 is 0.8 of the client's rail. Parity is made of 12
    // MiB of operands.
    let admitted = admitted(&ledger, &write);
    let sent = 15 * MIB;
    assert_eq!(admitted.client.out_bytes, sent);
    assert_eq!(admitted.client.processor_ns, (15 * 1000 + sent / 2 + 12 * MIB / 4));
    assert_eq!(admitted.booking.drives[0].healthy.processor_ns, 3 * 1000 + 3 * MIB / 2);
    write.terms.bytes_per_second = 13 * MIB;
    let answer = refused(&ledger, &write);
    assert_eq!(answer.resource, Resource::Client { part: Part::RailOut });
    assert_eq!((answer.needed, answer.free), ((13 * MIB * 5).div_ceil(4), 16 * MIB));
    // Two of the client's reservations add up.
    ledger.add(1, admitted.booking).expect("it is new");
    write.terms.bytes_per_second = MIB;
    let second = refused(&ledger, &write);
    assert_eq!((second.resource, second.free), (Resource::Client { part: Part::RailOut }, MIB));
    // 4 MiB/s is 0.8 of the rail away from a drive: 20 MiB/s of reads need it all.
    let read = of_segment(terms(Read, 20 * MIB, 0), raid5());
    assert_eq!(crate::common::admitted(&ledger, &read).booking.drives[0].healthy.out_bytes, 4 * MIB);
    let faster = refused(&ledger, &of_segment(terms(Read, 21 * MIB, 0), raid5()));
    let Resource::Drive { drive, part, lost } = faster.resource else { panic!("it is a drive's") };
    assert_eq!((drive, part, lost), (DriveId(0), Part::RailOut, None));
}

#[test]
fn the_loss_that_is_too_much_is_named() {
    // 128 MiB/s: 32 stripes per second are 25.6 units on each column, 512 ms; with one lost 640 ms. Of
    // another 40 MiB/s the 160 ms fit with all drives there, and 200 ms do not with one lost.
    let mut ledger = ledger(5);
    let raid5 = || segment(shape("raid5:4+1", MIB), 0);
    let large = admitted(&ledger, &of_segment(terms(Read, 128 * MIB, 1), raid5()));
    ledger.add(1, large.booking).expect("it is new");
    let answer = refused(&ledger, &of_segment(terms(Read, 40 * MIB, 1), raid5()));
    let expected = Resource::Drive { drive: DriveId(0), part: Part::Disk, lost: Some(DriveId(1)) };
    assert_eq!((answer.resource, answer.needed, answer.free), (expected, 200 * MS, 160 * MS));
    // Without a promise for that case it fits.
    admitted(&ledger, &of_segment(terms(Read, 40 * MIB, 0), raid5()));
}

#[test]
fn a_file_with_a_drive_out_has_less_to_lose() {
    let mut ledger = ledger(6);
    ledger.set_drive(DriveParts { alive: false, ..drive(2, 2) });
    let missing = Some(DriveId(2));
    let raid5 = |survive| of_segment(terms(Read, 20 * MIB, survive), segment(shape("raid5:4+1", MIB), 0));
    let answer = refused(&ledger, &raid5(1));
    assert_eq!((answer.resource, answer.free), (Resource::Survive { missing }, 0));
    // What is degraded now is priced as it is now.
    let now = admitted(&ledger, &raid5(0));
    assert_eq!((now.booking.drives.len(), now.booking.drives[0].healthy.device_ns), (4, 100 * MS));
    let rs = admitted(&ledger, &of_segment(terms(Read, 24 * MIB, 1), segment(shape("rs(4,2)", MIB), 0)));
    assert_eq!(first(&rs).map(|demand| demand.device_ns), [5 * 20 * MS, 6 * 20 * MS]);
    ledger.set_drive(DriveParts { alive: false, ..drive(3, 3) });
    let gone = refused(&ledger, &raid5(0));
    assert_eq!(gone.resource, Resource::Survive { missing });
}
