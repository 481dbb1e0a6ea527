//! `braid drive calibrate` and `braid drive ls --cost`: what drives' parts cost.

use std::path::Path;
use std::time::Duration;

use braid_client::{Client, Error};
use braid_layout::DriveId;
use braid_wire::Reason;
use braid_wire::control::{DriveRow, DriveState, QualifyAct, WholeRate};
use braid_wire::data::{
    CalibrateAct, CalibrateReply, DiskCharge, DiskCost, DiskWay, DriveParts, ProcessorWay,
};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::connect::{self, status_soon};
use crate::output::exit::{Exit, Failure};
use crate::output::rate::{self, Bar, Progress};
use crate::output::report::{Report, table};
use crate::output::{size, time};

/// Interval between two looks at a drive that is being calibrated.
const POLL: Duration = Duration::from_millis(200);
/// Longest wait for a calibration, which takes a few seconds.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest wait until the manager has heard of it, in the next heartbeat.
const KNOWS_WAIT_MAX: Duration = Duration::from_secs(15);

/// The cost of a drive's parts, in `--json`.
#[derive(Debug, Serialize)]
struct CostFacts {
    drive: String,
    /// The last good calibration; null if there is none.
    cost: Option<Cost>,
    /// The part of the capacity that the disk is believed to have now, in thousandths.
    derate_permille: u32,
    /// Reason for a derate below 1000.
    derate_cause: String,
    /// The device that the disk was made as slow as; null for a disk as it is.
    model: Option<Disk>,
    /// Bytes a second of the drive's rail, as told; 0 if it was not.
    rail_bytes_per_second: u64,
    /// Reason why a newer result was refused; empty if the last one is good.
    refused: String,
    /// The drive's share of what all drives do together; absent if that was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    qualified: Option<Share>,
}

/// A drive's share of what all drives do together.
#[derive(Debug, Clone, Serialize)]
struct Share {
    read_bytes_per_second: u64,
    write_bytes_per_second: u64,
    /// Time of the run, in milliseconds since 1970.
    measured_ms: u64,
    /// Number of drives that took part.
    drives: u64,
    /// True if this drive did.
    took_part: bool,
    /// The machine that read and wrote.
    by: String,
}

#[derive(Debug, Serialize)]
struct Cost {
    /// Time of the calibration, in milliseconds since 1970.
    measured_ms: u64,
    disk: Disk,
    read_processor: Processor,
    write_processor: Processor,
    /// The measured curves.
    points: Vec<Point>,
}

#[derive(Debug, Serialize)]
struct Disk {
    /// `sum` or `larger`: how the time of an operation and of its bytes are charged.
    charge: &'static str,
    read: Way,
    write: Way,
    sync_ns: u64,
}

#[derive(Debug, Serialize)]
struct Way {
    operation_ns: u64,
    bytes_per_second: u64,
}

#[derive(Debug, Serialize)]
struct Processor {
    request_ns: u64,
    byte_ps: u64,
}

#[derive(Debug, Serialize)]
struct Point {
    direction: &'static str,
    bytes: u64,
    operation_ns: u64,
}

fn facts(drive: String, parts: &DriveParts) -> CostFacts {
    let processor = |way: &ProcessorWay| Processor { request_ns: way.request_ns, byte_ps: way.byte_ps };
    let cost = parts.cost.as_ref().map(|cost| Cost {
        measured_ms: cost.measured_ms,
        disk: disk(&cost.disk),
        read_processor: processor(&cost.read_processor),
        write_processor: processor(&cost.write_processor),
        points: cost
            .points
            .iter()
            .map(|point| Point {
                direction: if point.write { "write" } else { "read" },
                bytes: point.bytes,
                operation_ns: point.operation_ns,
            })
            .collect(),
    });
    CostFacts {
        drive,
        cost,
        derate_permille: parts.derate,
        derate_cause: parts.derate_cause.clone(),
        model: parts.model.as_ref().map(disk),
        rail_bytes_per_second: parts.rail_bytes_per_second,
        refused: parts.refused.clone(),
        qualified: None,
    }
}

/// A drive's share of the whole: all have the same.
fn share(whole: &WholeRate, drive: DriveId) -> Share {
    let drives = u64::try_from(whole.drives.len()).unwrap_or(u64::MAX).max(1);
    Share {
        read_bytes_per_second: whole.read_bytes_per_second / drives,
        write_bytes_per_second: whole.write_bytes_per_second / drives,
        measured_ms: whole.measured_ms,
        drives,
        took_part: whole.drives.contains(&drive),
        by: whole.by.clone(),
    }
}

fn disk(cost: &DiskCost) -> Disk {
    let way = |way: &DiskWay| Way { operation_ns: way.operation_ns, bytes_per_second: way.bytes_per_second };
    let charge = if cost.charge == DiskCharge::Sum { "sum" } else { "larger" };
    Disk { charge, read: way(&cost.read), write: way(&cost.write), sync_ns: cost.sync_ns }
}

/// Runs `braid drive ls --cost`.
pub(crate) async fn list(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let rows = status_soon(&client).await?.drives;
    let in_use = rows.iter().filter(|row| row.state != DriveState::Replaced);
    let whole = client.qualify(QualifyAct::Look, None).await?.whole;
    let of = |row: &DriveRow| {
        let qualified = whole.as_ref().map(|whole| share(whole, row.drive));
        Some(CostFacts { qualified, ..facts(row.name.clone(), row.parts.as_ref()?) })
    };
    let in_use: Vec<&DriveRow> = in_use.collect();
    let told: Vec<CostFacts> = in_use.iter().copied().filter_map(of).collect();
    let line = whole.as_ref().map_or_else(
        || "all together: not measured (braid bench qualify)\n".to_owned(),
        |whole| show_whole(whole, &in_use),
    );
    report.facts(&told, |told| show(told) + &line)
}

/// Runs `braid drive calibrate`. Drives are calibrated one after another, as they may share a disk.
pub(crate) async fn calibrate(
    drives: Vec<String>,
    anew: bool,
    cluster: Option<&Path>,
    report: Report,
) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let rows = if drives.is_empty() { status_soon(&client).await?.drives } else { Vec::new() };
    let all = rows.into_iter().filter(|row| row.state != DriveState::Replaced).map(|row| row.name);
    let act = if anew { CalibrateAct::StartAnew } else { CalibrateAct::Start };
    let progress = Progress::begin(None, Bar::beside(report));
    let mut told = Vec::new();
    let mut failures = Vec::new();
    // One that is away does not keep the others from being calibrated.
    for drive in drives.into_iter().chain(all) {
        progress.name(&drive);
        match one(&client, &drive, act, |text| progress.name(text)).await {
            Ok((name, done)) => told.push(facts(name, &done.parts)),
            Err(failure) => failures.push(failure),
        }
    }
    progress.name("until the manager knows");
    manager_knows(&client, &told).await?;
    progress.end();
    if !told.is_empty() || failures.is_empty() {
        report.facts(&told, |told| show(told))?;
    }
    sum_up(&told, failures)
}

/// The failure of a command that calibrated these drives and failed for others.
fn sum_up(told: &[CostFacts], failures: Vec<Failure>) -> Result<(), Failure> {
    let refused: Vec<String> = told
        .iter()
        .filter(|facts| !facts.refused.is_empty())
        .map(|facts| format!("{}: {}", facts.drive, facts.refused))
        .collect();
    match failures.as_slice() {
        [] if refused.is_empty() => Ok(()),
        [] => Err(Failure::new(Exit::Failed, "calibrate", refused.join("; "))
            .remedy("the last good result stays in force, with its date")),
        [only] if refused.is_empty() => Err(only.clone()),
        [first, ..] => {
            let all: Vec<String> = failures.iter().map(Failure::to_string).chain(refused).collect();
            Err(Failure::new(first.exit, "calibrate", all.join("; ")))
        }
    }
}

/// Waits until the manager has heard these costs from the drives, whose heartbeats bring them: what is
/// reserved next is to count with them. A drive that is lost meanwhile is not waited for.
async fn manager_knows(client: &Client, told: &[CostFacts]) -> Result<(), Failure> {
    let measured = |cost: &Option<Cost>| cost.as_ref().map(|cost| cost.measured_ms);
    let end = Instant::now() + KNOWS_WAIT_MAX;
    loop {
        let rows = status_soon(client).await?.drives;
        let is_known = |facts: &CostFacts| {
            rows.iter().filter(|row| row.name == facts.drive && row.state == DriveState::Up).all(|row| {
                let known = row.parts.as_ref().and_then(|parts| parts.cost.as_ref());
                known.map(|cost| cost.measured_ms) == measured(&facts.cost)
            })
        };
        if told.iter().all(is_known) || Instant::now() > end {
            return Ok(());
        }
        sleep(POLL).await;
    }
}

/// Calibrates one drive, and waits for the end.
async fn one(
    client: &Client,
    drive: &str,
    act: CalibrateAct,
    tell: impl Fn(String),
) -> Result<(String, CalibrateReply), Failure> {
    let before = client.calibrate(drive, CalibrateAct::Look).await.map_err(|error| failure(error, drive))?;
    let end = Instant::now() + WAIT_MAX;
    let mut now = client.calibrate(drive, act).await.map_err(|error| failure(error, drive))?;
    while now.calibration.running || now.calibration.ended == before.calibration.ended {
        if Instant::now() > end {
            let why = format!("it has not ended after {} s: its disk hangs", WAIT_MAX.as_secs());
            return Err(Failure::new(Exit::Timeout, format!("calibrate {drive}"), why));
        }
        tell(format!("{drive}: {} %", now.calibration.done / 10));
        sleep(POLL).await;
        now = client.calibrate(drive, CalibrateAct::Look).await.map_err(|error| failure(error, drive))?;
    }
    Ok((now.name, now.calibration))
}

fn failure(error: Error, drive: &str) -> Failure {
    match error.reason() {
        Some(Reason::DriveInUse) => Failure::new(Exit::Busy, format!("calibrate {drive}"), error.to_string())
            .remedy("stop them, wait 3 seconds, and repeat the command"),
        Some(Reason::NotServing) => {
            Failure::new(Exit::DrivesAway, "", error.to_string()).remedy("see `braid status`")
        }
        _ => error.into(),
    }
}

/// The rates of the whole, and the set of drives that they are of.
fn show_whole(whole: &WholeRate, now: &[&DriveRow]) -> String {
    let count = whole.drives.len();
    let missing = now.iter().filter(|row| !whole.drives.contains(&row.drive)).count();
    let gone = whole.drives.iter().filter(|drive| now.iter().all(|row| row.drive != **drive)).count();
    let changed = match (missing, gone) {
        (0, 0) => String::new(),
        (missing, gone) => {
            format!("; since then {missing} came and {gone} went: measure again")
        }
    };
    let each = |rate: u64| size::show_rate(rate / u64::try_from(count).unwrap_or(u64::MAX).max(1));
    format!(
        "all together: read {}, write {} with {count} drives, {} by {}; each has a share of {} and {}{changed}\n",
        size::show_rate(whole.read_bytes_per_second),
        size::show_rate(whole.write_bytes_per_second),
        time::show(whole.measured_ms),
        whole.by,
        each(whole.read_bytes_per_second),
        each(whole.write_bytes_per_second),
    )
}

fn show(told: &[CostFacts]) -> String {
    let rows = told.iter().map(|facts| {
        let of_disk =
            |text: fn(&Disk) -> String| facts.cost.as_ref().map_or_else(String::new, |cost| text(&cost.disk));
        let processor = facts.cost.as_ref().map_or_else(String::new, |cost| {
            let of = |way: &Processor| format!("{} + {} ps/B", show_ns(way.request_ns), way.byte_ps);
            format!("{}; {}", of(&cost.read_processor), of(&cost.write_processor))
        });
        vec![
            facts.drive.clone(),
            facts.cost.as_ref().map_or_else(|| "never".to_owned(), |cost| time::show(cost.measured_ms)),
            of_disk(|disk| show_way(disk.charge, &disk.read)),
            of_disk(|disk| show_way(disk.charge, &disk.write)),
            of_disk(|disk| show_ns(disk.sync_ns)),
            processor,
            format!("{:.2}", f64::from(facts.derate_permille) / 1000.0),
            match facts.rail_bytes_per_second {
                0 => "not told".to_owned(),
                bytes => format!("{}/s", size::show(bytes)),
            },
            if facts.model.is_some() { "modelled".to_owned() } else { String::new() },
        ]
    });
    let header =
        ["drive", "calibrated", "read", "write", "sync", "processor: read; write", "derate", "rail", "disk"];
    let notes = told.iter().flat_map(|facts| {
        let cause = (!facts.derate_cause.is_empty())
            .then(|| format!("derated: {}: {}\n", facts.drive, facts.derate_cause));
        let refused = (!facts.refused.is_empty())
            .then(|| format!("refused: {}: {}; the last good result stays\n", facts.drive, facts.refused));
        cause.into_iter().chain(refused)
    });
    notes.collect::<String>() + &table(&header, &[6], rows)
}

/// Cost in one direction: fixed time and rate, which are added or of which the larger counts.
#[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
fn show_way(charge: &str, way: &Way) -> String {
    let joined = if charge == "sum" { "+" } else { "or" };
    format!("{} {joined} {}", show_ns(way.operation_ns), rate::show(way.bytes_per_second as f64))
}

/// A short time with about three digits.
fn show_ns(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{} us", (ns + 500) / 1000),
        _ => format!("{} ms", (ns + 500_000) / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use braid_wire::data::DriveCost;

    use super::*;

    #[test]
    fn failures_for_drives_are_told_together() {
        let parts = DriveParts {
            cost: None,
            derate: 1000,
            derate_cause: String::new(),
            model: None,
            rail_bytes_per_second: 0,
            refused: String::new(),
        };
        let good = || facts("d1".to_owned(), &parts);
        let bad = || CostFacts { refused: "it is slow".to_owned(), ..good() };
        let away = |drive: &str| Failure::new(Exit::DrivesAway, format!("calibrate {drive}"), "away");
        assert_eq!(sum_up(&[good()], Vec::new()), Ok(()));
        let one = sum_up(&[good()], vec![away("d2")]).expect_err("one is away");
        assert_eq!(one, away("d2"));
        let all = sum_up(&[good(), bad()], vec![away("d2"), away("d3")]).expect_err("two are away");
        assert_eq!(all.exit, Exit::DrivesAway);
        for part in ["calibrate d2: away", "calibrate d3: away", "d1: it is slow"] {
            assert!(all.to_string().contains(part), "{all}");
        }
        assert_eq!(sum_up(&[bad()], Vec::new()).expect_err("refused").exit, Exit::Failed);
    }

    #[test]
    fn costs_are_shown_with_what_was_refused() {
        let way = DiskWay { operation_ns: 8_000_000, bytes_per_second: 200 << 20 };
        let disk = DiskCost { charge: DiskCharge::Sum, read: way, write: way, sync_ns: 1_500 };
        let processor = ProcessorWay { request_ns: 9_999, byte_ps: 80 };
        let cost = DriveCost {
            disk,
            read_processor: processor,
            write_processor: processor,
            measured_ms: 0,
            points: Vec::new(),
        };
        let mut parts = DriveParts {
            cost: Some(cost),
            derate: 750,
            derate_cause: "slow".to_owned(),
            model: Some(disk),
            rail_bytes_per_second: 0,
            refused: "far off".to_owned(),
        };
        let shown = show(&[facts("d".to_owned(), &parts)]);
        for text in [
            "derated: d: slow\n",
            "refused: d: far off; the last good result stays\n",
            "1970-01-01 00:00:00Z",
            "8000 us + 200 MiB/s",
            "1500 ns",
            "9999 ns + 80 ps/B",
            "0.75",
            "not told",
            "modelled",
        ] {
            assert!(shown.contains(text), "{text}: {shown}");
        }
        (parts.cost, parts.derate) = (None, 1000);
        assert!(show(&[facts("d".to_owned(), &parts)]).contains("never"));
    }
}
