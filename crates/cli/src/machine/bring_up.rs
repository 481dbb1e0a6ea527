//! Brings up a local cluster: starts missing servers, waits until all of them serve, creates the default
//! volume.
//!
//! A drive that cannot be started keeps no other from serving: after a power cut with a dead disk, the rest
//! can be read and the lost drive replaced only while the rest runs. A drive that the manager knows is lost
//! if its directory holds no drive: a drive started there would be a new one, and would be refused the name.
//! Only a new cluster needs all its drives to start.

use std::time::Duration;

use braid_client::Client;
use braid_drive::holds_drive;
use braid_wire::Reason;
use braid_wire::control::{DriveRow, DriveState, StatusReply};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::args::DriveOptions;
use crate::connect::{connect, status_soon, told_transport};
use crate::machine::cluster_dir::{ClusterDir, ClusterFile};
use crate::machine::local::{ANY_PORT, DriveStart, MANAGER, Mode, Server};
use crate::operate::volume;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::report::complain;
use crate::output::shell::quoted;
use crate::output::waiting::telling;

/// Number of drives of a new cluster, if the user gives none.
const DRIVES_DEFAULT: u16 = 6;
/// Time limit for the manager to hear from all drives.
const JOIN_BOUND: Duration = Duration::from_secs(30);
/// Time limit for a request that only probes whether the manager refuses because its state is older.
const NOTICE_WAIT: Duration = Duration::from_millis(100);
const JOIN_POLL: Duration = Duration::from_millis(20);
/// Name of the default volume.
const VOLUME: &str = "main";

/// A cluster that was brought up: the servers, the manager first.
#[derive(Debug)]
pub struct Running {
    pub dir: ClusterDir,
    pub cluster: ClusterFile,
    pub servers: Vec<Server>,
    /// Options of the drives started here.
    pub options: DriveOptions,
    /// The drives that do not serve.
    pub lacks: Vec<Lack>,
}

/// A drive that was not started, or does not serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lack {
    pub(crate) drive: String,
    pub(crate) why: String,
}

/// Remedy for drives that are lost.
pub(crate) fn remedy_of(lost: &[&str]) -> String {
    let replace: Vec<String> = lost
        .iter()
        .map(|name| format!("`braid drive add` and `braid drive replace {} NEW`", quoted(name.as_ref())))
        .collect();
    format!("if its disk is lost for good: {}; else mend that, and repeat `braid up`", replace.join(", "))
}

impl Running {
    /// Fails if a drive does not serve.
    pub(crate) fn whole(&self) -> Result<(), Failure> {
        if self.lacks.is_empty() {
            return Ok(());
        }
        let what = format!("start all drives of {}", self.dir.root().display());
        let why: Vec<String> =
            self.lacks.iter().map(|lack| format!("{}: {}", lack.drive, lack.why)).collect();
        let names: Vec<&str> = self.lacks.iter().map(|lack| lack.drive.as_str()).collect();
        Err(Failure::new(Exit::DrivesAway, what, format!("{}; the others serve", why.join("; ")))
            .remedy(remedy_of(&names)))
    }
}

/// Starts the missing servers, and waits until all that can serve do so.
pub async fn bring_up(
    dir: ClusterDir,
    drives: Option<u16>,
    mode: Mode,
    options: DriveOptions,
) -> Result<Running, Failure> {
    let before = dir.read()?;
    let names = drive_names(before.as_ref(), drives, |name| holds_drive(&dir.drive(name)));
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
    let mut cluster = ClusterFile {
        manager: manager.record.address.clone(),
        token: token.trim().to_owned(),
        drives: names,
        transport: told_transport()
            .map(|told| told.to_string())
            .or_else(|| before.as_ref().and_then(|before| before.transport.clone())),
        volume_keys: before.as_ref().map(|before| before.volume_keys.clone()).unwrap_or_default(),
    };
    dir.write(&cluster)?;
    servers.insert(0, manager);
    let client = connect(&dir, &cluster).await?;
    let known = status_soon(&client).await?.drives;
    let Sorted { start, replaced, mut lacks } =
        sort_out(missing, &known, |name| holds_drive(&dir.drive(name)));
    if !replaced.is_empty() {
        complain(&format!("{} was replaced, and is not started any more", replaced.join(", ")));
        cluster.drives.retain(|name| !replaced.contains(name));
        dir.write(&cluster)?;
    }
    for (drive, started) in start_drives(&dir, &cluster.manager, start, mode, options).await? {
        match started {
            Ok(server) => servers.push(server),
            // A new cluster is of no use yet: what was started is stopped again.
            Err(failure) if before.is_none() => return Err(failure),
            Err(failure) => lacks.push(Lack { drive, why: failure.reason() }),
        }
    }
    let running: Vec<String> = servers.iter().skip(1).map(|server| server.name.clone()).collect();
    let waited = || "for the drives to join".to_owned();
    if before.is_none() {
        telling(waited, all_joined(&client, &running)).await?;
    } else {
        let silent = telling(waited, missing_after_wait(&client, &running)).await?;
        lacks.extend(silent.into_iter().map(|drive| Lack {
            why: format!(
                "it runs, and does not serve after {} s: {}",
                JOIN_BOUND.as_secs(),
                see_log(&dir, &drive)
            ),
            drive,
        }));
    }
    // A manager that compares a restored state reports the number of its volumes, and lists them later.
    if lacks.is_empty() && status_soon(&client).await?.volumes == 0 {
        volume::create_default(&client, VOLUME, cluster.drives.len()).await?;
    }
    lacks.sort_by(|a, b| a.drive.cmp(&b.drive));
    Ok(Running { dir, cluster, servers, options, lacks })
}

fn see_log(dir: &ClusterDir, drive: &str) -> String {
    format!("its log is {}", dir.log(drive).display())
}

/// Drives that do not run, sorted by what is done about each.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sorted {
    start: Vec<String>,
    /// Drives whose place another drive has taken: they serve nothing any more.
    replaced: Vec<String>,
    lacks: Vec<Lack>,
}

/// Sorts drives that do not run. `known` are the manager's drives. `holds_drive` returns true if the
/// directory of this name holds a drive.
fn sort_out(missing: Vec<String>, known: &[DriveRow], holds_drive: impl Fn(&str) -> bool) -> Sorted {
    let mut sorted = Sorted::default();
    for drive in missing {
        match known.iter().find(|row| row.name == drive) {
            Some(row) if row.state == DriveState::Replaced => sorted.replaced.push(drive),
            Some(row) if !holds_drive(&drive) => {
                let why = format!("{} holds no drive", row.directory);
                sorted.lacks.push(Lack { drive, why });
            }
            _ => sorted.start.push(drive),
        }
    }
    sorted
}

/// Returns the names of the drives that a cluster has, and new names up to the number asked for. `is_taken`
/// returns true if the directory of this name holds a drive, as it does for a drive that was taken out of the
/// cluster.
pub fn drive_names(
    before: Option<&ClusterFile>,
    drives: Option<u16>,
    is_taken: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut names = before.map(|cluster| cluster.drives.clone()).unwrap_or_default();
    let wanted = usize::from(drives.unwrap_or(if names.is_empty() { DRIVES_DEFAULT } else { 0 }));
    let mut next = 1;
    while names.len() < wanted {
        let name = format!("drive-{next}");
        if !names.contains(&name) && !is_taken(&name) {
            names.push(name);
        }
        next += 1;
    }
    names
}

/// Freedom of a manager to get another port than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ManagerPort {
    /// Drives run, and look for the manager at its port.
    Fixed,
    /// No drive runs, so any port will do.
    MayMove,
}

/// Starts the manager at its previous address. If another program has the port and the manager may move, any
/// port is taken.
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

/// Starts drives in parallel, and waits until each of them listens or has failed.
async fn start_drives(
    dir: &ClusterDir,
    manager: &str,
    names: Vec<String>,
    mode: Mode,
    options: DriveOptions,
) -> Result<Vec<(String, Result<Server, Failure>)>, Failure> {
    let mut starting = JoinSet::new();
    for name in names {
        let dir = dir.clone();
        let manager = manager.to_owned();
        starting.spawn(async move {
            let directory = dir.drive(&name);
            let start =
                DriveStart { name: &name, directory: &directory, manager: &manager, options, host: None };
            let started = Server::start_drive(&dir, start, mode).await;
            (name, started)
        });
    }
    let mut drives = Vec::new();
    while let Some(joined) = starting.join_next().await {
        drives.push(joined.map_err(std::io::Error::other).doing(|| "start the drives".into())?);
    }
    drives.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(drives)
}

/// Fails if the manager's state is older than what drives have seen: it then gives out no leases, and waiting
/// for the drives would be in vain.
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
pub async fn all_joined(client: &Client, names: &[String]) -> Result<(), Failure> {
    let missing = missing_after_wait(client, names).await?;
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!("the manager has not heard of {} after {} s", missing.join(", "), JOIN_BOUND.as_secs());
    Err(Failure::new(Exit::Timeout, "wait for the drives to join", why)
        .remedy("their logs say why: DIR/logs/NAME.log"))
}

/// Waits until the manager has heard of every drive, and returns those that it did not hear of in time.
async fn missing_after_wait(client: &Client, names: &[String]) -> Result<Vec<String>, Failure> {
    let end = Instant::now() + JOIN_BOUND;
    loop {
        let status = timeout_at(end, client.status()).await.map_err(|_| {
            Failure::new(Exit::Timeout, "wait for the drives to join", "the manager does not answer")
        })??;
        refuse_older(client, &status).await?;
        let up = |name: &String| {
            status.drives.iter().any(|row| &row.name == name && row.state != DriveState::Away)
        };
        let missing: Vec<String> = names.iter().filter(|name| !up(name)).cloned().collect();
        if missing.is_empty() || Instant::now() > end {
            return Ok(missing);
        }
        sleep(JOIN_POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::health;

    #[test]
    fn drives_are_added_and_never_taken_away() {
        let none = |_: &str| false;
        assert_eq!(drive_names(None, Some(2), none), ["drive-1", "drive-2"]);
        assert_eq!(drive_names(None, None, none).len(), 6);
        let drives = vec!["drive-1".to_owned(), "drive-3".to_owned()];
        let before = ClusterFile {
            manager: String::new(),
            token: String::new(),
            drives,
            transport: None,
            volume_keys: Default::default(),
        };
        assert_eq!(drive_names(Some(&before), None, none).len(), 2);
        assert_eq!(drive_names(Some(&before), Some(1), none).len(), 2);
        assert_eq!(drive_names(Some(&before), Some(4), none), ["drive-1", "drive-3", "drive-2", "drive-4"]);
        // The directory of a drive that was taken out of the cluster is left.
        let left = |name: &str| name == "drive-2";
        assert_eq!(drive_names(Some(&before), Some(3), left), ["drive-1", "drive-3", "drive-4"]);
    }

    #[test]
    fn what_does_not_run_is_started_unless_its_place_is_empty_or_taken() {
        let row = |name: &str, state| health::tests::row(name, state, 0, 0);
        let known = [
            row("drive-1", DriveState::Away),
            row("drive-2", DriveState::Away),
            row("drive-3", DriveState::Replaced),
        ];
        let missing = (1..=4).map(|n| format!("drive-{n}")).collect();
        let sorted = sort_out(missing, &known, |name| name == "drive-1" || name == "drive-3");
        // The manager does not know the fourth: it is new.
        assert_eq!(sorted.start, ["drive-1", "drive-4"]);
        assert_eq!(sorted.replaced, ["drive-3"]);
        let why = "/d holds no drive".to_owned();
        assert_eq!(sorted.lacks, [Lack { drive: "drive-2".to_owned(), why }]);
    }
}
