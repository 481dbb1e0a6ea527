//! `braid heal` and `braid rebuild`: show how the drives heal. The drives bring stale columns up to date
//! without being asked; these commands show their progress, and set the rate.

use std::path::Path;
use std::time::Duration;

use braid_client::{Client, Error};
use braid_layout::FileId;
use braid_wire::Reason;
use braid_wire::control::{DriveState, HealRow, HealStatusReply, StatusReply};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::operate::rebalance::{self, BalanceFacts};
use crate::operate::replace::{come_back, must_serve, row};
use crate::output::exit::{Exit, Failure};
use crate::output::rate::{Bar, Progress, Rate};
use crate::output::report::{Report, count, table};
use crate::output::size;
use crate::output::waiting::telling;
use crate::{args, connect};

/// Interval between two looks at the progress.
const POLL: Duration = Duration::from_millis(200);
/// A little longer than the interval between two reports of a drive.
pub const REPORTED: Duration = Duration::from_millis(800);
/// Time without progress after which a command that waits for a heal gives up.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);
/// Time without a report after which a drive's last one no longer counts.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// Milliseconds after the manager's start during which a drive may still connect.
const COMING_MAX_MS: u64 = 20_000;
/// A drive that does not serve but was heard within this many milliseconds is about to serve.
const HEARD_MS: u64 = 3_000;
/// Number of stale files asked for at a time.
const PAGE: u32 = 4096;

/// All heals, in `--json`.
#[derive(Debug, Serialize)]
struct HealFacts {
    /// Bytes a second that each drive may write; 0 means no limit.
    rate_limit: u64,
    balance: BalanceFacts,
    drives: Vec<DriveFacts>,
}

/// A drive's heal, in `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct DriveFacts {
    drive: String,
    /// Number of components that are not up to date.
    stale_components: u64,
    /// Approximate bytes of those components; only what differs is written.
    left_bytes: u64,
    /// Number of files healed since the drive's process began.
    files: u64,
    /// Bytes compared since then.
    compared_bytes: u64,
    /// Bytes written since then.
    written_bytes: u64,
    /// Number of damaged units that were made anew.
    repaired_units: u64,
    /// Number of damaged units that could not be made anew so far.
    damaged_units: u64,
    bytes_per_second: u64,
    /// Estimated time left; absent while nothing is left or nothing moves.
    seconds_left: Option<u64>,
    /// Reason why a file could not be healed yet; empty if there is none.
    error: String,
}

/// A drive brought up to date, in `--json`.
#[derive(Debug, Serialize)]
struct Rebuilt {
    drive: String,
    files: u64,
    /// Number of files that still have an out-of-date column on the drive.
    files_left: u64,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
}

/// Runs `braid heal`.
pub(crate) async fn run(heal: args::Heal, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let mut status = client.heal_status(heal.rate).await?;
    if heal.watch {
        let began = Instant::now();
        let mut moved = Instant::now();
        let progress = Progress::begin(None, Bar::beside(report));
        let first = HealTotals::of(&status);
        let mut last = first;
        while is_going_on(&status, &client.status().await?) {
            let done = HealTotals::of(&status);
            let left: u64 = status.drives.iter().map(|row| row.left_bytes).sum();
            progress.name(format!("{} left", size::show(left)));
            progress.reached(done.since(first).written_bytes);
            if done != last {
                (last, moved) = (done, Instant::now());
            } else if moved.elapsed() > STANDSTILL_MAX {
                return Err(stands_still("heal", &status));
            }
            sleep(POLL).await;
            status = client.heal_status(None).await?;
        }
        tracing::debug!(took = ?began.elapsed(), "nothing is left");
    }
    let lost = if heal.watch { client.status().await?.drives.iter().map(|row| row.lost).sum() } else { 0 };
    let drives = status.drives.iter().map(drive_facts).collect();
    let facts = HealFacts { rate_limit: status.rate, balance: rebalance::facts(&status), drives };
    report.facts(&facts, |facts| {
        let limit = match facts.rate_limit {
            0 => "no limit".to_owned(),
            rate => format!("at most {}/s", size::show(rate)),
        };
        let balance = rebalance::line(&facts.balance);
        format!("each drive heals with {limit}\n{balance}{}", show(&facts.drives))
    })?;
    if lost == 0 {
        return Ok(());
    }
    let why = format!(
        "{} cannot be brought up to date: too few columns of their files are left",
        count(lost, "component")
    );
    Err(Failure::new(Exit::DrivesAway, "heal", why).remedy("`braid status` says what to do"))
}

/// Returns true if something is being brought up to date, or if more may follow: a drive that has just come
/// reports what it has lost a moment later.
fn is_going_on(heal: &HealStatusReply, cluster: &StatusReply) -> bool {
    let lost = |drive| cluster.drives.iter().find(|row| row.drive == drive).map_or(0, |row| row.lost);
    heal.drives.iter().any(|row| row.stale > lost(row.drive))
        || cluster.drives.iter().any(|row| match row.state {
            DriveState::Up => row.scrub.lost > 0 || row.scrub.objects > 0,
            DriveState::Away if row.silent_ms == u64::MAX => cluster.uptime_ms < COMING_MAX_MS,
            DriveState::Away => row.silent_ms < HEARD_MS,
            DriveState::Replaced => false,
        })
}

/// Facts about the drives that have something left to do.
pub(crate) fn busy(status: &HealStatusReply) -> Vec<DriveFacts> {
    status.drives.iter().filter(|row| row.stale > 0).map(drive_facts).collect()
}

/// Lines for `braid status`.
pub(crate) fn lines(drives: &[DriveFacts]) -> String {
    let line = |facts: &DriveFacts| {
        let eta = facts.seconds_left.map_or_else(String::new, |left| format!(", {left} s left"));
        let error = if facts.error.is_empty() { String::new() } else { format!("; {}", facts.error) };
        format!(
            "healing: {} has {} to bring up to date, about {}, at {}/s{eta}{error}\n",
            facts.drive,
            count(facts.stale_components, "component"),
            size::show(facts.left_bytes),
            size::show(facts.bytes_per_second)
        )
    };
    drives.iter().map(line).collect()
}

fn show(drives: &[DriveFacts]) -> String {
    if drives.is_empty() {
        return "nothing was healed, and nothing needs to be\n".to_owned();
    }
    let rows = drives.iter().map(|facts| {
        vec![
            facts.drive.clone(),
            facts.stale_components.to_string(),
            size::show(facts.left_bytes),
            facts.files.to_string(),
            size::show(facts.compared_bytes),
            size::show(facts.written_bytes),
            facts.repaired_units.to_string(),
            facts.damaged_units.to_string(),
            format!("{}/s", size::show(facts.bytes_per_second)),
            facts.seconds_left.map_or_else(String::new, |left| format!("{left} s")),
            facts.error.clone(),
        ]
    });
    let header = [
        "drive",
        "stale",
        "left",
        "files",
        "compared",
        "written",
        "repaired",
        "damaged",
        "rate",
        "time left",
        "waits for",
    ];
    table(&header, &[1, 2, 3, 4, 5, 6, 7, 8, 9], rows)
}

fn drive_facts(row: &HealRow) -> DriveFacts {
    // The last report of a silent drive says nothing about the rate now.
    let is_silent = u128::from(row.silent_ms) > SILENT_MAX.as_millis();
    let rate = if is_silent { 0 } else { row.rate };
    let error = match row.progress.error.as_str() {
        _ if is_silent && row.stale > 0 => format!("no word from it for {} s", row.silent_ms / 1000),
        error => error.to_owned(),
    };
    DriveFacts {
        drive: row.name.clone(),
        stale_components: row.stale,
        left_bytes: row.left_bytes,
        files: row.progress.files,
        compared_bytes: row.progress.compared_bytes,
        written_bytes: row.progress.written_bytes,
        repaired_units: row.progress.repaired,
        damaged_units: row.progress.damaged,
        bytes_per_second: rate,
        seconds_left: (row.left_bytes > 0).then(|| row.left_bytes.checked_div(rate)).flatten(),
        error,
    }
}

/// Totals of the work that all drives have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealTotals {
    pub(crate) files: u64,
    pub written_bytes: u64,
    compared_bytes: u64,
}

impl HealTotals {
    fn of(status: &HealStatusReply) -> HealTotals {
        let sum = |of: fn(&HealRow) -> u64| status.drives.iter().map(of).sum();
        HealTotals {
            files: sum(|row| row.progress.files),
            written_bytes: sum(|row| row.progress.written_bytes),
            compared_bytes: sum(|row| row.progress.compared_bytes),
        }
    }

    /// Work done since `before`. A drive that restarted meanwhile has begun to count again.
    fn since(self, before: HealTotals) -> HealTotals {
        HealTotals {
            files: self.files.saturating_sub(before.files),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            compared_bytes: self.compared_bytes.saturating_sub(before.compared_bytes),
        }
    }

    /// Asks for the totals until now.
    pub async fn now(client: &Client) -> Result<HealTotals, Error> {
        Ok(HealTotals::of(&client.heal_status(None).await?))
    }
}

/// Reason why a drive was not brought up to date.
pub enum Unhealed {
    Refused(Error),
    Stands(Failure),
}

impl From<Error> for Unhealed {
    fn from(error: Error) -> Unhealed {
        Unhealed::Refused(error)
    }
}

impl From<Unhealed> for Failure {
    fn from(unhealed: Unhealed) -> Failure {
        match unhealed {
            Unhealed::Refused(error) => error.into(),
            Unhealed::Stands(failure) => failure,
        }
    }
}

/// Waits until the drive has no stale column. Returns the work done since `before`, and the time it took.
pub async fn until_healed(
    client: &Client,
    drive: &str,
    before: HealTotals,
    progress: impl Fn(u64),
) -> Result<(HealTotals, Duration), Unhealed> {
    let began = Instant::now();
    let mut last = (0, before);
    let mut moved = Instant::now();
    loop {
        let left = stale_files(client, drive).await?;
        if left == 0 {
            let took = began.elapsed();
            sleep(REPORTED).await;
            return Ok((HealTotals::now(client).await?.since(before), took));
        }
        let status = client.heal_status(None).await?;
        let done = HealTotals::of(&status);
        progress(done.since(before).written_bytes);
        if (left, done) != last {
            (last, moved) = ((left, done), Instant::now());
        } else if moved.elapsed() > STANDSTILL_MAX {
            return Err(Unhealed::Stands(stands_still(&format!("rebuild {drive}"), &status)));
        }
        sleep(POLL).await;
    }
}

async fn stale_files(client: &Client, drive: &str) -> Result<u64, Error> {
    let mut after = FileId(0);
    let mut files = 0;
    loop {
        let page = client.stale_files(drive, after, PAGE).await?;
        let Some(&last) = page.last() else { return Ok(files) };
        (after, files) = (last, files + u64::try_from(page.len()).unwrap_or(u64::MAX));
    }
}

fn stands_still(what: &str, status: &HealStatusReply) -> Failure {
    let errors = status.drives.iter().map(|row| row.progress.error.as_str()).find(|error| !error.is_empty());
    let why = format!(
        "nothing has moved for {} s{}",
        STANDSTILL_MAX.as_secs(),
        errors.map_or_else(String::new, |error| format!(": {error}"))
    );
    Failure::new(Exit::DrivesAway, what.to_owned(), why)
        .remedy("the drives go on by themselves as soon as they can: braid status")
}

/// Runs `braid rebuild`.
pub(crate) async fn rebuild(
    rebuild: args::Rebuild,
    cluster: Option<&Path>,
    report: Report,
) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let known = row(&client, &rebuild.drive).await?;
    if let Some(row) = &known {
        let waited = || format!("for {} to be told what it missed", row.name);
        must_serve(&telling(waited, come_back(&client, row.clone())).await?).await?;
    }
    let before = HealTotals::now(&client).await?;
    let progress = Progress::begin(None, Bar::beside(report));
    progress.name(format!("rebuild {}", rebuild.drive));
    let healed = until_healed(&client, &rebuild.drive, before, |bytes| progress.reached(bytes)).await;
    progress.end();
    let (done, time) = match healed {
        // The name is known, so the drive, or the one that replaced it, is away.
        Err(Unhealed::Refused(error)) if known.is_some() && error.reason() == Some(Reason::NoDrive) => {
            let mut failure = Failure::from(error);
            failure.exit = Exit::DrivesAway;
            return Err(failure);
        }
        other => other?,
    };
    let rate = Rate { bytes: done.written_bytes, time };
    let facts = Rebuilt {
        drive: rebuild.drive,
        files: done.files,
        files_left: 0,
        bytes: rate.bytes,
        seconds: rate.time.as_secs_f64(),
        bytes_per_second: rate.bytes_per_second(),
    };
    report.line(&facts, |facts| {
        format!(
            "{}: up to date; {} healed meanwhile, {} in {:.2} s, {}",
            facts.drive,
            count(facts.files, "file"),
            size::show(facts.bytes),
            facts.seconds,
            rate.show()
        )
    })
}

#[cfg(test)]
mod tests {
    use braid_layout::DriveId;
    use braid_wire::control::HealProgress;

    use super::*;

    #[test]
    fn a_silent_drive_has_no_rate_and_no_time_left() {
        let progress = HealProgress {
            files: 0,
            compared_bytes: 0,
            under_way_bytes: 0,
            written_bytes: 0,
            repaired: 0,
            damaged: 0,
            error: String::new(),
        };
        let row = |silent_ms| HealRow {
            drive: DriveId(1),
            name: "d".into(),
            stale: 3,
            left_bytes: 1000,
            progress: progress.clone(),
            rate: 100,
            silent_ms,
        };
        let heard = drive_facts(&row(500));
        assert_eq!((heard.bytes_per_second, heard.seconds_left, heard.error.as_str()), (100, Some(10), ""));
        let silent = drive_facts(&row(33_000));
        assert_eq!((silent.bytes_per_second, silent.seconds_left), (0, None));
        assert_eq!(silent.error, "no word from it for 33 s");
    }
}
