//! One broken plan set per rule of the verifier: a good set with one defect, which is exactly what is found.

mod any;
mod flow;
mod form;
mod meaning;

use braid_layout::{
    Column, ColumnMask, Component, DriveId, Generation, Lease, ObjectId, Scheme, Segment, Shape, Stripe,
    Version,
};
use braid_plan::{
    Arithmetic, Body, Health, Instruction, InstructionId, PlanSet, Target, Violation, Want, Write, check,
    read, rebuild, verify, write,
};

pub(crate) const UNIT: u32 = 4096;

pub(crate) fn segment() -> Segment {
    let shape = Shape::new(Scheme::Raid5, 4, 1, UNIT).unwrap();
    let component =
        |column: u8| Component { drive: DriveId(u128::from(column)), object: ObjectId(u64::from(column)) };
    Segment { start: 0, end: u64::MAX, shape, components: (0..5).map(component).collect() }
}

pub(crate) fn with<T>(out: &[u8], joining: &[u8], compile: impl Fn(&Target<'_>) -> T) -> T {
    let segment = segment();
    let mask = |columns: &[u8]| columns.iter().copied().map(Column).collect::<ColumnMask>();
    let mut health = Health::whole(&segment.shape, Generation(2));
    health.set = health.set.minus(mask(out));
    health.joining = mask(joining);
    compile(&Target { segment: &segment, index: 0, health })
}

pub(crate) fn request(range: std::ops::Range<u64>, size: u64) -> Write {
    let stamp = Version { g: Generation(2), lease: Lease(1), n: 9 };
    Write { range, body: Body::Buffer { offset: 0 }, size, reach: u64::MAX, stamp }
}

/// Two units of one stripe, column 1 and half of column 2, healthy. Reads 0 and 1.
pub(crate) fn healthy_read() -> PlanSet {
    with(&[], &[], |target| read(target, 4096..10000, 0, Want::Newest).unwrap())
}

/// Column 1 made from the others.
pub(crate) fn degraded_read() -> PlanSet {
    with(&[1], &[], |target| read(target, 4096..8192, 0, Want::Newest).unwrap())
}

/// A write of all of stripe 0, nothing read: writes 0 to 4, the last of them parity; encode 5.
pub(crate) fn full_stripe() -> PlanSet {
    with(&[], &[], |target| write(target, request(0..16384, 0)).unwrap())
}

/// Three units of stripe 0: writes 0, 1, 2; read 3 of column 3; parity write 4; encode 5.
pub(crate) fn reconstruct_write() -> PlanSet {
    with(&[], &[], |target| write(target, request(0..12288, 16384)).unwrap())
}

/// A hundred bytes of column 1: read 0, write 1, parity read 2, parity write 3, delta 4.
pub(crate) fn read_modify_write() -> PlanSet {
    with(&[], &[], |target| write(target, request(4100..4200, 16384)).unwrap())
}

/// Column 0 of stripe 0: write 0; reads 1, 2, 3 and 4 (parity); reconstruct 5.
pub(crate) fn rebuilt_data() -> PlanSet {
    with(&[], &[0], |target| rebuild(target, 0..1, ColumnMask::EMPTY.with(Column(0))).unwrap())
}

/// Column 4, parity of stripe 0: reads 0 to 3, write 4, encode 5.
pub(crate) fn rebuilt_parity() -> PlanSet {
    with(&[], &[4], |target| rebuild(target, 0..1, ColumnMask::EMPTY.with(Column(4))).unwrap())
}

/// Stripe 0: reads 0 to 4, encode 5, compare 6.
pub(crate) fn checked() -> PlanSet {
    with(&[], &[], |target| check(target, 0..1).unwrap())
}

pub(crate) fn instruction(set: &mut PlanSet, id: u32) -> &mut Instruction {
    set.plans
        .iter_mut()
        .flat_map(|plan| &mut plan.instructions)
        .find(|instruction| instruction.id == InstructionId(id))
        .unwrap()
}

pub(crate) fn step(set: &mut PlanSet, id: u32) -> &mut Arithmetic {
    set.arithmetic.iter_mut().find(|step| step.id == InstructionId(id)).unwrap()
}

/// `good` verifies; after `spoil`, exactly `expected` is found.
pub(crate) fn spoiled(good: PlanSet, spoil: impl Fn(&mut PlanSet), expected: &[Violation]) {
    assert_eq!(verify(&good, &segment()), Ok(()), "{good}");
    let mut bad = good.clone();
    spoil(&mut bad);
    assert_ne!(good, bad, "nothing was spoiled");
    assert_eq!(verify(&bad, &segment()), Err(expected.to_vec()), "{bad}");
}

pub(crate) fn id(id: u32) -> InstructionId {
    InstructionId(id)
}

pub(crate) const FIRST: Stripe = Stripe(0);
