//! Full stores and freed segments.

use std::path::Path;
use std::process::Command;

use braid_layout::{ColumnMask, Generation, ObjectId, Version};
use braid_store::*;

use crate::common::*;

fn fill(store: &Store, object: u64) -> u64 {
    store.commit(create(object)).expect("create");
    for n in 1.. {
        match store.commit(Mutation::Write(write(object, n, 0, UNIT, version(1, n)))) {
            Ok(_) => assert!(n < 10_000, "it never gets full"),
            Err(Error::Full { used, capacity }) => {
                assert!(used <= capacity);
                return n - 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("the loop is endless")
}

#[test]
fn a_full_store_still_removes_and_then_takes_writes_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let limited = Options { capacity: Some(8 << 20), ..options() };
    let store = fresh(dir.path(), limited.clone());
    for round in 0..5 {
        let written = fill(&store, round);
        assert!(written > 80, "round {round}: only {written} units fit into 8 MiB");
        for n in 1..=written {
            let bytes = content(&store, round, n, 0, UNIT, Want::Newest).expect("read");
            assert_eq!(bytes, pattern(n, usize::try_from(UNIT).expect("small")), "unit {n} is intact");
        }
        // Small objects take the space that is left for writes, and then there is still space for the objects
        // that a fence makes.
        let small = 1000 * (round + 1);
        let refused = (small..small + 900).find(|&object| store.commit(create(object)).is_err());
        let refused = refused.expect("it never gets full");
        let g = Generation(2);
        let attributes = Attributes { g, ..attributes() };
        let made = Mutation::Create { partition: P, object: ObjectId(refused), attributes };
        store.commit(made).expect("a fence makes an object on a full store");
        let still = ObjectId(refused + 1);
        let object = ObjectId(refused);
        let attributes = Attributes { g: Generation(1), ..self::attributes() };
        let take = Mutation::Take { partition: P, object, g, still, attributes };
        store.commit(take).expect("a still is taken on a full store");
        for object in small..=refused + 1 {
            store
                .commit(Mutation::Remove { partition: P, object: ObjectId(object), g })
                .expect("a remove works");
        }
        let set = ColumnMask::all(2);
        let fence =
            Mutation::Fence { partition: P, object: ObjectId(round), g, set, joining: ColumnMask::EMPTY };
        store.commit(fence).expect("a fence works on a full store");
        let remove = Mutation::Remove { partition: P, object: ObjectId(round), g };
        store.commit(remove).expect("a remove works on a full store");
        store.commit(Mutation::Flush).expect("flush");
    }
    store.close().expect("close");
    drop(store);
    let (store, recovery) = open_with(dir.path(), limited);
    assert_eq!(recovery.damaged_count, 0, "{:?}", recovery.damaged);
    let stat = store.stat().expect("stat");
    assert_eq!((stat.objects, stat.live), (0, 0));
    assert!(stat.used < 2 << 20, "{} bytes are still used", stat.used);
}

/// A capacity below the bytes that the store already uses. A long checkpoint can exceed it too.
#[test]
fn a_store_over_its_capacity_still_removes() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), Options { capacity: Some(8 << 20), ..options() });
    let written = fill(&store, 1);
    store.commit(create(2)).expect("create");
    store.close().expect("close");
    drop(store);
    let (store, _) = open_with(dir.path(), Options { capacity: Some(1 << 20), ..options() });
    assert!(store.stat().expect("stat").used > 4 << 20);
    let refused = store.commit(Mutation::Write(write(2, 0, 0, 100, version(1, 9000))));
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    let back = vec![version(1, written)];
    let units = vec![UnitVerdict { unit: written, forward: Vec::new(), back, cut_offs: Vec::new() }];
    let verdict = Mutation::Verdict { partition: P, object: ObjectId(1), g: Generation(1), units };
    assert_eq!(store.commit(verdict).expect("a verdict works"), MutationOutcome::Applied);
    store.commit(remove(1)).expect("a remove works");
    store.commit(Mutation::Write(write(2, 0, 0, 100, version(1, 9001)))).expect("and then writes do");
}

#[test]
fn segments_go_and_what_was_in_them_stays_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    // A segment that stays: it holds live bytes, and bytes of an object that is removed.
    store.commit(create(1)).expect("create");
    store.commit(create(2)).expect("create");
    store.commit(Mutation::Write(write(1, 0, 0, 100, version(1, 1)))).expect("write");
    store.commit(Mutation::Write(write(2, 0, 0, 100, version(1, 2)))).expect("write");
    store.commit(Mutation::Write(write(1, 1, 0, 100, version(1, 3)))).expect("write");
    let churn = |from: u64| {
        for n in from..from + 20 {
            store.commit(Mutation::Write(write(1, 2, 0, UNIT, version(1, n)))).expect("write");
        }
    };
    churn(10);
    let fence = Mutation::Fence {
        partition: P,
        object: ObjectId(1),
        g: Generation(1),
        set: ColumnMask::all(5),
        joining: ColumnMask::EMPTY,
    };
    assert_eq!(store.commit(fence).expect("same"), MutationOutcome::Already);
    store.commit(remove(2)).expect("remove");
    let back =
        vec![UnitVerdict { unit: 1, forward: Vec::new(), back: vec![version(1, 3)], cut_offs: Vec::new() }];
    let verdict = Mutation::Verdict { partition: P, object: ObjectId(1), g: Generation(1), units: back };
    assert_eq!(store.commit(verdict).expect("verdict"), MutationOutcome::Applied);
    let change = Change { cluster: Some(9), ..Change::default() };
    let set = Mutation::SetAttributes { partition: P, object: ObjectId(1), g: Generation(1), change };
    store.commit(set).expect("set");
    churn(100);
    store.commit(create(2)).expect("the number again");
    churn(200);
    churn(300);
    store.checkpoint().expect("checkpoint");
    store.checkpoint().expect("checkpoint");
    let stat = store.stat().expect("stat");
    assert!(stat.segments <= 5, "{} segments for {} live bytes", stat.segments, stat.live);
    store.close().expect("close");
    drop(store);
    let (store, recovery) = open(dir.path());
    assert_eq!(recovery.damaged_count, 0, "{:?}", recovery.damaged);
    assert_eq!(store.object(P, ObjectId(1)).expect("object").cluster, 9);
    assert_eq!(
        store.versions(P, ObjectId(2), 0..9).expect("versions"),
        [],
        "the old object's bytes stay gone"
    );
    let view = store.read(P, ObjectId(1), 1, 0..10, Want::Newest).expect("view");
    assert_eq!(view.version, Version::ZERO, "what was taken back stays so");
    assert_eq!(content(&store, 1, 0, 0, 100, Want::Newest).expect("read"), pattern(1, 100));
    assert_eq!(content(&store, 1, 2, 0, 9, Want::Newest).expect("read"), pattern(319, 9));
}

#[test]
fn a_view_outlives_its_segment() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    store.commit(Mutation::Write(write(1, 0, 0, UNIT, version(1, 1)))).expect("write");
    let view = store.read(P, ObjectId(1), 0, 0..UNIT, Want::Newest).expect("view");
    for n in 2..40 {
        store.commit(Mutation::Write(write(1, 0, 0, UNIT, version(1, n)))).expect("write");
    }
    let first = || segments(dir.path())[0].ends_with("00000001.seg");
    assert!(first(), "without a checkpoint the whole log is needed");
    store.checkpoint().expect("checkpoint");
    assert!(first(), "there is no older checkpoint that could take the place of a damaged one");
    store.checkpoint().expect("checkpoint");
    assert!(!first(), "the first segment was freed");
    assert_eq!(read_stored(&view).expect("read"), pattern(1, usize::try_from(UNIT).expect("small")));
}

const SMALL_DISK: &str = "BRAID_STORE_TEST_SMALL_DISK";

/// The child process of the next test, not a test by itself: it runs on a file system of its own with 4 MiB.
#[test]
fn small_disk() {
    let Some(dir) = std::env::var_os(SMALL_DISK) else { return };
    let disk = Path::new(&dir);
    let dir = Path::new(&dir).join("store");
    let store = fresh(&dir, Options { sync: true, ..options() });
    let written = fill(&store, 1);
    assert!(written > 20, "only {written} units fit");
    // Another file takes the rest, down to the last byte: even a remove finds no space now.
    let hog = disk.join("hog");
    let mut bytes: &[u8] = &vec![1; 8 << 20];
    let mut file = std::fs::File::create(&hog).expect("make");
    while std::io::Write::write(&mut file, bytes).is_ok_and(|n| n > 0) {
        bytes = &bytes[1..];
    }
    let mut refused = 0;
    for n in 1..=20 {
        let change = Change { modified_ms: Some(n), opaque: Some(vec![1; 4096]), ..Change::default() };
        let g = store.object(P, ObjectId(1)).expect("the object").g;
        let set = Mutation::SetAttributes { partition: P, object: ObjectId(1), g, change };
        refused += u32::from(matches!(store.commit(set), Err(Error::Full { .. })));
        let fence = Mutation::Fence {
            partition: P,
            object: ObjectId(1),
            g: Generation(u32::try_from(n).expect("small") + 1),
            set: ColumnMask::all(1),
            joining: ColumnMask::EMPTY,
        };
        refused += u32::from(matches!(store.commit(fence), Err(Error::Full { .. })));
    }
    assert!(refused >= 30, "the disk had room for {} of 40 records", 40 - refused);
    for n in 1..=written {
        assert!(content(&store, 1, n, 0, UNIT, Want::Newest).is_ok(), "unit {n} is still there");
    }
    drop(file);
    std::fs::remove_file(&hog).expect("remove");
    store.commit(remove(1)).expect("space is back");
    store.commit(Mutation::Flush).expect("flush");
    assert!(fill(&store, 2) >= written / 2, "and is used again");
    store.close().expect("close");
    drop(store);
    let (store, recovery) = open(&dir);
    assert_eq!((recovery.torn_bytes, recovery.damaged_count), (0, 0), "{:?}", recovery.damaged);
    assert_eq!(store.stat().expect("stat").objects, 1);
}

#[test]
fn a_disk_without_space_leaves_the_log_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let binary = std::env::current_exe().expect("this binary");
    let script = "mount -t tmpfs -o size=4m tmpfs \"$1\" || exit 77; exec \"$2\" --exact space::small_disk --nocapture";
    let run = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .arg(binary)
        .env(SMALL_DISK, dir.path())
        .output();
    match run {
        Ok(output) if output.status.code() != Some(77) && !output.stdout.is_empty() => {
            let out = String::from_utf8_lossy(&output.stdout);
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{out}{err}");
        }
        _ => println!("this machine gives no file system of one's own: not run"),
    }
}
