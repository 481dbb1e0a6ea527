//! Which layout counts for a new file.

use std::sync::Arc;

use braid_layout::{ColumnMask, DriveId, FileId, HolderId, Shape};
use braid_meta::records::check::check;
use braid_meta::records::db::Db;
use braid_meta::records::inodes;
use braid_meta::records::memory::MemoryKv;
use braid_meta::records::tx::Tx;
use braid_meta::tree::directories::{self, Parents};
use braid_meta::tree::layouts::{self, Change};
use braid_meta::tree::shapes::drives_for;
use braid_meta::tree::{attributes, files, volumes};
use braid_wire::control::{
    Access, Clustering, CreateUnnamed, Ended, Ending, LAYOUT_XATTR, LayoutFrom, NamePlace, NewAttributes,
    Open, RenameHow, SetXattr, ShapeSpec, UnlinkOnly, XattrHow,
};
use braid_wire::{Reason, Refusal};

const NEW: NewAttributes = NewAttributes { mode: 0o644, uid: 1, gid: 2 };
const HOLDER: HolderId = HolderId(7);
const DRIVES: usize = 6;

fn at(path: &str) -> NamePlace {
    NamePlace::of("v", path)
}

fn shape(text: &str) -> ShapeSpec {
    Shape::from_text(text).expect(text).into()
}

/// A volume of raid5 2+1 with the directories a, a/b, a/b/c and z.
fn tree() -> Db {
    let db = Db::new(Arc::new(MemoryKv::new()));
    db.write(|tx| {
        volumes::create(tx, "v", shape("raid5 2+1"), 0, 1)?;
        for path in ["a/b/c", "z"] {
            directories::make(tx, &at(path), &NEW, Parents::Made, 2)?;
        }
        Ok(())
    })
    .expect("made");
    db
}

fn place(seed: u64, shape: &Shape) -> Result<(Vec<DriveId>, ColumnMask), Refusal> {
    let candidate = |id| braid_layout::Candidate { drive: DriveId(id), weight: 1, domain: Vec::new() };
    let up: Vec<_> = (1..=DRIVES as u128).map(candidate).collect();
    Ok((drives_for(seed, shape, &up, &[])?, ColumnMask::EMPTY))
}

fn number(tx: &Tx, path: &str) -> Result<FileId, Refusal> {
    Ok(directories::resolve(tx, &at(path))?.file)
}

/// Sets the layout of a directory; an empty text takes it away.
fn set(db: &Db, path: &str, text: &str) -> Result<(), Refusal> {
    let change = match text {
        "" => Change { shape: ShapeSpec::DEFAULT, how: XattrHow::Remove },
        text => Change { shape: shape(text), how: XattrHow::Any },
    };
    db.write(|tx| {
        let directory = number(tx, path)?;
        layouts::set(tx, directory, &change, DRIVES, 3)
    })
}

/// Makes a file, asking for this shape, under a reservation with this plan. Returns the shape that it got.
fn made(db: &Db, path: &str, asked: ShapeSpec, plan: Option<&ShapeSpec>) -> Result<String, Refusal> {
    let open = Open {
        at: at(path),
        access: Access::Write,
        create: true,
        exclusive: true,
        alone: false,
        range: None,
        takes_sealed: false,
        shape: asked,
        new: NEW,
        holder: HOLDER,
    };
    let made = db.write(|tx| files::find_or_create(tx, &open, plan, &place, 4))?.1.expect("made");
    Ok(made.segments[0].shape.shape().expect("a shape").text())
}

#[track_caller]
fn check_new(db: &Db, path: &str, expected: &str) {
    let made = made(db, path, ShapeSpec::DEFAULT, None).expect(path);
    assert_eq!(made, shape(expected).shape().expect(expected).text(), "{path}");
}

#[test]
fn the_nearest_directory_says_which_small_files_lie_near_each_other() {
    let db = tree();
    let set = |path: &str, clustering| {
        db.write(|tx| {
            let directory = number(tx, path)?;
            layouts::set_clustering(tx, directory, clustering, 3)
        })
    };
    let number = |path: &str| db.read(|tx| number(tx, path)).expect(path).0;
    let cluster = |path: &str| {
        made(&db, path, ShapeSpec::DEFAULT, None).expect(path);
        let found = db.read(|tx| Ok(directories::resolve(tx, &at(path))?.inode)).expect(path);
        found.cluster
    };
    let told = |path: &str| db.read(|tx| layouts::of(tx, &at(path))).expect(path).clustering;
    assert_eq!(cluster("a/f"), 0, "nobody said anything");
    set("", Some(Clustering::Directory)).expect("the root's");
    set("a/b", Some(Clustering::Tree)).expect("set");
    assert_eq!((cluster("g"), cluster("a/g"), cluster("z/g")), (number(""), number("a"), number("z")));
    assert_eq!((cluster("a/b/g"), cluster("a/b/c/g")), (number("a/b"), number("a/b")));
    assert_eq!((told("a"), told("a/b/c")), (Clustering::Directory, Clustering::Tree));
    assert_eq!((told("a/f"), told("a/g")), (Clustering::Nothing, Clustering::Directory));
    set("a/b/c", Some(Clustering::Nothing)).expect("set");
    assert_eq!(cluster("a/b/c/h"), 0);
    set("a/b/c", None).expect("taken away");
    assert_eq!(cluster("a/b/c/i"), number("a/b"));
    // The layout that counts is looked up beside it, and a file that asks for its own shape has it too.
    made(&db, "a/b/own", shape("raid0 2"), None).expect("made");
    let own = db.read(|tx| Ok(directories::resolve(tx, &at("a/b/own"))?.inode)).expect("own");
    assert_eq!(own.cluster, number("a/b"));
    let refused = set("a/f", Some(Clustering::Tree)).expect_err("a file");
    assert_eq!(refused.reason, Reason::NotDirectory);
}

#[test]
fn the_nearest_directory_counts_and_else_the_volume() {
    let db = tree();
    set(&db, "a", "raid1 1+1").expect("set");
    set(&db, "a/b/c", "rs(2,2) unit=4K").expect("set");
    check_new(&db, "f", "raid5 2+1");
    check_new(&db, "z/f", "raid5 2+1");
    check_new(&db, "a/f", "raid1 1+1");
    check_new(&db, "a/b/f", "raid1 1+1");
    check_new(&db, "a/b/c/f", "rs(2,2) unit=4K");
    set(&db, "", "raid0 3").expect("the volume's");
    check_new(&db, "g", "raid0 3");
    check_new(&db, "a/g", "raid1 1+1");
    set(&db, "a", "").expect("taken away");
    check_new(&db, "a/b/g", "raid0 3");
    let told = |path: &str| db.read(|tx| layouts::of(tx, &at(path))).expect(path);
    assert_eq!(told("a/b").from, LayoutFrom::Volume);
    assert_eq!(told("a/b").path, "braid://v");
    assert_eq!((told("a/b/c").from, told("a/b/c").path), (LayoutFrom::Directory, "braid://v/a/b/c".into()));
    assert_eq!(
        (told("a/f").from, told("a/f").shape),
        (LayoutFrom::File, shape("raid1 1+1")),
        "as it was made"
    );
    assert_eq!(check(&db), Ok(Vec::new()));
}

#[test]
fn a_moved_directory_passes_on_what_holds_at_its_new_place() {
    let db = tree();
    set(&db, "z", "raid1 1+1").expect("set");
    set(&db, "a/b/c", "raid0 2").expect("set");
    check_new(&db, "a/b/before", "raid5 2+1");
    db.write(|tx| directories::rename(tx, &at("a/b"), &at("z/b"), RenameHow::NoReplace, &|_| false, 5))
        .expect("moved");
    check_new(&db, "z/b/after", "raid1 1+1");
    check_new(&db, "z/b/c/after", "raid0 2");
    let before = db.read(|tx| layouts::of(tx, &at("z/b/before"))).expect("there");
    assert_eq!(before.shape, shape("raid5 2+1"), "what exists stays");
}

#[test]
fn who_makes_a_file_comes_first_and_then_a_reservation() {
    let db = tree();
    let plan = shape("rs(3,2) unit=1M");
    set(&db, "a", "raid1 1+1").expect("set");
    let open = |unit_bytes| ShapeSpec { unit_bytes, ..ShapeSpec::DEFAULT };
    let of = |path: &str, asked: ShapeSpec, plan| made(&db, path, asked, plan).expect(path);
    assert_eq!(of("a/1", shape("raid0 2"), Some(&plan)), "raid0 2 unit=512KiB");
    assert_eq!(of("a/2", ShapeSpec::DEFAULT, Some(&plan)), "rs(3,2) unit=1MiB");
    assert_eq!(of("a/3", open(8192), Some(&plan)), "rs(3,2) unit=8KiB");
    assert_eq!(of("a/4", open(8192), None), "raid1 1+1 unit=8KiB");
    let unnamed = |meant_for: Option<&str>| {
        let meant_for = meant_for.map(at);
        let new = NEW;
        let shape = ShapeSpec::DEFAULT;
        let asked = CreateUnnamed {
            volume: "v".into(),
            shape,
            new,
            holder: HOLDER,
            avoid: Vec::new(),
            meant_for,
            takes_sealed: false,
        };
        let made = db.write(|tx| files::create_unnamed(tx, &asked, None, &place, 4)).expect("made").1;
        made.segments[0].shape.clone()
    };
    assert_eq!(unnamed(Some("a/b/new")), shape("raid1 1+1"), "where it is to be");
    assert_eq!(unnamed(Some("a/b/made/later/new")), shape("raid1 1+1"), "in directories yet to be made");
    assert_eq!(unnamed(Some("nowhere/new")), shape("raid5 2+1"));
    assert_eq!(unnamed(None), shape("raid5 2+1"));
}

#[test]
fn a_layout_that_is_too_wide_is_refused_with_both_numbers() {
    let db = tree();
    let refused = set(&db, "a", "raid5 6+1").expect_err("seven");
    assert_eq!(refused.reason, Reason::TooFewDrives);
    assert!(refused.detail.contains("needs 7 drives, and there are 6"), "{refused}");
    let change = Change { shape: shape("raid5 6+1"), how: XattrHow::Any };
    db.write(|tx| layouts::set(tx, number(tx, "a")?, &change, 7, 3)).expect("there were seven");
    let refused = made(&db, "a/b/f", ShapeSpec::DEFAULT, None).expect_err("now there are six");
    assert_eq!(refused.reason, Reason::TooFewDrives);
    assert!(refused.detail.contains("needs 7 drives, and there are 6"), "{refused}");
    assert!(refused.detail.contains("braid layout set braid://v/a,"), "{refused}");
}

fn xattr(path: &str, value: &str, how: XattrHow) -> SetXattr {
    SetXattr { at: at(path), name: LAYOUT_XATTR.to_vec(), value: value.into(), how }
}

#[test]
fn the_attribute_is_there_where_a_layout_is_set() {
    let db = tree();
    let apply = |set: SetXattr| {
        let change = Change::of_xattr(&set)?.expect("of the layout");
        db.write(|tx| layouts::set(tx, directories::resolve(tx, &set.at)?.file, &change, DRIVES, 3))
    };
    let shown = |path: &str| db.read(|tx| attributes::xattrs(tx, &at(path))).expect(path);
    apply(xattr("a", "raid1 unit=64K", XattrHow::Create)).expect("set");
    let refused = |set| apply(set).expect_err("refused").reason;
    assert_eq!(refused(xattr("a", "raid1", XattrHow::Create)), Reason::Exists);
    assert_eq!(refused(xattr("a/b", "raid1", XattrHow::Replace)), Reason::NoXattr);
    assert_eq!(refused(xattr("a/b", "", XattrHow::Remove)), Reason::NoXattr);
    assert_eq!(refused(xattr("", "", XattrHow::Remove)), Reason::NoXattr, "the volume's own");
    assert_eq!(refused(xattr("a", "raid7", XattrHow::Any)), Reason::BadScheme);
    assert!(shown("a/b").is_empty() && shown("").is_empty(), "only where it is set");
    assert_eq!(shown("a")[0].name, LAYOUT_XATTR);
    assert_eq!(shown("a")[0].value, b"raid1 1+1 unit=64KiB");
    apply(xattr("a", "", XattrHow::Remove)).expect("taken away");
    assert!(shown("a").is_empty());
    let other = SetXattr { name: b"user.other".to_vec(), ..xattr("a", "raid1", XattrHow::Any) };
    assert_eq!(Change::of_xattr(&other), Ok(None));
    db.write(|tx| directories::unlink(tx, &at("z"), UnlinkOnly::Any, &|_| false, 6)).expect("removed");
    assert_eq!(check(&db), Ok(Vec::new()));
}

#[test]
fn a_file_gets_another_layout_until_it_is_written() {
    let db = tree();
    let give = |path: &str, text: &str| {
        let change = Change { shape: shape(text), how: XattrHow::Any };
        db.write(|tx| layouts::give(tx, number(tx, path)?, &change, &place, 5))
    };
    let close = |path: &str, columns| {
        let end = Ended { ending: Ending::Retired, end: 0, columns };
        db.write(|tx| {
            let file = number(tx, path)?;
            let lease = inodes::get(tx, file)?.lease;
            files::release(tx, file, lease, &end)
        })
        .expect("closed");
    };
    check_new(&db, "f", "raid5 2+1");
    assert_eq!(give("f", "raid1 1+1").expect_err("it is open").reason, Reason::Written);
    close("f", ColumnMask::EMPTY);
    for text in ["raid1 1+1", "rs(4,2) unit=4K", "rs(4,2) unit=8K"] {
        give("f", text).expect(text);
        let file = db.read(|tx| inodes::get(tx, number(tx, "f")?)).expect("there");
        assert_eq!(file.segments[0].shape, shape(text));
        assert_eq!(check(&db), Ok(Vec::new()), "{text}");
    }
    check_new(&db, "g", "raid5 2+1");
    close("g", ColumnMask(1));
    let refused = give("g", "raid1 1+1").expect_err("a unit was sent");
    assert_eq!(refused.reason, Reason::Written);
    assert!(refused.detail.contains("braid relayout"), "{refused}");
    give("g", "raid5 2+1").expect("it has that layout");
}
