//! The model of snapshots: what each may show of the files that it covers.
//!
//! A snapshot has what was acknowledged before it was asked for, below the size that the manager knew, and
//! of writes that were under way then, or began before it was made, each stripe whole or not. What began
//! after it was made is not in it. What was once read in it is there until it is removed.
//!
//! A snapshot that was made while a file could not be held (it is *late*) has the file's bytes of some time
//! after, until they are first read.

use std::collections::BTreeMap;
use std::ops::Range;

use braid_layout::ColumnMask;

use super::{File, Model, State, WriteId, index};

/// The id of a snapshot that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PastId(u64);

#[derive(Debug)]
pub(super) struct Past {
    name: String,
    files: BTreeMap<usize, PastFile>,
}

/// A file as a snapshot may show it.
#[derive(Debug)]
struct PastFile {
    /// Bytes of the writes that were acknowledged when it was asked for.
    before: Vec<u8>,
    doubts: Vec<(WriteId, Range<u64>)>,
    /// Size that the manager knew when it was asked for.
    committed: u64,
    begun: bool,
    /// True while writes that begin may be in it.
    is_open: bool,
    /// Bytes that were read in it first.
    found: Option<Vec<u8>>,
}

impl State {
    /// Notes a write, or a truncation to `to`, for the snapshots that may have it.
    pub(super) fn may_be_past(&mut self, file: usize, write: WriteId, range: &Range<u64>, to: Option<u64>) {
        let files = self.pasts.values_mut().filter_map(|past| past.files.get_mut(&file));
        for past in files.filter(|past| past.is_open) {
            past.doubts.push((write, range.clone()));
            past.committed = past.committed.min(to.unwrap_or(u64::MAX));
        }
    }
}

impl Model {
    /// Notes that a snapshot of these files is asked for.
    pub(crate) fn begin_past(&self, name: &str, files: impl Iterator<Item = usize>) -> PastId {
        let mut state = self.lock();
        state.next += 1;
        let id = PastId(state.next);
        let past = |number: usize| {
            let of = &state.files[number];
            let file = PastFile {
                before: of.bytes.clone(),
                doubts: of.doubts.clone(),
                committed: of.committed.min(of.cut),
                begun: of.begun,
                is_open: true,
                found: None,
            };
            (number, file)
        };
        let files = files.map(past).collect();
        state.pasts.insert(id, Past { name: name.to_owned(), files });
        id
    }

    /// Notes that a snapshot was made; `late`: not all files were held.
    pub(crate) fn end_past(&self, id: PastId, late: bool) {
        let mut state = self.lock();
        let files = state.pasts.get_mut(&id).into_iter().flat_map(|past| past.files.values_mut());
        files.for_each(|file| file.is_open = late);
    }

    /// Forgets a snapshot that is to be removed, or was not made for all that is known.
    pub(crate) fn drop_past(&self, id: PastId) {
        self.lock().pasts.remove(&id);
    }

    /// Returns true if what snapshots show is known: not if the manager's state was put back.
    pub(crate) fn knows_past(&self) -> bool {
        !self.lock().restored
    }

    /// Returns true if the file must be in the snapshot.
    pub(crate) fn must_be_past(&self, id: PastId, file: usize) -> bool {
        let state = self.lock();
        state.pasts.get(&id).and_then(|past| past.files.get(&file)).is_some_and(|past| past.begun)
    }

    /// Judges what was read of a whole file in a snapshot.
    pub(crate) fn judge_past(&self, id: PastId, file: usize, found: &[u8], who: &str) {
        let mut state = self.lock();
        let State { pasts, files, failure, restored, .. } = &mut *state;
        let Some(past) = pasts.get_mut(&id).filter(|_| !*restored) else { return };
        let Some(one) = past.files.get_mut(&file) else { return };
        if let Err(why) = one.judge(&files[file], found) {
            failure.get_or_insert(format!("{who} read {}@{}: {why}", files[file].name, past.name));
        }
    }
}

impl PastFile {
    fn judge(&mut self, of: &File, found: &[u8]) -> Result<(), String> {
        if let Some(first) = &self.found {
            let at = first.iter().zip(found).position(|(one, other)| one != other);
            return match at {
                Some(at) => Err(format!("byte {at} is {:#04x}, and was {:#04x}", found[at], first[at])),
                None if first.len() != found.len() => {
                    Err(format!("it has {} bytes, and had {}", found.len(), first.len()))
                }
                None => Ok(()),
            };
        }
        let size = u64::try_from(found.len()).unwrap_or(0);
        if size < self.committed {
            return Err(format!("it has {size} bytes, and {} were known to the manager", self.committed));
        }
        let within = |(write, range): &(WriteId, Range<u64>)| {
            let range = range.start..range.end.min(size);
            (!range.is_empty()).then_some((*write, range))
        };
        let was = File {
            name: String::new(),
            stripe: of.stripe,
            bytes: self.before[..index(size)].to_vec(),
            doubts: self.doubts.iter().filter_map(within).collect(),
            end: 0,
            committed: 0,
            cut: u64::MAX,
            begun: true,
            touched: ColumnMask::EMPTY,
            columns: ColumnMask::EMPTY,
        };
        was.judge_decided(found)?;
        self.found = Some(found.to_vec());
        self.is_open = false;
        Ok(())
    }
}
