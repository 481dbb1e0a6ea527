//! A file's record, and what it says at a glance. `stored` has its bytes.

use braid_layout::version::Lease;
use braid_layout::{Column, ColumnMask, FileId, Generation, Version, VolumeId};
use braid_wire::control::{EntryKind, FileAttributes, NewAttributes};

use super::{ComponentPlace, SegmentRecord};

/// Nanoseconds in a millisecond.
const NS: i64 = 1_000_000;

/// The set-group-ID bit: what is made in a directory that has it gets the directory's group.
const SET_GROUP_ID: u32 = 0o2000;

/// Most holders that are remembered as gone; the newest are.
const GONE_MAX: usize = 256;

/// A file, a directory, or anything else that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InodeRecord {
    pub volume: VolumeId,
    /// What it is.
    pub kind: EntryKind,
    /// The directory it is named in; 0 for a root and for a file without a name.
    pub parent: FileId,
    /// Its name there. If it has more names, they are in a table of their own.
    pub name: Vec<u8>,
    /// Bytes, as the last writer said.
    pub size: u64,
    /// One past the last byte that was given to somebody who appends, while that is past the size; else 0.
    /// Its size the file has when what was written there is committed.
    pub reserved: u64,
    /// Manager time of its creation.
    pub created_ms: u64,
    pub times: Times,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Names that it has beyond one; of a directory, directories in it.
    pub more_links: u32,
    /// The number of a device node; else 0.
    pub device: u32,
    /// A symbolic link's target; else empty.
    pub target: Vec<u8>,
    /// Bytes of the names and values of its extended attributes.
    pub xattr_bytes: u32,
    /// Its generation; 0 for a directory.
    pub g: Generation,
    /// The last lease granted.
    pub lease: Lease,
    /// Whether that lease was neither released nor recovered from.
    pub held: bool,
    /// Who has or released it, or had it before it was shared; 0 if it was recovered from, or must be
    /// recovered from after a restore.
    pub client: u64,
    /// The lease's holder asked to write alone: it is not shared.
    pub alone: bool,
    /// The lease is shared: its holders make unit writes only.
    pub shared: bool,
    /// The exclusive lease that was shared first: holders may name that one and all later ones. 0:
    /// none was since the last grant. Of a file that nobody holds: the drives may not have retired what was
    /// written under this lease and later ones, and a fence comes before the next.
    pub since: Lease,
    /// What holders asked for that write a part of the file only. If any has a lease here, all who write
    /// have, and the file's lease is theirs, each on its own stripes.
    pub parts: Vec<PartRecord>,
    /// Holders of the lease that were fenced out of it while others went on. After a restart, when it is not
    /// known who holds the lease, nobody takes them for holders.
    pub gone: Vec<u64>,
    /// The lease under which it was cut short last; 0: never.
    pub cut_at: Lease,
    /// Cutting the file short was begun and not finished: bytes beyond the size may remain, and the size
    /// on record is right.
    pub cut: bool,
    /// Of the lease that is held: all writes under this version's lease below it lie within the size on
    /// record. Zero: nothing is known.
    pub within: Version,
    /// The order of the last Link or Commit carried out under this lease; 0 if there was none.
    pub order: u64,
    /// The columns that anything was ever sent to, as all who wrote have said at the end of their leases.
    /// Counts as long as nobody else could make an object: see [`InodeRecord::holds`] and
    /// [`InodeRecord::all_touched`].
    pub touched: Option<ColumnMask>,
    /// It may be open somewhere, though it has no name and no lease: it lives until it is closed there.
    pub kept: bool,
    /// `g` is stored here and may not yet be on every column of the set: the fence must be run (again).
    pub unfenced: bool,
    /// Its layout; empty for a directory.
    pub segments: Vec<SegmentRecord>,
}

/// When it was read, and when it changed, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// Read, as far as somebody has said.
    pub accessed_ns: i64,
    /// Its bytes or entries changed, or what was set.
    pub modified_ns: i64,
    /// Anything of it changed, by the manager's time.
    pub changed_ns: i64,
}

/// A range of a file that one holder writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartRecord {
    pub holder: u64,
    /// The exclusive lease on it; 0: it was asked for, and is not granted.
    pub lease: Lease,
    pub from: u64,
    /// One past the last; 2^64 - 1: all from the first on.
    pub to: u64,
}

/// Manager time in nanoseconds.
pub fn ns(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(NS)
}

impl Times {
    /// All of them at this manager time.
    pub fn at(ms: u64) -> Times {
        Times { accessed_ns: ns(ms), modified_ns: ns(ms), changed_ns: ns(ms) }
    }

    /// What it holds changed now.
    pub fn modified(&mut self, now_ms: u64) {
        self.modified_ns = ns(now_ms);
        self.changed(now_ms);
    }

    /// Something of it changed now. Each change has a time of its own: so two states are told from each
    /// other.
    pub fn changed(&mut self, now_ms: u64) {
        self.changed_ns = ns(now_ms).max(self.changed_ns.saturating_add(1));
    }
}

/// The permission bits of what was made by somebody who gave none.
pub fn usual_mode(kind: EntryKind) -> u32 {
    match kind {
        EntryKind::Directory => 0o755,
        EntryKind::Symlink => 0o777,
        _ => 0o644,
    }
}

impl InodeRecord {
    /// What is known of it.
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
            has_xattrs: self.xattr_bytes > 0,
            accessed_ns: self.times.accessed_ns,
            modified_ns: self.times.modified_ns,
            changed_ns: self.times.changed_ns,
            created_ns: ns(self.created_ms),
        }
    }

    /// Takes over what its creator gave, for a place in this directory.
    pub fn take(&mut self, new: &NewAttributes, directory: &InodeRecord) {
        (self.mode, self.uid, self.gid) = (new.mode, new.uid, new.gid);
        self.inherit(directory);
    }

    /// Takes over what the directory of its first name gives to what is made in it.
    pub fn inherit(&mut self, directory: &InodeRecord) {
        if directory.mode & SET_GROUP_ID != 0 {
            self.gid = directory.gid;
            if self.kind == EntryKind::Directory {
                self.mode |= SET_GROUP_ID;
            }
        }
    }

    /// Whether it has a name in a directory, or is a volume's root.
    pub fn is_named(&self) -> bool {
        self.kind == EntryKind::Directory || self.parent != FileId(0)
    }

    /// Whether it outlives its lease: it has a name, or may be open somewhere.
    pub fn lives(&self) -> bool {
        self.is_named() || self.kept
    }

    /// Whether the manager must not forget it: it has a lease, an open procedure, or no name.
    pub fn needs_attention(&self) -> bool {
        self.held || self.unfenced || !self.is_named()
    }

    /// Whether its lease has no holder and must still be ended. Until then its size is not known. A restore
    /// leaves files in this state.
    pub fn is_left(&self) -> bool {
        self.held && self.client == 0
    }

    /// The size has grown: what was given below it needs no record.
    pub fn forget_reached(&mut self) {
        if self.reserved <= self.size {
            self.reserved = 0;
        }
    }

    /// The segment of this number.
    pub fn segment(&self, number: u32) -> Option<&SegmentRecord> {
        self.segments.iter().find(|segment| segment.number == number)
    }

    /// The same, to change it.
    pub fn segment_mut(&mut self, number: u32) -> Option<&mut SegmentRecord> {
        self.segments.iter_mut().find(|segment| segment.number == number)
    }

    /// The segments that hold its bytes.
    pub fn in_force(&self) -> impl Iterator<Item = &SegmentRecord> {
        self.segments.iter().filter(|segment| segment.filling.is_none())
    }

    /// The segment that is being filled to take the place of the others.
    pub fn filling(&self) -> Option<&SegmentRecord> {
        self.segments.iter().find(|segment| segment.filling.is_some())
    }

    /// Whether all writes of this version lie within the size on record, so that what drives hold of them
    /// says nothing more about it. So it is with those of all leases that have ended: a clean end says it,
    /// and after another one the size was settled.
    pub fn covers(&self, version: Version) -> bool {
        let first = if self.since == Lease(0) { self.lease } else { self.since };
        let is_over = version.lease < first || !self.held && version.lease <= self.lease;
        is_over || version.lease == self.within.lease && version < self.within
    }

    /// For `within`: all writes of the lease.
    pub fn whole_lease(&self) -> Version {
        Version { g: Generation(u32::MAX), lease: self.lease, n: u64::MAX }
    }

    /// Whether nobody else had the file under the lease, nor under one that it has followed on.
    pub fn has_file_alone(&self) -> bool {
        self.since == Lease(0) && !self.shared && !self.is_parted()
    }

    /// A restored state does not know what became of the lease: from now on it counts as held.
    pub fn restored(&mut self, held: bool) {
        self.within = match (self.cut, self.held) {
            (true, _) => Version::ZERO,
            (false, true) => self.within,
            (false, false) => self.whole_lease(),
        };
        (self.held, self.client, self.unfenced) = (held, 0, held);
        // A cut that was under way when the backup was made has ended since, and bytes may have been written
        // beyond it: to end it again would remove them.
        self.cut = false;
    }

    /// These holders are fenced out.
    pub fn goes_on_without(&mut self, gone: &[u64]) {
        self.gone.retain(|holder| !gone.contains(holder));
        self.gone.extend(gone);
        let too_many = self.gone.len().saturating_sub(GONE_MAX);
        self.gone.drain(..too_many);
    }

    /// Whether nobody but its creator was ever allowed to write to it.
    pub fn has_one_writer(&self) -> bool {
        self.g == Generation(1)
            && self.lease == Lease(1)
            && self.since == Lease(0)
            && !self.shared
            && self.parts.is_empty()
    }

    /// The columns that anything was ever sent to, if that is known: nobody writes, nobody was cut off by a
    /// fence while he wrote, and the file has its first layout.
    pub fn all_touched(&self) -> Option<ColumnMask> {
        let is_first = self.segments.len() == 1 && self.segment(0).is_some();
        self.touched.filter(|_| self.g == Generation(1) && !self.held && is_first)
    }

    /// Whether the drive of a component may have an object of it. Certain only for a file that was written
    /// once and has stayed where it was: every later lease, fence, rebuild and move changes its record. A
    /// column that is out may have got one when its drive returned.
    pub fn holds(&self, place: &ComponentPlace) -> bool {
        let is_untouched = self.g == Generation(1) && self.lease == Lease(1) && !self.held;
        match (self.touched, self.segment(0)) {
            (Some(touched), Some(first)) if is_untouched && place.segment == 0 => {
                touched.contains(place.column) || !first.set.contains(place.column)
            }
            _ => true,
        }
    }

    /// Where its components are placed, drive by drive.
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
        client: 0,
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
        segments: Vec::new(),
    }
}
