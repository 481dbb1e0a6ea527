//! Snapshots of an object over the wire: taken, read, listed, dropped, and refused.

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, reason};
use braid_layout::{ClientId, Generation, OperationNumber, Version};
use braid_transport::DriveSession;
use braid_wire::control::Grant;
use braid_wire::data::{
    Done, DriveReply, DriveRequest, Extent, GetAttributes, Read, ReadReply, Remove, Retire, SNAPSHOTS_MAX,
    Snapshot, SnapshotAct, Want,
};
use braid_wire::{Capability, Reason, Rights};

/// A session with all rights on the object.
struct Keeper {
    session: DriveSession,
    grant: Grant,
}

impl Keeper {
    async fn of(drive: &Drive) -> Keeper {
        Keeper { session: drive.session().await, grant: drive.grant(object_level()) }
    }

    async fn done(&mut self, request: DriveRequest) {
        let reply = self.session.call(&self.grant, &request, &[]).await.unwrap().0;
        assert_eq!(reply, DriveReply::Done(Done {}), "{request:?}");
    }

    async fn refused(&mut self, request: DriveRequest) -> Reason {
        reason(self.session.call(&self.grant, &request, &[]).await)
    }

    async fn write(&mut self, unit: u64, payload: &[u8], n: u64) {
        self.session.call(&self.grant, &write(unit, 0, payload, n), &[payload]).await.unwrap();
    }

    async fn read(&mut self, unit: u64, snapshot: u32) -> (ReadReply, Vec<u8>) {
        let (reply, payload) = self.session.call(&self.grant, &read_of(unit, snapshot), &[]).await.unwrap();
        let DriveReply::Read(reply) = reply else { panic!("{reply:?}") };
        (reply, payload)
    }

    /// The live snapshots, as the object's attributes say.
    async fn listed(&mut self) -> Vec<u32> {
        let ask = GetAttributes { at: AT }.into();
        attributes(self.session.call(&self.grant, &ask, &[]).await).snapshots
    }
}

fn read_of(unit: u64, snapshot: u32) -> DriveRequest {
    Read { at: AT, unit, from: 0, to: UNIT, want: Want::Newest, exactly: vec![], snapshot }.into()
}

fn take(number: u32) -> DriveRequest {
    Snapshot { at: AT, number, act: SnapshotAct::Take, term: 1 }.into()
}

fn release(number: u32) -> DriveRequest {
    Snapshot { at: AT, number, act: SnapshotAct::Drop, term: 1 }.into()
}

fn retire(n: u64) -> DriveRequest {
    Retire {
        at: AT,
        settled_to: stamp(n),
        durable: true,
        client: ClientId::NONE,
        watermark: OperationNumber::NONE,
        ends_lease: false,
    }
    .into()
}

#[tokio::test]
async fn what_a_snapshot_saw_is_read_until_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let mut keeper = Keeper::of(&drive).await;
    let one = bytes(1, UNIT);
    let two = bytes(2, UNIT);
    let three = bytes(3, 100);
    keeper.write(0, &one, 1).await;
    keeper.done(retire(1)).await;
    keeper.done(take(1)).await;
    keeper.write(0, &two, 2).await;
    keeper.write(1, &three, 3).await;
    let (reply, payload) = keeper.read(0, 1).await;
    assert_eq!((reply.version, reply.pending), (stamp(1), false));
    assert!(payload == one, "the old bytes");
    let (reply, payload) = keeper.read(0, 0).await;
    assert_eq!((reply.version, reply.pending), (stamp(2), true));
    assert!(payload == two, "the new bytes");
    // A unit that did not exist at the snapshot is a hole.
    let (reply, payload) = keeper.read(1, 1).await;
    assert_eq!((reply.version, payload.len()), (Version::ZERO, 0));
    assert_eq!(reply.extents, [Extent { from: 0, to: UNIT, hole: true }]);
    assert_eq!(keeper.refused(read_of(0, 2)).await, Reason::NoSnapshot);
    // Taking it again returns the existing one, whatever is pending now.
    keeper.done(take(1)).await;
    keeper.done(retire(3)).await;
    keeper.done(take(7)).await;
    assert_eq!(keeper.listed().await, [1, 7]);
    drop(keeper);
    drive.stop().await;
    // All of it survives a restart.
    let drive = Drive::start(dir.path(), &manager).await;
    let mut keeper = Keeper::of(&drive).await;
    keeper.write(0, &three, 4).await;
    assert!(keeper.read(0, 1).await.1 == one, "the old bytes");
    assert!(keeper.read(0, 7).await.1 == two, "the newer bytes");
    for _ in 0..2 {
        keeper.done(release(1)).await;
        assert_eq!(keeper.listed().await, [7]);
        assert_eq!(keeper.refused(read_of(0, 1)).await, Reason::NoSnapshot);
    }
    assert!(keeper.read(0, 7).await.1 == two, "the newer bytes");
    keeper.done(retire(4)).await;
    for used in [1, 5] {
        assert_eq!(keeper.refused(take(used)).await, Reason::SnapshotUsed);
    }
    keeper.done(Remove { at: AT, term: 1 }.into()).await;
    for request in [take(8), release(7), read_of(0, 7)] {
        assert_eq!(keeper.refused(request).await, Reason::NoObject);
    }
    drive.stop().await;
}

#[tokio::test]
async fn nothing_is_taken_while_something_is_pending() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let mut keeper = Keeper::of(&drive).await;
    keeper.write(0, &bytes(1, 100), 1).await;
    keeper.write(5, &bytes(2, 100), 2).await;
    assert_eq!(keeper.refused(take(1)).await, Reason::Unsettled);
    keeper.done(retire(1)).await;
    assert_eq!(keeper.refused(take(1)).await, Reason::Unsettled);
    assert_eq!(keeper.listed().await, []);
    keeper.done(retire(2)).await;
    keeper.done(take(1)).await;
    assert_eq!(keeper.listed().await, [1]);
    drive.stop().await;
}

#[tokio::test]
async fn an_object_has_so_many_snapshots_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let mut keeper = Keeper::of(&drive).await;
    let most = u32::try_from(SNAPSHOTS_MAX).unwrap();
    for number in 1..=most {
        keeper.done(take(number)).await;
    }
    assert_eq!(keeper.refused(take(most + 1)).await, Reason::TooManySnapshots);
    assert_eq!(keeper.listed().await, (1..=most).collect::<Vec<_>>());
    keeper.done(release(3)).await;
    keeper.done(take(most + 1)).await;
    assert_eq!(keeper.listed().await.len(), SNAPSHOTS_MAX);
    drive.stop().await;
}

#[tokio::test]
async fn without_the_right_there_is_no_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let mut keeper = Keeper::of(&drive).await;
    keeper.done(take(1)).await;
    let all_but = |right: Rights| Rights(Rights::ALL.0 & !right.0);
    keeper.grant = drive.grant(Capability { rights: all_but(Rights::SET_ATTRIBUTES), ..object_level() });
    for request in [take(2), release(1)] {
        assert_eq!(keeper.refused(request).await, Reason::Rights);
    }
    assert!(keeper.read(0, 1).await.0.version.is_zero(), "to read one, the right to read is enough");
    keeper.grant = drive.grant(Capability { rights: all_but(Rights::READ), ..object_level() });
    assert_eq!(keeper.refused(read_of(0, 1)).await, Reason::Rights);
    keeper.grant = drive.grant(Capability { g: Generation(3), ..object_level() });
    for request in [take(2), release(1), read_of(0, 1)] {
        assert_eq!(keeper.refused(request).await, Reason::StaleGeneration);
    }
    keeper.grant = drive.grant(Capability { object_version: 2, ..object_level() });
    for request in [take(2), release(1)] {
        assert_eq!(keeper.refused(request).await, Reason::Scope);
    }
    keeper.grant = drive.grant(Capability { to: u64::from(UNIT), ..object_level() });
    assert_eq!(keeper.refused(read_of(1, 1)).await, Reason::Range);
    // Requests that contradict themselves.
    keeper.grant = drive.grant(object_level());
    for request in [take(0), release(0)] {
        assert_eq!(keeper.refused(request).await, Reason::Malformed);
    }
    for (want, exactly) in [(Want::Settled, vec![]), (Want::Exactly, vec![stamp(1)])] {
        let odd = Read { at: AT, unit: 0, from: 0, to: UNIT, want, exactly, snapshot: 1 };
        assert_eq!(keeper.refused(odd.into()).await, Reason::Malformed);
    }
    let old = |act| Snapshot { at: AT, number: 2, act, term: 0 };
    for act in [SnapshotAct::Take, SnapshotAct::Drop] {
        assert_eq!(keeper.refused(old(act).into()).await, Reason::NotLeading);
    }
    assert_eq!(keeper.listed().await, [1]);
    drive.stop().await;
}
