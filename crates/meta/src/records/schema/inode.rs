//! A file's record, and the questions that it answers alone. `stored` has its encoding.

use braid_layout::version::Lease;
use braid_layout::{Column, ColumnMask, FileId, Generation, HolderId, TokenId, Version, VolumeId};
use braid_wire::control::{Clustering, EntryKind, FileAttributes, NewAttributes, ShapeSpec};

use super::{ComponentPlace, Freezing, SegmentRecord};

/// Nanoseconds in a millisecond.
const NS: i64 = 1_000_000;

/// The set-group-ID bit: a file made in a directory that has the bit gets the directory's group.
const SET_GROUP_ID: u32 = 0o2000;

/// Maximum number of holders that are remembered as gone. The newest are kept.
const GONE_MAX: usize = 256;

/// A file, a directory, or anything else that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InodeRecord {
    pub volume: VolumeId,
    /// Kind of the node: file, directory, symbolic link and so on.
    pub kind: EntryKind,
    /// The directory that has its name; 0 for a root and for a file without a name.
    pub parent: FileId,
    /// Name in that directory. Further names are in a table of their own.
    pub name: Vec<u8>,
    /// Size in bytes, as the last writer said.
    pub size: u64,
    /// One past the last byte that was reserved for an appending client, while that is past the size; else 0.
    /// `size` grows when the bytes written there are committed.
    pub reserved: u64,
    /// Under a quota: one past the last byte to which the writers of the lease that is held may make the file
    /// grow without asking again.
    pub reach: Option<u64>,
    /// One past the last byte for which the drives keep room free, from the file's start on; 0: for none.
    pub allocated: u64,
    /// Manager time of creation, in milliseconds.
    pub created_ms: u64,
    pub times: Times,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Number of names beyond the first; for a directory, the number of directories in it.
    pub more_links: u32,
    /// Device number of a device node; else 0.
    pub device: u32,
    /// A symbolic link's target; else empty.
    pub target: Vec<u8>,
    /// Sum of the lengths of the names and values of the extended attributes.
    pub xattr_bytes: u32,
    /// The file's generation; 0 for a directory.
    pub g: Generation,
    /// Number of the last lease that was granted.
    pub lease: Lease,
    /// True while that lease was neither released nor recovered from.
    pub held: bool,
    /// The holder that has the lease, released it, or had it before it was shared; 0 if the lease was
    /// recovered from, or must be recovered from after a restore.
    pub holder: HolderId,
    /// True if the lease's holder asked to write alone: the lease is not shared.
    pub alone: bool,
    /// True if the lease is shared: its holders make unit writes only.
    pub shared: bool,
    /// The exclusive lease that was shared first: holders may name that one and all later ones. 0: none was
    /// shared since the last grant. If no lease is held: the drives may not have retired the writes
    /// under this lease and later ones, and a fence comes before the next lease.
    pub since: Lease,
    /// Ranges that holders asked for which write a part of the file only. If any holder has a lease here, all
    /// writers have one: the file's lease is divided among them, each on its own stripes.
    pub parts: Vec<PartRecord>,
    /// Holders of the lease that were fenced out of it while others went on. After a restart, when the
    /// holders of the lease are not known, these are not taken for holders.
    pub gone: Vec<HolderId>,
    /// The lease under which the file was last cut short; 0: never.
    pub cut_at: Lease,
    /// True while a cut of the file was begun and not finished: bytes beyond the size may remain, and the
    /// size on record is right.
    pub cut: bool,
    /// For the lease that is held: all writes of this version's lease that are below this version lie within
    /// the size on record. Zero: nothing is known.
    pub within: Version,
    /// Order number of the last Link or Commit carried out under this lease; 0 if there was none.
    pub order: u64,
    /// The columns that anything was ever sent to, as all writers have said at the end of their leases.
    /// Valid as long as no other client could make an object: see [`InodeRecord::holds`] and
    /// [`InodeRecord::all_touched`].
    pub touched: Option<ColumnMask>,
    /// True if the file may be open somewhere, though it has no name and no lease: it lives until it is
    /// closed there.
    pub kept: bool,
    /// True while `g` is stored here and may not yet be on every column of the set: the fence must be run
    /// (again).
    pub unfenced: bool,
    /// Shape of new files in a directory and below it, with no field left open; `None` if the directory has
    /// no layout of its own. A volume's root has none: the volume's record has it.
    pub layout: Option<ShapeSpec>,
    /// Of a directory: the small files that are placed near each other, in it and below. `None`: what holds
    /// above counts.
    pub clustering: Option<Clustering>,
    /// Of a file: number of its cluster, whose files are placed near each other; 0: it has none.
    pub cluster: u64,
    /// True for a file of an encrypted volume: drives hold sealed bytes, and the size is theirs.
    pub sealed: bool,
    /// Snapshots above this number see the record as it is, but for the file's bytes. Set by
    /// [`Tx::set_inode`](crate::records::tx::Tx::set_inode) alone.
    pub epoch: u32,
    /// Snapshots above this number see the file's bytes as they are.
    pub bytes_epoch: u32,
    /// Snapshots up to this number may cover the file's bytes, or what is below the directory, as their roots
    /// are above places where it was before.
    pub moved: u32,
    /// The file whose bytes as they were this frozen file has; 0: it is no frozen file.
    pub frozen: FileId,
    /// The freeze of the file's bytes that was begun: no one may write before it has ended.
    pub freezing: Option<Freezing>,
    /// The token with which the lease was taken that is held, if one holder has it; none: not known.
    pub token: TokenId,
    /// Layout of the file; empty for a directory.
    pub segments: Vec<SegmentRecord>,
}

/// Times of the last read and of the last changes, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// Last read, as far as clients have said.
    pub accessed_ns: i64,
    /// Last change of the file's bytes or the directory's entries, or the time that a client set.
    pub modified_ns: i64,
    /// Last change of anything, in manager time.
    pub changed_ns: i64,
}

/// A range of a file that one holder writes, or asks to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRecord {
    pub holder: HolderId,
    /// Exclusive lease on the range; 0: it was asked for, and is not granted.
    pub lease: Lease,
    pub from: u64,
    /// One past the last byte; 2^64 - 1: the range has no end.
    pub to: u64,
}

/// Converts manager time from milliseconds to nanoseconds.
pub fn ns(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(NS)
}

impl Times {
    /// All three times at this manager time.
    pub fn at(ms: u64) -> Times {
        Times { accessed_ns: ns(ms), modified_ns: ns(ms), changed_ns: ns(ms) }
    }

    /// Records that the content (bytes or entries) changed now.
    pub fn modified(&mut self, now_ms: u64) {
        self.modified_ns = ns(now_ms);
        self.changed(now_ms);
    }

    /// Records that something changed now. Each change gets a time of its own, so that two states can be told
    /// apart.
    pub fn changed(&mut self, now_ms: u64) {
        self.changed_ns = ns(now_ms).max(self.changed_ns.saturating_add(1));
    }
}

/// Permission bits of a new node whose creator gave none.
pub fn usual_mode(kind: EntryKind) -> u32 {
    match kind {
        EntryKind::Directory => 0o755,
        EntryKind::Symlink => 0o777,
        _ => 0o644,
    }
}

impl InodeRecord {
    /// The attributes that clients see.
    pub fn attributes(&self) -> FileAttributes {
        let links = match self.kind {
            EntryKind::Directory => self.more_links.saturating_add(2),
            _ => self.more_links + u32::from(self.is_named()),
        };
        FileAttributes {
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            links,
            size: self.size,
            device: self.device,
            has_xattrs: self.xattr_bytes > 0 || self.layout.is_some(),
            accessed_ns: self.times.accessed_ns,
            modified_ns: self.times.modified_ns,
            changed_ns: self.times.changed_ns,
            created_ns: ns(self.created_ms),
            sealed: self.sealed,
        }
    }

    /// Takes over the attributes that its creator gave, and what `directory` passes on.
    pub fn take(&mut self, new: &NewAttributes, directory: &InodeRecord) {
        (self.mode, self.uid, self.gid) = (new.mode, new.uid, new.gid);
        self.inherit(directory);
    }

    /// Takes over what the directory of its first name passes on to new nodes: the group, if it has the
    /// set-group-ID bit.
    pub fn inherit(&mut self, directory: &InodeRecord) {
        if directory.mode & SET_GROUP_ID != 0 {
            self.gid = directory.gid;
            if self.kind == EntryKind::Directory {
                self.mode |= SET_GROUP_ID;
            }
        }
    }

    /// Returns true if the node has a name in a directory, or is a volume's root.
    pub fn is_named(&self) -> bool {
        self.kind == EntryKind::Directory || self.parent != FileId(0)
    }

    /// Returns true if the file has the bytes of a past file.
    pub fn is_frozen(&self) -> bool {
        self.frozen != FileId(0)
    }

    /// Returns true if the file was removed, as clients see it: it is there for snapshots alone.
    pub fn is_past(&self) -> bool {
        self.is_frozen() && !self.kept
    }

    /// Returns true if the file outlives its lease: it has a name, may be open somewhere, or is of a
    /// snapshot.
    pub fn lives(&self) -> bool {
        self.is_named() || self.kept || self.is_frozen()
    }

    /// Returns true if a name or a snapshot leads to the file's bytes.
    pub fn is_reached(&self) -> bool {
        self.is_named() || self.is_frozen() || self.freezing.is_some()
    }

    /// Returns true if the manager must not forget the file: it has a lease, an open procedure or freeze, or
    /// no name.
    pub fn needs_attention(&self) -> bool {
        self.held || self.unfenced || self.freezing.is_some() || !(self.is_named() || self.is_past())
    }

    /// The record as a snapshot keeps it: what users see, without the bytes.
    pub fn seen(&self) -> InodeRecord {
        let InodeRecord {
            size, times, mode, uid, gid, more_links, device, xattr_bytes, kind, sealed, ..
        } = *self;
        let target = self.target.clone();
        let layout = self.layout.clone();
        let blank = directory_record(self.volume, self.parent, self.name.clone(), self.created_ms);
        InodeRecord {
            kind,
            size,
            times,
            mode,
            uid,
            gid,
            more_links,
            device,
            target,
            xattr_bytes,
            layout,
            sealed,
            ..blank
        }
    }

    /// Returns true if the file's lease has no holder and must still be ended. Until then the size is not
    /// known. A restore leaves files in this state.
    pub fn is_left(&self) -> bool {
        self.held && self.holder == HolderId::NONE
    }

    /// Clears the reservation for appends if the size has grown past it.
    pub fn forget_reached(&mut self) {
        if self.reserved <= self.size {
            self.reserved = 0;
        }
    }

    /// Bytes with which the file counts under quotas.
    pub fn charged(&self) -> u64 {
        self.size.max(self.reach.unwrap_or(0)).max(self.allocated)
    }

    /// Bytes that each column of the segment keeps free on its drive until they are written: those of the
    /// stripes before the end of what is allocated.
    pub fn kept_free(&self, segment: &SegmentRecord) -> u64 {
        let unit_bytes = u64::from(segment.shape.unit_bytes);
        let stripe_bytes = unit_bytes * u64::from(segment.shape.k).max(1);
        let bytes = self.allocated.min(segment.end).saturating_sub(segment.start);
        bytes.div_ceil(stripe_bytes.max(1)).saturating_mul(unit_bytes)
    }

    /// The segment of this number.
    pub fn segment(&self, number: u32) -> Option<&SegmentRecord> {
        self.segments.iter().find(|segment| segment.number == number)
    }

    /// The segment of this number, to be changed.
    pub fn segment_mut(&mut self, number: u32) -> Option<&mut SegmentRecord> {
        self.segments.iter_mut().find(|segment| segment.number == number)
    }

    /// The segments that hold the file's bytes.
    pub fn in_force(&self) -> impl Iterator<Item = &SegmentRecord> {
        self.segments.iter().filter(|segment| segment.filling.is_none())
    }

    /// The segment that is being filled to take the place of the others.
    pub fn filling(&self) -> Option<&SegmentRecord> {
        self.segments.iter().find(|segment| segment.filling.is_some())
    }

    /// Returns true if all writes of this version lie within the size on record, so that drives that hold
    /// such writes say nothing more about the size. That is so for all leases that have ended: a clean end
    /// says it, and after any other end the size was settled.
    pub fn covers(&self, version: Version) -> bool {
        let first = if self.since == Lease(0) { self.lease } else { self.since };
        let is_over = version.lease < first || !self.held && version.lease <= self.lease;
        is_over || version.lease == self.within.lease && version < self.within
    }

    /// The value of `within` that covers all writes of the lease.
    pub fn whole_lease(&self) -> Version {
        Version { g: Generation(u32::MAX), lease: self.lease, n: u64::MAX }
    }

    /// Returns true if one holder had the file alone under this lease and under those that it follows on.
    pub fn has_file_alone(&self) -> bool {
        self.since == Lease(0) && !self.shared && !self.is_parted()
    }

    /// Adjusts the record in a restored state, which does not know what became of the lease: from now on the
    /// lease counts as held if `held` says so.
    pub fn restored(&mut self, held: bool) {
        self.within = match (self.cut, self.held) {
            (true, _) => Version::ZERO,
            (false, true) => self.within,
            (false, false) => self.whole_lease(),
        };
        (self.held, self.holder, self.unfenced) = (held, HolderId::NONE, held);
        // A cut that was under way when the backup was made has ended since, and bytes may have been written
        // beyond it: to end the cut again would remove them.
        self.cut = false;
        // The writers may have been given more since.
        self.reach = None;
    }

    /// Records that these holders are fenced out of the lease.
    pub fn goes_on_without(&mut self, gone: &[HolderId]) {
        self.gone.retain(|holder| !gone.contains(holder));
        self.gone.extend(gone);
        let too_many = self.gone.len().saturating_sub(GONE_MAX);
        self.gone.drain(..too_many);
    }

    /// Returns true if only the file's creator was ever allowed to write to it.
    pub fn has_one_writer(&self) -> bool {
        self.g == Generation(1)
            && self.lease == Lease(1)
            && self.since == Lease(0)
            && !self.shared
            && self.parts.is_empty()
    }

    /// The columns that anything was ever sent to, if that is known: the file is not leased, no fence has cut
    /// off a writer, and the file has its first layout.
    pub fn all_touched(&self) -> Option<ColumnMask> {
        let is_first = self.segments.len() == 1 && self.segment(0).is_some();
        self.touched.filter(|_| self.g == Generation(1) && !self.held && is_first)
    }

    /// Returns true if the drive of a component may have an object of it. False only for a file that was
    /// written once and has stayed where it was: every later lease, fence, rebuild and move changes its
    /// record. A column that is out may have got an object when its drive returned.
    pub fn holds(&self, place: &ComponentPlace) -> bool {
        let is_untouched = self.g == Generation(1) && self.lease == Lease(1) && !self.held;
        match (self.touched, self.segment(0)) {
            (Some(touched), Some(first)) if is_untouched && place.segment == 0 => {
                touched.contains(place.column) || !first.set.contains(place.column)
            }
            _ => true,
        }
    }

    /// Places of the file's components, segment by segment and column by column.
    pub fn places(&self, file: FileId) -> impl Iterator<Item = ComponentPlace> + '_ {
        self.segments.iter().flat_map(move |segment| {
            segment.drives.iter().zip(0u8..).map(move |(&drive, column)| ComponentPlace {
                drive,
                file,
                segment: segment.number,
                column: Column(column),
            })
        })
    }
}

/// The record of a new directory.
pub fn directory_record(volume: VolumeId, parent: FileId, name: Vec<u8>, now_ms: u64) -> InodeRecord {
    InodeRecord {
        volume,
        kind: EntryKind::Directory,
        parent,
        name,
        size: 0,
        reserved: 0,
        reach: None,
        allocated: 0,
        created_ms: now_ms,
        times: Times::at(now_ms),
        mode: usual_mode(EntryKind::Directory),
        uid: 0,
        gid: 0,
        more_links: 0,
        device: 0,
        target: Vec::new(),
        xattr_bytes: 0,
        g: Default::default(),
        lease: Default::default(),
        held: false,
        holder: HolderId::NONE,
        alone: false,
        shared: false,
        since: Default::default(),
        parts: Vec::new(),
        gone: Vec::new(),
        cut_at: Default::default(),
        touched: None,
        cut: false,
        within: Default::default(),
        order: 0,
        kept: false,
        unfenced: false,
        layout: None,
        clustering: None,
        cluster: 0,
        sealed: false,
        epoch: 0,
        bytes_epoch: 0,
        moved: 0,
        frozen: FileId(0),
        freezing: None,
        token: TokenId::NONE,
        segments: Vec::new(),
    }
}
