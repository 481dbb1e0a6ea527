//! E16: the rebuild of a lost drive, whose columns move to all others. Each drive is a host with a limited
//! link, so that links and not this machine's processors are the limit.
//!
//! A drive heals its own columns: for each unit that it makes, it receives `k` units over its link, and other
//! drives send them. It writes to its own store. So a byte made costs `k` bytes received and `k` sent, and
//! all drives left together can make (N - 1) * payload rate / k bytes a second. That is the bound.

use std::time::Duration;

use braid_bench::stripes::{Goal, Question, Unit};
use braid_cli::output::exit::{Exit, Failure};
use braid_wire::control::HealStatusReply;
use tokio::time::{Instant, sleep};

use super::Run;
use super::catch_up::bytes;
use super::files::write;
use crate::bench::client::alone;
use crate::bench::cluster::Cluster;
use crate::bench::hosts::{Hosts, Links, PAYLOAD_SHARE};

const SHAPE: (&str, u8) = ("raid5", 5);
const K: f64 = 4.0;
const LINK_BITS: u64 = 100_000_000;
/// Numbers of drives, each with the bytes that a drive holds: a few seconds of rebuild.
const SIZES: [(u16, u64); 2] = [(8, 84 << 20), (16, 180 << 20)];
/// Bytes of a file: two stripes. Many small files spread the lost columns evenly.
const FILE_BYTES: u64 = 4 << 20;
/// Number of rebuilds measured, one after another: each leaves one drive less. The second side of a pair is
/// computed, not sampled.
const ROUNDS: usize = 3;
/// Time limit for a rebuild.
const BOUND: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(50);
/// Share of the rebuilt bytes during which all drives have work.
const STEADY: f64 = 0.75;

/// Rates of one rebuild in bytes a second: of the whole, and of its steady part.
struct Rates {
    whole: f64,
    steady: f64,
}

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    for (drives, each_bytes) in SIZES {
        let question = |what: &str, goal| Question {
            experiment: "E16",
            name: format!("rebuild over {drives} drives{what}"),
            unit: Unit::BytesPerSecond,
            first: "made anew",
            second: "what all links could carry",
            goal,
        };
        let whole = question("", Some(Goal::AtLeast(0.9)));
        let steady = question(", the first three quarters", None);
        if !run.wants(&whole) && !run.wants(&steady) || !run.may_limit(&whole) {
            continue;
        }
        run.tell(format!("E16, {drives} drives: fill"));
        let hosts = Hosts::up(usize::from(drives))?;
        let mut cluster = Cluster::up_on(&hosts, run.path(), "e16", drives, SHAPE).await?;
        let mut client = cluster.client_process().await?;
        // Four of each five bytes stored belong to files; the fifth is parity.
        for _ in 0..each_bytes * u64::from(drives) * 4 / 5 / FILE_BYTES {
            let file = cluster.create().await?;
            alone(&mut client, &write(&file, FILE_BYTES)).await?;
        }
        drop(client);
        hosts.limit(Links::Drives, LINK_BITS)?;
        cluster.client.heal_status(Some(0)).await?;
        let mut rates = Vec::new();
        for round in 0..ROUNDS {
            run.tell(format!("E16, {drives} drives: rebuild {}", round + 1));
            let drive = format!("drive-{}", round + 1);
            let left = drives - 1 - u16::try_from(round).unwrap_or(0);
            let links = f64::from(left) * bytes(LINK_BITS / 8) * PAYLOAD_SHARE / K;
            rates.push((rebuild(&mut cluster, &drive).await?, links));
        }
        for (question, of) in
            [(whole, (|rates| rates.whole) as fn(&Rates) -> f64), (steady, |rates| rates.steady)]
        {
            let pairs: Vec<(f64, f64)> = rates.iter().map(|(rates, links)| (of(rates), *links)).collect();
            run.add(&question, &pairs);
        }
        cluster.down().await?;
    }
    Ok(())
}

/// Kills the drive, and waits until the others have all its columns. The time counts from when the first
/// column has moved: how long a drive must be silent before that is a setting.
async fn rebuild(cluster: &mut Cluster, drive: &str) -> Result<Rates, Failure> {
    let before = written(&cluster.client.heal_status(None).await?);
    cluster.kill(drive).await?;
    let end = Instant::now() + BOUND;
    let mut began = None;
    let mut seen = Vec::new();
    loop {
        let status = cluster.client.heal_status(None).await?;
        let stale: u64 = status.drives.iter().map(|row| row.stale).sum();
        let now = Instant::now();
        match began {
            None if stale > 0 => began = Some(now),
            Some(began) => {
                seen.push((now - began, written(&status).saturating_sub(before)));
                if stale == 0 && components(cluster, drive).await? == 0 {
                    break;
                }
            }
            None => {}
        }
        if now > end {
            let why = format!("it is not done after {} s", BOUND.as_secs());
            return Err(Failure::new(Exit::Timeout, format!("rebuild {drive}"), why));
        }
        sleep(POLL).await;
    }
    let took = seen.last().map_or(Duration::ZERO, |(time, _)| *time);
    // The last reports may come after the end.
    sleep(braid_cli::operate::heal::REPORTED).await;
    let all = written(&cluster.client.heal_status(None).await?).saturating_sub(before);
    let rate = |made: u64, time: Duration| bytes(made) / time.as_secs_f64().max(1e-9);
    let most = seen.iter().find(|(_, made)| bytes(*made) >= bytes(all) * STEADY);
    Ok(Rates { whole: rate(all, took), steady: most.map_or(0.0, |(time, made)| rate(*made, *time)) })
}

fn written(status: &HealStatusReply) -> u64 {
    status.drives.iter().map(|row| row.progress.written_bytes).sum()
}

/// Number of columns that are still placed on the drive.
async fn components(cluster: &Cluster, drive: &str) -> Result<u64, Failure> {
    Ok(braid_cli::operate::replace::row(&cluster.client, drive).await?.map_or(0, |row| row.components))
}
