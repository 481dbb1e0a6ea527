//! `braid df`: the space of drives and volumes. "Free" is what can be written now. The reserve that each
//! drive keeps for removing and cleaning is shown separately, and so are dead bytes, which become free once
//! they are cleaned. Drives on one file system each report all of its free space; the total counts it once.

use std::path::Path;

use braid_client::{Client, OnOneFileSystem, file_systems, reserve_bytes};
use braid_wire::control::{DriveRow, DriveState};
use serde::Serialize;

use crate::connect::{self, status_soon};
use crate::operate::status::{DriveFacts, drive_facts};
use crate::output::exit::Failure;
use crate::output::report::{Report, count, table};
use crate::output::size;

#[derive(Debug, Serialize)]
struct Space {
    drives: Vec<DriveSpace>,
    /// Groups of drives that share one file system, by name.
    shared: Vec<Vec<String>>,
    total: Total,
    /// Number of removed files whose components are not freed everywhere yet.
    removing: u64,
    volumes: Vec<VolumeSpace>,
}

/// A drive, with the reserve that it keeps.
#[derive(Debug, Serialize)]
struct DriveSpace {
    #[serde(flatten)]
    facts: DriveFacts,
    /// Bytes neither used nor available to writes: kept for removing, cleaning and recovery.
    reserve_bytes: u64,
}

/// The space of all drives; each file system is counted once.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
struct Total {
    capacity_bytes: u64,
    used_bytes: u64,
    live_bytes: u64,
    dead_bytes: u64,
    reserve_bytes: u64,
    free_bytes: u64,
    /// Part of the free bytes that is held by files of freed segments, kept for new segments.
    spare_bytes: u64,
}

#[derive(Debug, Serialize)]
struct VolumeSpace {
    name: String,
    files: u64,
    file_bytes: u64,
    quota_bytes: u64,
    /// Number of files that are kept for snapshots alone.
    past_files: u64,
    /// Sum of their sizes: drives hold no more for them, and often less.
    past_bytes: u64,
}

/// Runs the command.
pub(crate) async fn run(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let status = status_soon(&client).await?;
    // Bytes on a replaced drive can be neither read nor written.
    let rows: Vec<DriveRow> =
        status.drives.into_iter().filter(|drive| drive.state != DriveState::Replaced).collect();
    let facts = drive_facts(&rows).into_iter().zip(&rows);
    let drives = facts.map(|(facts, row)| DriveSpace { facts, reserve_bytes: reserve_bytes(row) }).collect();
    let groups = file_systems(&rows);
    let shared = groups.iter().filter(|group| group.is_shared()).map(names).collect();
    let total = total(&groups);
    let removing = status.removing;
    let space = Space { total, shared, removing, volumes: volume_space(&client).await?, drives };
    report.facts(&space, show)
}

/// Divisor for a hint: it is printed if more than this part (1/8) of the used bytes is dead.
const DEAD_PART: u64 = 8;

fn show(space: &Space) -> String {
    let row = |name: &str, sizes: [u64; 6]| -> Vec<String> {
        [name.to_owned()].into_iter().chain(sizes.map(size::show)).collect()
    };
    let of_drive = |drive: &DriveSpace| {
        let DriveFacts { capacity_bytes, used_bytes, live_bytes, dead_bytes, free_bytes, .. } = drive.facts;
        [capacity_bytes, used_bytes, live_bytes, dead_bytes, drive.reserve_bytes, free_bytes]
    };
    let Total { capacity_bytes, used_bytes, live_bytes, dead_bytes, reserve_bytes, free_bytes, .. } =
        space.total;
    let all = [capacity_bytes, used_bytes, live_bytes, dead_bytes, reserve_bytes, free_bytes];
    let drives =
        space.drives.iter().map(|drive| row(&drive.facts.name, of_drive(drive))).chain([row("total", all)]);
    let volumes = space.volumes.iter().map(|volume| {
        let quota = if volume.quota_bytes == 0 { "none".to_owned() } else { size::show(volume.quota_bytes) };
        vec![volume.name.clone(), volume.files.to_string(), size::show(volume.file_bytes), quota]
    });
    let header = ["drive", "capacity", "used", "live", "dead", "reserve", "free"];
    let mut text = table(&header, &[1, 2, 3, 4, 5, 6], drives);
    text.push_str("free can be written; the reserve is kept for removing and cleaning; redundancy takes its part of both\n");
    if dead_bytes > used_bytes / DEAD_PART {
        text.push_str(&format!(
            "{} are dead (removed, overwritten, or what records cost): drives at rest give back what they can within \
             minutes, and a write that needs it waits for it\n",
            size::show(dead_bytes)
        ));
    }
    if space.removing > 0 {
        text.push_str(&format!(
            "{} being removed: their bytes on the drives become dead once the drives have been told\n",
            match space.removing {
                1 => "1 file is".to_owned(),
                more => format!("{more} files are"),
            }
        ));
    }
    for names in &space.shared {
        text.push_str(&format!(
            "{} share the space of one file system, which the total counts once\n",
            names.join(", ")
        ));
    }
    let mut text = format!("{text}\n{}", table(&["volume", "files", "bytes", "quota"], &[1, 2, 3], volumes));
    text.extend(space.volumes.iter().filter(|volume| volume.past_files > 0).map(|volume| {
        format!(
            "snapshots of {} keep {} of at most {}: `braid snapshot ls braid://{}` says which, `braid snapshot rm` frees \
             them\n",
            volume.name,
            count(volume.past_files, "file"),
            size::show(volume.past_bytes),
            volume.name
        )
    }));
    text
}

fn names(group: &OnOneFileSystem<'_>) -> Vec<String> {
    group.drives.iter().map(|drive| drive.name.clone()).collect()
}

fn total(groups: &[OnOneFileSystem<'_>]) -> Total {
    let mut total = Total::default();
    for group in groups {
        for drive in &group.drives {
            total.used_bytes += drive.used_bytes;
            total.live_bytes += drive.live_bytes;
            total.dead_bytes += drive.used_bytes.saturating_sub(drive.live_bytes);
            total.spare_bytes += drive.spare_bytes;
        }
        total.reserve_bytes += group.reserve_bytes();
        total.free_bytes = total.free_bytes.saturating_add(group.free_bytes());
    }
    total.capacity_bytes =
        total.used_bytes.saturating_add(total.reserve_bytes).saturating_add(total.free_bytes);
    total
}

async fn volume_space(client: &Client) -> Result<Vec<VolumeSpace>, Failure> {
    let volumes = client.volumes().await?.into_iter().map(|row| VolumeSpace {
        name: row.name,
        files: row.files,
        file_bytes: row.file_bytes,
        quota_bytes: row.quota_bytes,
        past_files: row.past_files,
        past_bytes: row.past_bytes,
    });
    Ok(volumes.collect())
}
