//! `braid-lab bench net`: what files get of the links between drives and a client. Each group of rows is a
//! module with a `measure`; it brings up the hosts and clusters that it needs.

mod answers;
mod incast;
mod links;
mod rails;
mod setup;

use braid_cli::output::exit::{Exit, Failure};
use braid_cli::output::report::Report;

use super::figures::{self, Bench, Run};
use super::hosts::Hosts;
use crate::args::BenchCluster;

pub(crate) use answers::serve as answers;

const BENCH: Bench = Bench { name: "net", title: "Links and rails", needed: (8 << 30, 1 << 30) };

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    figures::run(BENCH, asked, report, async |run| groups(run).await).await
}

async fn groups(run: &mut Run) -> Result<(), Failure> {
    if let Some(why) = Hosts::lacking() {
        return run.ended("links of hosts", Err(Failure::new(Exit::Usage, "make hosts", why)));
    }
    let ended = rails::measure(run).await;
    run.ended(rails::GROUP, ended)?;
    let ended = links::measure(run).await;
    run.ended(links::GROUP, ended)?;
    let ended = incast::measure(&run.common).await.map(|rows| run.add_all(rows));
    run.ended(incast::GROUP, ended)
}
