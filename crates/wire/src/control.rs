//! Messages with the manager.
//!
//! A session begins with the manager's `Hello`, then [`Authenticate`] and [`Welcome`]: each side proves that it knows the
//! token's secret. After that requests are answered in order. Every reply's body begins with [`ControlHead`]. Paths are bytes:
//! names of 1 to 255 bytes other than `/` and NUL, not `.` or `..`, joined by `/`, relative to the volume's root; the root
//! itself is the empty path. Names need not be UTF-8.

use braid_layout::{ClusterId, ColumnMask, DriveId, FileId, Generation, ObjectId, VolumeId, version::Lease};

use crate::capability::{Capability, Key};
use crate::refusal::Refusal;
use crate::token::Standing;

record! {
    /// What every reply of the manager begins with.
    pub struct ControlHead {
        /// The manager's term; rises with every start of a manager.
        term: u64,
        /// Manager time, in milliseconds: never goes back, also over restarts.
        now_ms: u64,
    }
}
record! {
    /// The asker's proof; kind 0x0002.
    pub struct Authenticate {
        standing: Standing,
        /// The drive, for [`Standing::Drive`] and [`Standing::Join`]; zero for a client.
        drive: DriveId,
        /// Random.
        nonce: [u8; 16],
        /// See [`Token::asker_proof`](crate::token::Token::asker_proof).
        proof: [u8; 32],
    }
}
record! {
    /// The manager's proof.
    pub struct Welcome {
        cluster: ClusterId,
        /// See [`Token::manager_proof`](crate::token::Token::manager_proof).
        proof: [u8; 32],
    }
}

choice! {
    /// What a name stands for.
    pub enum EntryKind {
        /// A file.
        File = 1,
        /// A directory.
        Directory = 2,
    }
}
choice! {
    /// A drive's state as the manager sees it.
    pub enum DriveState {
        /// Its heartbeat lease holds.
        Up = 1,
        /// Its lease has lapsed or the connection to it is refused; it may return as it was.
        Away = 2,
        /// It was replaced: its columns are elsewhere or being rebuilt.
        Replaced = 3,
    }
}
choice! {
    /// What an open asks for.
    pub enum Access {
        /// Capabilities to read.
        Read = 1,
        /// An exclusive lease on the whole file, and capabilities to read and write.
        Write = 2,
    }
}

record! {
    /// A scheme by its numbers; zero `k` means the volume's default.
    pub struct ShapeSpec { scheme: u8, k: u8, m: u8, unit_bytes: u32 }
}
record! {
    /// A volume.
    pub struct VolumeRow {
        volume: VolumeId,
        name: String,
        shape: ShapeSpec,
        quota_bytes: u64,
        files: u64,
        /// Sum of the files' sizes.
        file_bytes: u64,
        created_ms: u64,
    }
}
record! {
    /// A directory entry.
    pub struct Entry { name: Vec<u8>, kind: EntryKind, file: FileId, size: u64, modified_ms: u64 }
}
record! {
    /// A segment and what its columns' drives are doing.
    pub struct SegmentRow {
        start: u64,
        end: u64,
        shape: ShapeSpec,
        /// Columns that every write must reach; the others are stale.
        set: ColumnMask,
        /// Columns that are being brought up to date.
        joining: ColumnMask,
        columns: Vec<ColumnRow>,
    }
}
record! {
    /// One column of a segment.
    pub struct ColumnRow { drive: DriveId, drive_name: String, object: ObjectId, address: String, state: DriveState }
}
record! {
    /// What a name stands for, in full. For a directory `file` is its number and there are no segments.
    pub struct StatRow {
        volume: VolumeId,
        kind: EntryKind,
        file: FileId,
        size: u64,
        created_ms: u64,
        modified_ms: u64,
        g: Generation,
        segments: Vec<SegmentRow>,
    }
}
record! {
    /// A capability for one column and its private part.
    pub struct Grant { capability: Capability, private: Key }
}
record! {
    /// An open file. `grants[s][c]` is for column `c` of segment `s`; a column that is out has no grant.
    pub struct Opened {
        stat: StatRow,
        grants: Vec<Vec<Option<Grant>>>,
        /// The lease; 0 for reads.
        lease: Lease,
        /// The lease ends this long after the last renewal, in milliseconds.
        lease_ms: u32,
        /// Capabilities expire at this manager time.
        expires_ms: u64,
        /// The last writer went without a clean release: bytes past the size may be left over and must be punched before
        /// the file grows.
        unclean: bool,
    }
}
record! {
    /// A drive, for lists and status.
    pub struct DriveRow {
        drive: DriveId,
        name: String,
        state: DriveState,
        address: String,
        host: String,
        rack: String,
        directory: String,
        pid: u32,
        capacity_bytes: u64,
        used_bytes: u64,
        live_bytes: u64,
        /// Milliseconds since its last heartbeat.
        silent_ms: u64,
        /// Components placed on it.
        components: u64,
        /// Components on it that are stale (out of their file's set) or joining.
        stale: u64,
    }
}

record! {
    /// Creates a volume.
    pub struct VolumeCreate { name: String, shape: ShapeSpec, quota_bytes: u64 }
}
record! {
    /// Removes an empty volume.
    pub struct VolumeRemove { name: String }
}
record! {
    /// Lists volumes.
    pub struct VolumeList {}
}
record! {
    /// Volumes, by name.
    pub struct VolumeListReply { volumes: Vec<VolumeRow> }
}
record! {
    /// What is at a path.
    pub struct Lookup { volume: String, path: Vec<u8> }
}
record! {
    /// Entries of a directory in byte order of their names.
    pub struct ReadDirectory { volume: String, path: Vec<u8>, /// Those after this name; empty: from the first.
        after: Vec<u8>, limit: u32 }
}
record! {
    /// Entries; `more` if there are others after the last.
    pub struct DirectoryReply { entries: Vec<Entry>, more: bool }
}
record! {
    /// Makes a directory; with `parents`, those above it too, and it may exist.
    pub struct MakeDirectory { volume: String, path: Vec<u8>, parents: bool }
}
record! {
    /// Renames a file or directory, atomically. A file replaces a file, a directory an empty directory.
    pub struct Rename { volume: String, from: Vec<u8>, to: Vec<u8> }
}
record! {
    /// Removes a file or an empty directory.
    pub struct Unlink { volume: String, path: Vec<u8> }
}
record! {
    /// Makes a file without a name and opens it for writing. It is gone when its lease ends, unless it was linked.
    pub struct CreateUnnamed { volume: String, shape: ShapeSpec, client: u64 }
}
record! {
    /// Gives an open unnamed file a name, atomically, with its size; replaces a file of that name if `replace`.
    pub struct Link { file: FileId, lease: Lease, volume: String, path: Vec<u8>, size: u64, replace: bool }
}
record! {
    /// Opens a file by path.
    pub struct Open {
        volume: String,
        path: Vec<u8>,
        access: Access,
        /// Make it if it is not there (write only).
        create: bool,
        /// With `create`: fail if it is there.
        exclusive: bool,
        /// For a new file.
        shape: ShapeSpec,
        /// The asker, for its operations' numbers.
        client: u64,
    }
}
record! {
    /// New capabilities for an open file, in its present generation: after "stale generation", "expired", or to go on. Renews the lease.
    pub struct Refresh { file: FileId, access: Access, lease: Lease, client: u64 }
}
record! {
    /// Renews a lease.
    pub struct Renew { file: FileId, lease: Lease }
}
record! {
    /// Sets the size: after a flush, a truncation, an extension. Durable when answered.
    pub struct Commit { file: FileId, lease: Lease, size: u64 }
}
record! {
    /// Ends a lease. `clean`: everything written is settled and retired.
    pub struct Release { file: FileId, lease: Lease, clean: bool }
}
record! {
    /// The writer cannot reach these columns of a segment. The manager takes them out of the set (once their drives' leases
    /// have lapsed or they are known to be dead) and answers with the new generation, or refuses.
    pub struct ReportLost { file: FileId, lease: Lease, client: u64, segment: u32, columns: ColumnMask }
}
record! {
    /// The manager's limits and figures.
    pub struct Status {}
}
record! {
    /// The cluster.
    pub struct StatusReply {
        cluster: ClusterId,
        volumes: u64,
        files: u64,
        /// Files removed whose components are not yet freed on every drive.
        removing: u64,
        drives: Vec<DriveRow>,
        pid: u32,
        uptime_ms: u64,
        directory: String,
    }
}
record! {
    /// The drive of this session joins the cluster. The master key follows from the session's secrets.
    pub struct JoinDrive { name: String, address: String, host: String, rack: String, directory: String, pid: u32, capacity_bytes: u64 }
}
record! {
    /// The drive is known now.
    pub struct JoinDriveReply { name: String }
}
record! {
    /// A drive's heartbeat.
    pub struct Heartbeat {
        address: String,
        host: String,
        directory: String,
        pid: u32,
        capacity_bytes: u64,
        used_bytes: u64,
        live_bytes: u64,
        /// The drive has started anew since its last heartbeat.
        restarted: bool,
        /// The highest epoch the drive has been told and has stored; 0: none yet. See [`HeartbeatReply::epoch`].
        epoch: u64,
    }
}
record! {
    /// The drive may serve for `lease_ms` from when it sent the heartbeat.
    pub struct HeartbeatReply {
        /// The lease's length, in milliseconds, counted from when the drive *sent* the heartbeat (PROTOCOL R8).
        lease_ms: u32,
        /// It was replaced, and serves no more.
        replaced: bool,
        /// Rises whenever the manager marks the drive out. Higher than what the drive sent: it was out since, and serves no
        /// object before that object was fenced anew (PROTOCOL R8, section 7); it stores the epoch before it serves.
        epoch: u64,
    }
}
record! {
    /// `new` takes the place of `old` in every layout; its columns join, empty, and must be rebuilt.
    pub struct ReplaceDrive { old: String, new: String }
}
record! {
    /// How many components are to rebuild.
    pub struct ReplaceDriveReply { components: u64 }
}
record! {
    /// Files with a column on this drive (name or id) that is out or joining, in order of their numbers.
    pub struct StaleFiles { drive: String, after: FileId, limit: u32 }
}
record! {
    /// Files.
    pub struct StaleFilesReply { files: Vec<FileId> }
}
record! {
    /// Takes an exclusive lease on the file and lets its columns on this drive join: they become write targets. Answers with
    /// capabilities to read the others and write these.
    pub struct BeginRebuild { file: FileId, drive: String, client: u64 }
}
record! {
    /// The joining columns are caught up: the manager lists them as ready.
    pub struct EndRebuild { file: FileId, lease: Lease }
}
record! {
    /// Nothing but "done".
    pub struct Done {}
}

message_set! {
    /// Requests to the manager.
    pub enum ControlRequest {
        /// Proof of the token.
        Authenticate(Authenticate) = 0x0002,
        /// Volumes.
        VolumeCreate(VolumeCreate) = 0x0200,
        /// Volumes.
        VolumeRemove(VolumeRemove) = 0x0201,
        /// Volumes.
        VolumeList(VolumeList) = 0x0202,
        /// Names.
        Lookup(Lookup) = 0x0210,
        /// Names.
        ReadDirectory(ReadDirectory) = 0x0211,
        /// Names.
        MakeDirectory(MakeDirectory) = 0x0212,
        /// Names.
        Rename(Rename) = 0x0213,
        /// Names.
        Unlink(Unlink) = 0x0214,
        /// Files.
        CreateUnnamed(CreateUnnamed) = 0x0220,
        /// Files.
        Link(Link) = 0x0221,
        /// Files.
        Open(Open) = 0x0222,
        /// Files.
        Refresh(Refresh) = 0x0223,
        /// Files.
        Renew(Renew) = 0x0224,
        /// Files.
        Commit(Commit) = 0x0225,
        /// Files.
        Release(Release) = 0x0226,
        /// Files.
        ReportLost(ReportLost) = 0x0227,
        /// The cluster.
        Status(Status) = 0x0230,
        /// Drives.
        JoinDrive(JoinDrive) = 0x0240,
        /// Drives.
        Heartbeat(Heartbeat) = 0x0241,
        /// Drives.
        ReplaceDrive(ReplaceDrive) = 0x0242,
        /// Rebuild.
        StaleFiles(StaleFiles) = 0x0250,
        /// Rebuild.
        BeginRebuild(BeginRebuild) = 0x0251,
        /// Rebuild.
        EndRebuild(EndRebuild) = 0x0252,
    }
}

message_set! {
    /// The manager's replies. Kinds have [`REPLY_BIT`](crate::frame::REPLY_BIT) set.
    pub enum ControlReply {
        /// The manager's proof.
        Welcome(Welcome) = 0x8002,
        /// Done.
        Done(Done) = 0x8200,
        /// Volumes.
        Volumes(VolumeListReply) = 0x8202,
        /// What a name stands for.
        Stat(StatRow) = 0x8210,
        /// Entries.
        Directory(DirectoryReply) = 0x8211,
        /// An open file.
        Opened(Opened) = 0x8222,
        /// The cluster.
        Status(StatusReply) = 0x8230,
        /// The drive is known.
        Joined(JoinDriveReply) = 0x8240,
        /// The drive may serve.
        Heartbeat(HeartbeatReply) = 0x8241,
        /// Components to rebuild.
        Replaced(ReplaceDriveReply) = 0x8242,
        /// Files to rebuild.
        StaleFiles(StaleFilesReply) = 0x8250,
        /// No.
        Refused(Refusal) = 0x82ff,
    }
}
