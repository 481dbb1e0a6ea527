//! `braid rebalance`: shows how equally full the drives are, and sets whether columns move to emptier drives
//! by themselves.

use std::path::Path;
use std::time::Duration;

use braid_wire::control::HealStatusReply;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::output::exit::{Exit, Failure};
use crate::output::rate::{Bar, Progress};
use crate::output::report::{Report, count};
use crate::output::size;
use crate::{args, connect};

/// Interval between two looks at the progress.
const POLL: Duration = Duration::from_millis(300);
/// Time without progress after which a wait gives up.
const STANDSTILL_MAX: Duration = Duration::from_secs(120);

/// The drives' balance, in `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct BalanceFacts {
    /// True if columns move when the drives' shares are too far apart.
    on: bool,
    /// True if columns are moving now for that reason.
    active: bool,
    /// Difference between the fullest and the emptiest drive, in percent of their capacity, as of the last
    /// look.
    spread_percent: f64,
    /// Number of files with a column that moves now.
    files_moving: u64,
    /// Bytes that have yet to begin moving.
    left_bytes: u64,
    /// Bytes that were to move when the moving began.
    begun_bytes: u64,
    /// Estimated time left; absent while nothing moves.
    seconds_left: Option<u64>,
}

/// Runs `braid rebalance`.
pub(crate) async fn run(
    asked: args::Rebalance,
    cluster: Option<&Path>,
    report: Report,
) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let mut status = match (asked.on, asked.off) {
        (true, _) => client.set_balance(true).await?,
        (_, true) => client.set_balance(false).await?,
        _ => client.heal_status(None).await?,
    };
    let progress = Progress::begin(None, Bar::beside(report));
    let mut last = written(&status);
    let mut moved = Instant::now();
    let first = last;
    while asked.watch && is_moving(&status) {
        progress.name(format!("{} left", size::show(left(&status))));
        progress.reached(written(&status).saturating_sub(first));
        if written(&status) != last {
            (last, moved) = (written(&status), Instant::now());
        } else if moved.elapsed() > STANDSTILL_MAX {
            let why = format!("nothing has moved for {} s", STANDSTILL_MAX.as_secs());
            return Err(Failure::new(Exit::DrivesAway, "rebalance".to_owned(), why)
                .remedy("braid heal shows what the drives wait for"));
        }
        sleep(POLL).await;
        status = client.heal_status(None).await?;
    }
    progress.end();
    report.facts(&facts(&status), |facts| {
        let state = match (facts.on, facts.active) {
            (true, true) => "columns move to emptier drives",
            (true, false) => "on: columns move to emptier drives when shares are more than 5 % apart",
            (false, _) => "off: columns stay where they are",
        };
        format!("{state}; the drives are {:.1} % apart\n{}", facts.spread_percent, line(facts))
    })
}

/// A line for `braid heal` and `braid status`; empty while nothing moves.
pub(crate) fn line(facts: &BalanceFacts) -> String {
    if !facts.active && facts.files_moving == 0 {
        return String::new();
    }
    let eta = facts.seconds_left.map_or_else(String::new, |left| format!(", about {left} s left"));
    format!(
        "balancing: {} of {} still to begin, columns of {} move{eta}\n",
        size::show(facts.left_bytes),
        size::show(facts.begun_bytes),
        count(facts.files_moving, "file"),
    )
}

/// Computes the facts for `--json` and [`line()`].
pub(crate) fn facts(status: &HealStatusReply) -> BalanceFacts {
    let balance = &status.balance;
    let rate: u64 = status.drives.iter().map(|row| row.rate).sum();
    let spread = u32::try_from(balance.spread_permille).unwrap_or(u32::MAX);
    BalanceFacts {
        on: balance.on,
        active: balance.active,
        spread_percent: f64::from(spread) / 10.0,
        files_moving: balance.files,
        left_bytes: balance.left_bytes,
        begun_bytes: balance.begun_bytes,
        seconds_left: is_moving(status).then(|| left(status).checked_div(rate)).flatten(),
    }
}

fn is_moving(status: &HealStatusReply) -> bool {
    status.balance.on && (status.balance.active || status.balance.files > 0)
}

fn left(status: &HealStatusReply) -> u64 {
    let moving: u64 = status.drives.iter().map(|row| row.left_bytes).sum();
    moving.saturating_add(status.balance.left_bytes)
}

fn written(status: &HealStatusReply) -> u64 {
    status.drives.iter().map(|row| row.progress.written_bytes).sum()
}
