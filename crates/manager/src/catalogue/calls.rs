//! The manager's requests to a drive that holds the catalogue: its partition, streams' objects, and frames.

use braid_layout::version::Lease;
use braid_layout::{
    ClientId, Column, ColumnMask, DriveId, FileId, Generation, ObjectId, OperationNumber, Version,
};
use braid_meta::catalogue::frame::{PARTITION, UNIT_BYTES};
use braid_meta::rules::grants::{self, CAPABILITY_MS};
use braid_wire::checksum::block_crcs;
use braid_wire::control::Grant;
use braid_wire::data::{
    Address, Attributes, ColumnMap, Create, DriveRequest, Expect, Fence, PartitionSet, Remove, StripeWrite,
};
use braid_wire::{Addresses, Reason, Refusal};

use crate::columns::calls::drive_call;
use crate::core::Core;
use crate::drive_calls::CallError;

/// The generation of a stream's object: it never changes, as nobody else writes it.
const G: Generation = Generation(1);
/// The lease of all writes.
const LEASE: Lease = Lease(1);

/// Makes a stream's object on a drive, and the partition if need be. It is no error if both are there.
pub(crate) async fn create(core: &Core, drive: DriveId, stream: ObjectId) -> Result<(), CallError> {
    let partition = PARTITION;
    let key_epoch = grants::KEY_EPOCH_FIRST;
    let term = core.term();
    let set = PartitionSet { partition, expect: Expect::Absent, quota_bytes: 0, key_epoch, term };
    match drive_call(core, drive, &set.into()).await {
        Err(CallError::Refused(refusal)) if refusal.reason == Reason::Exists => {}
        other => drop(other?),
    }
    let map = ColumnMap {
        file: FileId(0),
        segment: 0,
        scheme: 0,
        k: 1,
        m: 0,
        unit_bytes: UNIT_BYTES,
        column: Column(0),
        drives: vec![drive],
        objects: vec![stream],
    };
    let now_ms = core.now_ms();
    let attributes = Attributes {
        g: G,
        set: set_of_one(),
        joining: ColumnMask::EMPTY,
        map,
        size: 0,
        reach: 0,
        stored_bytes: 0,
        created_ms: now_ms,
        modified_ms: now_ms,
        reserve_bytes: 0,
        cluster: 0,
        opaque: Vec::new(),
        base: ObjectId(0),
    };
    call(core, drive, stream, &Create { at: at(stream), attributes }.into(), &[]).await
}

/// Writes a frame. A drive that was marked out since is told first that it may take it.
pub(crate) async fn write(
    core: &Core,
    drive: DriveId,
    stream: ObjectId,
    number: u64,
    frame: &[u8],
) -> Result<(), CallError> {
    let stamp = Version { g: G, lease: LEASE, n: number + 1 };
    let to = u32::try_from(frame.len()).map_err(|_| {
        CallError::Refused(Refusal::new(Reason::Malformed, "a frame of the catalogue is longer than a unit"))
    })?;
    let request = StripeWrite {
        at: at(stream),
        unit: number,
        from: 0,
        to,
        hole: false,
        install: false,
        whole: false,
        stamp,
        columns: set_of_one(),
        cover: Vec::new(),
        ends: Vec::new(),
        settled_below: stamp,
        client: ClientId::NONE,
        operation: OperationNumber(number + 1),
        crcs: block_crcs(0, frame),
        timed: false,
    };
    let request: DriveRequest = request.into();
    match call(core, drive, stream, &request, &[frame]).await {
        Err(CallError::Refused(refusal)) if refusal.reason == Reason::StaleGeneration => {
            let term = core.term();
            let fence = Fence { at: at(stream), term, units_from: 0, drives: Vec::new(), reserve_bytes: 0 };
            call(core, drive, stream, &fence.into(), &[]).await?;
            call(core, drive, stream, &request, &[frame]).await
        }
        other => other,
    }
}

/// Removes a stream's object. It is no error if it is not there.
pub(crate) async fn remove(core: &Core, drive: DriveId, stream: ObjectId) -> Result<(), CallError> {
    let term = core.term();
    match call(core, drive, stream, &Remove { at: at(stream), term }.into(), &[]).await {
        Err(CallError::Refused(refusal)) if refusal.reason == Reason::NoPartition => Ok(()),
        other => other,
    }
}

async fn call(
    core: &Core,
    drive: DriveId,
    stream: ObjectId,
    request: &DriveRequest,
    payload: &[&[u8]],
) -> Result<(), CallError> {
    let (addresses, grant) = grant(core, drive, stream)?;
    core.drive_calls.call_with(drive, &addresses, &grant, request, payload).await.map(drop)
}

/// The drive's addresses, and the grant for a stream's object there.
fn grant(core: &Core, drive: DriveId, stream: ObjectId) -> Result<(Addresses, Grant), CallError> {
    let expires_ms = core.now_ms() + CAPABILITY_MS;
    let table = core.drives();
    let known = table
        .drive(drive)
        .ok_or_else(|| CallError::Unreachable("the manager does not know the drive".to_owned()))?;
    let standing = (G, set_of_one(), LEASE);
    let grant = grants::for_catalogue(&known.record.master, drive, PARTITION, stream, standing, expires_ms);
    Ok((known.record.addresses.clone(), grant))
}

fn at(stream: ObjectId) -> Address {
    Address { partition: PARTITION, object: stream }
}

fn set_of_one() -> ColumnMask {
    ColumnMask::all(1)
}
