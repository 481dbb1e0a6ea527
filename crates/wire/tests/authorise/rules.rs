//! Each kind of fault has its own refusal.

use braid_layout::{Column, ColumnMask, DriveId, Generation, ObjectId, PartitionId, Version, version::Lease};
use braid_wire::Reason;
use braid_wire::authorise::{ObjectFacts, Scene, authorise, authorise_in};
use braid_wire::capability::{Capability, LeaseKind, Protection, Rights};
use braid_wire::data::{
    Address, Attributes, Create, Delta, DriveRequest, Expect, Fence, GetAttributes, List, Listing,
    OPAQUE_BYTES_MAX, PartitionSet, Read, Ready, Remove, Retire, Scrub, ScrubAct, Snapshot, StripeWrite,
    UnitWrite, Versions, Want, WriteTurn,
};
use braid_wire::frame::PAYLOAD_BYTES_MAX;
use braid_wire::session::Session;

use crate::{
    AT, SISTER, UNIT, ask, attributes, capability, check, delta, delta_capability, map, read, refused,
    retire, scene, sealed, unit_write, write,
};

#[test]
fn a_good_capability_is_good() {
    check(capability(), read(), None);
    check(capability(), write(), None);
    check(Capability { key_epoch: 4, ..capability() }, read(), None);
    check(delta_capability(), delta(), None);
    let verified = ask(&scene(), capability(), read()).expect("good");
    assert_eq!((verified.request, verified.capability), (DriveRequest::Read(read()), capability()));
}

#[test]
fn each_way_to_be_wrong_has_its_refusal() {
    let with = |edit: fn(&mut Capability)| {
        let mut capability = capability();
        edit(&mut capability);
        capability
    };
    check(with(|c| c.drive = SISTER), read(), Some(Reason::Scope));
    check(with(|c| c.partition = PartitionId(8)), read(), Some(Reason::NoPartition));
    check(with(|c| c.key_epoch = 3), read(), Some(Reason::StaleKey));
    check(with(|c| c.key_epoch = 6), read(), Some(Reason::StaleKey));
    check(with(|c| c.key_epoch = u32::MAX), read(), Some(Reason::StaleKey));
    check(with(|c| c.expires_ms = 1_000), read(), Some(Reason::Expired));
    check(with(|c| c.protection = Protection::Privacy), read(), Some(Reason::Unsupported));
    check(with(|c| c.rights = Rights::WRITE), read(), Some(Reason::Rights));
    check(with(|c| c.rights = Rights::READ), write(), Some(Reason::Rights));
    check(with(|c| c.object = ObjectId(43)), read(), Some(Reason::Scope));
    check(with(|c| c.object = ObjectId(0)), read(), Some(Reason::Scope));
    check(with(|c| c.holder = SISTER), read(), Some(Reason::Scope));
    check(with(|c| c.lease = Lease(5)), write(), Some(Reason::Scope));
    check(with(|c| c.lease = Lease(0)), write(), Some(Reason::Scope));
    check(with(|c| c.g = Generation(7)), write(), Some(Reason::Scope));
    check(Capability { holder: DriveId(0), ..delta_capability() }, delta(), Some(Reason::Scope));
    check(Capability { rights: Rights::WRITE, ..delta_capability() }, delta(), Some(Reason::Rights));
    let elsewhere = Address { partition: PartitionId(7), object: ObjectId(43) };
    check(capability(), Read { at: elsewhere, ..read() }, Some(Reason::Scope));
    let silent = Scene { now_ms: None, ..scene() };
    assert_eq!(refused(ask(&silent, capability(), read())), Reason::NotServing);
}

#[test]
fn what_is_private_is_served_on_a_private_connection_alone() {
    for (protection, is_private, expected) in [
        (Protection::Integrity, false, None),
        (Protection::Integrity, true, None),
        (Protection::Privacy, false, Some(Reason::Unsupported)),
        (Protection::Privacy, true, None),
        (Protection::IntegrityData, false, Some(Reason::Unsupported)),
        (Protection::IntegrityData, true, Some(Reason::Unsupported)),
    ] {
        let private = Capability { protection, ..capability() };
        let (header, body, _) = sealed(private, &read().into(), 0);
        let mut session = Session::begun(is_private);
        let judged = authorise_in(&mut session, &scene(), &header, &body);
        let reason = judged.err().map(|denied| denied.refusal.reason);
        assert_eq!(reason, expected, "{protection:?} {is_private}");
    }
}

#[test]
fn requests_of_the_manager_need_its_rights() {
    let manage = |rights| Capability {
        rights,
        partition: PartitionId(0),
        object: ObjectId(0),
        key_epoch: 1,
        ..capability()
    };
    let create = partition_set();
    check(manage(Rights::MANAGE), create.clone(), None);
    check(manage(Rights::LIST), create.clone(), Some(Reason::Rights));
    check(Capability { rights: Rights::ALL, ..capability() }, create.clone(), Some(Reason::Scope));
    check(manage(Rights::MANAGE), PartitionSet { key_epoch: 0, ..create.clone() }, Some(Reason::Malformed));
    check(manage(Rights::GET_ATTRIBUTES), GetAttributes { at: Address::DRIVE }, None);
    check(manage(Rights::LIST), GetAttributes { at: Address::DRIVE }, Some(Reason::Rights));
    let fence = Fence { at: AT, term: 6, units_from: 0, drives: Vec::new(), reserve_bytes: 0 };
    check(manage(Rights::MANAGE), fence.clone(), Some(Reason::Scope));
    check(Capability { rights: Rights::MANAGE, ..capability() }, fence.clone(), None);
    check(capability(), fence.clone(), Some(Reason::Rights));
    check(capability(), Remove { at: AT, term: 6 }, Some(Reason::Rights));
    let list = List { partition: AT.partition, after: 0, limit: 10 };
    check(Capability { rights: Rights::LIST, object: ObjectId(0), ..capability() }, list.clone(), None);
    check(Capability { rights: Rights::LIST, ..capability() }, list, Some(Reason::Scope));
    let scrub = |act, rate| Scrub { act, rate, term: 6 };
    check(manage(Rights::MANAGE), scrub(ScrubAct::Start, 1), None);
    check(manage(Rights::MANAGE), scrub(ScrubAct::Look, 0), None);
    check(manage(Rights::MANAGE), scrub(ScrubAct::Start, 0), Some(Reason::Malformed));
    check(manage(Rights::MANAGE), scrub(ScrubAct::Look, 1), Some(Reason::Malformed));
    check(manage(Rights::LIST), scrub(ScrubAct::Look, 0), Some(Reason::Rights));
    assert_eq!(DriveRequest::from(create).target().term, Some(6));
    assert_eq!(DriveRequest::from(fence).target().term, Some(6));
    assert_eq!(DriveRequest::from(read()).target().term, None);
}

fn take() -> Snapshot {
    Snapshot { at: AT, still: ObjectId(43), attributes: attributes(), term: 6 }
}

#[test]
fn stills_are_the_managers_and_have_numbers_of_their_own() {
    let keeper = || Capability { rights: Rights::MANAGE, ..capability() };
    check(keeper(), take(), None);
    for still in [ObjectId(0), AT.object] {
        check(keeper(), Snapshot { still, ..take() }, Some(Reason::Malformed));
    }
    let long = Attributes { opaque: vec![0; OPAQUE_BYTES_MAX + 1], ..attributes() };
    check(keeper(), Snapshot { attributes: long, ..take() }, Some(Reason::Malformed));
    for rights in [Rights::READ.and(Rights::WRITE), Rights(Rights::ALL.0 & !Rights::MANAGE.0)] {
        check(Capability { rights, ..capability() }, take(), Some(Reason::Rights));
    }
    let elsewhere = Capability { object: ObjectId(43), ..keeper() };
    check(elsewhere, take(), Some(Reason::Scope));
    let silent = Scene { now_ms: None, ..scene() };
    let manager = Capability { rights: Rights::ALL, ..capability() };
    assert_eq!(refused(ask(&silent, manager, take())), Reason::NotServing);
    assert_eq!(DriveRequest::from(take()).target().term, Some(6), "it is the manager's");
}

fn partition_set() -> PartitionSet {
    PartitionSet { partition: PartitionId(9), expect: Expect::Absent, quota_bytes: 0, key_epoch: 1, term: 6 }
}

/// Object 0 stands for its partition, and in partition 0 for the drive. Their attributes can be read and
/// their content listed, and the manager's right over the drive removes a partition. All other requests to
/// them are refused.
#[test]
fn well_known_objects_have_attributes_and_no_bytes() {
    let of = |partition, rights| {
        let key_epoch = if partition == PartitionId(0) { 1 } else { 5 };
        Capability { rights, partition, object: ObjectId(0), key_epoch, ..capability() }
    };
    let drive = PartitionId(0);
    let partition = AT.partition;
    let at = Address::of_partition(partition);
    let look = || GetAttributes { at: Address::of_partition(partition) };
    check(of(partition, Rights::GET_ATTRIBUTES), look(), None);
    check(of(drive, Rights::GET_ATTRIBUTES), look(), Some(Reason::Scope));
    check(capability(), GetAttributes { at: Address::DRIVE }, Some(Reason::Rights));
    let remove = || Remove { at: Address::of_partition(partition), term: 6 };
    check(of(drive, Rights::MANAGE), remove(), None);
    check(of(drive, Rights::REMOVE), remove(), Some(Reason::Rights));
    check(of(partition, Rights::ALL), remove(), Some(Reason::Scope));
    check(of(drive, Rights::ALL), Remove { at: Address::DRIVE, term: 6 }, Some(Reason::Malformed));
    let all = || of(partition, Rights::ALL);
    check(all(), Read { at, ..read() }, Some(Reason::Malformed));
    check(all(), StripeWrite { at, ..write() }, Some(Reason::Malformed));
    check(all(), Create { at, attributes: attributes() }, Some(Reason::Malformed));
    check(all(), versions(at, Listing::Named, 0), Some(Reason::Malformed));
    check(all(), Snapshot { at, ..take() }, Some(Reason::Malformed));
    check(
        all(),
        Fence { at, term: 6, units_from: 0, drives: Vec::new(), reserve_bytes: 0 },
        Some(Reason::Malformed),
    );
}

/// The manager fences a drive that returned before it gives the drive a lease. Without a lease, the drive
/// serves no other requests, and serves only the manager.
#[test]
fn only_the_manager_and_only_to_fence_and_free_is_served_without_a_lease() {
    let silent = Scene { now_ms: None, ..scene() };
    let manager = Capability { rights: Rights::ALL, ..capability() };
    let fence = || Fence { at: AT, term: 6, units_from: 0, drives: Vec::new(), reserve_bytes: 0 };
    let create = || Create { at: AT, attributes: attributes() };
    assert!(ask(&silent, manager.clone(), fence()).is_ok());
    assert!(ask(&silent, manager.clone(), create()).is_ok());
    let drive =
        Capability { partition: PartitionId(0), object: ObjectId(0), key_epoch: 1, ..manager.clone() };
    assert!(ask(&silent, drive, partition_set()).is_ok());
    assert_eq!(refused(ask(&silent, manager.clone(), read())), Reason::NotServing);
    // Objects left over from columns that have moved are also freed before the lease.
    assert!(ask(&silent, manager, Remove { at: AT, term: 6 }).is_ok());
    let client = Capability { rights: Rights::CREATE.and(Rights::WRITE), ..capability() };
    assert_eq!(refused(ask(&silent, client.clone(), create())), Reason::NotServing);
    assert_eq!(refused(ask(&silent, client, fence())), Reason::NotServing);
}

#[test]
fn fields_that_contradict_each_other_are_malformed() {
    for bad in [
        Read { from: 8, ..read() },
        Read { to: 0, ..read() },
        Read { want: Want::Exactly, ..read() },
        Read { exactly: vec![Version::ZERO], ..read() },
    ] {
        check(capability(), bad, Some(Reason::Malformed));
    }
    for bad in [
        StripeWrite { to: 9, ..write() },
        StripeWrite { to: 0, ..write() },
        StripeWrite { crcs: Vec::new(), ..write() },
        StripeWrite { crcs: vec![0; 2], ..write() },
        StripeWrite { hole: true, ..write() },
    ] {
        check(capability(), bad, Some(Reason::Malformed));
    }
    check(capability(), StripeWrite { hole: true, crcs: Vec::new(), ..write() }, None);
    let most = u64::from(PAYLOAD_BYTES_MAX);
    check(capability(), WriteTurn { at: AT, bytes: most }, None);
    check(capability(), WriteTurn { at: AT, bytes: most + 1 }, Some(Reason::Malformed));
    let (header, body, _) = sealed(capability(), &read().into(), 1);
    assert_eq!(refused(authorise(&scene(), &mut 0, &header, &body)), Reason::Malformed);
    let (header, body, _) = sealed(capability(), &read().into(), 0);
    let cut = authorise(&scene(), &mut 0, &header, &body[..100]).expect_err("too short");
    assert_eq!((cut.refusal.reason, cut.seal.is_proven()), (Reason::Malformed, false));
}

#[test]
fn a_creation_brings_the_map_it_was_bound_to() {
    let create = || Create { at: AT, attributes: attributes() };
    let capability = || Capability { rights: Rights::CREATE, map: map().digest(), ..capability() };
    check(capability(), create(), None);
    check(Capability { map: [0; 16], ..capability() }, create(), None);
    let mut other = create();
    other.attributes.map.objects[2] = ObjectId(43);
    check(capability(), other.clone(), Some(Reason::Scope));
    other.attributes.map.objects.pop();
    check(capability(), other, Some(Reason::Malformed));
    let mut odd = create();
    odd.attributes.map.unit_bytes = 5000;
    check(capability(), odd, Some(Reason::Malformed));
}

#[test]
fn older_stamps_are_installed_only() {
    let older = StripeWrite { stamp: Version { g: Generation(2), lease: Lease(1), n: 5 }, ..write() };
    let joining = Capability { joining: ColumnMask(1), ..capability() };
    check(joining.clone(), older.clone(), Some(Reason::Scope));
    check(capability(), StripeWrite { install: true, ..older.clone() }, None);
    check(joining.clone(), StripeWrite { install: true, ..older.clone() }, None);
    let newer = Version { g: Generation(8), lease: Lease(5), n: 5 };
    check(joining, StripeWrite { install: true, stamp: newer, ..older }, Some(Reason::Scope));
}

#[test]
fn a_lease_writes_its_own_stripes_only() {
    let part = |first_stripe, end_stripe| Capability { first_stripe, end_stripe, ..capability() };
    let at = |unit| StripeWrite { unit, ..write() };
    for unit in [3, 4, 99] {
        let expected = if unit == 4 { None } else { Some(Reason::Range) };
        check(part(4, 5), at(unit), expected);
        check(part(4, 5), StripeWrite { install: true, ..at(unit) }, expected);
        check(part(4, 5), UnitWrite { unit, ..unit_write() }, expected);
        check(part(4, 5), Read { unit, ..read() }, None);
    }
    check(part(4, u64::MAX), at(99), None);
    check(part(0, 0), at(0), Some(Reason::Range));
    check(capability(), at(99), None);
    let retire = |ends_lease| Retire { ends_lease, ..retire() };
    check(part(4, 5), retire(false), None);
    check(part(4, 5), retire(true), Some(Reason::Scope));
    check(capability(), retire(true), None);
}

#[test]
fn bytes_are_written_below_the_reach_and_cleared_anywhere() {
    let reaching = |reach| Capability { reach, ..capability() };
    let at = |unit| StripeWrite { unit, ..write() };
    for unit in [3, 4, 99] {
        let expected = if unit < 4 { None } else { Some(Reason::Quota) };
        check(reaching(4), at(unit), expected);
        check(reaching(4), UnitWrite { unit, ..unit_write() }, expected);
        check(reaching(4), StripeWrite { hole: true, crcs: Vec::new(), ..at(unit) }, None);
        check(reaching(4), Read { unit, ..read() }, None);
    }
    check(reaching(0), at(0), Some(Reason::Quota));
    check(reaching(u64::MAX), at(99), None);
}

#[test]
fn a_shared_lease_writes_units_only() {
    let shared = || Capability { kind: LeaseKind::Shared, ..capability() };
    check(shared(), write(), Some(Reason::Scope));
    check(shared(), StripeWrite { install: true, ..write() }, None);
    check(shared(), UnitWrite { stamp: None, ..unit_write() }, None);
    check(shared(), UnitWrite { stamp: Some(write().stamp), ..unit_write() }, Some(Reason::Scope));
    check(capability(), UnitWrite { stamp: Some(write().stamp), ..unit_write() }, None);
    check(shared(), retire(), None);
    check(shared(), Retire { ends_lease: true, ..retire() }, Some(Reason::Scope));
}

#[test]
fn what_the_object_must_fit() {
    let map = map();
    let facts = ObjectFacts { g: Generation(8), map: &map };
    let permit = |capability, request: DriveRequest, facts: ObjectFacts<'_>| {
        let verified = ask(&scene(), capability, request).expect("good so far");
        verified.permit(&facts).err().map(|refusal| refusal.reason)
    };
    let read_of = |unit, to| DriveRequest::from(Read { unit, to, ..read() });
    assert_eq!(permit(capability(), read_of(2, 8), facts), None);
    assert_eq!(permit(capability(), read_of(2, UNIT + 1), facts), Some(Reason::Range));
    assert_eq!(permit(capability(), read_of(u64::MAX, 8), facts), Some(Reason::Range));
    assert_eq!(permit(capability(), read_of(1 << 52, 8), facts), Some(Reason::Range));
    let ready = |unit, units| DriveRequest::from(Ready { at: AT, unit, units });
    assert_eq!(permit(capability(), ready(2, 98), facts), None);
    assert_eq!(permit(capability(), ready(1 << 52, 8), facts), Some(Reason::Range));
    for g in [7, 9] {
        let facts = ObjectFacts { g: Generation(g), ..facts };
        assert_eq!(permit(capability(), read_of(2, 8), facts), Some(Reason::StaleGeneration));
        assert_eq!(permit(capability(), write().into(), facts), Some(Reason::StaleGeneration));
        assert_eq!(permit(delta_capability(), delta().into(), facts), Some(Reason::StaleGeneration));
        let fence = DriveRequest::from(Fence {
            at: AT,
            term: 6,
            units_from: 0,
            drives: Vec::new(),
            reserve_bytes: 0,
        });
        let keeper = Capability { rights: Rights::MANAGE, ..capability() };
        assert_eq!(permit(keeper, take().into(), facts), Some(Reason::StaleGeneration));
        let expected = (g > 8).then_some(Reason::StaleGeneration);
        assert_eq!(permit(Capability { rights: Rights::MANAGE, ..capability() }, fence, facts), expected);
    }
    assert_eq!(permit(delta_capability(), delta().into(), facts), None);
    let wrong_column = Delta { column: Column(2), ..delta() };
    assert_eq!(permit(delta_capability(), wrong_column.into(), facts), Some(Reason::Scope));
    let no_column = Delta { column: Column(200), ..delta() };
    assert_eq!(permit(delta_capability(), no_column.into(), facts), Some(Reason::Scope));
}

fn versions(at: Address, list: Listing, limit: u32) -> Versions {
    Versions { at, list, units: vec![], from: 0, limit }
}

#[test]
fn units_are_named_or_listed_and_a_listing_has_a_limit() {
    for list in [Listing::Written, Listing::Bytes, Listing::BytesDown] {
        check(capability(), versions(AT, list, 1), None);
        check(capability(), versions(AT, list, 0), Some(Reason::Malformed));
        let named = Versions { units: vec![3], ..versions(AT, list, 1) };
        check(capability(), named, Some(Reason::Malformed));
    }
    check(capability(), versions(AT, Listing::Named, 0), None);
    check(capability(), versions(AT, Listing::Named, 1), Some(Reason::Malformed));
    let from = Versions { from: 1, ..versions(AT, Listing::Named, 0) };
    check(capability(), from, Some(Reason::Malformed));
}
