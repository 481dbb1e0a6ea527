//! Kept records: names and attributes as the manager told them. A record is kept until the manager reports
//! that others have changed it, or until it changes here; and no request is answered from it while such
//! reports would not be heard.
//!
//! An answer is not kept if it was asked for before such a change and comes after it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use braid_client::Watching;
use braid_layout::FileId;
use braid_wire::control::{Entry, EntryKind, StatRow};

/// Maximum number of records that are kept: beyond it all are dropped.
pub(crate) const ROWS_MAX: usize = 1 << 17;
const NAMES_MAX: usize = 1 << 18;

/// Names and records kept from the manager's answers.
#[derive(Default)]
pub(crate) struct Kept {
    watching: OnceLock<Watching>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of changes so far.
    changes: u64,
    rows: HashMap<FileId, StatRow>,
    /// Files among `rows` that have several names.
    linked: BTreeSet<FileId>,
    names: HashMap<FileId, Names>,
    count: usize,
}

/// The names of a directory.
#[derive(Default)]
struct Names {
    known: HashMap<Vec<u8>, Name>,
    /// True if the directory was made here and no other mount has changed it: it has no names but these.
    are_all: bool,
}

/// Entry that a name is known to stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    File(FileId),
    Nothing,
    /// The name has changed here, and has not been asked for since.
    Changed,
}

/// Count of changes at the time of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked(u64);

/// Kept knowledge of a name.
pub(crate) enum Known {
    /// Record of the entry with this name.
    Row(StatRow),
    /// The name does not exist.
    Nothing,
    Unknown,
}

impl Kept {
    /// Begins to keep records, as changes are heard of from now on.
    pub(crate) fn begin(&self, watching: Watching) {
        // The watch is set only here.
        let _ = self.watching.set(watching);
    }

    pub(crate) fn watching(&self) -> Option<&Watching> {
        self.watching.get()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if all changes by others are heard of now.
    pub(crate) fn is_live(&self) -> bool {
        self.watching.get().is_some_and(Watching::is_live)
    }

    /// Returns the count of changes, for a request that is about to be made.
    pub(crate) fn ask(&self) -> Asked {
        Asked(self.lock().changes)
    }

    pub(crate) fn row(&self, file: FileId) -> Option<StatRow> {
        if !self.is_live() {
            return None;
        }
        self.lock().rows.get(&file).cloned()
    }

    /// The last record of a file, though it may have changed.
    pub(crate) fn known_row(&self, file: FileId) -> Option<StatRow> {
        self.lock().rows.get(&file).cloned()
    }

    pub(crate) fn look_up(&self, directory: FileId, name: &[u8]) -> Known {
        if !self.is_live() {
            return Known::Unknown;
        }
        let state = self.lock();
        let Some(names) = state.names.get(&directory) else { return Known::Unknown };
        match names.known.get(name) {
            None if names.are_all => Known::Nothing,
            None | Some(Name::Changed) => Known::Unknown,
            Some(Name::Nothing) => Known::Nothing,
            Some(Name::File(file)) => state.rows.get(file).cloned().map_or(Known::Unknown, Known::Row),
        }
    }

    pub(crate) fn put(&self, asked: Asked, row: &StatRow) {
        let mut state = self.lock();
        if state.changes == asked.0 {
            state.put(row);
        }
    }

    /// Keeps an answer about a name. Returns true if it is kept: if not, changes of the name are not heard
    /// of.
    pub(crate) fn put_name(&self, asked: Asked, at: (FileId, &[u8]), row: Option<&StatRow>) -> bool {
        let mut state = self.lock();
        if state.changes != asked.0 {
            return false;
        }
        if let Some(row) = row {
            state.put(row);
        }
        let name = row.map_or(Name::Nothing, |row| Name::File(row.file));
        state.put_name(at, name);
        true
    }

    /// Records that a request of this mount gave a name to the entry `row`. Returns true if the name is kept.
    pub(crate) fn give_name(&self, asked: Asked, at: (FileId, &[u8]), row: &StatRow) -> bool {
        let mut state = self.lock();
        let is_last = state.changes == asked.0;
        state.forget_name(at.0, at.1);
        if is_last {
            state.put(row);
            state.put_name(at, Name::File(row.file));
        } else {
            // The record from before has another time, and of a hard link fewer names.
            state.rows.remove(&row.file);
        }
        is_last
    }

    /// Records that a request of this mount moved a name, or failed (`is_done`), so that neither name is
    /// known any more. Returns true if the new name is kept.
    pub(crate) fn move_name(
        &self,
        asked: Asked,
        from: (FileId, &[u8]),
        to: (FileId, &[u8]),
        is_done: bool,
    ) -> bool {
        let mut state = self.lock();
        let is_last = state.changes == asked.0;
        let moved = state.name(from);
        for (at, name) in [(from, moved), (to, state.name(to))] {
            if matches!(name, None | Some(Name::Changed)) {
                // It may be the name of any entry whose record is kept by number.
                state.rows.retain(|_, row| row.parent != at.0);
            }
        }
        state.forget_name(from.0, from.1);
        state.forget_name(to.0, to.1);
        match moved.filter(|_| is_last && is_done) {
            Some(moved @ Name::File(_)) => state.put_name(to, moved),
            _ => return false,
        }
        true
    }

    /// Keeps an empty directory that was made here.
    pub(crate) fn put_empty(&self, asked: Asked, directory: FileId) {
        let mut state = self.lock();
        if state.changes == asked.0 {
            let names = Names { known: HashMap::new(), are_all: true };
            let before = state.names.insert(directory, names);
            state.count -= before.map_or(0, |names| names.known.len());
        }
    }

    /// Keeps an entry of a listing, except a symbolic link: listings do not give its target.
    pub(crate) fn put_entry(&self, asked: Asked, directory: FileId, entry: &Entry) {
        if entry.kind() != EntryKind::Symlink {
            let (volume, g, target, segments, snapshot) = Default::default();
            let file = entry.file;
            let attributes = entry.attributes;
            let row = StatRow { volume, file, parent: directory, attributes, target, g, segments, snapshot };
            self.put_name(asked, (directory, &entry.name), Some(&row));
        }
    }

    /// Drops the kept record of a file if it is older than the answer to an open, which is not watched for
    /// changes.
    pub(crate) fn refine(&self, asked: Asked, row: &StatRow) {
        let mut state = self.lock();
        let is_other = state
            .rows
            .get(&row.file)
            .is_some_and(|kept| kept.attributes.changed_ns != row.attributes.changed_ns);
        if is_other && state.changes == asked.0 {
            state.rows.remove(&row.file);
        }
    }

    /// Drops the record of a file or directory that has changed here.
    pub(crate) fn forget(&self, file: FileId) {
        let mut state = self.lock();
        state.changes += 1;
        state.rows.remove(&file);
    }

    /// Drops a name in a directory that has changed here.
    pub(crate) fn forget_name(&self, directory: FileId, name: &[u8]) {
        self.lock().forget_name(directory, name);
    }

    /// Records that a directory was removed here. Its names are dropped with its own.
    pub(crate) fn remove_directory(&self, parent: FileId, name: &[u8]) {
        let mut state = self.lock();
        if let Some(Name::File(directory)) = state.name((parent, name)) {
            let names = state.names.remove(&directory).unwrap_or_default();
            state.count -= names.known.len();
        }
        state.forget_name(parent, name);
    }

    /// Drops the records of a file or directory that others have changed. Returns the names in it that were
    /// known, if it is a directory.
    pub(crate) fn heed(&self, file: FileId) -> Vec<Vec<u8>> {
        let mut state = self.lock();
        state.changes += 1;
        state.rows.remove(&file);
        let names = state.names.remove(&file).unwrap_or_default();
        state.count -= names.known.len();
        names.known.into_keys().collect()
    }

    /// Drops all records, as all may have changed. Returns all directories with their names that were known,
    /// and all records.
    pub(crate) fn heed_all(&self) -> (Vec<(FileId, Vec<u8>)>, Vec<StatRow>) {
        let mut state = self.lock();
        let rows = std::mem::take(&mut state.rows);
        let names = std::mem::take(&mut state.names);
        state.clear();
        let of = |(directory, names): (FileId, Names)| {
            names.known.into_keys().map(move |name| (directory, name)).collect::<Vec<_>>()
        };
        (names.into_iter().flat_map(of).collect(), rows.into_values().collect())
    }
}

impl State {
    fn put(&mut self, row: &StatRow) {
        if self.rows.len() >= ROWS_MAX {
            self.clear();
        }
        if row.attributes.links > 1 && row.kind() != EntryKind::Directory {
            self.linked.insert(row.file);
        }
        // The segments are asked for when the file is opened.
        self.rows.insert(row.file, StatRow { segments: Vec::new(), ..row.clone() });
    }

    /// The entry that a name is known to stand for.
    fn name(&self, at: (FileId, &[u8])) -> Option<Name> {
        let names = self.names.get(&at.0)?;
        names.known.get(at.1).copied().or(names.are_all.then_some(Name::Nothing))
    }

    fn forget_name(&mut self, directory: FileId, name: &[u8]) {
        self.changes += 1;
        self.rows.remove(&directory);
        let are_all = self.names.get(&directory).is_some_and(|names| names.are_all);
        let was = self.names.get_mut(&directory).and_then(|names| names.known.remove(name));
        self.count -= usize::from(was.is_some());
        if are_all {
            self.put_name((directory, name), Name::Changed);
        }
        match was {
            Some(Name::File(file)) => drop(self.rows.remove(&file)),
            Some(Name::Nothing) => {}
            None if are_all => {}
            // The name may have been that of any file with another name too.
            None | Some(Name::Changed) => {
                let linked = std::mem::take(&mut self.linked);
                linked.iter().for_each(|file| drop(self.rows.remove(file)));
            }
        }
    }

    fn put_name(&mut self, entry: (FileId, &[u8]), stands_for: Name) {
        let (directory, name) = entry;
        if self.count >= NAMES_MAX {
            self.clear();
            if stands_for == Name::Changed {
                return; // nothing is known any more
            }
        }
        let names = self.names.entry(directory).or_default();
        if names.known.insert(name.to_vec(), stands_for).is_none() {
            self.count += 1;
        }
    }

    fn clear(&mut self) {
        self.changes += 1;
        self.rows.clear();
        self.linked.clear();
        self.names.clear();
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use braid_wire::control::FileAttributes;

    use super::*;

    const DIRECTORY: FileId = FileId(1);

    fn row(links: u32, changed_ns: i64) -> StatRow {
        let (volume, g, target, segments) = Default::default();
        let (mode, uid, gid, size, device, has_xattrs) = Default::default();
        let (accessed_ns, modified_ns, created_ns) = Default::default();
        let kind = EntryKind::File;
        let attributes = FileAttributes {
            kind,
            mode,
            uid,
            gid,
            links,
            size,
            device,
            has_xattrs,
            accessed_ns,
            modified_ns,
            changed_ns,
            created_ns,
            sealed: false,
        };
        StatRow { volume, file: FileId(7), parent: DIRECTORY, attributes, target, g, segments, snapshot: 0 }
    }

    #[test]
    fn a_rename_that_fails_gives_no_name_to_another_entry() {
        for is_done in [false, true] {
            let kept = Kept::default();
            kept.put_name(kept.ask(), (DIRECTORY, b"new"), Some(&row(1, 10)));
            kept.put_name(kept.ask(), (DIRECTORY, b"cur"), None);
            let is_kept = kept.move_name(kept.ask(), (DIRECTORY, b"new"), (DIRECTORY, b"cur"), is_done);
            assert_eq!(is_kept, is_done);
            let state = kept.lock();
            let named = state.names[&DIRECTORY].known.get(&b"cur"[..]).copied();
            assert!(named == is_done.then_some(Name::File(FileId(7))) && state.rows.is_empty());
        }
    }

    #[test]
    fn of_a_directory_that_was_removed_nothing_is_kept() {
        let kept = Kept::default();
        kept.put_name(kept.ask(), (FileId(2), b"made"), Some(&row(1, 10)));
        kept.put_empty(kept.ask(), FileId(7));
        kept.forget_name(FileId(7), b"a file that was made and removed");
        assert_eq!(kept.lock().count, 2);
        kept.remove_directory(FileId(2), b"made");
        let state = kept.lock();
        assert!(state.count == 0 && state.rows.is_empty() && !state.names.contains_key(&FileId(7)));
    }

    #[test]
    fn a_rename_of_an_unknown_name_leaves_no_record_of_its_directory() {
        let kept = Kept::default();
        kept.put(kept.ask(), &row(1, 10));
        kept.move_name(kept.ask(), (DIRECTORY, b"unknown"), (FileId(2), b"b"), true);
        assert!(kept.known_row(FileId(7)).is_none(), "it may be the one that has moved");
    }

    #[test]
    fn a_link_beside_another_change_leaves_no_older_record() {
        for other_changes in [false, true] {
            let kept = Kept::default();
            assert!(kept.put_name(kept.ask(), (DIRECTORY, b"a"), Some(&row(1, 10))));
            let asked = kept.ask();
            if other_changes {
                kept.forget(FileId(8));
            }
            let is_kept = kept.give_name(asked, (DIRECTORY, b"b"), &row(2, 20));
            assert_eq!(is_kept, !other_changes);
            let links = kept.known_row(FileId(7)).map(|row| row.attributes.links);
            assert_eq!(links, is_kept.then_some(2), "one name and the time before would be wrong");
        }
    }
}
