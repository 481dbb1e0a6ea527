//! The judge of programs on mounts: the names, bytes, sizes and locks that they may find, by the promises
//! of docs/posix.md.
//!
//! - Bytes: each byte has one program at a time that writes it, so its writes have an order. A reader may
//!   find any write that has begun, but none that is older than one that it must see: a write that its own
//!   mount has taken, or that was synced or closed before the reader opened the file.
//! - Synced bytes last, whatever dies. Bytes that were not synced may be gone when their mount has died, or
//!   when a sync reported so.
//! - Names: each has one program that changes it. A look at a name finds a file that the name stood for at
//!   some moment of the look.
//! - Locks: bytes written under a lock that is lost are never found by programs that got it later.

mod locks;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::locks::{Holder, Loser};
use crate::host::now_ms;
use crate::random::mix;

/// Longest time for which a request may be under way after its sender has died.
const UNDER_WAY_MS: u64 = 5_000;
/// Greatest length of a file.
pub(crate) const FILE_MAX: u64 = 96 << 10;

/// The judge, shared by all parts of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Judge(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    tick: u64,
    files: Vec<File>,
    names: BTreeMap<String, Vec<Value>>,
    /// Program that holds the lock of each record.
    holders: BTreeMap<u64, Holder>,
    /// Time at which the lock of each record was last granted.
    granted: BTreeMap<u64, At>,
    /// Programs that held the lock of a record until another got it, and were not told yet.
    losers: BTreeMap<(u64, u64), Loser>,
    /// Time of each mount's last death.
    died_ms: BTreeMap<usize, u64>,
    /// True if sizes are judged.
    sizes: bool,
    /// Delay after which others must see a change; 0: at once.
    slack_ms: u64,
    failure: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    tick: u64,
    ms: u64,
}

/// A mount from its beginning to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) mount: usize,
    pub(crate) life: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader {
    /// The mount that is read through; `None`: none, for the administrator.
    pub(crate) life: Option<Life>,
    /// Time at which the reader opened the file, or got a lock of it.
    pub(crate) opened: At,
}

/// The number of a file in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileNo(pub(crate) usize);

#[derive(Debug, Default)]
struct File {
    /// Number of the file on the mounts, once it is known.
    number: Option<u64>,
    ops: Vec<Op>,
}

/// A write or a cut; the range of a cut goes to the end.
#[derive(Debug)]
struct Op {
    id: u64,
    range: Range<u64>,
    is_cut: bool,
    by: Life,
    /// Tick at which the mount took the operation.
    taken: Option<u64>,
    /// Time at which the operation was synced, or the file closed.
    synced: Option<At>,
    /// True if the bytes may be there or not: the mount has died, or a sync failed.
    in_doubt: bool,
}

/// The file that a name stands for from a moment on.
#[derive(Debug)]
struct Value {
    id: u64,
    /// Time of the request, or of its failure.
    asked_ms: u64,
    file: Option<FileNo>,
    ended: Option<At>,
}

/// The result of a look at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Number(u64),
}

/// The file that a name stands for, as far as the model knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    File(FileNo),
    Nothing,
    Unsure,
}

fn byte_of(write: u64, at: u64) -> u8 {
    mix(write.wrapping_mul(0x1_0000_0001).wrapping_add(at)).to_le_bytes()[3]
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("files are small")
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("files are small")
}

impl Judge {
    /// Makes a judge for the demands of a `Mix`.
    pub(crate) fn new(slack_ms: u64, sizes: bool) -> Judge {
        Judge(Arc::new(Mutex::new(State { slack_ms, sizes, ..State::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    pub(crate) fn fail(&self, what: String) {
        self.lock().failure.get_or_insert(what);
    }

    pub(crate) fn now(&self) -> At {
        self.lock().now()
    }

    /// Adds a file that is about to be made.
    pub(crate) fn new_file(&self) -> FileNo {
        let mut state = self.lock();
        state.files.push(File::default());
        FileNo(state.files.len() - 1)
    }

    /// Begins a write, and returns its id and its bytes.
    pub(crate) fn begin_write(&self, file: FileNo, range: Range<u64>, by: Life) -> (u64, Vec<u8>) {
        let id = self.begin(file, range.clone(), false, by);
        (id, range.map(|at| byte_of(id, at)).collect())
    }

    /// Begins a truncation.
    pub(crate) fn begin_cut(&self, file: FileNo, to: u64, by: Life) -> u64 {
        self.begin(file, to..FILE_MAX, true, by)
    }

    fn begin(&self, file: FileNo, range: Range<u64>, is_cut: bool, by: Life) -> u64 {
        let mut state = self.lock();
        let id = state.now().tick;
        let op = Op { id, range, is_cut, by, taken: None, synced: None, in_doubt: false };
        state.files[file.0].ops.push(op);
        id
    }

    /// Notes the answer to a write or a truncation.
    pub(crate) fn end(&self, file: FileNo, id: u64, is_done: bool) {
        let mut state = self.lock();
        let now = state.now();
        let ops = &mut state.files[file.0].ops;
        if let Some(op) = ops.iter_mut().find(|op| op.id == id) {
            op.taken = is_done.then_some(now.tick);
            op.in_doubt = !is_done;
        }
    }

    /// Notes the answer to a sync or close of a file through a mount, which began at `began`.
    pub(crate) fn synced(&self, file: FileNo, began: At, by: Life, is_done: bool) {
        let mut state = self.lock();
        let now = state.now();
        for op in state.files[file.0].ops.iter_mut().filter(|op| op.by == by && op.synced.is_none()) {
            if !is_done {
                op.in_doubt = true;
            } else if op.taken.is_some_and(|taken| taken <= began.tick) && !op.in_doubt {
                op.synced = Some(now);
            }
        }
    }

    /// Notes that a durable write was answered: its bytes last.
    pub(crate) fn lasts(&self, file: FileNo, id: u64) {
        let mut state = self.lock();
        let now = state.now();
        if let Some(op) = state.files[file.0].ops.iter_mut().find(|op| op.id == id && !op.in_doubt) {
            op.synced.get_or_insert(now);
        }
    }

    /// Notes that a mount has died.
    pub(crate) fn died(&self, life: Life) {
        let mut state = self.lock();
        for op in state.files.iter_mut().flat_map(|file| &mut file.ops).filter(|op| op.by == life) {
            op.in_doubt |= op.synced.is_none();
        }
        state.holders.retain(|_, holder| holder.life != life);
        state.died_ms.insert(life.mount, now_ms());
    }

    /// Judges a read of `range`. `found` may be shorter, if the file ended.
    pub(crate) fn read(
        &self,
        file: FileNo,
        range: Range<u64>,
        found: &[u8],
        reader: Reader,
        began: At,
        who: &str,
    ) {
        let mut state = self.lock();
        let slack_ms = state.slack_ms;
        let of = &state.files[file.0];
        let must = |op: &Op| op.must_be_seen(reader, began, slack_ms);
        let wrong = of.judge_bytes(&range, found, must).or_else(|| {
            let (least, _) = of.sizes(must);
            let end = range.start + length(found);
            (end < least.min(range.end)).then(|| format!("it ended at {end}, and it has {least} bytes"))
        });
        if let Some(why) = wrong {
            let what = format!("{who} read f{} {range:?}: {why}", file.0);
            state.failure.get_or_insert(what);
        }
    }

    /// Judges a size that was reported.
    pub(crate) fn size(&self, file: FileNo, size: u64, reader: Reader, began: At, who: &str) {
        let mut state = self.lock();
        let slack_ms = state.slack_ms;
        let (least, most) = state.files[file.0].sizes(|op| op.must_be_seen(reader, began, slack_ms));
        if size < least || (size > most && state.sizes) {
            let what = format!("{who} is told that f{} has {size} bytes: it has {least} to {most}", file.0);
            state.failure.get_or_insert(what);
        }
    }

    /// Returns true if each byte of a file was written, and the file was never cut.
    pub(crate) fn is_full(&self, file: FileNo) -> bool {
        let state = self.lock();
        let mut written: Vec<&Op> = state.files[file.0].ops.iter().filter(|op| op.taken.is_some()).collect();
        written.sort_unstable_by_key(|op| op.range.start);
        let reach = written.iter().try_fold(0, |reach: u64, op| {
            (!op.is_cut && op.range.start <= reach).then_some(reach.max(op.range.end))
        });
        reach.is_some()
    }

    /// Begins a change of several names at once.
    pub(crate) fn begin_names(&self, changes: &[(&str, Option<FileNo>)]) -> u64 {
        let mut state = self.lock();
        let id = state.now().tick;
        for (name, file) in changes {
            let value = Value { id, asked_ms: now_ms(), file: *file, ended: None };
            state.names.entry((*name).to_owned()).or_default().push(value);
        }
        id
    }

    /// Ends a change of names: they have changed (`Some(true)`), or not (`Some(false)`); `None`: nobody
    /// knows.
    pub(crate) fn end_names(&self, id: u64, is_done: Option<bool>) {
        let mut state = self.lock();
        let now = state.now();
        for values in state.names.values_mut() {
            match is_done {
                Some(true) => values.iter_mut().filter(|value| value.id == id).for_each(|value| {
                    value.ended = Some(now);
                }),
                Some(false) => values.retain(|value| value.id != id),
                None => values.iter_mut().filter(|value| value.id == id).for_each(|value| {
                    value.asked_ms = now.ms;
                }),
            }
        }
    }

    /// Notes the number of a file.
    pub(crate) fn is_number(&self, file: FileNo, number: u64) {
        self.lock().files[file.0].number = Some(number);
    }

    /// The file that a name stands for.
    pub(crate) fn known(&self, name: &str) -> Known {
        let state = self.lock();
        match state.names.get(name).and_then(|values| values.last()) {
            None => Known::Nothing,
            Some(Value { ended: None, .. }) => Known::Unsure,
            Some(Value { file: Some(file), .. }) => Known::File(*file),
            Some(Value { file: None, .. }) => Known::Nothing,
        }
    }

    /// Judges a look at a name that began at `began`. Returns the file that was found.
    pub(crate) fn looked(&self, name: &str, began: At, found: Found, who: &str) -> Option<FileNo> {
        let mut state = self.lock();
        let values = state.names.get(name).map_or(&[][..], Vec::as_slice);
        let mut could = Vec::new();
        let mut is_bound = false;
        for value in values.iter().rev() {
            could.push(value.file);
            is_bound =
                value.ended.is_some_and(|at| at.tick <= began.tick && at.ms + state.slack_ms <= began.ms);
            if is_bound {
                break;
            }
        }
        if !is_bound {
            could.push(None);
        }
        let is_taken = |number| state.files.iter().any(|file| file.number == Some(number));
        let is_it = |file: &FileNo, number| match state.files[file.0].number {
            Some(known) => known == number,
            None => !is_taken(number),
        };
        let fits = |file: &Option<FileNo>| match (file, found) {
            (None, Found::Nothing) => true,
            (Some(file), Found::Number(number)) => is_it(file, number),
            _ => false,
        };
        let fitting = could.iter().find(|file| fits(file)).copied();
        match fitting {
            Some(file) => {
                if let (Some(file), Found::Number(number)) = (file, found) {
                    state.files[file.0].number = Some(number);
                }
                file
            }
            None => {
                let could: Vec<String> = could
                    .iter()
                    .map(|file| file.map_or("nothing".to_owned(), |file| format!("f{}", file.0)))
                    .collect();
                let what = format!("{who} finds {found:?} as {name}, which is {}", could.join(" or "));
                state.failure.get_or_insert(what);
                None
            }
        }
    }

    /// Settles a doubt: the owner of a name has looked, on this mount and from `began` on, what it stands
    /// for. A request that failed, or whose mount has died, may still be on its way: a look that began too
    /// early settles nothing.
    pub(crate) fn is_sure(&self, name: &str, file: Option<FileNo>, mount: usize, began: At) {
        let is_too_early = {
            let state = self.lock();
            let last = state.names.get(name).and_then(|values| values.last());
            let of_dead = state.died_ms.get(&mount).copied();
            let last_ms = last.map(|value| value.asked_ms).max(of_dead);
            last_ms.is_some_and(|last_ms| began.ms < last_ms + UNDER_WAY_MS)
        };
        if is_too_early {
            return;
        }
        let id = self.begin_names(&[(name, file)]);
        self.end_names(id, Some(true));
    }
}

impl State {
    fn now(&mut self) -> At {
        self.tick += 1;
        At { tick: self.tick, ms: now_ms() }
    }
}

impl Op {
    fn must_be_seen(&self, reader: Reader, began: At, slack_ms: u64) -> bool {
        let is_own = reader.life == Some(self.by) && self.taken.is_some_and(|at| at <= began.tick);
        let was_told = |at: At| at.tick <= reader.opened.tick && at.ms + slack_ms <= reader.opened.ms;
        !self.in_doubt && (is_own || self.synced.is_some_and(was_told))
    }

    fn fits(&self, at: u64, byte: Option<u8>) -> bool {
        if self.is_cut { byte.unwrap_or(0) == 0 } else { byte == Some(byte_of(self.id, at)) }
    }
}

impl File {
    /// The error in bytes that were found, if there is one.
    fn judge_bytes(&self, range: &Range<u64>, found: &[u8], must: impl Fn(&Op) -> bool) -> Option<String> {
        let byte = |at: u64| found.get(index(at - range.start)).copied();
        let mut open = vec![true; index(range.end - range.start)];
        let mut left = open.len();
        for op in self.ops.iter().rev() {
            if left == 0 {
                return None;
            }
            let is_last = must(op);
            for at in range.start.max(op.range.start)..range.end.min(op.range.end) {
                let open = &mut open[index(at - range.start)];
                if *open && op.fits(at, byte(at)) {
                    *open = false;
                    left -= 1;
                } else if *open && is_last {
                    return Some(self.explain(at, byte(at), op));
                }
            }
        }
        let strange = |at: &u64| open[index(at - range.start)] && byte(*at).unwrap_or(0) != 0;
        let at = range.clone().find(strange)?;
        Some(format!("byte {at} is {:?}, which nobody wrote", byte(at)))
    }

    fn explain(&self, at: u64, byte: Option<u8>, must: &Op) -> String {
        let of = self.ops.iter().filter(|op| op.range.contains(&at) && op.fits(at, byte)).map(|op| op.id);
        let of: Vec<u64> = of.collect();
        let Op { id, range, .. } = must;
        format!("byte {at} is {byte:?} (of {of:?}), and must be of {id}, to {range:?}, or later")
    }

    /// The least and the greatest size that the file may have.
    fn sizes(&self, must: impl Fn(&Op) -> bool) -> (u64, u64) {
        self.ops.iter().fold((0, 0), |(least, most), op| match (op.is_cut, must(op)) {
            (true, true) => (op.range.start, op.range.start),
            (true, false) => (least.min(op.range.start), most.max(op.range.start)),
            (false, true) => (least.max(op.range.end), most.max(op.range.end)),
            (false, false) => (least, most.max(op.range.end)),
        })
    }
}

#[cfg(test)]
mod tests;
