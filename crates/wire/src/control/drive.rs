//! Drives and the cluster as the manager sees them.

use braid_layout::{ClusterId, DriveId, FileId, PartitionId};

use super::file::Grant;
use crate::data::{ScrubAct, ScrubReply, ScrubState};

choice! {
    /// A drive's state as the manager sees it.
    pub enum DriveState {
        /// Its heartbeat lease holds.
        Up = 1,
        /// Its lease has lapsed or its process is gone; it may return as it was.
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
        /// Bytes that writes may take before it cleans: without its reserve, with its spare files.
        free_bytes: u64,
        /// Bytes of files of freed segments that it keeps for new ones.
        spare_bytes: u64,
        /// Milliseconds since its last heartbeat.
        silent_ms: u64,
        /// Components placed on it.
        components: u64,
        /// Components on it that are stale (out of their file's set) or joining.
        stale: u64,
        /// How its scrub stood at its last heartbeat.
        scrub: ScrubState,
        /// How it sent what was read, for people.
        io: String,
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
    /// The backup is there, whole and durable.
    pub struct BackupReply {
        /// The file, on the manager's machine.
        path: String,
        /// Its length.
        bytes: u64,
        /// Keys in it.
        rows: u64,
        /// CRC32C of all of it before its last 4 bytes, which hold the same: what tells it from any other
        /// backup.
        crc: u32,
    }
}

record! {
    /// Objects that no name leads to, and that a comparison after a restore has kept, may be freed from now
    /// on.
    pub struct FreeUnnamed {}
}

record! {
    /// The drive of this session joins the cluster. The master key follows from the session's secrets. A
    /// drive that the manager has had a heartbeat from is refused with
    /// [`Reason::Exists`](crate::Reason::Exists): a join token takes no drive's identity over. One that it
    /// has not (the answer was lost) gets the master key of this session.
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
    /// Which process a drive is, for a manager on the same machine. All zeros: its system does not tell.
    #[derive(Default)]
    pub struct ProcessMark {
        /// The machine's boot: its `boot_id`, in the order of its digits.
        boot: [u8; 16],
        /// The namespace in which it has its number.
        pid_namespace: u64,
        /// The namespace in which its start is counted; 0: the kernel has none.
        time_namespace: u64,
        /// Its number.
        pid: u32,
        /// Its start, in the kernel's ticks since the boot.
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
        /// Bytes that writes may take before it cleans: without its reserve, with its spare files.
        free_bytes: u64,
        /// Bytes of files of freed segments that it keeps for new ones.
        spare_bytes: u64,
        /// The process has had no lease yet.
        restarted: bool,
        /// The highest epoch the drive has been told and has stored; 0: none yet. See
        /// [`HeartbeatReply::epoch`].
        epoch: u64,
        /// How its scrub stands.
        scrub: ScrubState,
        /// How it sent what was read, for people.
        io: String,
        /// Random, drawn at the process's start: tells it from any other that calls itself this drive.
        start: u64,
        /// The number that the manager gave to the drive's last process that it admitted, as this one's
        /// directory has it; 0: none.
        instance: u64,
        /// The number of the last durable record of its log. It never falls, but with a log that has lost
        /// what it acknowledged.
        log: u64,
        /// What the drive has last been told of the manager's state, and remembers; zeros: nothing yet.
        seen: StateMark,
        /// The last heartbeat of this process: it has served its last request, and its lease is over.
        closing: bool,
        /// The manager's time as the drive has it, in milliseconds; 0: it was told none since it started.
        manager_ms: u64,
    }
}

record! {
    /// How far a manager's state has come. Every start of a manager draws a new mark, and every change
    /// counts: so a state that was put back from an older copy is told from the one that it is a copy of.
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
    /// What comes of a heartbeat.
    pub enum Admission {
        /// The drive may serve for the lease.
        Serve = 1,
        /// Not yet: something has to be put in order first. It goes on with heartbeats.
        Wait = 2,
        /// It was replaced: it serves no more, for good.
        Replaced = 3,
        /// Another process is this drive: this one stops.
        Superseded = 4,
        /// The manager's own state is older than what the drive has seen: it gives no lease, and the drive
        /// remembers what it saw.
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
        /// Why not, for people; else empty.
        detail: String,
        /// The drive's instance from now on: it stores it before it serves.
        instance: u64,
        /// What to remember of the manager's state.
        state: StateMark,
        /// Rises whenever the manager marks the drive out. Higher than what the drive sent: it was out since,
        /// and serves no object before that object was fenced anew (PROTOCOL R8, section 7); it stores the
        /// epoch before it serves.
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
    /// Asks a drive for a scrub, or how it stands. A drive that does not answer is
    /// [`NotServing`](crate::Reason::NotServing).
    pub struct ScrubDrive {
        /// The drive: name or identity.
        drive: String,
        /// What is asked for.
        act: ScrubAct,
        /// Bytes a second that the pass may read, at least 1, to start one; else 0.
        rate: u64,
    }
}

record! {
    /// What the drive said.
    pub struct ScrubDriveReply {
        /// The drive's name.
        name: String,
        /// Its answer.
        scrub: ScrubReply,
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
