//! `braid drive serve|add|ls|replace`. `add` is only for a cluster that `braid up` made.

use std::path::Path;

use braid_client::check_volume;
use serde::Serialize;

use crate::args;
use crate::bring_up::all_joined;
use crate::cluster_dir::ClusterDir;
use crate::connect;
use crate::exit::{Exit, Failure};
use crate::local::{DriveStart, MANAGER, Mode, Server};
use crate::replace;
use crate::report::Report;
use crate::serve;
use crate::status;

/// A drive that was added, in `--json`.
#[derive(Debug, Serialize)]
struct Added {
    drive: String,
    address: String,
    directory: String,
}

/// Runs `braid drive ...`.
pub(crate) async fn run(command: args::Drive, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    match command {
        args::Drive::Serve(serve) => serve::drive(*serve).await,
        args::Drive::Add { name, options } => add(name, options, cluster, report).await,
        args::Drive::Ls => status::drives(cluster, report).await,
        args::Drive::Replace { old, new } => replace::run(&old, &new, cluster, report).await,
    }
}

/// Starts one more drive of a detached local cluster.
async fn add(
    name: Option<String>,
    options: args::DriveOptions,
    cluster: Option<&Path>,
    report: Report,
) -> Result<(), Failure> {
    let dir = ClusterDir::choose(None, cluster)?;
    let what = || format!("add a drive to {}", dir.root().display());
    let Some(mut file) = dir.read()?.filter(|_| dir.is_by_up()) else {
        return Err(Failure::new(Exit::NoCluster, what(), "no cluster was made here by `braid up`")
            .remedy("on another machine use `braid drive serve`"));
    };
    let _lock = dir.lock()?;
    if Server::find(&dir, MANAGER)?.is_none() {
        return Err(Failure::new(Exit::NoCluster, what(), "its manager does not run")
            .remedy(format!("start it with {}", dir.up_command())));
    }
    let name = name.unwrap_or_else(|| next_name(&file.drives));
    // The rule for volume names also makes a safe directory name and command-line argument.
    check_volume(&name).map_err(|_| {
        Failure::usage(
            what(),
            format!("{name:?} cannot be a drive's name: use letters, digits, '.', '-' and '_'"),
        )
    })?;
    if file.drives.contains(&name) || dir.drive(&name).exists() {
        return Err(Failure::new(Exit::Conflict, what(), format!("the name {name:?} is taken")));
    }
    let directory = dir.drive(&name);
    let start = DriveStart { name: &name, directory: &directory, manager: &file.manager, options };
    let server = Server::start_drive(&dir, start, Mode::Detached).await?;
    let client = connect::connect(&dir, &file).await?;
    all_joined(&client, std::slice::from_ref(&name)).await?;
    file.drives.push(name.clone());
    dir.write(&file)?;
    let address = server.record.address.clone();
    server.release();
    let facts = Added { drive: name, address, directory: directory.display().to_string() };
    report.facts(&facts, |facts| format!("{} serves at {}\n", facts.drive, facts.address))
}

/// `drive-N` with N one above the highest in use.
fn next_name(names: &[String]) -> String {
    let last =
        names.iter().filter_map(|name| name.strip_prefix("drive-")?.parse::<u64>().ok()).max().unwrap_or(0);
    format!("drive-{}", last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_name_is_past_all() {
        assert_eq!(next_name(&[]), "drive-1");
        assert_eq!(next_name(&["drive-2".into(), "drive-9".into(), "x".into()]), "drive-10");
    }
}
