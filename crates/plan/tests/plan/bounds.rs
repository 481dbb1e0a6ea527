//! Requests of any size become plan sets of bounded size.

use std::ops::Range;

use braid_layout::{
    Column, ColumnMask, Component, DriveId, Generation, Layout, Lease, ObjectId, OperationNumber, Scheme,
    Segment, Shape, Version,
};
use braid_plan::request::{INSTRUCTIONS_MAX, SCRATCH_BYTES_MAX};
use braid_plan::{
    Body, Health, PlanError, Target, Want, Write, check, parts, read, rebuild, stripes_max, verify, write,
    write_cheapest,
};

fn segment(shape: Shape, bytes: Range<u64>) -> Segment {
    let component = |column: u8| Component { drive: DriveId(u128::from(column)), object: ObjectId(1) };
    let components = (0..shape.width()).map(component).collect();
    Segment { start: bytes.start, end: bytes.end, shape, components }
}

fn shape(scheme: Scheme, k: u8, m: u8, unit: u32) -> Shape {
    Shape::new(scheme, k, m, unit).unwrap()
}

fn some_shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for unit in [4 << 10, 512 << 10, 64 << 20] {
        shapes.extend([
            shape(Scheme::Raid0, 1, 0, unit),
            shape(Scheme::Raid0, 64, 0, unit),
            shape(Scheme::Raid1, 1, 4, unit),
            shape(Scheme::Raid4, 2, 1, unit),
            shape(Scheme::Raid5, 4, 1, unit),
            shape(Scheme::Rs, 1, 4, unit),
            shape(Scheme::Rs, 60, 4, unit),
        ]);
    }
    shapes
}

#[test]
fn parts_cover_a_range_once_and_stay_in_one_segment() {
    let small = shape(Scheme::Raid1, 1, 1, 4096);
    let wide = shape(Scheme::Raid5, 4, 1, 4096);
    let layout = Layout::new(vec![segment(small, 0..10_000), segment(wide, 10_000..u64::MAX)]).unwrap();
    for range in [0..1, 9_999..10_001, 0..100_000_000, 10_000..26_384, 5..5] {
        let mut at = range.start;
        for part in parts(&layout, range.clone()) {
            let segment = &layout.segments()[part.segment];
            assert_eq!((part.range.start, part.skip), (at, at - range.start));
            assert!(segment.start <= part.range.start && part.range.end <= segment.end);
            assert!(part.stripes <= stripes_max(&segment.shape));
            let health = Health::whole(&segment.shape, Generation(1));
            let target = Target { segment, index: part.segment, health };
            let set = read(&target, part.range.clone(), part.skip, Want::Newest).unwrap();
            assert_eq!(set.stripes.len(), usize::try_from(part.stripes).unwrap());
            at = part.range.end;
        }
        assert_eq!(at, range.end);
    }
}

/// The largest sets, with as many columns lost or joining as possible, keep the bounds and verify.
#[test]
fn the_largest_sets_keep_the_bounds() {
    for shape in some_shapes() {
        let segment = segment(shape, 0..u64::MAX);
        let lost: ColumnMask = (0..shape.m()).map(Column).collect();
        for joining in [ColumnMask::EMPTY, lost] {
            let all = ColumnMask::all(shape.width());
            let set = if joining.is_empty() { all.minus(lost) } else { all };
            let health = Health { set, joining, ..Health::whole(&shape, Generation(1)) };
            let target = Target { segment: &segment, index: 0, health };
            let stripes = stripes_max(&shape);
            let bytes = stripes * shape.stripe_bytes();
            let body = Body::Buffer { offset: 0 };
            let stamp = Version { g: Generation(1), lease: Lease(1), n: 1 };
            let request = Write { range: 1..bytes - 1, body, size: bytes, reach: u64::MAX, stamp };
            let sets = [
                read(&target, 1..bytes - 1, 0, Want::Newest),
                write(&target, request.clone()),
                write_cheapest(&target, request, OperationNumber::FIRST),
                check(&target, 0..stripes),
                rebuild(&target, 0..stripes, joining),
            ];
            for set in sets {
                let set = set.unwrap();
                let scratch = set.totals().scratch_bytes;
                assert!(set.len() <= INSTRUCTIONS_MAX, "{shape}: {} instructions", set.len());
                assert!(scratch <= SCRATCH_BYTES_MAX || stripes == 1, "{shape}: {scratch} bytes of scratch");
                assert_eq!(verify(&set, &segment), Ok(()), "{shape}");
            }
            let more = check(&target, 0..stripes + 1);
            assert_eq!(more, Err(PlanError::TooLarge { stripes: stripes + 1, max: stripes }));
        }
    }
}
