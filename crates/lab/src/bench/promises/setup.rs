//! Parts that all rows need: modelled disks, clusters of drives that have them, rates asked for, streams.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use braid_bench::promises::{Pace, Stream};
use braid_cli::DriveOptions;
use braid_cli::output::exit::{Doing, Exit, Failure};
use braid_client::{DataDirection, Name, RateAsk};
use braid_wire::control::{NotAdmitted, RateReserved, ReservationRow, ShapeSpec};
use tokio::process::Command;
use tokio::time::sleep;

use crate::bench::cluster::Cluster;

/// Number of drives of each cluster.
const DRIVES: u16 = 6;
/// A rate above that of any cluster.
const TOO_MUCH: u64 = 100_000_000_000;
/// Time for which rates are asked. Space for what is written in it is counted too.
const FOR: Duration = Duration::from_secs(120);
/// Longest wait for the manager to hear of the costs, and the interval between two looks.
const COSTS_WAIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);

/// A modelled disk.
pub(in crate::bench) struct Disks {
    pub(in crate::bench) name: &'static str,
    pub(in crate::bench) model: &'static str,
}

pub(in crate::bench) const FLASH: Disks =
    Disks { name: "flash", model: "flash,iops=2000,read=40MB/s,write=40MB/s,sync=1ms" };
pub(in crate::bench) const SPINDLE: Disks =
    Disks { name: "spindle", model: "spindle,op=8ms,read=60MB/s,write=60MB/s,sync=4ms" };
/// Disks for many streams.
pub(super) const MANY: Disks =
    Disks { name: "faster flash", model: "flash,iops=5000,read=150MB/s,write=150MB/s,sync=1ms" };
pub(super) const DISKS: [Disks; 3] = [FLASH, SPINDLE, MANY];

/// Terms of a rate to ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) direction: DataDirection,
    pub(super) streams: u32,
    pub(super) period_ms: u32,
    pub(super) survive: u8,
}

impl Terms {
    /// One stream that survives a loss.
    pub(super) fn one(direction: DataDirection) -> Terms {
        Terms { direction, streams: 1, period_ms: 100, survive: 1 }
    }
}

/// Brings up a cluster of six drives with these disks. They read nothing ahead: the rows compare what is
/// priced operation by operation with what disks then do.
pub(super) async fn up(
    parent: &Path,
    name: &str,
    disks: &Disks,
    lost_after: &str,
) -> Result<Cluster, Failure> {
    let options =
        DriveOptions::modelled(disks.model).map_err(|why| Failure::new(Exit::Usage, "model a disk", why))?;
    Cluster::up_with(parent, name, DRIVES, options.reading_ahead(0), lost_after).await
}

/// Calibrates all drives, one after another, as a user does: these disks are too slow for what a drive
/// measures at its start.
pub(in crate::bench) async fn calibrate(cluster: &Cluster) -> Result<(), Failure> {
    let doing = || "calibrate the drives".to_owned();
    let mut command = Command::new(std::env::current_exe().doing(doing)?);
    command.args(["drive", "calibrate"]).env("BRAID_CLUSTER", cluster.running.dir.root());
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    let output =
        command.stderr(Stdio::piped()).spawn().doing(doing)?.wait_with_output().await.doing(doing)?;
    if output.status.success() {
        return all_costs(cluster).await;
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::new(Exit::Failed, doing(), said))
}

/// Waits until the manager knows what all drives' disks cost.
async fn all_costs(cluster: &Cluster) -> Result<(), Failure> {
    let end = tokio::time::Instant::now() + COSTS_WAIT;
    loop {
        let rows = cluster.client.status().await?.drives;
        let known = |parts: &braid_wire::data::DriveParts| parts.cost.is_some();
        if rows.iter().all(|row| row.parts.as_ref().is_some_and(known)) {
            return Ok(());
        }
        if tokio::time::Instant::now() > end {
            return Err(Failure::new(Exit::Timeout, "wait for the disks' costs", "some are not known"));
        }
        sleep(POLL).await;
    }
}

/// Asks for a rate. With `trial` nothing is booked.
pub(super) async fn ask(
    cluster: &Cluster,
    name: &Name,
    terms: Terms,
    rate: u64,
    trial: bool,
) -> Result<RateReserved, Failure> {
    let ask = RateAsk {
        direction: terms.direction,
        rate,
        streams: terms.streams,
        period_ms: terms.period_ms,
        survive: terms.survive,
        duration_ms: u64::try_from(FOR.as_millis()).unwrap_or(u64::MAX),
        claim_ms: 0,
        rail: 0,
        shape: ShapeSpec::DEFAULT,
    };
    Ok(cluster.client.reserve_rate(name, &ask, trial).await?)
}

/// The greatest rate that would be admitted now.
pub(super) async fn greatest(cluster: &Cluster, name: &Name, terms: Terms) -> Result<u64, Failure> {
    let reply = ask(cluster, name, terms, TOO_MUCH, true).await?;
    let offers = reply.refused.iter().flat_map(|refused| &refused.offers);
    let now = offers.filter(|offer| offer.begins_ms == 0 && offer.survive >= terms.survive);
    now.map(|offer| offer.rate).max().ok_or_else(|| {
        let why = reply.refused.as_ref().map_or_else(|| "it was admitted".to_owned(), refusal);
        Failure::new(Exit::Failed, format!("find the greatest rate for {name}"), why)
    })
}

/// Reserves a rate, or says why not.
pub(super) async fn reserve(
    cluster: &Cluster,
    name: &Name,
    terms: Terms,
    rate: u64,
) -> Result<ReservationRow, Failure> {
    let reply = ask(cluster, name, terms, rate, false).await?;
    reply.admitted.ok_or_else(|| {
        let why = reply.refused.as_ref().map_or_else(String::new, refusal);
        Failure::new(Exit::NotAdmitted, format!("reserve {rate} B/s for {name}"), why)
    })
}

fn refusal(refused: &NotAdmitted) -> String {
    let offers: Vec<String> =
        refused.offers.iter().map(|offer| format!("{} B/s {}", offer.rate, offer.detail)).collect();
    format!(
        "{} ({}: {} of {} permille free); instead: {}",
        refused.detail,
        refused.resource,
        refused.needed_permille,
        refused.free_permille,
        offers.join("; ")
    )
}

/// A stream that is due at a reservation's rate, or at that of one of its streams.
pub(super) fn due(name: &Name, row: &ReservationRow, stripe_bytes: u64, ring_bytes: u64) -> Stream {
    let rate = row.rate / u64::from(row.streams.max(1));
    due_at(name, row, rate, stripe_bytes, ring_bytes)
}

/// A stream that is due at another rate than a reservation's, with its period and its bound.
pub(super) fn due_at(
    name: &Name,
    row: &ReservationRow,
    rate: u64,
    stripe_bytes: u64,
    ring_bytes: u64,
) -> Stream {
    let of_period = rate * u64::from(row.period_ms) / 1000;
    let request_bytes = (of_period / stripe_bytes).max(1) * stripe_bytes;
    let waiting = u32::try_from(row.plan.buffer_bytes / request_bytes).unwrap_or(u32::MAX).max(2);
    Stream {
        file: name.to_string(),
        write: row.direction == DataDirection::Write,
        request_bytes,
        ring_bytes,
        first: 0,
        begins_ms: 1000,
        pace: Pace::Due { rate, period_ms: row.period_ms, bound_us: row.plan.lateness_us, waiting },
    }
}

/// A stream that takes what it can get.
pub(super) fn greedy(name: &Name, write: bool, request_bytes: u64, ring_bytes: u64, depth: u32) -> Stream {
    let pace = Pace::Greedy { depth };
    Stream { file: name.to_string(), write, request_bytes, ring_bytes, first: 0, begins_ms: 0, pace }
}

/// A share of a rate.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate needs no sixteen digits, and is not negative"
)]
pub(super) fn part(rate: u64, share: f64) -> u64 {
    (rate as f64 * share) as u64
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no sixteen digits")]
pub(super) fn real(value: u64) -> f64 {
    value as f64
}

/// A rate in decimal megabytes a second.
pub(in crate::bench) fn show(rate: f64) -> String {
    format!("{:.1} MB/s", rate / 1e6)
}
