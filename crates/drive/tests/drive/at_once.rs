//! Short reads of bytes in the page cache, which the connection's reader answers itself: they need no thread,
//! and are refused like all others.

use std::sync::mpsc;
use std::time::Duration;

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, config, reason, settings, within};
use braid_drive::Sending;
use braid_layout::Generation;
use braid_store::disk::is_residency_told;
use braid_transport::DriveSession;
use braid_wire::capability::Capability;
use braid_wire::control::Grant;
use braid_wire::data::{DriveReply, Expect, Fence, ReadReply};
use braid_wire::{Reason, checksum::block_crcs};
use tokio::time::timeout;

/// The longest read that the connection's reader answers itself, in bytes.
const LONGEST: u32 = 16 << 10;
/// Threads for work that blocks.
const THREADS: usize = 3;
/// Times that the threads are taken before the reads must need none.
const TRIES: usize = 20;

async fn start(dir: &std::path::Path, manager: &Manager) -> Drive {
    let (mut settings, clock) = settings();
    settings.sending = Sending::Copy;
    // What is read ahead needs a thread, and reads wait for it.
    settings.read_ahead_bytes = 0;
    let drive = Drive::start_with(config(dir, manager, settings), clock, manager).await;
    drive.prepare().await;
    drive
}

async fn reads(
    session: &mut DriveSession,
    grant: &Grant,
    unit: u64,
    from: u32,
    to: u32,
) -> (ReadReply, Vec<u8>) {
    match within(session.call(grant, &read(unit, from, to), &[])).await {
        Ok((DriveReply::Read(reply), bytes)) => (reply, bytes),
        other => panic!("{other:?}"),
    }
}

/// Takes every thread until what is returned is dropped.
async fn take_threads() -> Vec<mpsc::Sender<()>> {
    let mut releases = Vec::new();
    for _ in 0..THREADS {
        let (release, released) = mpsc::channel::<()>();
        let (taken, is_taken) = tokio::sync::oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let _ = taken.send(());
            let _ = released.recv();
        });
        within(is_taken).await.unwrap();
        releases.push(release);
    }
    releases
}

/// Reads of unit 0, which is as long as `payload`, and of unit 1, which was never written.
async fn reads_of_all_kinds(session: &mut DriveSession, grant: &Grant, payload: &[u8]) {
    for (from, to) in [(0, 4096), (0, 1), (100, 5000), (UNIT - LONGEST, UNIT), (4096, 4096 + LONGEST)] {
        let (reply, got) = reads(session, grant, 0, from, to).await;
        let expected = &payload[usize::try_from(from).unwrap()..usize::try_from(to).unwrap()];
        assert_eq!((got.as_slice(), reply.version), (expected, stamp(1)));
        assert_eq!(reply.crcs, block_crcs(from, expected));
    }
    let (reply, got) = reads(session, grant, 1, 0, 4096).await;
    assert!(got.is_empty() && reply.version.is_zero() && reply.extents.iter().all(|extent| extent.hole));
}

#[test]
fn they_need_no_thread() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(THREADS)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        if !is_residency_told() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let manager = Manager::start().await;
        let drive = start(dir.path(), &manager).await;
        let payload = bytes(9, UNIT);
        drive.write(0, &payload, 1).await;
        let mut session = drive.session().await;
        let grant = drive.grant(object_level());
        // The record's header is read once.
        reads(&mut session, &grant, 0, 0, UNIT).await;
        // A read that meets one of the store's own threads at work may need a thread after all: all are asked
        // for again.
        let wait = Duration::from_secs(5);
        for attempt in 1.. {
            let releases = take_threads().await;
            if timeout(wait, reads_of_all_kinds(&mut session, &grant, &payload)).await.is_ok() {
                // A longer one waits for a thread, and holds up no other.
                let (asker, answers) = session.halves();
                asker.ask(1, &grant, &read(0, 0, LONGEST + 1), &[]).await.unwrap();
                asker.ask(2, &grant, &read(0, 0, LONGEST), &[]).await.unwrap();
                if let Ok(first) = timeout(wait, answers.next()).await {
                    assert_eq!(first.unwrap().tag, 2);
                    drop(releases);
                    assert_eq!(within(answers.next()).await.unwrap().tag, 1);
                    break;
                }
            }
            assert!(attempt < TRIES, "reads of bytes in the page cache waited for a thread {TRIES} times");
            drop(releases);
            session = drive.session().await;
        }
        drive.stop().await;
    });
}

#[tokio::test]
async fn reads_and_writes_at_the_same_time_have_the_right_bytes_each() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = start(dir.path(), &manager).await;
    for unit in 0..8u8 {
        drive.write(u64::from(unit), &bytes(unit, UNIT), u64::from(unit) + 1).await;
    }
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    let (asker, answers) = session.halves();
    let asking = async {
        for tag in 0..600u64 {
            let unit = tag % 8;
            let length = [4096, 1, LONGEST, UNIT, 9000][usize::try_from(tag % 5).unwrap()];
            asker.ask(tag, &grant, &read(unit, 0, length), &[]).await.unwrap();
            if tag % 7 == 0 {
                let unit = 8 + tag;
                let payload = bytes(1, 100);
                asker
                    .ask(1000 + tag, &grant, &write(unit, 0, &payload, tag + 20), &[&payload])
                    .await
                    .unwrap();
            }
        }
    };
    let taking = async {
        let mut tags = std::collections::BTreeSet::new();
        for _ in 0..600 + 600usize.div_ceil(7) {
            let answer = answers.next().await.unwrap();
            assert!(tags.insert(answer.tag), "answered twice: {}", answer.tag);
            match answer.reply {
                DriveReply::Read(_) => {
                    let mut got = vec![0; usize::try_from(answer.payload_bytes).unwrap()];
                    answers.payload(&mut got).await.unwrap();
                    let unit = u8::try_from(answer.tag % 8).unwrap();
                    assert!(got == bytes(unit, answer.payload_bytes), "read {}", answer.tag);
                }
                DriveReply::Written(_) => assert!(answer.tag >= 1000),
                other => panic!("{other:?}"),
            }
        }
    };
    within(async { tokio::join!(asking, taking) }).await;
    drive.stop().await;
}

#[tokio::test]
async fn a_thousand_answers_that_are_taken_late_all_come() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = start(dir.path(), &manager).await;
    let payload = bytes(3, UNIT);
    drive.write(0, &payload, 1).await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    let (asker, answers) = session.halves();
    for tag in 0..1000 {
        within(asker.ask(tag, &grant, &read(0, 0, LONGEST), &[])).await.unwrap();
    }
    let mut tags = std::collections::BTreeSet::new();
    let mut got = vec![0; usize::try_from(LONGEST).unwrap()];
    for _ in 0..1000 {
        let answer = within(answers.next()).await.unwrap();
        assert!(matches!(answer.reply, DriveReply::Read(_)));
        within(answers.payload(&mut got)).await.unwrap();
        assert_eq!(got, payload[..got.len()]);
        assert!(tags.insert(answer.tag));
    }
    drive.stop().await;
}

#[tokio::test]
async fn a_capability_that_was_served_is_refused_once_it_expires() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    manager.state().lease_ms = 100_000_000;
    let drive = start(dir.path(), &manager).await;
    drive.write(0, &bytes(1, 4096), 1).await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    reads(&mut session, &grant, 0, 0, 4096).await;
    manager.state().answers = false;
    drive.advance_ms(EXPIRES_MS - 5_000_000 - 1);
    reads(&mut session, &grant, 0, 0, 4096).await;
    drive.advance_ms(1);
    for _ in 0..2 {
        assert_eq!(reason(session.call(&grant, &read(0, 0, 4096), &[]).await), Reason::Expired);
    }
    let later = drive.grant(Capability { expires_ms: EXPIRES_MS + 1, ..object_level() });
    reads(&mut session, &later, 0, 0, 4096).await;
    drive.stop().await;
}

#[tokio::test]
async fn a_capability_that_was_served_is_refused_once_its_key_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = start(dir.path(), &manager).await;
    drive.write(0, &bytes(1, 4096), 1).await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    let all = drive.grant(drive_level());
    reads(&mut session, &grant, 0, 0, 4096).await;
    let mut other = drive.session().await;
    for key_epoch in [2, 3] {
        reads(&mut session, &grant, 0, 0, 4096).await;
        other.call(&all, &partition_set(Expect::Present, key_epoch).into(), &[]).await.unwrap();
    }
    for _ in 0..2 {
        assert_eq!(reason(session.call(&grant, &read(0, 0, 4096), &[]).await), Reason::StaleKey);
    }
    let new = drive.grant(Capability { key_epoch: 3, ..object_level() });
    reads(&mut session, &new, 0, 0, 4096).await;
    drive.stop().await;
}

#[tokio::test]
async fn a_capability_that_was_served_is_refused_once_the_generation_rose() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = start(dir.path(), &manager).await;
    drive.write(0, &bytes(1, 4096), 1).await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    reads(&mut session, &grant, 0, 0, 4096).await;
    let raised = drive.grant(Capability { g: Generation(G.0 + 1), ..object_level() });
    let fence = Fence { at: AT, term: 1, units_from: 0, drives: Vec::new(), reserve_bytes: 0 };
    drive.session().await.call(&raised, &fence.into(), &[]).await.unwrap();
    for _ in 0..2 {
        assert_eq!(reason(session.call(&grant, &read(0, 0, 4096), &[]).await), Reason::StaleGeneration);
    }
    reads(&mut session, &raised, 0, 0, 4096).await;
    drive.stop().await;
}

#[tokio::test]
async fn nothing_is_served_after_the_lease_lapsed() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = start(dir.path(), &manager).await;
    drive.write(0, &bytes(1, 4096), 1).await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    reads(&mut session, &grant, 0, 0, 4096).await;
    manager.state().answers = false;
    drive.advance_ms(100_000);
    assert_eq!(reason(session.call(&grant, &read(0, 0, 4096), &[]).await), Reason::NotServing);
    drive.stop().await;
}
