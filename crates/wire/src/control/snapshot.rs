//! Snapshots of directories.

use braid_layout::FileId;

use super::names::{EntryKind, NamePlace};

record! {
    /// Makes a snapshot of a directory with all below it, as it is at one moment.
    pub struct SnapshotMake {
        /// The directory; a volume's root stands for the volume.
        at: NamePlace,
        /// The snapshot's name: 1 to 64 ASCII letters, digits, `.`, `_` or `-`, the first a letter or digit.
        name: String,
        /// True if mounts are to write out first what they hold.
        sync: bool,
    }
}

record! {
    /// The answer when a snapshot was made.
    pub struct SnapshotMade {
        /// The snapshot's number in its volume.
        number: u32,
        /// The moment that it shows, in milliseconds of manager time.
        taken_ms: u64,
        /// Files that were open, and whose bytes were kept some time after the moment.
        late: u32,
        /// Longest time for which the writers of any other open file waited, in microseconds.
        pause_us: u64,
    }
}

record! {
    /// Removes a snapshot. What was kept for it alone is freed after.
    pub struct SnapshotRemove {
        /// The directory; a volume's root stands for the volume.
        at: NamePlace,
        /// The snapshot's name.
        name: String,
    }
}

record! {
    /// Lists the snapshots of a directory, or those of all directories of a volume.
    pub struct Snapshots {
        /// The directory; a volume's root stands for all of the volume.
        at: NamePlace,
        /// List from the first snapshot above this number on.
        after: u32,
    }
}

record! {
    /// A snapshot, as in a list.
    pub struct SnapshotRow {
        /// The snapshot's number in its volume.
        number: u32,
        /// The snapshot's name.
        name: String,
        /// URL of the directory.
        place: String,
        /// The moment that it shows, in milliseconds of manager time.
        taken_ms: u64,
        /// Files that were open, and whose bytes were kept some time after the moment.
        late: u32,
        /// Files that were removed or opened for writing since, and whose bytes are kept for this snapshot,
        /// as it is the newest one that shows them.
        files: u64,
        /// Sum of the sizes of these files: drives hold less where a file was changed in part.
        bytes: u64,
        /// True if there may be more such files than were counted.
        more: bool,
    }
}

record! {
    /// The answer to a list of snapshots.
    pub struct SnapshotsReply {
        /// The snapshots, the oldest first.
        snapshots: Vec<SnapshotRow>,
        /// True if there are more: ask again.
        more: bool,
    }
}

record! {
    /// Asks what differs between a directory in a snapshot and the same directory later.
    pub struct SnapshotDiff {
        /// The directory, in the older snapshot.
        from: NamePlace,
        /// The same directory, in a newer snapshot or as it is now.
        to: NamePlace,
        /// A directory whose entries are compared; 0: the first step, which names those directories.
        directory: FileId,
        /// True if that directory is new, or was elsewhere: all of its entries are.
        whole: bool,
        /// The end of the page before; empty: from the beginning.
        after: Vec<u8>,
    }
}

choice! {
    /// Kinds of differences.
    pub enum ChangeKind {
        /// The bytes of a file: it was opened for writing since.
        Modified = 1,
        /// A name that was not there.
        Added = 2,
        /// A name that is gone.
        Removed = 3,
        /// The name of something that is still there, below the directory.
        Renamed = 4,
        /// Permissions, owner, times of a file, or extended attributes.
        Attributes = 5,
        /// Names in a directory: a request with this directory says which were added.
        Entries = 6,
    }
}

record! {
    /// A name below a directory that is compared.
    pub struct NameBelow {
        /// The directory that has the name.
        directory: FileId,
        /// Names that lead to it from the directory that is compared, joined by `/`; empty: that directory.
        path: Vec<u8>,
    }
}

record! {
    /// A difference between two times.
    pub struct ChangeRow {
        /// Kind of the difference.
        change: ChangeKind,
        /// The kind of what is named.
        kind: EntryKind,
        /// Number of the file or directory.
        file: FileId,
        /// Its name in the older snapshot; absent for what was added.
        before: Option<NameBelow>,
        /// Its name later; absent for what was removed.
        after: Option<NameBelow>,
    }
}

record! {
    /// Some differences between two times.
    pub struct SnapshotDiffReply {
        /// The differences of the page.
        changes: Vec<ChangeRow>,
        /// The end of the page: with it the next one is asked for.
        after: Vec<u8>,
        /// True if there are more.
        more: bool,
    }
}

record! {
    /// Counts of snapshots that a schedule keeps: the newest in each of so many hours, days and weeks. It
    /// makes one in each hour if it keeps any of hours, else in each day or week.
    pub struct KeepCounts {
        /// Hours of which one is kept.
        hours: u32,
        /// Days of which one is kept.
        days: u32,
        /// Weeks of which one is kept.
        weeks: u32,
    }
}

impl Copy for KeepCounts {}

record! {
    /// Has the manager make snapshots of a directory by a schedule, in place of the schedule that it has.
    pub struct SnapshotKeep {
        /// The directory; a volume's root stands for the volume.
        at: NamePlace,
        /// The schedule; all zero: none any more. What it made stays.
        keep: KeepCounts,
    }
}

record! {
    /// Lists schedules of snapshots.
    pub struct SnapshotSchedules {
        /// The volume's name; empty: of all volumes.
        volume: String,
    }
}

record! {
    /// A schedule, as in a list.
    pub struct ScheduleRow {
        /// URL of the directory.
        place: String,
        /// Counts of what it keeps.
        keep: KeepCounts,
        /// Snapshots that it has made and that are there.
        there: u32,
        /// Manager time of the next one.
        next_ms: u64,
        /// The reason why the last one could not be made; empty: it was, or none was due.
        problem: String,
    }
}

record! {
    /// The answer to a list of schedules.
    pub struct SnapshotSchedulesReply {
        /// The schedules, by volume and directory.
        schedules: Vec<ScheduleRow>,
    }
}
