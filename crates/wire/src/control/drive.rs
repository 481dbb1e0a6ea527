//! Drives and the cluster as the manager sees them.

use braid_layout::{ClusterId, DriveId, FileId};

use crate::data::{ScrubAct, ScrubReply, ScrubState};

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
        /// How its scrub stood at its last heartbeat.
        scrub: ScrubState,
        /// How it reaches its disk, for people.
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
        /// How its scrub stands.
        scrub: ScrubState,
        /// How it reaches its disk, for people.
        io: String,
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
