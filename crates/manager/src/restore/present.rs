//! The columns of a file that are current, by the drives' objects: see [`crate::restore::compare`].

use std::collections::BTreeSet;

use braid_layout::{Column, ColumnMask, DriveId, Role, Stripe};
use braid_meta::records::schema::SegmentRecord;
use braid_meta::rules::half_fenced;
use braid_wire::data::ListedObject;

use crate::columns::listing::Listed;

/// The columns of a segment that are current. Empty if `m` or fewer of their drives answer: only `m + 1`
/// columns are sure to have one in common with every set that the file ever had.
///
/// A drive that is away may have been replaced since the backup, and hold the file's old content. Its column
/// is out as long as `k` others remain. If the column was current, catching up copies nothing.
///
/// `touched`: the only columns that anything was sent to, if that is known. The others lack nothing.
pub(crate) fn present_set(
    segment: &SegmentRecord,
    touched: Option<ColumnMask>,
    size: u64,
    listed: &Listed,
    away: &BTreeSet<DriveId>,
) -> ColumnMask {
    let absent = segment.columns(|drive| away.contains(&drive));
    if !absent.is_empty() && segment.all().minus(absent).count() <= u32::from(segment.shape.m) {
        return ColumnMask::EMPTY;
    }
    // Writers since the backup may have touched more columns.
    let listed_in = |column: Column| listed.contains_key(&(segment.number, column));
    let touched = touched.filter(|touched| !segment.all().minus(*touched).iter().any(listed_in));
    let object = |column: Column| {
        let (drive, object) = listed.get(&(segment.number, column))?;
        (*drive == segment.drive(column) && object.object == segment.object).then_some(object)
    };
    let newest: Option<&ListedObject> = segment.all().iter().filter_map(object).max_by_key(|object| object.g);
    let Some(newest) = newest else {
        let unwritten = size <= segment.start || touched.is_some_and(ColumnMask::is_empty);
        return if unwritten { segment.set.minus(segment.joining) } else { ColumnMask::EMPTY };
    };
    let written = written_columns(segment, size).and(touched.unwrap_or(segment.all()));
    let named = newest.set.minus(newest.joining).and(segment.all());
    let is_empty = |column: Column| object(column).is_none() && !written.contains(column);
    let holds = |column: &Column| match object(*column) {
        Some(object) => object.g == newest.g,
        None => is_empty(*column) || absent.contains(*column),
    };
    let set: ColumnMask = named.iter().filter(holds).collect();
    let k = u32::from(segment.shape.k);
    if set.count() < k && absent.is_empty() {
        let objects: Vec<&ListedObject> = segment.all().iter().filter_map(object).collect();
        let empty: ColumnMask = named.iter().filter(|&column| is_empty(column)).collect();
        if let Some(set) = half_fenced::current(named, empty, k, &objects) {
            return set;
        }
    }
    let heard = set.minus(absent);
    if heard.count() >= k { heard } else { set }
}

/// The columns that hold bytes of a file of this size, if it has no holes. It is enough to look at the first
/// `k + m` stripes, as they reach every column.
fn written_columns(segment: &SegmentRecord, size: u64) -> ColumnMask {
    let Ok(shape) = braid_meta::tree::shapes::from_spec(&segment.shape, &segment.shape) else {
        return segment.all();
    };
    let bytes = size.min(segment.end).saturating_sub(segment.start);
    let stripes = bytes.div_ceil(shape.stripe_bytes()).min(u64::from(shape.width()));
    let mut columns = ColumnMask::EMPTY;
    for stripe in (0..stripes).map(Stripe) {
        let left = bytes - stripe.0 * shape.stripe_bytes();
        let data = left.div_ceil(u64::from(shape.unit_bytes())).min(u64::from(shape.k()));
        let data = (0..shape.k()).take(usize::try_from(data).unwrap_or(usize::MAX)).map(Role::Data);
        let parity = (0..shape.m()).map(Role::Parity);
        data.chain(parity).for_each(|role| columns = columns.with(shape.column(stripe, role)));
    }
    columns
}

#[cfg(test)]
mod tests {
    use braid_layout::{FileId, Generation, ObjectId};
    use braid_wire::control::ShapeSpec;

    use super::*;

    fn segment() -> SegmentRecord {
        SegmentRecord {
            number: 0,
            start: 0,
            end: u64::MAX,
            shape: ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 },
            object: ObjectId(9),
            drives: vec![DriveId(1), DriveId(2), DriveId(3)],
            set: ColumnMask::all(3),
            joining: ColumnMask::EMPTY,
            filling: None,
        }
    }

    fn mask(columns: &[u8]) -> ColumnMask {
        columns.iter().copied().map(Column).collect()
    }

    /// Objects as `(column, g, set)`.
    fn listed(objects: &[(u8, u32, &[u8])]) -> Listed {
        let object = |&(column, g, set): &(u8, u32, &[u8])| {
            let column = Column(column);
            let object = ListedObject {
                object: ObjectId(9),
                file: FileId(8),
                segment: 0,
                column,
                g: Generation(g),
                set: mask(set),
                joining: ColumnMask::EMPTY,
            };
            ((0, column), (DriveId(u128::from(column.0) + 1), object))
        };
        objects.iter().map(object).collect()
    }

    #[track_caller]
    fn check(size: u64, objects: &[(u8, u32, &[u8])], expected: &[u8]) {
        assert_eq!(present_set(&segment(), None, size, &listed(objects), &BTreeSet::new()), mask(expected));
    }

    #[test]
    fn what_drives_hold_says_which_columns_count() {
        let all: &[u8] = &[0, 1, 2];
        check(1 << 20, &[(0, 1, all), (1, 1, all), (2, 1, all)], &[0, 1, 2]);
        // Column 1 went out after the backup.
        check(1 << 20, &[(0, 4, &[0, 2]), (1, 3, all), (2, 4, &[0, 2])], &[0, 2]);
        // Removed on two drives of three, the third was away.
        check(1 << 20, &[(2, 1, all)], &[2]);
        check(1 << 20, &[], &[]);
        check(0, &[], &[0, 1, 2]);
    }

    #[test]
    fn a_file_with_holes_has_no_object_where_nothing_was_sent_to() {
        let all: &[u8] = &[0, 1, 2];
        let set = |objects: &[(u8, u32, &[u8])], touched: Option<&[u8]>| {
            present_set(&segment(), touched.map(mask), 1 << 20, &listed(objects), &BTreeSet::new())
        };
        let parity = (2, 1, all);
        assert_eq!(set(&[parity], Some(&[2])), mask(all));
        assert_eq!(set(&[parity], Some(&[1, 2])), mask(&[0, 2]), "column 1 has lost what it had");
        assert_eq!(set(&[parity], None), mask(&[2]));
        assert_eq!(set(&[], Some(&[])), mask(all), "one hole");
        assert_eq!(set(&[], Some(&[1, 2])), ColumnMask::EMPTY, "removed since");
        assert_eq!(set(&[(1, 1, all), parity], Some(&[2])), mask(&[1, 2]), "written since");
    }

    #[test]
    fn a_drive_that_is_away_has_its_column_only_where_the_others_do_not_suffice() {
        let away = |ids: &[u128]| ids.iter().copied().map(DriveId).collect::<BTreeSet<_>>();
        let all: &[u8] = &[0, 1, 2];
        let two = listed(&[(0, 3, all), (2, 3, all)]);
        assert_eq!(present_set(&segment(), None, 1 << 20, &two, &away(&[2])), mask(&[0, 2]));
        let behind = listed(&[(0, 3, all), (2, 2, all)]);
        assert_eq!(present_set(&segment(), None, 1 << 20, &behind, &away(&[2])), mask(&[0, 1]));
        assert_eq!(present_set(&segment(), None, 1 << 20, &two, &away(&[])), mask(&[0, 2]));
        let one = listed(&[(0, 3, all)]);
        assert_eq!(present_set(&segment(), None, 1 << 20, &one, &away(&[2, 3])), ColumnMask::EMPTY);
    }

    #[test]
    fn a_small_file_has_no_object_where_it_has_no_bytes() {
        // One unit: data column 0 and parity column 2 of stripe 0.
        assert_eq!(written_columns(&segment(), 100), mask(&[0, 2]));
        assert_eq!(written_columns(&segment(), 5000), mask(&[0, 1, 2]));
        let all: &[u8] = &[0, 1, 2];
        check(100, &[(0, 1, all), (2, 1, all)], &[0, 1, 2]);
        check(100, &[(2, 1, all)], &[1, 2]);
    }
}
