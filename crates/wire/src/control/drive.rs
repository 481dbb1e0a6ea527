//! Drives and the cluster as the manager sees them.

use braid_layout::{ClusterId, DriveId, PartitionId, ReservationId};

use super::file::Grant;
use super::keys::KeyTurn;
use super::reservation::PromiseRow;
use crate::addresses::Addresses;
use crate::data::{CalibrateAct, CalibrateReply, DriveCounts, DriveParts, ScrubAct, ScrubReply, ScrubState};

choice! {
    /// A drive's state as the manager sees it.
    pub enum DriveState {
        /// The drive's heartbeat lease is valid.
        Up = 1,
        /// The drive's lease has expired or its process is gone; it may return with the data that it
        /// stores.
        Away = 2,
        /// The drive was replaced: its columns are on other drives or being rebuilt there.
        Replaced = 3,
    }
}

record! {
    /// A drive as in lists and in the cluster's status.
    pub struct DriveRow {
        /// The drive's identity.
        drive: DriveId,
        /// The drive's name.
        name: String,
        /// The drive's state.
        state: DriveState,
        /// Network addresses at which the drive listens.
        addresses: Addresses,
        /// Name of the machine that the drive runs on.
        host: String,
        /// The drive's failure domain above the machine; may be empty.
        rack: String,
        /// The drive's directory on that machine.
        directory: String,
        /// Process id of the drive on that machine.
        pid: u32,
        /// Maximum number of bytes that the drive may store.
        capacity_bytes: u64,
        /// Size of the drive's log, in bytes.
        used_bytes: u64,
        /// Bytes of the log that a read could return.
        live_bytes: u64,
        /// Bytes that writes may take before the drive must clean its log: the reserve does not count,
        /// spare files do.
        free_bytes: u64,
        /// Bytes of the files of freed segments that the drive keeps for new segments.
        spare_bytes: u64,
        /// The file system that holds the drive's directory.
        file_system: FileSystem,
        /// True if the drive has room for columns of new files.
        room: bool,
        /// Milliseconds since the last heartbeat; 2^64 - 1: there was none since the manager's start.
        silent_ms: u64,
        /// Number of components placed on the drive.
        components: u64,
        /// Number of components on the drive that are stale (out of their file's set) or joining.
        stale: u64,
        /// Number of those stale components that cannot be rebuilt, because too few columns of their files
        /// are left.
        lost: u64,
        /// The state of the drive's scrub at its last heartbeat.
        scrub: ScrubState,
        /// The way in which the drive sent the bytes of reads, for people.
        io: String,
        /// Milliseconds for which the drive's disk has not finished a commit, if that is too long for the
        /// drive to serve; else 0.
        stalled_ms: u64,
        /// Service times of reads.
        reads: Latency,
        /// Service times of commits.
        commits: Latency,
        /// An explanation of how much slower than its sisters the drive is, and what to do, for people;
        /// empty: it is not slow.
        slow: String,
        /// True if the drive's columns are to move to other drives, and it gets no new ones.
        draining: bool,
        /// Cost of the drive's parts, as it last told; absent: it never did.
        parts: Option<DriveParts>,
        /// Counts since the drive's start, as of its last heartbeat.
        counts: DriveCounts,
        /// Milliseconds for which the drive is still paused: it is not taken to be lost; 0: it is not paused.
        paused_ms: u64,
    }
}

record! {
    /// The file system of a drive's directory, whose space the drive may share with others on the same
    /// machine.
    #[derive(Copy, Default)]
    pub struct FileSystem {
        /// Device number of the file system on its machine; 0: not known.
        device: u64,
        /// Free space of the file system, in bytes.
        free_bytes: u64,
    }
}

record! {
    /// The time that a drive took for requests of one kind in the last minutes.
    #[derive(Copy, Default)]
    pub struct Latency {
        /// Number of requests.
        count: u64,
        /// The 50th percentile, in microseconds: half of the requests took at most this long.
        p50_us: u64,
        /// The 99th percentile, in microseconds.
        p99_us: u64,
    }
}

record! {
    /// Asks for the state and figures of the cluster.
    pub struct Status {}
}

record! {
    /// The answer to [`Status`].
    pub struct StatusReply {
        /// The cluster's identity.
        cluster: ClusterId,
        /// Number of volumes.
        volumes: u64,
        /// Number of files in all volumes.
        files: u64,
        /// Number of removed files whose components are not yet freed on every drive.
        removing: u64,
        /// Every drive that has ever joined.
        drives: Vec<DriveRow>,
        /// Process id of the manager.
        pid: u32,
        /// Milliseconds since the manager's start.
        uptime_ms: u64,
        /// The manager's directory on its machine.
        directory: String,
        /// A message of the manager about its own state, for people; empty: none.
        notice: String,
        /// The names that are kept at drives.
        names: NamesState,
        /// The cluster's managers, the leader first.
        managers: Vec<ManagerRow>,
        /// The members of the etcd that holds the managers' state; empty: the state is in the manager's own
        /// directory.
        members: Vec<MemberRow>,
    }
}

record! {
    /// A manager, as the manager that leads knows it.
    pub struct ManagerRow {
        /// The manager's address, `host:port`.
        address: String,
        /// True if the manager leads; false: it stands by.
        leads: bool,
        /// Milliseconds since the manager was last heard; 0 for the one that leads.
        silent_ms: u64,
        /// Number of the state's changes that the manager has not taken over yet; 0 for the one that leads.
        lag: u64,
        /// The release of braid that the manager runs; empty: not known.
        version: String,
    }
}

record! {
    /// A member of the etcd that holds the managers' state.
    pub struct MemberRow {
        /// The member's name.
        name: String,
        /// The member's address for other members.
        peer: String,
        /// True if the member answers, and knows a leader.
        healthy: bool,
        /// True if the member leads the others.
        leads: bool,
        /// Size of the member's database, in bytes; 0: not known.
        database_bytes: u64,
        /// Alarms that the member has raised, by etcd's names for them, such as `NOSPACE`.
        alarms: Vec<String>,
    }
}

record! {
    /// State of the names that are kept at drives, so that they outlive a lost manager.
    pub struct NamesState {
        /// Names of the drives that have all that was sent to them.
        drives: Vec<String>,
        /// Number of drives that are to have them.
        wanted: u32,
        /// Milliseconds for which changes have been at fewer than two drives; 0: none are.
        behind_ms: u64,
        /// Bytes that each of the drives keeps.
        bytes: u64,
    }
}

record! {
    /// Has the manager write a backup of its state into its own directory; see `docs/format-manager.md`.
    /// [`ReadBackup`] then reads it.
    pub struct Backup {}
}

record! {
    /// The backup is complete and durable.
    pub struct BackupReply {
        /// Path of the backup file, on the manager's machine.
        path: String,
        /// Length of the file, in bytes.
        bytes: u64,
        /// Number of keys in the backup.
        rows: u64,
        /// CRC32C of the backup without its last 4 bytes, which hold this checksum. It distinguishes the
        /// backup from others.
        crc: u32,
    }
}

/// Maximum number of bytes of a backup in one [`BackupPart`].
pub const BACKUP_PART_BYTES_MAX: u32 = 256 << 10;

record! {
    /// Reads a part of the last backup. Refused with [`Gone`](crate::Reason::Gone) if the manager has another
    /// one by now, or none: then the backup is made anew.
    pub struct ReadBackup {
        /// The backup's checksum; see [`BackupReply::crc`].
        crc: u32,
        /// Position of the first byte.
        offset: u64,
        /// Number of bytes, at most [`BACKUP_PART_BYTES_MAX`].
        bytes: u32,
    }
}

record! {
    /// The answer to [`ReadBackup`].
    pub struct BackupPart {
        /// The bytes; fewer than were asked for only at the backup's end.
        content: Vec<u8>,
    }
}

record! {
    /// Allows the manager to free objects that no name leads to, which the comparison after a restore kept.
    pub struct FreeUnnamed {}
}

record! {
    /// Adds the drive of this session to the cluster. Both sides derive the drive's master key from the
    /// session's secrets. A join token must not take over the identity of another drive. So a drive that
    /// has sent a heartbeat already is refused with [`Reason::Exists`](crate::Reason::Exists). A drive that
    /// has joined but sent no heartbeat, because its answer was lost, gets the master key of this session.
    pub struct JoinDrive {
        /// The name that the drive asks for; empty: the manager chooses.
        name: String,
        /// Network addresses at which the drive listens.
        addresses: Addresses,
        /// Name of the machine that the drive runs on.
        host: String,
        /// The drive's failure domain above the machine; may be empty.
        rack: String,
        /// The drive's directory on that machine.
        directory: String,
        /// Process id of the drive on that machine.
        pid: u32,
        /// Maximum number of bytes that the drive may store.
        capacity_bytes: u64,
    }
}

record! {
    /// The answer to [`JoinDrive`]: the drive has joined.
    pub struct JoinDriveReply {
        /// The drive's name.
        name: String,
        /// Number of the drive's master key.
        key: u32,
    }
}

record! {
    /// Identifies a drive's process, for a manager on the same machine. All zeros: the system does not
    /// provide these values.
    #[derive(Default)]
    pub struct ProcessMark {
        /// Identity of the machine's boot: its `boot_id`, in the order of its digits.
        boot: [u8; 16],
        /// Namespace of the process id.
        pid_namespace: u64,
        /// Namespace of the clock that measures `started`; 0: the kernel has none.
        time_namespace: u64,
        /// Process id in that namespace.
        pid: u32,
        /// Time when the process started, in the kernel's ticks since the boot.
        started: u64,
    }
}

record! {
    /// A drive's heartbeat.
    pub struct Heartbeat {
        /// Network addresses at which the drive listens.
        addresses: Addresses,
        /// Name of the machine that the drive runs on.
        host: String,
        /// The drive's directory on that machine.
        directory: String,
        /// Process id of the drive on that machine, for people.
        pid: u32,
        /// Identity of the drive's process, for a manager on the same machine.
        process: ProcessMark,
        /// Maximum number of bytes that the drive may store.
        capacity_bytes: u64,
        /// Size of the drive's log, in bytes.
        used_bytes: u64,
        /// Bytes of the log that a read could return.
        live_bytes: u64,
        /// Bytes that writes may take before the drive must clean its log: the reserve does not count,
        /// spare files do.
        free_bytes: u64,
        /// Bytes of the files of freed segments that the drive keeps for new segments.
        spare_bytes: u64,
        /// The file system that holds the drive's directory.
        file_system: FileSystem,
        /// True if the process has had no lease yet.
        restarted: bool,
        /// The highest epoch the drive has been told and has stored; 0: none yet. See
        /// [`HeartbeatReply::epoch`].
        epoch: u64,
        /// The state of the drive's scrub.
        scrub: ScrubState,
        /// The way in which the drive sent the bytes of reads, for people.
        io: String,
        /// Random number, drawn when the process starts. It distinguishes the process from any other that
        /// claims to be this drive.
        start: u64,
        /// The instance number in the drive's directory, which the manager gave to the last process that it
        /// admitted as this drive; 0: none.
        instance: u64,
        /// Number of the last durable record of the drive's log. It falls only if the log has lost
        /// acknowledged records.
        log: u64,
        /// The last mark of the manager's state that the drive was told and has stored; zeros: none yet.
        seen: StateMark,
        /// True in the last heartbeat of a process: it has served its last request and gives its lease up.
        closing: bool,
        /// Manager time as the drive knows it, in milliseconds; 0: the drive was not told since it started.
        manager_ms: u64,
        /// Milliseconds for which the drive's disk has not finished a commit, if that is too long for the
        /// drive to serve; else 0. The drive has given its lease up, and gets none until this is 0.
        stalled_ms: u64,
        /// Service times of reads.
        reads: Latency,
        /// Service times of commits.
        commits: Latency,
        /// Cost of the drive's parts; absent: as it was told before in this session.
        parts: Option<DriveParts>,
        /// Figures of the reservations that have sent requests lately; at most
        /// [`PROMISES_TOLD_MAX`](super::PROMISES_TOLD_MAX).
        promises: Vec<PromiseRow>,
        /// The reservations of the last answer's [`ended`](HeartbeatReply::ended): the drive honours them no
        /// more.
        ended: Vec<ReservationId>,
        /// Number of the drive's master key.
        key: u32,
        /// Counts since the drive's start.
        counts: DriveCounts,
    }
}

record! {
    /// The age of a manager's state. Every start of a manager draws a new random mark, and every change is
    /// counted. So a state that was restored from an older copy can be distinguished from the original.
    pub struct StateMark {
        /// The manager's term.
        term: u64,
        /// Random mark of that term.
        mark: u64,
        /// Number of changes made to the state, over all terms.
        changes: u64,
    }
}

impl Default for StateMark {
    /// The mark of a drive that has seen no state yet.
    fn default() -> StateMark {
        StateMark { term: 0, mark: 0, changes: 0 }
    }
}

choice! {
    /// The manager's decision on a heartbeat.
    pub enum Admission {
        /// The drive may serve until the lease expires.
        Serve = 1,
        /// The drive may not serve yet: the manager has something to recover first. The drive goes on
        /// sending heartbeats.
        Wait = 2,
        /// The drive was replaced: it never serves again.
        Replaced = 3,
        /// Another process is this drive now: the one that sent the heartbeat must stop.
        Superseded = 4,
        /// The manager's own state is older than what the drive has seen. The manager gives no lease, and the
        /// drive keeps the mark that it has.
        ManagerOlder = 5,
    }
}

record! {
    /// The answer to [`Heartbeat`]. If admitted, the drive may serve for `lease_ms`.
    pub struct HeartbeatReply {
        /// The lease's length, in milliseconds, counted from when the drive *sent* the heartbeat (PROTOCOL
        /// R8); 0 unless the drive may serve.
        lease_ms: u32,
        /// The decision whether the drive may serve.
        admission: Admission,
        /// The reason, for people, if the drive may not serve; else empty.
        detail: String,
        /// The drive's instance number from now on. The drive stores it before it serves.
        instance: u64,
        /// The mark of the manager's state, for the drive to store.
        state: StateMark,
        /// Epoch of the drive, which rises whenever the manager marks the drive out. If it is higher than
        /// the epoch that the drive sent, the drive was marked out since. The drive then stores the new
        /// epoch before it serves, and serves no object before that object was fenced again (PROTOCOL R8,
        /// section 7).
        epoch: u64,
        /// Reservations that have ended while capabilities that promise their rates may be in use: requests
        /// under them are best effort from now on. At most [`ENDED_TOLD_MAX`](super::ENDED_TOLD_MAX).
        ended: Vec<ReservationId>,
        /// The drive's master key on record, and whether it is to be turned.
        key: KeyTurn,
    }
}

record! {
    /// Puts `new` in the place of `old` in every layout. The columns of `new` are empty at first: they
    /// join, and must be rebuilt.
    pub struct ReplaceDrive {
        /// The drive that is gone: its name or identity.
        old: String,
        /// The drive that takes its place: its name or identity.
        new: String,
    }
}

record! {
    /// The answer to [`ReplaceDrive`]: the replacement is durable.
    pub struct ReplaceDriveReply {
        /// Number of components that must be rebuilt.
        components: u64,
    }
}

record! {
    /// Asks a drive to start a scrub, or for the state of its scrub. If the drive does not answer, the
    /// request is refused with [`NotServing`](crate::Reason::NotServing).
    pub struct ScrubDrive {
        /// The drive: its name or identity.
        drive: String,
        /// The action that the drive is asked for.
        act: ScrubAct,
        /// Bytes a second that the pass may read, at least 1, to start a pass; else 0.
        rate: u64,
    }
}

record! {
    /// The answer to [`ScrubDrive`].
    pub struct ScrubDriveReply {
        /// The drive's name.
        name: String,
        /// The state of the drive's scrub, and what it found.
        scrub: ScrubReply,
    }
}

record! {
    /// Asks a drive to measure what its parts cost, or for the state of that. If the drive does not answer,
    /// the request is refused with [`NotServing`](crate::Reason::NotServing).
    pub struct CalibrateDrive {
        /// The drive: its name or identity.
        drive: String,
        /// The action that the drive is asked for.
        act: CalibrateAct,
    }
}

record! {
    /// The answer to [`CalibrateDrive`].
    pub struct CalibrateDriveReply {
        /// The drive's name.
        name: String,
        /// The state of the drive's calibration.
        calibration: CalibrateReply,
    }
}

record! {
    /// Starts or stops draining a drive: every column on a drive moves to another drive, one by one, and no
    /// new columns are placed on it. The drive serves meanwhile. Refused with [`Full`](crate::Reason::Full)
    /// if the other drives have too little room.
    pub struct DrainDrive {
        /// The drive: its name or identity.
        drive: String,
        /// True to start draining, false to stop.
        drain: bool,
    }
}

record! {
    /// The answer to [`DrainDrive`]: the drive is drained from now on, or no longer.
    pub struct DrainDriveReply {
        /// True if the drive was being drained before.
        was: bool,
        /// Number of components on the drive.
        components: u64,
        /// Approximate size of these components, in bytes.
        bytes: u64,
        /// Free space for them on the other drives, in bytes.
        room_bytes: u64,
    }
}

record! {
    /// Pauses a drive: for a time its silence does not make it a lost one, whose columns move. The pause ends
    /// by itself. Refused with [`Malformed`](crate::Reason::Malformed) beyond [`PAUSE_MS_MAX`].
    pub struct PauseDrive {
        /// The drive: its name or identity.
        drive: String,
        /// Milliseconds from now; 0 ends the pause.
        for_ms: u64,
    }
}

/// The longest pause of a drive, in milliseconds: a day.
pub const PAUSE_MS_MAX: u64 = 24 * 60 * 60 * 1000;

record! {
    /// Takes a drive without components out of the cluster, permanently. Refused with
    /// [`DriveInUse`](crate::Reason::DriveInUse) while the drive has components.
    pub struct RemoveDrive {
        /// The drive: its name or identity.
        drive: String,
    }
}

/// Maximum number of drives named by one [`Sisters`] request: as many as a stripe has columns.
pub const SISTERS_MAX: usize = 64;

record! {
    /// Asks for the asking drive's sisters: the drives that have the other columns of its objects. The
    /// asking drive sends them the deltas of unit writes (PROTOCOL R3).
    pub struct Sisters {
        /// The partition that holds the objects.
        partition: PartitionId,
        /// The sisters asked for, at most 64.
        drives: Vec<DriveId>,
    }
}

record! {
    /// A sister to which the asking drive may send deltas.
    pub struct SisterRow {
        /// The sister's identity.
        drive: DriveId,
        /// Network addresses at which the sister listens.
        addresses: Addresses,
        /// The right to send deltas to the sister, for the asking drive alone.
        grant: Grant,
    }
}

record! {
    /// The answer to [`Sisters`]: the sisters that serve. Those that are away or were replaced are left
    /// out.
    pub struct SistersReply {
        /// The sisters, in the order asked.
        sisters: Vec<SisterRow>,
    }
}
