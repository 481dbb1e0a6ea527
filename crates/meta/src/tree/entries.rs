//! Entries of directories, and the names in the records of files and nodes, changed together.
//!
//! Most files have one name, which is in the record. Further names are in a table of their own. A directory
//! counts the directories in it, and has one name.

use braid_layout::FileId;
use braid_wire::Refusal;
use braid_wire::control::EntryKind;

use crate::records::schema::{EntryRecord, InodeRecord, VolumeRecord, key};
use crate::records::tx::Tx;
use crate::records::{frozen, inodes, past};
use crate::tree::volumes;

/// A name in a directory.
#[derive(Debug, Clone, Copy)]
pub struct Named<'n> {
    pub directory: FileId,
    pub name: &'n [u8],
}

/// Puts an entry into a directory, which has none of this name.
pub fn put(tx: &mut Tx, at: Named<'_>, entry: &EntryRecord, now_ms: u64) -> Result<(), Refusal> {
    let directory = inodes::get(tx, at.directory)?;
    let since = past::newest(tx, directory.volume)?;
    tx.set(key::entry(at.directory, at.name), &EntryRecord { since, ..entry.clone() });
    changed(tx, at.directory, now_ms, |links| links + u32::from(entry.kind == EntryKind::Directory))
}

/// Takes an entry out of a directory.
pub fn take(tx: &mut Tx, at: Named<'_>, entry: &EntryRecord, now_ms: u64) -> Result<(), Refusal> {
    past::keep_entry(tx, at.directory, at.name, entry)?;
    tx.delete(key::entry(at.directory, at.name));
    let is_directory = u32::from(entry.kind == EntryKind::Directory);
    changed(tx, at.directory, now_ms, |links| links.saturating_sub(is_directory))
}

/// Gives a file or node one more name.
pub fn add_name(tx: &mut Tx, file: FileId, inode: &mut InodeRecord, at: Named<'_>) -> Result<(), Refusal> {
    past::keep(tx, file)?;
    tx.mark(key::more_name(file, at.directory, at.name));
    inode.more_links += 1;
    Ok(())
}

/// Changes one of the names of a file, node or directory.
pub fn move_name(
    tx: &mut Tx,
    file: FileId,
    inode: &mut InodeRecord,
    from: Named<'_>,
    to: Named<'_>,
) -> Result<(), Refusal> {
    past::keep(tx, file)?;
    // What is below a directory may not have changed for long.
    let epoch = if inode.kind == EntryKind::Directory { 0 } else { inode.bytes_epoch };
    if let Some(cover) = past::cover_of(tx, file, inode, epoch)? {
        inode.moved = inode.moved.max(cover.until);
    }
    if is_first(inode, from) {
        (inode.parent, inode.name) = (to.directory, to.name.to_vec());
        return Ok(());
    }
    tx.delete(key::more_name(file, from.directory, from.name));
    tx.mark(key::more_name(file, to.directory, to.name));
    Ok(())
}

/// Returns true for a file that may be open somewhere: it must be kept when it loses its last name.
pub type Keeps<'a> = &'a dyn Fn(FileId) -> bool;

/// Takes a name from a file, node or directory. Without its last name it is removed; a file with a lease
/// stays until the lease ends, and a file that is kept until it is closed.
pub fn drop_name(
    tx: &mut Tx,
    volume: &mut VolumeRecord,
    file: FileId,
    at: Named<'_>,
    keeps: Keeps<'_>,
    now_ms: u64,
) -> Result<(), Refusal> {
    past::keep(tx, file)?;
    let mut inode = inodes::get(tx, file)?;
    let cover = past::cover_of(tx, file, &inode, inode.bytes_epoch)?;
    inode.times.changed(now_ms);
    if inode.kind == EntryKind::Directory {
        return Ok(inodes::delete(tx, file)?);
    }
    if inode.more_links > 0 {
        let mut lost = key::more_name(file, at.directory, at.name);
        if is_first(&inode, at) {
            let (from, to) = key::more_names_of(file);
            let Some((row, _)) = tx.scan(&from, &to, 1)?.into_iter().next() else {
                return Err(inodes::damaged(file, "its other names are not there"));
            };
            (inode.parent, inode.name) = key::more_name_in(&row);
            lost = row;
        }
        tx.delete(lost);
        inode.more_links -= 1;
        inode.moved = inode.moved.max(cover.map_or(0, |cover| cover.until));
        return Ok(inodes::save(tx, file, &inode)?);
    }
    if inode.kind != EntryKind::File {
        return Ok(inodes::delete(tx, file)?);
    }
    // The bytes of a file without a name count until it is removed.
    inodes::recount(tx, volume, (1, 0), (0, 0));
    (inode.parent, inode.name) = (FileId(0), Vec::new());
    inode.kept = keeps(file);
    // While a lease is held, all that a snapshot has of the file is frozen, or is being frozen.
    if let Some(cover) = cover.filter(|_| !inode.held) {
        frozen::in_place(tx, file, &mut inode, cover)?;
    }
    if inode.held || inode.kept || inode.is_frozen() {
        inodes::save(tx, file, &inode)?;
    } else {
        inodes::bury(tx, file, &inode)?;
    }
    *volume = volumes::by_number(tx, volume.volume)?;
    Ok(())
}

fn is_first(inode: &InodeRecord, at: Named<'_>) -> bool {
    inode.parent == at.directory && inode.name == at.name
}

fn changed(
    tx: &mut Tx,
    directory: FileId,
    now_ms: u64,
    links: impl FnOnce(u32) -> u32,
) -> Result<(), Refusal> {
    let mut inode = inodes::get(tx, directory)?;
    inode.times.modified(now_ms);
    inode.more_links = links(inode.more_links);
    Ok(tx.set_inode(directory, &inode)?)
}
