//! `braid down`: stops the cluster of a directory. A process is signalled only if it is still the recorded
//! one.

use std::path::Path;

use serde::Serialize;
use tokio::task::JoinSet;

use crate::args;
use crate::machine::cluster_dir::ClusterDir;
use crate::machine::local::{MANAGER, Server};
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::report::Report;
use crate::output::waiting::telling;

/// The servers that were stopped, in `--json`.
#[derive(Debug, Serialize)]
struct DownReport {
    directory: String,
    stopped: Vec<String>,
    /// The servers that needed SIGKILL.
    killed: Vec<String>,
}

/// Runs the command.
pub(crate) async fn run(down: args::Down, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let dir = ClusterDir::choose(down.dir.as_deref(), cluster)?;
    let what = || format!("stop the cluster in {}", dir.root().display());
    let Some(file) = dir.read()? else {
        return Err(dir.none(what()).remedy(
            "give the directory of `braid up` with --dir; servers whose directory was removed stop by themselves within seconds",
        ));
    };
    if !dir.is_by_up() {
        let why = "`braid up` did not start it, so its processes are not known here";
        return Err(Failure::new(Exit::NoCluster, what(), why)
            .remedy("stop each `braid manager serve` and `braid drive serve` where it runs"));
    }
    let _lock = dir.lock().map_err(|failure| match failure.exit {
        Exit::Busy => Failure::new(Exit::Busy, what(), "`braid up` runs it in the foreground")
            .remedy("stop it with Ctrl-C there"),
        _ => failure,
    })?;
    let mut servers = Vec::new();
    for name in file.drives.iter().map(String::as_str).chain([MANAGER]) {
        servers.extend(Server::find(&dir, name)?);
    }
    let stopped = servers.iter().map(|server| server.name.clone()).collect();
    let killed = telling(|| "for the servers to stop".to_owned(), stop_all(servers)).await?;
    let facts = DownReport { directory: dir.root().display().to_string(), stopped, killed };
    report.line(&facts, |facts| match (facts.stopped.as_slice(), facts.killed.as_slice()) {
        ([], _) => format!("nothing ran in {}", facts.directory),
        (stopped, []) => format!("stopped {}", stopped.join(", ")),
        (stopped, killed) => format!("stopped {}; by force: {}", stopped.join(", "), killed.join(", ")),
    })
}

/// Stops the drives in parallel, then the manager, so that the drives can still sign off. Returns the names
/// of those that needed SIGKILL.
pub async fn stop_all(servers: Vec<Server>) -> Result<Vec<String>, Failure> {
    let (managers, drives): (Vec<Server>, Vec<Server>) =
        servers.into_iter().partition(|server| server.name == MANAGER);
    let mut forced = Vec::new();
    for group in [drives, managers] {
        let mut stopping = JoinSet::new();
        for server in group {
            stopping.spawn(async move {
                let name = server.name.clone();
                server.stop().await.map(|force| force.then_some(name))
            });
        }
        while let Some(stopped) = stopping.join_next().await {
            forced.extend(stopped.map_err(std::io::Error::other).doing(|| "stop the servers".into())??);
        }
    }
    forced.sort();
    Ok(forced)
}
