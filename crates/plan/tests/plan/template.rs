//! A template gives the same read as compiling does.

use braid_layout::{Column, ColumnMask, Component, DriveId, Generation, ObjectId, Scheme, Segment, Shape};
use braid_plan::{
    Health, MemoryRange, Op, Placed, Target, Template, TemplateError, UnitRead, Want, read, verify,
};
use proptest::prelude::*;

fn shapes() -> impl Strategy<Value = Shape> {
    let unit = prop_oneof![Just(4u32 << 10), Just(64 << 10), Just(512 << 10)];
    let kinds = prop_oneof![
        (1u8..7).prop_map(|k| (Scheme::Raid0, k, 0)),
        (1u8..4).prop_map(|m| (Scheme::Raid1, 1, m)),
        (2u8..7).prop_map(|k| (Scheme::Raid4, k, 1)),
        (2u8..7).prop_map(|k| (Scheme::Raid5, k, 1)),
        (2u8..7, 1u8..4).prop_map(|(k, m)| (Scheme::Rs, k, m)),
    ];
    (unit, kinds).prop_map(|(unit, (scheme, k, m))| Shape::new(scheme, k, m, unit).expect("a shape"))
}

fn mask(bits: u64, width: u8) -> ColumnMask {
    (0..width).map(Column).filter(|column| bits >> column.0 & 1 == 1).collect()
}

/// A place in one unit: stripe, data unit, and bytes of the unit.
fn range(segment: &Segment, stripe: u64, data: u8, from: u32, bytes: u32) -> std::ops::Range<u64> {
    let (shape, unit) = (segment.shape, u64::from(segment.shape.unit_bytes()));
    let bytes = u64::from(bytes).min(unit);
    let from = u64::from(from) % (unit - bytes + 1);
    let start = segment.start + stripe * shape.stripe_bytes() + u64::from(data % shape.k()) * unit + from;
    start..start + bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_it_gives_is_what_compiling_gives(
        shape in shapes(),
        start in 0u64..1 << 40,
        (out, joining, away) in (any::<u64>(), any::<u64>(), any::<u64>()),
        (sparse, turns) in (any::<[bool; 3]>(), 1u64..1000),
        (stripe, data, from, other) in (0u64..100, any::<u8>(), any::<u32>(), any::<u32>()),
        bytes in prop_oneof![Just(4096u32), 1u32..16384],
    ) {
        let width = shape.width();
        let component = |column: u8| Component {
            drive: DriveId(u128::from(column) + 7),
            object: ObjectId(u64::from(column) + 100),
        };
        let components = (0..width).map(component).collect();
        let segment = Segment { start, end: u64::MAX, shape, components };
        let of = |is: bool, bits: u64| if is { mask(bits & bits >> 7, width) } else { ColumnMask::EMPTY };
        let set = ColumnMask::all(width).minus(of(sparse[0], out));
        let joining = of(sparse[1], joining).and(set);
        let away = of(sparse[2], away).and(set);
        let health = Health { g: Generation(3), set, joining, away };
        let target = Target { segment: &segment, index: 2, health };
        let first = range(&segment, stripe, data, from, bytes);
        let second = range(&segment, stripe + turns * u64::from(width), data, other, bytes);
        let first = Placed::of(&segment, health, &first).expect("in one unit");
        let placed = Placed::of(&segment, health, &second).expect("in one unit");
        prop_assert_eq!(first.class, placed.class);
        let compiled = read(&target, second, 0, Want::Newest);
        match Template::new(&target, first) {
            Ok(template) => {
                let compiled = compiled.expect("another of its class is compiled");
                prop_assert_eq!(verify(&compiled, &segment), Ok(()));
                let only = template.only_read(&placed);
                prop_assert_eq!(only.is_some(), compiled.len() == 1);
                if let (Some((column, read)), Some((plan, one))) = (only, compiled.instructions().next()) {
                    let UnitRead { stripe, from, to, want } = read;
                    let into = MemoryRange::User { offset: 0, len: to - from };
                    prop_assert_eq!(column, plan.column);
                    prop_assert_eq!(&Op::Read { stripe, from, to, into, want }, &one.op);
                }
            }
            Err(TemplateError::Plan(_)) => prop_assert!(compiled.is_err()),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}

#[test]
fn what_crosses_units_has_no_template() {
    let shape = Shape::new(Scheme::Raid5, 2, 1, 4096).expect("a shape");
    let components = vec![Component { drive: DriveId(1), object: ObjectId(1) }; 3];
    let segment = Segment { start: 0, end: 1 << 20, shape, components };
    let health = Health::whole(&shape, Generation(1));
    let placed = |range| Placed::of(&segment, health, &range);
    assert!(placed(0..4096).is_some() && placed(4095..4096).is_some());
    assert!(placed(1..4097).is_none() && placed(5..5).is_none() && placed(0..(1 << 20) + 1).is_none());
    let class = |range| placed(range).expect("in one unit").class;
    assert_eq!(class(0..10), class(3 * 8192 + 5..3 * 8192 + 15));
    assert_ne!(class(0..10), class(8192..8202), "other columns");
    assert_ne!(class(0..10), class(4096..4106), "another unit");
    assert_ne!(class(0..10), class(0..11));
}
