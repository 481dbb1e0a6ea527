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
use crate::tokens::permissions::Act;
use crate::tree::doors::{self, DOOR};
use crate::tree::entries::{self, Keeps, Named};
use crate::tree::names::{show, split, split_last};
use crate::tree::reach::Guard;
use crate::tree::seen::{self, Within};
use crate::tree::{attributes, room, volumes};

/// Maximum number of entries in one reply: even with the longest names they fit a frame.
pub const ENTRIES_PER_PAGE_MAX: usize = 1000;

/// Maximum number of symbolic links on a path (Linux: MAXSYMLINKS).
const SYMLINKS_MAX: u32 = 40;

/// The file, node or directory at the end of a path, with its volume.
pub struct Found {
    pub volume: VolumeRecord,
    pub file: FileId,
    /// The record as it is, or as the snapshot shows it: then without the file's bytes.
    pub inode: InodeRecord,
    /// The snapshot in which it is.
    pub within: Option<Within>,
}

impl Found {
    /// Refuses to change what is in a snapshot.
    pub fn changeable(self, at: &NamePlace) -> Result<Found, Refusal> {
        match self.within {
            None => Ok(self),
            Some(_) => Err(read_only(&at.path)),
        }
    }
}

/// Refuses what only the owner may do to what was found: `what` says it, for the message.
pub fn refuse_foreign(tx: &Tx, found: &Found, what: &str) -> Result<(), Refusal> {
    tx.access().map_or(Ok(()), |access| access.owns(&found.inode, what))
}

/// The refusal to change what is in a snapshot.
pub(super) fn read_only(path: &[u8]) -> Refusal {
    let detail = format!("{:?} is in a snapshot, which cannot be changed: copy it out of there", show(path));
    Refusal::new(Reason::SnapshotReadOnly, detail)
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

/// Follows a path to the directory of its last name, in which a name is to be changed.
pub fn slot<'p>(tx: &Tx, at: &'p NamePlace) -> Result<Slot<'p>, Refusal> {
    let slot = directory_of(tx, at).map_err(|refusal| {
        // The path may end at the directory whose snapshot it names.
        let is_root =
            refusal.reason == Reason::NoSnapshot && resolve(tx, at).is_ok_and(|found| found.within.is_some());
        if is_root { read_only(&at.path) } else { refusal }
    })?;
    if slot.directory.within.is_some() {
        return Err(read_only(&at.path));
    }
    if slot.name == DOOR && slot.entry.is_none() {
        return Err(doors::reserved(&at.path));
    }
    if let Some(access) = tx.access() {
        access.may(&slot.directory.inode, Act::Write)?;
    }
    Ok(slot)
}

/// Follows a path to the directory of its last name.
pub fn directory_of<'p>(tx: &Tx, at: &'p NamePlace) -> Result<Slot<'p>, Refusal> {
    let (names, name) = split_last(&at.path)?;
    let directory = walk(tx, at, &names, Last::Followed)?;
    if directory.inode.kind != EntryKind::Directory {
        return Err(not_directory(&at.path, names.last().copied().unwrap_or_default()));
    }
    if let Some(access) = tx.access() {
        access.may(&directory.inode, Act::Search)?;
    }
    let entry = seen::entry(tx, directory.file, name, directory.within)?;
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
    if let Some(access) = tx.access() {
        access.may(&found.inode, Act::Read)?;
    }
    let limit = match usize::try_from(limit).unwrap_or(usize::MAX) {
        0 => ENTRIES_PER_PAGE_MAX,
        limit => limit.min(ENTRIES_PER_PAGE_MAX),
    };
    if let Some(directory) = doors::behind(found.file) {
        return doors::list(tx, directory, after, limit);
    }
    let mut rows = seen::entries(tx, found.file, found.within, after, limit + 1)?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let entry = |(name, record): (Vec<u8>, EntryRecord)| -> Result<Entry, Refusal> {
        let inode = seen::get(tx, record.file, found.within)?;
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
    let new = &tx.access().map_or(*new, |access| access.owned(new));
    let mut first = if parents { 1 } else { names.len() };
    let mut made = FileId(0);
    if parents && tx.access().is_some() {
        // What is there already need not be one's own to change, nor be below the token's directories.
        let is_there = |upto: &usize| {
            let part = NamePlace { path: names[..*upto].join(&b'/'), ..at.clone() };
            resolve_to_end(tx, &part).is_ok()
        };
        let there = (1..=names.len()).rev().find(is_there).unwrap_or(0);
        first = (there + 1).min(names.len());
        if there == names.len() {
            let found = resolve(tx, at)?;
            let is_directory = found.inode.kind == EntryKind::Directory;
            return if is_directory { Ok(found.file) } else { Err(exists(path)) };
        }
    }
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
                let entry = EntryRecord::of(EntryKind::Directory, made);
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
    refuse_taken(tx, &slot.directory, &entry)?;
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
    refuse_taken(tx, &source.directory, &moved)?;
    if let Some(old) = target.entry.as_ref().filter(|old| old.file != moved.file) {
        refuse_taken(tx, &target.directory, old)?;
    }
    let is_elsewhere = source.directory.file != target.directory.file;
    refuse_moved(tx, &moved, is_elsewhere)?;
    if let (Some(old), RenameHow::Exchange) = (&target.entry, how) {
        refuse_moved(tx, old, is_elsewhere)?;
    }
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

/// Refuses to take the name out of the directory if the asker's user may not.
pub(super) fn refuse_taken(tx: &Tx, directory: &Found, entry: &EntryRecord) -> Result<(), Refusal> {
    match tx.access() {
        Some(access) => access.may_take(&directory.inode, &inodes::get(tx, entry.file)?),
        None => Ok(()),
    }
}

/// Refuses to move a directory to another one if the asker's user may not write it: its `..` changes.
fn refuse_moved(tx: &Tx, entry: &EntryRecord, is_elsewhere: bool) -> Result<(), Refusal> {
    match tx.access().filter(|_| is_elsewhere && entry.kind == EntryKind::Directory) {
        Some(access) => access.may(&inodes::get(tx, entry.file)?, Act::Write),
        None => Ok(()),
    }
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
        entries::move_name(tx, entry.file, &mut inode, from, to)?;
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

/// Follows names from the beginning of the path, and the names in the targets of symbolic links among them.
fn walk(tx: &Tx, at: &NamePlace, names: &[&[u8]], last: Last) -> Result<Found, Refusal> {
    let Beginning { volume, snapshot: named, mut here } = begin(tx, at)?;
    let mut guard = Guard::begin(tx, here.file, here.within, at.from == FileId(0), &at.path)?;
    let mut left: Vec<Vec<u8>> = names.iter().rev().map(|name| name.to_vec()).collect();
    let mut links = 0;
    while let Some(name) = left.pop() {
        guard.look_into(&here.inode)?;
        if name == b".." {
            // What is above a snapshot's root is not in the snapshot.
            let is_top = here.within.is_some_and(|within| within.root == here.file);
            let from = doors::behind(here.file).unwrap_or(here.file);
            if let Some(directory) = doors::behind(here.file) {
                here = Here::at(tx, directory, None)?;
            } else if !is_top && here.inode.parent != FileId(0) {
                here = Here::at(tx, here.inode.parent, here.within)?;
            }
            guard.up(from, here.file, &at.path)?;
            continue;
        }
        let is_outside = named.filter(|_| here.within.is_none());
        let next = here.step(tx, at, &name, named).map_err(|refusal| match is_outside {
            Some(snapshot) if refusal.reason == Reason::NotFound => no_snapshot(&volume, snapshot, at),
            _ => refusal,
        });
        let next = next.map_err(|refusal| guard.missing(refusal, &at.path))?;
        guard.down(doors::behind(next.file).unwrap_or(next.file), &at.path)?;
        if next.inode.kind == EntryKind::Symlink && (!left.is_empty() || last == Last::Followed) {
            left.extend(names_of(&next.inode.target, at, &mut links)?.into_iter().rev());
        } else {
            here = next.enter(tx, named)?;
        }
    }
    if let Some(snapshot) = named.filter(|_| here.within.is_none()) {
        return Err(no_snapshot(&volume, snapshot, at));
    }
    guard.end(&at.path)?;
    let Here { file, inode, within } = here;
    Ok(Found { volume, file, inode, within })
}

/// The refusal if no directory on a path has a snapshot of this name.
fn no_snapshot(volume: &VolumeRecord, snapshot: &str, at: &NamePlace) -> Refusal {
    let label = &volume.name;
    let detail = format!(
        "no snapshot {snapshot:?} of volume {label:?} or of a directory in {:?}: braid snapshot ls braid://{label} \
         names those that are there",
        show(&at.path)
    );
    Refusal::new(Reason::NoSnapshot, detail)
}

/// A place on a path.
struct Here {
    file: FileId,
    inode: InodeRecord,
    within: Option<Within>,
}

impl Here {
    fn at(tx: &Tx, file: FileId, within: Option<Within>) -> Result<Here, Refusal> {
        Ok(Here { file, inode: seen::get(tx, file, within)?, within })
    }

    /// Looks one name up in the directory. `named`: the snapshot into which the path leads by the volume's
    /// name. Then it leads into no other.
    fn step(&self, tx: &Tx, at: &NamePlace, name: &[u8], named: Option<&str>) -> Result<Here, Refusal> {
        if self.inode.kind != EntryKind::Directory {
            return Err(not_directory(&at.path, &self.inode.name));
        }
        if let Some(directory) = doors::behind(self.file) {
            return Here::at(tx, directory, Some(doors::snapshot(tx, directory, name)?));
        }
        let entry = seen::entry(tx, self.file, name, self.within)?;
        if entry.is_none()
            && name == DOOR
            && self.within.is_none()
            && named.is_none()
            && let Some(inode) = doors::record(tx, self.file, &self.inode)?
        {
            return Ok(Here::door(self.file, inode));
        }
        Here::at(tx, entry.ok_or_else(|| not_found(&at.path))?.file, self.within)
    }

    /// The directory in which the names of a directory's snapshots are.
    fn door(directory: FileId, inode: InodeRecord) -> Here {
        Here { file: doors::of(directory), inode, within: Some(doors::within(directory)) }
    }

    /// Enters the directory's snapshot of this name, if it has one and the path is in none yet.
    fn enter(self, tx: &Tx, name: Option<&str>) -> Result<Here, Refusal> {
        let name = name.filter(|_| self.within.is_none() && self.inode.kind == EntryKind::Directory);
        match name.map(|name| seen::named(tx, self.file, name)).transpose()?.flatten() {
            Some(within) => Here::at(tx, self.file, Some(within)),
            None => Ok(self),
        }
    }
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

/// The beginning of a path.
struct Beginning<'p> {
    volume: VolumeRecord,
    /// Name of the snapshot that the path leads into.
    snapshot: Option<&'p str>,
    here: Here,
}

fn begin<'p>(tx: &Tx, at: &'p NamePlace) -> Result<Beginning<'p>, Refusal> {
    let (label, snapshot) = match at.volume.split_once('@') {
        Some((label, name)) => (label, Some(name)),
        None => (at.volume.as_str(), None),
    };
    if at.from == FileId(0) {
        let volume = volumes::find(tx, label)?;
        let here = Here::at(tx, volume.root, None)?.enter(tx, snapshot)?;
        return Ok(Beginning { volume, snapshot, here });
    }
    let behind = doors::behind(at.from).filter(|_| at.snapshot == 0);
    let of = match at.snapshot {
        0 => seen::get(tx, behind.unwrap_or(at.from), None)?.volume,
        number => seen::volume_of(tx, at.from, number)?,
    };
    let volume = volumes::by_number(tx, of)?;
    if !label.is_empty() && label != volume.name {
        let detail = format!("number {} is not in volume {label:?}", at.from);
        return Err(Refusal::new(Reason::NotFound, detail));
    }
    if let Some(directory) = behind {
        let inode = doors::record(tx, directory, &seen::get(tx, directory, None)?)?;
        let here = Here::door(directory, inode.ok_or_else(|| not_found(DOOR))?);
        return Ok(Beginning { volume, snapshot, here });
    }
    let within = match at.snapshot {
        0 => None,
        number => Some(seen::snapshot(tx, of, number)?),
    };
    let here = Here::at(tx, at.from, within)?.enter(tx, snapshot)?;
    Ok(Beginning { volume, snapshot, here })
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
    let snapshots = seen::names_of(tx, entry.file)?;
    if !snapshots.is_empty() {
        let detail = format!(
            "directory {:?} has snapshots ({}): remove them first, with braid snapshot rm",
            show(path),
            snapshots.join(", ")
        );
        return Err(Refusal::new(Reason::NotEmpty, detail));
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
