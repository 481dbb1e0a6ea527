//! Refusals: the negative answers of a peer, each with a reason that a program can act on and a sentence
//! for people.

use std::fmt;

choice! {
    /// The reason why a request was refused. The number is the format; the doc comment says what the asker
    /// should do.
    pub enum Reason else Newer {
        /// The request could not be decoded, or its fields contradict each other. Do not send it again.
        Malformed = 1,
        /// The peer does not serve this kind of request.
        Unsupported = 2,
        /// The request's MAC is not the one the capability's private part gives: forged or damaged.
        Forged = 3,
        /// The capability's time has passed: ask the manager for a new one.
        Expired = 4,
        /// The sequence number was used on this connection before: replayed.
        Replayed = 5,
        /// The capability does not carry the right this request needs.
        Rights = 6,
        /// The bytes are outside the unit, or the stripes outside the capability's.
        Range = 7,
        /// The capability is for another drive, partition or object.
        Scope = 8,
        /// The capability's keys are older than the two working ones: ask the manager.
        StaleKey = 9,
        /// The drive's generation of the object differs: ask the manager.
        StaleGeneration = 10,
        /// The drive does not hold its heartbeat lease, or has not yet heard the manager's time: ask
        /// another drive or wait.
        NotServing = 11,
        /// No such partition.
        NoPartition = 12,
        /// No such object.
        NoObject = 13,
        /// An object of that name or number exists already, or exists with other attributes.
        Exists = 14,
        /// The partition holds objects.
        PartitionNotEmpty = 15,
        /// The drive has no space left.
        Full = 16,
        /// The quota of the partition, volume, directory or user is reached, or the limit of what one unit
        /// may hold.
        Quota = 17,
        /// The medium failed.
        Medium = 18,
        /// Stored bytes do not match their checksum: read from redundancy.
        Damaged = 19,
        /// The payload does not match the checksums sent with it: send again.
        PayloadChecksum = 20,
        /// The version asked for has been retired.
        Gone = 21,
        /// Too much in flight: try again later.
        Busy = 22,
        /// The peer is shutting down.
        Closing = 23,
        /// The drive's file system is read-only.
        ReadOnly = 24,
        /// Something in the object is pending, in doubt, or joining, so no still can be taken: have it
        /// decided, then try again.
        Unsettled = 25,
        /// The object has as many stills as it may, or the volume as many snapshots: remove a snapshot first.
        TooManySnapshots = 28,
        /// The column is joining, and has not caught up with the unit yet: read from the other columns.
        NotCaughtUp = 29,

        /// The token is not one of this cluster's, or may not be used any more.
        BadToken = 40,
        /// The token does not allow this.
        NotAllowed = 41,
        /// No such volume.
        NoVolume = 42,
        /// No such file or directory.
        NotFound = 43,
        /// A component of the path is not a directory.
        NotDirectory = 44,
        /// The name stands for a directory.
        IsDirectory = 45,
        /// The directory is not empty.
        NotEmpty = 46,
        /// The name is not allowed.
        BadName = 47,
        /// The file's lease is held by another client.
        Leased = 48,
        /// The lease is not (or no longer) the asker's: open again.
        LeaseLost = 49,
        /// There are fewer usable drives than the layout needs.
        TooFewDrives = 50,
        /// More columns are away than the parity can replace.
        TooManyAway = 51,
        /// The scheme, width or unit is not possible.
        BadScheme = 52,
        /// No such drive.
        NoDrive = 53,
        /// The peer belongs to another cluster.
        OtherCluster = 54,
        /// The manager that was asked does not lead, or its state is not open yet: ask the manager that the
        /// refusal names as the leader, or another one of the list, or wait.
        NotLeading = 55,
        /// The drive is in use.
        DriveInUse = 56,
        /// The manager's state is older than what drives have seen of it: it was restored from a copy.
        StateOlder = 57,
        /// The operation is so old that it is not known whether it was carried out: look, then ask again
        /// under a new number.
        Outdated = 58,
        /// There is no extended attribute of this name, or no layout of the directory's own.
        NoXattr = 59,
        /// The file has as many names as it may.
        TooManyLinks = 60,
        /// The value, or all of them together, are larger than they may be.
        TooLarge = 61,
        /// The name stands for something that is not a file, and so has no bytes on drives.
        NotFile = 62,
        /// The path leads over too many symbolic links, or through one that leaves the volume.
        Loop = 63,
        /// The disk that holds the manager's state is full. Whether the change is stored is not known until
        /// there is room.
        ManagerFull = 64,
        /// The directory would come under other directories' quotas: copy it, and remove it where it was.
        OtherQuota = 65,
        /// The file has been written, so that it can get another layout only by being laid out anew.
        Written = 66,
        /// The place is in a snapshot, and cannot be changed: copy it out.
        SnapshotReadOnly = 67,
        /// The directory has no such snapshot: it was removed, or never made.
        NoSnapshot = 68,
        /// Only the owner of the file or directory, or the superuser, may do this; the token's user is
        /// neither.
        NotOwner = 70,
        /// The volume is encrypted, and the asker has not said that it has its key: get it, then ask again.
        NoKey = 75,
        /// The drive does not have the module: give it, then ask again.
        NoModule = 76,
        /// The module of a user did something wrong, or more than it may.
        ModuleFailed = 77,
        /// A reason of a later version, which only the refusal's text explains. It is never sent.
        Newer = 255,
    }
}

record! {
    /// The body of a refusal reply.
    pub struct Refusal {
        /// The reason, for programs.
        reason: Reason,
        /// An explanation for people: names the thing concerned and the remedy.
        detail: String,
        /// Time after which the asker may ask again, in milliseconds. The asker keeps to pauses of about
        /// this length, without growing them. 0: the refusing peer does not know when.
        again_ms: u32,
        /// Address of the manager that leads, in a refusal with [`Reason::NotLeading`] by a manager that
        /// stands by and knows the leader; else empty.
        leader: String,
    }
}

impl Reason {
    /// Returns true if, after this refusal, the manager does not know whether a change was stored, because
    /// its disk failed or was full.
    pub fn leaves_unknown(self) -> bool {
        matches!(self, Reason::Medium | Reason::ManagerFull)
    }

    /// Returns true if a drive may give this reason without proof, before it has found the capability
    /// valid. An asker must accept no other reason without proof: a forged "no such object", for example,
    /// would make it read zeros.
    pub fn needs_no_proof(self) -> bool {
        matches!(self, Reason::Malformed | Reason::Forged | Reason::Busy | Reason::Closing)
    }
}

impl Refusal {
    /// Creates a refusal with this detail and no time to ask again.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Refusal {
        Refusal { reason, detail: detail.into(), again_ms: 0, leader: String::new() }
    }

    /// Creates the refusal of a manager that stands by, or led before. `leader`: address of the manager that
    /// leads; empty: not known yet.
    pub fn standing_by(leader: impl Into<String>) -> Refusal {
        let leader = leader.into();
        let detail = match leader.as_str() {
            "" => {
                "this manager stands by, and no other leads yet: try again soon, or ask the others".to_owned()
            }
            leader => format!("this manager stands by: {leader} leads, so ask there"),
        };
        Refusal { leader, ..Refusal::new(Reason::NotLeading, detail) }
    }

    /// Adds the time after which the asker may ask again, in milliseconds.
    pub fn again_in(mut self, again_ms: u64) -> Refusal {
        self.again_ms = u32::try_from(again_ms).unwrap_or(u32::MAX);
        self
    }

    /// Creates a [`Reason::Malformed`] refusal with this detail.
    pub(crate) fn malformed(detail: impl Into<String>) -> Refusal {
        Refusal::new(Reason::Malformed, detail)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Refusal {}
