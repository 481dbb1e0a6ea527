//! The name space against a naive tree: the same operations must give the same answers and the same listing,
//! and must leave it whole after every commit that fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use braid_layout::version::Lease;
use braid_layout::{ColumnMask, DriveId, FileId, HolderId};
use braid_meta::records::check::check;
use braid_meta::records::db::Db;
use braid_meta::records::inodes;
use braid_meta::records::kv::{Batch, Kv, KvError, Pair, Snapshot};
use braid_meta::records::memory::MemoryKv;
use braid_meta::records::schema::{DriveRecord, key};
use braid_meta::tree::directories::{self, Parents};
use braid_meta::tree::{files, volumes};
use braid_wire::capability::Key;
use braid_wire::control::{
    Access, AttributeChanges, Backing, ByteRange, Commit, CreateUnnamed, Cut, Ended, Ending, EntryKind, Link,
    NamePlace, NewAttributes, Open, RenameHow, ShapeSpec, UnlinkOnly, VolumeKey,
};
use braid_wire::{Reason, Refusal};
use proptest::prelude::*;

const SHAPE: ShapeSpec = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 };
const QUOTA: u64 = 500;
const NEW: NewAttributes = NewAttributes { mode: 0o640, uid: 1, gid: 2 };

fn at(path: &str) -> NamePlace {
    NamePlace::of("v", path)
}

fn unnamed() -> CreateUnnamed {
    CreateUnnamed {
        volume: "v".into(),
        shape: SHAPE,
        new: NEW,
        holder: HolderId(1),
        avoid: Vec::new(),
        meant_for: None,
        takes_sealed: false,
    }
}

fn ended(ending: Ending) -> Ended {
    Ended { ending, end: 0, columns: ColumnMask(u64::MAX) }
}

#[derive(Debug, Clone)]
enum Op {
    Make { path: String, parents: bool },
    Create { path: String, exclusive: bool },
    Unlink { path: String },
    Rename { from: String, to: String },
    LinkNew { path: String, size: u64, replace: bool },
    Commit { path: String, size: u64 },
    Release { path: String },
    Sweep,
}

/// A path of up to three names out of three, so that operations often meet.
fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4).prop_map(|names| names.join("/"))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (path(), any::<bool>()).prop_map(|(path, parents)| Op::Make { path, parents }),
        (path(), any::<bool>()).prop_map(|(path, exclusive)| Op::Create { path, exclusive }),
        path().prop_map(|path| Op::Unlink { path }),
        (path(), path()).prop_map(|(from, to)| Op::Rename { from, to }),
        (path(), 0..300u64, any::<bool>()).prop_map(|(path, size, replace)| Op::LinkNew {
            path,
            size,
            replace
        }),
        (path(), 0..300u64).prop_map(|(path, size)| Op::Commit { path, size }),
        path().prop_map(|path| Op::Release { path }),
        Just(Op::Sweep),
    ]
}

/// The naive tree: every path and its node.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    nodes: BTreeMap<String, Node>,
    /// Bytes of files that lost their name under a lease; no lease is ended here.
    nameless: u64,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Directory,
    File { size: u64, held: bool },
}

impl Model {
    fn parent(path: &str) -> &str {
        path.rsplit_once('/').map_or("", |(parent, _)| parent)
    }

    /// Checks that the path's directory exists.
    fn reach(&self, path: &str) -> Result<(), Reason> {
        let parent = Model::parent(path);
        let mut at = String::new();
        for name in parent.split('/').filter(|name| !name.is_empty()) {
            at = if at.is_empty() { name.to_owned() } else { format!("{at}/{name}") };
            match self.nodes.get(&at) {
                None => return Err(Reason::NotFound),
                Some(Node::File { .. }) => return Err(Reason::NotDirectory),
                Some(Node::Directory) => {}
            }
        }
        Ok(())
    }

    fn is_full(&self, path: &str) -> bool {
        self.nodes.keys().any(|other| other.starts_with(&format!("{path}/")))
    }

    fn bytes(&self) -> u64 {
        let size = |node: &Node| if let Node::File { size, .. } = node { *size } else { 0 };
        self.nodes.values().map(size).sum::<u64>() + self.nameless
    }

    /// Takes the name at a path from the file that has it.
    fn lose(&mut self, path: &str) {
        if let Some(Node::File { size, held: true }) = self.nodes.remove(path) {
            self.nameless += size;
        }
    }

    fn fits(&self, old: u64, new: u64) -> Result<(), Reason> {
        if self.bytes() - old + new > QUOTA && new > old { Err(Reason::Quota) } else { Ok(()) }
    }

    fn apply(&mut self, op: &Op) -> Result<(), Reason> {
        match op {
            Op::Make { path, parents: true } => {
                let mut next = self.clone();
                let names: Vec<&str> = path.split('/').collect();
                for upto in 1..=names.len() {
                    let part = names[..upto].join("/");
                    match next.nodes.get(&part) {
                        Some(Node::Directory) => {}
                        Some(_) if upto < names.len() => return Err(Reason::NotDirectory),
                        Some(_) => return Err(Reason::Exists),
                        None => drop(next.nodes.insert(part, Node::Directory)),
                    }
                }
                *self = next;
            }
            Op::Make { path, parents: false } => {
                self.reach(path)?;
                if self.nodes.contains_key(path) {
                    return Err(Reason::Exists);
                }
                self.nodes.insert(path.clone(), Node::Directory);
            }
            Op::Create { path, exclusive } => {
                self.reach(path)?;
                match self.nodes.get(path) {
                    Some(_) if *exclusive => return Err(Reason::Exists),
                    Some(Node::Directory) => return Err(Reason::IsDirectory),
                    Some(_) => {}
                    None => drop(self.nodes.insert(path.clone(), Node::File { size: 0, held: true })),
                }
            }
            Op::Unlink { path } => {
                self.reach(path)?;
                let node = self.nodes.get(path).ok_or(Reason::NotFound)?;
                if *node == Node::Directory && self.is_full(path) {
                    return Err(Reason::NotEmpty);
                }
                self.lose(path);
            }
            Op::Rename { from, to } => self.rename(from, to)?,
            Op::LinkNew { path, size, replace } => {
                self.reach(path)?;
                let old = match self.nodes.get(path) {
                    Some(Node::Directory) => return Err(Reason::IsDirectory),
                    Some(_) if !replace => return Err(Reason::Exists),
                    Some(Node::File { size, held: false }) => *size,
                    Some(Node::File { held: true, .. }) | None => 0,
                };
                // The old file is removed first, if it is not leased: the remaining bytes are compared with
                // the quota.
                if self.bytes() - old + size > QUOTA && *size > 0 {
                    return Err(Reason::Quota);
                }
                self.lose(path);
                self.nodes.insert(path.clone(), Node::File { size: *size, held: false });
            }
            Op::Commit { path, size } => {
                let Some(Node::File { size: old, held: true }) = self.nodes.get(path).cloned() else {
                    return Ok(());
                };
                // Only a cut makes a file smaller.
                let size = old.max(*size);
                self.fits(old, size)?;
                self.nodes.insert(path.clone(), Node::File { size, held: true });
            }
            Op::Release { path } => {
                if let Some(Node::File { held, .. }) = self.nodes.get_mut(path) {
                    *held = false;
                }
            }
            Op::Sweep => {}
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Reason> {
        self.reach(from)?;
        let moved = self.nodes.get(from).cloned().ok_or(Reason::NotFound)?;
        self.reach(to)?;
        if moved == Node::Directory && to.starts_with(&format!("{from}/")) {
            return Err(Reason::BadName);
        }
        if from == to {
            return Ok(());
        }
        match (&moved, self.nodes.get(to)) {
            (Node::File { .. }, Some(Node::Directory)) => return Err(Reason::IsDirectory),
            (Node::Directory, Some(Node::File { .. })) => return Err(Reason::NotDirectory),
            (Node::Directory, Some(Node::Directory)) if self.is_full(to) => return Err(Reason::NotEmpty),
            _ => {}
        }
        self.lose(to);
        let below: Vec<String> = self
            .nodes
            .keys()
            .filter(|path| *path == from || path.starts_with(&format!("{from}/")))
            .cloned()
            .collect();
        for path in below {
            let node = self.nodes.remove(&path).unwrap();
            self.nodes.insert(format!("{to}{}", &path[from.len()..]), node);
        }
        Ok(())
    }
}

/// The real name space, and the leases that the test holds.
struct Real {
    kv: MemoryKv,
    db: Db,
}

impl Real {
    fn new() -> Real {
        let kv = MemoryKv::new();
        let db = Db::new(Arc::new(kv.clone()));
        Real::over(kv, db)
    }

    fn over(kv: MemoryKv, db: Db) -> Real {
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
            volumes::create(tx, "v", SHAPE, QUOTA, 1).map(drop)
        })
        .unwrap();
        Real { kv, db }
    }

    fn apply(&self, op: &Op) -> Result<(), Refusal> {
        let place = |_: u64, _: &_| Ok(((1..=3).map(DriveId).collect(), ColumnMask::EMPTY));
        self.db.write(|tx| match op {
            Op::Make { path, parents } => {
                let parents = if *parents { Parents::Made } else { Parents::Required };
                directories::make(tx, &at(path), &NEW, parents, 2).map(drop)
            }
            Op::Create { path, exclusive } => {
                let open = Open {
                    at: at(path),
                    access: Access::Write,
                    create: true,
                    exclusive: *exclusive,
                    alone: false,
                    range: None,
                    takes_sealed: false,
                    shape: ShapeSpec { scheme: 0, k: 0, m: 0, unit_bytes: 0 },
                    new: NEW,
                    holder: HolderId(7),
                };
                files::find_or_create(tx, &open, None, &place, 2).map(drop)
            }
            Op::Unlink { path } => directories::unlink(tx, &at(path), UnlinkOnly::Any, &|_| false, 2),
            Op::Rename { from, to } => {
                directories::rename(tx, &at(from), &at(to), RenameHow::Replace, &|_| false, 2)
            }
            Op::LinkNew { path, size, replace } => {
                let (file, inode) = files::create_unnamed(tx, &unnamed(), None, &place, 2)?;
                let link = Link {
                    file,
                    lease: inode.lease,
                    holder: HolderId(7),
                    at: at(path),
                    size: *size,
                    replace: *replace,
                    over: None,
                    order: 1,
                    changes: AttributeChanges::NONE,
                    ends: None,
                    backing: Backing::NONE,
                };
                files::link(tx, &link, &|_| false, 2)?;
                files::release(tx, file, inode.lease, &ended(Ending::Retired))
            }
            Op::Commit { path, size } => match leased(tx, path) {
                Some((file, lease)) => {
                    let order = inodes::get(tx, file)?.order + 1;
                    let commit = Commit {
                        file,
                        lease,
                        holder: HolderId(7),
                        size: *size,
                        order,
                        cut: Cut::No,
                        modified_ns: None,
                        backing: Backing::NONE,
                    };
                    files::commit(tx, &commit, 2).map(drop)
                }
                None => Ok(()),
            },
            Op::Release { path } => match leased(tx, path) {
                Some((file, lease)) => files::release(tx, file, lease, &ended(Ending::Settled)),
                None => Ok(()),
            },
            Op::Sweep => {
                let (from, to) = key::all(braid_meta::records::schema::table::REMOVE);
                for (row, _) in tx.scan(&from, &to, 2)? {
                    inodes::removed(tx, &row)?;
                }
                Ok(())
            }
        })
    }

    fn tree(&self) -> BTreeMap<String, Node> {
        let mut model = Model::default();
        self.db.read(|tx| walk(tx, "", &mut model)).unwrap();
        model.nodes
    }
}

fn leased(tx: &braid_meta::records::tx::Tx, path: &str) -> Option<(FileId, Lease)> {
    let found = directories::resolve(tx, &at(path)).ok()?;
    found.inode.held.then_some((found.file, found.inode.lease))
}

fn walk(tx: &braid_meta::records::tx::Tx, path: &str, model: &mut Model) -> Result<(), Refusal> {
    let (entries, more) = directories::list(tx, &at(path), b"", 0)?;
    assert!(!more);
    for entry in entries {
        let name = String::from_utf8(entry.name.clone()).unwrap();
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        let node = if entry.kind() == EntryKind::Directory {
            walk(tx, &path, model)?;
            Node::Directory
        } else {
            let held = directories::resolve(tx, &at(&path))?.inode.held;
            Node::File { size: entry.size(), held }
        };
        model.nodes.insert(path, node);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_name_space_is_as_a_naive_tree(ops in prop::collection::vec((op(), 0..12u8), 1..40)) {
        let mut model = Model::default();
        let real = Real::new();
        for (op, chance) in &ops {
            // Sometimes the commit fails: then nothing has changed.
            if *chance == 0 {
                real.kv.fail_once_after(0);
                let _ = real.apply(op);
                real.kv.fail_once_after(u64::MAX);
                prop_assert_eq!(real.tree(), model.nodes.clone(), "a failed commit changed names: {:?}", op);
                continue;
            }
            let expected = model.apply(op);
            let found = real.apply(op).map_err(|refusal| refusal.reason);
            prop_assert_eq!(found, expected, "{:?}", op);
            prop_assert_eq!(real.tree(), model.nodes.clone(), "{:?}", op);
            let violations = check(&real.db).unwrap();
            prop_assert!(violations.is_empty(), "{:?}: {:#?}", op, violations);
            prop_assert_eq!(Db::read(&real.db, |tx| Ok(volumes::find(tx, "v")?.file_bytes)).unwrap(), model.bytes());
        }
    }
}

/// A store that counts the keys and rows that are read from it.
#[derive(Clone, Default)]
struct Counted {
    kv: MemoryKv,
    read: Arc<AtomicUsize>,
}

struct CountedSnapshot(Box<dyn Snapshot>, Arc<AtomicUsize>);

impl Kv for Counted {
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, KvError> {
        Ok(Box::new(CountedSnapshot(self.kv.snapshot()?, Arc::clone(&self.read))))
    }

    fn commit(&self, batch: &Batch) -> Result<(), KvError> {
        self.kv.commit(batch)
    }
}

impl Snapshot for CountedSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError> {
        let rows = self.0.scan(from, to, limit)?;
        self.1.fetch_add(1 + rows.len(), Ordering::Relaxed);
        Ok(rows)
    }
}

#[test]
fn a_removal_reads_no_more_the_more_removals_are_queued() {
    let counted = Counted::default();
    let real = Real::over(counted.kv.clone(), Db::new(Arc::new(counted.clone())));
    let path = |n: u32| format!("f{n}");
    (0..300).for_each(|n| real.apply(&Op::LinkNew { path: path(n), size: 0, replace: false }).unwrap());
    let reads: Vec<usize> = (0..300)
        .map(|n| {
            let before = counted.read.load(Ordering::Relaxed);
            real.apply(&Op::Unlink { path: path(n) }).unwrap();
            counted.read.load(Ordering::Relaxed) - before
        })
        .collect();
    let queued = real.db.read(|tx| {
        let (from, to) = key::all(braid_meta::records::schema::table::REMOVE);
        Ok(tx.scan(&from, &to, usize::MAX)?.len())
    });
    assert_eq!(queued.unwrap(), 3 * 300);
    assert!(reads.iter().all(|count| *count == reads[0] && *count < 64), "{reads:?}");
}

#[test]
fn a_sealed_file_is_opened_for_writing_alone_and_without_a_range() {
    let real = Real::new();
    let place = |_: u64, _: &_| Ok(((1..=3).map(DriveId).collect(), ColumnMask::EMPTY));
    let key = VolumeKey { id: "k".into(), wrapped: vec![1], check: [2; 16] };
    real.db.write(|tx| volumes::seal(tx, volumes::find(tx, "v")?.volume, &key)).expect("sealed");
    let part = Some(ByteRange { from: 0, to: 8192 });
    let open = |path: &str, access, alone, range| {
        let open = Open {
            at: at(path),
            access,
            create: access == Access::Write,
            exclusive: false,
            alone,
            range,
            takes_sealed: true,
            shape: ShapeSpec { scheme: 0, k: 0, m: 0, unit_bytes: 0 },
            new: NEW,
            holder: HolderId(7),
        };
        let opened = real.db.write(|tx| match access {
            Access::Write => files::find_or_create(tx, &open, None, &place, 2).map(drop),
            Access::Read => files::find(tx, &open).map(drop),
        });
        opened.map_err(|refusal| refusal.reason)
    };
    open("f", Access::Write, true, None).expect("a sole writer");
    open("f", Access::Read, false, None).expect("a reader");
    for path in ["f", "new"] {
        for (alone, range) in [(false, None), (false, part), (true, part)] {
            assert_eq!(open(path, Access::Write, alone, range), Err(Reason::Malformed), "{path}, {alone}");
        }
    }
}

#[test]
fn the_checker_finds_what_is_broken() {
    let real = Real::new();
    real.apply(&Op::LinkNew { path: "f".into(), size: 3, replace: false }).unwrap();
    real.apply(&Op::Create { path: "g".into(), exclusive: true }).unwrap();
    assert!(check(&real.db).unwrap().is_empty());
    let rows = real
        .db
        .read(|tx| Ok(tx.scan(&[0], &[u8::MAX], usize::MAX)?))
        .unwrap()
        .into_iter()
        .map(|(key, _)| key)
        .filter(|key| b"dihcnVv".contains(&key[0]));
    for key in rows {
        let broken = Db::new(Arc::new(real.kv.restarted()));
        broken
            .write(|tx| {
                tx.delete(key.clone());
                Ok(())
            })
            .unwrap();
        assert!(
            !check(&broken).unwrap_or_else(|error| vec![error.detail]).is_empty(),
            "{key:02x?} is not missed"
        );
    }
}
