//! A file of the operating system, accessed by ordinary calls through the page cache.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwritev};

use super::directory::Access;
use super::residency::are_resident;
use super::{DiskFile, FileIdentity};

/// The page cache's unit.
const PAGE_BYTES: u64 = 4096;
/// Bytes of one advice to read ahead: the kernel takes no more at once than the device takes.
const ADVICE_BYTES: u64 = 256 << 10;
/// The errors of a system call that the kernel, a container's policy or the file system does not support.
const NOT_OFFERED: [i32; 4] = [libc::ENOSYS, libc::EPERM, libc::EINVAL, libc::ESPIPE];

/// An open file.
#[derive(Debug)]
pub(crate) struct SystemFile {
    pub(crate) file: File,
    pub(crate) access: Access,
    /// True if the file system does not support reads that must not wait (tmpfs).
    takes_no_nowait: AtomicBool,
}

impl SystemFile {
    pub(crate) fn new(file: File, access: Access) -> SystemFile {
        SystemFile { file, access, takes_no_nowait: AtomicBool::new(false) }
    }
}

impl DiskFile for SystemFile {
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(pread(&self.file, to, offset)?)
    }

    fn read_cached_at(&self, to: &mut [u8], offset: u64) -> Option<usize> {
        if !self.takes_no_nowait.load(Ordering::Relaxed) {
            let read = preadv2(&self.file, &mut [IoSliceMut::new(to)], offset, ReadWriteFlags::NOWAIT);
            match read {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.takes_no_nowait.store(true, Ordering::Relaxed),
                read => return read.ok(),
            }
        }
        // Bytes that are in the cache now are read at once, unless they are evicted in between.
        let end = offset.saturating_add(u64::try_from(to.len()).expect("a length"));
        if self.is_cached(offset..end) { pread(&self.file, to, offset).ok() } else { None }
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(pwritev(&self.file, buffers, offset)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        let found = self.file.metadata()?;
        Ok(FileIdentity { device: found.dev(), inode: found.ino() })
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        if self.access == Access::Look { Ok(()) } else { self.file.set_len(length) }
    }

    fn drop_cache(&self, range: Range<u64>) {
        // Only whole pages are dropped; without a length, up to the file's end.
        let from = range.start / PAGE_BYTES * PAGE_BYTES;
        let to = range.end.checked_next_multiple_of(PAGE_BYTES).filter(|&to| i64::try_from(to).is_ok());
        let length = to.and_then(|to| NonZeroU64::new(to.saturating_sub(from)));
        let _ = fadvise(&self.file, from, length, Advice::DontNeed);
    }

    fn is_cached(&self, range: Range<u64>) -> bool {
        let length = range.end.saturating_sub(range.start);
        are_resident(&self.file, range.start, length) == Some(true)
    }

    fn will_read(&self, range: Range<u64>) {
        let step = usize::try_from(ADVICE_BYTES).expect("small");
        for at in (range.start..range.end.min(self.length().unwrap_or(0))).step_by(step) {
            let _ = fadvise(&self.file, at, NonZeroU64::new(ADVICE_BYTES), Advice::WillNeed);
        }
    }

    fn start_writing(&self, range: Range<u64>) -> io::Result<()> {
        let number = |bytes: u64| i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput);
        let from = number(range.start)?;
        let length = number(range.end.saturating_sub(range.start))?;
        // Length 0 would mean: up to the file's end.
        if length == 0 {
            return Ok(());
        }
        #[expect(unsafe_code, reason = "no library wraps this system call")]
        // SAFETY: the file is open, and the arguments refer to no memory.
        let result = unsafe {
            libc::sync_file_range(self.file.as_raw_fd(), from, length, libc::SYNC_FILE_RANGE_WRITE)
        };
        match io::Error::last_os_error() {
            _ if result == 0 => Ok(()),
            // Not supported on this system or for this file: the sync does all the work.
            error if NOT_OFFERED.contains(&error.raw_os_error().unwrap_or_default()) => Ok(()),
            error => Err(error),
        }
    }

    fn as_file(&self) -> Option<&File> {
        Some(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::disk::is_residency_told;

    #[test]
    fn what_was_read_ahead_is_cached() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(&vec![7; 3 << 20]).expect("written");
        file.sync_all().expect("synced");
        let file = SystemFile::new(file, Access::Write);
        file.drop_cache(0..3 << 20);
        let range = 4096..(3 << 20) - 1;
        file.will_read(range.clone());
        file.read_ahead(range.clone()).expect("read ahead");
        assert_eq!(file.is_cached(range), is_residency_told());
        file.will_read(0..u64::MAX);
        file.read_ahead(0..u64::MAX).expect("what is behind the end is left out");
    }
}
