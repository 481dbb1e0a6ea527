//! Open files: layouts, grants, leases, rebuild of one file.

use braid_layout::{
    ColumnMask, DriveId, FileId, Generation, HolderId, ObjectId, ReservationId, Version, VolumeId,
    version::Lease,
};

use super::attributes::{FileAttributes, NewAttributes};
use super::drive::DriveState;
use super::names::{EntryKind, NamePlace};
use super::reservation::HandlePromise;
use super::shape::ShapeSpec;
use crate::addresses::Addresses;
use crate::capability::{Capability, Key};
use crate::data::Receipt;

choice! {
    /// The access that an open asks for.
    pub enum Access {
        /// Reading: capabilities to read.
        Read = 1,
        /// Writing: a lease on the whole file or a range of it, and capabilities to read and write.
        Write = 2,
    }
}

choice! {
    /// The request about turns that a writer makes with a [`Refresh`], besides new capabilities.
    pub enum Turn {
        /// Nothing is asked besides new capabilities.
        Any = 0,
        /// To have the file alone for a while: an exclusive lease. The other holders keep their places.
        Take = 1,
        /// The turn is over: other holders need not wait.
        Give = 2,
    }
}

choice! {
    /// The request about a quota that a writer makes with a [`Refresh`], besides new capabilities.
    pub enum Room {
        /// To have what it needs as far as there is room.
        Keep = 0,
        /// To have what it needs; refused if there is no room.
        Need = 1,
        /// To give back what it does not need.
        GiveBack = 2,
    }
}

record! {
    /// A segment of a file's layout and the states of its columns' drives.
    pub struct SegmentRow {
        /// The segment's number, which is also the number of its objects.
        number: u32,
        /// First byte of the file in the segment.
        start: u64,
        /// One past the last byte; 2^64 - 1 for the last segment.
        end: u64,
        /// The segment's shape; never the default.
        shape: ShapeSpec,
        /// Columns that every write must reach; the other columns are stale.
        set: ColumnMask,
        /// Columns that are being brought up to date.
        joining: ColumnMask,
        /// The columns, `k + m` of them.
        columns: Vec<ColumnRow>,
    }
}

record! {
    /// One column of a segment and its drive's state.
    pub struct ColumnRow {
        /// The drive that holds the column.
        drive: DriveId,
        /// The drive's name.
        drive_name: String,
        /// The component object on the drive.
        object: ObjectId,
        /// Network addresses at which the drive listens.
        addresses: Addresses,
        /// The drive's state.
        state: DriveState,
    }
}

record! {
    /// Everything known of the object that a name stands for. Only a file has segments.
    pub struct StatRow {
        /// The volume that holds the object.
        volume: VolumeId,
        /// Number of the file or other object.
        file: FileId,
        /// The directory of the object's name, or of one of its names; 0 for a root, and for an object
        /// without a name.
        parent: FileId,
        /// The attributes of the object.
        attributes: FileAttributes,
        /// Target of a symbolic link; else empty.
        target: Vec<u8>,
        /// Generation of a file; else 0.
        g: Generation,
        /// The layout of a file; at most [`SEGMENTS_MAX`](crate::codec::SEGMENTS_MAX) segments.
        segments: Vec<SegmentRow>,
        /// Number of the volume's snapshot that shows the object so; 0: it is so now.
        snapshot: u32,
    }
}

impl StatRow {
    /// The kind of the object.
    pub fn kind(&self) -> EntryKind {
        self.attributes.kind
    }

    /// The file's size in bytes; for other kinds the size in their attributes.
    pub fn size(&self) -> u64 {
        self.attributes.size
    }

    /// Time of creation, in milliseconds since 1970; 0 if earlier.
    pub fn created_ms(&self) -> u64 {
        u64::try_from(self.attributes.created_ns / 1_000_000).unwrap_or(0)
    }
}

record! {
    /// A capability for one column, with its private part.
    pub struct Grant {
        /// The public part of the capability.
        capability: Capability,
        /// The private part: a secret of the holder, the manager and the drive.
        private: Key,
    }
}

record! {
    /// A range of a file's bytes.
    pub struct ByteRange {
        /// The first byte of the range.
        from: u64,
        /// One past the last byte; 2^64 - 1: all bytes from the first on.
        to: u64,
    }
}

impl Copy for ByteRange {}

record! {
    /// An open file. `grants[s][c]` is for column `c` of segment `s`; a column that is out has no grant.
    pub struct Opened {
        /// The file's layout, size and generation, and its other attributes.
        stat: StatRow,
        /// The capabilities, by segment and column.
        grants: Vec<Vec<Option<Grant>>>,
        /// The lease under which the file is open; 0 for reads.
        lease: Lease,
        /// Time from the last renewal to the end of the lease, in milliseconds.
        lease_ms: u32,
        /// Manager time at which the capabilities expire, in milliseconds.
        expires_ms: u64,
        /// True if a cut of the file was begun and not ended. Bytes past the size may be left over: they
        /// must be punched, and the cut ended, before anything is written.
        cut: bool,
        /// For writers: true if other clients may write too, so that the lease allows unit writes only. For
        /// readers: true if the file has such a lease now, so that its size may change at any time. For
        /// healers: true if a client writes the file.
        shared: bool,
        /// The lease under which the file was last cut; 0: never. Writes acknowledged under an earlier
        /// lease say nothing about the file's size any more.
        cut_at: Lease,
        /// For writers: the bytes that the lease is for, which no other client writes; other clients may
        /// write other bytes. Absent: the lease is for the whole file.
        range: Option<ByteRange>,
        /// For a drive that fills its columns of a new layout, which are all that it is shown: the version
        /// of all units.
        filling: Option<Version>,
        /// The reserved rate under which the file is open: that of the file or of the nearest directory above
        /// it, if there is one in this direction.
        promise: Option<HandlePromise>,
        /// For writers under a quota: one past the last byte that they may write before they ask for more.
        reach: Option<u64>,
        /// Number of the cluster that the file's objects are in; 0: none.
        cluster: u64,
    }
}

record! {
    /// Makes a file without a name and opens it for writing. The file is removed when its lease ends,
    /// unless it gets a name by [`Link`](super::Link) before.
    pub struct CreateUnnamed {
        /// The volume's name.
        volume: String,
        /// The file's shape; fields left open are those in force at `meant_for`, or of the volume.
        shape: ShapeSpec,
        /// The owner and permissions.
        new: NewAttributes,
        /// The holder of the lease: a random number that stands for the open file.
        holder: HolderId,
        /// Drives that have just refused these bytes because they are full, ascending. The file gets other
        /// drives, as long as there are enough. So do all new files, until the next heartbeats of these
        /// drives.
        avoid: Vec<DriveId>,
        /// The place that the file is meant to get, if it is known. If there is a reservation for writing
        /// there or in a directory above, the file is made and opened under it.
        meant_for: Option<NamePlace>,
        /// True if the asker can deal with sealed bytes: it has the volume's key, or needs none. Else a file
        /// of an encrypted volume is refused with [`Reason::NoKey`](crate::Reason::NoKey).
        takes_sealed: bool,
    }
}

record! {
    /// Opens a file by its path or its number.
    pub struct Open {
        /// The place of the file.
        at: NamePlace,
        /// The access asked for.
        access: Access,
        /// True to make the file if it does not exist (for writing only).
        create: bool,
        /// With `create`: true to fail if the file exists.
        exclusive: bool,
        /// The shape of a new file; fields left open are those of the reservation's plan, else of the nearest
        /// directory above that has a layout, else of the volume.
        shape: ShapeSpec,
        /// The owner and permissions of a new file.
        new: NewAttributes,
        /// The holder of the lease: a random number that stands for the open file.
        holder: HolderId,
        /// True to be the only writer: the open is refused while other clients write the file, and theirs
        /// are refused until it is closed.
        alone: bool,
        /// The bytes to be written: whole stripes; absent: the whole file. As long as all writers of the
        /// file name ranges, and no two ranges have a stripe in common, each writer has an exclusive lease
        /// on its own range.
        range: Option<ByteRange>,
        /// True if the asker can deal with sealed bytes: it has the volume's key, or needs none. Else a file
        /// of an encrypted volume is refused with [`Reason::NoKey`](crate::Reason::NoKey). A writer
        /// of one must be alone.
        takes_sealed: bool,
    }
}

record! {
    /// Gets new capabilities for an open file, in its present generation: after a refusal ("stale
    /// generation", "expired"), or before the old ones expire. Renews the lease. The answer may have
    /// another lease than the one named: when the file becomes shared or stops being shared, its holders
    /// keep their places under a new lease.
    pub struct Refresh {
        /// The open file.
        file: FileId,
        /// The access asked for.
        access: Access,
        /// The lease under which the file is open; 0 for reads.
        lease: Lease,
        /// The holder of the lease.
        holder: HolderId,
        /// The request about turns, if any.
        turn: Turn,
        /// Number of turns of this holder that ended before the write was done for which it takes one: the
        /// next is longer.
        in_vain: u8,
        /// The reservation under which the file is open, if any. It is asked for again only where the file
        /// has no name yet; else the place of the file decides, as it does at an open.
        reservation: ReservationId,
        /// For a writer: one past the last byte that it needs room for under a quota.
        reach: u64,
        /// The request about what the writer has of a quota.
        room: Room,
        /// For a reader: number of the volume's snapshot in which the file is open; 0: in none.
        snapshot: u32,
    }
}

record! {
    /// A holder's part in the lease on a file.
    pub struct HeldLease {
        /// The file that is open.
        file: FileId,
        /// The lease on it.
        lease: Lease,
        /// The holder of the lease.
        holder: HolderId,
    }
}

record! {
    /// Renews the leases of a client's open files.
    pub struct Renew {
        /// The leases of the client's open files.
        leases: Vec<HeldLease>,
    }
}

record! {
    /// The answer to [`Renew`]: all leases named are renewed, except those of the lost holders.
    pub struct Renewed {
        /// Holders that no longer hold the lease they named: they must open the file again.
        lost: Vec<HolderId>,
        /// Holders that are to give back what they do not need of their quota, as others wait for it.
        give_back: Vec<HolderId>,
    }
}

choice! {
    /// The statement of a [`Commit`] about bytes past the size.
    pub enum Cut {
        /// The commit says nothing about them.
        No = 0,
        /// The bytes are being removed, and drives may still hold some. Until the cut ends, the size is the
        /// one given here, whatever the drives hold.
        Begins = 1,
        /// The bytes are removed.
        Ends = 2,
    }
}

record! {
    /// A writer's knowledge of its own writes, sent when it sets the file's size or ends its lease.
    pub struct Backing {
        /// All writes under the lease with stamps below this one are settled and lie within the size. Zero:
        /// nothing is known. Ignored if its lease is not that of the request.
        within: Version,
        /// The highest receipts of drives that have answered the handle's writes, one per drive.
        receipts: Vec<Receipt>,
    }
}

impl Backing {
    /// No knowledge of the writes.
    pub const NONE: Backing = Backing { within: Version::ZERO, receipts: Vec::new() };
}

record! {
    /// Sets the size: after a flush, a truncation, an extension. Durable when answered. While several
    /// holders have the file, the size can only grow, unless a cut begins. Refused with `StaleGeneration`
    /// if the lease was replaced by another one that the asker also holds: then the asker must refresh
    /// first.
    pub struct Commit {
        /// The open file.
        file: FileId,
        /// The lease under which the file is open.
        lease: Lease,
        /// The holder of the lease.
        holder: HolderId,
        /// The new size, in bytes.
        size: u64,
        /// Sequence number of `Link` and `Commit` requests under the lease, rising from 1; a repeated
        /// request keeps its number. If a request with this number or a higher one was carried out already,
        /// the answer is Done and nothing changes.
        order: u64,
        /// The statement about bytes past the size.
        cut: Cut,
        /// Time of the last change of the bytes, in nanoseconds since 1970; absent: now.
        modified_ns: Option<i64>,
        /// The writer's knowledge of its writes.
        backing: Backing,
    }
}

record! {
    /// Reserves `bytes` bytes at the file's end for the asker, which writes there. Reserved bytes that are
    /// not written read as zeros. Durable when answered.
    pub struct ReserveEnd {
        /// The open file.
        file: FileId,
        /// The lease under which the file is open.
        lease: Lease,
        /// The holder of the lease.
        holder: HolderId,
        /// Number of bytes to reserve.
        bytes: u64,
        /// Lowest offset at which the bytes may begin: one past the last byte that the asker has written
        /// already.
        from: u64,
    }
}

record! {
    /// The answer to [`ReserveEnd`].
    pub struct EndReserved {
        /// Offset of the first reserved byte.
        offset: u64,
    }
}

choice! {
    /// The action of an [`Allocate`].
    pub enum AllocateAct {
        /// Keep room free for the range, and for all before it.
        Keep = 1,
        /// Give back what is kept from the range's start on, if nothing is kept past its end.
        GiveBack = 2,
    }
}

record! {
    /// Has the drives keep room free for the bytes of a file that are not written yet: writes there do not
    /// fail for lack of space. Room is kept from the file's start on. It counts under quotas. A drive
    /// without the room has the request refused with [`Full`](crate::Reason::Full), and then none is
    /// kept. May be repeated.
    pub struct Allocate {
        /// The open file.
        file: FileId,
        /// The lease under which the file is open.
        lease: Lease,
        /// The holder of the lease.
        holder: HolderId,
        /// The action: room is kept or given back.
        act: AllocateAct,
        /// First byte of the range.
        from: u64,
        /// One past the last byte.
        to: u64,
    }
}

choice! {
    /// The state of the writes under a lease when it ends, as far as the holder knows.
    pub enum Ending {
        /// Some writes may be unsettled.
        Unclean = 0,
        /// All writes are settled: every drive that was sent any of them has answered. The drives are told
        /// later that they may retire them. The next lease on the file begins with a fence.
        Settled = 1,
        /// All writes are settled, and the drives that were sent any of them have retired them durably and
        /// take no more. The next lease needs no fence.
        Retired = 2,
    }
}

record! {
    /// The end of a lease for one holder.
    pub struct Ended {
        /// The state of the writes under the lease.
        ending: Ending,
        /// One past the last byte that writes under the lease may have left on a drive, including writes
        /// that failed or were given up. If this is past the size, the end counts as unclean.
        end: u64,
        /// Columns of the first segment to which the holder sent anything that may leave an object there;
        /// all columns if the holder does not know. Drives of the other columns have nothing to free for a
        /// new file.
        columns: ColumnMask,
    }
}

record! {
    /// The size that a release sets before the lease ends.
    pub struct Sized {
        /// The new size, in bytes, as in [`Commit`].
        size: u64,
        /// The sequence number, as in [`Commit`].
        order: u64,
        /// Time of the last change of the bytes, as in [`Commit`].
        modified_ns: Option<i64>,
    }
}

impl Copy for Sized {}

record! {
    /// Ends a lease for this holder. If the release also sets the size and that is refused, nothing is
    /// done.
    pub struct Release {
        /// The open file.
        file: FileId,
        /// The lease to end.
        lease: Lease,
        /// The holder of the lease.
        holder: HolderId,
        /// The state of the holder's writes.
        ended: Ended,
        /// The size to commit first, if any.
        commit: Option<Sized>,
        /// The writer's knowledge of its writes; the size that it refers to is the one committed here.
        backing: Backing,
    }
}

record! {
    /// Reports that the writer cannot reach these columns of a segment. The manager takes them out of the
    /// set (once their drives' leases have expired or the drives are known to be dead) and answers with the
    /// new generation, or refuses.
    pub struct ReportLost {
        /// The open file.
        file: FileId,
        /// The lease under which the file is open.
        lease: Lease,
        /// The holder of the lease.
        holder: HolderId,
        /// Index of the segment in the file's layout.
        segment: u32,
        /// The columns that the writer cannot reach.
        columns: ColumnMask,
        /// True if the writer has tried for a long time: the columns go out even if their drives are up and
        /// answer the manager.
        insist: bool,
    }
}

record! {
    /// Lets the file's stale columns on the asking drive join, if they have not joined yet: they become
    /// write targets, beside the file's readers and writers. Columns that the asking drive takes over from
    /// a drive that it replaced move first. The answer has capabilities to read the ready columns, and to
    /// bring those of the asking drive up to date. The request may be repeated whenever a newer answer is
    /// needed.
    pub struct BeginHeal {
        /// The file to heal.
        file: FileId,
        /// Number drawn by the asking drive for a comparison of its columns that begins now. 0: no
        /// comparison begins now; the drive may have begun one before, and writes since then are not known
        /// here.
        comparison: u64,
        /// True if the request is about the columns of a new layout, which the drive fills with the file's
        /// bytes.
        filling: bool,
        /// Number of comparisons that came to nothing because the generation rose meanwhile. If it is not 0,
        /// writers that take turns wait a while, so that the next one comes to its end.
        in_vain: u8,
    }
}

record! {
    /// Reports that the joining columns of the file on the asking drive hold all that the ready ones hold.
    /// The manager then lists them as ready. Refused with
    /// [`Reason::StaleGeneration`](crate::Reason::StaleGeneration) if the generation has risen since, or if
    /// the columns are to take the places of others and the file was written since: then the columns must
    /// be compared again.
    pub struct EndHeal {
        /// The healed file.
        file: FileId,
        /// The generation in which the columns were compared.
        g: Generation,
        /// Number of stripes that were not compared, because they are being written and it did not become
        /// clear what is settled in them.
        left: u64,
        /// Number of the comparison. Another process of the drive may compare the columns too, and have
        /// begun later.
        comparison: u64,
        /// True if the columns are those of a new layout, and are filled. With the last such column, the
        /// new layout takes the place of the old one.
        filling: bool,
    }
}
