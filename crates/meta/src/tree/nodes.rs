//! Nodes without bytes on drives: symbolic links, fifos, sockets, device nodes. And further names of files
//! and nodes. Each function is the work of one transaction.

use braid_layout::FileId;
use braid_wire::control::{EntryKind, HardLink, LINKS_MAX, MakeNode, TARGET_BYTES_MAX};
use braid_wire::{Reason, Refusal};

use crate::records::quotas;
use crate::records::schema::{EntryRecord, directory_record};
use crate::records::tx::Tx;
use crate::tree::attributes;
use crate::tree::directories::{exists, resolve, slot};
use crate::tree::entries::{self, Named};
use crate::tree::names::show;

/// Makes a node. Returns its number.
pub fn make(tx: &mut Tx, make: &MakeNode, now_ms: u64) -> Result<FileId, Refusal> {
    let MakeNode { at, kind, new, device, target } = make;
    attributes::check(new)?;
    check(*kind, *device, target)?;
    let slot = slot(tx, at)?;
    if slot.entry.is_some() {
        return Err(exists(&at.path));
    }
    let mut new = *new;
    if let Some(access) = tx.access() {
        access.may_make(&slot.directory.inode, *kind)?;
        new = access.owned(&new);
    }
    let (directory, volume) = (slot.directory.file, slot.directory.volume.volume);
    let file = FileId(tx.next_number()?);
    let mut inode = directory_record(volume, directory, slot.name.to_vec(), now_ms);
    (inode.kind, inode.device, inode.target) = (*kind, *device, target.clone());
    inode.size = u64::try_from(target.len()).unwrap_or(u64::MAX);
    inode.take(&new, &slot.directory.inode);
    tx.set_inode(file, &inode)?;
    entries::put(tx, Named { directory, name: slot.name }, &EntryRecord::of(*kind, file), now_ms)?;
    Ok(file)
}

/// Gives a file or node a further name. Returns its number.
pub fn link(tx: &mut Tx, link: &HardLink, now_ms: u64) -> Result<FileId, Refusal> {
    let mut found = resolve(tx, &link.from)?.changeable(&link.from)?;
    let slot = slot(tx, &link.to)?;
    let from = &link.from.path;
    let to = &link.to.path;
    if found.inode.kind == EntryKind::Directory {
        let detail = format!(
            "{:?} is a directory, which can have only one name: make a symbolic link to it",
            show(from)
        );
        return Err(Refusal::new(Reason::IsDirectory, detail));
    }
    if found.inode.volume != slot.directory.volume.volume {
        let detail = format!("{:?} is in another volume than {:?}: copy it", show(from), show(to));
        return Err(Refusal::new(Reason::BadName, detail));
    }
    if slot.entry.is_some() {
        return Err(exists(to));
    }
    if !found.inode.is_named() {
        let detail = format!("file {} was removed, so it cannot be given a new name", found.file);
        return Err(Refusal::new(Reason::NotFound, detail));
    }
    if found.inode.more_links + 1 >= LINKS_MAX {
        let detail = format!("{:?} has {LINKS_MAX} names, the most that a file may have", show(from));
        return Err(Refusal::new(Reason::TooManyLinks, detail));
    }
    let trees = |directory| quotas::trees(tx, found.inode.volume, directory);
    if found.inode.kind == EntryKind::File && trees(found.inode.parent)? != trees(slot.directory.file)? {
        let detail = format!("{:?} is under other quotas than {:?}: copy it", show(from), show(to));
        return Err(Refusal::new(Reason::OtherQuota, detail));
    }
    let at = Named { directory: slot.directory.file, name: slot.name };
    entries::add_name(tx, found.file, &mut found.inode, at)?;
    found.inode.times.changed(now_ms);
    tx.set_inode(found.file, &found.inode)?;
    let entry = EntryRecord::of(found.inode.kind, found.file);
    entries::put(tx, at, &entry, now_ms)?;
    Ok(found.file)
}

fn check(kind: EntryKind, device: u32, target: &[u8]) -> Result<(), Refusal> {
    let is_device = matches!(kind, EntryKind::CharDevice | EntryKind::BlockDevice);
    let is_link = kind == EntryKind::Symlink;
    let wrong = match kind {
        EntryKind::File | EntryKind::Directory => Some("files and directories are made by other requests"),
        _ if device != 0 && !is_device => Some("only a device node may have a device number"),
        _ if is_link == target.is_empty() => {
            Some("a symbolic link needs a target, and nothing else may have one")
        }
        _ if target.contains(&0) => Some("a symbolic link's target cannot hold a NUL byte"),
        _ if target.len() > TARGET_BYTES_MAX => Some("a symbolic link's target has at most 4095 bytes"),
        _ => None,
    };
    wrong.map_or(Ok(()), |why| Err(Refusal::new(Reason::Malformed, why)))
}
