//! Keeps look-ups of names to the limits of a token ([`Access`]).
//!
//! A path may pass through the directories above the token's own, on the way down to them, and through
//! nothing else outside; it must end at one of the token's directories or below. What is named by its number
//! is found upwards: over the directories of its names, of which one must be below. A bound user must be able
//! to search each directory between the token's own, or the volume's root, and what is named.
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

/// Ok if the token may do this at a place that a request names otherwise than by a path. `had` says whether a
/// file that has lost its names was opened with the token before.
pub fn may_be_at(
    tx: &Tx,
    access: &Access,
    act: Act,
    place: &Place,
    had: impl Fn(FileId) -> bool,
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
                false => had(*file),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use braid_wire::Reason;
    use braid_wire::capability::Key;
    use braid_wire::control::{HardLink, MakeNode, NamePlace, NewAttributes, ShapeSpec, TokenUser};
    use braid_wire::token::TokenRole;

    use super::*;
    use crate::records::db::Db;
    use crate::records::memory::MemoryKv;
    use crate::records::schema::TokenRecord;
    use crate::tree::directories::{self, Parents, resolve};
    use crate::tree::{nodes, snapshots, volumes};

    const NEW: NewAttributes = NewAttributes { mode: 0o755, uid: 0, gid: 0 };

    fn at(path: &str) -> NamePlace {
        NamePlace::of("main", path)
    }

    fn state() -> Db {
        let db = Db::new(Arc::new(MemoryKv::new()));
        let shape = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 };
        db.write(|tx| volumes::create(tx, "main", shape, 0, 0)).expect("made");
        db
    }

    fn make(db: &Db, path: &str) -> FileId {
        db.write(|tx| directories::make(tx, &at(path), &NEW, Parents::Made, 0)).expect("made")
    }

    fn node(db: &Db, path: &str) -> FileId {
        let kind = EntryKind::Fifo;
        let make = MakeNode { at: at(path), kind, new: NEW, device: 0, target: Vec::new() };
        db.write(|tx| nodes::make(tx, &make, 0)).expect("made")
    }

    fn link(db: &Db, from: &str, to: &str) {
        db.write(|tx| nodes::link(tx, &HardLink { from: at(from), to: at(to) }, 0)).expect("linked");
    }

    fn access(below: &[FileId], user: Option<u32>) -> Arc<Access> {
        let record = TokenRecord {
            name: "t".into(),
            role: TokenRole::Client,
            secret: Key::new([1; 32]),
            volumes: None,
            below: below.to_vec(),
            user: user.map(|uid| TokenUser { uid, gids: vec![uid] }),
            read_only: false,
            single_use: false,
            used_by: braid_layout::DriveId(0),
            made_ms: 0,
            expires_s: 0,
            revoked_ms: 0,
        };
        Access::of(&record).expect("it is limited")
    }

    fn may(db: &Db, access: &Arc<Access>, at: &NamePlace) -> Result<FileId, Reason> {
        let found = db.read(|tx| {
            tx.act_for(braid_layout::TokenId(1), Some(Arc::clone(access)));
            resolve(tx, at).map(|found| found.file)
        });
        found.map_err(|refusal| refusal.reason)
    }

    #[test]
    fn a_file_is_below_if_one_of_its_names_is() {
        let db = state();
        let below = make(&db, "a/b");
        make(&db, "other");
        let file = node(&db, "other/f");
        let access = access(&[below], None);
        assert_eq!(may(&db, &access, &NamePlace::number(file)), Err(Reason::NotAllowed));
        link(&db, "other/f", "a/b/f");
        assert_eq!(may(&db, &access, &NamePlace::number(file)), Ok(file));
        assert_eq!(may(&db, &access, &at("other/f")), Err(Reason::NotAllowed));
        assert_eq!(may(&db, &access, &at("a/b/f")), Ok(file));
    }

    #[test]
    fn what_is_not_found_within_the_bound_counts_as_outside() {
        let db = state();
        let below = make(&db, "z");
        let mut deep = below;
        let mut chain = Vec::new();
        for _ in 0..STEPS_MAX + 1 {
            let place = NamePlace::under(deep, "d");
            deep = db.write(|tx| directories::make(tx, &place, &NEW, Parents::Required, 0)).expect("made");
            chain.push(deep);
        }
        let access = access(&[below], None);
        let number = |at: usize| NamePlace::number(chain[at]);
        assert_eq!(may(&db, &access, &number(STEPS_MAX - 1)), Ok(chain[STEPS_MAX - 1]));
        assert_eq!(may(&db, &access, &number(STEPS_MAX)), Err(Reason::NotAllowed));
    }

    #[test]
    fn a_snapshot_shows_what_was_below() {
        let db = state();
        let below = make(&db, "a/b");
        let inside = node(&db, "a/b/f");
        let outside = node(&db, "a/g");
        let root = db.read(|tx| volumes::find(tx, "main")).expect("there").root;
        let made = db.write(|tx| snapshots::make(tx, &at(""), "s", 0)).expect("made");
        let access = access(&[below], None);
        let then = |path: &str| NamePlace::of("main@s", path);
        let number = |file| NamePlace { snapshot: made.number, ..NamePlace::number(file) };
        assert_eq!(may(&db, &access, &then("a/b/f")), Ok(inside));
        assert_eq!(may(&db, &access, &number(inside)), Ok(inside));
        assert_eq!(may(&db, &access, &at(".snapshots/s/a/b/f")), Ok(inside), "on the way down");
        for refused in [then("a/g"), then(""), number(outside), number(root), at(".snapshots/s/a/g")] {
            assert_eq!(may(&db, &access, &refused), Err(Reason::NotAllowed), "{refused:?}");
        }
    }

    #[test]
    fn a_user_must_be_able_to_search_the_way_to_a_number() {
        let db = state();
        make(&db, "open");
        let file = node(&db, "open/f");
        let closed = make(&db, "closed/in");
        let hidden = node(&db, "closed/in/f");
        let user = access(&[], Some(7));
        assert_eq!(may(&db, &user, &NamePlace::number(hidden)), Ok(hidden));
        db.write(|tx| {
            let mut inode = inodes::get(tx, closed)?;
            inode.mode = 0o700;
            Ok(tx.set_inode(closed, &inode)?)
        })
        .expect("set");
        assert_eq!(may(&db, &user, &NamePlace::number(hidden)), Err(Reason::NotAllowed));
        assert_eq!(may(&db, &user, &NamePlace::number(closed)), Ok(closed), "it is not searched itself");
        assert_eq!(may(&db, &user, &NamePlace::number(file)), Ok(file));
        let confined = access(&[closed], Some(7));
        assert_eq!(may(&db, &confined, &NamePlace::number(hidden)), Err(Reason::NotAllowed));
        let superuser = access(&[closed], Some(0));
        assert_eq!(may(&db, &superuser, &NamePlace::number(hidden)), Ok(hidden));
    }
}
