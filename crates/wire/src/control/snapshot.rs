//! Snapshots of directories.

use super::names::NamePlace;

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
