//! The ways to the disk: each does the same, and what the system does not offer is refused by a store, and done without by a
//! directory.

use std::path::Path;
use std::process::Command;

use braid_layout::ObjectId;
use braid_store::disk::{Directory, Disk, Method, offered};
use braid_store::*;

use crate::common::*;

const NO_RING: &str = "BRAID_STORE_TEST_NO_RING";

#[test]
fn every_way_keeps_the_same_bytes() {
    for (method, direct) in
        [(Method::Auto, false), (Method::Uring, false), (Method::Plain, true), (Method::Uring, true)]
    {
        let dir = tempfile::tempdir().expect("a directory");
        if let Err(why) = offered(dir.path(), method, direct) {
            // What the system does not have cannot be tested; that it is refused can.
            Store::format(dir.path(), identity(), &options()).expect("format");
            let refused = Store::open(dir.path(), None, Options { method, direct, ..options() });
            let refused = refused.map(drop).expect_err("refused").to_string();
            assert_eq!(refused, why.to_string());
            continue;
        }
        let way = Options { method, direct, sync: true, ..options() };
        let store = fresh(dir.path(), way.clone());
        let what = store.means();
        store.commit(create(1)).expect("create");
        for n in 1..12 {
            let to = u32::try_from(n * 5003).expect("small");
            store.commit(Mutation::Write(write(1, n, 3, to, version(1, n)))).expect("write");
        }
        let check = |store: &Store| {
            for n in 1..12 {
                let to = u32::try_from(n * 5003).expect("small");
                let bytes = content(store, 1, n, 3, to, Want::Newest).expect("read");
                assert!(bytes == pattern(n, bytes.len()), "{what}: unit {n}");
                let view = store.read(P, ObjectId(1), n, 3..to, Want::Newest).expect("view");
                let past_the_cache = what.ends_with(", direct");
                assert!(!(past_the_cache && view.is_resident()), "{what}");
                assert_eq!(view.pieces()[0].lend().is_none(), past_the_cache, "{what}");
            }
        };
        check(&store);
        store.close().expect("close");
        drop(store);
        let (store, recovery) = open_with(dir.path(), way);
        assert_eq!((recovery.torn_bytes, recovery.damaged_count), (0, 0), "{what}");
        check(&store);
    }
}

/// Not a test by itself: a process that may not open another file when the ring is asked for.
#[test]
fn without_ring() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Some(dir) = std::env::var_os(NO_RING) else { return };
    let disk = Directory::lock(Path::new(&dir)).expect("ours");
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..limit }).expect("a limit");
    let disk = disk.with(Method::Uring, false);
    assert!(matches!(offered(Path::new(&dir), Method::Uring, false), Err(Error::NoUring(_))));
    assert!(matches!(offered(Path::new(&dir), Method::Auto, false), Ok(())));
    setrlimit(Resource::Nofile, limit).expect("as before");
    let means = disk.describe();
    assert!(means.starts_with("plain (io_uring: ") && means.ends_with("), buffered"), "{means}");
    let file = disk.create("a").expect("made");
    file.write_at(&[std::io::IoSlice::new(b"abc")], 0).expect("written");
    assert_eq!(file.read_at(&mut [0; 9], 0).expect("read"), 3);
}

#[test]
fn where_a_ring_cannot_be_had_plain_calls_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "means::without_ring", "--nocapture"])
        .env(NO_RING, dir.path())
        .output()
        .expect("a process");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{said:?}");
    assert!(dir.path().join("a").exists(), "it ran: {said:?}");
}
