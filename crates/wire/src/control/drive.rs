//! Drives and the cluster as the manager sees them.

use braid_layout::{ClusterId, DriveId, PartitionId};

use super::file::Grant;
use crate::data::{ScrubAct, ScrubReply, ScrubState};

choice! {
    /// A drive's state as the manager sees it.
    pub enum DriveState {
        /// Its heartbeat lease holds.
        Up = 1,
        /// Its lease has lapsed or its process is gone; it may return with what it stores.
        Away = 2,
        /// It was replaced: its columns are elsewhere or being rebuilt.
        Replaced = 3,
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
        /// Bytes that writes may take before it must clean: its reserve does not count, its spare files do.
        free_bytes: u64,
        /// Bytes of files of freed segments that it keeps for new ones.
        spare_bytes: u64,
        /// The file system of its directory.
        file_system: FileSystem,
        /// Whether it has room for columns of new files.
        room: bool,
        /// Milliseconds since its last heartbeat; 2^64 - 1: there was none since the manager's start.
        silent_ms: u64,
        /// Components placed on it.
        components: u64,
        /// Components on it that are stale (out of their file's set) or joining.
        stale: u64,
        /// Those of them whose files have too few columns left to make them anew from.
        lost: u64,
        /// The state of its scrub at its last heartbeat.
        scrub: ScrubState,
        /// How it sent the bytes of reads, for people.
        io: String,
        /// Milliseconds for which its disk has not finished a commit, if too long for it to serve; else 0.
        stalled_ms: u64,
        /// How long it takes to read.
        reads: Latency,
        /// How long it takes to store.
        commits: Latency,
        /// How much slower than its sisters it is, and what to do, for people; empty: it is not.
        slow: String,
        /// Its columns are to move to other drives, and it gets no new ones.
        draining: bool,
    }
}

record! {
    /// What a drive shares with others that are on one file system of a machine.
    #[derive(Copy, Default)]
    pub struct FileSystem {
        /// Its device there; 0: it is not known.
        device: u64,
        /// Bytes that it has free.
        free_bytes: u64,
    }
}

record! {
    /// How long a drive took to carry out requests of a kind in the last minutes.
    #[derive(Copy, Default)]
    pub struct Latency {
        /// How many there were.
        count: u64,
        /// Half of them took at most so many microseconds.
        p50_us: u64,
        /// 99 % of them did.
        p99_us: u64,
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
        /// What the manager wants people to know of its state; empty: nothing.
        notice: String,
    }
}

record! {
    /// Has the manager write a backup of its state into its own directory; see `docs/format-manager.md`.
    pub struct Backup {}
}

record! {
    /// The backup is complete and durable.
    pub struct BackupReply {
        /// The file, on the manager's machine.
        path: String,
        /// Its length.
        bytes: u64,
        /// Keys in it.
        rows: u64,
        /// CRC32C of the backup without its last 4 bytes, which hold this checksum. It tells the backup from
        /// any other.
        crc: u32,
    }
}

record! {
    /// Allows the manager to free objects that no name leads to, which the comparison after a restore kept.
    pub struct FreeUnnamed {}
}

record! {
    /// Adds the drive of this session to the cluster. Both sides derive its master key from the session's
    /// secrets. A join token must not take over the identity of another drive. So a drive that has sent a
    /// heartbeat already is refused with [`Reason::Exists`](crate::Reason::Exists). A drive that has joined
    /// but sent no heartbeat, as its answer was lost, gets the master key of this session.
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
    /// The drive has joined.
    pub struct JoinDriveReply {
        /// Its name.
        name: String,
    }
}

record! {
    /// Identifies a drive's process, for a manager on the same machine. All zeros: its system does not tell.
    #[derive(Default)]
    pub struct ProcessMark {
        /// The machine's boot: its `boot_id`, in the order of its digits.
        boot: [u8; 16],
        /// The namespace of its process id.
        pid_namespace: u64,
        /// The namespace of the clock by which its start is given; 0: the kernel has none.
        time_namespace: u64,
        /// Its number.
        pid: u32,
        /// When it started, in the kernel's ticks since the boot.
        started: u64,
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
        /// Its process there, for people.
        pid: u32,
        /// Its process, for a manager on the same machine.
        process: ProcessMark,
        /// Bytes it may store.
        capacity_bytes: u64,
        /// Bytes of its log.
        used_bytes: u64,
        /// Bytes of its log that a read could return.
        live_bytes: u64,
        /// Bytes that writes may take before it must clean: its reserve does not count, its spare files do.
        free_bytes: u64,
        /// Bytes of files of freed segments that it keeps for new ones.
        spare_bytes: u64,
        /// The file system of its directory.
        file_system: FileSystem,
        /// The process has had no lease yet.
        restarted: bool,
        /// The highest epoch the drive has been told and has stored; 0: none yet. See
        /// [`HeartbeatReply::epoch`].
        epoch: u64,
        /// The state of its scrub.
        scrub: ScrubState,
        /// How it sent the bytes of reads, for people.
        io: String,
        /// A random number, drawn when the process starts. It tells the process from any other that claims to
        /// be this drive.
        start: u64,
        /// The instance number in the drive's directory, which the manager gave to the last process that it
        /// admitted as this drive; 0: none.
        instance: u64,
        /// The number of the last durable record of its log. It falls only if the log has lost acknowledged
        /// records.
        log: u64,
        /// The last mark of the manager's state that the drive was told and has stored; zeros: none yet.
        seen: StateMark,
        /// Set in the last heartbeat of a process: it has served its last request and gives its lease up.
        closing: bool,
        /// Manager time as the drive knows it, in milliseconds; 0: it was not told since it started.
        manager_ms: u64,
        /// Milliseconds for which its disk has not finished a commit, if too long for it to serve; else 0.
        /// The drive has given its lease up, and gets none until it is 0.
        stalled_ms: u64,
        /// How long it takes to read.
        reads: Latency,
        /// How long it takes to store.
        commits: Latency,
    }
}

record! {
    /// How new a manager's state is. Every start of a manager draws a new random mark, and every change is
    /// counted. So a state that was restored from an older copy can be told from the original.
    pub struct StateMark {
        /// The manager's term.
        term: u64,
        /// That term's mark: random.
        mark: u64,
        /// Changes made to the state, over all terms.
        changes: u64,
    }
}

impl Default for StateMark {
    /// Nothing was seen yet.
    fn default() -> StateMark {
        StateMark { term: 0, mark: 0, changes: 0 }
    }
}

choice! {
    /// The manager's decision on a heartbeat.
    pub enum Admission {
        /// The drive may serve for the lease.
        Serve = 1,
        /// Not yet: the manager has something to recover first. The drive goes on sending heartbeats.
        Wait = 2,
        /// It was replaced: it never serves again.
        Replaced = 3,
        /// Another process is this drive now: this one must stop.
        Superseded = 4,
        /// The manager's own state is older than what the drive has seen. The manager gives no lease, and the
        /// drive keeps the mark that it has.
        ManagerOlder = 5,
    }
}

record! {
    /// The drive may serve for `lease_ms`.
    pub struct HeartbeatReply {
        /// The lease's length, in milliseconds, counted from when the drive *sent* the heartbeat (PROTOCOL
        /// R8); 0 unless it may serve.
        lease_ms: u32,
        /// Whether it may serve.
        admission: Admission,
        /// If not, why, for people; else empty.
        detail: String,
        /// The drive's instance number from now on. The drive stores it before it serves.
        instance: u64,
        /// The mark of the manager's state, for the drive to store.
        state: StateMark,
        /// Rises whenever the manager marks the drive out. If it is higher than the epoch that the drive
        /// sent, the drive was marked out since. The drive then stores the new epoch before it serves, and
        /// serves no object before that object was fenced again (PROTOCOL R8, section 7).
        epoch: u64,
    }
}

record! {
    /// Puts `new` in the place of `old` in every layout. Its columns are empty at first: they join, and must
    /// be rebuilt.
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
        /// How many components must be rebuilt.
        components: u64,
    }
}

record! {
    /// Asks a drive to start a scrub, or for the state of its scrub. If the drive does not answer, the
    /// request is refused with [`NotServing`](crate::Reason::NotServing).
    pub struct ScrubDrive {
        /// The drive: name or identity.
        drive: String,
        /// What is asked for.
        act: ScrubAct,
        /// To start a pass: the bytes a second that it may read, at least 1; else 0.
        rate: u64,
    }
}

record! {
    /// The drive's answer.
    pub struct ScrubDriveReply {
        /// The drive's name.
        name: String,
        /// Its answer.
        scrub: ScrubReply,
    }
}

record! {
    /// Has every column on a drive move to other drives, one by one; no new ones are placed there. The drive
    /// serves meanwhile. Refused with [`Full`](crate::Reason::Full) if the others have too little room.
    pub struct DrainDrive {
        /// The drive: name or identity.
        drive: String,
        /// Whether it is drained from now on, or no more.
        drain: bool,
    }
}

record! {
    /// It is.
    pub struct DrainDriveReply {
        /// Whether it was drained before.
        was: bool,
        /// Components on it.
        components: u64,
        /// About how many bytes they have.
        bytes: u64,
        /// The room for them on the other drives.
        room_bytes: u64,
    }
}

record! {
    /// Takes a drive without components out of the cluster, for ever. Refused with
    /// [`DriveInUse`](crate::Reason::DriveInUse) while it has some.
    pub struct RemoveDrive {
        /// The drive: name or identity.
        drive: String,
    }
}

/// The most drives that one request for sisters names: as many as a stripe has columns.
pub const SISTERS_MAX: usize = 64;

record! {
    /// A drive asks for its sisters: the drives that have the other columns of its objects. It sends them the
    /// deltas of unit writes (PROTOCOL R3).
    pub struct Sisters {
        /// The partition of the objects.
        partition: PartitionId,
        /// The sisters, at most 64.
        drives: Vec<DriveId>,
    }
}

record! {
    /// A sister that takes deltas.
    pub struct SisterRow {
        /// The sister.
        drive: DriveId,
        /// Where it listens, `host:port`.
        address: String,
        /// The right to send it deltas, for the asker alone.
        grant: Grant,
    }
}

record! {
    /// The sisters that serve. Those that are away or were replaced are left out.
    pub struct SistersReply {
        /// In the order asked.
        sisters: Vec<SisterRow>,
    }
}
