//! The model of the files: the values that each byte may have. It judges all reads.
//!
//! The value of a byte is that of its last acknowledged write, or that of a write of which nobody knows
//! whether it took effect (*in doubt*: its writer died, or got an error). A read may return any of these,
//! or a value that was allowed at any moment while it ran. When a writer opens a file again, everything
//! before it is decided: the owner reads it all and reports what was found ([`Model::decide`]). From then
//! on nothing else is allowed: a decision is not taken back. A write in doubt must be there as a whole in
//! each stripe, or not at all.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_layout::ColumnMask;

use crate::random::mix;

mod past;

use past::Past;
pub(crate) use past::PastId;

/// The id of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WriteId(u64);

/// The id of a read in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReadId(u64);

/// The model of all files. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    files: Vec<File>,
    reads: BTreeMap<ReadId, Read>,
    pasts: BTreeMap<PastId, Past>,
    failure: Option<String>,
    /// True if the manager's state was put back: then a size that only the manager knew may be lost. Bytes
    /// past the end that a file then has must still be zeros.
    restored: bool,
}

#[derive(Debug)]
struct File {
    name: String,
    stripe: u64,
    /// Bytes of the acknowledged writes, the last of each byte.
    bytes: Vec<u8>,
    /// Writes in progress or in doubt, with their parts that no later write has replaced.
    doubts: Vec<(WriteId, Range<u64>)>,
    /// End of the acknowledged bytes.
    end: u64,
    /// Size that the manager was told.
    committed: u64,
    /// Smallest size of the truncations in doubt.
    cut: u64,
    /// True once the file was opened for writing.
    begun: bool,
    /// Columns that have bytes; `columns` are all columns, which are not known before the first write.
    touched: ColumnMask,
    columns: ColumnMask,
}

/// A read in progress: the bytes that were allowed when it began, and the writes since.
#[derive(Debug)]
struct Read {
    file: usize,
    range: Range<u64>,
    before: Vec<u8>,
    doubts: Vec<(WriteId, Range<u64>)>,
    /// Size that the manager knew when the read began.
    committed: u64,
}

/// Bit that marks a write of zeros: the effect of a truncation on the bytes past the new size.
const ZEROS: u64 = 1 << 63;

/// The value that a write gives to the byte at `at`.
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

    /// Adds a file of at most `length` bytes, with stripes of `stripe` bytes. Returns its number.
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

    /// Returns true if every file has its name, and bytes in each of its columns. A restore takes a file
    /// for removed if by its size its columns should have bytes, and they have no objects.
    pub(crate) fn has_begun(&self) -> bool {
        self.lock().files.iter().all(|file| file.begun && file.touched == file.columns)
    }

    /// Notes that bytes were written in these columns of a file that has `columns`.
    pub(crate) fn touched(&self, file: usize, touched: ColumnMask, columns: ColumnMask) {
        let file = &mut self.lock().files[file];
        file.touched = file.touched.or(touched);
        file.columns = columns;
    }

    /// The first error that was found, if any.
    pub(crate) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Notes that the manager's state is put back from a copy.
    pub(crate) fn put_back(&self) {
        self.lock().restored = true;
    }

    /// Notes an error; only the first one counts.
    pub(crate) fn fail(&self, what: String) {
        self.lock().failure.get_or_insert(what);
    }

    /// Begins a write, and returns its bytes.
    pub(crate) fn begin_write(&self, file: usize, range: Range<u64>) -> (WriteId, Vec<u8>) {
        let mut state = self.lock();
        state.next += 1;
        let write = WriteId(state.next);
        state.files[file].doubts.push((write, range.clone()));
        state.may_be_past(file, write, &range, None);
        for read in state.reads.values_mut().filter(|read| read.file == file) {
            read.doubts.push((write, range.clone()));
        }
        (write, range.map(|at| byte_of(write, at)).collect())
    }

    /// Notes that the write was acknowledged.
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
            // A later write in progress beside this one does not overlap it: see the workload.
            .flat_map(|(other, doubt)| without(doubt, &range).map(move |left| (other, left)))
            .collect();
    }

    /// Begins a truncation.
    pub(crate) fn begin_cut(&self, file: usize, to: u64) -> WriteId {
        let mut state = self.lock();
        state.next += 1;
        let cut = WriteId(state.next | ZEROS);
        let of = &mut state.files[file];
        let range = to..of.bytes.len() as u64;
        of.doubts.push((cut, range.clone()));
        of.cut = of.cut.min(to);
        state.may_be_past(file, cut, &range, Some(to));
        for read in state.reads.values_mut().filter(|read| read.file == file) {
            read.doubts.push((cut, range.clone()));
            read.committed = read.committed.min(to);
        }
        cut
    }

    /// Notes that the truncation is done.
    pub(crate) fn end_cut(&self, file: usize, cut: WriteId, to: u64) {
        let length = self.lock().files[file].bytes.len() as u64;
        self.end_write(file, cut, to..length);
        let mut state = self.lock();
        let of = &mut state.files[file];
        (of.end, of.committed, of.cut) = (to, to, u64::MAX);
    }

    /// Notes that the manager was told the size.
    pub(crate) fn committed(&self, file: usize) {
        let mut state = self.lock();
        let file = &mut state.files[file];
        file.committed = file.committed.max(file.end);
        file.begun = true;
    }

    /// Begins a read, which must be ended.
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

    /// Ends a read that failed: there is nothing to check.
    pub(crate) fn drop_read(&self, id: ReadId) {
        self.lock().reads.remove(&id);
    }

    /// Ends a read that returned these bytes: fewer than asked for if the file ended.
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

    /// Decides a file: all writers before are gone, and the file was read as a whole, so its contents are
    /// what was found. `found` may be shorter than the file's length: the rest is zeros.
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
    /// Decides parts of a file: all earlier writers of these parts are gone, and the file was read, so
    /// their contents are what was found. Other clients may be writing elsewhere in the file. `found` may
    /// be shorter than the file's length.
    pub(crate) fn decide_part(&self, file: usize, parts: &[Range<u64>], found: &[u8], who: &str) {
        let mut state = self.lock();
        let of = &mut state.files[file];
        let mut whole = found.to_vec();
        whole.resize(of.bytes.len(), 0);
        // Nothing is decided about the rest.
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

/// The parts of `range` outside `taken`.
fn without(range: Range<u64>, taken: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let before = range.start..range.end.min(taken.start);
    let after = range.start.max(taken.end)..range.end;
    [before, after].into_iter().filter(|left| !left.is_empty())
}

impl Read {
    /// Number of bytes that are known to be there.
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

    /// Checks that a write in doubt is there as a whole or not at all in each stripe.
    fn judge_whole(&self, write: WriteId, range: &Range<u64>, found: &[u8]) -> Result<(), String> {
        let mut from = range.start;
        while from < range.end {
            let to = (from / self.stripe + 1) * self.stripe;
            let part = from..to.min(range.end);
            from = part.end;
            // Bytes at which other writes are in doubt too tell nothing.
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
