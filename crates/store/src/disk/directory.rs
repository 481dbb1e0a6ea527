//! A directory of the operating system, locked by one process.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

use super::system::SystemFile;
use super::{Disk, DiskFile, FileIdentity, Named, Space, private};
use crate::error::Error;
use crate::format::DIRS;

/// Kind of access to a directory's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    /// Reading only. The changes by which opening a store tidies up (removing, cutting off, syncing names)
    /// succeed without effect. Everything else is refused.
    Look,
}

/// A directory, locked by this process. It is unlocked explicitly: a child process that is just being started
/// may hold a copy of the directory's file, and with it the lock, for a moment longer.
#[derive(Debug)]
pub struct Directory {
    dir: PathBuf,
    lock: File,
    access: Access,
}

impl Directory {
    /// Locks `dir` for this process alone: [`Error::InUse`] if another has it open. Its files are accessed
    /// through the page cache. Nothing in it is changed: it may turn out to be no store.
    pub fn lock(dir: &Path) -> Result<Directory, Error> {
        Directory::take(dir, FlockOperation::NonBlockingLockExclusive, Access::Write)
    }

    /// Remove other users' access. Only for a directory that is known to be a store.
    pub(crate) fn tighten(&self) {
        private::tighten(&self.dir, &DIRS);
    }

    /// Opens `dir` for inspection: nothing can be changed through it, and no process changes it meanwhile.
    /// [`Error::InUse`] if a process has it open for writing.
    pub fn read_only(dir: &Path) -> Result<Directory, Error> {
        Directory::take(dir, FlockOperation::NonBlockingLockShared, Access::Look)
    }

    fn take(dir: &Path, operation: FlockOperation, access: Access) -> Result<Directory, Error> {
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
        Ok(Directory { dir: dir.to_owned(), lock, access })
    }

    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.dir.clone() } else { self.dir.join(name) }
    }

    fn refuse_look(&self) -> io::Result<()> {
        if self.access == Access::Write { Ok(()) } else { Err(io::ErrorKind::ReadOnlyFilesystem.into()) }
    }

    fn file(&self, name: &str, options: &mut OpenOptions) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(SystemFile::new(options.open(self.path(name))?, self.access)))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Disk for Directory {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.file(name, OpenOptions::new().read(true).write(self.access == Access::Write))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.refuse_look()?;
        self.file(name, OpenOptions::new().read(true).write(true).create_new(true).mode(private::FILE_MODE))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.refuse_look()?;
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if self.access == Access::Look { Ok(()) } else { fs::remove_file(self.path(name)) }
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let names = fs::read_dir(self.path(dir))?;
        names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        if self.access == Access::Look { Ok(()) } else { File::open(self.path(dir))?.sync_all() }
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        self.refuse_look()?;
        private::make_dir(&self.path(dir))
    }

    fn space(&self) -> Option<Space> {
        let stat = rustix::fs::fstatvfs(&self.lock).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        let device = rustix::fs::fstat(&self.lock).map_or(0, |stat| stat.st_dev);
        (stat.f_blocks > 0).then(|| Space { free: bytes(stat.f_bavail), size: bytes(stat.f_blocks), device })
    }

    fn named(&self, name: &str) -> io::Result<Named> {
        let found = fs::symlink_metadata(self.path(name))?;
        let identity = FileIdentity { device: found.dev(), inode: found.ino() };
        Ok(Named { identity, bytes: found.len() })
    }

    fn place(&self) -> &Path {
        &self.dir
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::disk::{read_full, write_and_start, write_full};

    #[test]
    fn one_process_writes_or_some_look() {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = Directory::lock(dir.path()).expect("ours");
        assert!(matches!(Directory::lock(dir.path()), Err(Error::InUse(_))));
        assert!(matches!(Directory::read_only(dir.path()), Err(Error::InUse(_))));
        disk.create("a").expect("made").write_at(&[IoSlice::new(b"abc")], 0).expect("written");
        drop(disk);
        let look = || Directory::read_only(dir.path()).expect("a look");
        let looks = [look(), look()];
        assert!(matches!(Directory::lock(dir.path()), Err(Error::InUse(_))));
        let file = looks[1].open("a").expect("there");
        let mut bytes = [0; 4];
        assert_eq!(file.read_at(&mut bytes, 0).expect("read"), 3);
        assert!(file.write_at(&[IoSlice::new(b"x")], 0).is_err(), "it is only looked at");
        assert!(looks[0].create("b").is_err() && looks[0].rename("a", "b").is_err());
        assert!(looks[0].make_dir("b").is_err());
        file.set_length(1).expect("without effect");
        looks[0].remove("a").expect("without effect");
        looks[0].sync_dir("").expect("without effect");
        assert_eq!((file.length().expect("a length"), looks[0].named("a").expect("there").bytes), (3, 3));
        assert!(matches!(Directory::lock(&dir.path().join("no")), Err(Error::NotAStore(_))));
    }

    /// The bytes read are those written, whatever the sizes of writes and reads.
    #[test]
    fn what_is_written_in_parts_is_read_in_others() {
        let expected: Vec<u8> = (0..70_000_u32).flat_map(u32::to_le_bytes).collect();
        let dir = tempfile::tempdir().expect("a directory");
        let disk = Directory::lock(dir.path()).expect("ours");
        let file = disk.create("a").expect("made");
        let cuts = [0, 512, 4096, 5000, 5001, 9216, 65_536, 65_536 + 1024, 240_128, 280_000];
        for pair in cuts.windows(2) {
            let part = &expected[pair[0]..pair[1]];
            let (one, two) = part.split_at(part.len() / 3);
            let at = u64::try_from(pair[0]).expect("small");
            write_full(&*file, &[one, &[], two], at).expect("written");
        }
        file.sync_data().expect("synced");
        file.sync_all().expect("synced");
        file.drop_cache(0..280_000);
        assert_eq!(file.length().expect("a length"), 280_000);
        for (from, to) in [(0, 280_000), (512, 1024), (1, 2), (4095, 70_001), (279_999, 280_000)] {
            let mut bytes = vec![0; to - from + 100];
            let got = read_full(&*file, &mut bytes, u64::try_from(from).expect("small")).expect("read");
            assert_eq!(got, (to - from + 100).min(280_000 - from));
            assert!(bytes[..to - from] == expected[from..to], "{from}..{to}");
        }
        assert_eq!(read_full(&*file, &mut [0; 10], 280_000).expect("the end"), 0);
        assert_eq!(read_full(&*file, &mut [0; 10], 1 << 40).expect("the end"), 0);
        let (head, tail) = expected.split_at(100_001);
        write_and_start(&*file, &[&expected, &[], head, tail, &expected], 512, 64 << 10).expect("written");
        let mut bytes = vec![0; 3 * expected.len()];
        assert_eq!(read_full(&*file, &mut bytes, 512).expect("read"), bytes.len());
        assert!(bytes.chunks(expected.len()).all(|part| part == expected), "in pieces");
        file.set_length(1000).expect("cut");
        assert_eq!(read_full(&*file, &mut [0; 9000], 0).expect("read"), 1000);
    }
}
