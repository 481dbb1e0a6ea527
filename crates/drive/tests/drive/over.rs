//! Capabilities that end before they expire: the lease was given back, the object was removed, the capability
//! is for another file, or the drive has restarted since.

use std::time::Duration;

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::*;
use braid_layout::{ClientId, FileId, OperationNumber, Version, version::Lease};
use braid_testing::wait_for;
use braid_transport::challenge;
use braid_wire::Reason;
use braid_wire::capability::{CAPABILITY_MS, Capability, Rights};
use braid_wire::data::{Hello, Remove, Retire};
use braid_wire::frame::HEADER_BYTES;
use braid_wire::{FrameHeader, Wire, seal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A writer's capability: everything but the manager's own rights.
fn writer() -> Capability {
    let rights = Rights::READ.and(Rights::WRITE).and(Rights::CREATE).and(Rights::GET_ATTRIBUTES);
    Capability { rights, ..object_level() }
}

#[tokio::test]
async fn a_lease_that_was_given_back_writes_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let mut session = drive.session().await;
    let old = drive.grant(writer());
    let payload = bytes(3, 100);
    assert!(session.call(&old, &write(0, 0, &payload, 1), &[&payload]).await.is_ok());
    let end = Retire {
        at: AT,
        settled_to: stamp(1),
        durable: true,
        client: ClientId::NONE,
        watermark: OperationNumber::NONE,
        ends_lease: true,
    };
    for _ in 0..2 {
        assert!(session.call(&old, &end.clone().into(), &[]).await.is_ok());
    }
    let late = session.call(&old, &write(0, 0, &payload, 2), &[&payload]).await;
    assert_eq!(reason(late), Reason::StaleGeneration);
    assert_eq!(reason(session.call(&old, &create(), &[]).await), Reason::StaleGeneration);
    assert!(session.call(&old, &read(0, 0, 100), &[]).await.is_ok());
    // The next lease of the same generation writes.
    let next = Lease(old.capability.lease.0 + 1);
    let new = drive.grant(Capability { lease: next, ..writer() });
    let stamp = Version { lease: next, n: 1, ..stamp(1) };
    let mut later = write_of(0, 0, &payload, 1);
    later.stamp = stamp;
    assert!(session.call(&new, &later.into(), &[&payload]).await.is_ok());
    drive.stop().await;
}

#[tokio::test]
async fn a_payload_that_comes_after_the_end_of_its_lease_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let old = drive.grant(writer());
    let payload = bytes(3, 100);
    // A write has been sent on one connection, all but its last byte.
    let mut late = TcpStream::connect(drive.address).await.unwrap();
    let mut hello = vec![0; HEADER_BYTES + Hello::BYTES_MIN];
    late.read_exact(&mut hello).await.unwrap();
    let hello = Hello::from_bytes(&hello[HEADER_BYTES..]).unwrap();
    let mut body = Vec::new();
    seal::Asker::new(&hello, challenge()).seal(&old, 1, &write(0, 0, &payload, 1), 100, &mut body);
    late.write_all(&FrameHeader::new(0x0103, 1, &body, 100).emit()).await.unwrap();
    late.write_all(&body).await.unwrap();
    late.write_all(&payload[..99]).await.unwrap();
    // Give the drive time to start on the write: nothing shows that it has, and it takes very little.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut session = drive.session().await;
    let end = Retire {
        at: AT,
        settled_to: stamp(0),
        durable: true,
        client: ClientId::NONE,
        watermark: OperationNumber::NONE,
        ends_lease: true,
    };
    assert!(session.call(&old, &end.into(), &[]).await.is_ok());
    late.write_all(&payload[99..]).await.unwrap();
    // The write is answered with a refusal.
    let mut answer = [0; HEADER_BYTES];
    late.read_exact(&mut answer).await.unwrap();
    let (reply, _) = drive.read(0, 0, 100).await;
    assert!(reply.version.is_zero(), "{reply:?}");
    drive.stop().await;
}

#[tokio::test]
async fn how_far_the_manager_has_come_is_told_with_the_next_heartbeat_and_stored_now_and_then() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    manager.state().lease_ms = 400;
    let drive = Drive::start(dir.path(), &manager).await;
    manager.state().mark.changes = 77;
    let is_heard = || manager.state().last.as_ref().is_some_and(|beat| beat.seen.changes == 77);
    wait_for(|| async { is_heard() }).await;
    let stored = std::fs::read_to_string(dir.path().join("drive.toml")).unwrap();
    assert!(stored.contains("seen_changes = 1\n"), "{stored}");
    drive.stop().await;
    let stored = std::fs::read_to_string(dir.path().join("drive.toml")).unwrap();
    assert!(stored.contains("seen_changes = 77\n"), "{stored}");
}

#[tokio::test]
async fn a_lease_ends_where_nothing_was_written_too() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    let mut session = drive.session().await;
    assert!(session.call(&drive.grant(drive_level()), &partition_create(), &[]).await.is_ok());
    let old = drive.grant(writer());
    let end = Retire {
        at: AT,
        settled_to: stamp(0),
        durable: true,
        client: ClientId::NONE,
        watermark: OperationNumber::NONE,
        ends_lease: true,
    };
    assert!(session.call(&old, &end.into(), &[]).await.is_ok());
    assert_eq!(reason(session.call(&old, &create(), &[]).await), Reason::StaleGeneration);
    drive.stop().await;
}

#[tokio::test]
async fn a_removed_object_is_not_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let mut session = drive.session().await;
    let old = drive.grant(writer());
    let all = drive.grant(object_level());
    assert!(session.call(&all, &Remove { at: AT, term: 1 }.into(), &[]).await.is_ok());
    assert_eq!(reason(session.call(&old, &create(), &[]).await), Reason::StaleGeneration);
    // A restart forgets removals, and the creation is still refused: the capability is older than the
    // restart.
    drop(session);
    drive.stop().await;
    let drive = Drive::start(dir.path(), &manager).await;
    let mut session = drive.session().await;
    let started_ms = manager.state().now_ms;
    let signed_at = |ms: u64| drive.grant(Capability { expires_ms: ms + CAPABILITY_MS, ..writer() });
    assert_eq!(reason(session.call(&signed_at(started_ms), &create(), &[]).await), Reason::Expired);
    assert!(session.call(&signed_at(started_ms + 1), &create(), &[]).await.is_ok());
    drive.stop().await;
}

#[tokio::test]
async fn an_object_of_another_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let mut session = drive.session().await;
    let own = drive.grant(Capability { file: map().file, ..writer() });
    let others = drive.grant(Capability { file: FileId(map().file.0 + 1), ..writer() });
    let payload = bytes(3, 100);
    assert!(session.call(&own, &write(0, 0, &payload, 1), &[&payload]).await.is_ok());
    assert!(session.call(&own, &read(0, 0, 100), &[]).await.is_ok());
    assert_eq!(reason(session.call(&others, &read(0, 0, 100), &[]).await), Reason::Scope);
    let late = session.call(&others, &write(0, 0, &payload, 2), &[&payload]).await;
    assert_eq!(reason(late), Reason::Scope);
    drive.stop().await;
}
