//! Fills of a column of a new layout: only the column's own units are written, whole, from the caller's bytes
//! alone.

use braid_layout::{
    Column, Component, DriveId, Generation, Lease, ObjectId, Role, Scheme, Segment, Shape, Stripe, Version,
};
use braid_plan::verify::verify;
use braid_plan::{Body, Health, Op, Target, Write, fill};

fn segment(shape: Shape) -> Segment {
    let component = |column: u8| Component { drive: DriveId(column.into()), object: ObjectId(7) };
    let components = (1..=shape.width()).map(component).collect();
    Segment { start: 0, end: u64::MAX, shape, components }
}

#[test]
fn each_column_of_each_scheme_is_filled_by_itself() {
    const STRIPES: u64 = 7;
    let shapes = [
        (Scheme::Raid0, 3, 0),
        (Scheme::Raid1, 1, 2),
        (Scheme::Raid4, 3, 1),
        (Scheme::Raid5, 4, 1),
        (Scheme::Rs, 3, 2),
    ];
    for (scheme, k, m) in shapes {
        let shape = Shape::new(scheme, k, m, 4096).unwrap();
        let segment = segment(shape);
        let mut health = Health::whole(&shape, Generation(3));
        // No column of the new layout is ready.
        health.joining = health.set;
        let target = Target { segment: &segment, index: 0, health };
        for own in (0..shape.width()).map(Column) {
            let write = Write {
                range: shape.stripe_bytes()..(1 + STRIPES) * shape.stripe_bytes(),
                body: Body::Buffer { offset: 0 },
                size: 0,
                reach: 0,
                stamp: Version { g: Generation(2), lease: Lease(1), n: 1 },
            };
            let set = fill(&target, write, own).unwrap();
            verify(&set, &segment).unwrap();
            let mut ops: Vec<&Op> = set.instructions().map(|(_, instruction)| &instruction.op).collect();
            ops.sort_by_key(|op| op.stripe());
            assert!(set.plans.iter().all(|plan| plan.column == own), "{shape}: {own}");
            assert_eq!(ops.len(), usize::try_from(STRIPES).unwrap(), "{shape}: a unit of each stripe");
            for (stripe, op) in (1..).zip(ops) {
                let Op::StripeWrite { stripe: of, from, to, .. } = op else { panic!("{shape}: {op:?}") };
                assert_eq!((of.0, *from, *to), (stripe, 0, 4096), "{shape}");
            }
            let is_parity = |stripe: &u64| matches!(segment.role(Stripe(*stripe), own), Role::Parity(_));
            // A copy is the data unit itself.
            let computed = if scheme == Scheme::Raid1 { 0 } else { (1..=STRIPES).filter(is_parity).count() };
            assert_eq!(set.arithmetic.len(), computed, "{shape}: parity is computed, and nothing else");
        }
    }
}
