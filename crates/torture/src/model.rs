//! What each byte of each file may be: the judge of all reads.
//!
//! A byte is what the last acknowledged write made it, or what a write made it of which nobody knows whether
//! it took effect (*in doubt*: its writer died, or got an error). A read may return any of these, or what was
//! allowed at any moment while it ran. When a writer opens a file again, everything before it is decided: the
//! owner reads it all and says what was found ([`Model::decide`]). From then on nothing else is allowed: what
//! was decided is not taken back. Of a write in doubt each stripe must be there as a whole or not at all.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_layout::ColumnMask;

use crate::random::mix;

/// Names a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WriteId(u64);

/// Names a read in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadId(u64);

/// All files. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    files: Vec<File>,
    reads: BTreeMap<ReadId, Read>,
    failure: Option<String>,
    /// The manager's state was put back: a size that only the manager knew may be lost. Bytes past the end
    /// that a file then has must still be zeros.
    restored: bool,
}

#[derive(Debug)]
struct File {
    name: String,
    stripe: u64,
    /// As the last acknowledged write left it, and which write that was (0: none).
    bytes: Vec<u8>,
    /// Writes in progress or in doubt, with the parts of them that no later write has replaced.
    doubts: Vec<(WriteId, Range<u64>)>,
    /// The end of what was acknowledged.
    end: u64,
    /// The size that the manager was told.
    committed: u64,
    /// The smallest size of the truncations in doubt.
    cut: u64,
    /// It was opened for writing.
    begun: bool,
    /// The columns that have bytes, and all of them; the latter is not known before the first write.
    touched: ColumnMask,
    columns: ColumnMask,
}

/// A read in progress: what was allowed when it began, and what was written since.
#[derive(Debug)]
struct Read {
    file: usize,
    range: Range<u64>,
    before: Vec<u8>,
    doubts: Vec<(WriteId, Range<u64>)>,
    /// The size that the manager knew when it began.
    committed: u64,
}

/// Marks a write of zeros: what a truncation does to the bytes past the new size.
const ZEROS: u64 = 1 << 63;

/// The byte that a write puts at a place.
fn byte_of(write: WriteId, at: u64) -> u8 {
    if write.0 & ZEROS != 0 {
        return 0;
    }
    mix(write.0.wrapping_mul(0x1_0000_0001).wrapping_add(at)).to_le_bytes()[3]
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("files are small")
}

impl Model {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file of at most `length` bytes, of stripes of `stripe` bytes.
    pub(crate) fn add(&self, name: &str, length: u64, stripe: u64) -> usize {
        let file = File {
            name: name.to_owned(),
            stripe,
            bytes: vec![0; index(length)],
            doubts: Vec::new(),
            end: 0,
            committed: 0,
            cut: u64::MAX,
            begun: false,
            touched: ColumnMask::EMPTY,
            columns: ColumnMask::all(1),
        };
        let mut state = self.lock();
        state.files.push(file);
        state.files.len() - 1
    }

    /// Whether every file has its name, and bytes in each of its columns. A restore takes a file for removed
    /// whose columns should have bytes by its size, and have no objects.
    pub(crate) fn has_begun(&self) -> bool {
        self.lock().files.iter().all(|file| file.begun && file.touched == file.columns)
    }

    /// Bytes were written in these columns of a file that has `columns`.
    pub(crate) fn touched(&self, file: usize, touched: ColumnMask, columns: ColumnMask) {
        let file = &mut self.lock().files[file];
        file.touched = file.touched.or(touched);
        file.columns = columns;
    }

    /// The first thing that was wrong.
    pub(crate) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// The manager's state is put back from a copy.
    pub(crate) fn put_back(&self) {
        self.lock().restored = true;
    }

    /// Something is wrong.
    pub(crate) fn fail(&self, what: String) {
        self.lock().failure.get_or_insert(what);
    }

    /// A write begins. Returns its bytes.
    pub(crate) fn begin_write(&self, file: usize, range: Range<u64>) -> (WriteId, Vec<u8>) {
        let mut state = self.lock();
        state.next += 1;
        let write = WriteId(state.next);
        state.files[file].doubts.push((write, range.clone()));
        for read in state.reads.values_mut().filter(|read| read.file == file) {
            read.doubts.push((write, range.clone()));
        }
        (write, range.map(|at| byte_of(write, at)).collect())
    }

    /// The write was acknowledged.
    pub(crate) fn end_write(&self, file: usize, write: WriteId, range: Range<u64>) {
        let mut state = self.lock();
        let file = &mut state.files[file];
        for at in range.clone() {
            file.bytes[index(at)] = byte_of(write, at);
        }
        file.end = file.end.max(range.end);
        file.doubts = std::mem::take(&mut file.doubts)
            .into_iter()
            .filter(|(other, _)| *other != write)
            // A later write in progress, beside this one, does not overlap it: see the workload.
            .flat_map(|(other, doubt)| without(doubt, &range).map(move |left| (other, left)))
            .collect();
    }

    /// A truncation begins.
    pub(crate) fn begin_cut(&self, file: usize, to: u64) -> WriteId {
        let mut state = self.lock();
        state.next += 1;
        let cut = WriteId(state.next | ZEROS);
        let of = &mut state.files[file];
        let range = to..of.bytes.len() as u64;
        of.doubts.push((cut, range.clone()));
        of.cut = of.cut.min(to);
        for read in state.reads.values_mut().filter(|read| read.file == file) {
            read.doubts.push((cut, range.clone()));
            read.committed = read.committed.min(to);
        }
        cut
    }

    /// The truncation is done.
    pub(crate) fn end_cut(&self, file: usize, cut: WriteId, to: u64) {
        let length = self.lock().files[file].bytes.len() as u64;
        self.end_write(file, cut, to..length);
        let mut state = self.lock();
        let of = &mut state.files[file];
        (of.end, of.committed, of.cut) = (to, to, u64::MAX);
    }

    /// The manager was told the size.
    pub(crate) fn committed(&self, file: usize) {
        let mut state = self.lock();
        let file = &mut state.files[file];
        file.committed = file.committed.max(file.end);
        file.begun = true;
    }

    /// A read begins. It must be ended.
    pub(crate) fn begin_read(&self, file: usize, range: Range<u64>) -> ReadId {
        let mut state = self.lock();
        state.next += 1;
        let id = ReadId(state.next);
        let of = &state.files[file];
        let read = Read {
            file,
            before: of.bytes[index(range.start)..index(range.end)].to_vec(),
            doubts: of.doubts.clone(),
            committed: of.committed.min(of.cut),
            range,
        };
        state.reads.insert(id, read);
        id
    }

    /// The read failed: nothing to check.
    pub(crate) fn drop_read(&self, id: ReadId) {
        self.lock().reads.remove(&id);
    }

    /// The read returned these bytes: fewer than asked for if the file ended.
    pub(crate) fn end_read(&self, id: ReadId, found: &[u8], who: &str) {
        let mut state = self.lock();
        let Some(read) = state.reads.remove(&id) else { return };
        let file = &state.files[read.file];
        let mut found = found.to_vec();
        if state.restored && index(read.must()) > found.len() {
            found.resize(index(read.must()), 0);
        }
        if let Err(why) = read.judge(&found, file) {
            let what = format!("{who} read {} {:?}: {why}", file.name, read.range);
            state.failure.get_or_insert(what);
        }
    }

    /// All writers before are gone, and the file was read as a whole: what was found is what it is. `found`
    /// may be shorter than the file's length: the rest is zeros.
    pub(crate) fn decide(&self, file: usize, found: &[u8], who: &str) {
        let mut state = self.lock();
        let is_restored = state.restored;
        let of = &mut state.files[file];
        let size = u64::try_from(found.len()).unwrap_or(0);
        let mut why = (size < of.end.min(of.cut) && !is_restored)
            .then(|| format!("it has {} bytes, and {} were acknowledged", found.len(), of.end));
        let mut whole = found.to_vec();
        whole.resize(of.bytes.len(), 0);
        why = why.or_else(|| of.judge_decided(&whole).err());
        if let Some(why) = why {
            let what = format!("{who} opened {} and found it wrong: {why}", of.name);
            state.failure.get_or_insert(what);
            return;
        }
        of.bytes = whole;
        of.doubts.clear();
        (of.end, of.committed, of.cut) = (size, size, u64::MAX);
    }
}

impl Model {
    /// All earlier writers of these parts of the file are gone, and the file was read: what was found there
    /// is what it is. Others may be writing elsewhere in it. `found` may be shorter than the file's length.
    pub(crate) fn decide_part(&self, file: usize, parts: &[Range<u64>], found: &[u8], who: &str) {
        let mut state = self.lock();
        let of = &mut state.files[file];
        let mut whole = found.to_vec();
        whole.resize(of.bytes.len(), 0);
        // Nothing is said of the rest.
        let is_part = |at: u64| parts.iter().any(|part| part.contains(&at));
        let all = std::mem::take(&mut of.doubts);
        let overlaps = |range: &Range<u64>| parts.iter().any(|p| p.start < range.end && range.start < p.end);
        let (own, others) = all.into_iter().partition(|(_, range)| overlaps(range));
        of.doubts = own;
        for (at, byte) in (0..).zip(&mut whole).filter(|(at, _)| !is_part(*at)) {
            *byte = of.bytes[index(at)];
        }
        let judged = of.judge_decided(&whole);
        of.doubts = others;
        of.bytes = whole;
        if let Err(why) = judged {
            let what = format!("{who} opened {} and found its part wrong: {why}", of.name);
            state.failure.get_or_insert(what);
        }
    }
}

/// `range` without `taken`.
fn without(range: Range<u64>, taken: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let before = range.start..range.end.min(taken.start);
    let after = range.start.max(taken.end)..range.end;
    [before, after].into_iter().filter(|left| !left.is_empty())
}

impl Read {
    /// So many bytes were known to be there.
    fn must(&self) -> u64 {
        self.range.end.min(self.committed).saturating_sub(self.range.start)
    }

    fn judge(&self, found: &[u8], file: &File) -> Result<(), String> {
        let got = self.range.start + u64::try_from(found.len()).unwrap_or(0);
        if got < self.range.start + self.must() {
            return Err(format!(
                "it ended at {got}, and the file was known to have {} bytes",
                self.committed
            ));
        }
        for (at, &byte) in (self.range.start..).zip(found) {
            let now = file.bytes[index(at)];
            let before = self.before[index(at - self.range.start)];
            let mut doubts = self.doubts.iter().filter(|(_, range)| range.contains(&at));
            if byte != now && byte != before && !doubts.any(|&(write, _)| byte_of(write, at) == byte) {
                return Err(format!(
                    "byte {at} is {byte:#04x}: {now:#04x} was acknowledged, {before:#04x} before"
                ));
            }
        }
        Ok(())
    }
}

impl File {
    fn judge_decided(&self, found: &[u8]) -> Result<(), String> {
        for (at, (&byte, &was)) in (0..).zip(found.iter().zip(&self.bytes)) {
            let mut doubts = self.doubts.iter().filter(|(_, range)| range.contains(&at));
            if byte != was && !doubts.any(|&(write, _)| byte_of(write, at) == byte) {
                return Err(format!("byte {at} is {byte:#04x}, and {was:#04x} was acknowledged"));
            }
        }
        self.doubts.iter().try_for_each(|(write, range)| self.judge_whole(*write, range, found))
    }

    /// In each stripe, a write in doubt is there as a whole or not at all.
    fn judge_whole(&self, write: WriteId, range: &Range<u64>, found: &[u8]) -> Result<(), String> {
        let mut from = range.start;
        while from < range.end {
            let to = (from / self.stripe + 1) * self.stripe;
            let part = from..to.min(range.end);
            from = part.end;
            // Where other writes are in doubt too, nothing can be told.
            let alone = |at: &u64| {
                let others = self.doubts.iter().filter(|(other, _)| *other != write);
                !others.into_iter().any(|(_, range)| range.contains(at))
            };
            let tells = |at: &u64| byte_of(write, *at) != self.bytes[index(*at)];
            let mut new = None;
            let mut old = None;
            for at in part.clone().filter(alone).filter(tells) {
                let is_new = found[index(at)] == byte_of(write, at);
                *if is_new { &mut new } else { &mut old } = Some(at);
            }
            if let (Some(new), Some(old)) = (new, old) {
                let stripe = part.start / self.stripe;
                return Err(format!(
                    "stripe {stripe} is mixed: of a write to {part:?} byte {new} is there, and byte {old} is not"
                ));
            }
        }
        Ok(())
    }
}
