//! A directory on a file system with another user, which takes all free space just before the store does
//! something. The file system's refusals are counted.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use braid_store::disk::{Directory, Disk, DiskFile, FileIdentity, Named, Space};
use rustix::fs::{FallocateFlags, fallocate};

/// The operation before which the space is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// Writing a commit, or starting its write-back.
    Write,
    /// Making a segment: its file, its header, its name.
    Segment,
    /// Writing a checkpoint.
    Checkpoint,
    /// Syncing a file.
    Sync,
}

/// All kinds of operations, with their names.
pub(crate) const ALL: [(At, &str); 4] = [
    (At::Write, "writing commits"),
    (At::Segment, "making segments"),
    (At::Checkpoint, "writing checkpoints"),
    (At::Sync, "syncing"),
];
const NEVER: usize = usize::MAX;
/// The other user takes space in pieces of this size, then in ever smaller ones.
const PIECE: u64 = 64 << 20;
const PIECE_MIN: u64 = 4 << 10;
/// The longest time until freed space is available.
const PATIENCE: Duration = Duration::from_secs(10);

/// The other user of the file system.
#[derive(Debug)]
pub(crate) struct Other {
    path: PathBuf,
    /// The other user's file, and the bytes that it takes.
    file: Mutex<Option<(File, u64)>>,
    before: AtomicUsize,
    /// Number of refusals for lack of space, for each of [`ALL`].
    refused: [AtomicU64; ALL.len()],
}

impl Other {
    pub(crate) fn new(path: PathBuf) -> Other {
        let refused = Default::default();
        Other { path, file: Mutex::new(None), before: AtomicUsize::new(NEVER), refused }
    }

    /// Take all space just before the store's next operation of this kind.
    pub(crate) fn take_before(&self, at: At) {
        self.before.store(at as usize, Ordering::SeqCst);
    }

    /// Free the space and wait until it is available: xfs sometimes reports none for some milliseconds.
    pub(crate) fn give_back(&self) -> io::Result<()> {
        self.before.store(NEVER, Ordering::SeqCst);
        let Some((file, bytes)) = self.file.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(());
        };
        let dir = self.path.parent().expect("a file is in a directory");
        std::fs::remove_file(&self.path)?;
        drop(file);
        let began = Instant::now();
        loop {
            let space = rustix::fs::statvfs(dir)?;
            // The store may have taken some of it meanwhile.
            if space.f_bavail * space.f_frsize >= bytes / 2 {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(io::Error::other("the file system does not give back what was removed"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Number of times that the file system refused this operation.
    pub(crate) fn refused(&self, at: At) -> u64 {
        self.refused[at as usize].load(Ordering::SeqCst)
    }

    /// Run an operation of the store, after taking the space if that is due before this kind.
    fn meet<T>(&self, at: At, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let now = at as usize;
        if self.before.compare_exchange(now, NEVER, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.take()?;
        }
        let done = act();
        let no_space = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        if done.as_ref().is_err_and(|error| no_space.contains(&error.kind())) {
            self.refused[now].fetch_add(1, Ordering::SeqCst);
        }
        done
    }

    fn take(&self) -> io::Result<()> {
        let mut mine = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = File::create(&self.path)?;
        let mut end = 0;
        let mut piece = PIECE;
        while piece >= PIECE_MIN {
            match fallocate(&file, FallocateFlags::empty(), end, piece) {
                Ok(()) => end += piece,
                Err(_) => piece /= 2,
            }
        }
        *mine = Some((file, end));
        Ok(())
    }
}

/// The store's directory on the file system that the other user fills.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) inner: Directory,
    pub(crate) other: Arc<Other>,
}

impl Shared {
    fn file(&self, name: &str, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let at = at(name);
        Arc::new(SharedFile { inner, other: Arc::clone(&self.other), at })
    }
}

/// The kind of operation on the file of this name.
fn at(name: &str) -> At {
    if name.starts_with("checkpoint") { At::Checkpoint } else { At::Write }
}

impl Disk for Shared {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(name, self.inner.open(name)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let at = if at(name) == At::Checkpoint { At::Checkpoint } else { At::Segment };
        let inner = self.other.meet(at, || self.inner.create(name))?;
        Ok(self.file(name, inner))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.other.meet(At::Sync, || self.inner.sync_dir(dir))
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        self.inner.make_dir(dir)
    }

    fn space(&self) -> Option<Space> {
        self.inner.space()
    }

    fn named(&self, name: &str) -> io::Result<Named> {
        self.inner.named(name)
    }

    fn place(&self) -> &Path {
        self.inner.place()
    }
}

struct SharedFile {
    inner: Arc<dyn DiskFile>,
    other: Arc<Other>,
    at: At,
}

impl fmt::Debug for SharedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl DiskFile for SharedFile {
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(to, offset)
    }

    fn read_cached_at(&self, to: &mut [u8], offset: u64) -> Option<usize> {
        self.inner.read_cached_at(to, offset)
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let at = if self.at == At::Write && offset == 0 { At::Segment } else { self.at };
        self.other.meet(at, || self.inner.write_at(buffers, offset))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.other.meet(At::Sync, || self.inner.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.other.meet(At::Sync, || self.inner.sync_all())
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.inner.identity()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.inner.set_length(length)
    }

    fn drop_cache(&self, range: Range<u64>) {
        self.inner.drop_cache(range);
    }

    fn is_cached(&self, range: Range<u64>) -> bool {
        self.inner.is_cached(range)
    }

    fn start_writing(&self, range: Range<u64>) -> io::Result<()> {
        self.other.meet(self.at, || self.inner.start_writing(range))
    }

    fn as_file(&self) -> Option<&File> {
        self.inner.as_file()
    }
}
