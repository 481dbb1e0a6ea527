//! The manager's facts as Python's tuples and dictionaries.

use braid_layout::Shape;
use braid_wire::control::{DriveRow, Entry, EntryKind, StatRow, StatusReply, VolumeRow};
use pyo3::prelude::*;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The fields of `braidfs.Stat`: kind, size, times of modification, creation, last read and last change in
/// nanoseconds since 1970, permission bits, owner, group, links, number, a symbolic link's target.
pub(crate) type Facts = (&'static str, u64, i64, i64, i64, i64, u32, u32, u32, u32, u64, OsString);

pub(crate) fn facts(row: StatRow) -> Facts {
    let of = row.attributes;
    let modified = of.modified_ns;
    let created = of.created_ns;
    let target = OsString::from_vec(row.target);
    (
        kind(of.kind),
        of.size,
        modified,
        created,
        of.accessed_ns,
        of.changed_ns,
        of.mode,
        of.uid,
        of.gid,
        of.links,
        row.file.0,
        target,
    )
}

/// The fields of `braidfs.DirEntry`: name, kind, size, time of modification in nanoseconds since 1970,
/// number.
pub(crate) type EntryFacts = (OsString, &'static str, u64, i64, u64);

pub(crate) fn entry(entry: Entry) -> EntryFacts {
    let of = entry.attributes;
    (OsString::from_vec(entry.name), kind(of.kind), of.size, of.modified_ns, entry.file.0)
}

fn kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink => "symlink",
        EntryKind::Fifo => "fifo",
        EntryKind::Socket => "socket",
        EntryKind::CharDevice => "character device",
        EntryKind::BlockDevice => "block device",
    }
}

/// A volume, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct Volume {
    name: String,
    /// The shape of new files; `None`: the manager's default.
    shape: Option<String>,
    unit_bytes: u32,
    /// Maximum sum of the files' sizes, in bytes; `None`: no quota.
    quota_bytes: Option<u64>,
    files: u64,
    file_bytes: u64,
    created: f64,
}

impl From<VolumeRow> for Volume {
    fn from(row: VolumeRow) -> Volume {
        Volume {
            shape: row.shape.shape().ok().map(|shape: Shape| shape.to_string()),
            unit_bytes: row.shape.unit_bytes,
            name: row.name,
            quota_bytes: Some(row.quota_bytes).filter(|&bytes| bytes > 0),
            files: row.files,
            file_bytes: row.file_bytes,
            created: seconds(row.created_ms),
        }
    }
}

/// The cluster's state, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct Cluster {
    cluster: String,
    manager: String,
    uptime: f64,
    volumes: u64,
    files: u64,
    /// A message of the manager for people; `None`: none.
    notice: Option<String>,
    drives: Vec<Drive>,
}

/// A drive of the cluster, as a dictionary.
#[derive(IntoPyObject)]
pub(crate) struct Drive {
    name: String,
    state: String,
    /// The first of the drive's addresses.
    address: String,
    addresses: Vec<String>,
    host: String,
    capacity_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    components: u64,
    /// Components that are out of their file's set or are being brought up to date.
    stale: u64,
    draining: bool,
}

impl Cluster {
    pub(crate) fn new(manager: &str, status: StatusReply) -> Cluster {
        Cluster {
            cluster: status.cluster.to_string(),
            manager: manager.to_owned(),
            uptime: seconds(status.uptime_ms),
            volumes: status.volumes,
            files: status.files,
            notice: Some(status.notice).filter(|notice| !notice.is_empty()),
            drives: status.drives.into_iter().map(Drive::from).collect(),
        }
    }
}

impl From<DriveRow> for Drive {
    fn from(row: DriveRow) -> Drive {
        Drive {
            state: format!("{:?}", row.state).to_lowercase(),
            name: row.name,
            address: row.addresses.iter().next().unwrap_or_default().to_owned(),
            addresses: row.addresses.iter().map(str::to_owned).collect(),
            host: row.host,
            capacity_bytes: row.capacity_bytes,
            used_bytes: row.used_bytes,
            free_bytes: row.free_bytes,
            components: row.components,
            stale: row.stale,
            draining: row.draining,
        }
    }
}

/// Converts milliseconds to seconds, in which Python counts.
fn seconds(milliseconds: u64) -> f64 {
    std::time::Duration::from_millis(milliseconds).as_secs_f64()
}
