//! `braid-lab bench transport` (E6): datagrams under each policy, beside TCP, as streams between a server in
//! a drive's place and a client, without stores. Each group of rows is a module.

mod charts;
mod incast;
mod loopback;
mod peer;
mod rate;
mod relay;
mod server;
mod shared;
mod single;
mod stripes;
mod way;

use std::process::{Command, Stdio};

use braid_cli::output::exit::{Exit, Failure};
use braid_cli::output::report::Report;

use super::figures::{self, Bench, Run};
use super::hosts::Hosts;
use crate::args::BenchCluster;

pub(crate) use server::serve as streams;
use way::Way;

const BENCH: Bench = Bench { name: "transport", title: "Datagrams and TCP", needed: (1 << 20, 1 << 20) };

/// Points of the pictures.
#[derive(Debug, Default)]
struct Points {
    /// Bits a second, way, losses in percent, share of the link.
    loss: Vec<(u64, Way, f64, f64)>,
    /// Bytes of the queue, way in words, servers, share of the link.
    incast: Vec<(u64, String, usize, f64)>,
    paper: Vec<PaperRow>,
}

/// Rates of a file on some drives, in one direction, in bytes per second.
#[derive(Debug)]
struct PaperRow {
    /// Rate of the Ethernet, in bits per second.
    bits: u64,
    drives: usize,
    direction: &'static str,
    /// Number of datagrams of a window, and the rate with it.
    windows: Vec<(f64, f64)>,
    /// The rate of the adaptive control.
    adaptive: f64,
}

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    figures::run(BENCH, asked, report, async |run| groups(run).await).await
}

async fn groups(run: &mut Run) -> Result<(), Failure> {
    let ended = loopback::measure(run).await;
    run.ended(loopback::GROUP, ended)?;
    if let Some(why) = Hosts::lacking() {
        return run.ended("links of hosts", Err(Failure::new(Exit::Usage, "make hosts", why)));
    }
    let mut points = Points::default();
    let ended = single::clean(run).await;
    run.ended(single::CLEAN, ended)?;
    let ended = match lacking_losses() {
        None => single::lossy(run, &mut points).await,
        Some(why) => Err(Failure::new(Exit::Usage, "lose frames", why)),
    };
    run.charts = charts::all(&points);
    run.ended(single::LOSS, ended)?;
    let ended = shared::measure(run).await;
    run.ended(shared::GROUP, ended)?;
    let ended = incast::measure(run, &mut points).await;
    run.charts = charts::all(&points);
    run.ended(incast::GROUP, ended)?;
    let ended = stripes::paper(run, &mut points).await;
    run.charts = charts::all(&points);
    run.ended(stripes::PAPER, ended)?;
    let ended = stripes::away(run).await;
    run.ended(stripes::AWAY, ended)
}

/// Reason why frames cannot be lost here; `None` if they can.
fn lacking_losses() -> Option<String> {
    let mut command = Command::new("nft");
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let has = command.status().is_ok_and(|status| status.success());
    (!has).then(|| "random losses need nftables, and there is no `nft`".to_owned())
}
