//! What the kernel is told of a file or directory.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braid_layout::FileId;
use braid_wire::control::{EntryKind, FileAttributes, MODE_MAX};
use fuser::{FileAttr, FileType, INodeNo};

/// Bytes that programs are told to read and write at a time.
const BLOCK_BYTES: u32 = 1 << 20;
/// The unit of a file's `blocks`, whatever the file system's own is.
const COUNTED_BLOCK_BYTES: u64 = 512;
/// The kind of an entry.
pub(crate) fn file_type(kind: EntryKind) -> FileType {
    match kind {
        EntryKind::File => FileType::RegularFile,
        EntryKind::Directory => FileType::Directory,
        EntryKind::Symlink => FileType::Symlink,
        EntryKind::Fifo => FileType::NamedPipe,
        EntryKind::Socket => FileType::Socket,
        EntryKind::CharDevice => FileType::CharDevice,
        EntryKind::BlockDevice => FileType::BlockDevice,
    }
}

/// The number by which the kernel knows it. `root`: the volume's root.
pub(crate) fn number(file: FileId, root: FileId) -> INodeNo {
    if file == root { INodeNo::ROOT } else { INodeNo(file.0) }
}

/// What is known of a file, as the kernel wants it.
pub(crate) fn of(file: FileId, of: &FileAttributes, root: FileId) -> FileAttr {
    FileAttr {
        ino: number(file, root),
        size: of.size,
        blocks: of.size.div_ceil(COUNTED_BLOCK_BYTES),
        atime: time(of.accessed_ns),
        mtime: time(of.modified_ns),
        ctime: time(of.changed_ns),
        crtime: time(of.created_ns),
        kind: file_type(of.kind),
        perm: u16::try_from(of.mode & MODE_MAX).unwrap_or_default(),
        nlink: of.links,
        uid: of.uid,
        gid: of.gid,
        rdev: of.device,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// A time from nanoseconds since 1970.
fn time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// Nanoseconds since 1970 of a time.
pub(crate) fn nanoseconds(time: SystemTime) -> i64 {
    let whole = |distance: Duration| i64::try_from(distance.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => whole(since),
        Err(before) => -whole(before.duration()),
    }
}
