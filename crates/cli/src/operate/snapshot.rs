//! Makes, lists, compares, restores and removes snapshots: `braid snapshot`.

pub(crate) mod differences;
pub(crate) mod keep;
pub(crate) mod restore;

use std::ffi::OsStr;
use std::path::Path;

use braid_client::{Buffered, Client, Name};
use braid_wire::control::{SnapshotMade, SnapshotRow};
use serde::Serialize;

use crate::files::names::remote;
use crate::output::exit::{Exit, Failure};
use crate::output::report::{Report, count, table};
use crate::output::{size, time};
use crate::{args, connect};

/// A snapshot that was made, in `--json`.
#[derive(Debug, Serialize)]
struct Made {
    /// The volume or directory.
    place: String,
    name: String,
    /// Name under which its root is read.
    read_as: String,
    number: u32,
    /// The moment that it shows, in milliseconds since 1970.
    taken_ms: u64,
    /// Files that were open, and whose bytes are of a moment after.
    late: u32,
    /// Longest time for which the writers of any other open file waited, in microseconds.
    pause_us: u64,
}

/// A snapshot, in `--json`.
#[derive(Debug, Serialize)]
struct Row {
    /// The volume or directory.
    place: String,
    name: String,
    number: u32,
    /// The moment that it shows, in milliseconds since 1970.
    taken_ms: u64,
    /// Files that were open, and whose bytes are of a moment after.
    late: u32,
    /// Files that are kept for this snapshot.
    kept_files: u64,
    /// Sum of their sizes.
    kept_bytes: u64,
    /// True if there may be more of them than were counted.
    more: bool,
}

/// Runs the command.
pub(crate) async fn run(
    command: args::Snapshot,
    cluster: Option<&Path>,
    report: Report,
) -> Result<(), Failure> {
    match command {
        args::Snapshot::Make(make) => {
            let directory = directory(&make.of.of)?;
            let name = make.of.name;
            let read_as = read_as(&directory, &name)?;
            let client = connect::cluster(cluster).await?;
            let buffered = if make.sync { Buffered::WrittenOut } else { Buffered::LeftOut };
            let made = client.make_snapshot(&directory, &name, buffered).await?;
            let SnapshotMade { number, taken_ms, late, pause_us } = made;
            let place = directory.to_string();
            report.facts(&Made { place, name, read_as, number, taken_ms, late, pause_us }, |made| {
                let late = match made.late {
                    0 => String::new(),
                    late => format!("; {} open for writing: late", count(late.into(), "file")),
                };
                format!("read it as {}{late}\n", made.read_as)
            })
        }
        args::Snapshot::Ls { of } => {
            let client = connect::cluster(cluster).await?;
            let rows = match of {
                Some(of) => client.snapshots(&directory(&of)?).await?,
                None => all(&client).await?,
            };
            let rows: Vec<Row> = rows.into_iter().map(Row::from).collect();
            report.facts(&rows, |rows| if rows.is_empty() { "no snapshots\n".to_owned() } else { show(rows) })
        }
        args::Snapshot::Rm(args::SnapshotOf { of, name }) => {
            let directory = directory(&of)?;
            read_as(&directory, &name)?;
            Ok(connect::cluster(cluster).await?.remove_snapshot(&directory, &name).await?)
        }
        args::Snapshot::Diff { from, to } => {
            let from = remote(&from)?;
            let to = remote(&to)?;
            differences::show(&connect::cluster(cluster).await?, &from, &to, report).await
        }
        args::Snapshot::Restore(asked) => restore::run(asked, cluster, report).await,
        args::Snapshot::Keep { of, keep } => {
            let directory = of.as_deref().map(directory).transpose()?;
            let client = connect::cluster(cluster).await?;
            if let (Some(directory), Some(counts)) = (&directory, keep) {
                return Ok(client.keep_snapshots(directory, counts).await?);
            }
            keep::show(&client, directory.as_ref(), report).await
        }
    }
}

/// The snapshots of all volumes.
async fn all(client: &Client) -> Result<Vec<SnapshotRow>, Failure> {
    let mut rows = Vec::new();
    for volume in client.volumes().await? {
        let root =
            Name::root(&volume.name).map_err(|error| Failure::usage(&volume.name, error.to_string()))?;
        rows.extend(client.snapshots(&root).await?);
    }
    Ok(rows)
}

/// The volume or directory that an argument names.
fn directory(text: &OsStr) -> Result<Name, Failure> {
    let name = remote(text)?;
    match name.snapshot() {
        None => Ok(name),
        Some(snapshot) => {
            let why = format!("{name} is in a snapshot");
            let remedy = format!("name the directory, and the snapshot's name after it: {snapshot}");
            Err(Failure::new(Exit::Usage, "find the directory".to_owned(), why).remedy(remedy))
        }
    }
}

/// The name under which a snapshot of the directory is read.
fn read_as(directory: &Name, name: &str) -> Result<String, Failure> {
    let inside = directory.in_snapshot(name);
    inside.map(|inside| inside.to_string()).map_err(|error| Failure::usage(name, error.to_string()))
}

impl From<SnapshotRow> for Row {
    fn from(row: SnapshotRow) -> Row {
        let SnapshotRow { number, name, place, taken_ms, late, files, bytes, more } = row;
        Row { place, name, number, taken_ms, late, kept_files: files, kept_bytes: bytes, more }
    }
}

fn show(rows: &[Row]) -> String {
    let cells = rows.iter().map(|row| {
        let about = if row.more { "at least " } else { "" };
        vec![
            row.place.clone(),
            row.name.clone(),
            time::show(row.taken_ms),
            row.late.to_string(),
            format!("{about}{}", row.kept_files),
            format!("{about}{}", size::show(row.kept_bytes)),
        ]
    });
    table(&["place", "name", "made", "late", "files kept", "their bytes"], &[3, 4, 5], cells)
}
