//! `braid df`: the space of drives and volumes. Drives that share a file system each report all that is free there; the total
//! counts it once, where that can be seen: for drives on this host.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use braid_client::Client;
use serde::Serialize;

use crate::connect;
use crate::exit::Failure;
use crate::report::{Report, table};
use crate::size;
use crate::status::{DriveFacts, drive_facts, soon};

#[derive(Debug, Serialize)]
struct Space {
    drives: Vec<DriveFacts>,
    /// Drives on this host that use one file system, by name.
    shared: Vec<Vec<String>>,
    total: Total,
    volumes: Vec<VolumeSpace>,
}

/// The space of all drives, that of each file system once.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
struct Total {
    capacity_bytes: u64,
    used_bytes: u64,
    live_bytes: u64,
    free_bytes: u64,
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
    let drives = drive_facts(&soon(&client).await?.drives);
    let groups = by_file_system(&drives);
    let shared = groups.iter().filter(|group| group.drives.len() > 1).map(Group::names).collect();
    let space = Space { total: total(&groups), shared, volumes: volume_space(&client).await?, drives };
    report.facts(&space, show)
}

fn show(space: &Space) -> String {
    let row = |name: &str, sizes: [u64; 4]| -> Vec<String> {
        [name.to_owned()].into_iter().chain(sizes.map(size::show)).collect()
    };
    let Total { capacity_bytes, used_bytes, live_bytes, free_bytes } = space.total;
    let drives = space
        .drives
        .iter()
        .map(|drive| {
            row(&drive.name, [drive.capacity_bytes, drive.used_bytes, drive.live_bytes, free(drive)])
        })
        .chain([row("total", [capacity_bytes, used_bytes, live_bytes, free_bytes])]);
    let volumes = space.volumes.iter().map(|volume| {
        let quota = if volume.quota_bytes == 0 { "none".to_owned() } else { size::show(volume.quota_bytes) };
        vec![volume.name.clone(), volume.files.to_string(), size::show(volume.file_bytes), quota]
    });
    let mut text = table(&["drive", "capacity", "used", "live", "free"], &[1, 2, 3, 4], drives);
    for names in &space.shared {
        text.push_str(&format!(
            "{} share the space of one file system, which the total counts once\n",
            names.join(", ")
        ));
    }
    format!("{text}\n{}", table(&["volume", "files", "bytes", "quota"], &[1, 2, 3], volumes))
}

fn free(drive: &DriveFacts) -> u64 {
    drive.capacity_bytes.saturating_sub(drive.used_bytes)
}

/// Drives on one file system, or a single one whose file system cannot be seen from here.
struct Group<'a> {
    drives: Vec<&'a DriveFacts>,
    /// What is free on the file system, where it can be seen.
    available: Option<u64>,
}

impl Group<'_> {
    fn names(&self) -> Vec<String> {
        self.drives.iter().map(|drive| drive.name.clone()).collect()
    }
}

fn by_file_system(drives: &[DriveFacts]) -> Vec<Group<'_>> {
    let (mut groups, mut known) = (Vec::new(), BTreeMap::new());
    for drive in drives {
        // Only a drive on this host has a process here; another's directory of the same name is another directory.
        let device =
            drive.pid.and_then(|_| fs::metadata(&drive.directory).ok()).map(|metadata| metadata.dev());
        match device.and_then(|device| known.get(&device).copied()) {
            Some(index) => {
                let group: &mut Group<'_> = &mut groups[index];
                group.drives.push(drive);
            }
            None => {
                device.map(|device| known.insert(device, groups.len()));
                let available = device.and_then(|_| rustix::fs::statvfs(&drive.directory).ok());
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
        // Several may have bounds of their own below what the file system has.
        let mut space = Total::default();
        for drive in &group.drives {
            space.used_bytes += drive.used_bytes;
            space.live_bytes += drive.live_bytes;
            space.free_bytes = space.free_bytes.saturating_add(free(drive));
        }
        if group.drives.len() > 1 {
            space.free_bytes = space.free_bytes.min(group.available.unwrap_or(u64::MAX));
        }
        total.used_bytes += space.used_bytes;
        total.live_bytes += space.live_bytes;
        total.free_bytes = total.free_bytes.saturating_add(space.free_bytes);
        total.capacity_bytes = total.used_bytes.saturating_add(total.free_bytes);
    }
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
