//! `braid scrub`: asks drives to verify what they store against its checksums, and waits until they have.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use braid_client::{Client, Error};
use braid_wire::Reason;
use braid_wire::control::{DriveState, ScrubDriveReply};
use braid_wire::data::{ScrubPhase, ScrubState};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::args;
use crate::connect::{self, status_soon};
use crate::operate::health::REMEDY_FILES;
use crate::output::exit::{Exit, Failure};
use crate::output::rate::{self, Bar, Progress};
use crate::output::report::{Report, complain, count, table};
use crate::output::{size, time};

/// Interval between two polls of a scrub's state.
const POLL: Duration = Duration::from_millis(250);
/// Time for which a drive may be away during the wait: the manager may be restarting.
const AWAY_MAX: Duration = Duration::from_secs(10);
/// Time for which a scrub may make no progress, beyond what its rate explains.
const STANDSTILL_MAX: Duration = Duration::from_secs(120);
/// Time for which a repair may make no progress before the damage is reported.
const REPAIR_MAX: Duration = Duration::from_secs(10);
/// Maximum bytes between two steps of progress: the largest unit at a quarter of the rate, times two.
const STEP_BYTES: u64 = 8 * (64 << 20);

/// A drive's scrub in `--json`.
#[derive(Debug, Serialize)]
struct ScrubFacts {
    drive: String,
    #[serde(flatten)]
    state: StateFacts,
    damaged_units: Vec<Damaged>,
    lost_keys: Vec<Lost>,
    files: Vec<WrongFile>,
}

/// A file of a running drive that its next start would miss or reject.
#[derive(Debug, Serialize)]
struct WrongFile {
    name: String,
    what: String,
}

/// The state of a scrub, in `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct StateFacts {
    state: &'static str,
    /// True if a user asked for the pass; otherwise the drive makes it by itself.
    asked: bool,
    /// Bytes a second that the scrub may read; 0 means that the drive makes no passes of its own.
    rate: u64,
    /// Bytes verified in the current pass or, if none runs, in the last one.
    verified_bytes: u64,
    /// Number of units verified in that pass.
    verified_units: u64,
    /// Approximate bytes that a pass has to verify.
    of_bytes: u64,
    /// Number of damaged units known now.
    damaged: u64,
    /// Number of lost ranges, and of partitions whose values are lost.
    lost: u64,
    /// Number of files in use that are missing, replaced or truncated.
    wrong_files: u64,
    /// Start of the pass, in milliseconds of manager time.
    began_ms: Option<u64>,
    /// End of the last pass, in milliseconds of manager time; absent if there was none.
    last_pass_ended_ms: Option<u64>,
    passes: u64,
    /// Number of damaged units that were ever made anew from the files' other columns.
    repaired: u64,
    /// Number of objects that are lost as a whole.
    lost_objects: u64,
}

#[derive(Debug, Serialize)]
struct Damaged {
    volume: Option<String>,
    partition: u64,
    object: u64,
    /// Number of the unit in its object; absent if the object as a whole is damaged.
    unit: Option<u64>,
    file: u64,
    what: String,
}

/// A range of keys about which the drive has lost all knowledge. Keys are ordered by partition: first its
/// values, then its objects.
#[derive(Debug, Serialize)]
struct Lost {
    volume: Option<String>,
    partition: u64,
    /// First object of the range; absent if the range begins at the partition's values.
    object: Option<u64>,
    /// Partition in which the range ends; absent if it has no end.
    to_partition: Option<u64>,
    /// Object before which the range ends; absent if it ends before the partition's values.
    to_object: Option<u64>,
    what: String,
}

/// Runs the command.
pub(crate) async fn run(scrub: args::Scrub, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let everyone = scrub.drives.is_empty();
    let drives = if everyone { all_drives(&client).await? } else { scrub.drives.clone() };
    let rate = (!scrub.status).then_some(scrub.rate);
    let mut said = Vec::new();
    let mut silent = Vec::new();
    for drive in drives {
        match client.scrub(&drive, rate).await {
            Ok(reply) => said.push(reply),
            // A drive that is away must not keep the others from being scrubbed.
            Err(error) if everyone && is_away(&error) => {
                complain(&failure(error).to_string());
                silent.push(drive);
            }
            Err(error) => return Err(failure(error)),
        }
    }
    if scrub.wait {
        said = wait(&client, said, report).await?;
    }
    let volumes = volumes(&client).await?;
    let facts: Vec<ScrubFacts> = said.iter().map(|reply| facts(reply, &volumes)).collect();
    report.facts(&facts, |facts| show(facts))?;
    let bad =
        |facts: &&ScrubFacts| facts.state.damaged > 0 || facts.state.lost > 0 || facts.state.wrong_files > 0;
    let damaged: Vec<&ScrubFacts> = facts.iter().filter(bad).collect();
    if scrub.wait && !damaged.is_empty() {
        let units = damaged.iter().map(|facts| facts.state.damaged).sum();
        let lost: u64 = damaged.iter().map(|facts| facts.state.lost).sum();
        let on: Vec<&str> = damaged.iter().map(|facts| facts.drive.as_str()).collect();
        let ranges = if lost > 0 { format!(" and {}", count(lost, "lost range")) } else { String::new() };
        let files: u64 = damaged.iter().map(|facts| facts.state.wrong_files).sum();
        let gone = if files > 0 { format!(" and {}", count(files, "missing file")) } else { String::new() };
        let why = format!("{}{ranges}{gone} on {}", count(units, "damaged unit"), on.join(", "));
        let remedy = if files > 0 { REMEDY_FILES } else { REMEDY };
        return Err(Failure::new(Exit::Mismatch, "scrub", why).remedy(remedy));
    }
    if silent.is_empty() {
        return Ok(());
    }
    let why = format!("not done on {}", silent.join(", "));
    Err(Failure::new(Exit::DrivesAway, "scrub", why).remedy("see `braid status`"))
}

const REMEDY: &str = "drives repair what they can by themselves, and `braid heal` says what they wait for; `braid check --all braid://VOLUME` names the files; if the damage grows, braid drive replace and braid rebuild make its columns anew on another drive";

/// Names of the drives that were not replaced.
async fn all_drives(client: &Client) -> Result<Vec<String>, Failure> {
    let drives = status_soon(client).await?.drives.into_iter();
    Ok(drives.filter(|row| row.state != DriveState::Replaced).map(|row| row.name).collect())
}

/// The volumes' names, by partition.
async fn volumes(client: &Client) -> Result<BTreeMap<u64, String>, Failure> {
    Ok(client.volumes().await?.into_iter().map(|row| (row.volume.0, row.name)).collect())
}

fn is_away(error: &Error) -> bool {
    error.reason() == Some(Reason::NotServing)
}

fn failure(error: Error) -> Failure {
    if is_away(&error) {
        return Failure::new(Exit::DrivesAway, "", error.to_string())
            .remedy("see `braid status`; a scrub goes on where it was when its drive is back");
    }
    error.into()
}

/// Waits until each drive has finished its current pass.
async fn wait(
    client: &Client,
    begun: Vec<ScrubDriveReply>,
    report: Report,
) -> Result<Vec<ScrubDriveReply>, Failure> {
    let total = begun.iter().map(|reply| reply.scrub.state.of_bytes).sum();
    let progress = Progress::begin(Some(total), Bar::beside(report));
    let mut before = 0;
    let mut done = Vec::new();
    for reply in begun {
        progress.name(&reply.name);
        let ended = wait_for(client, reply, |bytes| progress.reached(before + bytes)).await?;
        before += ended.scrub.state.bytes;
        progress.name(format!("{}: repair", ended.name));
        done.push(until_repaired(client, ended).await?);
    }
    progress.end();
    Ok(done)
}

/// Waits until the drive has repaired the damage it found, as long as it makes progress.
async fn until_repaired(client: &Client, ended: ScrubDriveReply) -> Result<ScrubDriveReply, Failure> {
    let (mut now, mut moved) = (ended, Instant::now());
    while now.scrub.state.damaged > 0 && moved.elapsed() < REPAIR_MAX {
        sleep(POLL).await;
        match client.scrub(&now.name, None).await {
            Ok(reply) => {
                if reply.scrub.state.damaged < now.scrub.state.damaged {
                    moved = Instant::now();
                }
                now = reply;
            }
            Err(error) if is_away(&error) => {}
            Err(error) => return Err(failure(error)),
        }
    }
    Ok(now)
}

async fn wait_for(
    client: &Client,
    begun: ScrubDriveReply,
    reached: impl Fn(u64),
) -> Result<ScrubDriveReply, Failure> {
    let drive = &begun.name;
    let mut last = begun.scrub.state.clone();
    let mut moved = Instant::now();
    let mut away = None;
    loop {
        match client.scrub(drive, None).await {
            Ok(reply) if reply.scrub.state.passes > begun.scrub.state.passes => return Ok(reply),
            Ok(reply) if reply.scrub.state.phase == ScrubPhase::Idle => {
                let why = "the drive has forgotten it: its scrub.toml is gone";
                return Err(
                    Failure::new(Exit::Failed, format!("scrub of {drive}"), why).remedy("start it again")
                );
            }
            Ok(reply) => {
                let state = reply.scrub.state;
                reached(state.bytes);
                away = None;
                if (state.bytes, state.units) != (last.bytes, last.units) {
                    (last, moved) = (state, Instant::now());
                }
            }
            Err(error) if is_away(&error) => {
                if away.get_or_insert_with(Instant::now).elapsed() >= AWAY_MAX {
                    return Err(failure(error));
                }
            }
            Err(error) => return Err(failure(error)),
        }
        let step = Duration::from_secs(STEP_BYTES / last.rate.max(1));
        if moved.elapsed() > STANDSTILL_MAX.saturating_add(step) {
            let why = format!("no progress in {} s: its disk hangs", moved.elapsed().as_secs());
            return Err(Failure::new(Exit::Timeout, format!("scrub of {drive}"), why));
        }
        sleep(POLL).await;
    }
}

fn facts(reply: &ScrubDriveReply, volumes: &BTreeMap<u64, String>) -> ScrubFacts {
    let damaged = reply.scrub.damaged.iter().map(|unit| Damaged {
        volume: volumes.get(&unit.partition.0).cloned(),
        partition: unit.partition.0,
        object: unit.object.0,
        unit: unit.unit,
        file: unit.file.0,
        what: unit.what.clone(),
    });
    let lost = reply.scrub.lost.iter().map(|keys| Lost {
        volume: volumes.get(&keys.partition.0).cloned(),
        partition: keys.partition.0,
        object: keys.object.map(|object| object.0),
        to_partition: keys.to_partition.map(|partition| partition.0),
        to_object: keys.to_object.map(|object| object.0),
        what: keys.what.clone(),
    });
    ScrubFacts {
        drive: reply.name.clone(),
        state: state_facts(&reply.scrub.state),
        damaged_units: damaged.collect(),
        lost_keys: lost.collect(),
        files: reply
            .scrub
            .files
            .iter()
            .map(|file| WrongFile { name: file.name.clone(), what: file.what.clone() })
            .collect(),
    }
}

/// Converts the wire form of a scrub's state for `--json`.
pub(crate) fn state_facts(state: &ScrubState) -> StateFacts {
    let moment = |ms| (ms > 0).then_some(ms);
    StateFacts {
        state: match state.phase {
            ScrubPhase::Idle => "idle",
            ScrubPhase::Running => "running",
            ScrubPhase::Paused => "paused",
        },
        asked: state.asked,
        rate: state.rate,
        verified_bytes: state.bytes,
        verified_units: state.units,
        of_bytes: state.of_bytes,
        damaged: state.damaged,
        lost: state.lost,
        wrong_files: state.wrong_files,
        began_ms: moment(state.began_ms),
        last_pass_ended_ms: moment(state.ended_ms),
        passes: state.passes,
        repaired: state.repaired,
        lost_objects: state.objects,
    }
}

impl StateFacts {
    /// A short form for a table.
    pub(crate) fn brief(&self) -> String {
        let some = |number: u64, what| if number > 0 { format!(", {number} {what}") } else { String::new() };
        let damaged = some(self.damaged, "damaged")
            + &some(self.lost, "lost")
            + &some(self.repaired, "repaired")
            + &some(self.wrong_files, "files of its store missing or not its own");
        let percent = (self.verified_bytes.saturating_mul(100)).checked_div(self.of_bytes).unwrap_or(0);
        match self.state {
            "idle" => format!("idle{damaged}"),
            state => format!("{state} {percent} %{damaged}"),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
fn show(drives: &[ScrubFacts]) -> String {
    let rows = drives.iter().map(|facts| {
        let state = &facts.state;
        vec![
            facts.drive.clone(),
            state.brief(),
            format!("{} in {}", size::show(state.verified_bytes), count(state.verified_units, "unit")),
            if state.rate == 0 { "off".to_owned() } else { rate::show(state.rate as f64) },
            state.damaged.to_string(),
            state.repaired.to_string(),
            state.passes.to_string(),
            state.last_pass_ended_ms.map_or_else(|| "never".to_owned(), time::show),
        ]
    });
    let header = ["drive", "scrub", "verified", "rate", "damaged", "repaired", "passes", "last pass ended"];
    let mut text = table(&header, &[4, 5, 6], rows);
    for facts in drives {
        for unit in &facts.damaged_units {
            let volume = volume_name(unit.volume.as_deref(), unit.partition);
            let place = unit.unit.map_or_else(|| "as a whole".to_owned(), |unit| format!("unit {unit}"));
            text += &format!("{}: {volume}, object {}, {place}: {}\n", facts.drive, unit.object, unit.what);
        }
        let listed = u64::try_from(facts.damaged_units.len()).unwrap_or(u64::MAX);
        if facts.state.damaged > listed {
            text += &format!("{}: and {} more\n", facts.drive, facts.state.damaged - listed);
        }
        for file in &facts.files {
            text += &format!("{}: {}: {}\n", facts.drive, file.name, file.what);
        }
        let listed = u64::try_from(facts.files.len()).unwrap_or(u64::MAX);
        if facts.state.wrong_files > listed {
            text += &format!("{}: and {} more files\n", facts.drive, facts.state.wrong_files - listed);
        }
        for keys in &facts.lost_keys {
            text += &format!("{}: {}: {}\n", facts.drive, keys.place(), keys.what);
        }
        let listed = u64::try_from(facts.lost_keys.len()).unwrap_or(u64::MAX);
        if facts.state.lost > listed {
            text += &format!("{}: and {} more lost ranges\n", facts.drive, facts.state.lost - listed);
        }
    }
    text
}

fn volume_name(volume: Option<&str>, partition: u64) -> String {
    volume.map_or_else(|| format!("partition {partition}"), |name| format!("volume {name}"))
}

impl Lost {
    /// The range in words.
    fn place(&self) -> String {
        let volume = volume_name(self.volume.as_deref(), self.partition);
        let values =
            (self.object, self.to_partition, self.to_object) == (None, Some(self.partition), Some(0));
        if values {
            return format!("{volume}, its values");
        }
        let key = |partition: u64, object: Option<u64>| match object {
            Some(object) => format!("object {object} of partition {partition}"),
            None => format!("partition {partition}"),
        };
        let to = self.to_partition.map_or_else(|| "the end".to_owned(), |to| key(to, self.to_object));
        format!("everything from {} up to {to}", key(self.partition, self.object))
    }
}

#[cfg(test)]
mod tests {
    use braid_layout::{ObjectId, PartitionId};
    use braid_wire::data::{LostKeys, ScrubReply};

    use super::*;

    #[test]
    fn what_is_lost_is_named_and_counted() {
        let keys = |partition, object: Option<u64>, to: Option<(u64, Option<u64>)>| LostKeys {
            partition: PartitionId(partition),
            object: object.map(ObjectId),
            to_partition: to.map(|(partition, _)| PartitionId(partition)),
            to_object: to.and_then(|(_, object)| object).map(ObjectId),
            what: "gone".to_owned(),
        };
        let lost = vec![
            keys(1, None, Some((1, Some(0)))),
            keys(0, None, Some((2, None))),
            keys(2, Some(7), Some((2, Some(9)))),
            keys(2, Some(10), None),
        ];
        let state = ScrubState { lost: 6, ..ScrubState::default() };
        let scrub = ScrubReply { state, damaged: Vec::new(), lost, files: Vec::new() };
        let reply = ScrubDriveReply { name: "d1".to_owned(), scrub };
        let facts = facts(&reply, &BTreeMap::from([(1, "main".to_owned())]));
        assert_eq!(facts.state.brief(), "idle, 6 lost");
        let text = show(std::slice::from_ref(&facts));
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("d1:")).collect();
        let expected = [
            "d1: volume main, its values: gone",
            "d1: everything from partition 0 up to partition 2: gone",
            "d1: everything from object 7 of partition 2 up to object 9 of partition 2: gone",
            "d1: everything from object 10 of partition 2 up to the end: gone",
            "d1: and 2 more lost ranges",
        ];
        assert_eq!(lines, expected);
        let json = serde_json::to_value(&facts).expect("JSON");
        assert_eq!((json["lost"].as_u64(), json["lost_keys"][2]["to_object"].as_u64()), (Some(6), Some(9)));
    }
}
