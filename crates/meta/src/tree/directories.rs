//! The tree of names: look up, list, make, rename, unlink. Each function is the work of one transaction.
//!
//! Every entry names one record that exists, and every named record has its directory and name (of several
//! names the first). A volume's root has neither. A path begins at the volume's root, or at a directory given
//! by its number. Symbolic links are followed if names come after them: their targets are relative, and
//! cannot lead out of the volume.

use braid_layout::FileId;
use braid_wire::control::{Entry, EntryKind, NamePlace, NewAttributes, RenameHow, UnlinkOnly};
use braid_wire::{Reason, Refusal};

use crate::records::schema::{EntryRecord, InodeRecord, VolumeRecord, directory_record, key};
use crate::records::tx::Tx;
use crate::records::{inodes, quotas};
use crate::tree::entries::{self, Keeps, Named};
use crate::tree::names::{show, split, split_last};
use crate::tree::{attributes, room, volumes};

/// Maximum number of entries in one reply: even with the longest names they fit a frame.
pub const ENTRIES_PER_PAGE_MAX: usize = 1000;

/// Maximum number of symbolic links on a path (Linux: MAXSYMLINKS).
const SYMLINKS_MAX: u32 = 40;

/// The file, node or directory at the end of a path, with its volume.
pub struct Found {
    pub volume: VolumeRecord,
    pub file: FileId,
    pub inode: InodeRecord,
}

/// A name in a directory, taken or free.
pub struct Slot<'p> {
    pub directory: Found,
    pub name: &'p [u8],
    /// Entry that has the name now; `None` if the name is free.
    pub entry: Option<EntryRecord>,
}

/// Follows a path. If the last name is a symbolic link, the link itself is returned.
pub fn resolve(tx: &Tx, at: &NamePlace) -> Result<Found, Refusal> {
    walk(tx, at, &split(&at.path)?, Last::Itself)
}

/// Follows a path. If the last name is a symbolic link, that is followed too.
pub fn resolve_to_end(tx: &Tx, at: &NamePlace) -> Result<Found, Refusal> {
    walk(tx, at, &split(&at.path)?, Last::Followed)
}

/// Follows a path to the directory of its last name.
pub fn slot<'p>(tx: &Tx, at: &'p NamePlace) -> Result<Slot<'p>, Refusal> {
    let (names, name) = split_last(&at.path)?;
    let directory = walk(tx, at, &names, Last::Followed)?;
    if directory.inode.kind != EntryKind::Directory {
        return Err(not_directory(&at.path, names.last().copied().unwrap_or_default()));
    }
    let entry = tx.record(&key::entry(directory.file, name))?;
    Ok(Slot { directory, name, entry })
}

/// The nearest directory above a name that is there, as those between may be made later; `None` if the path
/// leads nowhere.
pub fn nearest(tx: &Tx, at: &NamePlace) -> Option<Found> {
    let names = split_last(&at.path).ok()?.0;
    let mut found =
        (0..=names.len()).rev().filter_map(|upto| walk(tx, at, &names[..upto], Last::Followed).ok());
    found.next().filter(|found| found.inode.kind == EntryKind::Directory)
}

/// The entries of a directory after a name, and true if there are more. `limit` 0 means as many as fit.
pub fn list(tx: &Tx, at: &NamePlace, after: &[u8], limit: u32) -> Result<(Vec<Entry>, bool), Refusal> {
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
        Ok(Entry { name, file: record.file, attributes: inode.attributes() })
    };
    Ok((rows.into_iter().map(entry).collect::<Result<_, _>>()?, more))
}

/// Numbers of all that a directory has names for.
pub fn files_in(tx: &Tx, directory: FileId) -> Result<Vec<FileId>, Refusal> {
    let (from, to) = key::under(key::entry(directory, b""));
    let rows = tx.records::<EntryRecord>(&(from, to), usize::MAX)?;
    Ok(rows.into_iter().map(|(_, entry)| entry.file).collect())
}

/// Treatment of the parents when a directory is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parents {
    /// The parents must exist, and the directory must not.
    Required,
    /// Missing parents are made too, and the directory may exist.
    Made,
}

/// Makes a directory. Returns its number.
pub fn make(
    tx: &mut Tx,
    at: &NamePlace,
    new: &NewAttributes,
    parents: Parents,
    now_ms: u64,
) -> Result<FileId, Refusal> {
    attributes::check(new)?;
    let parents = parents == Parents::Made;
    let (path, names) = (&at.path, split(&at.path)?);
    if names.is_empty() {
        let found = resolve(tx, at)?;
        return if parents { Ok(found.file) } else { Err(exists(path)) };
    }
    let first = if parents { 1 } else { names.len() };
    let mut made = FileId(0);
    for upto in first..=names.len() {
        let part = names[..upto].join(&b'/');
        let to = NamePlace { path: part.clone(), ..at.clone() };
        let slot = slot(tx, &to)?;
        match slot.entry {
            Some(entry) if parents && entry.kind == EntryKind::Directory => made = entry.file,
            Some(entry) if parents && upto < names.len() && entry.kind == EntryKind::Symlink => {}
            Some(_) if parents && upto < names.len() => return Err(not_directory(path, &part)),
            Some(_) => return Err(exists(&part)),
            None => {
                let (directory, volume) = (slot.directory.file, slot.directory.volume.volume);
                made = FileId(tx.next_number()?);
                let mut inode = directory_record(volume, directory, slot.name.to_vec(), now_ms);
                inode.take(new, &slot.directory.inode);
                tx.set_inode(made, &inode)?;
                let entry = EntryRecord { kind: EntryKind::Directory, file: made };
                entries::put(tx, Named { directory, name: slot.name }, &entry, now_ms)?;
            }
        }
    }
    Ok(made)
}

/// Removes a name, or an empty directory. A file open for writing continues without a name.
pub fn unlink(
    tx: &mut Tx,
    at: &NamePlace,
    only: UnlinkOnly,
    keeps: Keeps<'_>,
    now_ms: u64,
) -> Result<(), Refusal> {
    let mut slot = slot(tx, at)?;
    let entry = slot.entry.clone().ok_or_else(|| not_found(&at.path))?;
    match (only, entry.kind) {
        (UnlinkOnly::NotDirectory, EntryKind::Directory) => return Err(is_directory(&at.path)),
        (UnlinkOnly::Directory, kind) if kind != EntryKind::Directory => {
            return Err(not_directory(&at.path, &at.path));
        }
        _ => refuse_full(tx, &entry, &at.path)?,
    }
    let named = Named { directory: slot.directory.file, name: slot.name };
    entries::take(tx, named, &entry, now_ms)?;
    entries::drop_name(tx, &mut slot.directory.volume, entry.file, named, keeps, now_ms)
}

/// Renames atomically: see [`RenameHow`].
pub fn rename(
    tx: &mut Tx,
    at: &NamePlace,
    to: &NamePlace,
    how: RenameHow,
    keeps: Keeps<'_>,
    now_ms: u64,
) -> Result<(), Refusal> {
    let source = slot(tx, at)?;
    let moved = source.entry.clone().ok_or_else(|| not_found(&at.path))?;
    let mut target = slot(tx, to)?;
    if source.directory.volume.volume != target.directory.volume.volume {
        let detail = format!("{:?} is in another volume than {:?}: copy it", show(&at.path), show(&to.path));
        return Err(Refusal::new(Reason::BadName, detail));
    }
    refuse_ring(tx, &moved, &target, at, to)?;
    let named = Named { directory: source.directory.file, name: source.name };
    let new = Named { directory: target.directory.file, name: target.name };
    match (target.entry.clone(), how) {
        (Some(_), RenameHow::NoReplace) => return Err(exists(&to.path)),
        (None, RenameHow::Exchange) => return Err(not_found(&to.path)),
        (Some(old), _) if old.file == moved.file => return Ok(()),
        (Some(old), RenameHow::Exchange) => {
            refuse_ring(tx, &old, &source, to, at)?;
            entries::take(tx, new, &old, now_ms)?;
            entries::take(tx, named, &moved, now_ms)?;
            return move_all(tx, [(moved, named, new), (old, new, named)], now_ms);
        }
        (Some(old), RenameHow::Replace) => {
            match (moved.kind == EntryKind::Directory, old.kind == EntryKind::Directory) {
                (false, true) => return Err(is_directory(&to.path)),
                (true, false) => return Err(not_directory(&to.path, &to.path)),
                _ => refuse_full(tx, &old, &to.path)?,
            }
            entries::take(tx, new, &old, now_ms)?;
            let volume = &mut target.directory.volume;
            entries::drop_name(tx, volume, old.file, new, keeps, now_ms)?;
        }
        (None, _) => {}
    }
    entries::take(tx, named, &moved, now_ms)?;
    move_all(tx, [(moved, named, new)], now_ms)
}

/// Gives entries that were taken out of their directories their new names.
fn move_all<const N: usize>(
    tx: &mut Tx,
    moves: [(EntryRecord, Named<'_>, Named<'_>); N],
    now_ms: u64,
) -> Result<(), Refusal> {
    for (entry, from, to) in moves {
        let mut inode = inodes::get(tx, entry.file)?;
        let before = inode.clone();
        entries::move_name(tx, entry.file, &mut inode, from, to);
        inode.times.changed(now_ms);
        room::refuse_above(tx, Some(&before), Some(&inode))?;
        if entry.kind == EntryKind::Directory {
            refuse_other_trees(tx, &inode, from, to)?;
        }
        tx.set_inode(entry.file, &inode)?;
        entries::put(tx, to, &entry, now_ms)?;
    }
    Ok(())
}

/// Refuses to move a directory to where other directories' quotas hold: all that is below it would count
/// elsewhere.
fn refuse_other_trees(tx: &Tx, inode: &InodeRecord, from: Named<'_>, to: Named<'_>) -> Result<(), Refusal> {
    let volume = inode.volume;
    if from.directory == to.directory
        || quotas::trees(tx, volume, from.directory)? == quotas::trees(tx, volume, to.directory)?
    {
        return Ok(());
    }
    let detail = format!(
        "directory {:?} would be under another directory's quota: copy it, and remove it here",
        show(from.name)
    );
    Err(Refusal::new(Reason::OtherQuota, detail))
}

/// Refuses to move a directory to somewhere below itself.
fn refuse_ring(
    tx: &Tx,
    moved: &EntryRecord,
    target: &Slot<'_>,
    from: &NamePlace,
    to: &NamePlace,
) -> Result<(), Refusal> {
    if moved.kind == EntryKind::Directory && is_within(tx, target.directory.file, moved.file)? {
        let from = show(&from.path);
        let to = show(&to.path);
        let detail = format!("cannot move directory {from:?} into itself ({to:?})");
        return Err(Refusal::new(Reason::BadName, detail));
    }
    Ok(())
}

/// The refusal for a path that does not exist.
pub fn not_found(path: &[u8]) -> Refusal {
    Refusal::new(Reason::NotFound, format!("no file or directory {:?}", show(path)))
}

/// The refusal for a path that exists already.
pub fn exists(path: &[u8]) -> Refusal {
    Refusal::new(Reason::Exists, format!("{:?} exists already", show(path)))
}

/// Treatment of a symbolic link that is the last name of a path: returned itself, or followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Itself,
    Followed,
}

/// Follows names from the beginning of the path.
fn walk(tx: &Tx, at: &NamePlace, names: &[&[u8]], last: Last) -> Result<Found, Refusal> {
    let (volume, mut file, mut inode) = begin(tx, at)?;
    for (depth, name) in names.iter().enumerate() {
        let (found, record) = step(tx, at, file, &inode, name)?;
        if record.kind == EntryKind::Symlink && (depth + 1 < names.len() || last == Last::Followed) {
            let rest = names[depth..].iter().map(|name| name.to_vec()).collect();
            let (file, inode) = follow(tx, at, (file, inode), rest, last)?;
            return Ok(Found { volume, file, inode });
        }
        (file, inode) = (found, record);
    }
    Ok(Found { volume, file, inode })
}

/// Follows names from a directory on, and the names in the targets of symbolic links among them.
fn follow(
    tx: &Tx,
    at: &NamePlace,
    from: (FileId, InodeRecord),
    names: Vec<Vec<u8>>,
    last: Last,
) -> Result<(FileId, InodeRecord), Refusal> {
    let (mut file, mut inode) = from;
    let mut left = names;
    let mut links = 0;
    left.reverse();
    while let Some(name) = left.pop() {
        if name == b".." {
            if inode.parent != FileId(0) {
                (file, inode) = (inode.parent, inodes::get(tx, inode.parent)?);
            }
            continue;
        }
        let (found, record) = step(tx, at, file, &inode, &name)?;
        if record.kind == EntryKind::Symlink && !(left.is_empty() && last == Last::Itself) {
            left.extend(names_of(&record.target, at, &mut links)?.into_iter().rev());
        } else {
            (file, inode) = (found, record);
        }
    }
    Ok((file, inode))
}

/// Looks one name up in a directory.
fn step(
    tx: &Tx,
    at: &NamePlace,
    file: FileId,
    inode: &InodeRecord,
    name: &[u8],
) -> Result<(FileId, InodeRecord), Refusal> {
    if inode.kind != EntryKind::Directory {
        return Err(not_directory(&at.path, &inode.name));
    }
    let entry: EntryRecord = tx.record(&key::entry(file, name))?.ok_or_else(|| not_found(&at.path))?;
    Ok((entry.file, inodes::get(tx, entry.file)?))
}

/// The names in a symbolic link's target.
fn names_of(target: &[u8], at: &NamePlace, links: &mut u32) -> Result<Vec<Vec<u8>>, Refusal> {
    *links += 1;
    let loops = |why: &str| Refusal::new(Reason::Loop, format!("{:?} leads {why}", show(&at.path)));
    if *links > SYMLINKS_MAX {
        return Err(loops("over too many symbolic links"));
    }
    if target.first() == Some(&b'/') {
        let target = show(target);
        return Err(loops(&format!(
            "out of the volume, by a symbolic link to {target:?}: use it in a mount"
        )));
    }
    let names = target.split(|&byte| byte == b'/').filter(|name| !matches!(name, [] | [b'.']));
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// The volume and the directory in which a path begins.
fn begin(tx: &Tx, at: &NamePlace) -> Result<(VolumeRecord, FileId, InodeRecord), Refusal> {
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

/// Returns true if `directory` is `other`, or is somewhere below it.
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

/// The refusal for a directory where another kind is required.
pub fn is_directory(path: &[u8]) -> Refusal {
    Refusal::new(Reason::IsDirectory, format!("{:?} is a directory", show(path)))
}

fn not_directory(path: &[u8], part: &[u8]) -> Refusal {
    let detail = if path == part {
        format!("{:?} is not a directory", show(path))
    } else {
        format!("{:?}: {:?} is not a directory", show(path), show(part))
    };
    Refusal::new(Reason::NotDirectory, detail)
}
