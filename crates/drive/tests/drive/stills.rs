//! Stills over the wire: taken, read at all paths, kept while their base is written and removed, made anew,
//! removed, and refused.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, reason};
use braid_layout::{ClientId, ColumnMask, Generation, ObjectId, OperationNumber, PartitionId, Version};
use braid_testing::answer;
use braid_transport::DriveSession;
use braid_wire::control::Grant;
use braid_wire::data::{
    Address, DriveReply, DriveRequest, Extent, Fence, GetAttributes, List, Read, ReadReply, Remove, Retire,
    Snapshot, StripeWrite, Versions, Want,
};
use braid_wire::{Capability, Reason, Rights};

const STILL: ObjectId = ObjectId(78);

/// A session with all rights on an object.
struct Keeper {
    session: DriveSession,
    grant: Grant,
    at: Address,
}

impl Keeper {
    async fn of(drive: &Drive, object: ObjectId) -> Keeper {
        let grant = drive.grant(Capability { object, ..object_level() });
        Keeper { session: drive.session().await, grant, at: Address { partition: PARTITION, object } }
    }

    async fn ask(&mut self, request: impl Into<DriveRequest>) -> DriveReply {
        let request = request.into();
        let reply = self.session.call(&self.grant, &request, &[]).await;
        reply.unwrap_or_else(|error| panic!("{error}: {request:?}")).0
    }

    async fn refused(&mut self, request: impl Into<DriveRequest>) -> Reason {
        reason(self.session.call(&self.grant, &request.into(), &[]).await)
    }

    async fn write(&mut self, unit: u64, payload: &[u8], n: u64) {
        let write = StripeWrite { at: self.at, ..write_of(unit, 0, payload, n) };
        self.session.call(&self.grant, &write.into(), &[payload]).await.unwrap();
    }

    fn read_of(&self, unit: u64, to: u32) -> DriveRequest {
        Read { at: self.at, unit, from: 0, to, want: Want::Newest, exactly: vec![], timed: false }.into()
    }

    async fn read(&mut self, unit: u64, to: u32) -> (ReadReply, Vec<u8>) {
        let request = self.read_of(unit, to);
        let (reply, payload) = self.session.call(&self.grant, &request, &[]).await.unwrap();
        let DriveReply::Read(reply) = reply else { panic!("{reply:?}") };
        (reply, payload)
    }

    /// Checks that a unit shows these bytes in this version: read at once, and from a thread.
    async fn shows(&mut self, unit: u64, bytes: &[u8], n: u64) {
        for to in [100, UNIT] {
            let (reply, payload) = self.read(unit, to).await;
            assert_eq!((reply.version, reply.pending), (stamp(n), false));
            assert!(payload == bytes[..usize::try_from(to).unwrap()], "unit {unit} of {}", self.at.object);
        }
    }

    async fn retire(&mut self, n: u64) {
        let client = ClientId::NONE;
        let watermark = OperationNumber::NONE;
        let at = self.at;
        self.ask(Retire { at, settled_to: stamp(n), durable: true, client, watermark, ends_lease: false })
            .await;
    }
}

/// Bytes that the partition's objects hold.
async fn used(drive: &Drive) -> u64 {
    let mut session = drive.session().await;
    let asked = GetAttributes { at: Address::of_partition(PARTITION) }.into();
    match session.call(&drive.grant(partition_level()), &asked, &[]).await.unwrap().0 {
        DriveReply::PartitionAttributes(found) => found.used_bytes,
        other => panic!("{other:?}"),
    }
}

async fn listed(drive: &Drive) -> Vec<ObjectId> {
    let mut session = drive.session().await;
    let asked = List { partition: PARTITION, after: 0, limit: 10 }.into();
    match session.call(&drive.grant(partition_level()), &asked, &[]).await.unwrap().0 {
        DriveReply::List(found) => found.objects.iter().map(|object| object.object).collect(),
        other => panic!("{other:?}"),
    }
}

/// Changes one byte of the stored bytes that were made from this seed.
fn damage(dir: &Path, seed: u8) {
    let wanted = bytes(seed, 300);
    for entry in fs::read_dir(dir.join("store/log")).unwrap().map(|entry| entry.unwrap().path()) {
        let content = fs::read(&entry).unwrap();
        if let Some(at) = content.windows(wanted.len()).position(|window| window == wanted) {
            let file = fs::File::options().write(true).open(&entry).unwrap();
            return file.write_all_at(&[!wanted[0]], u64::try_from(at).unwrap()).unwrap();
        }
    }
    panic!("the bytes are nowhere");
}

/// The way of a still, with the drive started anew between the steps.
#[tokio::test]
async fn a_still_shows_what_was_there_until_it_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let one = bytes(1, UNIT);
    let two = bytes(2, UNIT);
    let three = bytes(3, UNIT);
    let mut base = Keeper::of(&drive, OBJECT).await;
    base.write(0, &one, 1).await;
    base.write(1, &two, 2).await;
    base.retire(3).await;
    base.ask(take_of(STILL)).await;
    let before = used(&drive).await;
    drop(base);
    drive.stop().await;

    let drive = Drive::start(dir.path(), &manager).await;
    let mut base = Keeper::of(&drive, OBJECT).await;
    base.ask(take_of(STILL)).await;
    base.write(0, &three, 4).await;
    base.write(5, &three, 5).await;
    base.retire(6).await;
    base.shows(0, &three, 4).await;
    let mut still = Keeper::of(&drive, STILL).await;
    still.shows(0, &one, 1).await;
    still.shows(1, &two, 2).await;
    let (reply, payload) = still.read(5, UNIT).await;
    assert_eq!((reply.version, payload.len()), (Version::ZERO, 0));
    assert_eq!(reply.extents, [Extent { from: 0, to: UNIT, hole: true }]);
    assert_eq!(used(&drive).await, before + 2 * u64::from(UNIT));
    drop((base, still));
    drive.stop().await;

    let drive = Drive::start(dir.path(), &manager).await;
    let mut base = Keeper::of(&drive, OBJECT).await;
    base.ask(Remove { at: AT, term: 1 }).await;
    let read = base.read_of(0, UNIT);
    assert_eq!(base.refused(read).await, Reason::NoObject);
    assert_eq!(base.refused(create()).await, Reason::Exists, "a husk is there");
    assert_eq!(base.refused(take_of(ObjectId(79))).await, Reason::NoObject);
    assert_eq!(listed(&drive).await, [STILL]);
    drop(base);
    drive.stop().await;

    damage(dir.path(), 1);
    let drive = Drive::start(dir.path(), &manager).await;
    let mut still = Keeper::of(&drive, STILL).await;
    still.shows(1, &two, 2).await;
    let attributes =
        attributes(still.session.call(&still.grant, &GetAttributes { at: still.at }.into(), &[]).await);
    assert_eq!((attributes.base, attributes.size), (OBJECT, 2 * u64::from(UNIT)));
    assert_eq!(attributes.stored_bytes, 2 * u64::from(UNIT), "its base is gone, so all of it is its own");
    // A reader finds the damage and says so; then the unit is made anew from the other columns.
    let doubted =
        |at| Versions { at, list: braid_wire::data::Listing::Doubted, units: vec![0], from: 0, limit: 0 };
    still.ask(doubted(still.at)).await;
    let at = still.at;
    let install = StripeWrite { at, install: true, ..write_of(0, 0, &one, 1) };
    let intact =
        StripeWrite { unit: 1, crcs: write_of(1, 0, &two, 2).crcs, stamp: stamp(2), ..install.clone() };
    assert_eq!(reason(still.session.call(&still.grant, &intact.into(), &[&two]).await), Reason::Scope);
    answer("the unit is found damaged, and made anew", async || {
        let mut keeper = Keeper::of(&drive, STILL).await;
        let reply = keeper.session.call(&keeper.grant, &install.clone().into(), &[&one]).await;
        reply.is_ok().then_some(())
    })
    .await;
    still.shows(0, &one, 1).await;
    drop(still);
    drive.stop().await;

    let drive = Drive::start(dir.path(), &manager).await;
    let mut still = Keeper::of(&drive, STILL).await;
    still.shows(0, &one, 1).await;
    still.shows(1, &two, 2).await;
    for _ in 0..2 {
        still.ask(Remove { at, term: 1 }).await;
    }
    assert_eq!((used(&drive).await, listed(&drive).await), (0, vec![]), "the husk went along");
    let mut base = Keeper::of(&drive, OBJECT).await;
    base.grant = drive.grant(Capability { g: Generation(3), ..object_level() });
    base.ask(create()).await;
    assert_eq!(listed(&drive).await, [OBJECT]);
    drive.stop().await;
}

#[tokio::test]
async fn a_still_has_a_generation_of_its_own_and_no_writers() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let one = bytes(1, UNIT);
    let mut base = Keeper::of(&drive, OBJECT).await;
    base.write(0, &one, 1).await;
    base.retire(2).await;
    let take = take_of(STILL);
    let attributes = braid_wire::data::Attributes { g: Generation(7), ..take.attributes.clone() };
    base.ask(Snapshot { attributes, ..take }).await;
    // What is fenced, and joins, is the one or the other.
    base.grant = drive.grant(Capability { g: Generation(3), joining: ColumnMask(2), ..object_level() });
    base.ask(Fence { at: AT, term: 1, units_from: 0, drives: vec![], reserve_bytes: 0 }).await;
    let read = base.read_of(0, UNIT);
    assert_eq!(base.refused(read).await, Reason::NotCaughtUp);
    assert_eq!(base.refused(take_of(ObjectId(79))).await, Reason::Unsettled, "a joining column");
    let mut still = Keeper::of(&drive, STILL).await;
    let read = still.read_of(0, UNIT);
    assert_eq!(still.refused(read).await, Reason::StaleGeneration);
    let of_still = |g, joining| Capability { object: STILL, g: Generation(g), joining, ..object_level() };
    still.grant = drive.grant(of_still(7, ColumnMask::EMPTY));
    still.shows(0, &one, 1).await;
    let at = still.at;
    let write = StripeWrite { at, ..write_of(0, 0, &one, 9) };
    assert_eq!(reason(still.session.call(&still.grant, &write.into(), &[&one]).await), Reason::Malformed);
    // It joins as any column does, and finds that it has everything.
    still.grant = drive.grant(of_still(8, ColumnMask(2)));
    still.ask(Fence { at, term: 1, units_from: 0, drives: vec![], reserve_bytes: 0 }).await;
    let read = still.read_of(0, UNIT);
    assert_eq!(still.refused(read).await, Reason::NotCaughtUp);
    let install = StripeWrite { at, install: true, ..write_of(0, 0, &one, 1) };
    still.session.call(&still.grant, &install.into(), &[&one]).await.unwrap();
    still.ask(braid_wire::data::Ready { at, unit: 0, units: 1 }).await;
    still.shows(0, &one, 1).await;
    assert_eq!(used(&drive).await, u64::from(UNIT), "nothing was stored twice");
    drive.stop().await;
}

#[tokio::test]
async fn what_is_pending_another_object_or_not_the_managers_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let mut base = Keeper::of(&drive, OBJECT).await;
    base.write(0, &bytes(1, 100), 1).await;
    assert_eq!(base.refused(take_of(STILL)).await, Reason::Unsettled);
    base.retire(2).await;
    base.ask(take_of(STILL)).await;
    base.write(0, &bytes(2, 100), 3).await;
    base.ask(take_of(STILL)).await;
    let other = Snapshot { attributes: attributes_of(map()), ..take_of(STILL) };
    assert_eq!(base.refused(other).await, Reason::Exists, "a still of another file");
    let all_but = |right: Rights| Rights(Rights::ALL.0 & !right.0);
    base.grant = drive.grant(Capability { rights: all_but(Rights::MANAGE), ..object_level() });
    assert_eq!(base.refused(take_of(ObjectId(79))).await, Reason::Rights);
    base.grant = drive.grant(Capability { g: Generation(3), ..object_level() });
    assert_eq!(base.refused(take_of(ObjectId(79))).await, Reason::StaleGeneration);
    base.grant = drive.grant(object_level());
    assert_eq!(base.refused(Snapshot { term: 0, ..take_of(ObjectId(79)) }).await, Reason::NotLeading);
    base.grant = drive.grant(Capability { object: STILL, ..object_level() });
    let of_still = Address { partition: PartitionId(3), object: STILL };
    assert_eq!(base.refused(Snapshot { at: of_still, ..take_of(ObjectId(79)) }).await, Reason::Malformed);
    assert_eq!(listed(&drive).await, [OBJECT, STILL]);
    drive.stop().await;
}
