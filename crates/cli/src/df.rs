//! `braid df`: the space of drives and volumes. "Free" is what can be written now. The reserve that each
//! drive keeps for removing and cleaning is shown separately, and so are dead bytes, which become free once
//! they are cleaned. Drives on one file system each report all of its free space; the total counts it once
//! where that can be detected, which is for drives on this host.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use braid_client::Client;
use serde::Serialize;

use crate::connect::{self, status_soon};
use crate::exit::Failure;
use crate::report::{Report, table};
use crate::size;
use crate::stat::REPLACED;
use crate::status::{DriveFacts, drive_facts};

#[derive(Debug, Serialize)]
struct Space {
    drives: Vec<DriveSpace>,
    /// Drives on this host that use one file system, by name.
    shared: Vec<Vec<String>>,
    total: Total,
    /// Removed files whose components are not freed everywhere yet.
    removing: u64,
    volumes: Vec<VolumeSpace>,
}

/// A drive with what it keeps.
#[derive(Debug, Serialize)]
struct DriveSpace {
    #[serde(flatten)]
    facts: DriveFacts,
    /// Neither used nor available to writes: kept for removing, cleaning and recovery.
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
    /// The part of the free bytes that is held by files of freed segments, kept for new segments.
    spare_bytes: u64,
}

#[derive(Debug, Serialize)]
struct VolumeSpace {
    name: String,
    files: u64,
    file_bytes: u64,
    quota_bytes: u64,
}

/// Runs the command.
pub(crate) async fn run(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let status = status_soon(&client).await?;
    // What a replaced drive has can be neither read nor written.
    let drives = drive_facts(&status.drives).into_iter().filter(|drive| drive.state != REPLACED);
    let drives: Vec<DriveSpace> = drives.map(DriveSpace::new).collect();
    let groups = by_file_system(&drives);
    let shared = groups.iter().filter(|group| group.drives.len() > 1).map(Group::names).collect();
    let (total, removing) = (total(&groups), status.removing);
    let space = Space { total, shared, removing, volumes: volume_space(&client).await?, drives };
    report.facts(&space, show)
}

impl DriveSpace {
    fn new(facts: DriveFacts) -> DriveSpace {
        // A drive that the manager has not heard from yet reports zeros.
        let told = facts.used_bytes > 0 || facts.free_bytes > 0;
        let rest = facts.capacity_bytes.saturating_sub(facts.used_bytes).saturating_sub(facts.free_bytes);
        DriveSpace { reserve_bytes: if told { rest } else { 0 }, facts }
    }
}

/// A warning is printed when more than one part in so many of the used bytes is dead.
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
            "{} being removed: what drives hold of them is dead once they were told\n",
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
    format!("{text}\n{}", table(&["volume", "files", "bytes", "quota"], &[1, 2, 3], volumes))
}

/// Drives on one file system, or a single one whose file system cannot be seen from here.
struct Group<'a> {
    drives: Vec<&'a DriveSpace>,
    /// Free bytes of the file system, if it can be seen from here.
    available: Option<u64>,
}

impl Group<'_> {
    fn names(&self) -> Vec<String> {
        self.drives.iter().map(|drive| drive.facts.name.clone()).collect()
    }
}

fn by_file_system(drives: &[DriveSpace]) -> Vec<Group<'_>> {
    let (mut groups, mut known) = (Vec::new(), BTreeMap::new());
    for drive in drives {
        // Only a drive on this host has a process here. The same path on another host is another directory.
        let device = drive
            .facts
            .pid
            .and_then(|_| fs::metadata(&drive.facts.directory).ok())
            .map(|metadata| metadata.dev());
        match device.and_then(|device| known.get(&device).copied()) {
            Some(index) => {
                let group: &mut Group<'_> = &mut groups[index];
                group.drives.push(drive);
            }
            None => {
                device.map(|device| known.insert(device, groups.len()));
                let available = device.and_then(|_| rustix::fs::statvfs(&drive.facts.directory).ok());
                let available = available.map(|space| space.f_bavail.saturating_mul(space.f_frsize));
                groups.push(Group { drives: vec![drive], available });
            }
        }
    }
    groups
}

fn total(groups: &[Group<'_>]) -> Total {
    let mut total = Total::default();
    for group in groups {
        let mut space = Total::default();
        let mut least = u64::MAX;
        for DriveSpace { facts, reserve_bytes } in &group.drives {
            space.used_bytes += facts.used_bytes;
            space.live_bytes += facts.live_bytes;
            space.dead_bytes += facts.dead_bytes;
            space.spare_bytes += facts.spare_bytes;
            space.free_bytes = space.free_bytes.saturating_add(facts.free_bytes);
            least = least.min(*reserve_bytes);
        }
        // The drives may have capacity bounds below what the file system has. If not, they can write until
        // only the smallest of their reserves is left.
        if group.drives.len() > 1 {
            let available = group.available.map_or(u64::MAX, |free| free.saturating_add(space.spare_bytes));
            space.free_bytes = space.free_bytes.min(available.saturating_sub(least));
        }
        total.used_bytes += space.used_bytes;
        total.live_bytes += space.live_bytes;
        total.dead_bytes += space.dead_bytes;
        total.spare_bytes += space.spare_bytes;
        let shares = group.drives.len() > 1 && group.available.is_some();
        let reserves = group.drives.iter().map(|drive| drive.reserve_bytes);
        total.reserve_bytes += if shares { least } else { reserves.sum() };
        total.free_bytes = total.free_bytes.saturating_add(space.free_bytes);
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
    });
    Ok(volumes.collect())
}
