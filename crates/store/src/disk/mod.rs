//! The disk under a store: files by name in one directory, and the operations on them.
//!
//! The disk is a trait with several implementations: [`Directory`] is the operating system's, the one for
//! tests is in memory and fails on demand (feature `faulty-disk`, which no binary has), and
//! [`modelled::Modelled`] makes another disk take the time of a modelled device. Names are relative to the
//! store's directory and use `/`; the directory itself is the empty name. All methods can be called from any
//! thread.
//!
//! The store's requirements are in `docs/format-store.md` ("What the medium is assumed to guarantee"): bytes
//! are durable after a sync of their file, names after a sync of their directory, and nothing before that.

mod directory;
#[cfg(any(test, feature = "faulty-disk"))]
pub mod memory;
pub mod modelled;
mod modelled_cache;
pub mod private;
pub(crate) mod residency;
pub(crate) mod salvage_read;
mod system;

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub use directory::Directory;
pub use residency::is_residency_told;

/// The most buffers of one vectored write (Linux allows 1024).
const VECTORS_MAX: usize = 1024;
/// Bytes of the buffer through which a file is read ahead.
const AHEAD_BUFFER_BYTES: u64 = 256 << 10;

/// A directory with a store's files.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Open an existing file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Create an empty file. An error if the name exists.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Rename a file, replacing a file of the new name. Durable once the directory is synced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Remove a file's name. The file can still be read through open handles. Durable once the directory is
    /// synced.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names in a directory, without the directory's own, in no order.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// Make a directory's creations, renames and removals durable.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;

    /// Create a directory. An error if the name exists.
    fn make_dir(&self, dir: &str) -> io::Result<()>;

    /// The disk's space; `None` if no bound is known.
    fn space(&self) -> Option<Space>;

    /// The identity and length of the file that has this name now.
    fn named(&self, name: &str) -> io::Result<Named>;

    /// The directory of the files, for messages.
    fn place(&self) -> &Path;
}

/// Sync policy: changes are synced to the medium, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syncing {
    On,
    Off,
}

impl Syncing {
    pub(crate) fn is_on(self) -> bool {
        self == Syncing::On
    }
}

/// A disk's space, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes available to this process.
    pub free: u64,
    pub size: u64,
    /// Device number of the file system, which other stores on this machine may share; 0: none does.
    pub device: u64,
}

/// Identifies a file whatever its name: no two files that exist at once have the same identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// Device number of the file's file system.
    pub device: u64,
    /// The file's number in that file system.
    pub inode: u64,
}

/// The file behind a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    pub identity: FileIdentity,
    pub bytes: u64,
}

/// An open file of a [`Disk`].
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Read at most `to.len()` bytes; 0 at the file's end.
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize>;

    /// As [`DiskFile::read_at`], but never waits for the medium. `None`: the read would have to wait, or it
    /// fails, or the system does not tell. May read less than there is.
    fn read_cached_at(&self, to: &mut [u8], offset: u64) -> Option<usize>;

    /// Write the beginning of `buffers`, at most 1024 of them; returns the number of bytes written.
    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;

    /// Make bytes and length durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Make bytes, length and all other metadata durable.
    fn sync_all(&self) -> io::Result<()>;

    /// Bytes of the file.
    fn length(&self) -> io::Result<u64>;

    /// Identity of the open file.
    fn identity(&self) -> io::Result<FileIdentity>;

    /// Truncate the file, or extend it with zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Drop the clean cached pages of a range, so that reads of it come from the medium. Best effort: it
    /// cannot fail.
    fn drop_cache(&self, range: Range<u64>);

    /// Returns true if a whole range of bytes can be read without waiting for the medium, as far as the
    /// system tells.
    fn is_cached(&self, range: Range<u64>) -> bool;

    /// Tell the medium that a range of bytes will be read ahead, without waiting for it. Best effort: it
    /// cannot fail.
    fn will_read(&self, _range: Range<u64>) {}

    /// Have a range of bytes read into the system's cache, and wait for the medium. What is behind the file's
    /// end is left out. The bytes are copied to nowhere: a system counts pages as cached that are still on
    /// their way, and tells of no other way to wait for them.
    fn read_ahead(&self, range: Range<u64>) -> io::Result<()> {
        let mut buffer = vec![0; usize::try_from(AHEAD_BUFFER_BYTES).expect("small")];
        let mut at = range.start;
        while at < range.end {
            let most = usize::try_from((range.end - at).min(AHEAD_BUFFER_BYTES)).expect("small");
            match self.read_at(&mut buffer[..most], at) {
                Ok(0) => break,
                Ok(bytes) => at += u64::try_from(bytes).expect("a length"),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Start writing a range of bytes to the medium without waiting for it, so that the next sync has less to
    /// do. Nothing is durable by it. An error is a write error, and may be the only report of it: if there is
    /// no space for bytes that waited in the cache, ext4 drops them, and the next sync does not know of them.
    fn start_writing(&self, range: Range<u64>) -> io::Result<()>;

    /// The operating system's file, if bytes may be sent straight from its page cache.
    fn as_file(&self) -> Option<&File>;
}

/// Like [`write_full`], for bytes that are synced next: the medium writes one part while the next is still
/// being copied. The parts end at multiples of their length in the file, so that the page cache can hold each
/// in one piece, wherever the buffers begin.
pub(crate) fn write_and_start(
    file: &dyn DiskFile,
    buffers: &[&[u8]],
    mut offset: u64,
    part_bytes: usize,
) -> io::Result<()> {
    let mut part = Vec::with_capacity(buffers.len());
    let mut bytes = 0;
    let mut room = part_bytes - usize::try_from(offset).unwrap_or(0) % part_bytes;
    for &buffer in buffers {
        let mut rest = buffer;
        while bytes + rest.len() > room {
            let (head, tail) = rest.split_at(room - bytes);
            part.push(head);
            write_full(file, &part, offset)?;
            let begin = offset;
            offset += u64::try_from(room).expect("memory");
            file.start_writing(begin..offset)?;
            (room, rest, bytes) = (part_bytes, tail, 0);
            part.clear();
        }
        bytes += rest.len();
        part.push(rest);
    }
    write_full(file, &part, offset)
}

/// Turns an error of this kind into success: the file to remove is gone, or the directory to make exists.
pub(crate) fn tolerate(kind: io::ErrorKind, done: io::Result<()>) -> io::Result<()> {
    done.or_else(|error| if error.kind() == kind { Ok(()) } else { Err(error) })
}

/// All bytes of a file.
pub(crate) const WHOLE: Range<u64> = 0..u64::MAX;

/// Fill `to` from `offset`, up to the file's end; returns the number of bytes read.
pub(crate) fn read_full(file: &dyn DiskFile, mut to: &mut [u8], mut offset: u64) -> io::Result<usize> {
    let mut total = 0;
    while !to.is_empty() {
        match file.read_at(to, offset) {
            Ok(0) => break,
            Ok(bytes) => {
                total += bytes;
                offset += u64::try_from(bytes).expect("a length");
                to = &mut to[bytes..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

/// The result of `read`. If it fails it runs once more, from the medium, as one bad read proves nothing.
pub(crate) fn twice<T, W, E>(
    file: &dyn DiskFile,
    read: impl Fn() -> Result<Result<T, W>, E>,
) -> Result<Result<T, W>, E> {
    let first = read()?;
    if first.is_ok() {
        return Ok(first);
    }
    file.drop_cache(WHOLE);
    read()
}

/// Write all of `buffers` from `offset` on.
pub(crate) fn write_full(file: &dyn DiskFile, buffers: &[&[u8]], mut offset: u64) -> io::Result<()> {
    for chunk in buffers.chunks(VECTORS_MAX) {
        let mut vectors: Vec<IoSlice<'_>> = chunk.iter().map(|bytes| IoSlice::new(bytes)).collect();
        let mut rest = &mut vectors[..];
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match file.write_at(rest, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    offset += u64::try_from(bytes).expect("a length");
                    IoSlice::advance_slices(&mut rest, bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
