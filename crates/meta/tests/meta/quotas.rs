//! Quotas: whatever is done, accounts agree with the files' records, and none grows beyond its quota.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_layout::{ColumnMask, DriveId, FileId, HolderId};
use braid_meta::records::check::check;
use braid_meta::records::db::Db;
use braid_meta::records::memory::MemoryKv;
use braid_meta::records::quotas as accounts;
use braid_meta::records::schema::{Account, InodeRecord, QuotaRecord};
use braid_meta::records::tx::Tx;
use braid_meta::tree::directories::{self, Parents};
use braid_meta::tree::{attributes, files, nodes, quotas, room, volumes};
use braid_wire::control::{
    Access, AttributeChanges, Backing, Commit, Cut, Ended, Ending, HardLink, NamePlace, NewAttributes, Open,
    QuotaSet, RenameHow, ShapeSpec, UnlinkOnly,
};
use braid_wire::{Reason, Refusal};
use proptest::prelude::*;

const SHAPE: ShapeSpec = ShapeSpec { scheme: 5, k: 2, m: 1, unit_bytes: 4096 };
const MIB: u64 = 1 << 20;

fn at(path: &str) -> NamePlace {
    NamePlace::of("v", path)
}

#[derive(Debug, Clone)]
enum Op {
    Make(String),
    Create(String, u32),
    Extend(String, u64),
    GiveBack(String, u64),
    Commit(String, u64),
    Release(String),
    Unlink(String),
    Rename(String, String),
    Chown(String, u32),
    Set(String, Option<u32>, u64, u64),
    Remove(String, Option<u32>),
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b"]), 1..4).prop_map(|names| names.join("/"))
}

fn place() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), path()]
}

fn user() -> impl Strategy<Value = Option<u32>> {
    prop::option::of(1..3u32)
}

fn op() -> impl Strategy<Value = Op> {
    let size = || (0..60u64).prop_map(|mib| mib * MIB + 1);
    prop_oneof![
        path().prop_map(Op::Make),
        (path(), 1..3u32).prop_map(|(path, uid)| Op::Create(path, uid)),
        (path(), size()).prop_map(|(path, size)| Op::Extend(path, size)),
        (path(), size()).prop_map(|(path, size)| Op::GiveBack(path, size)),
        (path(), size()).prop_map(|(path, size)| Op::Commit(path, size)),
        path().prop_map(Op::Release),
        path().prop_map(Op::Unlink),
        (path(), path()).prop_map(|(from, to)| Op::Rename(from, to)),
        (path(), 1..3u32).prop_map(|(path, uid)| Op::Chown(path, uid)),
        (place(), user(), size(), 0..4u64)
            .prop_map(|(at, user, bytes, files)| Op::Set(at, user, bytes, files)),
        (place(), user()).prop_map(|(at, user)| Op::Remove(at, user)),
    ]
}

fn open(path: &str, uid: u32) -> Open {
    Open {
        at: at(path),
        access: Access::Write,
        create: true,
        exclusive: true,
        alone: false,
        range: None,
        takes_sealed: false,
        shape: ShapeSpec { scheme: 0, k: 0, m: 0, unit_bytes: 0 },
        new: NewAttributes { mode: 0o640, uid, gid: 2 },
        holder: HolderId(7),
    }
}

/// The file at a path, if it is open.
fn leased(tx: &Tx, path: &str) -> Result<(FileId, InodeRecord), Refusal> {
    let found = directories::resolve(tx, &at(path))?;
    Ok((found.file, files::leased(tx, found.file, found.inode.lease)?))
}

fn apply(tx: &mut Tx, op: &Op) -> Result<(), Refusal> {
    let drives = |_: u64, _: &_| Ok(((1..=3).map(DriveId).collect(), ColumnMask::EMPTY));
    match op {
        Op::Make(path) => {
            let new = NewAttributes { mode: 0o755, uid: 1, gid: 2 };
            directories::make(tx, &at(path), &new, Parents::Made, 2).map(drop)
        }
        Op::Create(path, uid) => files::find_or_create(tx, &open(path, *uid), None, &drives, 2).map(drop),
        Op::Extend(path, to) => {
            let (file, inode) = leased(tx, path)?;
            room::extend(tx, file, inode, *to, true).map(drop)
        }
        Op::GiveBack(path, needed) => {
            let (file, inode) = leased(tx, path)?;
            room::give_back(tx, file, inode, *needed).map(drop)
        }
        Op::Commit(path, size) => {
            let (file, inode) = leased(tx, path)?;
            let commit = Commit {
                file,
                lease: inode.lease,
                holder: HolderId(7),
                size: *size,
                order: inode.order + 1,
                cut: if *size < inode.size { Cut::Begins } else { Cut::No },
                modified_ns: None,
                backing: Backing::NONE,
            };
            files::commit(tx, &commit, 2).map(drop)
        }
        Op::Release(path) => {
            let (file, inode) = leased(tx, path)?;
            let ended = Ended { ending: Ending::Settled, end: 0, columns: ColumnMask(u64::MAX) };
            files::release(tx, file, inode.lease, &ended)
        }
        Op::Unlink(path) => directories::unlink(tx, &at(path), UnlinkOnly::Any, &|_| false, 2),
        Op::Rename(from, to) => {
            directories::rename(tx, &at(from), &at(to), RenameHow::Replace, &|_| false, 2)
        }
        Op::Chown(path, uid) => {
            let changes = AttributeChanges { uid: Some(*uid), ..AttributeChanges::NONE };
            attributes::set(tx, &at(path), &changes, 2).map(drop)
        }
        Op::Set(path, user, bytes, files) => {
            quotas::set(tx, &QuotaSet { at: at(path), user: *user, bytes: *bytes, files: *files })
        }
        Op::Remove(path, user) => quotas::remove(tx, &at(path), *user),
    }
}

fn all(db: &Db) -> BTreeMap<Account, QuotaRecord> {
    db.read(|tx| Ok(accounts::all(tx, volumes::find(tx, "v")?.volume)?.into_iter().collect())).unwrap()
}

fn volume() -> Db {
    let db = Db::new(Arc::new(MemoryKv::new()));
    db.write(|tx| volumes::create(tx, "v", SHAPE, 0, 1).map(drop)).unwrap();
    db
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_account_grows_beyond_its_quota_and_all_agree_with_the_files(ops in prop::collection::vec(op(), 1..60)) {
        let db = volume();
        for op in &ops {
            let before = all(&db);
            let done = db.write(|tx| apply(tx, op));
            let after = all(&db);
            if done.is_err() {
                prop_assert_eq!(&after, &before, "{:?} was refused", op);
            }
            let violations: Vec<_> = check(&db).unwrap().into_iter().filter(|found| !found.contains("drive")).collect();
            prop_assert!(violations.is_empty(), "{:?}: {:#?}", op, violations);
            for (account, now) in &after {
                let then = before.get(account).filter(|_| !matches!(op, Op::Set(..)));
                let Some(then) = then else { continue };
                let bytes_fit = now.limit_bytes == 0 || now.bytes <= now.limit_bytes.max(then.bytes);
                let files_fit = now.limit_files == 0 || now.files <= now.limit_files.max(then.files);
                prop_assert!(bytes_fit && files_fit, "{:?}: {:?} went from {:?} to {:?}", op, account, then, now);
            }
        }
    }
}

#[test]
fn a_writer_is_given_a_step_and_others_the_rest() {
    let db = volume();
    let run = |op: Op| db.write(|tx| apply(tx, &op));
    let reach = |path: &str| db.read(|tx| Ok(leased(tx, path)?.1.reach)).unwrap();
    run(Op::Create("a".into(), 1)).unwrap();
    assert_eq!(reach("a"), None, "no quota");
    run(Op::Set(String::new(), None, 80 * MIB, 0)).unwrap();
    run(Op::Extend("a".into(), 8 * MIB)).unwrap();
    assert_eq!(reach("a"), Some(17 * MIB), "an eighth of the 72 MiB that are left, beside what is needed");
    run(Op::Create("b".into(), 1)).unwrap();
    assert_eq!(reach("b"), Some(63 * MIB / 8));
    let refused = run(Op::Extend("b".into(), 64 * MIB)).unwrap_err();
    assert_eq!(refused.reason, Reason::Quota);
    assert!(refused.detail.contains("volume v has a quota of 83886080 bytes"), "{}", refused.detail);
    run(Op::Extend("b".into(), 63 * MIB)).unwrap();
    assert_eq!(reach("b"), Some(63 * MIB), "to the last byte");
    run(Op::GiveBack("a".into(), 8 * MIB)).unwrap();
    run(Op::Extend("b".into(), 72 * MIB)).unwrap();
    // What is written is committed without more room, and what is not is free after the end.
    run(Op::Commit("b".into(), 10 * MIB)).unwrap();
    run(Op::Release("b".into())).unwrap();
    assert_eq!(all(&db)[&Account::Volume].bytes, 18 * MIB);
}

#[test]
fn a_directory_and_a_user_have_quotas_of_their_own() {
    let db = volume();
    let run = |op: Op| db.write(|tx| apply(tx, &op));
    let reason = |op: Op| run(op).unwrap_err().reason;
    run(Op::Make("d/e".into())).unwrap();
    for (path, uid) in [("d/e/one", 1), ("d/two", 1), ("three", 2)] {
        run(Op::Create(path.into(), uid)).unwrap();
        run(Op::Commit(path.into(), 10 * MIB)).unwrap();
        run(Op::Release(path.into())).unwrap();
    }
    run(Op::Set("d".into(), None, 25 * MIB, 2)).unwrap();
    run(Op::Set("d/e".into(), None, 12 * MIB, 0)).unwrap();
    run(Op::Set(String::new(), Some(2), 15 * MIB, 0)).unwrap();
    let root = |path: &str| db.read(|tx| Ok(directories::resolve(tx, &at(path))?.file)).unwrap();
    let d = Account::Tree(root("d"));
    let e = Account::Tree(root("d/e"));
    let held = all(&db);
    assert_eq!((held[&d].bytes, held[&d].files, held[&e].bytes), (20 * MIB, 2, 10 * MIB));
    assert_eq!(reason(Op::Create("d/more".into(), 1)), Reason::Quota, "files");
    assert_eq!(reason(Op::Rename("three".into(), "d/three".into())), Reason::Quota);
    assert_eq!(reason(Op::Chown("d/two".into(), 2)), Reason::Quota);
    assert_eq!(reason(Op::Rename("d/e".into(), "e".into())), Reason::OtherQuota);
    let link = HardLink { from: at("three"), to: at("d/three") };
    let refused = db.write(|tx| nodes::link(tx, &link, 2).map(drop)).unwrap_err();
    assert_eq!(refused.reason, Reason::OtherQuota, "its first name may go, and the file would count there");
    run(Op::Rename("d/two".into(), "two".into())).unwrap();
    run(Op::Rename("d/e/one".into(), "d/one".into())).unwrap();
    let held = all(&db);
    assert_eq!((held[&d].bytes, held[&d].files, held[&e].bytes), (10 * MIB, 1, 0));
    run(Op::Unlink("d/e".into())).unwrap();
    assert!(!all(&db).contains_key(&e), "it ends with its directory");
    run(Op::Remove("d".into(), None)).unwrap();
    run(Op::Remove(String::new(), Some(2))).unwrap();
    assert!(all(&db).is_empty());
    assert_eq!(reason(Op::Set("two".into(), None, 1, 0)), Reason::NotDirectory);
    assert_eq!(reason(Op::Set("d".into(), Some(1), 1, 0)), Reason::BadName);
    assert_eq!(reason(Op::Set("d".into(), None, 0, 0)), Reason::Malformed);
}
