//! `braid snapshot restore`: a directory or file becomes again what it was in a snapshot.
//!
//! Only what differs is changed ([`apply`]). Each file is copied to a file without a name, which then takes
//! the old one's place: programs that have the old one open go on with it. A snapshot of the present comes
//! first, so that a restore can be taken back. If the command is broken off, each file is the old or the new
//! one; the command, given again, goes on.

mod apply;
mod copies;
mod pairs;

use std::path::Path;
use std::sync::Arc;

use braid_client::{Buffered, Client, Name};
use braid_wire::Reason;
use braid_wire::control::{EntryKind, StatRow};
use serde::Serialize;

use crate::copy;
use crate::files::names::{remote, show_remote};
use crate::output::exit::{Exit, Failure};
use crate::output::rate::{Bar, Progress};
use crate::output::report::{Report, count};
use crate::output::{size, time};
use crate::{args, connect};

use apply::Restore;
pub(crate) use copies::give_xattrs;

/// The outcome of a restore, in `--json`.
#[derive(Debug, Default, Serialize)]
struct Restored {
    /// The name in the snapshot.
    from: String,
    /// The name that was restored.
    place: String,
    /// The snapshot that shows what was there before; absent if nothing was there, or nothing differed.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    /// Files that were copied back.
    files: u64,
    /// Sum of their sizes in bytes.
    bytes: u64,
    /// Files that were left alone, as they have the former size and time (`--update`).
    same: u64,
    /// Directories, links and special files that were made.
    made: u64,
    /// Names that were moved back.
    renamed: u64,
    /// Names that were removed.
    removed: u64,
    /// Files and directories that only got their attributes back.
    attributes: u64,
    /// Things that could not be restored, as told on standard error.
    failed: u64,
    seconds: f64,
}

/// Runs the command.
pub(crate) async fn run(
    asked: args::SnapshotRestore,
    cluster: Option<&Path>,
    report: Report,
) -> Result<(), Failure> {
    let source = remote(&asked.source)?;
    if source.snapshot().is_none() {
        let why = format!("{} is in no snapshot", show_remote(&source));
        let remedy = "name the snapshot after the volume: braid://VOLUME@NAME/PATH";
        return Err(Failure::new(Exit::Usage, "restore".to_owned(), why).remedy(remedy));
    }
    if let Some(target) = asked.target {
        let copy = copy::whole(&asked.source, &target, asked.update, asked.quiet);
        return copy::run(copy, cluster, report).await;
    }
    let place = source.in_no_snapshot();
    let client = connect::cluster(cluster).await?;
    let was = client.stat_itself(&source).await?;
    let now = match client.stat_itself(&place).await {
        Ok(row) => Some(row),
        Err(error) if error.reason() == Some(Reason::NotFound) => None,
        Err(error) => return Err(error.into()),
    };
    let bar = if asked.quiet { Bar::Hidden } else { Bar::beside(report) };
    let progress = Arc::new(Progress::begin(None, bar).count_files(None));
    let mut restored =
        Restored { from: show_remote(&source), place: show_remote(&place), ..Restored::default() };
    let is_directory = was.kind() == EntryKind::Directory;
    match &now {
        Some(now) if is_directory && now.file == was.file => {
            let changes = client.differences(&source, &place).all().await?;
            if !changes.is_empty() {
                restored.before = Some(keep_present(&client, &place).await?);
                Restore::new(&client, &source, &was, now, &progress, asked.update)
                    .run(changes, &mut restored)
                    .await?;
            }
        }
        Some(now) if is_directory || now.kind() == EntryKind::Directory => {
            let why = "what has its name now is another directory, or none";
            let remedy = format!(
                "restore the directory above it, or name a new place: braid snapshot restore {} NEW",
                show_remote(&source)
            );
            return Err(
                Failure::new(Exit::Conflict, format!("restore {}", restored.place), why).remedy(remedy)
            );
        }
        _ => {
            let above = place.parent().unwrap_or_else(|| place.clone());
            if now.is_some() {
                restored.before = Some(keep_present(&client, &above).await?);
            }
            let above = client.stat(&above).await?;
            let restore = Restore::new(&client, &source, &was, &above, &progress, asked.update);
            let name = place.file_name().unwrap_or_default();
            let now = now.map(|now| now.file);
            restore.one(&was, above.file, name, now, &mut restored).await?;
        }
    }
    client.finish().await;
    restored.seconds = progress.end().as_secs_f64();
    let failed = restored.failed;
    if !asked.quiet || report.json {
        report.facts(&restored, show)?;
    }
    match failed {
        0 => Ok(()),
        _ => {
            let why = format!("{} not restored, as told above; the rest is", count(failed, "thing"));
            Err(Failure::new(Exit::Failed, "restore", why))
        }
    }
}

/// Makes a snapshot of what is there. Returns the name under which it is read.
async fn keep_present(client: &Client, directory: &Name) -> Result<String, Failure> {
    let name = format!("before-restore-{}", time::in_name(client.manager_ms()));
    client.make_snapshot(directory, &name, Buffered::WrittenOut).await?;
    let inside = directory.in_snapshot(&name).map_err(|error| Failure::usage(&name, error.to_string()))?;
    Ok(show_remote(&inside))
}

fn show(restored: &Restored) -> String {
    let Restored { files, bytes, same, made, renamed, removed, attributes, .. } = restored;
    let mut parts = Vec::new();
    if *files > 0 {
        parts.push(format!("{} copied back, {}", count(*files, "file"), size::show(*bytes)));
    }
    let others = [
        (same, "left alone"),
        (made, "made"),
        (renamed, "moved back"),
        (removed, "removed"),
        (attributes, "only given their attributes"),
    ];
    parts.extend(
        others.iter().filter(|(count, _)| **count > 0).map(|(count, what)| format!("{count} {what}")),
    );
    let done = if parts.is_empty() { "nothing differs".to_owned() } else { parts.join("; ") };
    let before = restored.before.as_ref();
    let before = before.map(|before| format!("; what was there before: {before}")).unwrap_or_default();
    format!("{}: {done}{before}\n", restored.place)
}

/// The row of a directory or file in the same snapshot as another.
fn row_in(of: &StatRow, file: braid_layout::FileId) -> StatRow {
    StatRow { file, ..of.clone() }
}
