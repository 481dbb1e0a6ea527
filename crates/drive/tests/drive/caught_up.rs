//! Reads from a joining column: it answers for units that it has caught up with, in the generation in which
//! it has.

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, reason};
use braid_layout::{ColumnMask, Generation, version::Lease};
use braid_wire::data::{Done, DriveReply, DriveRequest, Fence, Ready, StripeWrite};
use braid_wire::{Capability, Reason, Rights};

/// The object's column, joining.
const OWN: ColumnMask = ColumnMask(2);

/// All rights in a generation in which the column is joining.
fn joining(g: Generation) -> Capability {
    Capability { g, joining: OWN, lease: Lease(8), ..object_level() }
}

fn ready(unit: u64, units: u32) -> DriveRequest {
    Ready { at: AT, unit, units }.into()
}

/// A drive whose column is joining, and has unit 0 installed.
async fn caught_up_with_one(dir: &std::path::Path, manager: &Manager) -> Drive {
    let drive = Drive::start(dir, manager).await;
    let mut session = drive.session().await;
    let grant = drive.grant(joining(G));
    session.call(&drive.grant(drive_level()), &partition_create(), &[]).await.unwrap();
    session.call(&grant, &create(), &[]).await.unwrap();
    let payload = bytes(4, UNIT);
    let install = StripeWrite { install: true, ..write_of(0, 0, &payload, 7) };
    session.call(&grant, &install.into(), &[&payload]).await.unwrap();
    drive
}

/// The first byte of each of these units, or the reason why it is not read.
async fn first_bytes(drive: &Drive, g: Generation, units: &[u64]) -> Vec<Result<Option<u8>, Reason>> {
    let reader = Capability { rights: Rights::READ, lease: Lease(0), ..joining(g) };
    let mut session = drive.session().await;
    let grant = drive.grant(reader);
    let mut found = Vec::new();
    for &unit in units {
        found.push(match session.call(&grant, &read(unit, 0, 10), &[]).await {
            Ok((_, payload)) => Ok(payload.first().copied()),
            refused => Err(reason(refused)),
        });
    }
    found
}

#[tokio::test]
async fn a_joining_column_answers_for_what_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = caught_up_with_one(dir.path(), &manager).await;
    let not_yet = Err(Reason::NotCaughtUp);
    // The column serves neither the data that it has, which nobody has declared complete, nor zeros for the
    // data that it lacks.
    assert_eq!(first_bytes(&drive, G, &[0, 1, 2]).await, [not_yet, not_yet, not_yet]);
    let mut session = drive.session().await;
    let reader = drive.grant(Capability { rights: Rights::READ, ..joining(G) });
    assert_eq!(reason(session.call(&reader, &ready(0, 2), &[]).await), Reason::Rights);
    let healer = drive.grant(joining(G));
    for (unit, units) in [(0, 0), (u64::MAX, 2)] {
        assert_eq!(reason(session.call(&healer, &ready(unit, units), &[]).await), Reason::Malformed);
    }
    assert_eq!(session.call(&healer, &ready(0, 2), &[]).await.unwrap().0, DriveReply::Done(Done {}));
    let noted = [Ok(Some(bytes(4, 1)[0])), Ok(None), not_yet];
    assert_eq!(first_bytes(&drive, G, &[0, 1, 2]).await, noted);
    drive.stop().await;
    let drive = Drive::start(dir.path(), &manager).await;
    assert_eq!(first_bytes(&drive, G, &[0, 1, 2]).await, noted, "after a restart");
    drive.stop().await;
}

#[tokio::test]
async fn a_fence_makes_it_begin_anew_and_a_ready_column_answers_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = caught_up_with_one(dir.path(), &manager).await;
    let mut session = drive.session().await;
    let healer = drive.grant(joining(G));
    session.call(&healer, &ready(0, 2), &[]).await.unwrap();
    let fence: DriveRequest =
        Fence { at: AT, term: 1, units_from: 0, drives: vec![], reserve_bytes: 0 }.into();
    let next = Generation(G.0 + 1);
    session.call(&drive.grant(joining(next)), &fence, &[]).await.unwrap();
    let not_yet = Err(Reason::NotCaughtUp);
    assert_eq!(first_bytes(&drive, next, &[0, 1]).await, [not_yet, not_yet]);
    assert_eq!(first_bytes(&drive, G, &[0]).await, [Err(Reason::StaleGeneration)]);
    assert_eq!(reason(session.call(&healer, &ready(0, 1), &[]).await), Reason::StaleGeneration);
    session.call(&drive.grant(joining(next)), &ready(0, 1), &[]).await.unwrap();
    let first = Ok(Some(bytes(4, 1)[0]));
    assert_eq!(first_bytes(&drive, next, &[0, 1]).await, [first, not_yet]);
    let last = Generation(G.0 + 2);
    let all_ready = drive.grant(Capability { joining: ColumnMask::EMPTY, ..joining(last) });
    session.call(&all_ready, &fence, &[]).await.unwrap();
    assert_eq!(first_bytes(&drive, last, &[0, 1]).await, [first, Ok(None)]);
    drive.stop().await;
}
