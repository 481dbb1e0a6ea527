//! Placement of bytes: against a model that walks unit by unit, and against golden tables.

use std::collections::BTreeMap;
use std::ops::Range;

use braid_layout::geometry::LayoutError;
use braid_layout::{
    Column, ColumnMask, Component, DriveId, Layout, ObjectId, Piece, Role, Scheme, Segment, Shape, Stripe,
};
use proptest::prelude::*;

const UNIT: u64 = 4 << 10;

fn shape(scheme: Scheme, k: u8, m: u8) -> Shape {
    Shape::new(scheme, k, m, 4 << 10).expect("a valid shape")
}

/// A segment whose column `c` is on drive `c`, in object 7.
fn segment(range: Range<u64>, shape: Shape) -> Segment {
    let component = |c: u8| Component { drive: DriveId(u128::from(c)), object: ObjectId(7) };
    Segment {
        start: range.start,
        end: range.end,
        shape,
        components: (0..shape.width()).map(component).collect(),
    }
}

/// One unit as the model places it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Placed {
    stripe: u64,
    role: Role,
    column: u8,
    /// The position in the file of the unit's first byte; `None` for parity.
    file_offset: Option<u64>,
}

/// The model: places units one after another by the rules of each scheme, without formulas. The parity of
/// raid5 starts on the last column and moves one to the left with each stripe; data starts on the column
/// after it and wraps. raid1 and rs move all their columns in the same way.
fn walk(shape: Shape, stripes: u64) -> Vec<Placed> {
    let k = shape.k();
    let m = shape.m();
    let n = shape.width();
    let mut file_offset = 0;
    let mut first = 0;
    let mut placed = Vec::new();
    for stripe in 0..stripes {
        let mut column = first;
        for position in 0..n {
            let role = if position < k { Role::Data(position) } else { Role::Parity(position - k) };
            let data = position < k;
            placed.push(Placed { stripe, role, column, file_offset: data.then_some(file_offset) });
            file_offset += if data { UNIT } else { 0 };
            column = if column + 1 == n { 0 } else { column + 1 };
        }
        if !matches!(shape.scheme(), Scheme::Raid0 | Scheme::Raid4) {
            first = if first == 0 { n - 1 } else { first - 1 };
        }
        assert!(m == 0 || n > 1);
    }
    placed
}

fn any_shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        (1u8..=64).prop_map(|k| shape(Scheme::Raid0, k, 0)),
        (1u8..=4).prop_map(|m| shape(Scheme::Raid1, 1, m)),
        (2u8..=63).prop_map(|k| shape(Scheme::Raid4, k, 1)),
        (2u8..=63).prop_map(|k| shape(Scheme::Raid5, k, 1)),
        (1u8..=4).prop_flat_map(|m| (1..=64 - m).prop_map(move |k| shape(Scheme::Rs, k, m))),
    ]
}

/// Up to three segments with their own shapes and lengths; the ends need not be unit-aligned.
fn any_layout() -> impl Strategy<Value = Layout> {
    prop::collection::vec((any_shape(), 1u64..40 * UNIT), 1..=3).prop_map(|parts| {
        let mut segments = Vec::new();
        let mut start = 0;
        for (index, (shape, length)) in parts.iter().enumerate() {
            let end = if index + 1 == parts.len() { u64::MAX } else { start + length };
            segments.push(segment(start..end, *shape));
            start = end;
        }
        Layout::new(segments).expect("they join")
    })
}

/// The pieces of a range, by the model: every unit of every segment is intersected with the range.
fn model_pieces(layout: &Layout, range: &Range<u64>) -> Vec<(usize, Piece)> {
    let mut pieces = Vec::new();
    for (index, segment) in layout.segments().iter().enumerate() {
        let length = segment.end.min(range.end).saturating_sub(segment.start);
        for unit in walk(segment.shape, length.div_ceil(segment.shape.stripe_bytes())) {
            let (Role::Data(data), Some(offset)) = (unit.role, unit.file_offset) else { continue };
            let begin = segment.start + offset;
            let from = begin.max(range.start);
            let to = (begin + UNIT).min(range.end).min(segment.end);
            if from < to {
                let within = |at: u64| u32::try_from(at - begin).expect("inside the unit");
                let stripe = Stripe(unit.stripe);
                let column = Column(unit.column);
                pieces.push((
                    index,
                    Piece { file_offset: from, stripe, data, column, from: within(from), to: within(to) },
                ));
            }
        }
    }
    pieces
}

proptest! {
    #[test]
    fn roles_and_columns_are_as_the_model_walks(shape in any_shape(), far in any::<u64>()) {
        for unit in walk(shape, 2 * u64::from(shape.width()) + 3) {
            prop_assert_eq!(shape.column(Stripe(unit.stripe), unit.role), Column(unit.column), "{} {:?}", shape, unit);
            prop_assert_eq!(shape.role(Stripe(unit.stripe), Column(unit.column)), unit.role, "{} {:?}", shape, unit);
        }
        let columns: ColumnMask = (0..shape.width()).map(|column| {
            shape.column(Stripe(far), shape.role(Stripe(far), Column(column)))
        }).collect();
        prop_assert_eq!(columns, ColumnMask::all(shape.width()));
    }

    #[test]
    fn pieces_are_as_the_model_cuts(layout in any_layout(), a in 0u64..200 * UNIT, b in 0u64..200 * UNIT) {
        let range = a.min(b)..a.max(b);
        let pieces: Vec<(usize, Piece)> = layout.pieces_in(range.clone()).collect();
        prop_assert_eq!(&pieces, &model_pieces(&layout, &range));
        let mut next = range.start;
        for (_, piece) in &pieces {
            prop_assert_eq!(piece.file_offset, next);
            prop_assert!(!piece.is_empty() && u64::from(piece.to) <= UNIT);
            next += u64::from(piece.len());
        }
        prop_assert_eq!(next, range.end);
    }

    #[test]
    fn parts_cover_the_range_once_and_in_order(layout in any_layout(), a in 0u64..200 * UNIT, b in 0u64..200 * UNIT) {
        let range = a.min(b)..a.max(b);
        let mut next = range.start;
        for (index, part) in layout.parts(range.clone()) {
            let segment = &layout.segments()[index];
            prop_assert_eq!(part.start, next);
            prop_assert!(part.start < part.end && segment.start <= part.start && part.end <= segment.end);
            let touched: Vec<Stripe> = segment.stripes(part.clone()).collect();
            let mut expected: Vec<Stripe> = segment.pieces(part.clone()).map(|piece| piece.stripe).collect();
            expected.dedup();
            prop_assert_eq!(touched, expected);
            next = part.end;
        }
        prop_assert_eq!(next, range.end);
    }

    #[test]
    fn a_byte_is_found_and_found_back(layout in any_layout(), offset in 0u64..200 * UNIT) {
        let (index, segment) = layout.segment_at(offset);
        let (component, at) = layout.locate(offset);
        let column = segment.components.iter().position(|c| *c == component).expect("a component of the segment");
        let column = Column(u8::try_from(column).expect("below 64"));
        prop_assert_eq!(segment.file_offset(column, at), Some(offset));
        let (of_piece, piece) = layout.pieces_in(offset..offset + 1).next().expect("one piece");
        prop_assert_eq!((of_piece, piece.column), (index, column));
        prop_assert_eq!(segment.object_offset(piece.stripe) + u64::from(piece.from), at);
        prop_assert!(segment.stripe_range(piece.stripe).contains(&offset));
        prop_assert!(segment.unit_range(piece.stripe, piece.data).contains(&offset));
    }

    /// Every byte of a component is one byte of the file, or parity, or past the end: `file_offset` agrees
    /// with the model's units.
    #[test]
    fn parity_and_the_space_past_the_end_hold_no_byte_of_the_file(shape in any_shape(), length in 1u64..60 * UNIT) {
        let segment = segment(0..length, shape);
        for unit in walk(shape, length.div_ceil(shape.stripe_bytes()) + 1) {
            for within in [0, 1, UNIT - 1] {
                let expected = unit.file_offset.map(|offset| offset + within).filter(|offset| *offset < length);
                prop_assert_eq!(segment.file_offset(Column(unit.column), unit.stripe * UNIT + within), expected);
            }
        }
    }

    /// Lengths of units and components for a file of some size, against the model's units cut at that size.
    #[test]
    fn lengths_are_as_the_model_cuts(shape in any_shape(), end in 1u64..60 * UNIT, size in 0u64..70 * UNIT) {
        let segment = segment(0..end, shape);
        let cut = end.min(size);
        let units = walk(shape, end.div_ceil(shape.stripe_bytes()) + 1);
        let of_data = |unit: &Placed| unit.file_offset.map_or(0, |offset| cut.saturating_sub(offset).min(UNIT));
        let mut components = BTreeMap::new();
        for unit in &units {
            let longest = units.iter().filter(|other| other.stripe == unit.stripe).map(of_data).max().expect("k >= 1");
            let expected = if unit.file_offset.is_some() { of_data(unit) } else { longest };
            prop_assert_eq!(u64::from(segment.unit_len(Stripe(unit.stripe), unit.role, size)), expected, "{:?}", unit);
            let length = components.entry(unit.column).or_insert(0);
            if expected > 0 {
                *length = unit.stripe * UNIT + expected;
            }
        }
        for (column, expected) in components {
            prop_assert_eq!(segment.component_len(Column(column), size), expected, "{} column {}", shape, column);
        }
    }
}

#[test]
fn an_empty_range_has_no_parts() {
    let first = segment(0..10, shape(Scheme::Raid0, 2, 0));
    let second = segment(10..u64::MAX, shape(Scheme::Raid5, 2, 1));
    let layout = Layout::new(vec![first, second]).expect("they join");
    for at in [0, 5, 10, 11, UNIT * 100, u64::MAX] {
        assert_eq!(layout.parts(at..at).count(), 0, "{at}");
        assert_eq!(layout.pieces_in(at..at).count(), 0, "{at}");
        let (_, segment) = layout.segment_at(at);
        assert_eq!(segment.stripes(at..at).count(), 0, "{at}");
    }
}

#[test]
fn the_last_byte_a_file_can_have_is_found() {
    let layout = Layout::new(vec![segment(0..u64::MAX, shape(Scheme::Raid5, 4, 1))]).expect("valid");
    let last = u64::MAX - 1;
    let (component, offset) = layout.locate(last);
    let piece = layout.pieces_in(last..u64::MAX).next().expect("one piece").1;
    assert_eq!((piece.file_offset, piece.len()), (last, 1));
    assert_eq!(component.drive.0, u128::from(piece.column.0));
    assert_eq!(layout.segments()[0].file_offset(piece.column, offset), Some(last));
}

#[test]
fn layouts_that_do_not_join_are_refused() {
    let shape = shape(Scheme::Raid5, 2, 1);
    let check = |ends: &[(u64, u64)], expected: Result<(), LayoutError>| {
        let segments = ends.iter().map(|(start, end)| segment(*start..*end, shape)).collect();
        assert_eq!(Layout::new(segments).map(|_| ()), expected, "{ends:?}");
    };
    check(&[(0, 10), (10, u64::MAX)], Ok(()));
    check(&[], Err(LayoutError::Gap { index: 0 }));
    check(&[(1, u64::MAX)], Err(LayoutError::Gap { index: 0 }));
    check(&[(0, 10), (11, u64::MAX)], Err(LayoutError::Gap { index: 1 }));
    check(&[(0, 10), (9, u64::MAX)], Err(LayoutError::Gap { index: 1 }));
    check(&[(0, 10), (10, 10), (10, u64::MAX)], Err(LayoutError::Gap { index: 1 }));
    check(&[(0, 10), (10, 20)], Err(LayoutError::Gap { index: 2 }));
    for components in [vec![0, 1], vec![0, 1, 1], vec![0, 1, 2, 3], vec![0, 1, 2, 2]] {
        let mut bad = segment(0..u64::MAX, shape);
        let drive = |c: &u128| Component { drive: DriveId(*c), object: ObjectId(7) };
        bad.components = components.iter().map(drive).collect();
        let mut distinct = components.clone();
        distinct.dedup();
        let expected = LayoutError::Components { index: 0, components: distinct.len(), width: 3 };
        assert_eq!(Layout::new(vec![bad]), Err(expected), "{components:?}");
    }
}

#[test]
fn columns_on_drives() {
    let segment = segment(0..u64::MAX, shape(Scheme::Rs, 4, 2));
    let columns = segment.columns_on(|drive| drive.0 % 3 == 1);
    assert_eq!(columns.iter().collect::<Vec<_>>(), [Column(1), Column(4)]);
}

/// The placement of units, as tables: what each column holds in the first stripes. Data units are numbered
/// through the file, as D0, D1, ... (in the last line, far on, from the stripe's first, as +0, +1, ...);
/// parity units are P0, P1, ... of their stripe. Files on drives are placed by this: it may never change.
#[test]
fn golden() {
    let mut text = String::new();
    for (scheme, k, m) in [
        (Scheme::Raid0, 4, 0),
        (Scheme::Raid1, 1, 1),
        (Scheme::Raid1, 1, 2),
        (Scheme::Raid4, 4, 1),
        (Scheme::Raid5, 4, 1),
        (Scheme::Rs, 4, 2),
        (Scheme::Rs, 3, 4),
    ] {
        let shape = shape(scheme, k, m);
        let segment = segment(0..u64::MAX, shape);
        let stripes = u64::from(shape.width()) + 1;
        text += &format!("{shape}\n  stripe |");
        for column in 0..shape.width() {
            text += &format!(" {:>4}", format!("c{column}"));
        }
        text += "\n";
        for stripe in (0..stripes).chain([1_000_007]) {
            text += &format!("{stripe:>8} |");
            for column in (0..shape.width()).map(Column) {
                let cell = match segment.role(Stripe(stripe), column) {
                    Role::Data(data) if stripe < stripes => {
                        format!("D{}", stripe * u64::from(k) + u64::from(data))
                    }
                    Role::Data(data) => format!("+{data}"),
                    Role::Parity(parity) => format!("P{parity}"),
                };
                text += &format!(" {cell:>4}");
            }
            text += "\n";
        }
        text += "\n";
    }
    assert!(text == include_str!("../golden/placement-units.txt"), "units moved; they are now\n{text}");
}
