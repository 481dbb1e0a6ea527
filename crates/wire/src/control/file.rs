//! Open files: layouts, grants, leases, rebuild of one file.

use braid_layout::{ColumnMask, DriveId, FileId, Generation, ObjectId, Version, VolumeId, version::Lease};

use super::attributes::{FileAttributes, NewAttributes};
use super::drive::DriveState;
use super::names::{EntryKind, Place};
use super::shape::ShapeSpec;
use crate::capability::{Capability, Key};
use crate::data::Receipt;

choice! {
    /// What an open asks for.
    pub enum Access {
        /// Capabilities to read.
        Read = 1,
        /// A lease on the whole file, and capabilities to read and write.
        Write = 2,
    }
}

choice! {
    /// What a [`Refresh`] by a writer asks for besides new capabilities.
    pub enum Turn {
        /// Nothing.
        Any = 0,
        /// To have the file for itself for a while: an exclusive lease. The other holders keep their places.
        Take = 1,
        /// The turn is over: others need not wait.
        Give = 2,
    }
}

record! {
    /// A segment and what its columns' drives are doing.
    pub struct SegmentRow {
        /// Its number, which its objects bear.
        number: u32,
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
    /// What a name stands for, in full. What is no file has no segments.
    pub struct StatRow {
        /// The volume.
        volume: VolumeId,
        /// Its number.
        file: FileId,
        /// The directory of its name, or of one of them; 0 for a root, and for what has no name.
        parent: FileId,
        /// What is known of it.
        attributes: FileAttributes,
        /// A symbolic link's target; else empty.
        target: Vec<u8>,
        /// The file's generation; 0 for what is no file.
        g: Generation,
        /// Its layout; at most [`SEGMENTS_MAX`](crate::codec::SEGMENTS_MAX).
        segments: Vec<SegmentRow>,
    }
}

impl StatRow {
    /// What it is.
    pub fn kind(&self) -> EntryKind {
        self.attributes.kind
    }

    /// The file's size; of what is no file that of its attributes.
    pub fn size(&self) -> u64 {
        self.attributes.size
    }

    /// When it was made, in milliseconds.
    pub fn created_ms(&self) -> u64 {
        u64::try_from(self.attributes.created_ns / 1_000_000).unwrap_or(0)
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
    /// A range of a file's bytes.
    pub struct ByteRange {
        /// The first byte.
        from: u64,
        /// One past the last; 2^64 - 1: all from the first on.
        to: u64,
    }
}

impl Copy for ByteRange {}

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
        /// A cut of the file was begun and not ended. Bytes past the size may be left over: they must be
        /// punched, and the cut ended, before anything is written.
        cut: bool,
        /// For writers: others may write too, and unit writes are all that the lease is for. For readers: it
        /// has such a lease now, so its size may change at any time. For healers: somebody writes it.
        shared: bool,
        /// The lease under which the file was cut last; what was acknowledged under an earlier one says
        /// nothing about its size any more. 0: never.
        cut_at: Lease,
        /// For writers: the lease is for these bytes, which nobody else writes; others may write others.
        /// Absent: for the whole file.
        range: Option<ByteRange>,
        /// For a drive that fills its columns of a new layout, which is all that it is shown: the version of
        /// all units.
        filling: Option<Version>,
    }
}

record! {
    /// Makes a file without a name and opens it for writing. The file is removed when its lease ends, unless
    /// it was linked before.
    pub struct CreateUnnamed {
        /// The volume's name.
        volume: String,
        /// The file's shape.
        shape: ShapeSpec,
        /// Whose it is.
        new: NewAttributes,
        /// Who holds the lease: a random number of the open file.
        holder: u64,
        /// Drives that have just refused these bytes because they are full, ascending. The file gets other
        /// drives, as long as there are enough. So do all new files, until the next heartbeats of these
        /// drives.
        avoid: Vec<DriveId>,
    }
}

record! {
    /// Opens a file by path, or by its number.
    pub struct Open {
        /// Where it is.
        at: Place,
        /// What for.
        access: Access,
        /// Make it if it is not there (write only).
        create: bool,
        /// With `create`: fail if it is there.
        exclusive: bool,
        /// For a new file.
        shape: ShapeSpec,
        /// For a new file: whose it is.
        new: NewAttributes,
        /// Who holds the lease: a random number of the open file.
        holder: u64,
        /// To write it alone: refused while others write it, as they are until it is closed.
        alone: bool,
        /// To write these bytes only: whole stripes. As long as all who write the file say so, and no two
        /// mean the same stripe, each has an exclusive lease on its own.
        range: Option<ByteRange>,
    }
}

record! {
    /// Gets new capabilities for an open file, in its present generation: after a refusal ("stale
    /// generation", "expired"), or before the old ones expire. Renews the lease. The answer may have another
    /// lease than the one named: where the file is shared, or was, holders keep their places when that
    /// changes.
    pub struct Refresh {
        /// The file.
        file: FileId,
        /// What for.
        access: Access,
        /// The lease it is open under; 0 for reads.
        lease: Lease,
        /// Its holder.
        holder: u64,
        /// What else.
        turn: Turn,
    }
}

record! {
    /// A holder's part in a file's lease.
    pub struct Held {
        /// The file.
        file: FileId,
        /// The lease.
        lease: Lease,
        /// Its holder.
        holder: u64,
    }
}

record! {
    /// Renews the leases of a client's open files.
    pub struct Renew {
        /// All of them.
        leases: Vec<Held>,
    }
}

record! {
    /// The leases are renewed, but for these.
    pub struct Renewed {
        /// Holders that hold what they named no more: they open the file again.
        lost: Vec<u64>,
    }
}

choice! {
    /// What a [`Commit`] says about bytes past its size.
    pub enum Cut {
        /// Nothing.
        No = 0,
        /// They are being removed, and drives may still hold some. Until the cut ends, the size is the one
        /// given here, whatever the drives hold.
        Begins = 1,
        /// They are removed.
        Ends = 2,
    }
}

record! {
    /// What a writer knows of its writes when it says how large the file is, or that it is done.
    pub struct Backing {
        /// All writes under the lease with stamps below this one are settled and lie within the size. Zero:
        /// nothing is said. That of another lease than the request's is passed over.
        within: Version,
        /// The highest receipts of drives that have answered the handle's writes, one per drive.
        receipts: Vec<Receipt>,
    }
}

impl Backing {
    /// Says nothing.
    pub const NONE: Backing = Backing { within: Version::ZERO, receipts: Vec::new() };
}

record! {
    /// Sets the size: after a flush, a truncation, an extension. Durable when answered. While several
    /// hold the file it makes the size larger only, unless it begins a cut. Refused with
    /// `StaleGeneration` if the lease was replaced by another that the asker holds too: refresh first.
    pub struct Commit {
        /// The file.
        file: FileId,
        /// The lease it is open under.
        lease: Lease,
        /// Its holder.
        holder: u64,
        /// The new size.
        size: u64,
        /// Rises with every `Link` or `Commit` under the lease, from 1; a repeated request keeps its number.
        /// If a request with this number or a higher one was carried out already, the answer is Done and
        /// nothing changes.
        order: u64,
        /// What happens to bytes past the size.
        cut: Cut,
        /// When the bytes changed last; absent: now.
        modified_ns: Option<i64>,
        /// What is known of the writes.
        backing: Backing,
    }
}

record! {
    /// Gives `bytes` bytes at the file's end to the asker, who writes there: what was reserved and is not
    /// written reads as zeros. Durable when answered.
    pub struct Reserve {
        /// The file.
        file: FileId,
        /// The lease it is open under.
        lease: Lease,
        /// Its holder.
        holder: u64,
        /// How many.
        bytes: u64,
        /// Where they begin at least: one past what the asker has written already.
        from: u64,
    }
}

record! {
    /// What was reserved.
    pub struct Reserved {
        /// The first byte.
        offset: u64,
    }
}

choice! {
    /// How a lease ends, by what its holder knows of what was written under it.
    pub enum Ending {
        /// Something may be unsettled.
        Unclean = 0,
        /// All of it is settled: every drive that was sent any of it has answered. The drives are told later
        /// that they may retire it. The next lease on the file begins with a fence.
        Settled = 1,
        /// All of it is settled, and the drives that were sent any of it have retired it durably and take no
        /// more. The next lease needs no fence.
        Retired = 2,
    }
}

record! {
    /// The end of a lease, for one holder.
    pub struct Ended {
        /// How.
        ending: Ending,
        /// One past the last byte that writes under the lease may have left on a drive, including writes that
        /// failed or were given up. If this is past the size, the end counts as unclean.
        end: u64,
        /// Columns of the first segment to which anything was sent that may leave an object there. Who does
        /// not know says all. Of a new file the drives of the others have nothing to free.
        columns: ColumnMask,
    }
}

record! {
    /// A size that a release sets first.
    pub struct Sized {
        /// As in [`Commit`].
        size: u64,
        /// As in [`Commit`].
        order: u64,
        /// As in [`Commit`].
        modified_ns: Option<i64>,
    }
}

impl Copy for Sized {}

record! {
    /// Ends a lease, for this holder. If it sets the size and that is refused, nothing is done.
    pub struct Release {
        /// The file.
        file: FileId,
        /// The lease.
        lease: Lease,
        /// Its holder.
        holder: u64,
        /// How.
        ended: Ended,
        /// Commits this size first.
        commit: Option<Sized>,
        /// What is known of the writes; what it says of the size is for the one that is committed here.
        backing: Backing,
    }
}

record! {
    /// The writer cannot reach these columns of a segment. The manager takes them out of the set (once their
    /// drives' leases have lapsed or they are known to be dead) and answers with the new generation, or
    /// refuses.
    pub struct ReportLost {
        /// The file.
        file: FileId,
        /// The lease it is open under.
        lease: Lease,
        /// Its holder.
        holder: u64,
        /// The segment's index.
        segment: u32,
        /// The columns it cannot reach.
        columns: ColumnMask,
        /// It has tried for long: they go out even if their drives are up and answer the manager.
        insist: bool,
    }
}

record! {
    /// Lets the file's stale columns on the asking drive join, if they have not joined yet: they become write
    /// targets, beside its readers and writers. Columns that the asking drive takes over from one that it
    /// replaced move first. The answer has capabilities to read the ready columns, and to bring those of the
    /// asking drive up to date. It may be asked again whenever a newer answer is needed.
    pub struct BeginHeal {
        /// The file.
        file: FileId,
        /// The asking drive begins to compare its columns now, under this number, which it has drawn. 0: it
        /// does not; it may have begun before, and what was written since then is not known here.
        comparison: u64,
        /// It is about the columns of a new layout, which the drive fills with the file's bytes.
        filling: bool,
    }
}

record! {
    /// The joining columns of the file on the asking drive hold all that the ready ones hold: the manager
    /// lists them as ready. Refused with [`Reason::StaleGeneration`](crate::Reason::StaleGeneration) if the
    /// generation has risen since, or if the columns are to take the places of others and the file was
    /// written since: they must be compared again.
    pub struct EndHeal {
        /// The file.
        file: FileId,
        /// The generation in which they were compared.
        g: Generation,
        /// Stripes that were not compared, as what is settled in them did not become clear: they are being
        /// written.
        left: u64,
        /// The number under which they were compared. Another process of the drive may compare them too, and
        /// have begun later.
        comparison: u64,
        /// They are columns of a new layout, and filled. With the last one, it takes the place of the old.
        filling: bool,
    }
}
