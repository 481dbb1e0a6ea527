//! The end of a run, in which nothing goes wrong any more: all drives come up, every file is decided, the
//! drives heal themselves, and everything is checked.

use std::time::Duration;

use braid_client::Client;
use braid_client::Fault;
use braid_client::File;
use braid_client::OpenOptions;
use braid_layout::FileId;
use braid_wire::control::DriveState;

use crate::model::Model;
use crate::run::DRIVES;
use crate::trace::Trace;
use crate::workload::Target;

/// Longest time of the heal, in virtual seconds.
const HEAL_SECONDS: u64 = 120;

/// Waits until the manager hears from all drives.
pub(crate) async fn all_up(client: &Client) {
    loop {
        if let Ok(status) = client.status().await {
            let up = status.drives.iter().filter(|row| row.state == DriveState::Up).count();
            if up >= DRIVES && up == status.drives.len() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Opens the file for writing, so that the writes which its last writer left are decided, and reads it.
pub(crate) async fn decide(client: &Client, target: &Target, model: &Model) -> Result<(), String> {
    let options = OpenOptions::new().read(true).write(true).create(true).shape(target.shape).alone(true);
    let mut tries = 0;
    let file = loop {
        match client.open(&target.name, &options).await {
            Ok(file) => break file,
            Err(error) if tries == 60 => return Err(format!("a file stays closed: {error}")),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let found = read_all(&file, target).await?;
    model.decide(target.number, &found, "the administrator");
    file.close().await.map_err(|error| format!("a file that was not written does not close: {error}"))
}

/// Reads the whole file, with retries: a drive that a failing disk has just ended may be away for a moment,
/// beside one that is not healed yet.
async fn read_all(file: &File, target: &Target) -> Result<Vec<u8>, String> {
    let mut tries = 0;
    loop {
        let mut found = vec![0; usize::try_from(file.size().min(target.length)).unwrap_or(0)];
        match file.read_at(&mut found, 0).await {
            Ok(count) => {
                found.truncate(count);
                return Ok(found);
            }
            Err(error) if tries == 60 => return Err(format!("what is well cannot be read: {error}")),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until the drives have healed themselves: no file is stale, and none is to be laid out anew.
pub(crate) async fn healed(client: &Client, names: &[String], trace: &Trace) -> Result<(), String> {
    let mut last = String::new();
    for second in 0..HEAL_SECONDS {
        let mut left = 0;
        for name in names {
            match client.stale_files(name, FileId(0), 100).await {
                Ok(files) if files.is_empty() => {}
                Ok(files) => {
                    left += files.len();
                    last = format!("{name} has {} stale files", files.len());
                }
                Err(error) => {
                    left += 1;
                    last = error.to_string();
                }
            }
        }
        // Ranges and objects that a disk has lost are restored as well.
        match client.status().await {
            Ok(status) => {
                let lost = status.drives.iter().find(|row| row.scrub.lost > 0 || row.scrub.objects > 0);
                if let Some(row) = lost {
                    left += 1;
                    let lost = row.scrub.lost;
                    let objects = row.scrub.objects;
                    last = format!("{} has lost {lost} ranges, {objects} objects", row.name);
                }
            }
            Err(error) => {
                left += 1;
                last = error.to_string();
            }
        }
        match client.relayouts(FileId(0), 0).await {
            Ok(reply) if reply.files == 0 => {}
            Ok(reply) => {
                left += 1;
                last = format!("files are still to be laid out anew: {:?}", reply.rows);
            }
            Err(error) => {
                left += 1;
                last = error.to_string();
            }
        }
        if left == 0 {
            trace.event(format!("healed after {second} s"));
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Err(format!("the heal does not end: {last}"))
}

/// Checks that parity equals data, and that each byte is as it was decided. Damage of the disk must be
/// found, named and repaired.
pub(crate) async fn check(
    client: &Client,
    target: &Target,
    model: &Model,
    damaged: Option<&str>,
) -> Result<(), String> {
    let mut tries = 0;
    loop {
        let report = client.check(&target.name, |_| {}).await;
        let mut report = report.map_err(|error| format!("{} cannot be checked: {error}", target.name))?;
        if report.is_clean() {
            break;
        }
        // The damage on the drive whose disk has flipped bits is being repaired, and a drive that misses a
        // heartbeat is away for a moment.
        report.findings.retain(|finding| {
            let on = finding.unit.as_ref().map(|unit| unit.drive.as_str());
            !(matches!(finding.fault, Fault::Damaged(_)) && on == damaged && on.is_some()) || tries == 60
        });
        if !report.findings.is_empty() || tries == 60 {
            let findings = report.findings;
            let unchecked = report.unchecked;
            return Err(format!("{} is not whole: {findings:?} {unchecked:?}", target.name));
        }
        tries += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let opened = client.open(&target.name, &OpenOptions::new().read(true)).await;
    let file = opened.map_err(|error| format!("{} does not open: {error}", target.name))?;
    let found = read_all(&file, target).await?;
    model.decide(target.number, &found, "the administrator, at the end,");
    model.failure().map_or(Ok(()), Err)
}
