//! `braid drive replace`.

use std::path::Path;
use std::time::Duration;

use braid_client::{Client, Error};
use braid_wire::control::{DriveRow, DriveState};
use braid_wire::{Addresses, Reason};
use serde::Serialize;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::connect;
use crate::operate::health::silence;
use crate::output::exit::{Exit, Failure};
use crate::output::report::Report;
use crate::output::waiting::telling;

/// Maximum time for which a dead drive may still hold its lease, with a margin.
const LEASE_BOUND: Duration = Duration::from_secs(30);
const LEASE_POLL: Duration = Duration::from_millis(100);
/// A drive that was heard within this time is taken to be alive: heartbeats come at a quarter of the lease of
/// 6 s, or sooner.
const HEARD_MS: u64 = 4000;
/// Time limit for a drive to accept a connection and greet.
const ANSWER_BOUND: Duration = Duration::from_secs(5);

/// A drive that replaced another, in `--json`.
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
    let waited = || format!("until the lease of {old} has lapsed, if it is dead");
    let components = telling(waited, replace(&client, old, new)).await?;
    let facts = Replaced { old: old.to_owned(), new: new.to_owned(), components_to_rebuild: components };
    report.facts(&facts, |_| {
        format!(
            "{new} takes the place of {old} and makes its {components} components anew: `braid heal --watch`\n"
        )
    })
}

/// Replaces a drive. If the drive has just died, this waits until its lease has lapsed; if it still sends
/// heartbeats, the replacement is refused.
pub async fn replace(client: &Client, old: &str, new: &str) -> Result<u64, Failure> {
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

pub async fn row(client: &Client, drive: &str) -> Result<Option<DriveRow>, Error> {
    let called =
        |row: &DriveRow| row.name == drive || row.drive.to_string() == drive || row.drive.short() == drive;
    Ok(client.status().await?.drives.into_iter().find(called))
}

/// Waits while the drive is coming back: it sends heartbeats, and has no lease before it was told of the
/// columns that went out while it was away. Returns its row then. A drive that goes silent, whose disk hangs,
/// or that is still without a lease after the time limit, is away.
pub(crate) async fn come_back(client: &Client, mut row: DriveRow) -> Result<DriveRow, Failure> {
    let returning =
        |row: &DriveRow| row.state == DriveState::Away && row.stalled_ms == 0 && row.silent_ms < HEARD_MS;
    let end = Instant::now() + LEASE_BOUND;
    while returning(&row) && Instant::now() < end {
        sleep(LEASE_POLL).await;
        match self::row(client, &row.drive.to_string()).await? {
            Some(now) => row = now,
            None => break,
        }
    }
    Ok(row)
}

/// Refuses to rebuild a drive that is away. The manager knows of nothing to rebuild on it, yet its columns
/// cannot be read, so "nothing to do" would be wrong. (The name of a replaced drive stands for its successor,
/// which the manager resolves.)
pub(crate) async fn must_serve(row: &DriveRow) -> Result<(), Failure> {
    let refuse = |why: String| {
        Err(Failure::new(Exit::DrivesAway, format!("rebuild {}", row.name), why).remedy(format!(
            "start it on {} ({}), or if it is lost give its columns to another: `braid drive replace {} NEW`",
            row.host, row.directory, row.name
        )))
    };
    match row.state {
        DriveState::Away => {
            let silent = silence(row);
            refuse(format!("it is away, {silent}: nothing can be brought up to date on it"))
        }
        // A drive that has just died, or hangs, counts as up until its lease has lapsed.
        DriveState::Up => match timeout(ANSWER_BOUND, greeted(&row.addresses)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => refuse(format!("it does not answer at {}: {error}", row.addresses)),
            Err(_) => {
                refuse(format!("it gave no answer at {} in {} s", row.addresses, ANSWER_BOUND.as_secs()))
            }
        },
        _ => Ok(()),
    }
}

/// Waits for the first byte from a drive, which speaks first, on any of its addresses. An accepted connection
/// alone proves nothing: the kernel accepts for a process that hangs or is just ending.
async fn greeted(addresses: &Addresses) -> std::io::Result<()> {
    let mut calls = JoinSet::new();
    for address in addresses.iter().map(str::to_owned) {
        calls.spawn(async move { TcpStream::connect(address).await?.read_exact(&mut [0]).await.map(|_| ()) });
    }
    let mut last = Err(std::io::Error::new(std::io::ErrorKind::NotFound, "it has no address"));
    while let Some(called) = calls.join_next().await {
        last = called.map_err(std::io::Error::other).flatten();
        if last.is_ok() {
            break;
        }
    }
    last
}
