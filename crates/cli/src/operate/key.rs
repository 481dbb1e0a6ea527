//! `braid key ls|rotate|revoke|rejoin`.

use std::path::Path;
use std::time::Duration;

use braid_client::{Client, Name};
use braid_layout::ClientId;
use braid_wire::control::{KeyTurning, KeysReply};
use serde::Serialize;
use tokio::time::Instant;

use crate::files::names::remote;
use crate::output::duration;
use crate::output::exit::{Exit, Failure};
use crate::output::report::{Report, complain, table};
use crate::{args, connect};

/// Maximum time that `rotate` waits for drives to hear of a turn.
const HEARD_WAIT: Duration = Duration::from_secs(30);
/// Pause between two looks at what drives have heard.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The keys in `--json`.
#[derive(Debug, Serialize)]
struct Listed {
    volumes: Vec<VolumeKeys>,
    drives: Vec<DriveKey>,
    clients: Vec<ClientSeen>,
}

#[derive(Debug, Serialize)]
struct VolumeKeys {
    name: String,
    /// Epoch of the newer working keys.
    epoch: u32,
    /// Milliseconds since the epoch, by the manager's clock; 0: never turned.
    turned_ms: u64,
    /// Drives that have not heard of the last turn.
    behind: Vec<String>,
}

#[derive(Debug, Serialize)]
struct DriveKey {
    name: String,
    /// Number of the drive's key.
    number: u32,
    /// Milliseconds since the epoch, by the manager's clock; 0: never turned.
    turned_ms: u64,
    /// True until the drive has heard that its key is to be turned.
    is_turning: bool,
    /// True if the drive may join anew.
    may_rejoin: bool,
}

#[derive(Debug, Serialize)]
struct ClientSeen {
    /// The client's number, as text: it has more digits than many JSON readers keep.
    client: String,
    address: String,
    silent_ms: u64,
    /// Files that it has open for writing.
    writes: u64,
}

/// The result of `rotate` in `--json`.
#[derive(Debug, Serialize)]
struct Rotated {
    volumes: Vec<String>,
    drives: Vec<String>,
    /// Drives that have not heard of it yet.
    waiting_for: Vec<String>,
}

/// Runs the command.
pub(crate) async fn run(command: args::Keys, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    match command {
        args::Keys::Ls => report.facts(&Listed::from(client.keys().await?), show),
        args::Keys::Rotate(asked) => rotate(&client, asked, report).await,
        args::Keys::Revoke(asked) => revoke(&client, asked, report).await,
        args::Keys::Rejoin { drive } => Ok(client.rotate_keys(KeyTurning::Rejoin, &drive, false).await?),
    }
}

async fn rotate(client: &Client, asked: args::KeyRotate, report: Report) -> Result<(), Failure> {
    let named = asked.volumes.iter().map(|volume| remote(volume)).collect::<Result<Vec<Name>, _>>()?;
    if let Some(name) = named.iter().find(|name| !name.is_root()) {
        let why = format!("{name} is not a volume");
        let remedy = format!("name the volume alone: braid://{}", name.volume());
        return Err(Failure::new(Exit::Usage, "turn keys".to_owned(), why).remedy(remedy));
    }
    let (volumes, drives) = if asked.all {
        let known = client.keys().await?;
        let volumes = known.volumes.into_iter().map(|row| row.name).collect();
        (volumes, known.drives.into_iter().map(|row| row.name).collect())
    } else {
        (named.iter().map(|name| name.volume().to_owned()).collect::<Vec<_>>(), asked.drives)
    };
    // One whose keys cannot be turned does not keep the others from it.
    let mut failed = None;
    let volumes = turn(client, KeyTurning::Volume, volumes, asked.now, &mut failed).await;
    let drives = turn(client, KeyTurning::Drive, drives, asked.now, &mut failed).await;
    let began = Instant::now();
    let waiting_for = loop {
        let waiting = waiting(&client.keys().await?, &volumes, &drives);
        if waiting.is_empty() || began.elapsed() >= HEARD_WAIT {
            break waiting;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    };
    report.facts(&Rotated { volumes, drives, waiting_for }, |rotated| {
        let mut text = String::new();
        for volume in &rotated.volumes {
            text += &format!("turned the working keys of braid://{volume}\n");
        }
        for drive in rotated.drives.iter().filter(|drive| !rotated.waiting_for.contains(drive)) {
            text += &format!("turned the key of {drive}\n");
        }
        if !rotated.waiting_for.is_empty() {
            text +=
                &format!("not heard yet by {}: they do when they are back\n", rotated.waiting_for.join(", "));
        }
        if !rotated.drives.is_empty() {
            text += "back up the manager now: older backups do not know these keys (braid manager backup)\n";
        }
        text
    })?;
    failed.map_or(Ok(()), Err)
}

/// Turns keys, and returns those that were turned; `failed`: the first failure.
async fn turn(
    client: &Client,
    what: KeyTurning,
    names: Vec<String>,
    now: bool,
    failed: &mut Option<Failure>,
) -> Vec<String> {
    let mut turned = Vec::new();
    for name in names {
        match client.rotate_keys(what, &name, now).await {
            Ok(()) => turned.push(name),
            Err(error) if failed.is_none() => *failed = Some(error.into()),
            Err(error) => complain(&Failure::from(error).to_string()),
        }
    }
    turned
}

/// The drives that have not heard of these turns yet.
fn waiting(known: &KeysReply, volumes: &[String], drives: &[String]) -> Vec<String> {
    let of_volumes = known.volumes.iter().filter(|row| volumes.contains(&row.name));
    let mut waiting: Vec<String> = of_volumes.flat_map(|row| row.behind.clone()).collect();
    let turning = known.drives.iter().filter(|row| row.is_turning && drives.contains(&row.name));
    waiting.extend(turning.map(|row| row.name.clone()));
    waiting.sort();
    waiting.dedup();
    waiting
}

async fn revoke(client: &Client, asked: args::KeyRevoke, report: Report) -> Result<(), Failure> {
    if let Some(number) = asked.client {
        let is_known = client.keys().await?.clients.iter().any(|row| row.client == ClientId(number));
        client.revoke_client(ClientId(number)).await?;
        let facts = serde_json::json!({ "client": number.to_string(), "known": is_known });
        return report.facts(&facts, |_| match is_known {
            true => format!(
                "client {number} is shut out. What is started anew has another number: end its token too (braid token revoke)\n"
            ),
            false => format!("client {number} is shut out; none of this number is known now: braid key ls\n"),
        });
    }
    if let Some(drive) = &asked.drive {
        return Ok(client.rotate_keys(KeyTurning::Revoke, drive, true).await?);
    }
    for file in &asked.files {
        client.revoke_file(&remote(file)?).await?;
    }
    Ok(())
}

impl From<KeysReply> for Listed {
    fn from(reply: KeysReply) -> Listed {
        let volumes = reply.volumes.into_iter().map(|row| VolumeKeys {
            name: row.name,
            epoch: row.epoch,
            turned_ms: row.turned_ms,
            behind: row.behind,
        });
        let drives = reply.drives.into_iter().map(|row| DriveKey {
            name: row.name,
            number: row.number,
            turned_ms: row.turned_ms,
            is_turning: row.is_turning,
            may_rejoin: row.may_rejoin,
        });
        let clients = reply.clients.into_iter().map(|row| ClientSeen {
            client: row.client.to_string(),
            address: row.address,
            silent_ms: row.silent_ms,
            writes: row.writes,
        });
        Listed { volumes: volumes.collect(), drives: drives.collect(), clients: clients.collect() }
    }
}

fn show(listed: &Listed) -> String {
    let volumes = listed.volumes.iter().map(|row| {
        let state = if row.behind.is_empty() {
            "all drives have them".to_owned()
        } else {
            format!("not heard yet by {}", row.behind.join(", "))
        };
        vec![row.name.clone(), row.epoch.to_string(), state]
    });
    let drives = listed.drives.iter().map(|row| {
        let state = match (row.is_turning, row.may_rejoin) {
            (_, true) => "may join anew",
            (true, false) => "to be turned when it is heard",
            (false, false) => "",
        };
        vec![row.name.clone(), row.number.to_string(), state.to_owned()]
    });
    let clients = listed.clients.iter().map(|row| {
        let silent = duration::show(row.silent_ms);
        vec![row.client.clone(), row.address.clone(), silent, row.writes.to_string()]
    });
    let tables = [
        table(&["volume", "epoch", "state"], &[1], volumes),
        table(&["drive", "key", "state"], &[1], drives),
        table(&["client", "address", "silent for", "writes"], &[3], clients),
    ];
    tables.join("\n")
}
