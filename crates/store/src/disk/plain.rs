//! A directory of the operating system, by its ordinary calls: `pread`, `pwritev`, `fdatasync`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

use super::{Disk, DiskFile, Space};
use crate::error::Error;

/// A directory, locked for this process. Unlocked by hand: a child process that is just being started may hold a copy of the
/// directory's file, and with it the lock, for a moment longer.
#[derive(Debug)]
pub struct Plain {
    dir: PathBuf,
    lock: File,
    writable: bool,
}

#[derive(Debug)]
struct PlainFile(File);

impl Plain {
    /// The directory `dir`, for this process alone: [`Error::InUse`] if another has it open.
    pub fn lock(dir: &Path) -> Result<Plain, Error> {
        Plain::take(dir, FlockOperation::NonBlockingLockExclusive, true)
    }

    /// The directory `dir` to look at: nothing can be changed through it, and nobody changes it meanwhile. [`Error::InUse`]
    /// if a process has it open for writing.
    pub fn read_only(dir: &Path) -> Result<Plain, Error> {
        Plain::take(dir, FlockOperation::NonBlockingLockShared, false)
    }

    fn take(dir: &Path, operation: FlockOperation, writable: bool) -> Result<Plain, Error> {
        let lock = File::open(dir).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NotAStore(dir.to_owned()),
            _ => Error::io("open the store's directory", error),
        })?;
        flock(&lock, operation).map_err(|error| {
            if error == rustix::io::Errno::WOULDBLOCK {
                Error::InUse(dir.to_owned())
            } else {
                Error::io("lock the store's directory", error.into())
            }
        })?;
        Ok(Plain { dir: dir.to_owned(), lock, writable })
    }

    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.dir.clone() } else { self.dir.join(name) }
    }

    fn changes(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::ErrorKind::ReadOnlyFilesystem.into()) }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Disk for Plain {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(self.writable).open(self.path(name))?;
        Ok(Arc::new(PlainFile(file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.changes()?;
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(self.path(name))?;
        Ok(Arc::new(PlainFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.changes()?;
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.changes()?;
        fs::remove_file(self.path(name))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let names = fs::read_dir(self.path(dir))?;
        names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.changes()?;
        File::open(self.path(dir))?.sync_all()
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        self.changes()?;
        fs::create_dir(self.path(dir))
    }

    fn space(&self) -> Option<Space> {
        let stat = rustix::fs::fstatvfs(&self.lock).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        (stat.f_blocks > 0).then(|| Space { free: bytes(stat.f_bavail), size: bytes(stat.f_blocks) })
    }

    fn place(&self) -> &Path {
        &self.dir
    }

    fn describe(&self) -> String {
        "plain, buffered".to_owned()
    }
}

impl DiskFile for PlainFile {
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(to, offset)
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(&self.0, buffers, offset)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn drop_cache(&self) {
        let _ = rustix::fs::fadvise(&self.0, 0, None, rustix::fs::Advice::DontNeed);
    }

    fn as_file(&self) -> Option<&File> {
        Some(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_writes_or_some_look() {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = Plain::lock(dir.path()).expect("ours");
        assert!(matches!(Plain::lock(dir.path()), Err(Error::InUse(_))));
        assert!(matches!(Plain::read_only(dir.path()), Err(Error::InUse(_))));
        disk.create("a").expect("made").write_at(&[IoSlice::new(b"abc")], 0).expect("written");
        drop(disk);
        let looks =
            [Plain::read_only(dir.path()).expect("a look"), Plain::read_only(dir.path()).expect("too")];
        assert!(matches!(Plain::lock(dir.path()), Err(Error::InUse(_))));
        let file = looks[1].open("a").expect("there");
        let mut bytes = [0; 4];
        assert_eq!(file.read_at(&mut bytes, 0).expect("read"), 3);
        assert!(file.write_at(&[IoSlice::new(b"x")], 0).is_err(), "it is only looked at");
        assert!(looks[0].remove("a").is_err() && looks[0].create("b").is_err());
        assert!(matches!(Plain::lock(&dir.path().join("no")), Err(Error::NotAStore(_))));
    }
}
