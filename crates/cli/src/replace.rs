//! `braid drive replace` and `braid rebuild`.

use std::path::Path;
use std::time::Duration;

use braid_client::{Client, Error};
use braid_wire::Reason;
use braid_wire::control::{DriveRow, DriveState};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::args;
use crate::connect;
use crate::exit::{Exit, Failure};
use crate::rate::{Progress, Rate};
use crate::report::{Report, count};
use crate::size;

/// How long a drive that died may still hold its lease, with a margin.
const LEASE_BOUND: Duration = Duration::from_secs(30);
const LEASE_POLL: Duration = Duration::from_millis(100);

/// A rebuild's result in `--json`.
#[derive(Debug, Serialize)]
struct Facts {
    drive: String,
    files: u64,
    files_failed: usize,
    stripes: u64,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
}

/// A drive that took another's place, in `--json`.
#[derive(Debug, Serialize)]
struct Replaced {
    old: String,
    new: String,
    components_to_rebuild: u64,
}

/// Runs `braid drive replace`.
pub(crate) async fn run(old: &str, new: &str, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    if old == new {
        return Err(Failure::usage(format!("replace {old}"), "it cannot take its own place"));
    }
    let client = connect::cluster(cluster).await?;
    let components = replace(&client, old, new).await?;
    let facts = Replaced { old: old.to_owned(), new: new.to_owned(), components_to_rebuild: components };
    report.facts(&facts, |_| {
        format!(
            "{new} takes the place of {old}: {components} components to rebuild with `braid rebuild {new}`\n"
        )
    })
}

/// Replaces a drive. One that has just died is waited for until its lease has lapsed; one that goes on beating is not.
pub(crate) async fn replace(client: &Client, old: &str, new: &str) -> Result<u64, Failure> {
    let end = Instant::now() + LEASE_BOUND;
    let mut silent_ms = 0;
    loop {
        let refused = match client.replace_drive(old, new).await {
            Ok(components) => return Ok(components),
            Err(error) if error.reason() == Some(Reason::DriveInUse) && Instant::now() < end => error,
            Err(error) => return Err(error.into()),
        };
        let Some(row) = row(client, old).await? else { return Err(refused.into()) };
        if old == new || (row.state == DriveState::Up && row.silent_ms < silent_ms) {
            return Err(refused.into());
        }
        silent_ms = row.silent_ms;
        sleep(LEASE_POLL).await;
    }
}

async fn row(client: &Client, drive: &str) -> Result<Option<DriveRow>, Error> {
    let called =
        |row: &DriveRow| row.name == drive || row.drive.to_string() == drive || row.drive.short() == drive;
    Ok(client.status().await?.drives.into_iter().find(called))
}

/// Runs `braid rebuild`.
pub(crate) async fn rebuild(
    rebuild: args::Rebuild,
    cluster: Option<&Path>,
    report: Report,
) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let progress = Progress::begin(None, !report.json);
    progress.name(format!("rebuild {}", rebuild.drive));
    let done = client.rebuild(&rebuild.drive, |at| progress.reached(at.bytes)).await?;
    let rate = Rate { bytes: done.bytes, time: progress.end() };
    let facts = Facts {
        drive: rebuild.drive,
        files: done.files,
        files_failed: done.failed.len(),
        stripes: done.stripes,
        bytes: rate.bytes,
        seconds: rate.time.as_secs_f64(),
        bytes_per_second: rate.bytes_per_second(),
    };
    report.line(&facts, |facts| {
        format!(
            "{}: {} files, {} in {:.2} s, {}",
            facts.drive,
            facts.files,
            size::show(facts.bytes),
            facts.seconds,
            rate.show()
        )
    })?;
    all_rebuilt(done, &facts.drive)
}

/// Whether every file was rebuilt; if not, the first reason.
pub(crate) fn all_rebuilt(done: braid_client::Rebuilt, drive: &str) -> Result<(), Failure> {
    let failed = done.failed.len();
    match done.failed.into_iter().next() {
        None => Ok(()),
        Some((file, error)) => {
            let away = error.reason() == Some(Reason::NoDrive);
            let exit = Failure::from(error);
            // The drive is known, as it has files to rebuild: it does not answer.
            let code = if away { Exit::DrivesAway } else { exit.exit };
            let files = count(u64::try_from(failed).unwrap_or(u64::MAX), "file");
            let why = format!("{files} failed, the first is file {file}: {exit}");
            Err(Failure::new(code, format!("rebuild {drive}"), why)
                .remedy("the others are done; run it again"))
        }
    }
}
