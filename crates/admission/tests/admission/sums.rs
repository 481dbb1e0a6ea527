//! Properties of sums, choices and offers.

use std::collections::BTreeSet;

use braid_admission::{
    About, Access, Answer, Ask, AskError, Background, Booking, Demand, DriveParts, Ledger, NewFiles, Offer,
    Part, Policy, Prices, Resource, Terms, Verdict, Wish, answer, decide, quote,
};
use braid_layout::{DriveId, Shape};
use braid_schedule::{Charge, DeviceCost, Direction, DirectionCost};
use proptest::prelude::*;

use crate::common::{MIB, admitted, ask, drive, free, ledger, of_segment, refused, segment, shape, terms};

/// All sets of up to two of the drives.
fn states(drives: u32) -> Vec<Vec<DriveId>> {
    let id = |number: u32| DriveId(u128::from(number));
    let mut all = vec![Vec::new()];
    for one in 0..drives {
        all.push(vec![id(one)]);
        all.extend((0..one).map(|other| vec![id(one), id(other)]));
    }
    all
}

/// Checks that no part of a drive has more than may be booked, with these drives lost. With two lost, that is
/// promised to drives with a booking that survives two.
fn check_state(ledger: &Ledger, lost: &[DriveId], reservations: u64) {
    let bookings: Vec<&Booking> = (0..reservations).filter_map(|number| ledger.booking(number)).collect();
    let is_promised = |drive: DriveId| {
        let survives = |booking: &&Booking| {
            usize::from(booking.survive) >= lost.len() && booking.drives.iter().any(|own| own.drive == drive)
        };
        lost.len() < 2 || bookings.iter().any(survives)
    };
    let left = ledger.drives().filter(|parts| !lost.contains(&parts.drive));
    for parts in left.filter(|parts| is_promised(parts.drive)) {
        let load = ledger.load(parts.drive, lost).expect("it is there");
        let most = ledger.capacity(parts.drive).expect("it is there");
        for part in Part::ALL {
            assert!(load.on(part) <= most.on(part), "{part} of {}: {load:?} with {lost:?} lost", parts.drive);
        }
    }
}

fn flash() -> DeviceCost {
    let way = |bytes_per_second| DirectionCost { operation_ns: 10_000, bytes_per_second };
    DeviceCost { charge: Charge::Larger, read: way(3000 * MIB), write: way(1000 * MIB), sync_ns: 50_000 }
}

/// One step of a sequence.
#[derive(Debug, Clone)]
enum Act {
    Reserve { terms: Terms, about: Kind },
    GiveBack(u64),
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Segment { shape: Shape, first: u32 },
    Shape(Shape),
    Free(u8),
}

const SHAPES: [&str; 6] = ["raid0:2", "raid1:1+1", "raid4:3+1", "raid5:4+1", "rs(4,2)", "rs(3,3)"];

fn shapes() -> impl Strategy<Value = Shape> {
    (0..SHAPES.len(), 16..21_u32).prop_map(|(index, power)| shape(SHAPES[index], 1 << power))
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        (shapes(), 0..4_u32).prop_map(|(shape, first)| Kind::Segment { shape, first }),
        shapes().prop_map(Kind::Shape),
        (0..3_u8).prop_map(Kind::Free),
    ]
}

fn all_terms() -> impl Strategy<Value = Terms> {
    let access = prop_oneof![
        3 => Just(Access::Whole),
        1 => (12..20_u32).prop_map(|power| Access::Pieces { bytes: 1 << power }),
    ];
    (any::<bool>(), 1..200_u64, 1..5_u32, 0..3_u8, access).prop_map(
        |(read, mib, streams, survive, access)| {
            let direction = if read { Direction::Read } else { Direction::Write };
            Terms { streams, access, ..terms(direction, mib * MIB / 2, survive) }
        },
    )
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (all_terms(), kinds()).prop_map(|(terms, about)| Act::Reserve { terms, about }),
        1 => (0..20_u64).prop_map(Act::GiveBack),
    ]
}

fn about(kind: Kind) -> About {
    match kind {
        Kind::Segment { shape, first } => About::Segments(vec![segment(shape, first)]),
        Kind::Shape(shape) => About::New(Wish::Shape(shape)),
        Kind::Free(m) => About::New(Wish::Free { m }),
    }
}

/// Ten drives, some faster, some slower, three on a host, with a rebuild's rate.
fn mixed() -> Ledger {
    let mut ledger = Ledger::default();
    for number in 0..10 {
        let mut parts = drive(number, number / 3);
        if number % 4 == 0 {
            parts.cost = flash();
        }
        parts.service_permille = 1000 - 30 * number;
        ledger.set_drive(parts);
        let rebuild = Demand { device_ns: 50_000_000, ..Demand::ZERO };
        let standing = Demand { device_ns: 10_000_000, ..Demand::ZERO };
        let id = DriveId(u128::from(number));
        ledger.set_background(id, Background { standing, rebuild }).expect("it is there");
    }
    ledger
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_sum_is_above_the_share_in_any_state(acts in prop::collection::vec(acts(), 1..40)) {
        let mut ledger = mixed();
        let loads = |ledger: &Ledger| -> Vec<Option<Demand>> {
            states(10).iter().map(|lost| ledger.load(DriveId(3), lost)).collect()
        };
        let empty = loads(&ledger);
        let mut prices = Prices::default();
        for (number, act) in (0..).zip(acts) {
            match act {
                Act::Reserve { terms, about: kind } => {
                    let ask = ask(terms, about(kind));
                    let policy = Policy::default();
                    if let Ok(Answer::Admitted(admitted)) = decide(&ledger, &mut prices, &policy, &ask) {
                        ledger.add(number, admitted.booking).expect("it is new");
                    }
                }
                Act::GiveBack(reservation) => {
                    ledger.remove(reservation);
                }
            }
            for lost in states(10) {
                check_state(&ledger, &lost, 40);
            }
        }
        for reservation in 0..40 {
            ledger.remove(reservation);
        }
        prop_assert_eq!(loads(&ledger), empty);
    }

    #[test]
    fn offers_hold_and_are_the_best(terms in all_terms(), kind in kinds(), loads in 1..4_u64) {
        let mut ledger = mixed();
        let mut prices = Prices::default();
        let policy = Policy::default();
        for load in 0..loads {
            let mut other = free(super::common::terms(Direction::Read, 30 * MIB, 1), 1);
            other.duration_ms = Some(1000 * (load + 1));
            if let Ok(Answer::Admitted(admitted)) = decide(&ledger, &mut prices, &policy, &other) {
                ledger.add(load, admitted.booking).expect("it is new");
            }
        }
        let many = Terms { bytes_per_second: 40 * terms.bytes_per_second, ..terms };
        let asked = ask(many, about(kind));
        let before = format!("{ledger:?}");
        let answered = answer(&mut ledger, &mut prices, &policy, &asked).expect("it makes sense");
        prop_assert_eq!(format!("{ledger:?}"), before);
        let Answer::Refused(refused) = answered else { return Ok(()) };
        for offer in refused.offers {
            let mut again = asked.clone();
            let mut ledger = ledger.clone();
            match offer {
                Offer::Rate(rate) => again.terms.bytes_per_second = rate,
                Offer::Survive(survive) => again.terms.survive = survive,
                Offer::Shape(shape) => again.about = About::New(Wish::Shape(shape)),
                Offer::From(time) => {
                    again.now_ms = time;
                    let over: Vec<u64> = ledger
                        .ends()
                        .filter(|ending| ending.until_ms <= time)
                        .map(|ending| ending.reservation)
                        .collect();
                    over.into_iter().for_each(|reservation| drop(ledger.remove(reservation)));
                }
            }
            admitted(&ledger, &again);
            if let Offer::Rate(rate) = offer {
                again.terms.bytes_per_second = rate + rate.div_ceil(50);
                super::common::refused(&ledger, &again);
            }
        }
    }

    #[test]
    fn more_drives_admit_no_less(
        count in 5..12_u32,
        more in 1..4_u32,
        service_permille in 1..1001_u32,
        all in prop::collection::vec(all_terms(), 1..12),
    ) {
        let mut few = ledger(count);
        let mut prices = Prices::default();
        let carried = |ledger: &mut Ledger, prices: &mut Prices| {
            let mut carried = 0_u64;
            for (number, terms) in (0..).zip(&all) {
                let shape = shape("rs(3,2)", 256 << 10);
                let ask = ask(*terms, About::New(Wish::Shape(shape)));
                if let Ok(Answer::Admitted(admitted)) = decide(ledger, prices, &Policy::default(), &ask) {
                    ledger.add(number, admitted.booking).expect("it is new");
                    carried += 1;
                } else {
                    break;
                }
            }
            carried
        };
        let of_few = carried(&mut few, &mut prices);
        let mut many = ledger(count);
        for number in count..count + more {
            many.set_drive(DriveParts { service_permille, ..drive(number, number) });
        }
        let of_many = carried(&mut many, &mut prices);
        prop_assert!(of_many >= of_few, "{of_many} of {} and not {of_few}", all.len());
    }
}

#[test]
fn a_low_rate_gets_few_drives_and_large_units() {
    let low = admitted(&ledger(40), &free(terms(Direction::Read, MIB, 1), 1));
    let low = low.plan.expect("files are new").shape;
    let high = admitted(&ledger(40), &free(terms(Direction::Read, 800 * MIB, 1), 1));
    let chosen = high.plan.expect("files are new").shape;
    assert_eq!((low.width(), low.unit_bytes()), (2, 2 << 20));
    assert!(chosen.width() > 10, "{chosen}");
    // The narrower widths were tried before, and each says why it was not taken.
    let tried: Vec<u8> = high.explanation.candidates.iter().map(|candidate| candidate.shape.k()).collect();
    assert!(tried.is_sorted() && tried[0] == 1, "{tried:?}");
    let last = high.explanation.candidates.last().expect("one was taken");
    assert_eq!((last.shape, &last.verdict), (chosen, &Verdict::Taken));
    let text = high.explanation.candidates[0].to_string();
    assert!(text.contains("raid1 1+1") && text.contains("disk would need"), "{text}");
    // On flash, where operations cost little, the units of a wide stripe are small.
    let mut fast = Ledger::default();
    (0..40).for_each(|number| fast.set_drive(DriveParts { cost: flash(), ..drive(number, number) }));
    let wide = admitted(&fast, &free(terms(Direction::Read, 9000 * MIB, 1), 1));
    let wide = wide.plan.expect("files are new").shape;
    assert!(wide.k() > 1 && wide.unit_bytes() == 64 << 10, "{wide}");
}

#[test]
fn drives_are_as_far_apart_as_they_can_be() {
    let mut ledger = Ledger::default();
    for number in 0..24 {
        let domain = vec![format!("rack-{}", number / 12), format!("host-{}", number / 3)];
        ledger.set_drive(DriveParts { domain, ..drive(number, 0) });
    }
    let of = |ledger: &Ledger, text: &str| {
        let ask = ask(terms(Direction::Write, 10 * MIB, 0), About::New(Wish::Shape(shape(text, MIB))));
        let admitted = admitted(ledger, &ask);
        let drives = admitted.plan.expect("files are new").drives;
        let distinct: BTreeSet<DriveId> = drives.iter().copied().collect();
        assert_eq!(distinct.len(), drives.len());
        (drives.iter().map(|drive| drive.0 / 3).collect::<Vec<_>>(), admitted.booking)
    };
    let most = |hosts: &[u128]| (0..8).map(|h| hosts.iter().filter(|&&host| host == h).count()).max();
    for (text, on_a_host) in [("raid5:4+1", 1), ("raid5:7+1", 1), ("rs(10,2)", 2)] {
        let (hosts, _) = of(&ledger, text);
        assert_eq!(most(&hosts), Some(on_a_host), "{hosts:?}");
        let in_first_rack = hosts.iter().filter(|&&host| host < 4).count();
        assert!(in_first_rack.abs_diff(hosts.len() - in_first_rack) <= 1, "{hosts:?}");
    }
    // The next files are on other drives.
    let (_, booking) = of(&ledger, "raid5:4+1");
    let taken: BTreeSet<DriveId> = booking.drives.iter().map(|drive| drive.drive).collect();
    ledger.add(1, booking).expect("it is new");
    let (_, second) = of(&ledger, "raid5:4+1");
    assert!(second.drives.iter().all(|drive| !taken.contains(&drive.drive)));
}

#[test]
fn space_is_booked_as_long_as_it_will_be_needed() {
    // 10 MiB/s for 100 s on one drive with 1500 MiB.
    let mut ledger = Ledger::default();
    ledger.set_drive(DriveParts { free_bytes: 1500 * MIB, ..drive(0, 0) });
    let raid0 = About::New(Wish::Shape(shape("raid0:1", MIB)));
    let mut write = ask(terms(Direction::Write, 10 * MIB, 0), raid0);
    write.duration_ms = Some(100_000);
    let first = admitted(&ledger, &write);
    ledger.add(1, first.booking).expect("it is new");
    let id = DriveId(0);
    assert_eq!(ledger.free_bytes(id, 0), Some(i128::from(500 * MIB)));
    let answer = refused(&ledger, &write);
    assert_eq!(answer.resource, Resource::Space { drive: id });
    assert_eq!((answer.needed, answer.free), (1000 * MIB, 500 * MIB));
    // Half of it is written 50 s later, and the drive says so.
    ledger.set_drive(DriveParts { free_bytes: 1000 * MIB, ..drive(0, 0) });
    assert_eq!(ledger.free_bytes(id, 50_000), Some(i128::from(500 * MIB)));
    ledger.remove(1);
    assert_eq!(ledger.free_bytes(id, 50_000), Some(i128::from(1000 * MIB)));
}

#[test]
fn a_slower_or_lost_drive_carries_less() {
    let raid0 =
        |mib: u64| of_segment(terms(Direction::Read, mib * MIB, 0), segment(shape("raid0:1", MIB), 0));
    // 40 operations of 20 ms are 0.8 of a second.
    admitted(&ledger(1), &raid0(40));
    assert!(matches!(refused(&ledger(1), &raid0(41)).resource, Resource::Drive { part: Part::Disk, .. }));
    let mut slow = ledger(1);
    slow.set_drive(DriveParts { service_permille: 500, ..drive(0, 0) });
    admitted(&slow, &raid0(20));
    refused(&slow, &raid0(21));
    // With a drive out, what it makes others do counts before anything else fails.
    let mut one_out = ledger(6);
    let raid5 = |first| segment(shape("raid5:4+1", MIB), first);
    let booked = admitted(&one_out, &of_segment(terms(Direction::Read, 128 * MIB, 1), raid5(0)));
    one_out.add(1, booked.booking).expect("it is new");
    let more = of_segment(terms(Direction::Read, 30 * MIB, 0), raid5(1));
    admitted(&one_out, &more);
    one_out.set_drive(DriveParts { alive: false, ..drive(0, 0) });
    refused(&one_out, &more);
    one_out.set_drive(drive(0, 0));
    admitted(&one_out, &more);
}

#[test]
fn nonsense_is_refused_with_words() {
    let ledger = ledger(5);
    let check = |change: &dyn Fn(&mut Ask), word: &str| {
        let mut ask = free(terms(Direction::Read, MIB, 1), 1);
        change(&mut ask);
        let error = decide(&ledger, &mut Prices::default(), &Policy::default(), &ask).expect_err(word);
        assert!(error.to_string().contains(word), "{error}");
    };
    check(&|ask| ask.terms.bytes_per_second = 0, "at least a byte");
    check(&|ask| ask.terms.bytes_per_second = u64::MAX, "at most 10000000000000");
    check(&|ask| ask.terms.streams = 0, "0 streams");
    check(&|ask| ask.terms.period_ns = 0, "period");
    check(&|ask| ask.terms.survive = 5, "survives 5");
    check(&|ask| ask.terms.access = Access::Pieces { bytes: 0 }, "pieces");
    check(&|ask| ask.about = About::Segments(Vec::new()), "no file");
    // A rate that no cluster of this size carries makes sense, and is refused.
    let mut ledger = ledger.clone();
    let fast = free(terms(Direction::Read, 10_000_000_000, 1), 1);
    let answered =
        answer(&mut ledger, &mut Prices::default(), &Policy::default(), &fast).expect("it makes sense");
    let Answer::Refused(refused) = answered else { panic!("no cluster of five disks carries it") };
    assert!(matches!(refused.offers[..], [Offer::Rate(rate), ..] if rate > 10 * MIB), "{:?}", refused.offers);
    let few = super::common::refused(&self::ledger(2), &free(terms(Direction::Read, MIB, 2), 2));
    assert_eq!((few.resource, few.needed, few.free), (Resource::Drives, 3, 2));
}

#[test]
fn ten_thousand_drives_are_not_all_looked_at() {
    let mut ledger = ledger(10_000);
    let mut prices = Prices::default();
    let ask = free(terms(Direction::Read, 20 * MIB, 1), 1);
    let mut most = 0;
    for reservation in 0..10_000 {
        let answer = decide(&ledger, &mut prices, &Policy::default(), &ask).expect("it makes sense");
        let Answer::Admitted(admitted) = answer else { panic!("{reservation} are too many") };
        most = most.max(admitted.explanation.checked);
        ledger.add(reservation, admitted.booking).expect("it is new");
    }
    assert!(most <= 16, "{most} drives were looked at for two columns");
}

#[test]
fn files_share_their_drives_with_many_others() {
    // If the same two drives were chosen together each time, a loss would double the load of one.
    let mut ledger = ledger(12);
    for reservation in 0..120 {
        let ask = free(terms(Direction::Read, MIB, 1), 1);
        let admitted = admitted(&ledger, &ask);
        assert_eq!(admitted.plan.expect("new files").drives.len(), 2);
        ledger.add(reservation, admitted.booking).expect("it is new");
    }
    for number in 0..12 {
        let drive = DriveId(number);
        let healthy = ledger.load(drive, &[]).expect("it is known").device_ns;
        let worst = ledger.worst(drive).expect("it is known").device_ns;
        assert!(worst * 2 < healthy * 3, "{number}: {worst} ns, and {healthy} ns with all there");
    }
}

#[test]
fn a_promise_that_was_made_is_priced_again_whether_it_fits_or_not() {
    let mut ledger = ledger(6);
    let mut prices = Prices::default();
    let policy = Policy::default();
    let mut wish =
        ask(terms(Direction::Write, 100 * MIB, 1), About::New(Wish::Shape(shape("raid5:4+1", MIB))));
    wish.duration_ms = Some(10_000);
    let first = admitted(&ledger, &wish);
    let files = first.plan.clone().expect("files are new");
    // On the drives that were chosen the answer is the same.
    let planned = Ask { about: About::Planned(files.clone()), ..wish.clone() };
    let again = admitted(&ledger, &planned);
    assert_eq!(
        (&again.booking, &again.promises, &again.plan),
        (&first.booking, &first.promises, &first.plan)
    );
    ledger.add(1, first.booking.clone()).expect("it is new");
    assert_eq!(ledger.overbooked(files.drives[0]), None);
    // Half as fast, they do not carry it any more, but what they were promised has its price.
    for parts in ledger.drives().cloned().collect::<Vec<_>>() {
        ledger.set_drive(DriveParts { service_permille: 500, ..parts });
    }
    ledger.remove(1);
    refused(&ledger, &planned);
    let Ok(Answer::Admitted(quoted)) = quote(&ledger, &mut prices, &policy, &planned) else {
        panic!("a price")
    };
    assert_eq!(quoted.booking, first.booking);
    ledger.add(1, quoted.booking).expect("it is new");
    let over = ledger.overbooked(files.drives[0]).expect("400 ms may be booked");
    assert_eq!((over.part, over.lost, over.needed, over.free), (Part::Disk, None, 500_000_000, 400_000_000));
    assert!(quote(&ledger, &mut prices, &policy, &wish).is_err(), "without drives there is no price");
    // With too little space the drive is named.
    ledger.remove(1);
    ledger.set_drive(DriveParts {
        free_bytes: 249 * MIB,
        ..ledger.parts(files.drives[2]).expect("it is").clone()
    });
    let slow = Ask { terms: Terms { bytes_per_second: 80 * MIB, ..planned.terms }, ..planned.clone() };
    admitted(&ledger, &slow);
    let longer = refused(&ledger, &Ask { duration_ms: Some(12_500), ..slow });
    assert_eq!(longer.resource, Resource::Space { drive: files.drives[2] });
    let missing = Ask { about: About::Planned(NewFiles { drives: Vec::new(), ..files }), ..planned };
    assert_eq!(quote(&ledger, &mut prices, &policy, &missing), Err(AskError::Drives(0)));
}

#[test]
fn the_state_that_breaks_a_promise_is_found() {
    // Reads of raid5: 512 ms with all there, 640 ms with one lost; after a drift only 560 may be booked.
    let mut ledger = ledger(5);
    let raid5 = of_segment(terms(Direction::Read, 128 * MIB, 1), segment(shape("raid5:4+1", MIB), 0));
    ledger.add(1, admitted(&ledger, &raid5).booking).expect("it is new");
    assert!((0..5).all(|number| ledger.overbooked(DriveId(number)).is_none()));
    ledger.set_drive(DriveParts { service_permille: 700, ..drive(0, 0) });
    let over = ledger.overbooked(DriveId(0)).expect("it is slower");
    assert_eq!((over.lost, over.needed, over.free), (Some(DriveId(1)), 640_000_000, 560_000_000));
    ledger.set_drive(DriveParts { alive: false, ..drive(4, 4) });
    let now = ledger.overbooked(DriveId(0)).expect("it is so now");
    assert_eq!((now.lost, now.needed), (None, 640_000_000));
    assert_eq!(ledger.overbooked(DriveId(9)), None, "no such drive");
}
