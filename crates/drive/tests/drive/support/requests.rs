//! One object of a raid5 2+1 file, and requests about it.

use braid_layout::{
    ClientId, Column, ColumnMask, DriveId, FileId, Generation, ObjectId, OperationNumber, PartitionId,
    Version, version::Lease,
};
use braid_transport::TransportError;
use braid_wire::capability::{Capability, LeaseKind, Promise, Protection, Rights};
use braid_wire::checksum::block_crcs;
use braid_wire::data::{
    Address, Attributes, ColumnMap, Create, DriveReply, DriveRequest, Expect, Listing, PartitionSet, Read,
    ReadReply, Snapshot, StripeWrite, Versions, Want,
};

use super::Drive;

pub const PARTITION: PartitionId = PartitionId(3);
pub const OBJECT: ObjectId = ObjectId(77);
pub const UNIT: u32 = 64 << 10;
pub const AT: Address = Address { partition: PARTITION, object: OBJECT };
pub const LEASE: Lease = Lease(4);
pub const G: Generation = Generation(2);
/// Manager time at which the test's capabilities expire: ten minutes after the manager's fixed time.
pub const EXPIRES_MS: u64 = 5_600_000;

/// All rights on the object.
pub fn object_level() -> Capability {
    Capability {
        drive: DriveId(0),
        partition: PARTITION,
        object: OBJECT,
        rights: Rights::ALL,
        expires_ms: EXPIRES_MS,
        promise: Promise::NONE,
        client: ClientId::NONE,
        key_epoch: 1,
        g: G,
        set: ColumnMask::all(3),
        joining: ColumnMask::EMPTY,
        lease: LEASE,
        kind: LeaseKind::Exclusive,
        first_stripe: 0,
        end_stripe: u64::MAX,
        reach: u64::MAX,
        protection: Protection::Integrity,
        holder: DriveId(0),
        map: [0; 16],
        file: FileId(0),
    }
}

pub fn partition_level() -> Capability {
    Capability { object: ObjectId(0), g: Generation(0), lease: Lease(0), ..object_level() }
}

pub fn drive_level() -> Capability {
    Capability { partition: PartitionId(0), ..partition_level() }
}

pub fn map() -> ColumnMap {
    ColumnMap {
        file: FileId(9),
        segment: 0,
        scheme: 5,
        k: 2,
        m: 1,
        unit_bytes: UNIT,
        column: Column(1),
        drives: vec![DriveId(1), DriveId(2), DriveId(3)],
        objects: vec![OBJECT; 3],
    }
}

pub fn create() -> DriveRequest {
    Create { at: AT, attributes: attributes_of(map()) }.into()
}

/// The take of a still of the object.
pub fn take_of(still: ObjectId) -> Snapshot {
    let map = ColumnMap { file: FileId(10), objects: vec![still; 3], ..map() };
    Snapshot { at: AT, still, attributes: attributes_of(map), term: 1 }
}

/// A new object's, with this map.
pub fn attributes_of(map: ColumnMap) -> Attributes {
    Attributes {
        g: G,
        set: ColumnMask::all(3),
        joining: ColumnMask::EMPTY,
        map,
        size: 0,
        reach: 0,
        stored_bytes: 0,
        created_ms: 11,
        modified_ms: 12,
        reserve_bytes: 0,
        cluster: 0,
        opaque: b"opaque".to_vec(),
        base: ObjectId(0),
    }
}

pub fn partition_create() -> DriveRequest {
    partition_set(Expect::Absent, 1).into()
}

pub fn partition_set(expect: Expect, key_epoch: u32) -> PartitionSet {
    PartitionSet { partition: PARTITION, expect, quota_bytes: 0, key_epoch, term: 1 }
}

pub fn stamp(n: u64) -> Version {
    Version { g: G, lease: LEASE, n }
}

/// Bytes that depend on their position.
pub fn bytes(seed: u8, count: u32) -> Vec<u8> {
    (0..count).map(|i| seed.wrapping_add(u8::try_from(i % 253).unwrap())).collect()
}

pub fn write_of(unit: u64, from: u32, payload: &[u8], n: u64) -> StripeWrite {
    StripeWrite {
        at: AT,
        unit,
        from,
        to: from + u32::try_from(payload.len()).unwrap(),
        hole: false,
        install: false,
        whole: false,
        stamp: stamp(n),
        columns: ColumnMask::all(3),
        cover: vec![],
        ends: vec![],
        settled_below: Version::ZERO,
        client: ClientId(5),
        operation: OperationNumber(n),
        crcs: block_crcs(from, payload),
        timed: false,
    }
}

pub fn write(unit: u64, from: u32, payload: &[u8], n: u64) -> DriveRequest {
    write_of(unit, from, payload, n).into()
}

pub fn read(unit: u64, from: u32, to: u32) -> DriveRequest {
    read_want(unit, from, to, Want::Newest)
}

pub fn read_want(unit: u64, from: u32, to: u32, want: Want) -> DriveRequest {
    Read { at: AT, unit, from, to, want, exactly: vec![], timed: false }.into()
}

pub fn versions(units: &[u64]) -> DriveRequest {
    Versions { at: AT, list: Listing::Named, units: units.to_vec(), from: 0, limit: 0 }.into()
}

/// The attributes in an answer.
pub fn attributes(answer: Result<(DriveReply, Vec<u8>), TransportError>) -> Attributes {
    match answer {
        Ok((DriveReply::Attributes(attributes), _)) => attributes,
        other => panic!("{other:?}"),
    }
}

impl Drive {
    /// Creates the partition and the object.
    pub async fn prepare(&self) {
        let mut session = self.session().await;
        session.call(&self.grant(drive_level()), &partition_create(), &[]).await.unwrap();
        session.call(&self.grant(object_level()), &create(), &[]).await.unwrap();
    }

    /// Writes `payload` at the unit's start.
    pub async fn write(&self, unit: u64, payload: &[u8], n: u64) {
        let mut session = self.session().await;
        session.call(&self.grant(object_level()), &write(unit, 0, payload, n), &[payload]).await.unwrap();
    }

    /// Reads part of a unit and checks the checksums.
    pub async fn read(&self, unit: u64, from: u32, to: u32) -> (ReadReply, Vec<u8>) {
        let mut session = self.session().await;
        let (reply, payload) =
            session.call(&self.grant(object_level()), &read(unit, from, to), &[]).await.unwrap();
        let DriveReply::Read(reply) = reply else { panic!("{reply:?}") };
        let mut rest = payload.as_slice();
        let mut crcs = Vec::new();
        for extent in reply.extents.iter().filter(|extent| !extent.hole) {
            let (head, tail) = rest.split_at(usize::try_from(extent.to - extent.from).unwrap());
            crcs.extend(block_crcs(extent.from, head));
            rest = tail;
        }
        assert_eq!(reply.crcs, crcs);
        (reply, payload)
    }
}
