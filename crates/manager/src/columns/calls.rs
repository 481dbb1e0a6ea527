//! Requests of the manager about a drive, or a partition there.

use braid_layout::{DriveId, PartitionId};
use braid_meta::rules::grants::{self, CAPABILITY_MS};
use braid_wire::data::{DriveReply, DriveRequest};

use crate::core::Core;
use crate::drive_calls::CallError;

/// Sends a request about the drive itself.
pub(crate) async fn drive_call(
    core: &Core,
    drive: DriveId,
    request: &DriveRequest,
) -> Result<DriveReply, CallError> {
    let (addresses, grant) = {
        let now_ms = core.now_ms();
        let table = core.drives();
        let known = table
            .drive(drive)
            .ok_or_else(|| CallError::Unreachable("the manager does not know its drive".to_owned()))?;
        let grant = grants::for_drive(&known.record.master, drive, now_ms + CAPABILITY_MS);
        (known.record.addresses.clone(), grant)
    };
    core.drive_calls.call(drive, &addresses, &grant, request).await
}

/// Sends a request about a partition.
pub(crate) async fn partition_call(
    core: &Core,
    drive: DriveId,
    partition: PartitionId,
    request: &DriveRequest,
) -> Result<DriveReply, CallError> {
    let (addresses, grant) = {
        let now_ms = core.now_ms();
        let table = core.drives();
        let known = table
            .drive(drive)
            .ok_or_else(|| CallError::Unreachable("the manager does not know its drive".to_owned()))?;
        let grant = grants::for_partition(&known.record.master, drive, partition, now_ms + CAPABILITY_MS);
        (known.record.addresses.clone(), grant)
    };
    core.drive_calls.call(drive, &addresses, &grant, request).await
}

pub(crate) fn unexpected(reply: &DriveReply) -> CallError {
    CallError::Unreachable(format!("it answers {}, which does not fit the request", reply.name()))
}
