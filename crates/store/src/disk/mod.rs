//! The disk under a store: files by name in one directory, and what can be asked of them.
//!
//! A trait, because there are several: [`Directory`] is the operating system's, by ordinary calls or by
//! io_uring, through the page cache or past it;
//! [`Memory`](memory::Memory) is in memory and fails as told. Names are relative to the store's directory, with `/` between their parts; the directory itself is the empty name. Everything can be
//! called from any thread.
//!
//! What a disk owes the store is in `docs/format-store.md` ("What the medium is assumed to guarantee"): bytes written are
//! durable after a sync of their file, names after a sync of their directory, and nothing before.

mod ahead;
pub(crate) mod around;
mod direct;
mod directory;
mod mapped;
pub mod memory;
pub mod private;
pub(crate) mod residency;
mod system;
mod uring;
mod window;

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub use directory::{Directory, offered};
pub use residency::is_residency_told;

/// The most buffers of one vectored write (Linux allows 1024).
const VECTORS_MAX: usize = 1024;

/// A directory with a store's files.
pub trait Disk: fmt::Debug + Send + Sync {
    /// A file that is there, for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// A new file, empty; an error if there is one of that name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Give a file another name, in place of the file that has it. Durable when the directory was synced.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Take a file's name away; whoever has the file open can still read it. Durable when the directory was synced.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names in a directory, without its own, in no order.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// Make what was created, renamed and removed in a directory durable.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;

    /// A new directory; an error if there is something of that name.
    fn make_dir(&self, dir: &str) -> io::Result<()>;

    /// How much there is; `None` where no bound is told.
    fn space(&self) -> Option<Space>;

    /// The file that has this name now, and how long it is.
    fn named(&self, name: &str) -> io::Result<Named>;

    /// Where the files are, for messages.
    fn place(&self) -> &Path;

    /// What is used to reach them, for `status`: "plain, buffered".
    fn describe(&self) -> String;
}

/// How the operating system is asked to read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// What measured better: ordinary calls. A ring costs more processor time per call on ext4 and several times as much on
    /// tmpfs, as long as each thread has one call under way (`examples/disk_speed.rs` measures it).
    #[default]
    Auto,
    /// One call for each: `pread`, `pwritev`, `fdatasync`.
    Plain,
    /// By io_uring. A store that is told to is not opened where the kernel has none or a policy forbids it.
    Uring,
}

/// Bytes of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Free for this process.
    pub free: u64,
    /// All of it.
    pub size: u64,
}

/// Which file it is, whatever its name: of two that are there at once, no two are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    /// The file system it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// The file behind a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// Which it is.
    pub identity: FileIdentity,
    /// Its bytes.
    pub bytes: u64,
}

/// An open file of a [`Disk`].
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Read at most `to.len()` bytes; 0 at the file's end.
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Write the beginning of `buffers`, at most 1024 of them; how many bytes were.
    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;

    /// Make bytes and length durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Make bytes, length and everything else about the file durable.
    fn sync_all(&self) -> io::Result<()>;

    /// Bytes of the file.
    fn length(&self) -> io::Result<u64>;

    /// Which file it is.
    fn identity(&self) -> io::Result<FileIdentity>;

    /// Cut the file, or lengthen it with zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Forget what is cached and durable of a range of bytes, so that reads of it come from the medium. Advice: it cannot
    /// fail.
    fn drop_cache(&self, range: Range<u64>);

    /// Whether all of a range of bytes can be read without waiting for the medium, as far as the system tells.
    fn is_cached(&self, range: Range<u64>) -> bool;

    /// Keep nothing in memory that keeps the system from dropping what it has cached.
    fn unmap(&self);

    /// Whether what is written waits in a cache for a sync.
    fn is_buffered(&self) -> bool;

    /// Begin to write a range of bytes to the medium, and do not wait for it: a sync that follows finds less to do. Nothing is
    /// durable by it. An error is one of writing, and the only word of it there may be: where no space can be found for bytes
    /// that waited in the cache, ext4 drops them, and a sync that follows knows nothing of them.
    fn start_writing(&self, range: Range<u64>) -> io::Result<()>;

    /// The operating system's file, where bytes may be sent straight from its page cache.
    fn as_file(&self) -> Option<&File>;
}

/// Like [`write_full`], of what a sync follows: the medium writes the first part while the next is still being copied. The
/// parts end at multiples of their length in the file, so that the page cache can hold each in one piece, whatever begins where.
pub(crate) fn write_and_start(
    file: &dyn DiskFile,
    buffers: &[&[u8]],
    mut offset: u64,
    part_bytes: usize,
) -> io::Result<()> {
    if !file.is_buffered() {
        return write_full(file, buffers, offset);
    }
    let (mut part, mut bytes) = (Vec::with_capacity(buffers.len()), 0);
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

/// All bytes of a file.
pub(crate) const WHOLE: Range<u64> = 0..u64::MAX;

/// Fill `to` from `offset`, as far as the file goes; how many bytes there were.
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

/// What `read` makes of a file's bytes. One bad read proves nothing: then once more, from the medium.
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
