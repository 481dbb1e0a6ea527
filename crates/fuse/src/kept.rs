//! What the manager told of names and attributes. It is kept until the manager says that others have changed
//! it, or until it changes here; and nothing is answered from it while that would not be heard.
//!
//! An answer that was asked for before such a change, and comes after it, is not kept.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use braid_client::Watching;
use braid_layout::FileId;
use braid_wire::control::{Entry, EntryKind, StatRow};

/// Most records that are kept: then all are dropped.
pub(crate) const ROWS_MAX: usize = 1 << 17;
const NAMES_MAX: usize = 1 << 18;

/// Names and records.
#[derive(Default)]
pub(crate) struct Kept {
    watching: OnceLock<Watching>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Changes so far.
    changes: u64,
    rows: HashMap<FileId, StatRow>,
    /// Those of them that have several names.
    linked: BTreeSet<FileId>,
    names: HashMap<FileId, Names>,
    count: usize,
}

/// The names of a directory.
#[derive(Default)]
struct Names {
    known: HashMap<Vec<u8>, Name>,
    /// It was made here, and nobody else has changed it: there are no names but these.
    are_all: bool,
}

/// What a name is known to stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    File(FileId),
    Nothing,
    /// It has changed here, and nobody has asked since.
    Changed,
}

/// When something was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked(u64);

/// What is known of a name.
pub(crate) enum Known {
    /// What it stands for.
    Row(StatRow),
    /// There is none.
    Nothing,
    Unknown,
}

impl Kept {
    /// From now on changes are heard of.
    pub(crate) fn begin(&self, watching: Watching) {
        // Nobody else sets it.
        let _ = self.watching.set(watching);
    }

    pub(crate) fn watching(&self) -> Option<&Watching> {
        self.watching.get()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all changes are heard of now.
    pub(crate) fn is_live(&self) -> bool {
        self.watching.get().is_some_and(Watching::is_live)
    }

    /// Something is about to be asked for.
    pub(crate) fn ask(&self) -> Asked {
        Asked(self.lock().changes)
    }

    pub(crate) fn row(&self, file: FileId) -> Option<StatRow> {
        if !self.is_live() {
            return None;
        }
        self.lock().rows.get(&file).cloned()
    }

    /// What was told last, though it may have changed.
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

    /// An answer about a name. Returns whether it is kept: if it is not, its changes are not heard of.
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

    /// A name in a directory was given here to what this says, by a request. Returns whether it is kept.
    pub(crate) fn give_name(&self, asked: Asked, at: (FileId, &[u8]), row: &StatRow) -> bool {
        let mut state = self.lock();
        let is_last = state.changes == asked.0;
        state.forget_name(at.0, at.1);
        if is_last {
            state.put(row);
            state.put_name(at, Name::File(row.file));
        }
        is_last
    }

    /// A name was moved here, by a request. Returns whether the new one is kept.
    pub(crate) fn move_name(&self, asked: Asked, from: (FileId, &[u8]), to: (FileId, &[u8])) -> bool {
        let mut state = self.lock();
        let is_last = state.changes == asked.0;
        let moved = state.names.get(&from.0).and_then(|names| names.known.get(from.1)).copied();
        state.forget_name(from.0, from.1);
        state.forget_name(to.0, to.1);
        match moved.filter(|_| is_last) {
            Some(moved @ Name::File(_)) => state.put_name(to, moved),
            _ => return false,
        }
        true
    }

    /// A directory was made here, and is empty.
    pub(crate) fn put_empty(&self, asked: Asked, directory: FileId) {
        let mut state = self.lock();
        if state.changes == asked.0 {
            let names = Names { known: HashMap::new(), are_all: true };
            let before = state.names.insert(directory, names);
            state.count -= before.map_or(0, |names| names.known.len());
        }
    }

    /// An entry of a listing. Where a symbolic link leads is not said there.
    pub(crate) fn put_entry(&self, asked: Asked, directory: FileId, entry: &Entry) {
        if entry.kind() != EntryKind::Symlink {
            let (volume, g, target, segments) = Default::default();
            let file = entry.file;
            let attributes = entry.attributes;
            let row = StatRow { volume, file, parent: directory, attributes, target, g, segments };
            self.put_name(asked, (directory, &entry.name), Some(&row));
        }
    }

    /// The answer to an open, which nobody watches: what is kept that is older is dropped.
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

    /// A file or directory has changed here.
    pub(crate) fn forget(&self, file: FileId) {
        let mut state = self.lock();
        state.changes += 1;
        state.rows.remove(&file);
    }

    /// A name in a directory has changed here.
    pub(crate) fn forget_name(&self, directory: FileId, name: &[u8]) {
        self.lock().forget_name(directory, name);
    }

    /// Others have changed it. Gives the names in it that were known, if it is a directory.
    pub(crate) fn heed(&self, file: FileId) -> Vec<Vec<u8>> {
        let mut state = self.lock();
        state.changes += 1;
        state.rows.remove(&file);
        let names = state.names.remove(&file).unwrap_or_default();
        state.count -= names.known.len();
        names.known.into_keys().collect()
    }

    /// All may have changed. Gives all directories with their names that were known, and all records.
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
        // Where its bytes are is asked for when it is opened.
        self.rows.insert(row.file, StatRow { segments: Vec::new(), ..row.clone() });
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
            // It may have been any that has another name too.
            None | Some(Name::Changed) => {
                let linked = std::mem::take(&mut self.linked);
                linked.iter().for_each(|file| drop(self.rows.remove(file)));
            }
        }
    }

    fn put_name(&mut self, (directory, name): (FileId, &[u8]), stands_for: Name) {
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
