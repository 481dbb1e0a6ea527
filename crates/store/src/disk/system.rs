//! A file of the operating system: by ordinary calls or by io_uring, through the page cache or past it.

use std::fs::File;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::ahead::Stream;
use super::direct::{self, Buffers};
use super::mapped::Mapped;
use super::uring::Rings;
use super::{DiskFile, FileIdentity};

/// The page cache's unit.
const PAGE_BYTES: u64 = 4096;
/// What a system call fails with that a kernel, a container's policy or a file system does not offer.
const NOT_OFFERED: [i32; 4] = [libc::ENOSYS, libc::EPERM, libc::EINVAL, libc::ESPIPE];

/// How the files of a directory are reached.
#[derive(Debug)]
pub(crate) struct Means {
    /// `None`: by ordinary calls.
    rings: Option<Rings>,
    buffers: Buffers,
    /// So much the system reads ahead.
    window: u64,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct SystemFile {
    file: File,
    /// The same file past the page cache.
    direct: Option<File>,
    /// For what is in the page cache.
    mapped: Mapped,
    stream: Stream,
    means: Arc<Means>,
}

impl Means {
    pub(crate) fn new(rings: Option<Rings>, window: u64) -> Means {
        Means { rings, buffers: Buffers::default(), window }
    }

    fn read(&self, file: &File, to: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.rings {
            Some(rings) => rings.read(file, to, offset),
            None => Ok(rustix::io::pread(file, to, offset)?),
        }
    }

    fn write(&self, file: &File, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        match &self.rings {
            Some(rings) => rings.write(file, buffers, offset),
            None => Ok(rustix::io::pwritev(file, buffers, offset)?),
        }
    }
}

impl SystemFile {
    pub(crate) fn new(file: File, direct: Option<File>, means: Arc<Means>) -> SystemFile {
        SystemFile { file, direct, mapped: Mapped::default(), stream: Stream::default(), means }
    }

    fn read_buffered(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.mapped.copy(&self.file, to, offset) {
            return Ok(to.len());
        }
        self.stream.next(&self.file, offset, to.len(), self.means.window);
        let got = self.means.read(&self.file, to, offset)?;
        self.mapped.note_read(&self.file, offset, got);
        Ok(got)
    }

    fn write_buffered(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let written = self.means.write(&self.file, buffers, offset)?;
        self.mapped.note_written(offset, written);
        Ok(written)
    }
}

impl DiskFile for SystemFile {
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(direct) = &self.direct else { return self.read_buffered(to, offset) };
        if direct::fits(to, offset) {
            return self.means.read(direct, to, offset);
        }
        let around = direct::around(offset, to.len());
        let mut buffer = self.means.buffers.take(around.bytes);
        let got = self.means.read(direct, buffer.bytes(), around.from)?;
        let count = got.saturating_sub(around.skip).min(to.len());
        to[..count].copy_from_slice(&buffer.bytes()[around.skip..around.skip + count]);
        self.means.buffers.give(buffer);
        Ok(count)
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let Some(direct) = &self.direct else { return self.write_buffered(buffers, offset) };
        if let [one] = buffers
            && direct::fits(one, offset)
        {
            return self.means.write(direct, buffers, offset);
        }
        let Some(bytes) = direct::gathered_bytes(buffers, offset) else {
            // Not in whole blocks: through the page cache, which the kernel keeps in step.
            return self.means.write(&self.file, buffers, offset);
        };
        let mut buffer = self.means.buffers.take(bytes);
        direct::gather(buffers, buffer.bytes());
        let written = self.means.write(direct, &[IoSlice::new(buffer.bytes())], offset);
        self.means.buffers.give(buffer);
        written
    }

    fn sync_data(&self) -> io::Result<()> {
        match &self.means.rings {
            Some(rings) => rings.sync(&self.file, true),
            None => self.file.sync_data(),
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        match &self.means.rings {
            Some(rings) => rings.sync(&self.file, false),
            None => self.file.sync_all(),
        }
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        let found = self.file.metadata()?;
        Ok(FileIdentity { device: found.dev(), inode: found.ino() })
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.mapped.cut(length, || self.file.set_len(length))
    }

    fn drop_cache(&self, range: Range<u64>) {
        // Only whole pages go; up to the file's end where no length is given.
        let from = range.start / PAGE_BYTES * PAGE_BYTES;
        let to = range.end.checked_next_multiple_of(PAGE_BYTES).filter(|&to| i64::try_from(to).is_ok());
        let length = to.and_then(|to| NonZeroU64::new(to.saturating_sub(from)));
        self.mapped.let_go(&self.file, from..to.unwrap_or(u64::MAX), || {
            let _ = rustix::fs::fadvise(&self.file, from, length, rustix::fs::Advice::DontNeed);
        });
    }

    fn is_cached(&self, range: Range<u64>) -> bool {
        let length = range.end.saturating_sub(range.start);
        self.direct.is_none() && self.mapped.are_cached(&self.file, range.start, length)
    }

    fn unmap(&self) {
        self.mapped.end();
    }

    fn is_buffered(&self) -> bool {
        self.direct.is_none()
    }

    fn start_writing(&self, range: Range<u64>) -> io::Result<()> {
        let number = |bytes: u64| i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput);
        let (from, length) = (number(range.start)?, number(range.end.saturating_sub(range.start))?);
        // A length of nothing would mean: up to the file's end.
        if length == 0 {
            return Ok(());
        }
        #[expect(unsafe_code, reason = "no library wraps this system call")]
        // SAFETY: the file is open, and there is no memory behind the arguments.
        let result = unsafe {
            libc::sync_file_range(self.file.as_raw_fd(), from, length, libc::SYNC_FILE_RANGE_WRITE)
        };
        match io::Error::last_os_error() {
            _ if result == 0 => Ok(()),
            // Not to be had on this system or for this file: the sync does all of it.
            error if NOT_OFFERED.contains(&error.raw_os_error().unwrap_or_default()) => Ok(()),
            error => Err(error),
        }
    }

    fn as_file(&self) -> Option<&File> {
        // What goes past the page cache cannot be sent from it.
        self.direct.is_none().then_some(&self.file)
    }
}
