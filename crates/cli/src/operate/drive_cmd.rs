//! `braid drive serve|add|ls|calibrate|drain|rm|replace`. `add` is only for a cluster that `braid up` made.

use std::path::Path;
use std::time::Duration;

use braid_client::check_volume;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::config::told::Told;
use crate::machine::bring_up::all_joined;
use crate::machine::cluster_dir::ClusterDir;
use crate::machine::down::stop_all;
use crate::machine::local::{DriveStart, MANAGER, Mode, Server};
use crate::machine::serve;
use crate::operate::{cost, rebuild, replace, status};
use crate::output::duration;
use crate::output::exit::{Exit, Failure};
use crate::output::rate::{Bar, Progress};
use crate::output::report::{Report, count};
use crate::output::size;
use crate::{args, connect};

/// A drive that was added, in `--json`.
#[derive(Debug, Serialize)]
struct Added {
    drive: String,
    address: String,
    directory: String,
}

/// A drive that is drained, in `--json`.
#[derive(Debug, Serialize)]
struct Drained {
    drive: String,
    drained: bool,
    /// True if the drive was being drained before.
    was_drained: bool,
    /// Number of components still on the drive.
    components: u64,
    /// Approximate size of the components on the drive, in bytes, at the time of the request.
    bytes: u64,
    /// Free space for them on the other drives, in bytes.
    room_bytes: u64,
}

/// A drive that is paused, in `--json`.
#[derive(Debug, Serialize)]
struct Paused {
    drive: String,
    /// Time from now in milliseconds; 0: the pause has ended.
    paused_ms: u64,
}

/// A drive that was taken out, in `--json`.
#[derive(Debug, Serialize)]
struct Removed {
    drive: String,
    /// True if the drive's process was stopped too.
    stopped: bool,
}

/// Interval between two looks at a drive that is drained.
const POLL: Duration = Duration::from_millis(300);
/// Time without any column moving after which a wait gives up.
const STANDSTILL_MAX: Duration = Duration::from_secs(120);

/// Runs `braid drive ...`.
pub(crate) async fn run(command: args::Drive, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    match command {
        args::Drive::Serve(serve) => serve::drive(*serve, &Told::default()).await,
        args::Drive::Add { name, options } => add(name, options, cluster, report).await,
        args::Drive::Ls { cost: false } => status::drives(cluster, report).await,
        args::Drive::Ls { cost: true } => cost::list(cluster, report).await,
        args::Drive::Calibrate { drives, anew } => cost::calibrate(drives, anew, cluster, report).await,
        args::Drive::Drain { name, stop, wait } => drain(&name, !stop, wait, cluster, report).await,
        args::Drive::Pause { name, time } => pause(&name, time, cluster, report).await,
        args::Drive::Resume { name } => pause(&name, 0, cluster, report).await,
        args::Drive::Rm { name } => remove(&name, cluster, report).await,
        args::Drive::Testify { dir, file } => rebuild::testify(dir, file, report).await,
        args::Drive::Replace { old, new } => replace::run(&old, &new, cluster, report).await,
    }
}

/// Has the columns on a drive move to other drives, or stops that.
async fn drain(
    name: &str,
    drain: bool,
    wait: bool,
    cluster: Option<&Path>,
    report: Report,
) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    let reply = client.drain_drive(name, drain).await?;
    let mut components = reply.components;
    let mut moved = Instant::now();
    let progress = (wait && components > 0).then(|| Progress::begin(None, Bar::beside(report)));
    while wait && components > 0 {
        if let Some(progress) = &progress {
            progress.name(format!("{} left on {name}", count(components, "component")));
        }
        sleep(POLL).await;
        let rows = client.status().await?.drives;
        let now = rows.iter().find(|row| row.name == name).map_or(0, |row| row.components);
        if now != components {
            (components, moved) = (now, Instant::now());
        } else if moved.elapsed() > STANDSTILL_MAX {
            let why = format!(
                "{components} components are still on it, and none has moved for {} s",
                STANDSTILL_MAX.as_secs()
            );
            return Err(Failure::new(Exit::DrivesAway, format!("drain {name}"), why).remedy(
                "it goes on by itself as soon as it can: the manager's log says why it does not, braid heal what the other \
                 drives wait for",
            ));
        }
    }
    if let Some(progress) = progress {
        progress.end();
    }
    let facts = Drained {
        drive: name.to_owned(),
        drained: drain,
        was_drained: reply.was,
        components,
        bytes: reply.bytes,
        room_bytes: reply.room_bytes,
    };
    report.facts(&facts, |facts| match (facts.drained, facts.components) {
        (true, 0) => format!("{name} holds no column: braid drive rm {name}\n"),
        (true, components) => format!(
            "{name} is drained: {} of about {} move to other drives, which have room for {}\n",
            count(components, "component"),
            size::show(facts.bytes),
            size::show(facts.room_bytes)
        ),
        (false, components) => {
            let now = if facts.was_drained { "is not drained any more" } else { "was not being drained" };
            format!("{name} {now}: {} on it\n", count(components, "component"))
        }
    })
}

/// Pauses a drive for so many milliseconds; 0 ends its pause.
async fn pause(name: &str, for_ms: u64, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    connect::cluster(cluster).await?.pause_drive(name, for_ms).await?;
    let facts = Paused { drive: name.to_owned(), paused_ms: for_ms };
    report.facts(&facts, |facts| match facts.paused_ms {
        0 => format!("{name} is paused no longer: if it is away for --lost-after, it is lost\n"),
        ms => format!("{name} is paused for {}: its columns stay while it is away\n", duration::show(ms)),
    })
}

/// Takes an empty drive out of the cluster. A drive that `braid up` started here is stopped, and not started
/// again.
async fn remove(name: &str, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let client = connect::cluster(cluster).await?;
    client.remove_drive(name).await?;
    let dir = ClusterDir::choose(None, cluster)?;
    let local = dir.read()?.filter(|file| dir.is_by_up() && file.drives.iter().any(|drive| drive == name));
    // If the lock is taken, the drive belongs to a `braid up` that runs in the foreground.
    let stopped = match (local, dir.lock()) {
        (Some(mut file), Ok(_lock)) => {
            stop_all(Server::find(&dir, name)?.into_iter().collect()).await?;
            file.drives.retain(|drive| drive != name);
            dir.write(&file)?;
            true
        }
        _ => false,
    };
    let facts = Removed { drive: name.to_owned(), stopped };
    report.facts(&facts, |facts| match facts.stopped {
        true => format!("{name} was taken out of the cluster and stopped; its directory is left\n"),
        false => format!("{name} was taken out of the cluster: stop its process\n"),
    })
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
    let name = name.unwrap_or_else(|| next_name(&file.drives, |name| dir.drive(name).exists()));
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
    let start =
        DriveStart { name: &name, directory: &directory, manager: &file.manager, options, host: None };
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

/// Returns `drive-N` with N above the highest in use, and whose directory does not exist: a drive that was
/// taken out of the cluster leaves its directory behind.
fn next_name(names: &[String], is_taken: impl Fn(&str) -> bool) -> String {
    let last =
        names.iter().filter_map(|name| name.strip_prefix("drive-")?.parse::<u64>().ok()).max().unwrap_or(0);
    let mut free = (last + 1..).map(|n| format!("drive-{n}")).filter(|name| !is_taken(name));
    free.next().expect("one of so many is free")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_name_is_past_all() {
        let none = |_: &str| false;
        assert_eq!(next_name(&[], none), "drive-1");
        let names = ["drive-2".into(), "drive-9".into(), "x".into()];
        assert_eq!(next_name(&names, none), "drive-10");
        assert_eq!(next_name(&names, |name| name == "drive-10"), "drive-11", "its directory is left");
    }
}
