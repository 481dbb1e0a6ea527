//! Differences between snapshots, and to the present, against those of whole copies of the trees.

use std::collections::{BTreeMap, VecDeque};

use braid_layout::FileId;
use braid_meta::tree::{diff, schedules, snapshots};
use braid_wire::control::{ChangeKind, ChangeRow, EntryKind, KeepCounts, NamePlace, SnapshotDiff};
use braid_wire::{Reason, Refusal};
use proptest::prelude::*;

use crate::snapshots::{Op, Real, View, at, op, run};

/// All differences, as a client asks for them.
fn all(real: &Real, from: &NamePlace, to: &NamePlace) -> Result<Vec<ChangeRow>, Refusal> {
    let mut changes = Vec::new();
    let mut steps = VecDeque::from([(FileId(0), false)]);
    while let Some((directory, whole)) = steps.pop_front() {
        let mut after = Vec::new();
        loop {
            let asked = SnapshotDiff { from: from.clone(), to: to.clone(), directory, whole, after };
            let page = real.db.read(|tx| diff::page(tx, &asked))?;
            for row in page.changes {
                let is_new = row.change == ChangeKind::Added && row.kind == EntryKind::Directory;
                if is_new || row.change == ChangeKind::Entries {
                    steps.push_back((row.file, is_new));
                }
                changes.push(row);
            }
            match page.after {
                Some(last) => after = last,
                None => break,
            }
        }
    }
    Ok(changes)
}

/// All differences. While a snapshot between the two is going, they are asked for again.
fn when_freed(real: &Real, from: &NamePlace, to: &NamePlace) -> Vec<ChangeRow> {
    match all(real, from, to) {
        Err(refusal) if refusal.reason == Reason::Busy => {
            while real.free_some(8) {}
            all(real, from, to).unwrap()
        }
        changes => changes.unwrap(),
    }
}

fn text(path: &[u8]) -> String {
    String::from_utf8(path.to_vec()).unwrap()
}

/// The place of a name after the changes: the nearest name above it, or itself, that was moved or removed,
/// counts.
fn moved(path: &str, changes: &[ChangeRow]) -> Option<String> {
    let mut above = path;
    loop {
        let is_it = |row: &&ChangeRow| row.before.as_ref().is_some_and(|name| text(&name.path) == above);
        let found = changes.iter().filter(is_it);
        let mut found = found.filter(|row| matches!(row.change, ChangeKind::Removed | ChangeKind::Renamed));
        if let Some(row) = found.next() {
            assert!(found.next().is_none(), "{above} is told twice");
            let now = row.after.as_ref()?;
            return Some(format!("{}{}", text(&now.path), &path[above.len()..]));
        }
        match above.rfind('/') {
            Some(end) => above = &above[..end],
            None => return Some(path.to_owned()),
        }
    }
}

/// Checks that the changes make the one tree of the other.
fn check(changes: &[ChangeRow], before: &View, after: &View) -> Result<(), TestCaseError> {
    let names = |view: &View| -> BTreeMap<String, FileId> {
        view.iter().map(|(path, shown)| (path.clone(), shown.file)).collect()
    };
    let mut made: BTreeMap<String, FileId> = BTreeMap::new();
    for (path, file) in names(before) {
        if let Some(path) = moved(&path, changes) {
            made.insert(path, file);
        }
    }
    for row in changes.iter().filter(|row| row.change == ChangeKind::Added) {
        let path = text(&row.after.as_ref().unwrap().path);
        prop_assert!(made.insert(path.clone(), row.file).is_none(), "{} was there", path);
    }
    prop_assert_eq!(&made, &names(after), "{:#?}", changes);
    let is = |file: FileId, change: ChangeKind| {
        changes.iter().filter(|row| row.file == file && row.change == change).count()
    };
    for was in before.values() {
        let Some(now) = after.values().find(|now| now.file == was.file) else { continue };
        let kind = was.attributes.kind;
        let modified = is(was.file, ChangeKind::Modified);
        let told = is(was.file, ChangeKind::Attributes);
        if let (Some(was), Some(now)) = (was.content, now.content) {
            prop_assert!(was == now || modified == 1, "new bytes");
        }
        prop_assert!(modified + told <= 1, "{} is told once", was.file);
        let a = &was.attributes;
        let b = &now.attributes;
        let mut is_other = a.mode != b.mode || was.xattrs != now.xattrs;
        is_other |= kind != EntryKind::Directory && a.modified_ns != b.modified_ns;
        prop_assert!(modified == 1 || told == usize::from(is_other), "{:?} {:?}", was, now);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_changes_make_the_newer_tree_of_the_older(ops in prop::collection::vec(op(), 1..60)) {
        let mut real = Real::new();
        for op in &ops {
            real.apply(op);
            real.now_ms += 1;
        }
        for (index, older) in real.copies.iter().enumerate() {
            let from = NamePlace { snapshot: older.number, ..NamePlace::number(older.root) };
            for newer in real.copies[index + 1..].iter().filter(|newer| newer.root == older.root) {
                let to = NamePlace { snapshot: newer.number, ..from.clone() };
                check(&when_freed(&real, &from, &to), &older.view, &newer.view)?;
            }
            let to = NamePlace { snapshot: 0, ..from.clone() };
            let now = real.db.read(|tx| real.view(tx, &to)).unwrap();
            check(&when_freed(&real, &from, &to), &older.view, &now)?;
        }
    }
}

#[test]
fn more_changes_than_a_page_has_come_in_pages() {
    let mut ops = vec![Op::MakeDirectory("a".into())];
    ops.extend((0..700).map(|file| Op::MakeDirectory(format!("a/{file}"))));
    ops.push(Op::Snapshot(String::new(), "x".into()));
    let mut real = Real::new();
    ops.iter().for_each(|op| real.apply(op));
    real.now_ms += 1;
    for file in 0..700 {
        real.apply(&Op::Unlink(format!("a/{file}"), false));
        real.apply(&Op::MakeDirectory(format!("a/new-{file}")));
    }
    let changes = all(&real, &NamePlace::of("v@x", ""), &at("")).unwrap();
    let count = |change| changes.iter().filter(|row| row.change == change).count();
    assert_eq!((count(ChangeKind::Removed), count(ChangeKind::Added)), (700, 700));
}

#[test]
fn only_one_directory_is_compared_and_with_a_later_time() {
    let real = run(&[
        Op::MakeDirectory("a".into()),
        Op::MakeDirectory("b".into()),
        Op::Snapshot(String::new(), "x".into()),
        Op::Write("a/b".into(), 7),
        Op::Write("b/c".into(), 7),
        Op::Snapshot(String::new(), "y".into()),
        Op::Write("a/c".into(), 7),
    ]);
    let told = |from: &str, to: &str, path: &str| {
        let changes = all(&real, &NamePlace::of(from, path), &NamePlace::of(to, path))?;
        let paths = changes.iter().filter(|row| row.change == ChangeKind::Added);
        Ok(paths.map(|row| text(&row.after.as_ref().unwrap().path)).collect::<Vec<_>>())
    };
    assert_eq!(told("v@x", "v@y", "a"), Ok(vec!["b".to_owned()]));
    assert_eq!(told("v@y", "v", ""), Ok(vec!["a/c".to_owned()]));
    assert_eq!(told("v@x", "v@x", ""), Ok(vec![]));
    let reason = |told: Result<Vec<String>, Refusal>| told.err().map(|refusal| refusal.reason);
    assert_eq!(reason(told("v@y", "v@x", "")), Some(Reason::BadName));
    assert_eq!(reason(told("v", "v@x", "")), Some(Reason::BadName));
    assert_eq!(reason(told("v@x", "v", "a/b")), Some(Reason::NotFound));
    let other = all(&real, &NamePlace::of("v@x", "a"), &at("b"));
    assert_eq!(other.err().map(|refusal| refusal.reason), Some(Reason::BadName));
}

#[test]
fn what_a_snapshot_between_keeps_is_not_missed_while_it_is_removed() {
    let mut ops = vec![Op::MakeDirectory("a".into())];
    ops.extend((0..400).map(|file| Op::MakeDirectory(format!("a/{file}"))));
    ops.push(Op::Snapshot(String::new(), "x".into()));
    ops.extend((0..200).map(|file| Op::Unlink(format!("a/{file}"), false)));
    ops.push(Op::Snapshot(String::new(), "y".into()));
    ops.extend((200..400).map(|file| Op::Unlink(format!("a/{file}"), false)));
    let mut real = run(&ops);
    let from = NamePlace::of("v@x", "");
    let page = |real: &Real, after: Vec<u8>| {
        let asked =
            SnapshotDiff { from: from.clone(), to: at(""), directory: FileId(0), whole: false, after };
        real.db.read(|tx| diff::page(tx, &asked))
    };
    let first = page(&real, Vec::new()).unwrap().after.unwrap();
    assert!(page(&real, first.clone()).is_ok(), "a snapshot between alone is no reason");
    // One that is made later is none either.
    real.apply(&Op::Snapshot(String::new(), "z".into()));
    assert!(page(&real, first.clone()).is_ok());
    let reason = |page: Result<diff::Page, Refusal>| page.err().map(|refusal| refusal.reason);
    real.write(|tx, _| snapshots::remove(tx, &at(""), "y")).unwrap();
    assert_eq!(reason(page(&real, first.clone())), Some(Reason::Busy));
    assert_eq!(reason(page(&real, Vec::new())), Some(Reason::Busy));
    while real.free_some(100) {}
    assert_eq!(reason(page(&real, first)), Some(Reason::Unsettled));
    let changes = all(&real, &from, &at("")).unwrap();
    assert_eq!(changes.iter().filter(|row| row.change == ChangeKind::Removed).count(), 400);
}

#[test]
fn what_an_ended_schedule_made_is_not_of_the_next_one() {
    let mut real = run(&[Op::MakeDirectory("a".into())]);
    let keep = KeepCounts { hours: 1, days: 0, weeks: 0 };
    let root = real.write(move |tx, now| {
        schedules::set(tx, &at(""), keep)?;
        let made = snapshots::make(tx, &at(""), "auto-1", now)?;
        schedules::made_now(tx, &made, 0)?;
        Ok(made.root)
    });
    let root = root.unwrap();
    let there = |real: &Real| real.db.read(|tx| schedules::rows(tx, "v")).unwrap()[0].there;
    assert_eq!(there(&real), 1);
    real.write(|tx, _| schedules::set(tx, &at(""), schedules::NONE)).unwrap();
    real.now_ms += 24 * 3_600_000;
    let removed = real.write(move |tx, now| {
        schedules::set(tx, &at(""), keep)?;
        let made = snapshots::make(tx, &at(""), "auto-2", now)?;
        schedules::made_now(tx, &made, 0)?;
        schedules::remove_unkept(tx, root)
    });
    assert_eq!((removed.unwrap(), there(&real)), (Vec::<String>::new(), 1));
}
