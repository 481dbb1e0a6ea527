//! Pairs of what stands now where something of a snapshot is to be again, and that.
//!
//! Directories are told apart by their numbers: a path may have led through another one than it does now.

use std::collections::BTreeMap;

use braid_layout::FileId;
use braid_wire::control::{ChangeRow, EntryKind, NameBelow};

/// A name in a directory.
pub(super) type Entry = (FileId, Vec<u8>);

/// Pairs what is gone with what was added under the same name in the same directory: directories that stand
/// for former ones, and what is replaced. A directory is paired with a directory, and anything else with no
/// directory.
pub(super) fn pairs(
    removed: &[ChangeRow],
    added: &[ChangeRow],
) -> (BTreeMap<FileId, FileId>, BTreeMap<Entry, FileId>) {
    let is_directory = |row: &ChangeRow| row.kind == EntryKind::Directory;
    let added: BTreeMap<(Entry, bool), FileId> = added
        .iter()
        .filter_map(|row| Some(((entry(row.after.as_ref()?), is_directory(row)), row.file)))
        .collect();
    let mut homes: BTreeMap<FileId, FileId> = BTreeMap::new();
    let mut replaced = BTreeMap::new();
    // From the top: a directory is paired before what was in it.
    for row in removed {
        let Some((directory, name)) = row.before.as_ref().map(entry) else { continue };
        let home = homes.get(&directory).copied().unwrap_or(directory);
        let is = is_directory(row);
        let Some((((home, name), _), now)) = added.get_key_value(&((home, name), is)) else { continue };
        replaced.insert((*home, name.clone()), *now);
        if is {
            homes.insert(row.file, *now);
        }
    }
    (homes, replaced)
}

/// The name under which a difference is told.
pub(super) fn named(row: &ChangeRow) -> Option<&NameBelow> {
    row.before.as_ref().or(row.after.as_ref())
}

/// A name in its directory.
pub(super) fn entry(name: &NameBelow) -> Entry {
    (name.directory, last(&name.path).to_vec())
}

pub(super) fn depth(path: &[u8]) -> usize {
    path.iter().filter(|&&byte| byte == b'/').count()
}

/// The last name of a path.
pub(super) fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use braid_wire::control::ChangeKind;

    use super::*;

    fn row(change: ChangeKind, kind: EntryKind, file: u64, directory: u64, path: &str) -> ChangeRow {
        let name = NameBelow { directory: FileId(directory), path: path.into() };
        let is_new = change == ChangeKind::Added;
        let before = (!is_new).then(|| name.clone());
        ChangeRow { change, kind, file: FileId(file), before, after: is_new.then_some(name) }
    }

    #[test]
    fn a_name_is_replaced_in_the_same_directory_and_not_in_another_of_that_path() {
        use ChangeKind::{Added, Removed};
        use EntryKind::{Directory, File};
        // Directory 5 was at `a`, and 9 is there now.
        let gone = [row(Removed, File, 6, 5, "a/x")];
        assert_eq!(pairs(&gone, &[row(Added, File, 10, 9, "a/x")]).1, BTreeMap::new());
        let taken = pairs(&gone, &[row(Added, File, 10, 5, "a/x")]).1;
        assert_eq!(taken, BTreeMap::from([((FileId(5), b"x".to_vec()), FileId(10))]));
        // 5 is gone itself: 9 stands for it.
        let gone = [row(Removed, Directory, 5, 1, "a"), row(Removed, File, 6, 5, "a/x")];
        let (homes, taken) =
            pairs(&gone, &[row(Added, Directory, 9, 1, "a"), row(Added, File, 10, 9, "a/x")]);
        assert_eq!(homes, BTreeMap::from([(FileId(5), FileId(9))]));
        assert_eq!(taken.get(&(FileId(9), b"x".to_vec())), Some(&FileId(10)));
        // A file does not stand for a directory.
        assert_eq!(pairs(&gone, &[row(Added, File, 9, 1, "a")]).1, BTreeMap::new());
    }
}
