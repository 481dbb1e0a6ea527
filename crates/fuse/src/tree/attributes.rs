//! Attributes of files and directories as the kernel is told them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braid_layout::FileId;
use braid_wire::control::{EntryKind, FileAttributes, MODE_MAX};
use fuser::{FileAttr, FileType, INodeNo};

/// Number of bytes that programs are told to read and write at a time.
const BLOCK_BYTES: u32 = 1 << 20;
/// Unit in bytes of a file's `blocks`, whatever the file system's own unit is.
const COUNTED_BLOCK_BYTES: u64 = 512;
const NS_PER_SECOND: i128 = 1_000_000_000;

/// Minimum file size in bytes for which a search for holes is worthwhile.
const HOLES_BYTES: u64 = 64 << 20;

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

/// The number by which the kernel knows a file. `root` is the volume's root.
pub(crate) fn number(file: FileId, root: FileId) -> INodeNo {
    if file == root { INodeNo::ROOT } else { INodeNo(file.0) }
}

/// A file's attributes in the kernel's form.
pub(crate) fn of(file: FileId, of: &FileAttributes, root: FileId) -> FileAttr {
    FileAttr {
        ino: number(file, root),
        size: of.size,
        blocks: blocks(of.size),
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

/// Number of blocks of a file. Only the drives know how many bytes are stored, so holes are counted. But
/// programs that copy look for holes only in a file with fewer blocks than its size says, and then find them.
fn blocks(size: u64) -> u64 {
    if size < HOLES_BYTES { size.div_ceil(COUNTED_BLOCK_BYTES) } else { size / COUNTED_BLOCK_BYTES - 1 }
}

/// A time from nanoseconds since 1970.
fn time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// Nanoseconds since 1970 of a time.
pub(crate) fn nanoseconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => stored(since.as_secs().into(), since.subsec_nanos().into()),
        Err(before) => {
            let before = before.duration();
            stored(-i128::from(before.as_secs()), -i128::from(before.subsec_nanos()))
        }
    }
}

/// Nanoseconds since 1970 of a time that a program has set. The kernel counts the fraction forwards from the
/// whole second, also before 1970; fuser 0.18 subtracts the fraction there, which is undone here.
pub(crate) fn asked_nanoseconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(_) => nanoseconds(time),
        Err(before) => {
            let before = before.duration();
            stored(-i128::from(before.as_secs()), before.subsec_nanos().into())
        }
    }
}

/// Nanoseconds since 1970 as they can be stored: from 1677-09-21 to 2262-04-11. A time beyond that becomes
/// the nearest bound, as in other file systems.
fn stored(seconds: i128, nanoseconds: i128) -> i64 {
    let ns = seconds * NS_PER_SECOND + nanoseconds;
    i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time that fuser 0.18 makes of the kernel's seconds and nanoseconds
    /// (`time::system_time_from_time`).
    fn by_fuser(seconds: i64, nanoseconds: u32) -> SystemTime {
        let distance = Duration::new(seconds.unsigned_abs(), nanoseconds);
        if seconds >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
    }

    #[test]
    fn large_files_have_fewer_blocks_than_their_size_says() {
        assert_eq!([0, 1, 513].map(blocks), [0, 1, 2]);
        assert!(blocks(1 << 30) * COUNTED_BLOCK_BYTES < 1 << 30 && blocks(HOLES_BYTES - 1) == 2 << 16);
    }

    #[test]
    fn a_time_that_is_set_is_the_one_that_is_read_also_before_1970() {
        #[track_caller]
        fn check(seconds: i64, nanoseconds: u32, ns: i64) {
            assert_eq!(asked_nanoseconds(by_fuser(seconds, nanoseconds)), ns);
            let told = super::nanoseconds(time(ns));
            assert_eq!(told, ns, "and as the kernel is told");
        }
        check(0, 0, 0);
        check(1, 500_000_000, 1_500_000_000);
        check(-1, 0, -1_000_000_000);
        check(-1, 999_999_999, -1);
        check(-2, 500_000_000, -1_500_000_000);
        check(-86_401, 999_999_999, -86_400_000_000_001);
        check(-14_245_442, 750_000_000, -14_245_441_250_000_000);
        check(9_223_372_036, 854_775_807, i64::MAX);
        check(9_223_372_036, 854_775_808, i64::MAX);
        check(i64::MAX, 999_999_999, i64::MAX);
        check(-9_223_372_037, 145_224_192, i64::MIN);
        check(-9_223_372_037, 145_224_191, i64::MIN);
        check(-67_768_040_609_712_422, 0, i64::MIN);
    }
}
