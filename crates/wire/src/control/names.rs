//! Volumes, directories and names.

use braid_layout::{FileId, VolumeId, version::Lease};

use super::attributes::{AttributeChanges, FileAttributes, NewAttributes};
use super::file::{Backing, Ended};
use super::shape::ShapeSpec;

/// Longest name in a directory, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Longest path, in bytes.
pub const PATH_BYTES_MAX: usize = 4096;

/// Longest name of a volume, drive, host or rack, in bytes.
pub const LABEL_BYTES_MAX: usize = 255;

/// The permission bits of UNIX: what a file's mode may have.
pub const MODE_MAX: u32 = 0o7777;

choice! {
    /// What a name stands for.
    pub enum EntryKind {
        /// A file.
        File = 1,
        /// A directory.
        Directory = 2,
        /// A symbolic link.
        Symlink = 3,
        /// A fifo.
        Fifo = 4,
        /// A socket.
        Socket = 5,
        /// A character device.
        CharDevice = 6,
        /// A block device.
        BlockDevice = 7,
    }
}

record! {
    /// Where something is, or is to be: the names that lead there from a directory.
    pub struct Place {
        /// The volume's name; may be empty if `from` is given.
        volume: String,
        /// Number of the directory from which the path leads, or of the file itself; 0: the volume's root.
        from: FileId,
        /// Names joined by `/`; empty: `from` itself.
        path: Vec<u8>,
    }
}

impl Entry {
    /// What it is.
    pub fn kind(&self) -> EntryKind {
        self.attributes.kind
    }

    /// The file's size; of what is no file that of its attributes.
    pub fn size(&self) -> u64 {
        self.attributes.size
    }
}

impl Place {
    /// A path from a volume's root.
    pub fn of(volume: impl Into<String>, path: impl Into<Vec<u8>>) -> Place {
        Place { volume: volume.into(), from: FileId(0), path: path.into() }
    }

    /// A name in the directory of this number.
    pub fn under(directory: FileId, name: impl Into<Vec<u8>>) -> Place {
        Place { volume: String::new(), from: directory, path: name.into() }
    }

    /// The file or directory of this number.
    pub fn number(file: FileId) -> Place {
        Place::under(file, Vec::new())
    }
}

record! {
    /// A volume.
    pub struct VolumeRow {
        /// Its number; also the number of its partition on each drive.
        volume: VolumeId,
        /// Its name.
        name: String,
        /// Default for new files.
        shape: ShapeSpec,
        /// Bytes its files may have in all; 0: no quota.
        quota_bytes: u64,
        /// Files in it.
        files: u64,
        /// Sum of the files' sizes.
        file_bytes: u64,
        /// Time of creation.
        created_ms: u64,
    }
}

record! {
    /// A directory entry.
    pub struct Entry {
        /// Its name.
        name: Vec<u8>,
        /// Its number.
        file: FileId,
        /// What is known of it.
        attributes: FileAttributes,
    }
}

record! {
    /// Creates a volume. Refused with [`Reason::Exists`](crate::Reason::Exists) if there is one of that name.
    pub struct VolumeCreate {
        /// Its name: 1 to 255 bytes without `/` and NUL.
        name: String,
        /// Default for new files.
        shape: ShapeSpec,
        /// Bytes its files may have in all; 0: no quota.
        quota_bytes: u64,
    }
}

record! {
    /// Removes an empty volume.
    pub struct VolumeRemove {
        /// Its name.
        name: String,
    }
}

record! {
    /// Lists volumes.
    pub struct VolumeList {}
}

record! {
    /// Volumes, by name.
    pub struct VolumeListReply {
        /// The volumes.
        volumes: Vec<VolumeRow>,
    }
}

record! {
    /// What is there.
    pub struct Lookup {
        /// Where.
        at: Place,
        /// If that is a symbolic link: what it leads to.
        follow: bool,
        /// The asker watches what is found, and the directory of the path's last name, from now on: see
        /// [`Watch`](super::Watch).
        watch: bool,
    }
}

record! {
    /// Entries of a directory in byte order of their names.
    pub struct ReadDirectory {
        /// The directory.
        at: Place,
        /// Only those after this name; empty: from the first.
        after: Vec<u8>,
        /// At most this many; the manager may return fewer.
        limit: u32,
        /// The asker watches the directory and its entries from now on: see [`Watch`](super::Watch).
        watch: bool,
    }
}

record! {
    /// Entries.
    pub struct DirectoryReply {
        /// In byte order of their names.
        entries: Vec<Entry>,
        /// There are more after the last.
        more: bool,
    }
}

record! {
    /// Makes a directory.
    pub struct MakeDirectory {
        /// The directory.
        at: Place,
        /// Whose it is.
        new: NewAttributes,
        /// Make the directories above it too; it is no error if it exists.
        parents: bool,
    }
}

choice! {
    /// What a [`Rename`] does with what has the new name already.
    pub enum RenameHow {
        /// It is replaced: what is no directory by what is none, an empty directory by a directory.
        Replace = 0,
        /// The request is refused with [`Reason::Exists`](crate::Reason::Exists).
        NoReplace = 1,
        /// It gets the old name; both must be there.
        Exchange = 2,
    }
}

record! {
    /// Renames, atomically. Two names of one file: nothing is done.
    pub struct Rename {
        /// What to rename.
        from: Place,
        /// Its new place, in the same volume.
        to: Place,
        /// What happens to what has that name.
        how: RenameHow,
        /// The asker has that open, as with [`Unlink`].
        keep: bool,
    }
}

choice! {
    /// What an [`Unlink`] may remove.
    pub enum UnlinkOnly {
        /// Anything.
        Any = 0,
        /// A directory: else [`Reason::NotDirectory`](crate::Reason::NotDirectory).
        Directory = 1,
        /// Anything else: a directory is [`Reason::IsDirectory`](crate::Reason::IsDirectory).
        NotDirectory = 2,
    }
}

record! {
    /// Removes a name, or an empty directory.
    pub struct Unlink {
        /// What to remove.
        at: Place,
        /// What it may be.
        only: UnlinkOnly,
        /// The asker has it open, and will say when it has no more ([`Watch::closed`](super::Watch)).
        keep: bool,
    }
}

record! {
    /// What somebody has seen under a name. While it holds, nothing of the file has changed.
    pub struct Seen {
        /// The file.
        file: FileId,
        /// When anything of it changed last, in nanoseconds since 1970. It rises with every change.
        changed_ns: i64,
    }
}

impl Copy for Seen {}

record! {
    /// Gives an open unnamed file a name, atomically, with its size.
    pub struct Link {
        /// The file.
        file: FileId,
        /// The lease it is open under.
        lease: Lease,
        /// Its holder.
        holder: u64,
        /// The name.
        at: Place,
        /// Its size.
        size: u64,
        /// Replace a file of that name; else such a file is [`Reason::Exists`](crate::Reason::Exists).
        replace: bool,
        /// What the name has must be this: else [`Reason::Exists`](crate::Reason::Exists), or
        /// [`Reason::NotFound`](crate::Reason::NotFound) where there is nothing.
        over: Option<Seen>,
        /// Rises with every `Link` or `Commit` under the lease, from 1; a repeated request keeps its number.
        /// If a request with this number or a higher one was carried out already, the answer is Done and
        /// nothing changes.
        order: u64,
        /// FileAttributes that it gets besides; its time of modification, if absent, is that of this request.
        changes: AttributeChanges,
        /// The lease then ends for this holder, as with a [`Release`](super::Release); absent: it goes on. If
        /// the name is refused, so is the end.
        ends: Option<Ended>,
        /// What is known of the writes.
        backing: Backing,
    }
}
