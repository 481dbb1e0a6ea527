//! `braid status`, `braid df` and `braid drive ls`: what the manager knows of the cluster.

use std::path::Path;

use braid_client::Client;
use braid_wire::control::DriveRow;
use serde::Serialize;

use crate::connect;
use crate::exit::Failure;
use crate::report::{Report, table};
use crate::size;
use crate::stat::show_state;

#[derive(Debug, Serialize)]
struct Facts {
    cluster: String,
    manager: ManagerFacts,
    volumes: u64,
    files: u64,
    /// Removed files whose components are not freed everywhere yet.
    removing: u64,
    drives: Vec<DriveFacts>,
}

#[derive(Debug, Serialize)]
struct ManagerFacts {
    address: String,
    directory: String,
    pid: u32,
    uptime_ms: u64,
}

/// A drive in `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct DriveFacts {
    name: String,
    id: String,
    state: &'static str,
    address: String,
    host: String,
    rack: String,
    directory: String,
    /// Present for drives on this host.
    pid: Option<u32>,
    capacity_bytes: u64,
    used_bytes: u64,
    live_bytes: u64,
    /// Since its last heartbeat.
    silent_ms: u64,
    components: u64,
    /// Components that are out of their files' sets or being brought up to date.
    stale_components: u64,
}

#[derive(Debug, Serialize)]
struct Space {
    drives: Vec<DriveFacts>,
    volumes: Vec<VolumeSpace>,
}

#[derive(Debug, Serialize)]
struct VolumeSpace {
    name: String,
    files: u64,
    file_bytes: u64,
    quota_bytes: u64,
}

/// Runs `braid status`.
pub(crate) async fn run(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let status = client.status().await?;
    let manager = ManagerFacts {
        address: client.config().manager.clone(),
        directory: status.directory.clone(),
        pid: status.pid,
        uptime_ms: status.uptime_ms,
    };
    let facts = Facts {
        cluster: status.cluster.to_string(),
        manager,
        volumes: status.volumes,
        files: status.files,
        removing: status.removing,
        drives: drive_facts(&status.drives),
    };
    report.facts(&facts, |facts| {
        let manager = &facts.manager;
        let removing =
            if facts.removing == 0 { String::new() } else { format!(", {} being removed", facts.removing) };
        format!(
            "cluster {}\nmanager at {}, process {}, up {} s\n{} volumes, {} files{removing}\n\n{}",
            facts.cluster,
            manager.address,
            manager.pid,
            manager.uptime_ms / 1000,
            facts.volumes,
            facts.files,
            drive_table(&facts.drives)
        )
    })
}

/// Runs `braid drive ls`.
pub(crate) async fn drives(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let drives = drive_facts(&client.status().await?.drives);
    report.facts(&drives, |drives| drive_table(drives))
}

/// Runs `braid df`.
pub(crate) async fn df(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let space =
        Space { drives: drive_facts(&client.status().await?.drives), volumes: volume_space(&client).await? };
    report.facts(&space, |space| {
        let drives = space.drives.iter().map(|drive| {
            let free = drive.capacity_bytes.saturating_sub(drive.used_bytes);
            let cells = [drive.capacity_bytes, drive.used_bytes, drive.live_bytes, free].map(size::show);
            [drive.name.clone()].into_iter().chain(cells).collect()
        });
        let volumes = space.volumes.iter().map(|volume| {
            let quota =
                if volume.quota_bytes == 0 { "none".to_owned() } else { size::show(volume.quota_bytes) };
            vec![volume.name.clone(), volume.files.to_string(), size::show(volume.file_bytes), quota]
        });
        format!(
            "{}\n{}",
            table(&["drive", "capacity", "used", "live", "free"], &[1, 2, 3, 4], drives),
            table(&["volume", "files", "bytes", "quota"], &[1, 2, 3], volumes)
        )
    })
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

fn drive_facts(rows: &[DriveRow]) -> Vec<DriveFacts> {
    let here = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let facts = rows.iter().map(|row| DriveFacts {
        name: row.name.clone(),
        id: row.drive.to_string(),
        state: show_state(row.state),
        address: row.address.clone(),
        host: row.host.clone(),
        rack: row.rack.clone(),
        directory: row.directory.clone(),
        pid: (row.host == here.trim()).then_some(row.pid),
        capacity_bytes: row.capacity_bytes,
        used_bytes: row.used_bytes,
        live_bytes: row.live_bytes,
        silent_ms: row.silent_ms,
        components: row.components,
        stale_components: row.stale,
    });
    facts.collect()
}

fn drive_table(drives: &[DriveFacts]) -> String {
    let rows = drives.iter().map(|drive| {
        vec![
            drive.name.clone(),
            drive.state.to_owned(),
            drive.address.clone(),
            drive.host.clone(),
            drive.pid.map_or_else(String::new, |pid| pid.to_string()),
            size::show(drive.used_bytes),
            drive.components.to_string(),
            drive.stale_components.to_string(),
            drive.directory.clone(),
        ]
    });
    let header = ["drive", "state", "address", "host", "pid", "used", "components", "stale", "directory"];
    table(&header, &[4, 5, 6, 7], rows)
}
