//! Volumes, directories and names.

use braid_layout::{FileId, HolderId, VolumeId, version::Lease};

use super::attributes::{AttributeChanges, FileAttributes, NewAttributes};
use super::file::{Backing, Ended};
use super::shape::ShapeSpec;
use crate::capability::Protection;
use crate::codec::Added;

/// Maximum length of a name in a directory, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Maximum length of a path, in bytes.
pub const PATH_BYTES_MAX: usize = 4096;

/// Maximum length of the name of a volume, drive, host or rack, in bytes.
pub const LABEL_BYTES_MAX: usize = 255;

/// Maximum length of a volume's wrapped data key, in bytes.
pub const WRAPPED_BYTES_MAX: usize = 1024;

/// Maximum length of the name of the key that a volume's data key is wrapped by, in bytes.
pub const KEY_ID_BYTES_MAX: usize = 128;

/// The permission bits of UNIX, which are the bits that a file's mode may have.
pub const MODE_MAX: u32 = 0o7777;

choice! {
    /// The kind of object that a name stands for.
    pub enum EntryKind {
        /// A regular file, whose bytes are on drives.
        File = 1,
        /// A directory, which has entries instead of bytes.
        Directory = 2,
        /// A symbolic link, which has a target path.
        Symlink = 3,
        /// A fifo (named pipe).
        Fifo = 4,
        /// A UNIX domain socket.
        Socket = 5,
        /// A node of a character device.
        CharDevice = 6,
        /// A node of a block device.
        BlockDevice = 7,
    }
}

record! {
    /// The place of an existing or future object: the names that lead to it from a directory.
    pub struct NamePlace {
        /// The volume's name; may be empty if `from` is given. With `@` and a snapshot's name after it: the
        /// first directory from the root on that has a snapshot of this name, and what is below it, are as
        /// they are there.
        volume: String,
        /// Number of the directory from which the path leads, or of the file itself; 0: the root of the
        /// volume.
        from: FileId,
        /// Names joined by `/`; empty: `from` itself.
        path: Vec<u8>,
        /// Number of the volume's snapshot in which `from` is; 0: in none.
        snapshot: u32,
    }
}

impl Entry {
    /// The kind of the entry.
    pub fn kind(&self) -> EntryKind {
        self.attributes.kind
    }

    /// The file's size in bytes; for other kinds the size in their attributes.
    pub fn size(&self) -> u64 {
        self.attributes.size
    }
}

impl NamePlace {
    /// The place at a path from the root of a volume.
    pub fn of(volume: impl Into<String>, path: impl Into<Vec<u8>>) -> NamePlace {
        NamePlace { volume: volume.into(), from: FileId(0), path: path.into(), snapshot: 0 }
    }

    /// The place of a name in the directory with this number.
    pub fn under(directory: FileId, name: impl Into<Vec<u8>>) -> NamePlace {
        NamePlace { volume: String::new(), from: directory, path: name.into(), snapshot: 0 }
    }

    /// The place of the file or directory with this number.
    pub fn number(file: FileId) -> NamePlace {
        NamePlace::under(file, Vec::new())
    }
}

record! {
    /// A volume, as in a list of volumes.
    pub struct VolumeRow {
        /// The volume's number, which is also the number of its partition on each drive.
        volume: VolumeId,
        /// The volume's name.
        name: String,
        /// Default shape for new files.
        shape: ShapeSpec,
        /// Maximum sum of the sizes of the volume's files, in bytes; 0: no quota.
        quota_bytes: u64,
        /// Number of files in the volume.
        files: u64,
        /// Sum of the sizes of the files, in bytes.
        file_bytes: u64,
        /// Time of creation, in milliseconds of manager time.
        created_ms: u64,
        /// Number of files that are kept for snapshots alone.
        past_files: u64,
        /// Sum of their sizes, in bytes.
        past_bytes: u64,
        /// The protection of its data between clients and drives.
        protection: Protection,
        /// The key of an encrypted volume, wrapped; absent: it is not encrypted.
        key: Option<VolumeKey>,
    }
}

record! {
    /// The data key of an encrypted volume, as the manager keeps it: wrapped by a key that it never sees.
    pub struct VolumeKey {
        /// Name of the key that the data key is wrapped by, for people: 1 to [`KEY_ID_BYTES_MAX`] bytes.
        id: String,
        /// The data key, wrapped: 1 to [`WRAPPED_BYTES_MAX`] bytes.
        wrapped: Vec<u8>,
        /// Value that follows from the data key alone and does not tell it: whoever unwraps the key compares.
        check: [u8; 16],
    }
}

record! {
    /// A directory entry.
    pub struct Entry {
        /// Name of the entry in its directory.
        name: Vec<u8>,
        /// Number of the file or directory.
        file: FileId,
        /// The attributes of the file or directory.
        attributes: FileAttributes,
    }
}

record! {
    /// Creates a volume. Refused with [`Reason::Exists`](crate::Reason::Exists) if a volume of that name
    /// exists.
    pub struct VolumeCreate {
        /// The volume's name: 1 to 255 bytes without `/` and NUL.
        name: String,
        /// Default shape for new files.
        shape: ShapeSpec,
        /// Maximum sum of the sizes of the volume's files, in bytes; 0: no quota.
        quota_bytes: u64,
        /// The protection of its data between clients and drives: `Integrity` or `Privacy`.
        protection: Protection,
        /// The wrapped data key; absent: the volume is not encrypted.
        key: Option<VolumeKey>,
    }
}

choice! {
    /// The methods that drives run on a volume's files, for those who may read them.
    pub enum Methods {
        /// No methods at all.
        None = 0,
        /// Those that drives have.
        Builtin = 1,
        /// These, and modules of users.
        Wasm = 2,
    }
}

record! {
    /// Sets the methods that drives run on a volume's files, for those who open them from now on.
    pub struct VolumeMethods {
        /// The volume's name.
        name: String,
        /// The methods that it gets.
        methods: Methods,
    }
}

record! {
    /// Sets the protection of a volume's data between clients and drives, from now on. Files that are open
    /// keep what they have until their capabilities end.
    pub struct VolumeProtect {
        /// The volume's name.
        name: String,
        /// The protection: `Integrity` or `Privacy`.
        protection: Protection,
    }
}

record! {
    /// Replaces the wrapped data key of an encrypted volume by the same data key, wrapped anew. Refused with
    /// [`Reason::NotAllowed`](crate::Reason::NotAllowed) if it is another data key, and with
    /// [`Reason::Outdated`](crate::Reason::Outdated) if the wrapped key is not `was` any more.
    pub struct VolumeRekey {
        /// The volume's name.
        name: String,
        /// The wrapped data key as it was.
        was: Vec<u8>,
        /// The data key, wrapped anew.
        key: VolumeKey,
    }
}

record! {
    /// Removes an empty volume.
    pub struct VolumeRemove {
        /// The volume's name.
        name: String,
    }
}

record! {
    /// Sets a quota: of a volume, of a directory with all below it, or of a user in a volume. What is there
    /// counts, also if it is more: then nothing can grow.
    pub struct QuotaSet {
        /// The directory; a volume's root stands for the volume.
        at: NamePlace,
        /// The user, for a user's quota in the volume.
        user: Option<u32>,
        /// Maximum number of bytes; 0: any.
        bytes: u64,
        /// Maximum number of files; 0: any.
        files: u64,
    }
}

record! {
    /// Ends a quota.
    pub struct QuotaRemove {
        /// The directory; a volume's root stands for the volume.
        at: NamePlace,
        /// The user, for a user's quota in the volume.
        user: Option<u32>,
    }
}

record! {
    /// Lists the quotas of volumes, directories and users.
    pub struct QuotaList {
        /// The volume's name; empty: of all volumes.
        volume: String,
    }
}

record! {
    /// A quota, as in a list.
    pub struct QuotaRow {
        /// URL of the volume or directory.
        place: String,
        /// The user, for a user's quota.
        user: Option<u32>,
        /// Maximum number of bytes; 0: any.
        limit_bytes: u64,
        /// Maximum number of files; 0: any.
        limit_files: u64,
        /// Bytes that count: of each file its size, or what its writers were given if that is more.
        bytes: u64,
        /// Files that count.
        files: u64,
    }
}

record! {
    /// The answer to a list of quotas.
    pub struct QuotaListReply {
        /// The quotas, volume by volume.
        quotas: Vec<QuotaRow>,
    }
}

record! {
    /// Lists all volumes.
    pub struct VolumeList {}
}

record! {
    /// The answer to [`VolumeList`].
    pub struct VolumeListReply {
        /// The volumes, in the order of their names.
        volumes: Vec<VolumeRow>,
        /// The methods that drives run on the files of these volumes. On those of others they run none. Since
        /// version 4.
        methods: Added<Vec<MethodsRow>>,
    }
}

record! {
    /// The methods that drives run on the files of a volume.
    pub struct MethodsRow {
        /// The volume's number.
        volume: VolumeId,
        /// The methods that it gets.
        methods: Methods,
    }
}

impl VolumeListReply {
    /// The methods that drives run on the files of a volume.
    pub fn methods_of(&self, volume: VolumeId) -> Methods {
        self.methods.0.iter().find(|row| row.volume == volume).map_or(Methods::None, |row| row.methods)
    }
}

record! {
    /// Asks for the object at a place.
    pub struct Lookup {
        /// The place to look up.
        at: NamePlace,
        /// True to follow a symbolic link at the end of the path to the object that it leads to.
        follow: bool,
        /// True if the asker watches the object found, and the directory of the path's last name, from now
        /// on: see [`Watch`](super::Watch).
        watch: bool,
    }
}

record! {
    /// Asks for entries of a directory in byte order of their names.
    pub struct ReadDirectory {
        /// The directory to list.
        at: NamePlace,
        /// The name after which the list begins; empty: from the first entry.
        after: Vec<u8>,
        /// Maximum number of entries; the manager may return fewer.
        limit: u32,
        /// True if the asker watches the directory and its entries from now on: see
        /// [`Watch`](super::Watch).
        watch: bool,
    }
}

record! {
    /// The answer to [`ReadDirectory`].
    pub struct DirectoryReply {
        /// Some of the directory's entries, in byte order of their names.
        entries: Vec<Entry>,
        /// True if there are more entries after the last.
        more: bool,
    }
}

record! {
    /// Makes a directory.
    pub struct MakeDirectory {
        /// The place of the new directory.
        at: NamePlace,
        /// The owner and permissions.
        new: NewAttributes,
        /// True to make missing directories above it too; then it is no error if the directory exists.
        parents: bool,
    }
}

choice! {
    /// The treatment of an object that already has the new name of a [`Rename`].
    pub enum RenameHow {
        /// The object is replaced. Only an empty directory can be replaced by a directory, and only a
        /// non-directory by a non-directory.
        Replace = 0,
        /// The request is refused with [`Reason::Exists`](crate::Reason::Exists).
        NoReplace = 1,
        /// The object gets the old name; both names must exist.
        Exchange = 2,
    }
}

record! {
    /// Renames an object, atomically. If both are names of one file, nothing is done.
    pub struct Rename {
        /// The object to rename.
        from: NamePlace,
        /// The new place, in the same volume.
        to: NamePlace,
        /// The treatment of an object that already has the new name.
        how: RenameHow,
        /// True if the asker has that object open, as with [`Unlink`].
        keep: bool,
    }
}

choice! {
    /// The kinds of object that an [`Unlink`] may remove.
    pub enum UnlinkOnly {
        /// Objects of any kind.
        Any = 0,
        /// A directory only: else [`Reason::NotDirectory`](crate::Reason::NotDirectory).
        Directory = 1,
        /// Anything but a directory: a directory is refused with
        /// [`Reason::IsDirectory`](crate::Reason::IsDirectory).
        NotDirectory = 2,
    }
}

record! {
    /// Removes a name, or an empty directory.
    pub struct Unlink {
        /// The place of the object to remove.
        at: NamePlace,
        /// The kinds of object that may be removed.
        only: UnlinkOnly,
        /// True if the asker has the object open, and will report when it is closed
        /// ([`Watch::closed`](super::Watch)).
        keep: bool,
    }
}

record! {
    /// The state of a file as an asker has seen it under a name. While it holds, nothing about the file has
    /// changed.
    pub struct Seen {
        /// The file's number.
        file: FileId,
        /// Time of the last change of anything about the file, in nanoseconds since 1970. It rises with
        /// every change.
        changed_ns: i64,
    }
}

impl Copy for Seen {}

record! {
    /// Gives an open unnamed file a name, atomically, with its size.
    pub struct Link {
        /// The file to name.
        file: FileId,
        /// The lease under which the file is open.
        lease: Lease,
        /// The holder of the lease.
        holder: HolderId,
        /// The new name.
        at: NamePlace,
        /// The file's size, in bytes.
        size: u64,
        /// True to replace a file of that name; else such a file is refused with
        /// [`Reason::Exists`](crate::Reason::Exists).
        replace: bool,
        /// The file that must have the name now, unchanged: else the request is refused with
        /// [`Reason::Exists`](crate::Reason::Exists), or with [`Reason::NotFound`](crate::Reason::NotFound)
        /// if nothing has the name. Absent: nothing is expected.
        over: Option<Seen>,
        /// Sequence number of `Link` and `Commit` requests under the lease, rising from 1; a repeated
        /// request keeps its number. If a request with this number or a higher one was carried out already,
        /// the answer is Done and nothing changes.
        order: u64,
        /// Attributes that the file gets as well. If the time of modification is absent, it is that of this
        /// request.
        changes: AttributeChanges,
        /// The end of the lease for this holder, as with a [`Release`](super::Release); absent: the lease
        /// goes on. If the name is refused, the lease does not end either.
        ends: Option<Ended>,
        /// The writer's knowledge of its writes.
        backing: Backing,
    }
}
