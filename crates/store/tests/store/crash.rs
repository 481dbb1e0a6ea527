//! Crashes: a torn tail at every byte, and a real process killed in the middle of its writes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use braid_layout::ObjectId;
use braid_store::*;

use crate::common::*;

const O: ObjectId = ObjectId(1);
const WRITER: &str = "BRAID_STORE_TEST_WRITER";

#[test]
fn a_torn_tail_is_cut_at_every_byte_of_the_last_commit() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), Options { sync: true, ..options() });
    store.commit(create(1)).expect("create");
    store.commit(Mutation::Write(write(1, 0, 0, 300, version(1, 1)))).expect("write");
    let before = length(dir.path());
    store.commit(Mutation::Write(write(1, 0, 100, 400, version(1, 2)))).expect("write");
    let after = length(dir.path());
    assert_eq!(after - before, 1024, "a header block and a payload block");
    let image = std::fs::read(&segments(dir.path())[0]).expect("read");
    for cut in before..=after {
        // The last payload ends before its block does; the padding carries no information.
        let whole = cut >= before + 512 + 300;
        for fill in [None, Some(0), Some(0xff)] {
            let copied = tempfile::tempdir().expect("a directory");
            copy(dir.path(), copied.path());
            let mut bytes = image[..usize::try_from(cut).expect("small")].to_vec();
            if let Some(fill) = fill {
                if cut % 64 != 0 {
                    continue;
                }
                bytes.resize(usize::try_from(after).expect("small"), fill);
            }
            let whole = whole && (fill.is_none() || cut >= before + 512 + 300);
            std::fs::write(&segments(copied.path())[0], &bytes).expect("write");
            check_torn(copied.path(), cut, whole, if fill.is_some() { after } else { cut } - before);
        }
    }
}

fn check_torn(dir: &Path, cut: u64, whole: bool, torn: u64) {
    let (store, recovery) = open(dir);
    assert_eq!(recovery.damaged_count, 0, "cut at {cut}");
    let mut expected = pattern(1, 300);
    if whole {
        expected.truncate(100);
        expected.extend(pattern(2, 300));
    } else {
        assert_eq!(recovery.torn_bytes, torn, "cut at {cut}");
        expected.resize(400, 0);
    }
    assert_eq!(content(&store, 1, 0, 0, 400, Want::Newest).expect("read"), expected, "cut at {cut}");
    store.commit(Mutation::Write(write(1, 1, 0, 10, version(1, 3)))).expect("writes go on");
    drop(store);
    let (store, recovery) = open(dir);
    assert_eq!((recovery.torn_bytes, recovery.damaged_count), (0, 0), "cut at {cut}");
    assert_eq!(content(&store, 1, 1, 0, 10, Want::Newest).expect("read"), pattern(3, 10));
    assert_eq!(content(&store, 1, 0, 0, 400, Want::Newest).expect("read"), expected);
}

fn length(dir: &Path) -> u64 {
    std::fs::metadata(&segments(dir)[0]).expect("stat").len()
}

#[test]
fn a_half_made_segment_is_taken_away() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    drop(store);
    for bytes in [&b""[..], b"BRAIDSEG", &[0; 512], &[0; 2048]] {
        let half = dir.path().join("log").join("00000002.seg");
        std::fs::write(&half, bytes).expect("write");
        let (store, recovery) = open(dir.path());
        assert_eq!(recovery.damaged_count, 0);
        assert_eq!(recovery.torn_bytes, u64::try_from(bytes.len()).expect("small"));
        assert!(!half.exists());
        assert_eq!(store.object(P, O).expect("object"), attributes());
    }
}

/// The process that is killed, not a test by itself. It prints each write when it is acknowledged.
#[test]
fn writer() {
    let Some(dir) = std::env::var_os(WRITER) else { return };
    let (store, recovery) = open_with(Path::new(&dir), Options { sync: true, ..options() });
    assert_eq!(recovery.damaged_count, 0);
    let first = store.usage(P, O).expect("usage").units;
    // Some rounds are killed while a checkpoint is being written.
    let checkpoints = store.clone();
    std::thread::spawn(move || while checkpoints.checkpoint().is_ok() {});
    for n in first.. {
        let length = u32::try_from(n % 7 + 1).expect("small") * 3000;
        store.submit(
            Mutation::Write(write(1, n, 0, length, version(1, n + 1))),
            Box::new(move |answer| {
                answer.expect("write");
                println!("acknowledged {n}");
            }),
        );
    }
}

#[test]
fn everything_acknowledged_survives_kill_9() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = fresh(dir.path(), options());
    store.commit(create(1)).expect("create");
    drop(store);
    let mut acknowledged = 0;
    for round in 0..5 {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "crash::writer", "--nocapture"])
            .env(WRITER, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the writer");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let enough = acknowledged + 40 + 37 * round;
        for line in lines.by_ref() {
            let line = line.expect("a line");
            let Some(n) = line.split("acknowledged ").nth(1).and_then(|n| n.trim().parse::<u64>().ok())
            else {
                continue;
            };
            acknowledged = acknowledged.max(n + 1);
            if acknowledged >= enough {
                break;
            }
        }
        child.kill().expect("kill");
        for line in lines {
            let Ok(line) = line else { break };
            if let Some(n) = line.split("acknowledged ").nth(1).and_then(|n| n.trim().parse::<u64>().ok()) {
                acknowledged = acknowledged.max(n + 1);
            }
        }
        assert!(!child.wait().expect("wait").success(), "it was killed");
        let (store, recovery) = open(dir.path());
        assert_eq!(recovery.damaged_count, 0, "{:?}", recovery.damaged);
        for n in 0..acknowledged {
            let length = u32::try_from(n % 7 + 1).expect("small") * 3000;
            let expected = pattern(n + 1, usize::try_from(length).expect("small"));
            assert_eq!(content(&store, 1, n, 0, length, Want::Newest).expect("read"), expected, "unit {n}");
        }
    }
    assert!(acknowledged >= 200, "only {acknowledged} writes were acknowledged");
}
