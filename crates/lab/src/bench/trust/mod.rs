//! `braid-lab bench trust`: what several managers and keys that turn cost those who work meanwhile. Each
//! group of rows is a module with a `measure`.

mod creates;
mod fail_over;
mod managers;

use braid_cli::output::exit::Failure;
use braid_cli::output::report::Report;

use super::figures::{self, Bench, Run};
use super::volumes::keys;
use crate::args::BenchCluster;

const BENCH: Bench =
    Bench { name: "trust", title: "Several managers, and keys that turn", needed: (4 << 30, 1 << 30) };

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    figures::run(BENCH, asked, report, async |run| groups(run).await).await
}

async fn groups(run: &mut Run) -> Result<(), Failure> {
    let ended = creates::measure(run).await;
    run.ended(creates::GROUP, ended)?;
    let ended = fail_over::measure(run).await;
    run.ended(fail_over::GROUP, ended)?;
    let ended = keys::measure(run).await;
    run.ended(keys::GROUP, ended)
}
