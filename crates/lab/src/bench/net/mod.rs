//! `braid-lab bench net`: what the network between clients and drives does, in network namespaces.

mod answers;
mod incast;

use braid_cli::output::exit::Failure;
use braid_cli::output::report::Report;

use super::run::Run;
use crate::args::BenchCluster;

pub(crate) use answers::serve as answers;

/// Free bytes that the directory must have, in a full run and in a quick one.
const NEEDED_BYTES: (u64, u64) = (2 << 30, 1 << 30);

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    let run = Run::begin(&asked, NEEDED_BYTES)?;
    if !incast::is_wanted(&run) {
        return Err(run.nothing_wanted("net"));
    }
    let found = incast::measure(&run).await;
    run.end();
    report.facts(&found?, incast::text)
}
