//! `braid status --jobs`: the manager's background jobs.

use std::path::Path;
use std::time::Duration;

use braid_wire::control::JobRow;
use serde::Serialize;
use tokio::time::timeout;

use crate::connect::{self, PATIENCE, no_answer};
use crate::output::exit::Failure;
use crate::output::report::{Report, table};
use crate::output::size;

/// Waits above this, in milliseconds, stand for ever: the job is done.
const NEVER_MS: u64 = 1 << 62;

/// A job in `--json`.
#[derive(Debug, Serialize)]
struct JobFacts {
    name: String,
    about: String,
    running: bool,
    /// Number of rounds that have ended since the manager's start.
    rounds: u64,
    /// Duration of the last round that has ended.
    took_ms: u64,
    /// Time since the round began, for a job that is running; else since the last one ended.
    since_ms: u64,
    /// Time until the next round; null if the job is running, or done for good.
    next_ms: Option<u64>,
    done: u64,
    /// Amount of the present work in all; null if it is not known.
    total: Option<u64>,
    unit: String,
    /// Amount done per second since the present work began; null if nothing is done yet.
    rate: Option<f64>,
    /// Time until the present work is done, at that rate; null if it is not known.
    left_ms: Option<u64>,
    /// Number of rounds that failed in a row.
    failures: u64,
    /// The last error; null if there was none since the manager's start.
    error: Option<String>,
    /// Time since that error.
    error_ms: u64,
}

impl From<JobRow> for JobFacts {
    fn from(row: JobRow) -> JobFacts {
        let total = (row.total > 0).then_some(row.total);
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = (row.work_ms > 0).then(|| row.done as f64 * 1000.0 / row.work_ms as f64);
        let left = total.map(|total| total.saturating_sub(row.done)).filter(|_| row.done > 0);
        let left_ms = left.map(|left| {
            let left_ms = u128::from(left) * u128::from(row.work_ms) / u128::from(row.done);
            u64::try_from(left_ms).unwrap_or(u64::MAX)
        });
        JobFacts {
            name: row.name,
            about: row.about,
            running: row.running,
            rounds: row.rounds,
            took_ms: row.took_ms,
            since_ms: row.since_ms,
            next_ms: (!row.running && row.next_ms < NEVER_MS).then_some(row.next_ms),
            done: row.done,
            total,
            unit: row.unit,
            rate,
            left_ms,
            failures: row.failures,
            error: (!row.error.is_empty()).then_some(row.error),
            error_ms: row.error_ms,
        }
    }
}

/// Runs `braid status --jobs`.
pub(crate) async fn run(cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let Ok(jobs) = timeout(PATIENCE, client.jobs()).await else { return Err(no_answer(&client)) };
    let facts: Vec<JobFacts> = jobs?.into_iter().map(JobFacts::from).collect();
    report.facts(&facts, |facts| show(facts))
}

fn show(jobs: &[JobFacts]) -> String {
    let rows = jobs.iter().map(|job| {
        vec![job.name.clone(), state(job), progress(job), job.rounds.to_string(), job.about.clone()]
    });
    let errors: String = jobs.iter().filter_map(error_line).collect();
    table(&["job", "state", "progress", "rounds", "what it does"], &[3], rows) + &errors
}

fn state(job: &JobFacts) -> String {
    match job.next_ms {
        _ if job.running => format!("runs for {}", time(job.since_ms)),
        Some(next_ms) if job.failures > 0 => format!("failed, again in {}", time(next_ms)),
        Some(next_ms) => format!("again in {}", time(next_ms)),
        None => "done".to_owned(),
    }
}

fn progress(job: &JobFacts) -> String {
    let amount = |amount| match job.unit.as_str() {
        "bytes" => size::show(amount),
        _ => amount.to_string(),
    };
    let unit = if job.unit == "bytes" { String::new() } else { format!(" {}", job.unit) };
    let left = job.left_ms.filter(|left_ms| *left_ms > 0);
    let left = left.map(|left_ms| format!(", {} left", time(left_ms))).unwrap_or_default();
    match job.total {
        Some(total) => format!("{} of {}{unit}{left}", amount(job.done), amount(total)),
        None if job.done > 0 => format!("{}{unit}", amount(job.done)),
        None => String::new(),
    }
}

fn error_line(job: &JobFacts) -> Option<String> {
    let error = job.error.as_ref()?;
    Some(format!("last error of {}, {} ago: {error}\n", job.name, time(job.error_ms)))
}

/// A duration in its largest fitting unit.
fn time(ms: u64) -> String {
    match Duration::from_millis(ms).as_secs() {
        0 => format!("{ms} ms"),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> JobRow {
        JobRow {
            name: "relayout".to_owned(),
            about: "Lays files out anew.".to_owned(),
            running: false,
            rounds: 7,
            took_ms: 12,
            since_ms: 100,
            next_ms: 400,
            done: 0,
            total: 0,
            unit: String::new(),
            work_ms: 0,
            failures: 0,
            error: String::new(),
            error_ms: 0,
        }
    }

    #[test]
    fn a_job_says_when_it_runs_again_how_far_it_is_and_what_failed() {
        let idle = JobFacts::from(row());
        assert_eq!(
            (state(&idle), progress(&idle), error_line(&idle)),
            ("again in 400 ms".into(), String::new(), None)
        );
        let busy = JobRow {
            running: true,
            since_ms: 90_000,
            done: 3,
            total: 9,
            unit: "files".into(),
            work_ms: 60_000,
            ..row()
        };
        let busy = JobFacts::from(busy);
        assert_eq!(state(&busy), "runs for 90 s");
        assert_eq!(progress(&busy), "3 of 9 files, 2 min left");
        assert_eq!((busy.left_ms, busy.rate), (Some(120_000), Some(0.05)));
        let failed = JobRow { failures: 3, error: "drive-2 is away".into(), error_ms: 5_000, ..row() };
        let failed = JobFacts::from(failed);
        assert_eq!(state(&failed), "failed, again in 400 ms");
        assert_eq!(
            error_line(&failed).as_deref(),
            Some("last error of relayout, 5 s ago: drive-2 is away\n")
        );
        let done = JobFacts::from(JobRow { next_ms: u64::MAX - 3, ..row() });
        assert_eq!(state(&done), "done");
        let bytes = JobFacts::from(JobRow { done: 1 << 20, unit: "bytes".into(), work_ms: 10, ..row() });
        assert_eq!(progress(&bytes), size::show(1 << 20));
    }
}
