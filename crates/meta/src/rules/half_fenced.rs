//! Fences that were under way when the manager's state was lost: see the comparison of a restored state.

use braid_layout::{Column, ColumnMask, Generation};
use braid_wire::data::ListedObject;

/// The columns that are current after a fence that has reached too few of the columns that it names; `None`:
/// that is not what happened.
///
/// Nothing was acknowledged in the fence's generation, so the columns that it has not reached are as good. Of
/// those the ones with the highest generations count, and no more than are needed: a drive that was replaced
/// since the backup has a low generation. A column that was out or joining in a later generation than its own
/// does not count.
pub fn current(
    named: ColumnMask,
    empty: ColumnMask,
    k: u32,
    objects: &[&ListedObject],
) -> Option<ColumnMask> {
    let knows = |other: &ListedObject, column| other.set.minus(other.joining).contains(column);
    let stayed = |one: &ListedObject| {
        objects.iter().filter(|other| other.g > one.g).all(|other| knows(other, one.column))
    };
    let mut found: Vec<(Generation, Column)> = objects
        .iter()
        .filter(|object| named.contains(object.column) && stayed(object))
        .map(|object| (object.g, object.column))
        .collect();
    found.sort_unstable_by(|one, other| other.cmp(one));
    let last = k.saturating_sub(empty.count()).saturating_sub(1);
    let &(least, _) = found.get(usize::try_from(last).ok()?)?;
    let current = found.iter().filter(|(g, _)| *g >= least).map(|&(_, column)| column);
    Some(current.chain(empty.iter()).collect())
}

#[cfg(test)]
mod tests {
    use braid_layout::{FileId, ObjectId};

    use super::*;

    fn mask(columns: &[u8]) -> ColumnMask {
        columns.iter().copied().map(Column).collect()
    }

    /// Checks the current columns of a file with `k` = 2; objects as `(column, g, set)`.
    #[track_caller]
    fn check(named: &[u8], empty: &[u8], objects: &[(u8, u32, &[u8])], expected: Option<&[u8]>) {
        let object = |&(column, g, set): &(u8, u32, &[u8])| ListedObject {
            object: ObjectId(9),
            file: FileId(8),
            segment: 0,
            column: Column(column),
            g: Generation(g),
            set: mask(set),
            joining: ColumnMask::EMPTY,
        };
        let objects: Vec<ListedObject> = objects.iter().map(object).collect();
        let objects: Vec<&ListedObject> = objects.iter().collect();
        assert_eq!(current(mask(named), mask(empty), 2, &objects), expected.map(mask));
    }

    #[test]
    fn a_fence_under_way_takes_no_column_out_that_is_needed() {
        let all: &[u8] = &[0, 1, 2];
        check(all, &[], &[(0, 5, all), (1, 4, all), (2, 4, all)], Some(&[0, 1, 2]));
        // Column 2 may be on a drive that was replaced since.
        check(all, &[], &[(0, 5, all), (1, 4, all), (2, 2, all)], Some(&[0, 1]));
        // Column 2 was out in generation 4.
        check(all, &[], &[(0, 5, all), (1, 4, &[0, 1]), (2, 3, all)], Some(&[0, 1]));
        check(all, &[], &[(0, 5, all), (1, 4, &[0, 2]), (2, 3, &[0, 2])], Some(&[0, 1]));
        // Columns that are out are fenced too, to be told so.
        check(&[1, 2], &[], &[(0, 6, &[1, 2]), (1, 5, &[1, 2]), (2, 5, &[1, 2])], Some(&[1, 2]));
        check(all, &[1], &[(0, 5, all), (2, 4, all)], Some(&[0, 1]));
        check(all, &[], &[(2, 4, all)], None);
    }
}
