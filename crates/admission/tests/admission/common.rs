//! Parts and questions with round numbers.

use braid_admission::{
    About, Access, Admitted, Answer, Ask, DriveParts, Ledger, Policy, Prices, Qualified, Rail, Refused,
    Terms, Wish, decide,
};
use braid_layout::{Component, DriveId, ObjectId, Segment, Shape};
use braid_schedule::{Charge, DeviceCost, Direction, DirectionCost};

pub(crate) const MIB: u64 = 1 << 20;

/// A disk with one head: 10 ms, then 100 MiB/s. A MiB takes 20 ms.
pub(crate) fn spindle() -> DeviceCost {
    let way = DirectionCost { operation_ns: 10_000_000, bytes_per_second: 100 * MIB };
    DeviceCost { charge: Charge::Sum, read: way, write: way, sync_ns: 0 }
}

/// Drive `number` on host `host`.
pub(crate) fn drive(number: u32, host: u32) -> DriveParts {
    DriveParts {
        drive: DriveId(u128::from(number)),
        domain: vec![format!("host-{host}")],
        cost: spindle(),
        qualified: Qualified::default(),
        service_permille: 1000,
        rail: Rail::default(),
        processor: None,
        moved_permille: 0,
        free_bytes: 1 << 44,
        alive: true,
    }
}

/// A ledger of `count` drives, each on a host of its own.
pub(crate) fn ledger(count: u32) -> Ledger {
    let mut ledger = Ledger::default();
    (0..count).for_each(|number| ledger.set_drive(drive(number, number)));
    ledger
}

pub(crate) fn shape(text: &str, unit_bytes: u64) -> Shape {
    Shape::parse(text, None, u32::try_from(unit_bytes).expect("a unit")).expect("a shape")
}

/// A segment on the drives from `first` on.
pub(crate) fn segment(shape: Shape, first: u32) -> Segment {
    let component = |column: u8| Component {
        drive: DriveId(u128::from(first) + u128::from(column)),
        object: ObjectId(1),
    };
    Segment { start: 0, end: u64::MAX, shape, components: (0..shape.width()).map(component).collect() }
}

/// One stream that reads or writes whole stripes in periods of 100 ms.
pub(crate) fn terms(direction: Direction, bytes_per_second: u64, survive: u8) -> Terms {
    Terms { direction, bytes_per_second, streams: 1, period_ns: 100_000_000, survive, access: Access::Whole }
}

pub(crate) fn ask(terms: Terms, about: About) -> Ask {
    Ask { terms, about, client: None, now_ms: 0, duration_ms: None }
}

pub(crate) fn of_segment(terms: Terms, segment: Segment) -> Ask {
    ask(terms, About::Segments(vec![segment]))
}

pub(crate) fn free(terms: Terms, m: u8) -> Ask {
    ask(terms, About::New(Wish::Free { m }))
}

pub(crate) fn admitted(ledger: &Ledger, ask: &Ask) -> Admitted {
    match decide(ledger, &mut Prices::default(), &Policy::default(), ask) {
        Ok(Answer::Admitted(admitted)) => *admitted,
        other => panic!("it is not admitted: {other:?}"),
    }
}

pub(crate) fn refused(ledger: &Ledger, ask: &Ask) -> Refused {
    match decide(ledger, &mut Prices::default(), &Policy::default(), ask) {
        Ok(Answer::Refused(refused)) => *refused,
        other => panic!("it is not refused: {other:?}"),
    }
}
