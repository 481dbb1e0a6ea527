//! Listings of what drives hold: a drive's partitions and a partition's objects, page by page; and a
//! partition's objects on all drives, file by file.

use std::collections::BTreeMap;

use braid_layout::{Column, DriveId, FileId, Generation, PartitionId};
use braid_meta::records::schema::SegmentRecord;
use braid_meta::rules::grants::{self, CAPABILITY_MS};
use braid_wire::control::ShapeSpec;
use braid_wire::data::{
    Address, DriveReply, DriveRequest, GetAttributes, List, ListedObject, PartitionAttributes,
};
use braid_wire::{Reason, Refusal};

use crate::columns::calls::{drive_call, partition_call, unexpected};
use crate::core::Core;
use crate::drive_calls::CallError;

/// Maximum number of rows asked for at a time.
const PAGE: u32 = 4096;

/// Objects of one file, as their drives list them.
pub(crate) type Listed = BTreeMap<(u32, Column), (DriveId, ListedObject)>;

/// Lists the partitions on a drive.
pub(crate) async fn partitions(core: &Core, drive: DriveId) -> Result<Vec<PartitionAttributes>, CallError> {
    let mut partitions: Vec<PartitionAttributes> = Vec::new();
    loop {
        let after = partitions.last().map_or(0, |last| last.partition.0);
        match drive_call(core, drive, &request(Address::DRIVE.partition, after)).await? {
            DriveReply::PartitionList(reply) if reply.partitions.is_empty() => return Ok(partitions),
            DriveReply::PartitionList(reply) => partitions.extend(reply.partitions),
            other => return Err(unexpected(&other)),
        }
    }
}

/// Lists the next objects of a partition above a number. Empty at the end, and if the partition does not
/// exist.
pub(crate) async fn objects(
    core: &Core,
    drive: DriveId,
    partition: PartitionId,
    after: u64,
) -> Result<Vec<ListedObject>, CallError> {
    match partition_call(core, drive, partition, &request(partition, after)).await {
        Ok(DriveReply::List(reply)) => Ok(reply.objects),
        Ok(other) => Err(unexpected(&other)),
        Err(CallError::Refused(refusal)) if refusal.reason == Reason::NoPartition => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The layout that an object is a column of, as its drive was last told; `None` if the object is gone.
pub(crate) async fn layout(
    core: &Core,
    drive: DriveId,
    partition: PartitionId,
    listed: &ListedObject,
) -> Result<Option<SegmentRecord>, Refusal> {
    Ok(layout_and_reach(core, drive, partition, listed).await?.map(|(layout, _)| layout))
}

/// The layout that an object is a column of, and how far the object reaches, in its own bytes.
pub(crate) async fn layout_and_reach(
    core: &Core,
    drive: DriveId,
    partition: PartitionId,
    listed: &ListedObject,
) -> Result<Option<(SegmentRecord, u64)>, Refusal> {
    let (addresses, grant) = {
        let now_ms = core.now_ms();
        let table = core.drives();
        let Some(known) = table.drive(drive) else { return Ok(None) };
        let state = (listed.g, listed.set, listed.joining);
        let expires_ms = now_ms + CAPABILITY_MS;
        let grant = grants::for_object(
            &known.record.master,
            drive,
            partition,
            listed.object,
            listed.file,
            state,
            [0; 16],
            expires_ms,
        );
        (known.record.addresses.clone(), grant)
    };
    let request = GetAttributes { at: Address { partition, object: listed.object } };
    match core.drive_calls.call(drive, &addresses, &grant, &request.into()).await {
        Ok(DriveReply::Attributes(found)) => {
            let layout = SegmentRecord {
                number: found.map.segment,
                start: 0,
                end: u64::MAX,
                shape: ShapeSpec {
                    scheme: found.map.scheme,
                    k: found.map.k,
                    m: found.map.m,
                    unit_bytes: found.map.unit_bytes,
                },
                object: listed.object,
                drives: found.map.drives,
                set: found.set,
                joining: found.joining,
                filling: None,
            };
            Ok(Some((layout, found.reach)))
        }
        Ok(other) => Err(cannot_be_asked(core, drive, &unexpected(&other))),
        Err(CallError::Refused(refusal)) if refusal.reason == Reason::NoObject => Ok(None),
        Err(error) => Err(cannot_be_asked(core, drive, &error)),
    }
}

/// A listing of a partition's objects on all drives, in the order of their numbers.
pub(crate) struct Listing {
    drives: Vec<(DriveId, Cursor)>,
}

#[derive(Default)]
struct Cursor {
    after: u64,
    page: Vec<ListedObject>,
    at_end: bool,
}

impl Listing {
    /// A listing over these drives, from the first object on.
    pub(crate) fn new(drives: impl Iterator<Item = DriveId>) -> Listing {
        Listing { drives: drives.map(|drive| (drive, Cursor::default())).collect() }
    }

    /// The next files: all objects up to a number that the listings of all drives have reached.
    pub(crate) async fn next(
        &mut self,
        core: &Core,
        partition: PartitionId,
    ) -> Result<Option<BTreeMap<FileId, Listed>>, Refusal> {
        for (drive, cursor) in &mut self.drives {
            if cursor.page.is_empty() && !cursor.at_end {
                cursor.page = list(core, *drive, partition, cursor.after).await?;
                cursor.at_end = cursor.page.is_empty();
                cursor.after = cursor.page.last().map_or(cursor.after, |last| last.object.0);
            }
        }
        let upto =
            self.drives.iter().filter_map(|(_, cursor)| cursor.page.last()).map(|last| last.object).min();
        let Some(upto) = upto else { return Ok(None) };
        let mut files: BTreeMap<FileId, Listed> = BTreeMap::new();
        for (drive, cursor) in &mut self.drives {
            let rest = cursor.page.split_off(cursor.page.partition_point(|listed| listed.object <= upto));
            for listed in std::mem::replace(&mut cursor.page, rest) {
                let place = (listed.segment, listed.column);
                let of_file = files.entry(listed.file).or_default();
                match of_file.get(&place) {
                    // The column moved: the rest of it on another drive has a lower rank, and so has a
                    // successor that was being made there.
                    Some((_, other)) if rank(other) >= rank(&listed) => {}
                    _ => drop(of_file.insert(place, (*drive, listed))),
                }
            }
        }
        Ok(Some(files))
    }
}

/// The objects of a partition on one drive, above a number.
async fn list(
    core: &Core,
    drive: DriveId,
    partition: PartitionId,
    after: u64,
) -> Result<Vec<ListedObject>, Refusal> {
    objects(core, drive, partition, after).await.map_err(|error| cannot_be_asked(core, drive, &error))
}

/// The refusal of a comparison that cannot go on, as a drive does not answer.
pub(crate) fn cannot_be_asked(core: &Core, drive: DriveId, error: &CallError) -> Refusal {
    Refusal::new(Reason::NotServing, format!("{} cannot be asked: {error}", core.drives().name(drive)))
}

/// Rank among objects of one column: the one of the highest rank is the column.
fn rank(object: &ListedObject) -> (Generation, bool) {
    (object.g, !object.joining.contains(object.column))
}

fn request(partition: PartitionId, after: u64) -> DriveRequest {
    List { partition, after, limit: PAGE }.into()
}
