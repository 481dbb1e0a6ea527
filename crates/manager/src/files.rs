//! Files: create, name, size, lease. Each is one transaction's work.
//!
//! Sizes: what Commit or Link said last. `unclean` is set when a writer goes without a clean release; it is cleared by the
//! clean release of a lease under which the size was raised, for whoever raises the size of an unclean file has punched
//! everything past the old one before.
//!
//! A Link or Commit that was delayed on its way, while its sender gave it up and sent another, must not undo that one. So each
//! has a number that rises with every such request of a lease, and the highest that was carried out is in the file's record:
//! set in the same transaction as the size, so that neither a failed transaction nor a restart tears them apart.

use braid_layout::version::Lease;
use braid_layout::{Column, ColumnMask, DriveId, FileId, Generation, ObjectId, Shape};
use braid_wire::control::{Commit, EntryKind, Link, Open, ShapeSpec};
use braid_wire::{Reason, Refusal};

use crate::directories::{exists, name_it, not_found, slot};
use crate::inodes;
use crate::kv::Tx;
use crate::names::show;
use crate::schema::{EntryRecord, InodeRecord, SegmentRecord, VolumeRecord};
use crate::shapes::{from_spec, spec_of};
use crate::volumes;

/// Chooses drives for a new file's columns, and which of them are out from the start, from its number and shape.
pub type Place<'a> = &'a dyn Fn(u64, &Shape) -> Result<(Vec<DriveId>, ColumnMask), Refusal>;

/// Makes a file without a name, leased to `client`.
pub fn create_unnamed(
    tx: &mut Tx,
    volume: &str,
    shape: &ShapeSpec,
    client: u64,
    place: Place<'_>,
    now_ms: u64,
) -> Result<(FileId, InodeRecord), Refusal> {
    let volume = volumes::find(tx, volume)?;
    let (file, inode) = new_record(tx, &volume, shape, client, place, now_ms)?;
    inodes::create(tx, file, &inode)?;
    Ok((file, inode))
}

/// The file that an open is about; if it is to be made, it is made and leased, and comes with its record.
pub fn find_or_create(
    tx: &mut Tx,
    open: &Open,
    place: Place<'_>,
    now_ms: u64,
) -> Result<(FileId, Option<InodeRecord>), Refusal> {
    if open.path.is_empty() {
        return Err(Refusal::new(Reason::IsDirectory, "the volume's root is a directory"));
    }
    let mut slot = slot(tx, &open.volume, &open.path)?;
    match slot.entry {
        Some(entry) if entry.kind == EntryKind::Directory => {
            Err(Refusal::new(Reason::IsDirectory, format!("{:?} is a directory", show(&open.path))))
        }
        Some(_) if open.create && open.exclusive => Err(exists(&open.path)),
        Some(entry) => Ok((entry.file, None)),
        None if !open.create => Err(not_found(&open.path)),
        None => {
            let volume = &mut slot.directory.volume;
            let (file, mut inode) = new_record(tx, volume, &open.shape, open.client, place, now_ms)?;
            (inode.parent, inode.name) =
                (*slot.directory.chain.last().unwrap_or(&volume.root), slot.name.to_vec());
            inodes::charge(tx, volume, (0, 0), (1, 0))?;
            inodes::create(tx, file, &inode)?;
            name_it(tx, inode.parent, slot.name, EntryRecord { kind: EntryKind::File, file }, now_ms)?;
            Ok((file, Some(inode)))
        }
    }
}

/// Gives a file its name and size. If it has this name, it sets the size. One that is late does nothing.
pub fn link(tx: &mut Tx, link: &Link, now_ms: u64) -> Result<(), Refusal> {
    let mut inode = leased(tx, link.file, link.lease)?;
    if is_late(&inode, link.order)? {
        return Ok(());
    }
    let mut slot = slot(tx, &link.volume, &link.path)?;
    let directory = slot.directory.file();
    if inode.volume != slot.directory.volume.volume {
        let detail = format!("file {} is in another volume than {:?}: copy it", link.file, link.volume);
        return Err(Refusal::new(Reason::BadName, detail));
    }
    if inode.is_named() {
        if inode.parent == directory && inode.name == slot.name {
            let &Link { file, lease, size, order, .. } = link;
            return commit(tx, &Commit { file, lease, size, order }, now_ms);
        }
        return Err(Refusal::new(
            Reason::Exists,
            format!("file {} has the name {:?}", link.file, show(&inode.name)),
        ));
    }
    match slot.entry.clone() {
        Some(old) if old.kind == EntryKind::Directory => {
            return Err(Refusal::new(Reason::IsDirectory, format!("{:?} is a directory", show(&link.path))));
        }
        Some(_) if !link.replace => return Err(exists(&link.path)),
        Some(old) => inodes::drop_name(tx, &mut slot.directory.volume, old.file, now_ms)?,
        None => {}
    }
    inodes::charge(tx, &mut slot.directory.volume, (0, 0), (1, link.size))?;
    (inode.parent, inode.name) = (directory, slot.name.to_vec());
    set_size(&mut inode, link.size, link.order, now_ms);
    inodes::save(tx, link.file, &inode);
    name_it(tx, directory, slot.name, EntryRecord { kind: EntryKind::File, file: link.file }, now_ms)
}

/// Sets the size. One that is late does nothing.
pub fn commit(tx: &mut Tx, commit: &Commit, now_ms: u64) -> Result<(), Refusal> {
    let &Commit { file, lease, size, order } = commit;
    let mut inode = leased(tx, file, lease)?;
    if is_late(&inode, order)? {
        return Ok(());
    }
    if inode.is_named() {
        let mut volume = volumes::by_number(tx, inode.volume)?;
        inodes::charge(tx, &mut volume, (1, inode.size), (1, size))?;
    }
    set_size(&mut inode, size, order, now_ms);
    inodes::save(tx, file, &inode);
    Ok(())
}

/// Grants the next lease. The caller has made sure that there is none.
pub fn grant(tx: &mut Tx, file: FileId, client: u64) -> Result<InodeRecord, Refusal> {
    let mut inode = inodes::get(tx, file)?;
    let next = inode.lease.0.checked_add(1).map(Lease);
    inode.lease = next.ok_or_else(|| worn_out(file))?;
    (inode.held, inode.client, inode.grew, inode.order) = (true, client, false, 0);
    inodes::save(tx, file, &inode);
    Ok(inode)
}

/// Ends a lease under which everything is settled. A file without a name goes.
pub fn release(tx: &mut Tx, file: FileId, lease: Lease) -> Result<(), Refusal> {
    let mut inode = leased(tx, file, lease)?;
    inode.held = false;
    inode.unclean &= !inode.grew;
    if inode.is_named() {
        inodes::save(tx, file, &inode);
        return Ok(());
    }
    inodes::bury(tx, file, &inode, 0)
}

/// The file's record, if `lease` is its lease and held; else [`Reason::LeaseLost`].
pub fn leased(tx: &Tx, file: FileId, lease: Lease) -> Result<InodeRecord, Refusal> {
    match inodes::find(tx, file)? {
        Some(inode) if inode.held && inode.lease == lease => Ok(inode),
        _ => Err(lease_lost(file, lease)),
    }
}

/// "Not (or no longer) yours".
pub fn lease_lost(file: FileId, lease: Lease) -> Refusal {
    let detail = format!("lease {lease} on file {file} is over: open the file again");
    Refusal::new(Reason::LeaseLost, detail)
}

/// Numbers are used up: after 2^32 leases or generations.
pub fn worn_out(file: FileId) -> Refusal {
    Refusal::new(Reason::Gone, format!("file {file} has used up its generations: copy it to a new file"))
}

/// Whether this request, or one that was sent after it, was carried out already.
fn is_late(inode: &InodeRecord, order: u64) -> Result<bool, Refusal> {
    if order == 0 {
        return Err(Refusal::new(Reason::Malformed, "a Link or Commit without its number: they begin at 1"));
    }
    Ok(order <= inode.order)
}

fn set_size(inode: &mut InodeRecord, size: u64, order: u64, now_ms: u64) {
    inode.grew |= size > inode.size;
    (inode.size, inode.order, inode.modified_ms) = (size, order, now_ms);
}

fn new_record(
    tx: &mut Tx,
    volume: &VolumeRecord,
    spec: &ShapeSpec,
    client: u64,
    place: Place<'_>,
    now_ms: u64,
) -> Result<(FileId, InodeRecord), Refusal> {
    let shape = from_spec(spec, &volume.shape)?;
    let file = FileId(tx.next_number()?);
    let object = ObjectId(tx.next_number()?);
    let (drives, out) = place(file.0, &shape)?;
    let segment = SegmentRecord {
        start: 0,
        end: u64::MAX,
        shape: spec_of(&shape),
        object,
        drives,
        set: ColumnMask::all(shape.width()).minus(out),
        joining: ColumnMask::EMPTY,
    };
    let inode = InodeRecord {
        kind: EntryKind::File,
        g: Generation(1),
        lease: Lease(1),
        held: true,
        client,
        segments: vec![segment],
        ..volumes::directory_record(volume.volume, FileId(0), Vec::new(), now_ms)
    };
    Ok((file, inode))
}

/// The columns of a segment that are on these drives, as a mask.
pub fn columns_on(drives: &[DriveId], which: impl Fn(DriveId) -> bool) -> ColumnMask {
    (0u8..).map(Column).zip(drives).filter(|(_, drive)| which(**drive)).map(|(column, _)| column).collect()
}
