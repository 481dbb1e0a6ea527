//! Waiting for a rebuild, with a note of the time left that `braid heal` would show.

use std::time::Duration;

use braid_cli::output::exit::Failure;
use braid_wire::control::HealStatusReply;
use tokio::time::{Instant, sleep};

use super::setup::real;
use crate::bench::cluster::Cluster;

const POLL: Duration = Duration::from_millis(100);
/// Time limit for a rebuild.
const BOUND: Duration = Duration::from_secs(45);
/// The part of a rebuild after which the time left is noted.
const NOTED_AFTER: f64 = 0.3;

/// The end of a rebuild.
pub(super) struct Rebuilt {
    /// Time from the first stale column to the end.
    pub(super) took: Duration,
    /// Time left as it was told at some time, and the time that was left then.
    pub(super) eta: Option<(f64, f64)>,
    pub(super) bytes: u64,
    /// The rest when the time limit was over; empty if it ended.
    pub(super) left: String,
}

/// Waits until no column is on the drive or stale.
pub(super) async fn rebuilt(cluster: &Cluster, drive: &str) -> Result<Rebuilt, Failure> {
    let end = Instant::now() + BOUND;
    let mut began: Option<Instant> = None;
    let mut most = 0;
    let mut told: Option<(Instant, f64)> = None;
    loop {
        let status = cluster.client.heal_status(None).await?;
        let row = braid_cli::operate::replace::row(&cluster.client, drive).await?;
        let placed = row.map_or(0, |row| row.components);
        let stale: u64 = status.drives.iter().map(|row| row.stale).sum();
        let now = Instant::now();
        let left: u64 = status.drives.iter().map(|row| row.left_bytes).sum();
        most = most.max(left);
        match began {
            None if stale > 0 => began = Some(now),
            Some(began) if stale == 0 && placed == 0 => {
                let eta = told.map(|(at, eta)| (eta, (now - at).as_secs_f64()));
                return Ok(Rebuilt { took: now - began, eta, bytes: most, left: String::new() });
            }
            _ => {}
        }
        if told.is_none() && placed == 0 && left > 0 && real(left) < real(most) * (1.0 - NOTED_AFTER) {
            told = seconds_left(&status).map(|eta| (now, eta));
        }
        if now > end {
            let errors = status.drives.iter().map(|row| row.progress.error.as_str());
            let errors: String =
                errors.filter(|error| !error.is_empty()).map(|error| format!("; {error}")).collect();
            let left = format!("{stale} columns stale, {placed} not moved yet{errors}");
            let took = began.map_or(BOUND, |began| now - began);
            return Ok(Rebuilt { took, eta: None, bytes: most, left });
        }
        sleep(POLL).await;
    }
}

/// The time until the slowest drive has nothing left, as `braid heal` reckons it.
fn seconds_left(status: &HealStatusReply) -> Option<f64> {
    let busy = status.drives.iter().filter(|row| row.left_bytes > 0);
    let each: Option<Vec<f64>> =
        busy.map(|row| (row.rate > 0).then(|| real(row.left_bytes) / real(row.rate))).collect();
    each.map(|each| each.into_iter().fold(0.0, f64::max))
}
