//! Brings up a local cluster: starts missing servers, waits until all of them serve, creates the default
//! volume.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use braid_client::Client;
use braid_wire::Reason;
use braid_wire::control::{DriveState, StatusReply};

use crate::args::DriveOptions;
use crate::cluster_dir::{ClusterDir, ClusterFile};
use crate::connect::connect;
use crate::exit::{Doing, Exit, Failure};
use crate::local::{ANY_PORT, DriveStart, MANAGER, Mode, Server};
use crate::volume;
use crate::waiting::telling;

/// Drives of a new cluster, if the user does not say how many.
const DRIVES_DEFAULT: u16 = 6;
/// How long the manager may take to hear from all drives.
const JOIN_BOUND: Duration = Duration::from_secs(30);
/// Bounds a request that only probes whether the manager refuses because its state is older.
const NOTICE_WAIT: Duration = Duration::from_millis(100);
const JOIN_POLL: Duration = Duration::from_millis(20);
/// The default volume.
const VOLUME: &str = "main";

/// A cluster that was brought up: the servers, the manager first.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) dir: ClusterDir,
    pub(crate) cluster: ClusterFile,
    pub(crate) servers: Vec<Server>,
    /// The options of the drives that are started.
    pub(crate) options: DriveOptions,
}

/// Starts the missing servers, and waits until all of them serve.
pub(crate) async fn bring_up(
    dir: ClusterDir,
    drives: Option<u16>,
    mode: Mode,
    options: DriveOptions,
) -> Result<Running, Failure> {
    let before = dir.read()?;
    let names = drive_names(before.as_ref(), drives);
    let mut servers = Vec::with_capacity(names.len() + 1);
    let mut missing = Vec::new();
    for name in &names {
        match Server::find(&dir, name)? {
            Some(server) => servers.push(server),
            None => missing.push(name.clone()),
        }
    }
    let manager = match Server::find(&dir, MANAGER)? {
        Some(server) => server,
        None => {
            let port = if servers.is_empty() { ManagerPort::MayMove } else { ManagerPort::Fixed };
            start_manager(&dir, before.as_ref(), port, mode).await?
        }
    };
    let token_path = dir.manager().join("client.token");
    let token = std::fs::read_to_string(&token_path).doing(|| format!("read {}", token_path.display()))?;
    let cluster = ClusterFile {
        manager: manager.record.address.clone(),
        token: token.trim().to_owned(),
        drives: names,
    };
    dir.write(&cluster)?;
    servers.insert(0, manager);
    servers.extend(start_drives(&dir, &cluster.manager, missing, mode, options).await?);
    let client = connect(&dir, &cluster).await?;
    let waited = || "for the drives to join".to_owned();
    telling(waited, all_joined(&client, &cluster.drives)).await?;
    if client.volumes().await?.is_empty() {
        volume::create_default(&client, VOLUME, cluster.drives.len()).await?;
    }
    Ok(Running { dir, cluster, servers, options })
}

/// The names of the drives that a cluster has, and new names up to the number asked for.
pub(crate) fn drive_names(before: Option<&ClusterFile>, drives: Option<u16>) -> Vec<String> {
    let mut names = before.map(|cluster| cluster.drives.clone()).unwrap_or_default();
    let wanted = usize::from(drives.unwrap_or(if names.is_empty() { DRIVES_DEFAULT } else { 0 }));
    let mut next = 1;
    while names.len() < wanted {
        let name = format!("drive-{next}");
        if !names.contains(&name) {
            names.push(name);
        }
        next += 1;
    }
    names
}

/// Whether a manager may get another port than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ManagerPort {
    /// Drives run that look for the manager at its port.
    Fixed,
    /// No drive runs.
    MayMove,
}

/// Starts the manager at its previous address, or at any port if another program has its own and it may move.
async fn start_manager(
    dir: &ClusterDir,
    before: Option<&ClusterFile>,
    port: ManagerPort,
    mode: Mode,
) -> Result<Server, Failure> {
    let listen = before.map_or(ANY_PORT, |cluster| cluster.manager.as_str());
    match Server::start_manager(dir, listen, mode).await {
        Err(failure) if failure.exit == Exit::PortInUse && port == ManagerPort::MayMove => {
            Server::start_manager(dir, ANY_PORT, mode).await
        }
        other => other,
    }
}

/// Starts drives in parallel, and waits until each of them listens.
async fn start_drives(
    dir: &ClusterDir,
    manager: &str,
    names: Vec<String>,
    mode: Mode,
    options: DriveOptions,
) -> Result<Vec<Server>, Failure> {
    let mut starting = JoinSet::new();
    for name in names {
        let (dir, manager) = (dir.clone(), manager.to_owned());
        starting.spawn(async move {
            let directory = dir.drive(&name);
            let start =
                DriveStart { name: &name, directory: &directory, manager: &manager, options, host: None };
            Server::start_drive(&dir, start, mode).await
        });
    }
    let mut servers = Vec::new();
    while let Some(joined) = starting.join_next().await {
        servers.push(joined.map_err(std::io::Error::other).doing(|| "start the drives".into())??);
    }
    servers.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(servers)
}

/// A manager whose state is older than what drives have seen gives out no leases: waiting for the drives
/// would be in vain.
async fn refuse_older(client: &Client, status: &StatusReply) -> Result<(), Failure> {
    if status.notice.is_empty() {
        return Ok(());
    }
    match timeout(NOTICE_WAIT, client.volumes()).await {
        Ok(Err(error)) if error.reason() == Some(Reason::StateOlder) => Err(Failure::from(error)),
        _ => Ok(()),
    }
}

/// Waits until the manager has heard of every drive.
pub(crate) async fn all_joined(client: &Client, names: &[String]) -> Result<(), Failure> {
    let end = Instant::now() + JOIN_BOUND;
    loop {
        let status = timeout_at(end, client.status()).await.map_err(|_| {
            Failure::new(Exit::Timeout, "wait for the drives to join", "the manager does not answer")
        })??;
        refuse_older(client, &status).await?;
        let up = |name: &String| {
            status.drives.iter().any(|row| &row.name == name && row.state != DriveState::Away)
        };
        let missing: Vec<&str> = names.iter().filter(|name| !up(name)).map(String::as_str).collect();
        if missing.is_empty() {
            return Ok(());
        }
        if Instant::now() > end {
            let why = format!(
                "the manager has not heard of {} after {} s",
                missing.join(", "),
                JOIN_BOUND.as_secs()
            );
            return Err(Failure::new(Exit::Timeout, "wait for the drives to join", why)
                .remedy("their logs say why: DIR/logs/NAME.log"));
        }
        sleep(JOIN_POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_added_and_never_taken_away() {
        assert_eq!(drive_names(None, Some(2)), ["drive-1", "drive-2"]);
        assert_eq!(drive_names(None, None).len(), 6);
        let drives = vec!["drive-1".to_owned(), "drive-3".to_owned()];
        let before = ClusterFile { manager: String::new(), token: String::new(), drives };
        assert_eq!(drive_names(Some(&before), None).len(), 2);
        assert_eq!(drive_names(Some(&before), Some(1)).len(), 2);
        assert_eq!(drive_names(Some(&before), Some(4)), ["drive-1", "drive-3", "drive-2", "drive-4"]);
    }
}
