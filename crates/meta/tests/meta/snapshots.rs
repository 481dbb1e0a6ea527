//! Snapshots against a naive model, which copies all that is below a directory when a snapshot is made: after
//! every change each snapshot must show its copy, whatever was changed, renamed, removed or frozen since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_layout::{ColumnMask, DriveId, FileId, HolderId, ObjectId, VolumeId};
use braid_meta::records::check::check;
use braid_meta::records::db::Db;
use braid_meta::records::memory::MemoryKv;
use braid_meta::records::schema::{DriveRecord, HistoryRecord, InodeRecord, key, table};
use braid_meta::records::tx::Tx;
use braid_meta::records::{frozen, inodes};
use braid_meta::tree::directories::{self, Parents};
use braid_meta::tree::files::{self, Part};
use braid_meta::tree::{attributes, nodes, seen, snapshots, volumes};
use braid_wire::capability::Key;
use braid_wire::control::{
    Access, AttributeChanges, Backing, Commit, CreateUnnamed, Cut, Ended, Ending, EntryKind, FileAttributes,
    HardLink, Link, MakeNode, NamePlace, NewAttributes, Open, RenameHow, SetXattr, ShapeSpec, UnlinkOnly,
    Xattr, XattrHow,
};
use braid_wire::{Reason, Refusal};
use proptest::prelude::*;

const SHAPE: ShapeSpec = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 };
const OPEN_SHAPE: ShapeSpec = ShapeSpec { scheme: 0, k: 0, m: 0, unit_bytes: 0 };
const NEW: NewAttributes = NewAttributes { mode: 0o640, uid: 1, gid: 2 };
const HOLDER: HolderId = HolderId(7);

pub(crate) fn at(path: &str) -> NamePlace {
    NamePlace::of("v", path)
}

#[derive(Debug, Clone)]
pub(crate) enum Op {
    MakeDirectory(String),
    MakeSymlink(String),
    /// Opens a file for writing, or makes it, and leaves it open.
    Open(String),
    /// Writes a file that is open, or opens it, writes it and closes it.
    Write(String, u64),
    Close(String),
    Chmod(String, u32),
    SetXattr(String, u8),
    Rename(String, String, RenameHow),
    HardLink(String, String),
    /// Puts a new file in the place of another.
    LinkOver(String, u64),
    /// Removes a name. The file may be open in a mount.
    Unlink(String, bool),
    /// All mounts close what they have open.
    Forget,
    /// The state is that of a copy that was put back, as far as numbers go.
    PassOverNumbers,
    /// Begins a freeze that is broken off.
    BeginFreeze(String),
    EndFreezes,
    Snapshot(String, String),
    /// Removes one of the snapshots that are there.
    RemoveSnapshot(usize),
    /// The job looks at so many rows.
    FreeSome(usize),
    Sweep,
}

/// A path of up to three names out of three, so that operations often meet.
fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4).prop_map(|names| names.join("/"))
}

fn directory() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just("a".to_owned()), Just("a".to_owned()), path()]
}

fn how() -> impl Strategy<Value = RenameHow> {
    prop::sample::select(vec![RenameHow::Replace, RenameHow::Replace, RenameHow::Exchange])
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => path().prop_map(Op::MakeDirectory),
        1 => path().prop_map(Op::MakeSymlink),
        2 => path().prop_map(Op::Open),
        4 => (path(), 0..300u64).prop_map(|(path, size)| Op::Write(path, size)),
        1 => path().prop_map(Op::Close),
        2 => (path(), 0..0o777u32).prop_map(|(path, mode)| Op::Chmod(path, mode)),
        2 => (path(), any::<u8>()).prop_map(|(path, value)| Op::SetXattr(path, value)),
        5 => (path(), path(), how()).prop_map(|(from, to, how)| Op::Rename(from, to, how)),
        2 => (path(), path()).prop_map(|(from, to)| Op::HardLink(from, to)),
        2 => (path(), 0..300u64).prop_map(|(path, size)| Op::LinkOver(path, size)),
        4 => (path(), any::<bool>()).prop_map(|(path, kept)| Op::Unlink(path, kept)),
        1 => Just(Op::Forget),
        1 => Just(Op::PassOverNumbers),
        1 => path().prop_map(Op::BeginFreeze),
        1 => Just(Op::EndFreezes),
        4 => (directory(), "[xyz]").prop_map(|(path, name)| Op::Snapshot(path, name)),
        2 => (0..5usize).prop_map(Op::RemoveSnapshot),
        2 => (1..4usize).prop_map(Op::FreeSome),
        1 => Just(Op::Sweep),
    ]
}

/// All that users see of a file, directory or node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shown {
    pub(crate) file: FileId,
    pub(crate) attributes: FileAttributes,
    target: Vec<u8>,
    pub(crate) xattrs: Vec<Xattr>,
    /// Number of the last write; `None` if the bytes are being frozen.
    pub(crate) content: Option<u64>,
}

pub(crate) type View = BTreeMap<String, Shown>;

/// A snapshot as the model has it: a copy.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    volume: VolumeId,
    pub(crate) root: FileId,
    pub(crate) number: u32,
    name: String,
    pub(crate) view: View,
}

pub(crate) struct Real {
    pub(crate) db: Db,
    pub(crate) now_ms: u64,
    pub(crate) copies: Vec<Copy>,
    /// Number of the last write to each file that was ever made, frozen or not.
    contents: BTreeMap<FileId, u64>,
    /// All objects that drives were ever asked to make, and those that they were asked to remove since.
    made: BTreeSet<ObjectId>,
    freed: BTreeSet<ObjectId>,
}

impl Real {
    pub(crate) fn new() -> Real {
        let db = Db::new(Arc::new(MemoryKv::new()));
        db.write(|tx| {
            for id in 1..=3 {
                let record = DriveRecord {
                    drive: DriveId(id),
                    name: format!("drive-{id}"),
                    master: Key::new([0; 32]),
                    confirmed: true,
                    replaced_by: DriveId(0),
                    addresses: "".into(),
                    host: String::new(),
                    rack: String::new(),
                    directory: String::new(),
                    capacity_bytes: 1,
                    joined_ms: 0,
                    instance: 0,
                    stored: 0,
                    start: 0,
                    log: 0,
                    behind: false,
                };
                tx.set(key::drive(DriveId(id)), &record);
            }
            volumes::create(tx, "v", SHAPE, 0, 1).map(drop)
        })
        .unwrap();
        let empty = BTreeMap::new();
        Real {
            db,
            now_ms: 10,
            copies: Vec::new(),
            contents: empty,
            made: BTreeSet::new(),
            freed: BTreeSet::new(),
        }
    }

    pub(crate) fn write<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx, u64) -> Result<R, Refusal> + Send,
    ) -> Result<R, Refusal> {
        let now_ms = self.now_ms;
        self.db.write(move |tx| work(tx, now_ms))
    }

    fn inode(&self, path: &str) -> Option<(FileId, InodeRecord)> {
        let found = self.db.read(|tx| directories::resolve(tx, &at(path))).ok()?;
        Some((found.file, found.inode))
    }

    /// Notes that a file has new content, and its objects.
    fn has_new(&mut self, file: FileId, inode: &InodeRecord) {
        self.now_ms += 1;
        self.contents.insert(file, self.now_ms);
        self.made.extend(inode.segments.iter().map(|segment| segment.object));
    }

    /// Ends the freeze of a file, as the drives do that make its stills: these have what is in it now.
    fn end_freeze(&mut self, file: FileId) {
        let begun = self.db.read(|tx| Ok(inodes::find(tx, file)?)).unwrap();
        let Some(begun) = begun.and_then(|inode| inode.freezing) else { return };
        self.made.extend(&begun.objects);
        self.contents.insert(begun.data, self.contents[&file]);
        let all = BTreeMap::from([(0, ColumnMask::all(3))]);
        self.write(move |tx, _| frozen::end(tx, file, &begun, &all)).unwrap();
    }

    /// Opens a file for writing, after its bytes were frozen if need be.
    fn open(&mut self, path: &str) -> Option<FileId> {
        let place = |_: u64, _: &_| Ok(((1..=3).map(DriveId).collect(), ColumnMask::EMPTY));
        let open = Open {
            at: at(path),
            access: Access::Write,
            create: true,
            exclusive: false,
            alone: false,
            range: None,
            takes_sealed: false,
            shape: OPEN_SHAPE,
            new: NEW,
            holder: HOLDER,
        };
        let (file, made) =
            self.write(move |tx, now| files::find_or_create(tx, &open, None, &place, now)).ok()?;
        if let Some(inode) = made {
            self.has_new(file, &inode);
            return Some(file);
        }
        self.end_freeze(file);
        if self.db.read(|tx| inodes::get(tx, file)).unwrap().held {
            return Some(file);
        }
        self.write(move |tx, _| frozen::begin(tx, file)).unwrap();
        self.end_freeze(file);
        let part = Part { holder: HOLDER, alone: false, range: None };
        self.write(move |tx, _| files::grant(tx, file, part)).expect("its bytes are frozen");
        Some(file)
    }

    fn write_file(&mut self, file: FileId, size: u64) {
        let committed = self.write(move |tx, now| {
            let inode = inodes::get(tx, file)?;
            let commit = Commit {
                file,
                lease: inode.lease,
                holder: HOLDER,
                size,
                order: inode.order + 1,
                cut: Cut::No,
                modified_ns: None,
                backing: Backing::NONE,
            };
            files::commit(tx, &commit, now)?;
            inodes::get(tx, file)
        });
        self.has_new(file, &committed.unwrap());
    }

    fn close(&mut self, file: FileId) {
        self.write(move |tx, _| {
            let lease = inodes::get(tx, file)?.lease;
            let ended = Ended { ending: Ending::Retired, end: 0, columns: ColumnMask(u64::MAX) };
            files::release(tx, file, lease, &ended)
        })
        .unwrap();
    }

    pub(crate) fn apply(&mut self, op: &Op) {
        match op.clone() {
            Op::MakeDirectory(path) => {
                drop(self.write(move |tx, now| directories::make(tx, &at(&path), &NEW, Parents::Made, now)));
            }
            Op::MakeSymlink(path) => {
                let make = MakeNode {
                    at: at(&path),
                    kind: EntryKind::Symlink,
                    new: NEW,
                    device: 0,
                    target: b"a".to_vec(),
                };
                drop(self.write(move |tx, now| nodes::make(tx, &make, now)));
            }
            Op::Open(path) => drop(self.open(&path)),
            Op::Write(path, size) => {
                let was_open = self.inode(&path).is_some_and(|(_, inode)| inode.held);
                if let Some(file) = self.open(&path) {
                    self.write_file(file, size);
                    if !was_open {
                        self.close(file);
                    }
                }
            }
            Op::Close(path) => {
                if let Some((file, _)) = self.inode(&path).filter(|(_, inode)| inode.held) {
                    self.close(file);
                }
            }
            Op::Chmod(path, mode) => {
                let changes = AttributeChanges { mode: Some(mode), ..AttributeChanges::NONE };
                drop(self.write(move |tx, now| attributes::set(tx, &at(&path), &changes, now)));
            }
            Op::SetXattr(path, value) => {
                let name = vec![b'a' + value % 2];
                let how = if value % 3 == 0 { XattrHow::Remove } else { XattrHow::Any };
                let set = SetXattr { at: at(&path), name, value: vec![value], how };
                drop(self.write(move |tx, now| attributes::set_xattr(tx, &set, now)));
            }
            Op::Rename(from, to, how) => {
                drop(self.write(move |tx, now| {
                    directories::rename(tx, &at(&from), &at(&to), how, &|_| false, now)
                }));
            }
            Op::HardLink(from, to) => {
                let link = HardLink { from: at(&from), to: at(&to) };
                drop(self.write(move |tx, now| nodes::link(tx, &link, now)));
            }
            Op::LinkOver(path, size) => self.link_over(&path, size),
            Op::Unlink(path, kept) => {
                drop(self.write(move |tx, now| {
                    directories::unlink(tx, &at(&path), UnlinkOnly::Any, &|_| kept, now)
                }));
            }
            Op::PassOverNumbers => {
                self.db.write(snapshots::pass_over_numbers).expect("passed over");
                self.db.write(frozen::begin_anew).expect("begun anew");
            }
            Op::Forget => self
                .write(|tx, _| {
                    for (file, inode) in tx.inodes(None, usize::MAX)? {
                        if inode.kept && !inode.held {
                            inodes::bury(tx, file, &inode)?;
                        }
                    }
                    Ok(())
                })
                .unwrap(),
            Op::BeginFreeze(path) => {
                if let Some((file, inode)) = self.inode(&path)
                    && inode.kind == EntryKind::File
                    && !inode.held
                {
                    self.write(move |tx, _| frozen::begin(tx, file)).unwrap();
                }
            }
            Op::EndFreezes => {
                let all = self.db.read(|tx| Ok(tx.inodes(None, usize::MAX)?)).unwrap();
                all.into_iter().for_each(|(file, _)| self.end_freeze(file));
            }
            Op::Snapshot(path, name) => self.snapshot(&path, &name),
            Op::RemoveSnapshot(index) => {
                if index < self.copies.len() {
                    let copy = self.copies.remove(index);
                    let place = NamePlace::number(copy.root);
                    self.write(move |tx, _| snapshots::remove(tx, &place, &copy.name)).unwrap();
                }
            }
            Op::FreeSome(rows) => drop(self.free_some(rows)),
            Op::Sweep => self.sweep(),
        }
    }

    fn link_over(&mut self, path: &str, size: u64) {
        let place = |_: u64, _: &_| Ok(((1..=3).map(DriveId).collect(), ColumnMask::EMPTY));
        let place_at = at(path);
        let linked = self.write(move |tx, now| {
            let create = CreateUnnamed {
                volume: "v".into(),
                shape: OPEN_SHAPE,
                new: NEW,
                holder: HOLDER,
                avoid: Vec::new(),
                meant_for: None,
                takes_sealed: false,
            };
            let (file, inode) = files::create_unnamed(tx, &create, None, &place, now)?;
            let link = Link {
                file,
                lease: inode.lease,
                holder: HOLDER,
                at: place_at,
                size,
                replace: true,
                over: None,
                order: 1,
                changes: AttributeChanges::NONE,
                ends: None,
                backing: Backing::NONE,
            };
            files::link(tx, &link, &|_| false, now)?;
            Ok((file, inode))
        });
        if let Ok((file, inode)) = linked {
            self.has_new(file, &inode);
            self.close(file);
        }
    }

    fn snapshot(&mut self, path: &str, name: &str) {
        let place = at(path);
        let text = name.to_owned();
        let Ok(made) = self.write(move |tx, now| snapshots::make(tx, &place, &text, now)) else { return };
        let number = NamePlace::number(made.root);
        let view = self.db.read(|tx| self.view(tx, &number)).unwrap();
        let snapshots::Made { volume, root, number, .. } = made;
        self.copies.push(Copy { volume, root, number, name: name.to_owned(), view });
    }

    pub(crate) fn free_some(&self, rows: usize) -> bool {
        self.write(move |tx, _| match snapshots::going(tx)? {
            Some((volume, number)) => snapshots::free_some(tx, volume, number, rows).map(|_| true),
            None => Ok(false),
        })
        .unwrap()
    }

    fn sweep(&mut self) {
        let freed = self.write(|tx, _| {
            let rows = tx.scan_all(&key::all(table::REMOVE))?;
            rows.iter().try_for_each(|(row, _)| inodes::removed(tx, row))?;
            Ok(rows.iter().map(|(row, _)| ObjectId(key::number(row, 25))).collect::<Vec<_>>())
        });
        self.freed.extend(freed.unwrap());
    }

    /// All that is below a directory, now or in a snapshot.
    pub(crate) fn view(&self, tx: &Tx, at: &NamePlace) -> Result<View, Refusal> {
        let mut view = View::new();
        self.look(tx, at, "", &mut view)?;
        Ok(view)
    }

    fn look(&self, tx: &Tx, at: &NamePlace, path: &str, view: &mut View) -> Result<(), Refusal> {
        let below = NamePlace { path: path.into(), ..at.clone() };
        let found = directories::resolve(tx, &below)?;
        let content = match found.within {
            _ if found.inode.kind != EntryKind::File => None,
            None => self.contents.get(&found.file).copied(),
            Some(within) => match seen::bytes(tx, found.file, within.number) {
                Ok((data, _)) => Some(self.contents[&data]),
                Err(refusal) if refusal.reason == Reason::Busy => None,
                Err(refusal) => return Err(refusal),
            },
        };
        let shown = Shown {
            file: found.file,
            attributes: found.inode.attributes(),
            target: found.inode.target.clone(),
            xattrs: attributes::xattrs(tx, &below)?,
            content,
        };
        if found.inode.kind == EntryKind::Directory {
            let mut after = Vec::new();
            loop {
                let (entries, more) = directories::list(tx, &below, &after, 2)?;
                for entry in &entries {
                    let name = String::from_utf8(entry.name.clone()).unwrap();
                    let next = if path.is_empty() { name } else { format!("{path}/{name}") };
                    self.look(tx, at, &next, view)?;
                    assert_eq!(view[&next].attributes, entry.attributes, "a listing says the same");
                }
                match entries.last().filter(|_| more) {
                    Some(last) => after.clone_from(&last.name),
                    None => break,
                }
            }
        }
        view.insert(path.to_owned(), shown);
        Ok(())
    }

    /// Checks that each snapshot shows its copy.
    fn compare(&self) -> Result<(), TestCaseError> {
        let violations = check(&self.db).unwrap();
        prop_assert!(violations.is_empty(), "{:#?}", violations);
        for copy in &self.copies {
            let place = NamePlace { snapshot: copy.number, ..NamePlace::number(copy.root) };
            let mut view = self.db.read(|tx| self.view(tx, &place)).map_err(|refusal| {
                TestCaseError::fail(format!("snapshot {} cannot be read: {refusal:?}", copy.number))
            })?;
            for (path, shown) in &mut view {
                // Bytes that are being frozen are busy, and nothing else is.
                let is_busy = shown.content.is_none() && shown.attributes.kind == EntryKind::File;
                if is_busy && let Some(expected) = copy.view.get(path) {
                    shown.content = expected.content;
                }
            }
            prop_assert_eq!(&view, &copy.view, "snapshot {} of {}", copy.number, copy.volume);
        }
        Ok(())
    }

    /// Removes all snapshots. Nothing must be left of them, neither here nor on drives.
    pub(crate) fn end(&mut self) -> Result<(), TestCaseError> {
        while !self.copies.is_empty() {
            self.apply(&Op::RemoveSnapshot(0));
        }
        while self.free_some(2) {
            self.compare()?;
        }
        self.apply(&Op::Forget);
        self.compare()?;
        self.sweep();
        let left = self.db.read(|tx| {
            for of in [table::SNAPSHOT, table::SNAPSHOT_NAME, table::PAST_INODE, table::PAST_BYTES] {
                assert_eq!(tx.scan_all(&key::all(of))?, [], "{}", char::from(of));
            }
            for of in [table::PAST_ENTRY, table::KEPT_FOR, table::FREEZING] {
                assert_eq!(tx.scan_all(&key::all(of))?, [], "{}", char::from(of));
            }
            let history: Vec<(_, HistoryRecord)> = tx.records(&key::all(table::HISTORY), usize::MAX)?;
            assert!(
                history.iter().all(|(_, all)| (all.past_files, all.past_bytes, all.snapshots) == (0, 0, 0))
            );
            Ok(tx.inodes(None, usize::MAX)?)
        });
        let left = left.unwrap();
        prop_assert!(left.iter().all(|(_, inode)| !inode.is_frozen() && inode.freezing.is_none()));
        let placed: BTreeSet<ObjectId> =
            left.iter().flat_map(|(_, inode)| &inode.segments).map(|segment| segment.object).collect();
        let expected: BTreeSet<ObjectId> = self.made.difference(&self.freed).copied().collect();
        prop_assert!(expected.is_subset(&placed), "objects that nothing names: {:?}", expected);
        prop_assert!(placed.is_disjoint(&self.freed), "objects in use were freed");
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_shows_what_was_there_when_it_was_made(ops in prop::collection::vec(op(), 1..60)) {
        let mut real = Real::new();
        for op in &ops {
            real.apply(op);
            real.now_ms += 1;
            real.compare()?;
        }
        real.end()?;
    }
}

/// Applies operations, and compares all snapshots after each.
pub(crate) fn run(ops: &[Op]) -> Real {
    let mut real = Real::new();
    for op in ops {
        real.apply(op);
        real.now_ms += 1;
        real.compare().unwrap();
    }
    real
}

#[test]
fn no_number_is_given_twice_after_a_copy_was_put_back() {
    let mut real = run(&[
        Op::MakeDirectory("a".into()),
        Op::PassOverNumbers,
        Op::Write("a/b".into(), 10),
        Op::Snapshot("a".into(), "x".into()),
        Op::Write("a/b".into(), 20),
        Op::PassOverNumbers,
        Op::Snapshot("a".into(), "y".into()),
        Op::Write("a/b".into(), 30),
    ]);
    let numbers: Vec<u32> = real.copies.iter().map(|copy| copy.number).collect();
    assert_eq!(numbers, [(1 << 16) + 1, (2 << 16) + 2]);
    real.end().unwrap();
}

#[test]
fn what_leaves_the_root_with_its_directory_is_still_in_the_snapshot() {
    let mut real = run(&[
        Op::MakeDirectory("a/b/c".into()),
        Op::Write("a/b/c/a".into(), 10),
        Op::Snapshot("a".into(), "x".into()),
        Op::Rename("a/b".into(), "b".into(), RenameHow::Replace),
        Op::Write("b/c/a".into(), 20),
        Op::Chmod("b/c/a".into(), 0o600),
        Op::Rename("b/c".into(), "c".into(), RenameHow::Replace),
        Op::Write("c/b".into(), 5),
        Op::Unlink("c/a".into(), false),
    ]);
    assert_eq!(real.copies[0].view["b/c/a"].attributes.size, 10);
    real.end().unwrap();
}

#[test]
fn what_is_removed_while_it_is_frozen_for_one_snapshot_is_in_the_next_one_too() {
    for kept in [false, true] {
        let mut real = run(&[
            Op::Write("a".into(), 10),
            Op::Snapshot(String::new(), "x".into()),
            Op::BeginFreeze("a".into()),
            Op::Snapshot(String::new(), "y".into()),
            Op::Unlink("a".into(), kept),
            Op::EndFreezes,
        ]);
        assert!(real.copies.iter().all(|copy| copy.view["a"].attributes.size == 10));
        real.end().unwrap();
    }
}

#[test]
fn a_frozen_file_is_named_by_the_snapshot_that_shows_it_and_its_path_there() {
    let real = run(&[
        Op::MakeDirectory("a".into()),
        Op::Write("a/b".into(), 10),
        Op::Write("c".into(), 10),
        Op::Snapshot("a".into(), "x".into()),
        Op::Snapshot(String::new(), "y".into()),
        Op::Rename("a/b".into(), "b".into(), RenameHow::Replace),
        Op::Write("b".into(), 20),
        Op::Unlink("c".into(), false),
        Op::EndFreezes,
    ]);
    let places = |tx: &Tx| -> Result<BTreeSet<String>, Refusal> {
        let rows = tx.inodes(None, usize::MAX)?;
        let frozen = rows.iter().filter(|(_, inode)| inode.is_frozen());
        frozen.map(|(data, inode)| seen::place_of_frozen(tx, *data, inode)).collect()
    };
    let expected = ["braid://v/.snapshots/y/a/b", "braid://v/.snapshots/y/c"];
    assert_eq!(real.db.read(places).unwrap(), BTreeSet::from(expected.map(str::to_owned)));
}
