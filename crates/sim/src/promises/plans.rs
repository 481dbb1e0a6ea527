//! The operations of a stripe, by the plan set that a client compiles for it.

use std::collections::HashMap;
use std::rc::Rc;

use braid_layout::{ColumnMask, Component, DriveId, Generation, Lease, ObjectId, OperationNumber, Segment};
use braid_layout::{Shape, Version};
use braid_plan::{Body, Health, Target, Want, Write};
use braid_schedule::Direction;

/// Operations of stripes, compiled once for each class of them.
#[derive(Debug, Default)]
pub(super) struct Plans {
    known: HashMap<Key, Rc<[Unit]>>,
}

/// An operation on the unit of one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) column: u8,
    pub(super) bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    shape: Shape,
    lost: u64,
    /// Number of the stripe in its rotation.
    turn: u64,
    direction: Direction,
}

impl Plans {
    /// The operations of a whole stripe with these columns lost, which are no more than the shape survives.
    pub(super) fn stripe(
        &mut self,
        shape: Shape,
        lost: ColumnMask,
        stripe: u64,
        direction: Direction,
    ) -> Rc<[Unit]> {
        let turn = stripe % u64::from(shape.width());
        let key = Key { shape, lost: lost.0, turn, direction };
        let compiled = self.known.entry(key).or_insert_with(|| compile(shape, lost, turn, direction).into());
        Rc::clone(compiled)
    }
}

fn compile(shape: Shape, lost: ColumnMask, stripe: u64, direction: Direction) -> Vec<Unit> {
    let component = |column: u8| Component { drive: DriveId(u128::from(column)), object: ObjectId(1) };
    let components = (0..shape.width()).map(component).collect();
    let segment = Segment { start: 0, end: u64::MAX, shape, components };
    let mut health = Health::whole(&shape, Generation(1));
    health.set = health.set.minus(lost);
    let target = Target { segment: &segment, index: 0, health };
    let range = stripe * shape.stripe_bytes()..(stripe + 1) * shape.stripe_bytes();
    let set = match direction {
        Direction::Read => braid_plan::read(&target, range, 0, Want::Newest),
        Direction::Write => {
            let stamp = Version { g: Generation(1), lease: Lease(1), n: 1 };
            let size = range.end;
            let write = Write { range, body: Body::Buffer { offset: 0 }, size, reach: u64::MAX, stamp };
            braid_plan::write_cheapest(&target, write, OperationNumber::FIRST)
        }
    };
    let set = set.expect("no more columns are lost than the shape survives");
    let unit = |column: u8, range: std::ops::Range<u32>| Unit { column, bytes: range.end - range.start };
    set.instructions().map(|(plan, one)| unit(plan.column.0, one.op.range())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_is_as_its_plan_set_says() {
        let mut plans = Plans::default();
        let shape = Shape::parse("raid5", Some(5), 65_536).expect("a shape");
        let mut columns = |lost, stripe, direction| -> Vec<u8> {
            plans.stripe(shape, lost, stripe, direction).iter().map(|unit| unit.column).collect()
        };
        let none = ColumnMask::EMPTY;
        assert_eq!(columns(none, 0, Direction::Read).len(), 4);
        assert_eq!(columns(none, 7, Direction::Write).len(), 5);
        let lost = ColumnMask::EMPTY.with(braid_layout::Column(2));
        for stripe in 0..5 {
            assert_eq!(columns(lost, stripe, Direction::Read), [0, 1, 3, 4]);
            assert_eq!(columns(lost, stripe, Direction::Write), [0, 1, 3, 4]);
        }
    }
}
