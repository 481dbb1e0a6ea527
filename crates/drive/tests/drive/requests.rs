//! Every kind of request, on a real drive.

use crate::support::manager::Manager;
use crate::support::requests::*;
use crate::support::{Drive, bare, reason};
use braid_layout::{
    ClientId, Column, ColumnMask, EndBound, Generation, ObjectId, OperationNumber, PartitionId, Version,
    version::Lease,
};
use braid_store::disk::is_residency_told;
use braid_wire::Capability;
use braid_wire::Reason;
use braid_wire::data::{
    Address, Create, Done, DriveReply, DriveRequest, Expect, Extent, Fence, FenceReply, GetAttributes, List,
    ListReply, ListedObject, PartitionSet, Read, Remove, Retire, SetAttributes, StripeWrite, UnitVerdict,
    Verdict, Want, Written,
};

fn done() -> DriveReply {
    DriveReply::Done(Done {})
}

#[tokio::test]
async fn partitions_and_objects_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    let mut session = drive.session().await;
    let all = drive.grant(drive_level());
    let partition = drive.grant(partition_level());
    let object = drive.grant(object_level());
    for _ in 0..2 {
        assert_eq!(session.call(&all, &partition_create(), &[]).await.unwrap().0, done());
        assert_eq!(session.call(&object, &create(), &[]).await.unwrap().0, done());
    }
    let rows = List { partition: PartitionId(0), after: 0, limit: 10 }.into();
    match session.call(&all, &rows, &[]).await.unwrap().0 {
        DriveReply::PartitionList(reply) => {
            assert_eq!(reply.partitions.len(), 1);
            assert_eq!((reply.partitions[0].partition, reply.partitions[0].objects), (PARTITION, 1));
        }
        other => panic!("{other:?}"),
    }
    let list = List { partition: PARTITION, after: 0, limit: 10 }.into();
    let listed = DriveReply::List(ListReply {
        objects: vec![ListedObject {
            object: OBJECT,
            file: map().file,
            segment: map().segment,
            column: map().column,
            g: object_level().g,
            set: object_level().set,
            joining: object_level().joining,
        }],
    });
    assert_eq!(session.call(&partition, &list, &[]).await.unwrap().0, listed);
    let past = List { partition: PARTITION, after: OBJECT.0, limit: 10 }.into();
    let none = DriveReply::List(ListReply { objects: vec![] });
    assert_eq!(session.call(&partition, &past, &[]).await.unwrap().0, none);
    let look = GetAttributes { at: Address::of_partition(PARTITION) }.into();
    match session.call(&partition, &look, &[]).await.unwrap().0 {
        DriveReply::PartitionAttributes(said) => {
            assert_eq!((said.partition, said.objects, said.key_epoch), (PARTITION, 1, 1));
        }
        other => panic!("{other:?}"),
    }
    let other = PartitionSet { quota_bytes: 1 << 30, ..partition_set(Expect::Absent, 1) }.into();
    assert_eq!(reason(session.call(&all, &other, &[]).await), Reason::Exists);
    let absent = PartitionSet { partition: PartitionId(99), ..partition_set(Expect::Present, 1) }.into();
    assert_eq!(reason(session.call(&all, &absent, &[]).await), Reason::NoPartition);
    let remove_partition = Remove { at: Address::of_partition(PARTITION), term: 1 }.into();
    assert_eq!(reason(session.call(&all, &remove_partition, &[]).await), Reason::PartitionNotEmpty);
    let remove = Remove { at: AT, term: 1 }.into();
    for _ in 0..2 {
        assert_eq!(session.call(&object, &remove, &[]).await.unwrap().0, done());
    }
    assert_eq!(reason(session.call(&object, &read(0, 0, 10), &[]).await), Reason::NoObject);
    for _ in 0..2 {
        assert_eq!(session.call(&all, &remove_partition, &[]).await.unwrap().0, done());
    }
    assert_eq!(reason(session.call(&partition, &list, &[]).await), Reason::NoPartition);
    drive.stop().await;
}

#[tokio::test]
async fn what_was_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let payload = bytes(1, 10_000);
    drive.write(2, &payload, 1).await;
    let (reply, read) = drive.read(2, 0, 10_000).await;
    assert_eq!((reply.version, reply.pending, read), (stamp(1), true, payload.clone()));
    assert_eq!(reply.columns, ColumnMask::all(3));
    // An unaligned part, and the hole after it.
    let (reply, read) = drive.read(2, 5001, 20_000).await;
    assert_eq!(read, payload[5001..]);
    let extents =
        vec![Extent { from: 5001, to: 10_000, hole: false }, Extent { from: 10_000, to: 20_000, hole: true }];
    assert_eq!(reply.extents, extents);
    // A unit that was never written.
    let (reply, read) = drive.read(9, 0, UNIT).await;
    assert!(reply.version.is_zero() && read.is_empty());
    assert_eq!(reply.extents, [Extent { from: 0, to: UNIT, hole: true }]);
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    let stat = DriveRequest::from(GetAttributes { at: Address::DRIVE });
    match session.call(&drive.grant(drive_level()), &stat, &[]).await.unwrap().0 {
        DriveReply::DriveAttributes(stat) => {
            assert_eq!((stat.drive, stat.objects, stat.partitions), (drive.id, 1, 1));
            assert_eq!((stat.written_bytes, stat.read_bytes), (10_000, 14_999));
        }
        other => panic!("{other:?}"),
    }
    // Again, now that its place is known. The next heartbeat says how all reads were sent.
    assert_eq!(drive.read(2, 0, 10_000).await.1, payload);
    let is_sent = is_residency_told();
    let said = || {
        let io = manager.state().last.as_ref().map(|beat| beat.io.clone()).unwrap_or_default();
        io.starts_with("reads ") && io.starts_with("reads 0 % sendfile,") != is_sent
    };
    braid_testing::wait_for(|| async { said() }).await;
    // The same stamp again writes nothing, and neither does an older one.
    let again = session.call(&grant, &write(2, 0, &payload, 1), &[&payload]).await.unwrap().0;
    assert_eq!(bare(again), DriveReply::Written(Written::new(stamp(1), true)));
    // A hole over part of it.
    let hole = StripeWrite { hole: true, crcs: vec![], ..write_of(2, 4096, &[0; 4096], 2) };
    let punched = session.call(&grant, &hole.into(), &[]).await.unwrap().0;
    assert_eq!(bare(punched), DriveReply::Written(Written::new(stamp(2), false)));
    let (reply, read) = drive.read(2, 0, 10_000).await;
    assert_eq!(reply.extents[1], Extent { from: 4096, to: 8192, hole: true });
    assert_eq!(read, [&payload[..4096], &payload[8192..]].concat());
    drive.stop().await;
}

#[tokio::test]
async fn versions_retire_fence_and_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let one = bytes(1, UNIT);
    let two = bytes(2, UNIT);
    drive.write(0, &one, 1).await;
    drive.write(0, &two, 2).await;
    drive.write(5, &one, 3).await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    let DriveReply::Versions(reply) = session.call(&grant, &versions(&[0, 1, 5]), &[]).await.unwrap().0
    else {
        panic!()
    };
    let units: Vec<_> =
        reply.units.iter().map(|u| (u.unit, u.settled, u.pending.as_ref().map(|p| p.stamp))).collect();
    assert_eq!(
        units,
        [(0, stamp(1), Some(stamp(2))), (1, Version::ZERO, None), (5, Version::ZERO, Some(stamp(3)))]
    );
    // The settled version below the pending one, by kind and by stamp.
    let settled = session.call(&grant, &read_want(0, 0, UNIT, Want::Settled), &[]).await.unwrap();
    assert_eq!(settled.1, one);
    let exactly = |n| {
        let from = 0;
        let to = UNIT;
        let exactly = vec![stamp(n)];
        Read { at: AT, unit: 0, from, to, want: Want::Exactly, exactly, timed: false }
    };
    assert_eq!(session.call(&grant, &exactly(1).into(), &[]).await.unwrap().1, one);
    assert_eq!(reason(session.call(&grant, &exactly(9).into(), &[]).await), Reason::Gone);
    // A new generation: the old capability is stale; the pending stamps are listed and judged.
    let next = Capability { g: Generation(3), ..object_level() };
    let old = grant;
    let new = drive.grant(next);
    let fence: DriveRequest =
        Fence { at: AT, term: 1, units_from: 0, drives: Vec::new(), reserve_bytes: 0 }.into();
    for _ in 0..2 {
        let listed = session.call(&new, &fence, &[]).await.unwrap().0;
        assert_eq!(
            listed,
            DriveReply::Fence(FenceReply { unsettled: vec![0, 5], more: false, owed_to: ColumnMask::EMPTY })
        );
    }
    let from: DriveRequest =
        Fence { at: AT, term: 1, units_from: 1, drives: Vec::new(), reserve_bytes: 0 }.into();
    let listed = session.call(&new, &from, &[]).await.unwrap().0;
    assert_eq!(
        listed,
        DriveReply::Fence(FenceReply { unsettled: vec![5], more: false, owed_to: ColumnMask::EMPTY })
    );
    assert_eq!(reason(session.call(&old, &fence, &[]).await), Reason::StaleGeneration);
    assert_eq!(reason(session.call(&old, &read(0, 0, 10), &[]).await), Reason::StaleGeneration);
    assert_eq!(reason(session.call(&old, &write(0, 0, &one, 4), &[&one]).await), Reason::StaleGeneration);
    let unit = |unit, forward, back| UnitVerdict { unit, forward, back, cutoff: vec![] };
    let units = vec![unit(0, vec![stamp(2)], vec![]), unit(5, vec![], vec![stamp(3)])];
    let verdict: DriveRequest = Verdict { at: AT, term: 1, units }.into();
    for _ in 0..2 {
        assert_eq!(session.call(&new, &verdict, &[]).await.unwrap().0, done());
    }
    assert_eq!(session.call(&new, &read_want(0, 0, UNIT, Want::Settled), &[]).await.unwrap().1, two);
    let DriveReply::Read(gone) = session.call(&new, &read(5, 0, UNIT), &[]).await.unwrap().0 else {
        panic!()
    };
    assert!(gone.version.is_zero());
    // The same stamps again under the new generation, as a writer resends them after a mark-out.
    assert!(session.call(&new, &write(5, 0, &one, 4), &[&one]).await.is_ok());
    let retire = |durable| Retire {
        at: AT,
        settled_to: stamp(4),
        durable,
        client: ClientId::NONE,
        watermark: OperationNumber::NONE,
        ends_lease: false,
    };
    assert_eq!(session.call(&new, &retire(false).into(), &[]).await.unwrap().0, done());
    assert_eq!(session.call(&new, &retire(true).into(), &[]).await.unwrap().0, done());
    let DriveReply::Read(kept) = session.call(&new, &read(5, 0, UNIT), &[]).await.unwrap().0 else {
        panic!()
    };
    assert_eq!((kept.version, kept.pending), (stamp(4), false));
    let other = Retire { settled_to: Version { lease: Lease(9), ..stamp(4) }, ..retire(true) };
    assert_eq!(reason(session.call(&new, &other.into(), &[]).await), Reason::Scope);
    drive.stop().await;
}

#[tokio::test]
async fn parity_is_read_by_its_cover() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    let payload = bytes(3, UNIT);
    for n in 1..=2 {
        let cover = vec![stamp(n), stamp(n)];
        let ends = vec![EndBound::at_least(100), EndBound::at_most(7)];
        let parity = StripeWrite { cover, ends, ..write_of(1, 0, &payload, n) };
        session.call(&grant, &parity.into(), &[&payload]).await.unwrap();
    }
    let exactly = |cover: Vec<Version>| {
        let from = 0;
        let to = 100;
        let want = Want::Exactly;
        let read = Read { at: AT, unit: 1, from, to, want, exactly: cover, timed: false };
        DriveRequest::from(read)
    };
    let (reply, _) = session.call(&grant, &exactly(vec![stamp(1), stamp(1)]), &[]).await.unwrap();
    let DriveReply::Read(reply) = reply else { panic!() };
    assert_eq!((reply.version, reply.cover), (stamp(1), vec![stamp(1), stamp(1)]));
    assert_eq!(reply.ends, [100, 0]);
    let mixed = exactly(vec![stamp(1), stamp(2)]);
    assert_eq!(reason(session.call(&grant, &mixed, &[]).await), Reason::Gone);
    let unsaid = StripeWrite { cover: vec![stamp(3), stamp(3)], ..write_of(1, 0, &payload, 3) };
    assert_eq!(reason(session.call(&grant, &unsaid.into(), &[&payload]).await), Reason::Malformed);
    let odd = StripeWrite { cover: vec![stamp(3)], ..write_of(1, 0, &payload, 3) };
    assert_eq!(reason(session.call(&grant, &odd.into(), &[&payload]).await), Reason::Malformed);
    drive.stop().await;
}

#[tokio::test]
async fn a_joining_column_takes_what_others_hold() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let mut session = drive.session().await;
    let rebuilder = Capability { lease: Lease(8), ..object_level() };
    let joining = Capability { joining: ColumnMask::EMPTY.with(Column(1)), ..rebuilder.clone() };
    let payload = bytes(4, UNIT);
    let install: DriveRequest = StripeWrite { install: true, ..write_of(0, 0, &payload, 7) }.into();
    // Not to a column that is not joining; not a foreign stamp without `install`.
    assert_eq!(reason(session.call(&drive.grant(rebuilder), &install, &[&payload]).await), Reason::Scope);
    let grant = drive.grant(joining);
    let foreign = write(0, 0, &payload, 7);
    assert_eq!(reason(session.call(&grant, &foreign, &[&payload]).await), Reason::Scope);
    assert!(session.call(&grant, &install, &[&payload]).await.is_ok());
    let (reply, read) = drive.read(0, 0, UNIT).await;
    assert_eq!((reply.version, reply.pending, read), (stamp(7), false, payload));
    drive.stop().await;
}

#[tokio::test]
async fn attributes_are_kept_and_a_bump_revokes() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    drive.write(1, &bytes(1, 100), 1).await;
    let mut session = drive.session().await;
    let grant = drive.grant(object_level());
    let ask: DriveRequest = GetAttributes { at: AT }.into();
    let DriveReply::Attributes(attributes) = session.call(&grant, &ask, &[]).await.unwrap().0 else {
        panic!()
    };
    assert_eq!((attributes.g, attributes.set), (G, ColumnMask::all(3)));
    assert_eq!((attributes.map, attributes.opaque.as_slice()), (map(), &b"opaque"[..]));
    assert_eq!((attributes.size, attributes.created_ms), (u64::from(UNIT) + 100, 11));
    let opaque = b"new".to_vec();
    let set = SetAttributes { at: AT, reserve_bytes: None, cluster: Some(5), opaque, term: 1 };
    assert_eq!(session.call(&grant, &set.into(), &[]).await.unwrap().0, done());
    let DriveReply::Attributes(attributes) = session.call(&grant, &ask, &[]).await.unwrap().0 else {
        panic!()
    };
    assert_eq!((attributes.cluster, attributes.opaque.as_slice()), (5, &b"new"[..]));
    drive.stop().await;
}

#[tokio::test]
async fn what_is_reserved_nobody_else_can_take() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    let mut session = drive.session().await;
    let (grant, all) = (drive.grant(object_level()), drive.grant(drive_level()));
    let unit_bytes = u64::from(UNIT);
    let quota = PartitionSet { quota_bytes: 4 * unit_bytes, ..partition_set(Expect::Absent, 1) };
    assert_eq!(session.call(&all, &quota.into(), &[]).await.unwrap().0, done());
    let DriveRequest::Create(first) = create() else { panic!() };
    let make = |units| {
        let mut create = first.clone();
        (create.attributes.reserve_bytes, create.attributes.cluster) = (units * unit_bytes, 9);
        DriveRequest::from(create)
    };
    assert_eq!(reason(session.call(&grant, &make(5), &[]).await), Reason::Quota);
    assert_eq!(session.call(&grant, &make(3), &[]).await.unwrap().0, done());
    // Another object may use the space that is left, and no more.
    let at = Address { object: ObjectId(78), ..AT };
    let other = drive.grant(Capability { object: at.object, ..object_level() });
    let beside = Create { at, ..first.clone() };
    assert_eq!(session.call(&other, &beside.into(), &[]).await.unwrap().0, done());
    let payload = bytes(1, UNIT);
    let beside = |unit| DriveRequest::from(StripeWrite { at, ..write_of(unit, 0, &payload, unit + 1) });
    assert!(session.call(&other, &beside(0), &[&payload]).await.is_ok());
    assert_eq!(reason(session.call(&other, &beside(1), &[&payload]).await), Reason::Quota);
    let set = |reserve_bytes, cluster| {
        let opaque = b"new".to_vec();
        SetAttributes { at: AT, reserve_bytes, cluster, opaque, term: 1 }.into()
    };
    let more = set(Some(4 * unit_bytes), None);
    assert_eq!(reason(session.call(&grant, &more, &[]).await), Reason::Quota);
    let no_disk_has_it = set(Some((1 << 48) + 1), None);
    assert_eq!(reason(session.call(&grant, &no_disk_has_it, &[]).await), Reason::Malformed);
    let ask: DriveRequest = GetAttributes { at: AT }.into();
    let found = attributes(session.call(&grant, &ask, &[]).await);
    assert_eq!((found.reserve_bytes, found.cluster, found.opaque), (3 * unit_bytes, 9, b"opaque".to_vec()));
    // Attributes that a change does not name keep their values, and all of them survive a restart.
    assert_eq!(session.call(&grant, &set(None, Some(5)), &[]).await.unwrap().0, done());
    drop(session);
    drive.stop().await;
    let drive = Drive::start(dir.path(), &manager).await;
    let mut session = drive.session().await;
    let found = attributes(session.call(&grant, &ask, &[]).await);
    assert_eq!((found.reserve_bytes, found.cluster, found.opaque), (3 * unit_bytes, 5, b"new".to_vec()));
    assert_eq!(reason(session.call(&other, &beside(1), &[&payload]).await), Reason::Quota);
    for unit in 0..3 {
        let reserved = session.call(&grant, &write(unit, 0, &payload, unit + 1), &[&payload]).await;
        assert!(reserved.is_ok(), "unit {unit}: {reserved:?}");
    }
    assert_eq!(
        reason(session.call(&grant, &write(3, 0, &payload, 4), &[&payload]).await),
        Reason::Quota,
        "it holds what it had reserved"
    );
    drive.stop().await;
}

#[tokio::test]
async fn keys_rotate_one_epoch_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let mut session = drive.session().await;
    let all = drive.grant(drive_level());
    let of_epoch = |key_epoch| drive.grant(Capability { key_epoch, ..object_level() });
    assert_eq!(reason(session.call(&of_epoch(2), &read(0, 0, 10), &[]).await), Reason::StaleKey);
    for key_epoch in [2, 3] {
        let set = partition_set(Expect::Present, key_epoch);
        assert_eq!(session.call(&all, &set.into(), &[]).await.unwrap().0, done());
        for epoch in [key_epoch, key_epoch - 1] {
            assert!(session.call(&of_epoch(epoch), &read(0, 0, 10), &[]).await.is_ok());
        }
    }
    assert_eq!(reason(session.call(&of_epoch(1), &read(0, 0, 10), &[]).await), Reason::StaleKey);
    let back = partition_set(Expect::Present, 2);
    assert_eq!(reason(session.call(&all, &back.into(), &[]).await), Reason::StaleKey);
    drive.stop().await;
}

#[tokio::test]
async fn a_creation_and_what_follows_it_are_pipelined() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    let mut session = drive.session().await;
    session.call(&drive.grant(drive_level()), &partition_create(), &[]).await.unwrap();
    let grant = drive.grant(object_level());
    let payload = bytes(1, UNIT);
    let (asker, answers) = session.halves();
    let asking = async {
        asker.ask(0, &grant, &create(), &[]).await.unwrap();
        for unit in 0..40 {
            asker.ask(unit, &grant, &write(unit, 0, &payload, unit + 1), &[&payload]).await.unwrap();
        }
    };
    let answering = async {
        for _ in 0..41 {
            let answer = answers.next().await.unwrap();
            assert!(!matches!(answer.reply, DriveReply::Refused(_)), "{:?}", answer.reply);
        }
    };
    tokio::join!(asking, answering);
    for unit in 0..40 {
        assert_eq!(drive.read(unit, 0, UNIT).await.1, payload);
    }
    drive.stop().await;
}

#[tokio::test]
async fn a_creation_finds_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start().await;
    let drive = Drive::start(dir.path(), &manager).await;
    drive.prepare().await;
    let mut session = drive.session().await;
    let DriveRequest::Create(first) = create() else { panic!() };
    let with_map = |change: &dyn Fn(&mut braid_wire::data::ColumnMap)| {
        let mut create = first.clone();
        change(&mut create.attributes.map);
        create
    };
    let other = with_map(&|map| map.column = Column(2));
    let grant = drive.grant(object_level());
    assert_eq!(reason(session.call(&grant, &other.into(), &[]).await), Reason::Exists);
    // A different creation time, from another session, does not make it another object.
    let mut later = first.clone();
    later.attributes.created_ms = 99;
    assert_eq!(session.call(&grant, &later.into(), &[]).await.unwrap().0, done());
    // A column of the file has moved, and the manager vouches for the new map.
    let moved = with_map(&|map| map.drives[0] = braid_layout::DriveId(44));
    let vouched = Capability { map: moved.attributes.map.digest(), ..object_level() };
    assert_eq!(session.call(&drive.grant(vouched), &moved.clone().into(), &[]).await.unwrap().0, done());
    let DriveReply::Attributes(now) =
        session.call(&grant, &GetAttributes { at: AT }.into(), &[]).await.unwrap().0
    else {
        panic!()
    };
    assert_eq!(now.map, moved.attributes.map);
    // A client's creation does not raise the generation; the manager's does.
    let rights = braid_wire::Rights::CREATE;
    let client = Capability { g: Generation(3), rights, ..object_level() };
    let creation: DriveRequest = moved.into();
    assert_eq!(reason(session.call(&drive.grant(client), &creation, &[]).await), Reason::StaleGeneration);
    let manager_s = drive.grant(Capability { g: Generation(3), ..object_level() });
    assert_eq!(session.call(&manager_s, &creation, &[]).await.unwrap().0, done());
    assert!(session.call(&manager_s, &read(0, 0, 10), &[]).await.is_ok());
    assert_eq!(reason(session.call(&grant, &read(0, 0, 10), &[]).await), Reason::StaleGeneration);
    drive.stop().await;
}
