//! The plain system: files, as a careful program without a store uses them.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use bytes::Bytes;
use rustix::fs::{Advice, fadvise};

use crate::error::{Doing, Error};
use crate::load_threads::{Random, Work};
use crate::measure::{Limit, Meter, Sample};

/// Most buffers in one vectored write (Linux allows 1024).
const VECTORS_MAX: usize = 1024;
/// About the most bytes of one group of writes, the same as in the store.
const GROUP_BYTES_MAX: usize = 32 << 20;

/// A file that is removed on drop.
pub(crate) struct Scratch {
    pub(crate) file: File,
    path: PathBuf,
}

impl Scratch {
    /// Creates an empty file in `dir`.
    pub(crate) fn make(dir: &Path, name: &str) -> Result<Scratch, Error> {
        let path = dir.join(name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
        Ok(Scratch { file: file.doing("make a file")?, path })
    }

    /// Drops the file's cached pages.
    pub(crate) fn forget(&self) -> Result<(), Error> {
        forget(&self.path).doing("drop a file's cached pages")
    }

    /// Fills a range of the file with `payloads`.
    pub(crate) fn fill(&self, payloads: &[Bytes], range: Range<u64>, stop: &AtomicBool) -> Result<(), Error> {
        let mut at = range.start;
        for payload in payloads.iter().cycle() {
            if at >= range.end {
                break;
            }
            if stop.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            self.file.write_all_at(payload, at).doing("fill a file")?;
            at += u64::try_from(payload.len()).expect("memory");
        }
        Ok(())
    }

    /// Makes the file durable.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        self.file.sync_all().doing("sync a file")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        settle(self.path.parent());
    }
}

/// Makes a removal durable, so that the freeing of its blocks is not part of the next sample's first sync.
pub(crate) fn settle(dir: Option<&Path>) {
    let _ = dir.map(|dir| File::open(dir).and_then(|dir| dir.sync_all()));
}

/// Drops all cached pages of `path`, or of the files below it; a store may remove some of the files
/// meanwhile.
pub(crate) fn forget(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return fs::read_dir(path)?.try_for_each(|entry| match forget(&entry?.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        });
    }
    let file = File::open(path)?;
    // Only clean pages can be dropped.
    file.sync_data()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Measures reads at random multiples of the request's size, below `bytes`.
pub(crate) fn random_reads(
    file: &File,
    bytes: u64,
    plan: Work,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Sample, Error> {
    let request = u64::from(plan.request_bytes);
    let hire = |index| {
        let mut random = Random::new(seed * 1000 + u64::from(index));
        let mut buffer = vec![0; usize::try_from(request).expect("memory")];
        move || {
            let at = random.below(bytes / request) * request;
            file.read_exact_at(&mut buffer, at).doing("read a file")
        }
    };
    crate::load_threads::run(plan, stop, hire)
}

/// Measures one pass of reads, starting at request `first`.
pub(crate) fn sequential_reads(
    file: &File,
    first: u64,
    plan: Work,
    stop: &AtomicBool,
) -> Result<Sample, Error> {
    let hire = |_| {
        let mut buffer = vec![0; usize::try_from(plan.request_bytes).expect("memory")];
        let mut at = first * u64::from(plan.request_bytes);
        move || {
            file.read_exact_at(&mut buffer, at).doing("read a file")?;
            at += u64::from(plan.request_bytes);
            Ok(())
        }
    };
    crate::load_threads::run(plan, stop, hire)
}

/// Positions of synced writes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// Each thread writes one request after the other in a part of its own.
    Append,
    /// At random multiples of the request's size, within this many bytes, all of which were written before.
    InPlace(u64),
}

/// Measures writes, each followed by an fdatasync of its own.
pub(crate) fn synced_writes(
    file: &File,
    payloads: &[Bytes],
    target: Target,
    plan: Work,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Sample, Error> {
    let request = u64::from(plan.request_bytes);
    let share = plan.limit.operations.div_ceil(u64::from(plan.depth)) * request;
    let hire = |index| {
        let mut random = Random::new(seed * 1000 + u64::from(index));
        let mut payloads = payloads.iter().cycle();
        let mut next = u64::from(index) * share;
        move || {
            let at = match target {
                Target::Append => next,
                Target::InPlace(bytes) => random.below(bytes / request) * request,
            };
            next += request;
            let payload = payloads.next().expect("some payloads");
            file.write_all_at(payload, at).doing("write a file")?;
            file.sync_data().doing("sync a file")
        }
    };
    crate::load_threads::run(plan, stop, hire)
}

/// Measures appends with `depth` in flight and group commit: a writer takes all waiting requests, writes
/// them together, syncs once and answers.
pub(crate) fn grouped_appends(
    file: &File,
    payloads: &[Bytes],
    depth: u32,
    limit: Limit,
    stop: &AtomicBool,
) -> Result<Sample, Error> {
    let (submit, waiting) = mpsc::channel::<Bytes>();
    let (answer, answers) = mpsc::channel::<Result<(), Error>>();
    let request = payloads.first().map_or(0, |payload| u32::try_from(payload.len()).expect("a request"));
    let gone = || Error::Io { doing: "write a file", source: io::ErrorKind::BrokenPipe.into() };
    // The closure owns the sender, so that the writer ends even after an error.
    std::thread::scope(move |scope| {
        scope.spawn(move || {
            let mut end = 0;
            while let Ok(first) = waiting.recv() {
                let mut group = vec![first];
                let mut bytes = 0;
                while bytes < GROUP_BYTES_MAX
                    && let Ok(next) = waiting.try_recv()
                {
                    bytes += next.len();
                    group.push(next);
                }
                let written = write_group(file, &group, end).and_then(|bytes| {
                    end += bytes;
                    file.sync_data()
                });
                let failed = written.is_err();
                let mut first = Some(written.doing("write a file"));
                for _ in &group {
                    let _ = answer.send(first.take().unwrap_or(Ok(())));
                }
                if failed {
                    return;
                }
            }
        });
        let mut payloads = payloads.iter().cycle();
        let mut running = limit.begin(stop);
        let mut flying = VecDeque::new();
        let mut done = 0;
        let meter = Meter::begin();
        loop {
            while flying.len() < usize::try_from(depth).expect("a few") && running.next(1)? == 1 {
                let payload = payloads.next().expect("some payloads").clone();
                submit.send(payload).map_err(|_| gone())?;
                flying.push_back(());
            }
            if flying.pop_front().is_none() {
                return Ok(meter.end(done, request));
            }
            answers.recv().map_err(|_| gone())??;
            done += 1;
        }
    })
}

/// Writes all of `group` at `end`; returns the number of bytes.
fn write_group(file: &File, group: &[Bytes], end: u64) -> io::Result<u64> {
    let mut at = end;
    for chunk in group.chunks(VECTORS_MAX) {
        let mut vectors: Vec<IoSlice<'_>> = chunk.iter().map(|bytes| IoSlice::new(bytes)).collect();
        let mut rest = &mut vectors[..];
        while !rest.is_empty() {
            match rustix::io::pwritev(file, rest, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    at += u64::try_from(bytes).expect("memory");
                    IoSlice::advance_slices(&mut rest, bytes);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(at - end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grouped_appends_write_all_of_it_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let scratch = Scratch::make(dir.path(), "f").expect("made");
        let stop = AtomicBool::new(false);
        let payloads: Vec<Bytes> = (0..3_u8).map(|byte| Bytes::from(vec![byte; 5000])).collect();
        let sample =
            grouped_appends(&scratch.file, &payloads, 4, Limit::operations(10), &stop).expect("written");
        assert_eq!((sample.operations, sample.bytes), (10, 50_000));
        let written = fs::read(dir.path().join("f")).expect("read");
        let expected: Vec<u8> = payloads.iter().cycle().take(10).flatten().copied().collect();
        assert_eq!(written, expected);
        drop(scratch);
        assert!(!dir.path().join("f").exists());
    }

    #[test]
    fn synced_writes_and_reads_stay_in_bounds() {
        let dir = tempfile::tempdir().expect("a directory");
        let scratch = Scratch::make(dir.path(), "f").expect("made");
        let stop = AtomicBool::new(false);
        let payloads = [Bytes::from(vec![7; 512])];
        let plan = Work { depth: 2, limit: Limit::operations(8), turn: 1, request_bytes: 512 };
        synced_writes(&scratch.file, &payloads, Target::Append, plan, 0, &stop).expect("written");
        assert_eq!(fs::read(dir.path().join("f")).expect("read"), vec![7; 4096]);
        synced_writes(&scratch.file, &payloads, Target::InPlace(4096), plan, 1, &stop).expect("written");
        let reads = random_reads(&scratch.file, 4096, plan, 1, &stop).expect("read");
        assert_eq!(reads.bytes, 4096);
        let alone = Work { depth: 1, ..plan };
        sequential_reads(&scratch.file, 0, alone, &stop).expect("read to the end");
        let beyond = Work { limit: Limit::operations(9), ..alone };
        assert!(sequential_reads(&scratch.file, 0, beyond, &stop).is_err(), "past the end");
        std::os::unix::fs::symlink("nowhere", dir.path().join("gone")).expect("linked");
        forget(dir.path()).expect("forgotten, but for what is not there any more");
    }
}
