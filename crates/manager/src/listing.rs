//! What a drive holds, as it lists it: its partitions, and a partition's objects, page by page.

use braid_layout::{DriveId, PartitionId};
use braid_wire::Reason;
use braid_wire::data::{Address, DriveReply, DriveRequest, List, ListedObject};

use crate::core::Core;
use crate::fence::{drive_call, partition_call, unexpected};
use crate::reach::ReachError;

/// Most rows asked for at a time.
const PAGE: u32 = 4096;

/// The drive's partitions.
pub async fn partitions(core: &Core, drive: DriveId) -> Result<Vec<PartitionId>, ReachError> {
    let mut partitions: Vec<PartitionId> = Vec::new();
    loop {
        let after = partitions.last().map_or(0, |last| last.0);
        match drive_call(core, drive, &request(Address::DRIVE.partition, after)).await? {
            DriveReply::PartitionList(reply) if reply.partitions.is_empty() => return Ok(partitions),
            DriveReply::PartitionList(reply) => {
                partitions.extend(reply.partitions.iter().map(|attributes| attributes.partition));
            }
            other => return Err(unexpected(&other)),
        }
    }
}

/// The next objects of a partition above a number; none at the end, and none of a partition that is not there.
pub async fn objects(
    core: &Core,
    drive: DriveId,
    partition: PartitionId,
    after: u64,
) -> Result<Vec<ListedObject>, ReachError> {
    match partition_call(core, drive, partition, &request(partition, after)).await {
        Ok(DriveReply::List(reply)) => Ok(reply.objects),
        Ok(other) => Err(unexpected(&other)),
        Err(ReachError::Refused(refusal)) if refusal.reason == Reason::NoPartition => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn request(partition: PartitionId, after: u64) -> DriveRequest {
    List { partition, after, limit: PAGE }.into()
}
