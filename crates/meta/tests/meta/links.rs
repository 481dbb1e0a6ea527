//! Several names of one thing, and exchanged names, against a naive map from names to things: the same
//! operations must give the same answers, the same listing and the same counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_layout::{FileId, VolumeId};
use braid_meta::records::check::check;
use braid_meta::records::db::Db;
use braid_meta::records::memory::MemoryKv;
use braid_meta::records::tx::Tx;
use braid_meta::tree::directories::{self, Parents};
use braid_meta::tree::{attributes, nodes, volumes};
use braid_wire::control::{
    AttributeChanges, EntryKind, HardLink, MakeNode, NamePlace, NewAttributes, RenameHow, SetXattr,
    ShapeSpec, UnlinkOnly, XattrHow,
};
use braid_wire::{Reason, Refusal};
use proptest::prelude::*;

const SHAPE: ShapeSpec = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 };
const NEW: NewAttributes = NewAttributes { mode: 0o755, uid: 1, gid: 2 };

fn at(path: &str) -> NamePlace {
    NamePlace::of("v", path)
}

#[derive(Debug, Clone)]
enum Op {
    Directory(String),
    Fifo(String),
    Link(String, String),
    Unlink(String),
    Rename(String, String, RenameHow),
    Xattr(String, u8),
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..3).prop_map(|names| names.join("/"))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        path().prop_map(Op::Directory),
        path().prop_map(Op::Fifo),
        (path(), path()).prop_map(|(from, to)| Op::Link(from, to)),
        path().prop_map(Op::Unlink),
        (path(), path(), prop::sample::select(RenameHow::ALL)).prop_map(|(a, b, how)| Op::Rename(a, b, how)),
        (path(), 0..3u8).prop_map(|(path, name)| Op::Xattr(path, name)),
    ]
}

/// The node that a name stands for in the model: a number of the model's own, and the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thing {
    number: u32,
    is_directory: bool,
}

#[derive(Debug, Default)]
struct Model {
    names: BTreeMap<String, Thing>,
    next: u32,
}

impl Model {
    fn apply(&mut self, op: &Op) -> Result<(), Reason> {
        match op {
            Op::Directory(path) => self.make(path, true),
            Op::Fifo(path) => self.make(path, false),
            Op::Link(from, to) => {
                let thing = self.find(from)?;
                self.reach(to)?;
                match (thing.is_directory, self.names.contains_key(to)) {
                    (true, _) => Err(Reason::IsDirectory),
                    (_, true) => Err(Reason::Exists),
                    _ => {
                        self.names.insert(to.clone(), thing);
                        Ok(())
                    }
                }
            }
            Op::Unlink(path) => {
                if self.find(path)?.is_directory && self.is_full(path) {
                    return Err(Reason::NotEmpty);
                }
                self.names.remove(path);
                Ok(())
            }
            Op::Rename(from, to, how) => self.rename(from, to, *how),
            Op::Xattr(path, _) => self.find(path).map(drop),
        }
    }

    fn make(&mut self, path: &str, is_directory: bool) -> Result<(), Reason> {
        self.reach(path)?;
        if self.names.contains_key(path) {
            return Err(Reason::Exists);
        }
        self.next += 1;
        self.names.insert(path.to_owned(), Thing { number: self.next, is_directory });
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str, how: RenameHow) -> Result<(), Reason> {
        let moved = self.find(from)?;
        self.reach(to)?;
        if moved.is_directory && to.starts_with(&format!("{from}/")) {
            return Err(Reason::BadName);
        }
        let old = self.names.get(to).copied();
        match (old, how) {
            (Some(_), RenameHow::NoReplace) => return Err(Reason::Exists),
            (None, RenameHow::Exchange) => return Err(Reason::NotFound),
            (Some(old), _) if old == moved => return Ok(()),
            (Some(old), RenameHow::Exchange) => {
                if old.is_directory && from.starts_with(&format!("{to}/")) {
                    return Err(Reason::BadName);
                }
                let mine = self.take(from);
                let theirs = self.take(to);
                self.put(to, mine);
                self.put(from, theirs);
                return Ok(());
            }
            (Some(old), RenameHow::Replace) => match (moved.is_directory, old.is_directory) {
                (false, true) => return Err(Reason::IsDirectory),
                (true, false) => return Err(Reason::NotDirectory),
                (true, true) if self.is_full(to) => return Err(Reason::NotEmpty),
                _ => drop(self.take(to)),
            },
            (None, _) => {}
        }
        let mine = self.take(from);
        self.put(to, mine);
        Ok(())
    }

    /// Takes a name and all names below it out of the model, keyed by the part after the name.
    fn take(&mut self, path: &str) -> BTreeMap<String, Thing> {
        let of = |name: &str| name == path || name.starts_with(&format!("{path}/"));
        let names: Vec<String> = self.names.keys().filter(|name| of(name)).cloned().collect();
        names
            .into_iter()
            .map(|name| (name[path.len()..].to_owned(), self.names.remove(&name).unwrap()))
            .collect()
    }

    fn put(&mut self, path: &str, things: BTreeMap<String, Thing>) {
        self.names.extend(things.into_iter().map(|(rest, thing)| (format!("{path}{rest}"), thing)));
    }

    fn find(&self, path: &str) -> Result<Thing, Reason> {
        self.reach(path)?;
        self.names.get(path).copied().ok_or(Reason::NotFound)
    }

    fn reach(&self, path: &str) -> Result<(), Reason> {
        match path.rsplit_once('/').map(|(above, _)| self.names.get(above)) {
            None => Ok(()),
            Some(None) => Err(Reason::NotFound),
            Some(Some(above)) if above.is_directory => Ok(()),
            Some(Some(_)) => Err(Reason::NotDirectory),
        }
    }

    fn is_full(&self, path: &str) -> bool {
        self.names.keys().any(|name| name.starts_with(&format!("{path}/")))
    }

    /// Every name, with the number of its thing and the thing's number of names.
    fn listing(&self) -> BTreeMap<String, (u32, u32)> {
        let links = |thing: &Thing, path: &str| {
            let of = self.names.iter().filter(|(name, other)| match thing.is_directory {
                true => other.is_directory && name.rsplit_once('/').is_some_and(|(above, _)| above == path),
                false => *other == thing,
            });
            u32::try_from(of.count()).unwrap() + if thing.is_directory { 2 } else { 0 }
        };
        self.names.iter().map(|(path, thing)| (path.clone(), (thing.number, links(thing, path)))).collect()
    }
}

fn apply(db: &Db, op: &Op) -> Result<(), Refusal> {
    db.write(|tx| match op {
        Op::Directory(path) => directories::make(tx, &at(path), &NEW, Parents::Required, 2).map(drop),
        Op::Fifo(path) => nodes::make(tx, &node(path, EntryKind::Fifo, ""), 2).map(drop),
        Op::Link(from, to) => nodes::link(tx, &HardLink { from: at(from), to: at(to) }, 2).map(drop),
        Op::Unlink(path) => directories::unlink(tx, &at(path), UnlinkOnly::Any, &|_| false, 2),
        Op::Rename(from, to, how) => directories::rename(tx, &at(from), &at(to), *how, &|_| false, 2),
        Op::Xattr(path, name) => attributes::set_xattr(tx, &xattr(path, *name, b"value", XattrHow::Any), 2),
    })
}

fn node(path: &str, kind: EntryKind, target: &str) -> MakeNode {
    MakeNode { at: at(path), kind, new: NEW, device: 0, target: target.as_bytes().to_vec() }
}

fn xattr(path: &str, name: u8, value: &[u8], how: XattrHow) -> SetXattr {
    SetXattr { at: at(path), name: vec![b'a' + name], value: value.to_vec(), how }
}

fn state() -> Db {
    let db = Db::new(Arc::new(MemoryKv::new()));
    let made: Result<VolumeId, Refusal> = db.write(|tx| volumes::create(tx, "v", SHAPE, 0, 1));
    made.expect("a volume");
    db
}

/// Every name in the real tree, with its file's number and that file's number of names.
fn listing(tx: &Tx, path: &str, found: &mut BTreeMap<String, (FileId, u32)>) -> Result<(), Refusal> {
    for entry in directories::list(tx, &at(path), b"", 0)?.0 {
        let name = String::from_utf8(entry.name.clone()).unwrap();
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        found.insert(path.clone(), (entry.file, entry.attributes.links));
        if entry.kind() == EntryKind::Directory {
            listing(tx, &path, found)?;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn names_are_as_in_a_naive_map(ops in prop::collection::vec(op(), 1..40)) {
        let mut model = Model::default();
        let db = state();
        for op in &ops {
            let expected = model.apply(op);
            let found = apply(&db, op).map_err(|refusal| refusal.reason);
            prop_assert_eq!(found, expected, "{:?}", op);
            let mut found = BTreeMap::new();
            db.read(|tx| listing(tx, "", &mut found)).unwrap();
            let expected = model.listing();
            prop_assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{:?}", op);
            let mut numbers = BTreeMap::new();
            for ((path, (file, links)), (number, expected_links)) in found.iter().zip(expected.values()) {
                prop_assert_eq!(links, expected_links, "names of {}: {:?}", path, op);
                prop_assert_eq!(numbers.entry(*number).or_insert(*file), file, "{}: {:?}", path, op);
            }
            let violations = check(&db).unwrap();
            prop_assert!(violations.is_empty(), "{:?}: {:#?}", op, violations);
        }
    }
}

/// The file at the end of a path, or the reason for which there is none.
fn end(db: &Db, path: &str) -> Result<FileId, Reason> {
    let found = db.read(|tx| directories::resolve_to_end(tx, &at(path)).map(|found| found.file));
    found.map_err(|refusal| refusal.reason)
}

#[test]
fn symbolic_links_lead_on_within_the_volume() {
    let db = state();
    let file = db
        .write(|tx| {
            directories::make(tx, &at("d/e"), &NEW, Parents::Made, 2)?;
            let file = nodes::make(tx, &node("d/e/f", EntryKind::Fifo, ""), 2)?;
            for (path, target) in [
                ("d/up", "../d/./e//f"),
                ("d/there", "e"),
                ("chain", "d/up"),
                ("loop", "loop"),
                ("out", "/etc/passwd"),
                ("above", "../../../../d/e/f"),
                ("nowhere", "d/none"),
            ] {
                nodes::make(tx, &node(path, EntryKind::Symlink, target), 2)?;
            }
            Ok(file)
        })
        .unwrap();
    for path in ["d/e/f", "d/up", "d/there/f", "chain", "above"] {
        assert_eq!(end(&db, path), Ok(file), "{path}");
    }
    for (path, reason) in [
        ("loop", Reason::Loop),
        ("loop/x", Reason::Loop),
        ("out", Reason::Loop),
        ("out/x", Reason::Loop),
        ("nowhere", Reason::NotFound),
        ("d/up/x", Reason::NotDirectory),
    ] {
        assert_eq!(end(&db, path), Err(reason), "{path}");
    }
    let itself = db.read(|tx| directories::resolve(tx, &at("d/up"))).unwrap();
    assert_eq!((itself.inode.kind, itself.inode.size), (EntryKind::Symlink, 11));
    // All requests follow a link in the middle of a path.
    db.write(|tx| directories::unlink(tx, &at("d/there/f"), UnlinkOnly::Any, &|_| false, 3)).unwrap();
    assert_eq!(end(&db, "d/e/f"), Err(Reason::NotFound));
}

#[test]
fn what_is_made_in_a_set_group_id_directory_has_its_group() {
    let db = state();
    let attributes =
        |path: &str| db.read(|tx| Ok(directories::resolve(tx, &at(path))?.inode.attributes())).unwrap();
    db.write(|tx| {
        let shared = NewAttributes { mode: 0o2775, uid: 5, gid: 50 };
        directories::make(tx, &at("g"), &shared, Parents::Required, 2)?;
        directories::make(tx, &at("g/d"), &NEW, Parents::Required, 2)?;
        nodes::make(tx, &node("g/p", EntryKind::Fifo, ""), 2).map(drop)
    })
    .unwrap();
    let directory = attributes("g/d");
    let fifo = attributes("g/p");
    assert_eq!((directory.mode, directory.uid, directory.gid), (0o2755, 1, 50));
    assert_eq!((fifo.mode, fifo.uid, fifo.gid), (0o755, 1, 50));
}

#[test]
fn attributes_change_and_say_when() {
    let db = state();
    let look = || db.read(|tx| Ok(directories::resolve(tx, &at("p"))?.inode.attributes())).unwrap();
    db.write(|tx| nodes::make(tx, &node("p", EntryKind::Fifo, ""), 2)).unwrap();
    let before = look();
    assert_eq!(
        (before.accessed_ns, before.modified_ns, before.changed_ns),
        (2_000_000, 2_000_000, 2_000_000)
    );
    let changes = AttributeChanges { accessed_ns: Some(-7), uid: Some(9), ..AttributeChanges::NONE };
    db.write(|tx| attributes::set(tx, &at("p"), &changes, 5)).unwrap();
    let after = look();
    assert_eq!((after.uid, after.gid, after.mode), (9, 2, 0o755));
    assert_eq!((after.accessed_ns, after.modified_ns, after.changed_ns), (-7, 2_000_000, 5_000_000));
    let odd = AttributeChanges { mode: Some(0o10_0644), ..AttributeChanges::NONE };
    let refused = db.write(|tx| attributes::set(tx, &at("p"), &odd, 6)).unwrap_err();
    assert_eq!((refused.reason, look()), (Reason::Malformed, after));
    // Any time that a request can carry can be stored, and is read again.
    for ns in [i64::MIN, i64::MIN + 1, -1_500_000_000, i64::MAX] {
        let accessed_ns = Some(ns);
        let modified_ns = Some(ns);
        let times = AttributeChanges { accessed_ns, modified_ns, ..AttributeChanges::NONE };
        db.write(|tx| attributes::set(tx, &at("p"), &times, 7)).unwrap();
        assert_eq!((look().accessed_ns, look().modified_ns), (ns, ns));
    }
}

#[test]
fn extended_attributes_are_set_and_bounded() {
    let db = state();
    let set = |value: &[u8], how| {
        let set = db.write(|tx| attributes::set_xattr(tx, &xattr("p", 0, value, how), 3));
        set.map_err(|refusal| refusal.reason)
    };
    db.write(|tx| nodes::make(tx, &node("p", EntryKind::Fifo, ""), 2)).unwrap();
    assert_eq!(set(b"x", XattrHow::Replace), Err(Reason::NoXattr));
    assert_eq!(set(b"", XattrHow::Remove), Err(Reason::NoXattr));
    assert_eq!(set(b"x", XattrHow::Create), Ok(()));
    assert_eq!(set(b"y", XattrHow::Create), Err(Reason::Exists));
    assert_eq!(set(&[1; 65_535], XattrHow::Replace), Ok(()));
    assert_eq!(set(&[1; 65_536], XattrHow::Any), Err(Reason::TooLarge));
    let of = || db.read(|tx| attributes::xattrs(tx, &at("p"))).unwrap();
    assert_eq!(
        of().iter().map(|x| (x.name.as_slice(), x.value.len())).collect::<Vec<_>>(),
        [(&b"a"[..], 65_535)]
    );
    assert!(check(&db).unwrap().is_empty());
    assert_eq!(set(b"", XattrHow::Remove), Ok(()));
    assert!(of().is_empty() && check(&db).unwrap().is_empty());
    for name in [&b""[..], &[b'n'; 256], b"a\0"] {
        let bad = SetXattr { name: name.to_vec(), ..xattr("p", 0, b"v", XattrHow::Any) };
        let refused = db.write(|tx| attributes::set_xattr(tx, &bad, 3)).unwrap_err();
        assert_eq!(refused.reason, Reason::BadName);
    }
}
