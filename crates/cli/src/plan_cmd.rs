//! `braid plan`: the plan set of a request, as the client would run it.

use std::path::Path;

use braid_client::Direction;

use crate::args;
use crate::connect;
use crate::exit::Failure;
use crate::names::remote;
use crate::report::{Report, print};

/// Runs the command.
pub(crate) async fn run(plan: args::Plan, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let name = remote(&plan.name)?;
    let client = connect::cluster(cluster).await?;
    let _ = report;
    let direction = match plan.direction {
        args::Direction::Read => Direction::Read,
        args::Direction::Write => Direction::Write,
    };
    let planned = client.plan(&name, direction, plan.range, &plan.down).await?;
    print(&planned.printed)
}
