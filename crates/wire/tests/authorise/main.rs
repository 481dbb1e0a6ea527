//! A capability moves only the bytes that it covers (invariant I3). Each kind of fault has its own refusal
//! ([`rules`]), no single bit of a request or a reply can change unnoticed ([`forgery`]), and the
//! capabilities kept in a connection's session make no difference to that ([`session`]).

mod forgery;
mod rules;
mod session;

use braid_layout::{
    ClientId, ClusterId, Column, ColumnMask, DriveId, FileId, Generation, ObjectId, OperationNumber,
    PartitionId, Version, version::Lease,
};
use braid_wire::Reason;
use braid_wire::authorise::{Denied, Scene, Verified, authorise};
use braid_wire::capability::{Capability, Key, LeaseKind, Promise, Protection, Rights};
use braid_wire::checksum::block_crcs;
use braid_wire::control::Grant;
use braid_wire::data::{
    Address, Attributes, ColumnMap, Delta, DriveRequest, Hello, PeerRole, Read, Retire, StripeWrite,
    UnitWrite, Want,
};
use braid_wire::frame::FrameHeader;
use braid_wire::seal::{Asked, Asker};

const DRIVE: DriveId = DriveId(0xd);
const SISTER: DriveId = DriveId(0xe);
const UNIT: u32 = 4096;
const AT: Address = Address { partition: PartitionId(7), object: ObjectId(42) };

fn hello() -> Hello {
    let cluster = ClusterId(0xc);
    Hello {
        role: PeerRole::Drive,
        version_min: 1,
        version_max: 1,
        cluster,
        drive: DRIVE,
        features: 0,
        challenge: [9; 16],
    }
}

fn working_key(partition: PartitionId, epoch: u32) -> Key {
    Key::new([1; 32]).drive_key(DRIVE).partition_key(partition).working_key(epoch)
}

/// Partition 7 is at epoch 5 and the drive at epoch 1; there are no others.
fn key_epoch(partition: PartitionId) -> Option<u32> {
    match partition.0 {
        0 => Some(1),
        7 => Some(5),
        _ => None,
    }
}

fn scene() -> Scene<'static> {
    let binding = hello().binding();
    Scene {
        drive: DRIVE,
        binding,
        now_ms: Some(1_000),
        working_key: &working_key,
        key_epoch: &key_epoch,
        key_number: 1,
        former: None,
    }
}

fn capability() -> Capability {
    Capability {
        drive: DRIVE,
        partition: AT.partition,
        object: AT.object,
        rights: Rights::READ.and(Rights::WRITE),
        expires_ms: 2_000,
        promise: Promise::NONE,
        client: ClientId::NONE,
        key_epoch: 5,
        g: Generation(8),
        set: ColumnMask(0b111),
        joining: ColumnMask(0),
        lease: Lease(4),
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

fn map() -> ColumnMap {
    ColumnMap {
        file: FileId(1),
        segment: 0,
        scheme: 5,
        k: 2,
        m: 1,
        unit_bytes: UNIT,
        column: Column(1),
        drives: vec![SISTER, DRIVE, DriveId(0xf)],
        objects: vec![AT.object; 3],
    }
}

fn attributes() -> Attributes {
    Attributes {
        g: Generation(8),
        set: ColumnMask(0b111),
        joining: ColumnMask(0),
        map: map(),
        size: 0,
        reach: 0,
        stored_bytes: 0,
        created_ms: 0,
        modified_ms: 0,
        reserve_bytes: 0,
        cluster: 0,
        opaque: Vec::new(),
        base: ObjectId(0),
    }
}

fn read() -> Read {
    Read { at: AT, unit: 2, from: 0, to: 8, want: Want::Newest, exactly: Vec::new(), timed: false }
}

fn write() -> StripeWrite {
    StripeWrite {
        at: AT,
        unit: 2,
        from: 0,
        to: 8,
        hole: false,
        install: false,
        whole: false,
        stamp: Version { g: Generation(8), lease: Lease(4), n: 1 },
        columns: ColumnMask(0b111),
        cover: Vec::new(),
        ends: Vec::new(),
        settled_below: Version::ZERO,
        client: ClientId(1),
        operation: OperationNumber(1),
        crcs: block_crcs(0, b"braided\n"),
        timed: false,
    }
}

fn unit_write() -> UnitWrite {
    let StripeWrite { at, unit, from, to, hole, settled_below, client, operation, crcs, .. } = write();
    UnitWrite {
        at,
        unit,
        from,
        to,
        hole,
        client,
        operation,
        stamp: None,
        settled_below,
        crcs,
        watermark: OperationNumber::NONE,
        timed: false,
    }
}

fn retire() -> Retire {
    let settled_to = write().stamp;
    Retire {
        at: AT,
        settled_to,
        durable: false,
        client: ClientId::NONE,
        watermark: OperationNumber::NONE,
        ends_lease: false,
    }
}

fn delta() -> Delta {
    Delta {
        at: AT,
        unit: 2,
        from: 0,
        to: 8,
        column: Column(0),
        from_version: Version::ZERO,
        to_version: Version { g: Generation(8), lease: Lease(4), n: 1 },
        end: 8,
        client: ClientId(1),
        operation: OperationNumber(1),
        settled_to: Version::ZERO,
        crcs: block_crcs(0, b"braided\n"),
        g: Generation(8),
        watermark: OperationNumber::NONE,
    }
}

/// A capability for a drive: for a whole partition, and for deltas only.
fn delta_capability() -> Capability {
    Capability {
        object: ObjectId(0),
        rights: Rights::DELTA,
        holder: SISTER,
        g: Generation(0),
        ..capability()
    }
}

fn grant(capability: Capability) -> Grant {
    let private = working_key(capability.partition, capability.key_epoch).private_part(&capability);
    Grant { capability, private }
}

fn sealed(
    capability: Capability,
    request: &DriveRequest,
    payload_bytes: u32,
) -> (FrameHeader, Vec<u8>, Asked) {
    let mut body = Vec::new();
    let asked = Asker::new(&hello(), [6; 16]).seal(&grant(capability), 1, request, payload_bytes, &mut body);
    (FrameHeader::new(request.kind(), 1, &body, payload_bytes), body, asked)
}

fn ask(
    scene: &Scene<'_>,
    capability: Capability,
    request: impl Into<DriveRequest>,
) -> Result<Verified, Denied> {
    let request = request.into();
    let payload_bytes = match &request {
        DriveRequest::StripeWrite(write) if !write.hole => 8,
        DriveRequest::UnitWrite(write) if !write.hole => 8,
        DriveRequest::Delta(_) => 8,
        _ => 0,
    };
    let (header, body, _) = sealed(capability, &request, payload_bytes);
    authorise(scene, &mut 0, &header, &body)
}

fn refused(asked: Result<Verified, Denied>) -> Reason {
    asked.expect_err("it must be refused").refusal.reason
}

#[track_caller]
fn check(capability: Capability, request: impl Into<DriveRequest>, expected: Option<Reason>) {
    let reason = ask(&scene(), capability, request).map_err(|denied| {
        assert_eq!(denied.seal.is_proven(), denied.refusal.reason != Reason::Forged);
        denied.refusal
    });
    assert_eq!(reason.as_ref().err().map(|refusal| refusal.reason), expected, "{reason:?}");
}
