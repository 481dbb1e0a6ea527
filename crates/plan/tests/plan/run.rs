//! Runs of methods: each byte is answered for once, at the drive that holds it or at the client.

use braid_layout::{
    Column, ColumnMask, Component, DriveId, Generation, ObjectId, Scheme, Segment, Shape, Stripe,
};
use braid_plan::{
    Health, MethodCost, Op, PlanSet, RunSite, Strategy, Target, Violation, run, run_ways, verify,
};

const UNIT: u32 = 4096;

fn segment(shape: Shape) -> Segment {
    let component = |column: u8| Component { drive: DriveId(column.into()), object: ObjectId(7) };
    let components = (1..=shape.width()).map(component).collect();
    Segment { start: 0, end: u64::MAX, shape, components }
}

fn compiled(segment: &Segment, away: ColumnMask, range: std::ops::Range<u64>) -> PlanSet {
    let health = Health { away, ..Health::whole(&segment.shape, Generation(3)) };
    run(&Target { segment, index: 0, health }, range, 0, 20).expect("enough columns")
}

#[test]
fn each_byte_is_answered_for_by_its_drive_or_else_read() {
    let shapes = [
        (Scheme::Raid0, 3, 0),
        (Scheme::Raid1, 1, 1),
        (Scheme::Raid4, 3, 1),
        (Scheme::Raid5, 4, 1),
        (Scheme::Rs, 3, 2),
    ];
    for (scheme, k, m) in shapes {
        let segment = segment(Shape::new(scheme, k, m, UNIT).expect("a shape"));
        let end = 5 * segment.shape.stripe_bytes() + 77;
        for lost in 0..=u8::from(m > 0) * segment.shape.width() {
            let away = if lost == 0 { ColumnMask::EMPTY } else { ColumnMask::EMPTY.with(Column(lost - 1)) };
            let set = compiled(&segment, away, 100..end);
            verify(&set, &segment).unwrap_or_else(|found| panic!("{scheme} without {away}: {found:?}"));
            let totals = set.totals();
            let at_drives: u64 = totals.columns.iter().map(|column| column.run_bytes).sum();
            if lost == 0 {
                assert_eq!((at_drives, totals.read_bytes()), (end - 100, 0), "{scheme}");
                assert!(set.stripes.iter().all(|note| note.strategy == Strategy::AtDrives));
            }
            assert!(set.plans.iter().all(|plan| !away.contains(plan.column)), "{scheme}");
        }
    }
}

#[test]
fn a_plan_that_leaves_a_byte_out_or_answers_for_it_twice_is_found() {
    let segment = segment(Shape::new(Scheme::Raid5, 2, 1, UNIT).expect("a shape"));
    let whole = compiled(&segment, ColumnMask::EMPTY, 0..2 * u64::from(UNIT));
    let spoilt = |spoil: &dyn Fn(&mut PlanSet)| {
        let mut set = whole.clone();
        spoil(&mut set);
        verify(&set, &segment).expect_err("it is spoilt")
    };
    let short = spoilt(&|set| set.plans[0].instructions[0].op = op(0, 0, UNIT - 1));
    assert_eq!(short, [Violation::NotProduced { stripe: Stripe(0), data: 0, at: UNIT - 1 }]);
    let twice = spoilt(&|set| {
        let mut again = set.plans[0].instructions[0].clone();
        again.id.0 = 2;
        set.plans[0].instructions.push(again);
    });
    assert_eq!(twice, [Violation::RunTwice { stripe: Stripe(0), data: 0, at: 0 }]);
    let parity = spoilt(&|set| {
        let mut again = set.plans[0].clone();
        again.column = Column(2);
        again.drive = DriveId(3);
        again.instructions[0].id.0 = 2;
        set.plans.push(again);
    });
    assert!(matches!(parity[..], [Violation::Stray { .. }]), "{parity:?}");
    let health = Health::whole(&segment.shape, Generation(3));
    let mut away = whole.clone();
    away.away = health.set;
    let found = verify(&away, &segment).expect_err("no column can be asked");
    assert!(matches!(found[..], [Violation::NotReadable { .. }, Violation::NotReadable { .. }]));
}

fn op(stripe: u64, from: u32, to: u32) -> Op {
    Op::Run { stripe: Stripe(stripe), from, to, answer: 0 }
}

#[test]
fn the_way_that_takes_less_time_is_chosen() {
    let segment = segment(Shape::new(Scheme::Raid0, 4, 0, UNIT).expect("a shape"));
    let set = compiled(&segment, ColumnMask::EMPTY, 0..64 * u64::from(UNIT));
    let is_at_drives = |link_bytes_per_second, byte_ps, is_sequential| {
        let site = RunSite { link_bytes_per_second, round_trip_ns: 200_000, piece_bytes: UNIT.into() };
        let cost = MethodCost { answer_permille: 20, byte_ps, is_sequential };
        run_ways(&set, cost, &site).is_at_drives()
    };
    assert!(is_at_drives(125_000_000, 500, false), "the link is slower than the drives");
    assert!(is_at_drives(u64::MAX, 500, false), "four drives judge faster than one client");
    assert!(!is_at_drives(1_250_000_000, 700, true), "64 round trips take longer than the bytes");
    assert!(is_at_drives(12_500_000, 700, true), "through a slow link they do not");
}
