//! `braid bench qualify`: what all drives do together, measured by a run as users make it, and kept by the
//! manager.

use std::path::Path;

use braid_client::{Client, DataDirection};
use braid_layout::DriveId;
use braid_wire::control::{DriveRow, DriveState, QualifyAct, WholeRate};
use serde::Serialize;

use crate::args::Qualify;
use crate::connect::{self, status_soon};
use crate::operate::reserve::bytes_per_second;
use crate::operate::whole_run::{Measured, Phase, Plan, QUALIFY, measure};
use crate::output::exit::{Exit, Failure};
use crate::output::interrupt::{GRACE_DEMO, Interrupts, Of};
use crate::output::rate::{Bar, Progress};
use crate::output::report::{Report, count};
use crate::output::size;

/// This client's processors are what limits if they are so busy, in thousandths.
const BUSY_PERMILLE: u64 = 800;
/// A rate of so many tenths of that of the parts is theirs.
const NEAR_PARTS_TENTHS: u64 = 8;
/// Fewest and most files by default.
const FILES: std::ops::RangeInclusive<usize> = 4..=64;

/// A run's result, in `--json`.
#[derive(Debug, Serialize)]
struct Facts {
    /// True if the manager keeps it.
    kept: bool,
    /// Reason why it is not kept; empty if it is, or was not to be.
    refused: String,
    volume: String,
    files: u64,
    /// Names of the drives that took part.
    drives: Vec<String>,
    /// Drives in service.
    drives_in_service: u64,
    read: Way,
    write: Way,
}

/// One direction of a result, in `--json`.
#[derive(Debug, Serialize)]
struct Way {
    /// Bytes that the drives sent or took in, parity included.
    bytes_per_second: u64,
    /// Bytes of files; null if the rate was told.
    file_bytes_per_second: Option<u64>,
    /// Rate of the drives by their own parts; null if that is not known.
    parts_bytes_per_second: Option<u64>,
    /// Part of this client's processors that was busy, in thousandths; null if the rate was told.
    client_busy_permille: Option<u64>,
    /// Limit of the rate, as far as that is known.
    limit: &'static str,
}

/// Runs the command. A signal ends it after the files are removed.
pub(crate) async fn run(asked: Qualify, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    Interrupts::end_after(GRACE_DEMO)?;
    let mut interrupts = Interrupts::new(Of::Command)?;
    let client = tokio::select! {
        client = connect::cluster(cluster) => client?,
        _ = interrupts.next() => return Err(Interrupts::failure()),
    };
    if asked.forget {
        client.qualify(QualifyAct::Forget, None).await?;
        return report.say("what all drives do together is forgotten: they are booked by their own parts");
    }
    let rows = status_soon(&client).await?.drives;
    let rows: Vec<DriveRow> = rows.into_iter().filter(|row| row.state != DriveState::Replaced).collect();
    let told = asked.read.zip(asked.write);
    if !asked.force {
        refuse_unquiet(&client, &rows, told.is_some()).await?;
    }
    let facts = match told {
        Some((read, write)) => told_facts(&asked, &rows, bytes_per_second(read), bytes_per_second(write)),
        None => {
            let up = rows.iter().filter(|row| row.state == DriveState::Up);
            let free_bytes = up.clone().map(|row| row.free_bytes).sum();
            let files = asked.files.map_or(up.count().clamp(*FILES.start(), *FILES.end()), usize::from);
            let plan = Plan { volume: asked.volume.clone(), files, seconds: asked.seconds, free_bytes };
            let progress = Progress::begin(None, Bar::beside(report));
            let measured = measure(&client, &plan, &progress, &mut interrupts).await?;
            progress.end();
            measured_facts(&asked, &rows, files, &measured)
        }
    };
    keep(&client, &asked, &rows, facts, report).await
}

/// Refuses a run whose result would not be that of all drives, or that would be in others' way.
async fn refuse_unquiet(client: &Client, rows: &[DriveRow], told: bool) -> Result<(), Failure> {
    let refuse = |exit, why: String, remedy: &str| Err(Failure::new(exit, QUALIFY, why).remedy(remedy));
    let away: Vec<&str> =
        rows.iter().filter(|row| row.state != DriveState::Up).map(|row| row.name.as_str()).collect();
    if !away.is_empty() {
        let why = format!("not all drives are in service: {}", away.join(", "));
        return refuse(
            Exit::DrivesAway,
            why,
            "bring them back, or measure those that are there with --force",
        );
    }
    let reserved = client.reservations().await?.reservations.len();
    if reserved > 0 && !told {
        let reserved = count(u64::try_from(reserved).unwrap_or(u64::MAX), "reservation");
        let why = format!("{reserved} in force: the run would be in their way, and they in its");
        return refuse(Exit::Busy, why, "wait until they have ended (braid reserve ls), or --force");
    }
    Ok(())
}

/// Hands a result to the manager, and prints it.
async fn keep(
    client: &Client,
    asked: &Qualify,
    rows: &[DriveRow],
    facts: Facts,
    report: Report,
) -> Result<(), Failure> {
    let mut facts = facts;
    let limited = |way: &Way| way.limit == Limit::CLIENT;
    let is_limited = limited(&facts.read) || limited(&facts.write);
    if !asked.dry_run && !asked.force && is_limited {
        facts.refused = "this client's processors were busy: the drives may do more".to_owned();
    } else if !asked.dry_run {
        let ids = rows.iter().filter(|row| facts.drives.contains(&row.name)).map(|row| row.drive);
        let whole = WholeRate {
            read_bytes_per_second: facts.read.bytes_per_second,
            write_bytes_per_second: facts.write.bytes_per_second,
            measured_ms: 0,
            drives: ids.collect::<Vec<DriveId>>(),
            by: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        };
        let act = if asked.force { QualifyAct::KeepAnyway } else { QualifyAct::Keep };
        facts.refused = client.qualify(act, Some(whole)).await?.refused;
        facts.kept = facts.refused.is_empty();
    }
    report.facts(&facts, show)?;
    if facts.refused.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, QUALIFY, facts.refused).remedy(
        "the last result stays in force; take this one with --force, or run several clients at once with --dry-run and \
         hand in the sums: --read, --write",
    ))
}

/// Limits of rates, in words.
struct Limit;

impl Limit {
    const CLIENT: &'static str = "this client's processors";
    const PARTS: &'static str = "the drives' own parts";
    const ABOVE: &'static str = "above the drives' own parts: not all came to the disks";
    const OTHER: &'static str = "something that the drives share, or the way to this client";
    const UNKNOWN: &'static str = "";
}

fn limit_of(rate: u64, parts: Option<u64>, busy_permille: Option<u64>) -> &'static str {
    match parts {
        Some(parts) if rate > parts => Limit::ABOVE,
        Some(parts) if rate >= parts / 10 * NEAR_PARTS_TENTHS => Limit::PARTS,
        _ if busy_permille.is_some_and(|busy| busy >= BUSY_PERMILLE) => Limit::CLIENT,
        Some(_) => Limit::OTHER,
        None => Limit::UNKNOWN,
    }
}

fn measured_facts(asked: &Qualify, rows: &[DriveRow], files: usize, measured: &Measured) -> Facts {
    let of = |drive: &&DriveRow| measured.drives.contains(&drive.drive);
    let drives: Vec<&DriveRow> = rows.iter().filter(of).collect();
    let way = |rate: &Phase, direction| {
        let parts = of_parts(&drives, direction);
        Way {
            bytes_per_second: rate.drive_bytes_per_second,
            file_bytes_per_second: Some(rate.file_bytes_per_second),
            parts_bytes_per_second: parts,
            client_busy_permille: Some(rate.busy_permille),
            limit: limit_of(rate.drive_bytes_per_second, parts, Some(rate.busy_permille)),
        }
    };
    Facts {
        kept: false,
        refused: String::new(),
        volume: asked.volume.clone(),
        files: u64::try_from(files).unwrap_or(u64::MAX),
        drives: drives.iter().map(|row| row.name.clone()).collect(),
        drives_in_service: u64::try_from(rows.len()).unwrap_or(u64::MAX),
        read: way(&measured.read, DataDirection::Read),
        write: way(&measured.write, DataDirection::Write),
    }
}

/// The facts of rates that were measured elsewhere, by several clients: all drives took part.
fn told_facts(asked: &Qualify, rows: &[DriveRow], read: u64, write: u64) -> Facts {
    let drives: Vec<&DriveRow> = rows.iter().filter(|row| row.state == DriveState::Up).collect();
    let way = |rate: u64, direction| {
        let parts = of_parts(&drives, direction);
        Way {
            bytes_per_second: rate,
            file_bytes_per_second: None,
            parts_bytes_per_second: parts,
            client_busy_permille: None,
            limit: limit_of(rate, parts, None),
        }
    };
    Facts {
        kept: false,
        refused: String::new(),
        volume: asked.volume.clone(),
        files: 0,
        drives: drives.iter().map(|row| row.name.clone()).collect(),
        drives_in_service: u64::try_from(rows.len()).unwrap_or(u64::MAX),
        read: way(read, DataDirection::Read),
        write: way(write, DataDirection::Write),
    }
}

/// Bytes a second of drives by their own disks and rails; `None`: one of them is not calibrated.
fn of_parts(drives: &[&DriveRow], way: DataDirection) -> Option<u64> {
    let of = |row: &&DriveRow| row.parts.as_ref()?.bytes_per_second(way);
    drives.iter().map(of).try_fold(0_u64, |sum, rate| Some(sum.saturating_add(rate?)))
}

fn show(facts: &Facts) -> String {
    let way = |name: &str, way: &Way| {
        let mut line = format!("{name}: {}", size::show_rate(way.bytes_per_second));
        if let Some(files) = way.file_bytes_per_second {
            line.push_str(&format!(" at the drives, {} of files", size::show_rate(files)));
        }
        if let Some(parts) = way.parts_bytes_per_second {
            line.push_str(&format!("; their parts: {}", size::show_rate(parts)));
        }
        if !way.limit.is_empty() {
            line.push_str(&format!("; limited by {}", way.limit));
        }
        line + "\n"
    };
    let took_part = format!("{} of {} drives took part\n", facts.drives.len(), facts.drives_in_service);
    let kept = if facts.kept { "kept: no drive is booked for more than its share of this\n" } else { "" };
    way("read", &facts.read) + &way("write", &facts.write) + &took_part + kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_named_as_far_as_it_is_known() {
        for (rate, parts, busy, limit) in [
            (101, Some(100), Some(999), Limit::ABOVE),
            (80, Some(100), Some(999), Limit::PARTS),
            (79, Some(100), Some(800), Limit::CLIENT),
            (79, Some(100), Some(799), Limit::OTHER),
            (79, Some(100), None, Limit::OTHER),
            (79, None, Some(900), Limit::CLIENT),
            (79, None, Some(100), Limit::UNKNOWN),
        ] {
            assert_eq!(limit_of(rate, parts, busy), limit, "{rate} {parts:?} {busy:?}");
        }
    }
}
