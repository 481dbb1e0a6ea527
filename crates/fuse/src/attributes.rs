//! What the kernel is told of a file or directory.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braid_layout::FileId;
use braid_wire::control::{EntryKind, StatRow};
use fuser::{FileAttr, FileType, INodeNo};

/// Bytes that programs are told to read and write at a time.
const BLOCK_BYTES: u32 = 1 << 20;
/// The unit of a file's `blocks`, whatever the file system's own is.
const COUNTED_BLOCK_BYTES: u64 = 512;
/// Permission bits of a file that was stored without any.
const FILE_MODE: u16 = 0o644;
/// Those of a directory.
const DIRECTORY_MODE: u16 = 0o755;

/// Whose all files are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The kind of an entry.
pub(crate) fn file_type(kind: EntryKind) -> FileType {
    match kind {
        EntryKind::File => FileType::RegularFile,
        EntryKind::Directory => FileType::Directory,
    }
}

/// The number by which the kernel knows it. `root`: the volume's root.
pub(crate) fn number(file: FileId, root: FileId) -> INodeNo {
    if file == root { INodeNo::ROOT } else { INodeNo(file.0) }
}

/// What is known of it.
pub(crate) fn of(row: &StatRow, root: FileId, owner: Owner) -> FileAttr {
    let (modified, created) = (time(row.modified_ms), time(row.created_ms));
    let (mode, nlink) = match row.kind {
        EntryKind::File => (FILE_MODE, 1),
        EntryKind::Directory => (DIRECTORY_MODE, 2),
    };
    FileAttr {
        ino: number(row.file, root),
        size: row.size,
        blocks: row.size.div_ceil(COUNTED_BLOCK_BYTES),
        atime: modified,
        mtime: modified,
        ctime: modified,
        crtime: created,
        kind: file_type(row.kind),
        perm: row.mode.and_then(|mode| u16::try_from(mode).ok()).unwrap_or(mode),
        nlink,
        uid: owner.uid,
        gid: owner.gid,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn time(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}
