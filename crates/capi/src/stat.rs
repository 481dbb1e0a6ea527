//! What is known of a file, directory or other object.

use braid_wire::control::{EntryKind, FileAttributes};

/// Facts about a file, directory or other object. Fields that later versions add take the place of
/// `reserved`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Stat {
    /// Its number, which stays when its name changes.
    pub(crate) number: u64,
    /// Size in bytes, as of the last braid_sync or braid_close of those who write it.
    pub(crate) size: u64,
    /// Kind and permission bits, as in `st_mode`: S_ISDIR and so on apply.
    pub(crate) mode: u32,
    /// Number of names.
    pub(crate) links: u32,
    /// User id of the owner.
    pub(crate) uid: u32,
    /// Group id of the owner.
    pub(crate) gid: u32,
    /// Time of the last read, as far as it was reported, in nanoseconds since 1970, as all times here.
    pub(crate) accessed_ns: i64,
    /// Time of the last change of its bytes.
    pub(crate) modified_ns: i64,
    /// Time of the last change of anything about it.
    pub(crate) changed_ns: i64,
    /// Time of creation.
    pub(crate) created_ns: i64,
    /// Zeros, for later versions.
    pub(crate) reserved: [u64; 4],
}

impl Stat {
    pub(crate) fn of(number: u64, attributes: &FileAttributes) -> Stat {
        Stat {
            number,
            size: attributes.size,
            mode: kind(attributes.kind) | attributes.mode,
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            accessed_ns: attributes.accessed_ns,
            modified_ns: attributes.modified_ns,
            changed_ns: attributes.changed_ns,
            created_ns: attributes.created_ns,
            reserved: [0; 4],
        }
    }
}

fn kind(kind: EntryKind) -> u32 {
    match kind {
        EntryKind::File => libc::S_IFREG,
        EntryKind::Directory => libc::S_IFDIR,
        EntryKind::Symlink => libc::S_IFLNK,
        EntryKind::Fifo => libc::S_IFIFO,
        EntryKind::Socket => libc::S_IFSOCK,
        EntryKind::CharDevice => libc::S_IFCHR,
        EntryKind::BlockDevice => libc::S_IFBLK,
    }
}
