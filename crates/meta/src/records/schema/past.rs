//! Snapshots, and the rows of what was before a change that a snapshot covers.

use braid_layout::{FileId, Generation, ObjectId};
use braid_wire::control::{EntryKind, KeepCounts, Xattr};
use braid_wire::{DecodeError, Wire, record};

record! {
    /// The snapshots of a volume in all. A volume that never had one has no such row.
    pub struct HistoryRecord {
        /// The newest number that a snapshot was given. None is given twice.
        newest: u32,
        /// Snapshots that are there.
        snapshots: u32,
        /// Frozen files, and the sum of their sizes.
        past_files: u64,
        past_bytes: u64,
    }
}
record! {
    /// A snapshot of a directory.
    pub struct SnapshotRecord {
        /// The directory that it shows, with all below it.
        root: FileId,
        name: String,
        /// Manager time of the moment that it shows.
        taken_ms: u64,
        /// True once it was removed: it shows nothing any more, and what was kept for it is being freed.
        going: bool,
        /// Number of files whose bytes were frozen after the moment.
        late: u32,
        /// True if the directory's schedule made it, and may remove it.
        scheduled: bool,
    }
}
record! {
    /// A schedule by which snapshots of a directory are made and removed.
    pub struct ScheduleRecord {
        /// Counts of what it keeps.
        keep: KeepCounts,
        /// Manager time of the next snapshot.
        next_ms: u64,
        /// The reason why the last one could not be made; empty: it was.
        problem: String,
    }
}
record! {
    /// A file, directory or node as it was, but for its bytes.
    pub struct PastInode {
        /// Snapshots above this number, up to the one in the key, see it.
        epoch: u32,
        /// The roots of the snapshots that cover it; 0: any root.
        roots: Vec<FileId>,
        /// Its row in `i`, without a layout, lease and generation.
        row: Vec<u8>,
        xattrs: Vec<Xattr>,
    }
}
record! {
    /// The bytes of a file as they were.
    pub struct PastBytes {
        /// Snapshots above this number, up to the one in the key, see them.
        epoch: u32,
        /// The roots of the snapshots that cover them; 0: any root.
        roots: Vec<FileId>,
        /// The frozen file that has them.
        data: FileId,
    }
}
record! {
    /// A name as it was.
    pub struct PastEntry {
        kind: EntryKind,
        file: FileId,
        /// Snapshots above this number, up to the one in the key, see it.
        since: u32,
        /// The roots of the snapshots that cover it; 0: any root.
        roots: Vec<FileId>,
    }
}

/// The file, directory or other node that a name in a directory stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRecord {
    /// Kind of the node, the same as in its own record.
    pub kind: EntryKind,
    /// Number of the node's record in the table `i`.
    pub file: FileId,
    /// The newest snapshot of the volume when the entry was made: later ones see it.
    pub since: u32,
}

impl EntryRecord {
    /// The entry of a file or node, to be put into a directory.
    pub fn of(kind: EntryKind, file: FileId) -> EntryRecord {
        EntryRecord { kind, file, since: 0 }
    }
}

impl Wire for EntryRecord {
    const BYTES_MIN: usize = EntryKind::BYTES_MIN + FileId::BYTES_MIN;
    fn put(&self, out: &mut Vec<u8>) {
        self.kind.put(out);
        self.file.put(out);
        if self.since != 0 {
            self.since.put(out);
        }
    }
    fn take(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let kind = EntryKind::take(input)?;
        let file = FileId::take(input)?;
        if input.is_empty() {
            return Ok(EntryRecord { kind, file, since: 0 });
        }
        match u32::take(input)? {
            0 => Err(DecodeError::Value { field: "since", value: 0 }),
            since => Ok(EntryRecord { kind, file, since }),
        }
    }
}

/// A freeze of a file's bytes that was begun and is not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freezing {
    /// The frozen file that is to be.
    pub data: FileId,
    /// Its first generation: that of the file, which no stamp of what it has is above.
    pub g: Generation,
    /// The objects that it is to have on the drives, one for each segment in force, in their order.
    pub objects: Vec<ObjectId>,
}
