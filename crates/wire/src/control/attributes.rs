//! The attributes of everything that has a name in the file system: kind, permissions, owner, times,
//! extended attributes.
//!
//! Braid stores permissions and owners, and enforces neither: a client that has the token may do
//! everything. On a mount, the kernel enforces them.

use super::names::{EntryKind, NamePlace};

/// Maximum length of the name of an extended attribute, in bytes (Linux: XATTR_NAME_MAX).
pub const XATTR_NAME_BYTES_MAX: usize = 255;

/// Maximum length of an extended attribute's value, and of all names and values of one file together, in
/// bytes (Linux: XATTR_SIZE_MAX).
pub const XATTR_BYTES_MAX: usize = 64 << 10;

/// Maximum length of a symbolic link's target, in bytes (Linux: PATH_MAX, without its NUL).
pub const TARGET_BYTES_MAX: usize = 4095;

/// Maximum number of hard links to a file.
pub const LINKS_MAX: u32 = 65_000;

record! {
    /// The attributes of a file, directory or anything else that has a name. Times are nanoseconds since
    /// 1970.
    pub struct FileAttributes {
        /// The kind of entry.
        kind: EntryKind,
        /// Permission bits, at most [`MODE_MAX`](super::MODE_MAX).
        mode: u32,
        /// User id of the owner.
        uid: u32,
        /// Group id of the owner.
        gid: u32,
        /// Number of names that a file has; for a directory 2, and one more for each directory in it.
        links: u32,
        /// Size in bytes: of a file, as of the last flush or close; of a symbolic link, the length of its
        /// target; else 0.
        size: u64,
        /// Number of a device node, as Linux encodes it; else 0.
        device: u32,
        /// True if there are extended attributes.
        has_xattrs: bool,
        /// Time of the last read, as far as clients have reported it.
        accessed_ns: i64,
        /// Time of the last change of the bytes or entries, or the time that a client set.
        modified_ns: i64,
        /// Time of the last change of anything about the file.
        changed_ns: i64,
        /// Time of creation.
        created_ns: i64,
        /// True for a file of an encrypted volume: its size is that of its sealed bytes, as drives hold them.
        sealed: bool,
    }
}

impl Copy for FileAttributes {}

record! {
    /// The owner and permissions of a new file or directory.
    pub struct NewAttributes {
        /// Permission bits, at most [`MODE_MAX`](super::MODE_MAX).
        mode: u32,
        /// User id of the owner.
        uid: u32,
        /// Group id of the owner. If the parent directory has the set-group-ID bit, the directory's group
        /// is used instead.
        gid: u32,
    }
}

impl Copy for NewAttributes {}

record! {
    /// Changes to attributes; those that are absent keep their values. The manager sets the time of the
    /// change itself.
    pub struct AttributeChanges {
        /// Permission bits, at most [`MODE_MAX`](super::MODE_MAX).
        mode: Option<u32>,
        /// User id of the owner.
        uid: Option<u32>,
        /// Group id of the owner.
        gid: Option<u32>,
        /// Time of the last read, in nanoseconds since 1970.
        accessed_ns: Option<i64>,
        /// Time of the last change of the bytes, in nanoseconds since 1970.
        modified_ns: Option<i64>,
    }
}

impl Copy for AttributeChanges {}

impl AttributeChanges {
    /// An empty set of changes.
    pub const NONE: AttributeChanges =
        AttributeChanges { mode: None, uid: None, gid: None, accessed_ns: None, modified_ns: None };
}

impl Default for AttributeChanges {
    fn default() -> AttributeChanges {
        AttributeChanges::NONE
    }
}

record! {
    /// Changes attributes. Durable when answered.
    pub struct SetAttributes {
        /// The place of the object; for a symbolic link, the attributes of the link itself are changed.
        at: NamePlace,
        /// The changes to make.
        changes: AttributeChanges,
    }
}

record! {
    /// Makes an object that has no bytes on drives: a symbolic link, a fifo, a socket or a device node.
    pub struct MakeNode {
        /// The place of the new object.
        at: NamePlace,
        /// The kind of the new object; neither file nor directory.
        kind: EntryKind,
        /// The owner and permissions.
        new: NewAttributes,
        /// Number of a device node, as Linux encodes it; else 0.
        device: u32,
        /// Target of a symbolic link: 1 to [`TARGET_BYTES_MAX`] bytes without NUL; else empty.
        target: Vec<u8>,
    }
}

record! {
    /// Gives an object a second name (a hard link). Directories can have only one name.
    pub struct HardLink {
        /// The existing object.
        from: NamePlace,
        /// The new name, in the same volume.
        to: NamePlace,
    }
}

choice! {
    /// The state that a [`SetXattr`] expects to find, and whether it removes the attribute.
    pub enum XattrHow {
        /// Nothing is expected: the attribute is set in any case.
        Any = 0,
        /// There must be no attribute of this name: else [`Reason::Exists`](crate::Reason::Exists).
        Create = 1,
        /// There must be an attribute of this name: else [`Reason::NoXattr`](crate::Reason::NoXattr).
        Replace = 2,
        /// There must be an attribute of this name, and it is removed.
        Remove = 3,
    }
}

record! {
    /// Sets or removes an extended attribute.
    pub struct SetXattr {
        /// The place of the object.
        at: NamePlace,
        /// The attribute's name: 1 to [`XATTR_NAME_BYTES_MAX`] bytes without NUL.
        name: Vec<u8>,
        /// The new value; empty if the attribute is removed.
        value: Vec<u8>,
        /// The expectation, and whether the attribute is set or removed.
        how: XattrHow,
    }
}

record! {
    /// Asks for all extended attributes of an object.
    pub struct Xattrs {
        /// The place of the object.
        at: NamePlace,
    }
}

record! {
    /// An extended attribute.
    pub struct Xattr {
        /// The attribute's name.
        name: Vec<u8>,
        /// The attribute's value.
        value: Vec<u8>,
    }
}

record! {
    /// The answer to [`Xattrs`].
    pub struct XattrsReply {
        /// All extended attributes, by name: at most [`XATTR_BYTES_MAX`] bytes of names and values.
        xattrs: Vec<Xattr>,
    }
}
