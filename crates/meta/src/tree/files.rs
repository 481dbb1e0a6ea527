//! Files: create, name, size, lease. Each function is the work of one transaction.
//!
//! The size is what the last Commit or Link said. After a writer that died or released uncleanly it is at
//! least what the drives hold, so that nothing acknowledged is lost: the procedure settles it (`settle`). A
//! release is clean only if everything written lies below the size. So between two leases all bytes beyond
//! the size are zeros, on every column.
//!
//! Cutting a file short is the exception. The size is set first and the bytes beyond it are removed after,
//! and a crash in between must not bring them back. So the Commit that begins a cut marks the file (`cut`),
//! and the Commit that ends it clears the mark. While the mark is there the size stands whatever the drives
//! hold, and the next writer first punches out the bytes and ends the cut.
//!
//! A Link or Commit may be delayed until its sender has given it up and sent another. The delayed one must
//! not undo the later one. So each has an order number that rises within a lease, and the highest one carried
//! out is in the file's record. It is stored in the same transaction as the size, so the two always agree.

use braid_layout::version::Lease;
use braid_layout::{Column, ColumnMask, DriveId, FileId, Generation, HolderId, TokenId, Version};
use braid_wire::control::{
    Access, AttributeChanges, Backing, ByteRange, Commit, CreateUnnamed, Cut, Ended, Ending, EntryKind, Link,
    NewAttributes, Open, ReserveEnd, Seen, ShapeSpec,
};
use braid_wire::{Reason, Refusal};

use crate::records::schema::{EntryRecord, InodeRecord, PartRecord, VolumeRecord, directory_record};
use crate::records::tx::Tx;
use crate::records::{frozen, inodes, past};
use crate::rules::parts;
use crate::tokens::permissions::Act;
use crate::tree::directories::{
    Found, directory_of, exists, is_directory, nearest, not_found, read_only, refuse_taken, resolve_to_end,
    slot,
};
use crate::tree::doors::{self, DOOR};
use crate::tree::entries::{self, Keeps, Named};
use crate::tree::layouts::{self, InForce};
use crate::tree::names::show;
use crate::tree::shapes::ChooseDrives;
use crate::tree::{attributes, room, volumes};

/// The largest size that a client can work with.
pub const FILE_BYTES_MAX: u64 = i64::MAX.unsigned_abs();

/// Creates a file without a name, leased to the holder that asked. `plan` is the shape of new files by a
/// reservation over its place.
pub fn create_unnamed(
    tx: &mut Tx,
    create: &CreateUnnamed,
    plan: Option<&ShapeSpec>,
    place: ChooseDrives<'_>,
    now_ms: u64,
) -> Result<(FileId, InodeRecord), Refusal> {
    let CreateUnnamed { volume, shape, new, holder, meant_for, takes_sealed, .. } = create;
    let volume = volumes::find(tx, volume)?;
    let is_sealed = volumes::seal_of(tx, volume.volume)?.is_some();
    refuse_sealed(is_sealed, *takes_sealed, true)?;
    let directory = meant_for.as_ref().and_then(|at| nearest(tx, at));
    let directory = directory.filter(|found| found.volume.volume == volume.volume);
    let directory = match (directory, meant_for) {
        (Some(found), Some(at)) => Some(found.changeable(at)?),
        _ => None,
    };
    let layout = layouts::for_new(tx, &volume, directory.as_ref(), shape, plan)?;
    let part = Part { holder: *holder, alone: is_sealed, range: None };
    let (file, inode) = new_record(tx, &volume, layout, new, part, place, now_ms)?;
    inodes::create(tx, file, &inode)?;
    Ok((file, room::extend(tx, file, inode, 0, false)?))
}

/// Finds the file to open. If it must be created, it is created and leased, and its record is returned.
/// `plan` is the shape of new files by a reservation over the place.
pub fn find_or_create(
    tx: &mut Tx,
    open: &Open,
    plan: Option<&ShapeSpec>,
    place: ChooseDrives<'_>,
    now_ms: u64,
) -> Result<(FileId, Option<InodeRecord>), Refusal> {
    let path = &open.at.path;
    if path.is_empty() {
        return Ok((find(tx, open)?.file, None));
    }
    let mut slot = directory_of(tx, &open.at)?;
    if slot.directory.within.is_some() {
        if slot.entry.is_none() && open.create {
            return Err(read_only(path));
        }
        return Ok((find(tx, open)?.file, None));
    }
    match slot.entry {
        Some(_) if open.create && open.exclusive => Err(exists(path)),
        Some(_) => Ok((find(tx, open)?.file, None)),
        None if !open.create => Err(not_found(path)),
        None if slot.name == DOOR => Err(doors::reserved(path)),
        None => {
            if let Some(access) = tx.access() {
                access.may(&slot.directory.inode, Act::Write)?;
            }
            let found = &slot.directory;
            let layout = layouts::for_new(tx, &found.volume, Some(found), &open.shape, plan)?;
            let volume = &mut slot.directory.volume;
            let is_sealed = volumes::seal_of(tx, volume.volume)?.is_some();
            refuse_sealed(is_sealed, open.takes_sealed, is_sole(open))?;
            let (file, mut inode) = new_record(tx, volume, layout, &open.new, open.into(), place, now_ms)?;
            (inode.parent, inode.name) = (slot.directory.file, slot.name.to_vec());
            inode.inherit(&slot.directory.inode);
            room::refuse_above(tx, None, Some(&inode))?;
            inodes::recount(tx, volume, (0, 0), (1, 0));
            inodes::create(tx, file, &inode)?;
            let inode = room::extend(tx, file, inode, 0, false)?;
            let named = Named { directory: inode.parent, name: slot.name };
            entries::put(tx, named, &EntryRecord::of(EntryKind::File, file), now_ms)?;
            Ok((file, Some(inode)))
        }
    }
}

/// Finds the file to open; refused if nothing is there, it is not a file, or it is to be written and is in a
/// snapshot.
pub fn find(tx: &Tx, open: &Open) -> Result<Found, Refusal> {
    let found = resolve_to_end(tx, &open.at)?;
    refuse_without_bytes(found.inode.kind, &open.at.path)?;
    if let Some(access) = tx.access() {
        access.may(&found.inode, Act::Read)?;
        if open.access == Access::Write {
            access.may(&found.inode, Act::Write)?;
        }
    }
    refuse_sealed(found.inode.sealed, open.takes_sealed, is_sole(open) || open.access == Access::Read)?;
    if open.access == Access::Write { found.changeable(&open.at) } else { Ok(found) }
}

/// Returns true if the file is to have no other writer meanwhile, in no range of it.
fn is_sole(open: &Open) -> bool {
    open.alone && open.range.is_none()
}

/// Refuses sealed bytes to who cannot deal with them, and a second writer of them: a block that two clients
/// write in part would lose what one of them wrote.
fn refuse_sealed(is_sealed: bool, takes_sealed: bool, is_sole: bool) -> Result<(), Refusal> {
    if is_sealed && !takes_sealed {
        return Err(Refusal::new(Reason::NoKey, "the volume is encrypted: its key is needed"));
    }
    if is_sealed && !is_sole {
        let detail =
            "a file of an encrypted volume has one writer at a time: open it alone, and without a range";
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    Ok(())
}

/// Refuses any kind but a file: nothing else has bytes to open.
pub fn refuse_without_bytes(kind: EntryKind, path: &[u8]) -> Result<(), Refusal> {
    match kind {
        EntryKind::File => Ok(()),
        EntryKind::Directory => Err(is_directory(path)),
        _ => {
            let detail = format!("{:?} is not a regular file, and has no bytes to open", show(path));
            Err(Refusal::new(Reason::NotFile, detail))
        }
    }
}

/// Gives a file its name and size. If the file has this name already, only the size is set. A late request
/// does nothing.
pub fn link(tx: &mut Tx, link: &Link, keeps: Keeps<'_>, now_ms: u64) -> Result<(), Refusal> {
    let mut inode = current(tx, link.file, link.lease)?;
    if is_late(&inode, link.order)? {
        return Ok(());
    }
    let mut slot = slot(tx, &link.at)?;
    let path = &link.at.path;
    let directory = slot.directory.file;
    if inode.volume != slot.directory.volume.volume {
        let detail = format!("file {} is in another volume than {:?}: copy it", link.file, show(path));
        return Err(Refusal::new(Reason::BadName, detail));
    }
    if inode.is_named() {
        if inode.parent == directory && inode.name == slot.name {
            let &Link { file, lease, holder, size, order, .. } = link;
            let modified_ns = link.changes.modified_ns;
            let backing = link.backing.clone();
            let cut = Cut::No;
            commit(tx, &Commit { file, lease, holder, size, order, cut, modified_ns, backing }, now_ms)?;
            let mut inode = inodes::get(tx, file)?;
            let before = inode.clone();
            attributes::change(&mut inode, &allowed(tx, &before, &link.changes))?;
            room::refuse_above(tx, Some(&before), Some(&inode))?;
            inodes::save(tx, file, &inode)?;
            return Ok(());
        }
        return Err(Refusal::new(
            Reason::Exists,
            format!("file {} already has the name {:?}", link.file, show(&inode.name)),
        ));
    }
    let named = Named { directory, name: slot.name };
    match slot.entry.clone() {
        Some(old) if old.kind == EntryKind::Directory => return Err(is_directory(path)),
        Some(_) if !link.replace => return Err(exists(path)),
        Some(old) => {
            if let Some(seen) = link.over {
                refuse_if_changed(tx, old.file, seen, path)?;
            }
            refuse_taken(tx, &slot.directory, &old)?;
            entries::take(tx, named, &old, now_ms)?;
            let volume = &mut slot.directory.volume;
            entries::drop_name(tx, volume, old.file, named, keeps, now_ms)?;
        }
        None if link.over.is_some() => {
            let detail = format!("{:?} was to be replaced, but no longer exists", show(path));
            return Err(Refusal::new(Reason::NotFound, detail));
        }
        None => {}
    }
    inodes::recount(tx, &mut slot.directory.volume, (0, inode.size), (1, link.size));
    let before = inode.clone();
    (inode.parent, inode.name) = (directory, slot.name.to_vec());
    // No snapshot that is there has it.
    inode.bytes_epoch = past::newest(tx, inode.volume)?;
    set_size(&mut inode, link.size, link.order, link.changes.modified_ns, now_ms);
    heed_within(&mut inode, &link.backing);
    inode.inherit(&slot.directory.inode);
    attributes::change(&mut inode, &allowed(tx, &before, &link.changes))?;
    // Other quotas may hold here than where it was made.
    inode.reach = inode.reach.map(|_| inode.size.max(inode.reserved));
    room::refuse_above(tx, Some(&before), Some(&inode))?;
    inodes::save(tx, link.file, &inode)?;
    entries::put(tx, named, &EntryRecord::of(EntryKind::File, link.file), now_ms)
}

/// Those of the changes that come with a file's name that the asker's user may make.
fn allowed(tx: &Tx, inode: &InodeRecord, changes: &AttributeChanges) -> AttributeChanges {
    tx.access().map_or(*changes, |access| access.allowed_of(inode, changes))
}

/// Refuses to replace a file that has changed since the client saw it.
fn refuse_if_changed(tx: &Tx, file: FileId, seen: Seen, path: &[u8]) -> Result<(), Refusal> {
    if file == seen.file && inodes::get(tx, file)?.times.changed_ns == seen.changed_ns {
        return Ok(());
    }
    let detail = format!("{:?} has changed since it was seen", show(path));
    Err(Refusal::new(Reason::Exists, detail))
}

/// Sets the size. A late request does nothing. Only a cut makes a file smaller: one of several writers knows
/// its own writes only, and the bytes past a size that became smaller have to be cleared. Returns true if the
/// drives are to keep less room free.
pub fn commit(tx: &mut Tx, commit: &Commit, now_ms: u64) -> Result<bool, Refusal> {
    let &Commit { file, lease, order, cut, .. } = commit;
    let mut inode = current(tx, file, lease)?;
    // Each of several holders counts its own order numbers; as the size only grows, any order will do.
    let several = inode.shared || inode.is_parted();
    if is_late(&inode, order)? && !several {
        return Ok(false);
    }
    if inode.is_parted() && cut != Cut::No {
        let detail = format!("{:?} is being written by range, so it cannot be truncated", show(&inode.name));
        return Err(Refusal::new(Reason::Leased, detail));
    }
    let size = if cut == Cut::No { commit.size.max(inode.size) } else { commit.size };
    let order = if several { inode.order } else { order };
    let mut volume = volumes::by_number(tx, inode.volume)?;
    inodes::recount(tx, &mut volume, (0, inode.size), (0, size));
    let before = inode.clone();
    set_size(&mut inode, size, order, commit.modified_ns, now_ms);
    match cut {
        Cut::No => {}
        Cut::Begins => (inode.cut, inode.cut_at, inode.reserved) = (true, lease, 0),
        Cut::Ends => inode.cut = false,
    }
    if cut != Cut::No {
        inode.allocated = inode.allocated.min(size);
    }
    // Until the cut ends, drives may hold bytes past the size.
    if !inode.cut {
        heed_within(&mut inode, &commit.backing);
    }
    room::refuse_above(tx, Some(&before), Some(&inode))?;
    inodes::save(tx, file, &inode)?;
    Ok(inode.allocated < before.allocated)
}

/// Raises the size to `end`, where the file's data ends on the drives. A file that was being cut keeps its
/// size: the cut was to remove the bytes beyond it.
pub fn settle_size(tx: &mut Tx, inode: &mut InodeRecord, end: u64, now_ms: u64) -> Result<(), Refusal> {
    if end <= inode.size || inode.cut || inode.is_frozen() {
        return Ok(());
    }
    let mut volume = volumes::by_number(tx, inode.volume)?;
    inodes::recount(tx, &mut volume, (0, inode.size), (0, end));
    inode.size = end;
    inode.forget_reached();
    inode.times.modified(now_ms);
    Ok(())
}

/// The lease that a client wants which opens a file for writing.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pub holder: HolderId,
    /// True if no other client is to write meanwhile.
    pub alone: bool,
    /// The only bytes that the client writes; `None`: any.
    pub range: Option<ByteRange>,
}

impl Part {
    /// The record of the requested range while it is not granted. Refused if the range is not whole stripes.
    pub fn asked(&self, inode: &InodeRecord) -> Result<Option<PartRecord>, Refusal> {
        let Some(range) = self.range else { return Ok(None) };
        if self.alone {
            return Err(Refusal::new(
                Reason::Malformed,
                "a range of a file cannot be opened for a single writer: leave out the range, or alone",
            ));
        }
        parts::check(inode, range)?;
        Ok(Some(PartRecord::asked(self.holder, range)))
    }

    /// Gives the first holder its lease, on its range only if it named one. A client that opens a file that
    /// is being cut must end the cut first, and has the whole file until then.
    fn take(&self, inode: &mut InodeRecord) -> Result<(), Refusal> {
        (inode.shared, inode.since) = (false, Lease(0));
        inode.parts = self.asked(inode)?.into_iter().collect();
        if !inode.cut {
            for part in &mut inode.parts {
                (part.lease, inode.since) = (inode.lease, inode.lease);
            }
        }
        Ok(())
    }
}

impl From<&Open> for Part {
    fn from(open: &Open) -> Part {
        Part { holder: open.holder, alone: open.alone, range: open.range }
    }
}

/// Reserves `bytes` bytes at the file's end, not before `from`, for one of its writers. Returns the offset of
/// the first. The size stays: others would read zeros there until the bytes are written.
pub fn reserve(tx: &mut Tx, request: &ReserveEnd) -> Result<u64, Refusal> {
    let &ReserveEnd { file, lease, bytes, from, .. } = request;
    let mut inode = current(tx, file, lease)?;
    let offset = inode.size.max(inode.reserved).max(from);
    let end = offset.checked_add(bytes).filter(|end| *end <= FILE_BYTES_MAX).ok_or_else(|| {
        Refusal::new(
            Reason::Range,
            format!("file {file} cannot grow by {bytes} bytes: a file has at most 2^63 - 1 bytes"),
        )
    })?;
    inode.reserved = end;
    inodes::save(tx, file, &inode)?;
    if inode.reach.is_some() {
        room::extend(tx, file, inode, end, true)?;
    }
    Ok(offset)
}

/// Records for which bytes of a file the drives keep room free: those before `allocated`.
pub fn set_allocated(tx: &mut Tx, file: FileId, lease: Lease, allocated: u64) -> Result<(), Refusal> {
    let mut inode = current(tx, file, lease)?;
    let before = inode.clone();
    inode.allocated = allocated;
    room::refuse_above(tx, Some(&before), Some(&inode))?;
    Ok(inodes::save(tx, file, &inode)?)
}

/// Grants the next lease. The caller has made sure that no lease is held, and that the file was fenced after
/// a shared one.
pub fn grant(tx: &mut Tx, file: FileId, part: Part) -> Result<InodeRecord, Refusal> {
    let mut inode = inodes::get(tx, file)?;
    if frozen::is_due(tx, file, &inode)? {
        let detail = format!("a snapshot was made of {:?} just now: try again", show(&inode.name));
        return Err(Refusal::new(Reason::Busy, detail));
    }
    let next = inode.lease.0.checked_add(1).map(Lease);
    inode.lease = next.ok_or_else(|| worn_out(file))?;
    (inode.held, inode.holder, inode.order, inode.reserved) = (true, part.holder, 0, 0);
    inode.token = tx.token();
    inode.within = Version::ZERO;
    inode.gone.clear();
    inode.alone = part.alone;
    inode.bytes_epoch = past::newest(tx, inode.volume)?;
    part.take(&mut inode)?;
    inodes::save(tx, file, &inode)?;
    room::extend(tx, file, inode, 0, false)
}

/// Ends a lease under which everything is settled. A file without a name is removed. A shared lease stays on
/// record as such: the next grant begins with a fence.
pub fn release(tx: &mut Tx, file: FileId, lease: Lease, ended: &Ended) -> Result<(), Refusal> {
    let mut inode = leased(tx, file, lease)?;
    let former = if inode.has_one_writer() { Some(ColumnMask::EMPTY) } else { inode.touched };
    let is_known = inode.g == Generation(1) && inode.has_file_alone() && ended.ending != Ending::Unclean;
    inode.touched = former.filter(|_| is_known).map(|former| former.or(ended.columns));
    inode.held = false;
    inode.token = TokenId::NONE;
    inode.reserved = 0;
    inode.reach = None;
    inode.within = Version::ZERO;
    inode.gone.clear();
    if ended.ending != Ending::Retired && inode.since == Lease(0) {
        // The drives may still accept writes that are on their way: the next lease begins with a fence.
        inode.since = inode.lease;
    }
    inode.parts.clear();
    if inode.lives() {
        inodes::save(tx, file, &inode)?;
        return Ok(());
    }
    inodes::bury(tx, file, &inode)
}

/// Returns true if the file is there only because a client may have it open.
pub fn is_only_kept(inode: &InodeRecord) -> bool {
    inode.kept && !inode.held && !inode.unfenced && !inode.is_named()
}

/// The file's record, if `lease` is its lease and held, or an earlier one of the same holders that it follows
/// on; else [`Reason::LeaseLost`].
pub fn leased(tx: &Tx, file: FileId, lease: Lease) -> Result<InodeRecord, Refusal> {
    let follows =
        |inode: &InodeRecord| inode.since != Lease(0) && (inode.since..=inode.lease).contains(&lease);
    match inodes::find(tx, file)? {
        Some(inode) if inode.held && (inode.lease == lease || follows(&inode)) => Ok(inode),
        _ => Err(lease_lost(file, lease)),
    }
}

/// The file's record, if `lease` is its lease and held. [`Reason::StaleGeneration`] if another lease has
/// followed on it.
pub fn current(tx: &Tx, file: FileId, lease: Lease) -> Result<InodeRecord, Refusal> {
    let inode = leased(tx, file, lease)?;
    if inode.is_current(lease) {
        return Ok(inode);
    }
    let detail = format!("lease {} has replaced lease {lease}: refresh", inode.lease);
    Err(Refusal::new(Reason::StaleGeneration, detail))
}

/// The refusal to a client that does not (or no longer) hold the lease.
pub fn lease_lost(file: FileId, lease: Lease) -> Refusal {
    let detail = format!("lease {lease} on file {file} is over: open the file again");
    Refusal::new(Reason::LeaseLost, detail)
}

pub use crate::records::inodes::worn_out;

/// Returns true if this request, or one sent after it, was carried out already.
fn is_late(inode: &InodeRecord, order: u64) -> Result<bool, Refusal> {
    if order == 0 {
        return Err(Refusal::new(Reason::Malformed, "a Link or Commit must have a number, from 1 on"));
    }
    Ok(order <= inode.order)
}

/// Records up to which version all writes lie within the size that was just set. Only a writer that has the
/// file for itself can say it: under a shared lease the drives make the versions, and parts have leases of
/// their own.
fn heed_within(inode: &mut InodeRecord, backing: &Backing) {
    if !inode.shared && !inode.is_parted() && backing.within.lease == inode.lease {
        inode.within = backing.within;
    }
}

fn set_size(inode: &mut InodeRecord, size: u64, order: u64, modified_ns: Option<i64>, now_ms: u64) {
    (inode.size, inode.order) = (size, order);
    inode.forget_reached();
    inode.times.modified(now_ms);
    inode.times.modified_ns = modified_ns.unwrap_or(inode.times.modified_ns);
}

fn new_record(
    tx: &mut Tx,
    volume: &VolumeRecord,
    layout: InForce,
    new: &NewAttributes,
    part: Part,
    place: ChooseDrives<'_>,
    now_ms: u64,
) -> Result<(FileId, InodeRecord), Refusal> {
    attributes::check(new)?;
    let new = tx.access().map_or(*new, |access| access.owned(new));
    let bad = |error: braid_layout::SchemeError| Refusal::new(Reason::BadScheme, error.to_string());
    let shape = layout.shape.shape().map_err(bad)?;
    let file = FileId(tx.next_number()?);
    let segment = layouts::first_segment(tx, file, &shape, place);
    let segment = segment.map_err(|refusal| layouts::blame(tx, refusal, layout.of))?;
    let mut inode = InodeRecord {
        kind: EntryKind::File,
        mode: new.mode,
        uid: new.uid,
        gid: new.gid,
        g: Generation(1),
        lease: Lease(1),
        held: true,
        holder: part.holder,
        alone: part.alone,
        token: tx.token(),
        bytes_epoch: past::newest(tx, volume.volume)?,
        cluster: layout.cluster,
        sealed: volumes::seal_of(tx, volume.volume)?.is_some(),
        segments: vec![segment],
        ..directory_record(volume.volume, FileId(0), Vec::new(), now_ms)
    };
    part.take(&mut inode)?;
    Ok((file, inode))
}

/// The columns of a segment for whose drives `which` returns true.
pub fn columns_on(drives: &[DriveId], which: impl Fn(DriveId) -> bool) -> ColumnMask {
    (0u8..).map(Column).zip(drives).filter(|(_, drive)| which(**drive)).map(|(column, _)| column).collect()
}
