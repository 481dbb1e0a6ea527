//! Programs that use mounts: each writes and moves files of its own, reads those of all programs, and takes
//! locks.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use braid_fuse::kernel_side::driven::Answer;
use tokio::time::{sleep, timeout};

use super::Mix;
use super::judge::{FILE_MAX, FileNo, Found, Judge, Known, Life, Reader};
use super::kernel::{Descriptor, Kernel, PAGE};
use crate::host::now_ms;
use crate::random::Random;
use crate::trace::Trace;

/// Longest time of a call, whatever happens.
const CALL_BOUND: Duration = Duration::from_secs(180);
/// Number of names of each program.
const NAMES: u64 = 3;
/// Files that a program has open at a time.
const OPEN_MAX: usize = 4;
/// Number of tries of a sync at the end, a second apart.
const END_TRIES: u32 = 60;

pub(crate) struct Program {
    pub(crate) who: String,
    /// Number of the program, and number of programs on all mounts.
    pub(crate) index: (u64, u64),
    pub(crate) life: Life,
    pub(crate) kernel: Kernel,
    pub(crate) judge: Judge,
    pub(crate) mix: Mix,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) stop: Arc<AtomicBool>,
    /// Number of calls done by all programs.
    pub(crate) done: Arc<AtomicU64>,
    pub(crate) open: Vec<Open>,
    /// File whose records are locked; `locked` is its descriptor, if it is open.
    pub(crate) records: FileNo,
    pub(crate) locked: Option<Open>,
}

/// A file that a program has open.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    pub(crate) file: FileNo,
    pub(crate) descriptor: Descriptor,
    pub(crate) reader: Reader,
    /// True if the program may write all of the file, and is the only one that may.
    pub(crate) is_own: bool,
}

/// The names that a program owns.
pub(crate) fn names_of(program: u64) -> impl Iterator<Item = String> {
    (0..NAMES).map(move |number| format!("p{program}-{number}"))
}

impl Program {
    /// Works until told to stop, and then closes all open files.
    pub(crate) async fn work(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let what = self.random.below(100);
            if timeout(CALL_BOUND, self.act(what)).await.is_err() {
                let seconds = CALL_BOUND.as_secs();
                return self.judge.fail(format!("{}: a call ({what}) hangs for {seconds} s", self.who));
            }
            self.done.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(self.random.below(60))).await;
        }
        let locked = self.locked.take();
        for open in std::mem::take(&mut self.open).into_iter().chain(locked) {
            if timeout(CALL_BOUND, self.settle(open)).await.is_err() {
                let seconds = CALL_BOUND.as_secs();
                return self.judge.fail(format!("{}: the last close hangs for {seconds} s", self.who));
            }
        }
        self.trace.event(format!("{} has stopped", self.who));
    }

    async fn act(&mut self, what: u64) {
        let own = self.own_name();
        match what {
            0..14 if self.mix.locks => self.lock_some(self.records).await,
            _ if self.open.is_empty() => self.open_own(&own).await,
            0..14 if self.open.len() < OPEN_MAX => self.open_own(&own).await,
            14..27 if self.open.len() < OPEN_MAX => self.open_any().await,
            27..52 => self.write_some().await,
            52..70 => self.read_some().await,
            70..78 => self.sync_some().await,
            78..86 => self.close_some().await,
            86..89 if self.mix.cuts => self.cut_some().await,
            89..93 => self.stat_any().await,
            93..95 if self.mix.names => self.unlink(&own).await,
            95..98 if self.mix.names => self.rename(&own).await,
            98..100 => {
                let name = self.any_name();
                self.kernel.evict(&name);
            }
            _ => self.read_some().await,
        }
    }

    fn own_name(&mut self) -> String {
        let number = self.random.below(NAMES);
        format!("p{}-{number}", self.index.0)
    }

    fn any_name(&mut self) -> String {
        let program = self.random.below(self.index.1);
        format!("p{program}-{}", self.random.below(NAMES))
    }

    /// The index of a random open file.
    fn any_open(&mut self, is_own: bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.open.len()).filter(|&at| self.open[at].is_own || !is_own).collect();
        self.random.one(&all)
    }

    pub(crate) fn told<T>(&self, what: &str, began_ms: u64, answer: &Answer<T>) {
        let took = now_ms() - began_ms;
        let end = match answer {
            Ok(_) => String::new(),
            Err(number) => format!(": {}", std::io::Error::from_raw_os_error(*number)),
        };
        self.trace.event(format!("{} {what} in {took} ms{end}", self.who));
    }

    /// Checks that an open file is not gone.
    fn lives<T>(&self, what: &str, file: FileNo, answer: &Answer<T>) {
        let is_gone = matches!(answer, Err(libc::ENOENT | libc::ESTALE | libc::EBADF));
        if is_gone && self.mix.live {
            self.judge.fail(format!("{}: {what} of f{}, which is open, and it is gone", self.who, file.0));
        }
    }

    /// Opens one of the program's own files, and makes it if there is none.
    async fn open_own(&mut self, name: &str) {
        let known = self.judge.known(name);
        let mut flags = libc::O_RDWR;
        if self.mix.direct && self.random.percent(25) {
            flags |= libc::O_DIRECT;
        }
        if self.mix.data && self.random.percent(10) {
            flags |= libc::O_DSYNC;
        }
        let began = self.judge.now();
        let began_ms = now_ms();
        let (new, id) = match known {
            Known::Nothing => {
                flags |= libc::O_CREAT | libc::O_EXCL;
                let new = self.judge.new_file();
                (Some(new), self.judge.begin_names(&[(name, Some(new))]))
            }
            _ => (None, 0),
        };
        let opened = self.kernel.open(name, flags).await;
        self.told(&format!("opens {name} with {flags:#o}"), began_ms, &opened);
        let file = match (&opened, new) {
            (Ok(open), Some(new)) => {
                self.judge.is_number(new, open.number);
                self.judge.end_names(id, Some(true));
                Some(new)
            }
            (Ok(open), None) => {
                let file = self.judge.looked(name, began, Found::Number(open.number), &self.who);
                if known == Known::Unsure {
                    self.judge.is_sure(name, file, self.life.mount, began);
                }
                file
            }
            (Err(libc::ENOENT), None) => {
                self.judge.looked(name, began, Found::Nothing, &self.who);
                self.judge.is_sure(name, None, self.life.mount, began);
                None
            }
            (Err(libc::EEXIST), Some(_)) => {
                self.judge.end_names(id, Some(false));
                self.judge.fail(format!("{}: {name} is there, and it made none", self.who));
                None
            }
            _ => None,
        };
        if let (Ok(descriptor), Some(file)) = (opened, file) {
            self.keep(file, descriptor, began, true).await;
        }
    }

    /// Opens the file of any program to read it.
    async fn open_any(&mut self) {
        let name = self.any_name();
        let began = self.judge.now();
        let began_ms = now_ms();
        let opened = self.kernel.open(&name, libc::O_RDONLY).await;
        self.told(&format!("opens {name} to read"), began_ms, &opened);
        match opened {
            Ok(descriptor) => {
                let found = Found::Number(descriptor.number);
                if let Some(file) = self.judge.looked(&name, began, found, &self.who) {
                    self.keep(file, descriptor, began, false).await;
                }
            }
            Err(libc::ENOENT) => drop(self.judge.looked(&name, began, Found::Nothing, &self.who)),
            Err(libc::ESTALE) if self.mix.live => {
                self.judge.fail(format!("{}: {name} is stale as it is opened", self.who));
            }
            Err(_) => {}
        }
    }

    async fn keep(&mut self, file: FileNo, descriptor: Descriptor, opened: super::judge::At, is_own: bool) {
        let reader = Reader { life: Some(self.life), opened };
        let began = self.judge.now();
        let size = self.kernel.fstat(&descriptor).await;
        self.lives("fstat", file, &size);
        if let Ok(size) = size {
            self.judge.size(file, size, reader, began, &self.who);
        }
        self.open.push(Open { file, descriptor, reader, is_own });
    }

    async fn write_some(&mut self) {
        let Some(at) = self.any_open(true) else { return };
        let open = self.open[at].clone();
        let range = self.somewhere();
        if open.descriptor.flags & libc::O_DIRECT != 0 && range.end - range.start > PAGE {
            // Two writes at once: the program does not wait for one before it begins the other.
            let middle = range.start + (range.end - range.start) / 2;
            let one = range.start..middle;
            let other = middle..range.end;
            tokio::join!(self.write(&open, one, true), self.write(&open, other, true));
            return;
        }
        self.write(&open, range, false).await;
    }

    pub(crate) async fn write(&self, open: &Open, range: Range<u64>, is_async: bool) -> bool {
        let began = self.judge.now();
        let began_ms = now_ms();
        let (id, bytes) = self.judge.begin_write(open.file, range.clone(), self.life);
        let written = match is_async {
            true => self.kernel.write_past(&open.descriptor, range.start, &bytes).await,
            false => self.kernel.write(&open.descriptor, range.start, &bytes).await,
        };
        let through = self.judge.now();
        self.judge.end(open.file, id, written.is_ok());
        if open.descriptor.flags & libc::O_DSYNC != 0 && written.is_ok() {
            // The sync of this write may have begun before other writes that were taken meanwhile.
            self.judge.synced(open.file, began, self.life, true);
            self.judge.lasts(open.file, id);
        } else if written.is_err() {
            self.judge.synced(open.file, through, self.life, false);
        }
        self.lives("write", open.file, &written);
        self.told(&format!("writes {range:?} of f{} as {id}", open.file.0), began_ms, &written);
        written.is_ok()
    }

    async fn read_some(&mut self) {
        let Some(at) = self.any_open(false) else { return };
        let open = self.open[at].clone();
        let range = self.somewhere();
        self.read(&open, range).await;
    }

    pub(crate) async fn read(&self, open: &Open, range: Range<u64>) -> bool {
        let began = self.judge.now();
        let began_ms = now_ms();
        let found = self.kernel.read(&open.descriptor, range.clone()).await;
        self.told(&format!("reads {range:?} of f{}", open.file.0), began_ms, &found);
        self.lives("read", open.file, &found);
        if let Ok(found) = &found {
            self.judge.read(open.file, range, found, open.reader, began, &self.who);
        }
        found.is_ok()
    }

    async fn sync_some(&mut self) {
        let Some(at) = self.any_open(!self.mix.readers) else { return };
        let open = self.open[at].clone();
        let data_only = self.mix.data && self.random.percent(30);
        let _ = self.sync(&open, data_only).await;
    }

    pub(crate) async fn sync(&self, open: &Open, data_only: bool) -> Answer<()> {
        let began = self.judge.now();
        let began_ms = now_ms();
        let synced = self.kernel.fsync(&open.descriptor).await;
        self.judge.synced(open.file, began, self.life, synced.is_ok());
        self.lives("fsync", open.file, &synced);
        let what = if data_only { "fdatasyncs" } else { "fsyncs" };
        self.told(&format!("{what} f{}", open.file.0), began_ms, &synced);
        synced
    }

    async fn close_some(&mut self) {
        let Some(at) = self.any_open(false) else { return };
        let open = self.open.swap_remove(at);
        self.close(open).await;
    }

    pub(crate) async fn close(&self, open: Open) {
        let began = self.judge.now();
        let began_ms = now_ms();
        let closed = self.kernel.close(open.descriptor, self.owner()).await;
        if open.is_own {
            self.judge.synced(open.file, began, self.life, closed.is_ok());
        }
        self.told(&format!("closes f{}", open.file.0), began_ms, &closed);
    }

    async fn cut_some(&mut self) {
        let Some(at) = self.any_open(true) else { return };
        let open = self.open[at].clone();
        let to = self.random.below(FILE_MAX);
        let began_ms = now_ms();
        let id = self.judge.begin_cut(open.file, to, self.life);
        let cut = self.kernel.truncate(&open.descriptor, to).await;
        self.judge.end(open.file, id, cut.is_ok());
        self.lives("ftruncate", open.file, &cut);
        self.told(&format!("truncates f{} to {to} as {id}", open.file.0), began_ms, &cut);
    }

    async fn stat_any(&mut self) {
        let name = self.any_name();
        let began = self.judge.now();
        let began_ms = now_ms();
        let found = self.kernel.stat(&name).await;
        self.told(&format!("stats {name}"), began_ms, &found);
        match found {
            Ok((number, size)) => {
                let file = self.judge.looked(&name, began, Found::Number(number), &self.who);
                let reader = Reader { life: Some(self.life), opened: began };
                if let Some(file) = file {
                    self.judge.size(file, size, reader, began, &self.who);
                }
            }
            Err(libc::ENOENT) => drop(self.judge.looked(&name, began, Found::Nothing, &self.who)),
            Err(_) => {}
        }
    }

    /// Removes one of the program's names.
    async fn unlink(&mut self, name: &str) {
        let known = self.judge.known(name);
        if known == Known::Unsure {
            return self.open_own(name).await;
        }
        let began_ms = now_ms();
        let id = self.judge.begin_names(&[(name, None)]);
        let removed = self.kernel.unlink(name).await;
        self.told(&format!("removes {name}"), began_ms, &removed);
        self.end_names(id, &removed, known, name);
    }

    /// Moves one of the program's names to another, perhaps over another file.
    async fn rename(&mut self, name: &str) {
        let known = self.judge.known(name);
        let names: Vec<String> = names_of(self.index.0).filter(|other| other != name).collect();
        let index = usize::try_from(self.random.below(NAMES - 1)).unwrap_or(0);
        let to = &names[index];
        let file = match known {
            Known::Unsure => return self.open_own(name).await,
            _ if self.judge.known(to) == Known::Unsure => return self.open_own(&to.clone()).await,
            Known::Nothing => return,
            Known::File(file) => file,
        };
        let began_ms = now_ms();
        let id = self.judge.begin_names(&[(name, None), (to, Some(file))]);
        let renamed = self.kernel.rename(name, to).await;
        self.told(&format!("renames {name} to {to}"), began_ms, &renamed);
        self.end_names(id, &renamed, known, name);
    }

    fn end_names(&self, id: u64, answer: &Answer<()>, known: Known, name: &str) {
        match answer {
            Ok(()) => self.judge.end_names(id, Some(true)),
            Err(libc::ENOENT) => {
                self.judge.end_names(id, Some(false));
                if known != Known::Nothing {
                    self.judge.fail(format!("{}: {name} is not there, and it is its own", self.who));
                }
            }
            Err(_) => self.judge.end_names(id, None),
        }
    }

    /// Syncs and closes a file at the end, when all written bytes can be synced.
    async fn settle(&self, open: Open) {
        let mut tries = 0;
        while open.is_own
            && let Err(number) = self.sync(&open, false).await
        {
            let is_gone = matches!(number, libc::ENOENT | libc::ESTALE) && !self.mix.live;
            if is_gone || number == libc::EDQUOT || open.file == self.records {
                // Bytes that did not fit are lost, and so are those that were written under lost locks.
                break;
            }
            tries += 1;
            if tries == END_TRIES {
                let why = std::io::Error::from_raw_os_error(number);
                self.judge.fail(format!("{}: f{} is never synced: {why}", self.who, open.file.0));
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
        self.close(open).await;
    }

    /// A random range of a file.
    fn somewhere(&mut self) -> Range<u64> {
        let range = match self.random.below(10) {
            0..4 => {
                let at = self.random.below(FILE_MAX);
                at..at + 1 + self.random.below(PAGE)
            }
            4..7 => {
                let at = self.random.below(FILE_MAX / PAGE) * PAGE;
                at..at + PAGE * (1 + self.random.below(4))
            }
            7..9 => 0..1 + self.random.below(2 * PAGE),
            _ => {
                let at = self.random.below(FILE_MAX);
                at..at + 1 + self.random.below(8 * PAGE)
            }
        };
        range.start..range.end.min(FILE_MAX)
    }
}

/// The names of all programs.
pub(crate) fn all_names(programs: u64) -> BTreeSet<String> {
    (0..programs).flat_map(names_of).collect()
}
