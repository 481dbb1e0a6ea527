//! What a file system keeps of everything that has a name: kind, permissions, owner, times, extended
//! attributes.
//!
//! Braid stores permissions and owners, and enforces neither: whoever has the token may do all. A mount has
//! its kernel enforce them.

use super::names::{EntryKind, Place};

/// Longest name of an extended attribute, in bytes (Linux: XATTR_NAME_MAX).
pub const XATTR_NAME_BYTES_MAX: usize = 255;

/// Most bytes of an extended attribute's value, and of all names and values of one file (Linux:
/// XATTR_SIZE_MAX).
pub const XATTR_BYTES_MAX: usize = 64 << 10;

/// Longest target of a symbolic link, in bytes (Linux: PATH_MAX, without its NUL).
pub const TARGET_BYTES_MAX: usize = 4095;

/// Most links that a file may have.
pub const LINKS_MAX: u32 = 65_000;

record! {
    /// What is known of a file, directory or anything else that has a name. Times are nanoseconds since 1970.
    pub struct FileAttributes {
        /// What it is.
        kind: EntryKind,
        /// Its permission bits, at most [`MODE_MAX`](super::MODE_MAX).
        mode: u32,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Names that it has; of a directory 2, and one for each directory in it.
        links: u32,
        /// Bytes: a file's as of the last flush or close, a symbolic link's are its target's; else 0.
        size: u64,
        /// A device node's number, as Linux encodes it; else 0.
        device: u32,
        /// It has extended attributes.
        has_xattrs: bool,
        /// When it was read last, as far as somebody has said.
        accessed_ns: i64,
        /// When its bytes or entries changed last, or what was set.
        modified_ns: i64,
        /// When anything of it changed last.
        changed_ns: i64,
        /// When it was made.
        created_ns: i64,
    }
}

impl Copy for FileAttributes {}

record! {
    /// Whose a new file or directory is, and its permissions.
    pub struct NewAttributes {
        /// Permission bits, at most [`MODE_MAX`](super::MODE_MAX).
        mode: u32,
        /// Its owner.
        uid: u32,
        /// Its group, unless the directory it is made in has the set-group-ID bit: then the directory's.
        gid: u32,
    }
}

impl Copy for NewAttributes {}

record! {
    /// What is to change; what is absent stays as it is. The time of the change itself is the manager's.
    pub struct AttributeChanges {
        /// Permission bits, at most [`MODE_MAX`](super::MODE_MAX).
        mode: Option<u32>,
        /// The owner.
        uid: Option<u32>,
        /// The group.
        gid: Option<u32>,
        /// When it was read last.
        accessed_ns: Option<i64>,
        /// When its bytes changed last.
        modified_ns: Option<i64>,
    }
}

impl Copy for AttributeChanges {}

impl AttributeChanges {
    /// Nothing changes.
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
        /// Of what; a symbolic link's are its own.
        at: Place,
        /// The changes.
        changes: AttributeChanges,
    }
}

record! {
    /// Makes something that has no bytes on drives: a symbolic link, a fifo, a socket or a device node.
    pub struct MakeNode {
        /// Its place.
        at: Place,
        /// What it is; not a file or directory.
        kind: EntryKind,
        /// Whose it is.
        new: NewAttributes,
        /// A device node's number; else 0.
        device: u32,
        /// A symbolic link's target: 1 to [`TARGET_BYTES_MAX`] bytes without NUL; else empty.
        target: Vec<u8>,
    }
}

record! {
    /// Gives something that has a name another one; directories have only one.
    pub struct HardLink {
        /// What.
        from: Place,
        /// The new name, in the same volume.
        to: Place,
    }
}

choice! {
    /// What a [`SetXattr`] expects.
    pub enum XattrHow {
        /// Nothing.
        Any = 0,
        /// There is none of this name: else [`Reason::Exists`](crate::Reason::Exists).
        Create = 1,
        /// There is one: else [`Reason::NoXattr`](crate::Reason::NoXattr).
        Replace = 2,
        /// There is one, and it is removed.
        Remove = 3,
    }
}

record! {
    /// Sets or removes an extended attribute.
    pub struct SetXattr {
        /// Of what.
        at: Place,
        /// Its name: 1 to [`XATTR_NAME_BYTES_MAX`] bytes without NUL.
        name: Vec<u8>,
        /// Its value; empty if it is removed.
        value: Vec<u8>,
        /// What is expected.
        how: XattrHow,
    }
}

record! {
    /// The extended attributes of something.
    pub struct Xattrs {
        /// Of what.
        at: Place,
    }
}

record! {
    /// An extended attribute.
    pub struct Xattr {
        /// Its name.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    }
}

record! {
    /// All extended attributes, by name: at most [`XATTR_BYTES_MAX`] bytes of names and values.
    pub struct XattrsReply {
        /// They.
        xattrs: Vec<Xattr>,
    }
}
