//! Messages with the manager.
//!
//! A session begins with the manager's `Hello`, then [`Authenticate`] and [`Welcome`]: each side proves that it knows the
//! token's secret. After that requests are answered in order. Every reply's body begins with [`ControlHead`]. Paths are bytes:
//! names of 1 to 255 bytes other than `/` and NUL, not `.` or `..`, joined by `/`, relative to the volume's root; the root
//! itself is the empty path. Names need not be UTF-8.
//!
//! After the proofs, control messages are neither secret nor authenticated one by one until the session runs inside TLS;
//! `docs/format-wire.md` says what that means.
//!
//! Units, unless a field says otherwise: times are manager time in milliseconds, sizes and offsets are bytes of the file.

use braid_layout::{ClusterId, ColumnMask, DriveId, FileId, Generation, ObjectId, VolumeId, version::Lease};

use crate::capability::{Capability, Key};
use crate::refusal::Refusal;
use crate::token::Standing;

/// Longest name in a directory, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path, in bytes.
pub const PATH_BYTES_MAX: usize = 4096;
/// Longest name of a volume, drive, host or rack, in bytes.
pub const LABEL_BYTES_MAX: usize = 255;

record! {
    /// What every reply of the manager begins with.
    pub struct ControlHead {
        /// The manager's term; rises with every start of a manager. A peer that has seen a higher one does not believe the
        /// reply.
        term: u64,
        /// Manager time, in milliseconds: never goes back, also over restarts.
        now_ms: u64,
    }
}
record! {
    /// The asker's proof; kind 0x0002.
    pub struct Authenticate {
        /// What the session may do.
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
        /// The manager's cluster.
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
    /// A scheme by its numbers; zero `k` means the volume's default (or the manager's, for a volume).
    pub struct ShapeSpec {
        /// Scheme number (see `braid_layout::Scheme`).
        scheme: u8,
        /// Data units of a stripe.
        k: u8,
        /// Parity units of a stripe.
        m: u8,
        /// Bytes of a unit.
        unit_bytes: u32,
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
        /// What it is.
        kind: EntryKind,
        /// The file's or directory's number.
        file: FileId,
        /// The file's size; 0 for a directory.
        size: u64,
        /// Time of the last change.
        modified_ms: u64,
    }
}
record! {
    /// A segment and what its columns' drives are doing.
    pub struct SegmentRow {
        /// First byte of the file in it.
        start: u64,
        /// One past the last byte; 2^64 - 1 for the last segment.
        end: u64,
        /// Its shape; never the default.
        shape: ShapeSpec,
        /// Columns that every write must reach; the others are stale.
        set: ColumnMask,
        /// Columns that are being brought up to date.
        joining: ColumnMask,
        /// `k + m` columns.
        columns: Vec<ColumnRow>,
    }
}
record! {
    /// One column of a segment.
    pub struct ColumnRow {
        /// The drive.
        drive: DriveId,
        /// Its name.
        drive_name: String,
        /// The component object on it.
        object: ObjectId,
        /// Where it listens, `host:port`.
        address: String,
        /// What it is doing.
        state: DriveState,
    }
}
record! {
    /// What a name stands for, in full. For a directory `file` is its number and there are no segments.
    pub struct StatRow {
        /// The volume.
        volume: VolumeId,
        /// What it is.
        kind: EntryKind,
        /// Its number.
        file: FileId,
        /// Bytes, as of the last flush or close.
        size: u64,
        /// Time of creation.
        created_ms: u64,
        /// Time of the last change.
        modified_ms: u64,
        /// The file's generation; 0 for a directory.
        g: Generation,
        /// Its layout; at most [`SEGMENTS_MAX`](crate::codec::SEGMENTS_MAX).
        segments: Vec<SegmentRow>,
    }
}
record! {
    /// A capability for one column and its private part.
    pub struct Grant {
        /// The public part.
        capability: Capability,
        /// The private part: a secret of the holder, the manager and the drive.
        private: Key,
    }
}
record! {
    /// An open file. `grants[s][c]` is for column `c` of segment `s`; a column that is out has no grant.
    pub struct Opened {
        /// Layout, size and generation.
        stat: StatRow,
        /// Per segment, per column.
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
        /// Its identity.
        drive: DriveId,
        /// Its name.
        name: String,
        /// What it is doing.
        state: DriveState,
        /// Where it listens, `host:port`.
        address: String,
        /// The machine it is on.
        host: String,
        /// Its failure domain above the machine; may be empty.
        rack: String,
        /// Its directory on that machine.
        directory: String,
        /// Its process there.
        pid: u32,
        /// Bytes it may store.
        capacity_bytes: u64,
        /// Bytes of its log.
        used_bytes: u64,
        /// Bytes of its log that a read could return.
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
    /// What is at a path.
    pub struct Lookup {
        /// The volume's name.
        volume: String,
        /// The path.
        path: Vec<u8>,
    }
}
record! {
    /// Entries of a directory in byte order of their names.
    pub struct ReadDirectory {
        /// The volume's name.
        volume: String,
        /// The directory.
        path: Vec<u8>,
        /// Those after this name; empty: from the first.
        after: Vec<u8>,
        /// At most this many; the manager may return fewer.
        limit: u32,
    }
}
record! {
    /// Entries.
    pub struct DirectoryReply {
        /// In byte order of their names.
        entries: Vec<Entry>,
        /// There are others after the last.
        more: bool,
    }
}
record! {
    /// Makes a directory.
    pub struct MakeDirectory {
        /// The volume's name.
        volume: String,
        /// The directory.
        path: Vec<u8>,
        /// Those above it too, and it may exist.
        parents: bool,
    }
}
record! {
    /// Renames a file or directory, atomically. A file replaces a file, a directory an empty directory.
    pub struct Rename {
        /// The volume's name.
        volume: String,
        /// What to rename.
        from: Vec<u8>,
        /// Its new path.
        to: Vec<u8>,
    }
}
record! {
    /// Removes a file or an empty directory.
    pub struct Unlink {
        /// The volume's name.
        volume: String,
        /// What to remove.
        path: Vec<u8>,
    }
}
record! {
    /// Makes a file without a name and opens it for writing. It is gone when its lease ends, unless it was linked.
    pub struct CreateUnnamed {
        /// The volume's name.
        volume: String,
        /// The file's shape.
        shape: ShapeSpec,
        /// The asker: a random number of its own, for its operations' numbers.
        client: u64,
    }
}
record! {
    /// Gives an open unnamed file a name, atomically, with its size.
    pub struct Link {
        /// The file.
        file: FileId,
        /// The lease it is open under.
        lease: Lease,
        /// The volume's name.
        volume: String,
        /// Its path.
        path: Vec<u8>,
        /// Its size.
        size: u64,
        /// A file of that name is replaced; else that is [`Reason::Exists`](crate::Reason::Exists).
        replace: bool,
    }
}
record! {
    /// Opens a file by path.
    pub struct Open {
        /// The volume's name.
        volume: String,
        /// The path.
        path: Vec<u8>,
        /// What for.
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
    /// New capabilities for an open file, in its present generation: after "stale generation", "expired", or to go on. Renews
    /// the lease.
    pub struct Refresh {
        /// The file.
        file: FileId,
        /// What for.
        access: Access,
        /// The lease it is open under; 0 for reads.
        lease: Lease,
        /// The asker.
        client: u64,
    }
}
record! {
    /// Renews a lease.
    pub struct Renew {
        /// The file.
        file: FileId,
        /// The lease.
        lease: Lease,
    }
}
record! {
    /// Sets the size: after a flush, a truncation, an extension. Durable when answered.
    pub struct Commit {
        /// The file.
        file: FileId,
        /// The lease it is open under.
        lease: Lease,
        /// The new size.
        size: u64,
    }
}
record! {
    /// Ends a lease.
    pub struct Release {
        /// The file.
        file: FileId,
        /// The lease.
        lease: Lease,
        /// Everything written is settled and retired.
        clean: bool,
    }
}
record! {
    /// The writer cannot reach these columns of a segment. The manager takes them out of the set (once their drives' leases
    /// have lapsed or they are known to be dead) and answers with the new generation, or refuses.
    pub struct ReportLost {
        /// The file.
        file: FileId,
        /// The lease it is open under.
        lease: Lease,
        /// The asker.
        client: u64,
        /// The segment's index.
        segment: u32,
        /// The columns it cannot reach.
        columns: ColumnMask,
    }
}
record! {
    /// Asks for the cluster's figures.
    pub struct Status {}
}
record! {
    /// The cluster.
    pub struct StatusReply {
        /// Its identity.
        cluster: ClusterId,
        /// Volumes.
        volumes: u64,
        /// Files in them.
        files: u64,
        /// Files removed whose components are not yet freed on every drive.
        removing: u64,
        /// Every drive that has ever joined.
        drives: Vec<DriveRow>,
        /// The manager's process.
        pid: u32,
        /// Milliseconds since the manager's start.
        uptime_ms: u64,
        /// The manager's directory on its machine.
        directory: String,
    }
}
record! {
    /// The drive of this session joins the cluster. The master key follows from the session's secrets. A drive that the
    /// manager has had a heartbeat from is refused with [`Reason::Exists`](crate::Reason::Exists): a join token takes no
    /// drive's identity over. One that it has not (the answer was lost) gets the master key of this session.
    pub struct JoinDrive {
        /// The name it would like; empty: the manager chooses.
        name: String,
        /// Where it listens, `host:port`.
        address: String,
        /// The machine it is on.
        host: String,
        /// Its failure domain above the machine; may be empty.
        rack: String,
        /// Its directory on that machine.
        directory: String,
        /// Its process there.
        pid: u32,
        /// Bytes it may store.
        capacity_bytes: u64,
    }
}
record! {
    /// The drive is known now.
    pub struct JoinDriveReply {
        /// Its name.
        name: String,
    }
}
record! {
    /// A drive's heartbeat.
    pub struct Heartbeat {
        /// Where it listens, `host:port`.
        address: String,
        /// The machine it is on.
        host: String,
        /// Its directory on that machine.
        directory: String,
        /// Its process there.
        pid: u32,
        /// Bytes it may store.
        capacity_bytes: u64,
        /// Bytes of its log.
        used_bytes: u64,
        /// Bytes of its log that a read could return.
        live_bytes: u64,
        /// The drive has started anew since its last heartbeat.
        restarted: bool,
        /// The highest epoch the drive has been told and has stored; 0: none yet. See [`HeartbeatReply::epoch`].
        epoch: u64,
    }
}
record! {
    /// The drive may serve for `lease_ms`.
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
    pub struct ReplaceDrive {
        /// The drive that is gone: name or identity.
        old: String,
        /// The drive that takes its place: name or identity.
        new: String,
    }
}
record! {
    /// The replacement is durable.
    pub struct ReplaceDriveReply {
        /// How many components are to rebuild.
        components: u64,
    }
}
record! {
    /// Files with a column on this drive that is out or joining.
    pub struct StaleFiles {
        /// The drive: name or identity.
        drive: String,
        /// Those above this number.
        after: FileId,
        /// At most this many; the manager may return fewer, and none only at the end.
        limit: u32,
    }
}
record! {
    /// Files, ascending.
    pub struct StaleFilesReply {
        /// The files.
        files: Vec<FileId>,
    }
}
record! {
    /// Takes an exclusive lease on the file and lets its columns on this drive join: they become write targets. Answers with
    /// capabilities to read the others and write these.
    pub struct BeginRebuild {
        /// The file.
        file: FileId,
        /// The drive: name or identity.
        drive: String,
        /// The asker.
        client: u64,
    }
}
record! {
    /// The joining columns are caught up: the manager lists them as ready.
    pub struct EndRebuild {
        /// The file.
        file: FileId,
        /// The lease that the rebuild began.
        lease: Lease,
    }
}
record! {
    /// Nothing but "done".
    pub struct Done {}
}

message_set! {
    /// Requests to the manager.
    pub enum ControlRequest {
        /// Proof of the token: Welcome.
        Authenticate(Authenticate) = 0x0002,
        /// Make a volume: Done.
        VolumeCreate(VolumeCreate) = 0x0200,
        /// Remove a volume: Done.
        VolumeRemove(VolumeRemove) = 0x0201,
        /// List volumes: Volumes.
        VolumeList(VolumeList) = 0x0202,
        /// What is at a path: Stat.
        Lookup(Lookup) = 0x0210,
        /// List a directory: Directory.
        ReadDirectory(ReadDirectory) = 0x0211,
        /// Make a directory: Done.
        MakeDirectory(MakeDirectory) = 0x0212,
        /// Rename: Done.
        Rename(Rename) = 0x0213,
        /// Remove a name: Done.
        Unlink(Unlink) = 0x0214,
        /// Make a file without a name: Opened.
        CreateUnnamed(CreateUnnamed) = 0x0220,
        /// Name it: Done.
        Link(Link) = 0x0221,
        /// Open a file: Opened.
        Open(Open) = 0x0222,
        /// Capabilities anew: Opened.
        Refresh(Refresh) = 0x0223,
        /// Keep a lease: Done.
        Renew(Renew) = 0x0224,
        /// Set the size: Done.
        Commit(Commit) = 0x0225,
        /// End a lease: Done.
        Release(Release) = 0x0226,
        /// Columns are lost: Opened.
        ReportLost(ReportLost) = 0x0227,
        /// The cluster: Status.
        Status(Status) = 0x0230,
        /// A new drive: Joined.
        JoinDrive(JoinDrive) = 0x0240,
        /// A drive is alive: Heartbeat.
        Heartbeat(Heartbeat) = 0x0241,
        /// One drive for another: Replaced.
        ReplaceDrive(ReplaceDrive) = 0x0242,
        /// Files to rebuild: StaleFiles.
        StaleFiles(StaleFiles) = 0x0250,
        /// Rebuild a file: Opened.
        BeginRebuild(BeginRebuild) = 0x0251,
        /// It is rebuilt: Done.
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
