//! The store's files: `superblock`, `log/00000001.seg` and so on, and the directory's lock.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

use crate::error::Error;
use crate::format::superblock::{self, Superblock};

/// The most segments kept open for reading; views hold on to theirs beyond that.
const OPEN_MAX: usize = 512;
/// The most buffers of one vectored write (Linux allows 1024).
const VECTORS_MAX: usize = 1024;

/// The files of an open store.
#[derive(Debug)]
pub(crate) struct Files {
    dir: Lock,
    log: PathBuf,
    log_dir: File,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    files: BTreeMap<u32, (Arc<File>, u64)>,
    uses: u64,
}

/// Make the files of an empty store.
pub(crate) fn format(dir: &Path, superblock: &Superblock) -> Result<(), Error> {
    let doing = |what| move |error| Error::io(what, error);
    fs::create_dir_all(dir).map_err(doing("make the store's directory"))?;
    let _lock = Lock::take(dir)?;
    for entry in fs::read_dir(dir).map_err(doing("list the store's directory"))? {
        let entry = entry.map_err(doing("list the store's directory"))?;
        // What an interrupted format leaves, and what a fresh file system has, is no obstacle.
        let name = entry.file_name();
        let empty = || fs::read_dir(entry.path()).is_ok_and(|mut entries| entries.next().is_none());
        if name != "superblock.new" && name != "lost+found" && !(name == "log" && empty()) {
            return Err(Error::NotEmpty(dir.to_owned()));
        }
    }
    fs::create_dir_all(dir.join("log")).map_err(doing("make the log's directory"))?;
    let temporary = dir.join("superblock.new");
    let mut file = File::create(&temporary).map_err(doing("make the superblock"))?;
    file.write_all(&superblock.encode()).map_err(doing("write the superblock"))?;
    file.sync_all().map_err(doing("sync the superblock"))?;
    fs::rename(&temporary, dir.join("superblock")).map_err(doing("put the superblock in place"))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(doing("sync the store's directory"))
}

/// The directory, locked for this process. Unlocked by hand: a child process that is just being started may hold a copy
/// of the file, and with it the lock, for a moment longer.
#[derive(Debug)]
struct Lock(File);

impl Lock {
    fn take(dir: &Path) -> Result<Lock, Error> {
        let file = File::open(dir).map_err(|error| Error::io("open the store's directory", error))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            if error == rustix::io::Errno::WOULDBLOCK {
                Error::InUse(dir.to_owned())
            } else {
                Error::io("lock the store's directory", error.into())
            }
        })?;
        Ok(Lock(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Files {
    /// Lock the directory and read who the store is.
    pub(crate) fn open(dir: &Path) -> Result<(Files, Superblock), Error> {
        let path = dir.join("superblock");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NotAStore(dir.to_owned()));
            }
            Err(error) => return Err(Error::io("read the superblock", error)),
        };
        let superblock = Superblock::decode(&bytes).map_err(|error| match error {
            crate::format::DecodeError::Version(_) => Error::UnknownFormat(path.clone(), "a newer release's"),
            crate::format::DecodeError::Magic => Error::UnknownFormat(path.clone(), "no superblock"),
            _ => Error::UnknownFormat(path.clone(), "a damaged superblock"),
        })?;
        if bytes.len() != superblock::BYTES {
            return Err(Error::UnknownFormat(path, "a superblock of another length"));
        }
        let log = dir.join("log");
        let log_dir = File::open(&log).map_err(|error| Error::io("open the log's directory", error))?;
        Ok((Files { dir: Lock::take(dir)?, log, log_dir, open: Mutex::default() }, superblock))
    }

    fn path(&self, number: u32) -> PathBuf {
        self.log.join(format!("{number:08}.seg"))
    }

    /// The numbers of all segments, in order. Other names are none of the log's.
    pub(crate) fn list(&self) -> Result<Vec<u32>, Error> {
        let failed = |error| Error::io("list the log", error);
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.log).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".seg")).map(str::parse);
            if let Some(Ok(number)) = number {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// A segment's file.
    pub(crate) fn get(&self, number: u32) -> Result<Arc<File>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.uses += 1;
        let now = open.uses;
        if let Some((file, used)) = open.files.get_mut(&number) {
            *used = now;
            return Ok(Arc::clone(file));
        }
        let opened = OpenOptions::new().read(true).write(true).open(self.path(number));
        let file = Arc::new(opened.map_err(|error| Error::io("open a segment", error))?);
        open.keep(number, &file, now);
        Ok(file)
    }

    /// A new segment with its first block, durable before it is returned. What failed half-way is taken away again.
    pub(crate) fn create(&self, number: u32, header: &[u8], sync: bool) -> io::Result<Arc<File>> {
        let path = self.path(number);
        let made = (|| {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
            file.write_all_at(header, 0)?;
            if sync {
                file.sync_all()?;
                self.log_dir.sync_all()?;
            }
            Ok(Arc::new(file))
        })();
        if let Ok(file) = &made {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.uses += 1;
            let now = open.uses;
            open.keep(number, file, now);
        } else {
            let _ = fs::remove_file(&path);
        }
        made
    }

    /// Take a segment away, durably. Views that hold it can still read it.
    pub(crate) fn remove(&self, number: u32, sync: bool) -> Result<(), Error> {
        let failed = |error| Error::io("remove a segment", error);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).files.remove(&number);
        fs::remove_file(self.path(number)).map_err(failed)?;
        if sync { self.log_dir.sync_all().map_err(failed) } else { Ok(()) }
    }

    /// Bytes the file system has free for this process, and of how many; `None` where it tells no bound.
    pub(crate) fn free(&self) -> Option<u64> {
        let stat = rustix::fs::fstatvfs(&self.dir.0).ok()?;
        (stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Bytes of the whole file system; `None` where it tells no bound.
    pub(crate) fn size(&self) -> Option<u64> {
        let stat = rustix::fs::fstatvfs(&self.dir.0).ok()?;
        (stat.f_blocks > 0).then(|| stat.f_blocks.saturating_mul(stat.f_frsize))
    }
}

impl Open {
    fn keep(&mut self, number: u32, file: &Arc<File>, now: u64) {
        if self.files.len() >= OPEN_MAX {
            let oldest = self.files.iter().min_by_key(|(_, (_, used))| *used).map(|(&number, _)| number);
            oldest.and_then(|number| self.files.remove(&number));
        }
        self.files.insert(number, (Arc::clone(file), now));
    }
}

/// Fill `buffer` from `offset`, as far as the file goes; how many bytes there were.
pub(crate) fn read_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<usize> {
    let mut total = 0;
    while !buffer.is_empty() {
        match file.read_at(buffer, offset) {
            Ok(0) => break,
            Ok(bytes) => {
                total += bytes;
                offset += u64::try_from(bytes).expect("a length");
                buffer = &mut buffer[bytes..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

/// Write all of `buffers` from `offset` on.
pub(crate) fn write_all_at(file: &File, buffers: &[&[u8]], mut offset: u64) -> io::Result<()> {
    for chunk in buffers.chunks(VECTORS_MAX) {
        let mut vectors: Vec<IoSlice<'_>> = chunk.iter().map(|bytes| IoSlice::new(bytes)).collect();
        let mut rest = &mut vectors[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match rustix::io::pwritev(file, rest, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    offset += u64::try_from(bytes).expect("a length");
                    IoSlice::advance_slices(&mut rest, bytes);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}
