//! `braid-lab bench volumes`: what volumes and drives do beside moving bytes. Each group of rows is a module
//! with a `measure`, and brings up the clusters that it needs.

mod clustered;
pub(super) mod keys;
pub(super) mod load;
mod names;
mod quotas;
mod reading;
mod snapshots;
mod tasks;

use braid_cli::output::exit::Failure;
use braid_cli::output::report::Report;

use super::figures::{self, Bench, Run};
use crate::args::BenchCluster;

const BENCH: Bench = Bench { name: "volumes", title: "Volumes and their drives", needed: (3 << 30, 1 << 30) };

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    figures::run(BENCH, asked, report, async |run| groups(run).await).await
}

async fn groups(run: &mut Run) -> Result<(), Failure> {
    let ended = quotas::measure(run).await;
    run.ended(quotas::GROUP, ended)?;
    let ended = snapshots::measure(run).await;
    run.ended(snapshots::GROUP, ended)?;
    let ended = keys::measure(run).await;
    run.ended(keys::GROUP, ended)?;
    let ended = names::measure(run).await;
    run.ended(names::GROUP, ended)?;
    let ended = clustered::measure(run).await;
    run.ended(clustered::GROUP, ended)?;
    let ended = reading::measure(run).await;
    run.ended(reading::GROUP, ended)
}
