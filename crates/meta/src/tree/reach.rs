//! Keeps look-ups of names to the limits of a token ([`Access`]).
//!
//! A path may pass through the directories above the token's own, on the way down to them, and through nothing
//! else outside; it must end at one of the token's directories or below. What is named by its number is found
//! upwards: over the directories of its names, of which one must be below. A bound user must be able to
//! search each directory between the token's own, or the volume's root, and what is named.
//!
//! The way up costs a read for each directory above. A file with several names is looked up over each of
//! them, until one is below. All of that is at most [`STEPS_MAX`] reads; what is not found by then counts as
//! outside.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_layout::FileId;
use braid_wire::Refusal;
use braid_wire::control::EntryKind;

use crate::records::inodes;
use crate::records::schema::{InodeRecord, ReservationRecord, key};
use crate::records::tx::Tx;
use crate::tokens::access::Access;
use crate::tokens::permissions::Act;
use crate::tokens::rights::Place;
use crate::tree::seen::{self, Within};
use crate::tree::{doors, snapshots};

/// Maximum number of directories that are read to find out whether something is below others.
pub const STEPS_MAX: usize = 4096;

/// The limits of a look-up, and how far it has come.
pub(super) struct Guard {
    access: Option<Arc<Access>>,
    /// Directories above the token's own.
    on_the_way: BTreeSet<FileId>,
    is_inside: bool,
}

impl Guard {
    /// Begins a look-up at a file or directory: at the volume's root, or at a number that the asker gave.
    pub(super) fn begin(
        tx: &Tx,
        file: FileId,
        within: Option<Within>,
        is_root: bool,
        path: &[u8],
    ) -> Result<Guard, Refusal> {
        let Some(access) = tx.access() else {
            return Ok(Guard { access: None, on_the_way: BTreeSet::new(), is_inside: true });
        };
        let file = doors::behind(file).unwrap_or(file);
        let within = within.filter(|within| within.number != 0);
        let is_inside = match is_root {
            true => access.roots().is_empty() || access.roots().contains(&file),
            false => reaches(tx, &access, file, within)?,
        };
        let on_the_way = if access.roots().is_empty() { BTreeSet::new() } else { above(tx, access.roots())? };
        if !is_inside && !on_the_way.contains(&file) {
            return Err(access.outside(path));
        }
        Ok(Guard { access: Some(access), on_the_way, is_inside })
    }

    /// Ok if a name may be looked up in this directory.
    pub(super) fn look_into(&self, directory: &InodeRecord) -> Result<(), Refusal> {
        match &self.access {
            Some(access) if self.is_inside => access.may(directory, Act::Search),
            _ => Ok(()),
        }
    }

    /// The refusal of a name that is not there: outside, it is not told that it is not.
    pub(super) fn missing(&self, refusal: Refusal, path: &[u8]) -> Refusal {
        match &self.access {
            Some(access) if !self.is_inside => access.outside(path),
            _ => refusal,
        }
    }

    /// The look-up goes on to this file or directory, which is in the present one.
    pub(super) fn down(&mut self, to: FileId, path: &[u8]) -> Result<(), Refusal> {
        let Some(access) = &self.access else { return Ok(()) };
        self.is_inside |= access.roots().contains(&to);
        if self.is_inside || self.on_the_way.contains(&to) { Ok(()) } else { Err(access.outside(path)) }
    }

    /// The look-up goes on from this directory to the one above it.
    pub(super) fn up(&mut self, from: FileId, to: FileId, path: &[u8]) -> Result<(), Refusal> {
        let Some(access) = &self.access else { return Ok(()) };
        if from == to || access.roots().is_empty() {
            return Ok(());
        }
        self.is_inside &= !access.roots().contains(&from);
        self.is_inside |= access.roots().contains(&to);
        if self.is_inside || self.on_the_way.contains(&to) { Ok(()) } else { Err(access.outside(path)) }
    }

    /// Ok if the look-up may end here.
    pub(super) fn end(&self, path: &[u8]) -> Result<(), Refusal> {
        match &self.access {
            Some(access) if !self.is_inside => Err(access.outside(path)),
            _ => Ok(()),
        }
    }
}

/// All directories above these.
fn above(tx: &Tx, roots: &[FileId]) -> Result<BTreeSet<FileId>, Refusal> {
    let mut found = BTreeSet::new();
    for &root in roots {
        let mut at = root;
        // A directory of the token may have been removed.
        while let Some(inode) = inodes::find(tx, at)?.filter(|inode| inode.parent != FileId(0)) {
            at = inode.parent;
            if !found.insert(at) {
                break;
            }
        }
    }
    Ok(found)
}

/// Returns true if one of the file's names leads to it from a directory of the token, or from the volume's
/// root if it has none, through directories that the token's user may search.
pub fn reaches(tx: &Tx, access: &Access, file: FileId, within: Option<Within>) -> Result<bool, Refusal> {
    let inode = seen::get(tx, file, within)?;
    if access.roots().contains(&file) {
        return Ok(true);
    }
    if inode.kind == EntryKind::Directory && inode.parent == FileId(0) {
        return Ok(access.roots().is_empty());
    }
    let mut steps = STEPS_MAX;
    if is_at(within, file) || inode.parent != FileId(0) {
        let parent = parent_of(tx, file, &inode, within)?;
        if climbs(tx, access, parent, within.filter(|_| !is_at(within, file)), &mut steps)? {
            return Ok(true);
        }
    }
    if within.is_some() || inode.kind == EntryKind::Directory || inode.more_links == 0 {
        return Ok(false);
    }
    let (mut from, to) = key::more_names_of(file);
    while steps > 0 {
        let Some((row, _)) = tx.scan(&from, &to, 1)?.into_iter().next() else { return Ok(false) };
        if climbs(tx, access, key::more_name_in(&row).0, None, &mut steps)? {
            return Ok(true);
        }
        from = [row.as_slice(), &[0]].concat();
    }
    Ok(false)
}

/// Returns true if a directory is one of the token's or below one, and that and all between may be searched.
fn climbs(
    tx: &Tx,
    access: &Access,
    directory: FileId,
    within: Option<Within>,
    steps: &mut usize,
) -> Result<bool, Refusal> {
    let mut within = within;
    let mut at = directory;
    while *steps > 0 && at != FileId(0) {
        *steps -= 1;
        let Some(inode) = seen::find(tx, at, within)? else { return Ok(false) };
        if access.may(&inode, Act::Search).is_err() {
            return Ok(false);
        }
        if access.roots().contains(&at) {
            return Ok(true);
        }
        let parent = parent_of(tx, at, &inode, within)?;
        if parent == FileId(0) {
            return Ok(access.roots().is_empty());
        }
        within = within.filter(|_| !is_at(within, at));
        at = parent;
    }
    Ok(false)
}

fn is_at(within: Option<Within>, file: FileId) -> bool {
    within.is_some_and(|within| within.root == file)
}

/// The directory above; above a snapshot's root is what is above it now.
fn parent_of(tx: &Tx, file: FileId, inode: &InodeRecord, within: Option<Within>) -> Result<FileId, Refusal> {
    match is_at(within, file) {
        true => Ok(inodes::find(tx, file)?.map_or(FileId(0), |live| live.parent)),
        false => Ok(inode.parent),
    }
}

/// Ok if the token may do this at a place that a request names otherwise than by a path. `keeps` says whether
/// the asker has a file open that has lost its names.
pub fn may_be_at(
    tx: &Tx,
    access: &Access,
    act: Act,
    place: &Place,
    keeps: impl Fn(FileId) -> Result<bool, Refusal>,
) -> Result<(), Refusal> {
    let refused = |file: FileId| Err(access.outside(format!("number {file}").as_bytes()));
    match place {
        // Look-ups keep to the limits by themselves, and what a list shows is chosen from it.
        Place::Name(_) | Place::Volume(_) => Ok(()),
        Place::File(file, snapshot) => {
            let within = match snapshot {
                0 => None,
                number => Some(seen::snapshot(tx, seen::volume_of(tx, *file, *number)?, *number)?),
            };
            let inode = seen::get(tx, *file, within)?;
            let is_reached = match within.is_some() || inode.is_named() {
                true => reaches(tx, access, *file, within)?,
                false => keeps(*file)?,
            };
            if is_reached { access.may(&inode, act) } else { refused(*file) }
        }
        // Who holds it has opened it. It may have lost its names since, but not have moved out.
        Place::Held(file) => {
            let Some(inode) = inodes::find(tx, *file)? else { return Ok(()) };
            let is_out = inode.is_named()
                && !access.roots().is_empty()
                && !reaches(tx, &access.of_anyone(), *file, None)?;
            if is_out {
                return refused(*file);
            }
            access.owns(&inode, "hold").or_else(|_| access.may(&inode, act))
        }
        Place::Reservation(number) => {
            let record: Option<ReservationRecord> = tx.record(&key::reservation(*number))?;
            let Some(record) = record else { return Ok(()) };
            let file = if record.file == FileId(0) { record.parent } else { record.file };
            match inodes::find(tx, file)? {
                Some(_) if !reaches(tx, access, file, None)? => refused(file),
                _ => Ok(()),
            }
        }
    }
}

/// The URLs below which a token with directories sees rows of lists.
pub fn urls(tx: &Tx, roots: &[FileId]) -> Result<Vec<String>, Refusal> {
    let mut urls = Vec::new();
    for &root in roots {
        if inodes::find(tx, root)?.is_some() {
            urls.push(snapshots::place_of(tx, root)?);
        }
    }
    Ok(urls)
}
