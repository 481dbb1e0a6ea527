//! The tree of names: look up, list, make, rename, unlink. Each is one transaction's work.
//!
//! Every entry names one record that exists, and every named record knows its directory and name. A volume's
//! root has neither. A path leads from the volume's root, or from a directory that is named by its number.

use braid_layout::FileId;
use braid_wire::control::{Entry, EntryKind, Place};
use braid_wire::{Reason, Refusal};

use crate::inodes;
use crate::kv::Tx;
use crate::names::{show, split, split_last};
use crate::schema::{EntryRecord, InodeRecord, VolumeRecord, key};
use crate::volumes::{self, directory_record};

/// Most entries in one reply: even with the longest names they fit a frame.
pub const ENTRIES_PER_PAGE_MAX: usize = 1000;

/// What a path leads to.
pub struct Found {
    /// Its volume.
    pub volume: VolumeRecord,
    /// Its number.
    pub file: FileId,
    /// Its record.
    pub inode: InodeRecord,
}

/// A name in a directory, taken or free.
pub struct Slot<'p> {
    /// The directory.
    pub directory: Found,
    /// The name.
    pub name: &'p [u8],
    /// What has the name now.
    pub entry: Option<EntryRecord>,
}

/// Follows a path.
pub fn resolve(tx: &Tx, at: &Place) -> Result<Found, Refusal> {
    walk(tx, at, &split(&at.path)?)
}

/// Follows a path to the directory of its last name.
pub fn slot<'p>(tx: &Tx, at: &'p Place) -> Result<Slot<'p>, Refusal> {
    let (names, name) = split_last(&at.path)?;
    let directory = walk(tx, at, &names)?;
    if directory.inode.kind != EntryKind::Directory {
        return Err(not_directory(&at.path, names.last().copied().unwrap_or_default()));
    }
    let entry = tx.record(&key::entry(directory.file, name))?;
    Ok(Slot { directory, name, entry })
}

/// The entries of a directory after a name, and whether there are more. `limit` 0 means as many as fit.
pub fn list(tx: &Tx, at: &Place, after: &[u8], limit: u32) -> Result<(Vec<Entry>, bool), Refusal> {
    let found = resolve(tx, at)?;
    if found.inode.kind != EntryKind::Directory {
        return Err(not_directory(&at.path, &at.path));
    }
    let limit = match usize::try_from(limit).unwrap_or(usize::MAX) {
        0 => ENTRIES_PER_PAGE_MAX,
        limit => limit.min(ENTRIES_PER_PAGE_MAX),
    };
    let (mut from, to) = key::under(key::entry(found.file, b""));
    if !after.is_empty() {
        from = key::entry(found.file, after);
        from.push(0); // names hold no NUL: this is the first key after it
    }
    let mut rows = tx.records::<EntryRecord>(&(from, to), limit + 1)?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let entry = |(key, record): (Vec<u8>, EntryRecord)| -> Result<Entry, Refusal> {
        let inode = inodes::get(tx, record.file)?;
        let name = key.get(9..).unwrap_or_default().to_vec();
        Ok(Entry {
            name,
            kind: record.kind,
            file: record.file,
            size: inode.size,
            modified_ms: inode.modified_ms,
        })
    };
    Ok((rows.into_iter().map(entry).collect::<Result<_, _>>()?, more))
}

/// How a directory is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parents {
    /// Those above it must exist, and it must not.
    Required,
    /// Those above it are made too, and it may exist.
    Made,
}

/// Makes a directory.
pub fn make(tx: &mut Tx, at: &Place, parents: Parents, now_ms: u64) -> Result<(), Refusal> {
    let parents = parents == Parents::Made;
    let (path, names) = (&at.path, split(&at.path)?);
    if names.is_empty() {
        resolve(tx, at)?;
        return if parents { Ok(()) } else { Err(exists(path)) };
    }
    let first = if parents { 1 } else { names.len() };
    for upto in first..=names.len() {
        let part = names[..upto].join(&b'/');
        let to = Place { path: part.clone(), ..at.clone() };
        let slot = slot(tx, &to)?;
        match slot.entry {
            Some(entry) if parents && entry.kind == EntryKind::Directory => {}
            Some(entry) if parents && upto < names.len() && entry.kind == EntryKind::File => {
                return Err(not_directory(path, &part));
            }
            Some(_) => return Err(exists(&part)),
            None => {
                let (directory, record) = (slot.directory.file, slot.directory.volume.volume);
                let file = FileId(tx.next_number()?);
                tx.set_inode(file, &directory_record(record, directory, slot.name.to_vec(), now_ms))?;
                name_it(tx, directory, slot.name, EntryRecord { kind: EntryKind::Directory, file }, now_ms)?;
            }
        }
    }
    Ok(())
}

/// Removes a file's name or an empty directory. A file open for writing continues without a name.
pub fn unlink(tx: &mut Tx, at: &Place, now_ms: u64) -> Result<(), Refusal> {
    let mut slot = slot(tx, at)?;
    let entry = slot.entry.clone().ok_or_else(|| not_found(&at.path))?;
    refuse_full(tx, &entry, &at.path)?;
    let directory = slot.directory.file;
    tx.delete(key::entry(directory, slot.name));
    touch(tx, directory, now_ms)?;
    inodes::drop_name(tx, &mut slot.directory.volume, entry.file, now_ms)
}

/// Renames atomically: a file may replace a file, a directory an empty directory.
pub fn rename(tx: &mut Tx, at: &Place, to: &Place, now_ms: u64) -> Result<(), Refusal> {
    let source = slot(tx, at)?;
    let moved = source.entry.clone().ok_or_else(|| not_found(&at.path))?;
    let mut target = slot(tx, to)?;
    let (from, to) = (&at.path, &to.path);
    if source.directory.volume.volume != target.directory.volume.volume {
        let detail = format!("{:?} is in another volume than {:?}: copy it", show(from), show(to));
        return Err(Refusal::new(Reason::BadName, detail));
    }
    if moved.kind == EntryKind::Directory && is_within(tx, target.directory.file, moved.file)? {
        let detail = format!("cannot move directory {:?} into itself ({:?})", show(from), show(to));
        return Err(Refusal::new(Reason::BadName, detail));
    }
    if let Some(old) = target.entry.clone() {
        if old.file == moved.file {
            return Ok(());
        }
        match (moved.kind, old.kind) {
            (EntryKind::File, EntryKind::Directory) => {
                return Err(Refusal::new(Reason::IsDirectory, format!("{:?} is a directory", show(to))));
            }
            (EntryKind::Directory, EntryKind::File) => return Err(not_directory(to, to)),
            _ => refuse_full(tx, &old, to)?,
        }
        inodes::drop_name(tx, &mut target.directory.volume, old.file, now_ms)?;
    }
    tx.delete(key::entry(source.directory.file, source.name));
    touch(tx, source.directory.file, now_ms)?;
    let mut inode = inodes::get(tx, moved.file)?;
    (inode.parent, inode.name) = (target.directory.file, target.name.to_vec());
    tx.set_inode(moved.file, &inode)?;
    name_it(tx, target.directory.file, target.name, moved, now_ms)
}

/// Puts an entry into a directory.
pub fn name_it(
    tx: &mut Tx,
    directory: FileId,
    name: &[u8],
    entry: EntryRecord,
    now_ms: u64,
) -> Result<(), Refusal> {
    tx.set(key::entry(directory, name), &entry);
    touch(tx, directory, now_ms)
}

/// The refusal for a path that does not exist.
pub fn not_found(path: &[u8]) -> Refusal {
    Refusal::new(Reason::NotFound, format!("no file or directory {:?}", show(path)))
}

/// The refusal for a path that exists already.
pub fn exists(path: &[u8]) -> Refusal {
    Refusal::new(Reason::Exists, format!("{:?} exists already", show(path)))
}

/// Follows the names from where the path begins.
fn walk(tx: &Tx, at: &Place, names: &[&[u8]]) -> Result<Found, Refusal> {
    let (volume, mut file, mut inode) = begin(tx, at)?;
    for (depth, name) in names.iter().enumerate() {
        if inode.kind != EntryKind::Directory {
            return Err(not_directory(&at.path, &names[..depth].join(&b'/')));
        }
        let entry: EntryRecord = tx.record(&key::entry(file, name))?.ok_or_else(|| not_found(&at.path))?;
        (file, inode) = (entry.file, inodes::get(tx, entry.file)?);
    }
    Ok(Found { volume, file, inode })
}

/// Where a path begins.
fn begin(tx: &Tx, at: &Place) -> Result<(VolumeRecord, FileId, InodeRecord), Refusal> {
    if at.from == FileId(0) {
        let volume = volumes::find(tx, &at.volume)?;
        let inode = inodes::get(tx, volume.root)?;
        let root = volume.root;
        return Ok((volume, root, inode));
    }
    let inode = inodes::get(tx, at.from)?;
    let volume = volumes::by_number(tx, inode.volume)?;
    if !at.volume.is_empty() && at.volume != volume.name {
        let detail = format!("number {} is not in volume {:?}", at.from, at.volume);
        return Err(Refusal::new(Reason::NotFound, detail));
    }
    Ok((volume, at.from, inode))
}

/// Whether a directory is another one, or is somewhere below it.
fn is_within(tx: &Tx, directory: FileId, other: FileId) -> Result<bool, Refusal> {
    let mut at = directory;
    while at != other && at != FileId(0) {
        at = inodes::get(tx, at)?.parent;
    }
    Ok(at == other)
}

fn refuse_full(tx: &Tx, entry: &EntryRecord, path: &[u8]) -> Result<(), Refusal> {
    let (from, to) = key::under(key::entry(entry.file, b""));
    if entry.kind == EntryKind::Directory && !tx.scan(&from, &to, 1)?.is_empty() {
        return Err(Refusal::new(Reason::NotEmpty, format!("directory {:?} is not empty", show(path))));
    }
    Ok(())
}

fn touch(tx: &mut Tx, directory: FileId, now_ms: u64) -> Result<(), Refusal> {
    let mut inode = inodes::get(tx, directory)?;
    inode.modified_ms = now_ms;
    Ok(tx.set_inode(directory, &inode)?)
}

fn not_directory(path: &[u8], part: &[u8]) -> Refusal {
    let detail = if path == part {
        format!("{:?} is not a directory", show(path))
    } else {
        format!("{:?}: {:?} is not a directory", show(path), show(part))
    };
    Refusal::new(Reason::NotDirectory, detail)
}
