//! Turns `--cluster` into a client: finds the cluster file and reads its token.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use braid_client::{Client, Config};
use braid_wire::control::StatusReply;
use braid_wire::token::{BadToken, Token};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::cluster_dir::{ClusterDir, ClusterFile};
use crate::exit::{Exit, Failure};
use crate::waiting::{self, telling};

/// How long the manager may take to answer a status request.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a manager may take to accept the first connection. A command fails fast if no manager runs when
/// it starts; once under way it waits for the manager with the client's own, longer patience.
const FIRST_CONNECT: Duration = Duration::from_secs(3);

/// The client for the cluster that the command line or the environment names.
pub(crate) async fn cluster(path: Option<&Path>) -> Result<Client, Failure> {
    let dir = ClusterDir::choose(None, path)?;
    match dir.read()? {
        Some(cluster) => connect(&dir, &cluster).await,
        None => Err(dir
            .none(format!("find a cluster in {}", dir.root().display()))
            .remedy("start one with `braid up --detach`, or name one with --cluster DIR or BRAID_CLUSTER")),
    }
}

/// A client for this cluster, whose file was found in `dir`.
pub(crate) async fn connect(dir: &ClusterDir, cluster: &ClusterFile) -> Result<Client, Failure> {
    let config = config(cluster)?;
    let nobody = |why: String| {
        Failure::new(Exit::NoCluster, format!("connect to the manager at {}", cluster.manager), why)
            .remedy(remedy(dir))
    };
    let connecting = timeout(FIRST_CONNECT, TcpStream::connect(&cluster.manager));
    match telling(|| format!("for the manager at {} to take a connection", cluster.manager), connecting).await
    {
        // The manager is just ending or restarting: the client's own retries handle that.
        Ok(Ok(_)) => {}
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionReset => {}
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
            return Err(nobody("nothing listens there".into()));
        }
        Ok(Err(error)) => return Err(nobody(error.to_string())),
        Err(_) => return Err(nobody(format!("no answer in {} s", FIRST_CONNECT.as_secs()))),
    }
    Client::connect(config).await.map_err(Failure::from)
}

/// A client's settings for this cluster.
pub(crate) fn config(cluster: &ClusterFile) -> Result<Config, Failure> {
    let token: Token = cluster.token.parse().map_err(|error: BadToken| {
        Failure::new(Exit::NotAllowed, "read the cluster's token", error.to_string())
    })?;
    Ok(Config { on_wait: Some(waiting::for_manager), ..Config::new(cluster.manager.clone(), token) })
}

/// What to do about a manager that is not there. It may be on this machine or on another.
fn remedy(dir: &ClusterDir) -> String {
    if dir.is_by_up() {
        return format!("{} starts what does not run", dir.up_command());
    }
    let place = dir.root().display();
    format!("see that `braid manager serve` runs on its host, and that {place} has its address")
}

/// The status, or an error if the manager does not answer soon: a status request should not wait for long.
pub(crate) async fn status_soon(client: &Client) -> Result<StatusReply, Failure> {
    match timeout(PATIENCE, client.status()).await {
        Ok(status) => Ok(status?),
        Err(_) => {
            let what = format!("ask the manager at {}", client.config().manager);
            let why =
                format!("no answer in {} s; it is there, and hangs or is very busy", PATIENCE.as_secs());
            Err(Failure::new(Exit::NoCluster, what, why))
        }
    }
}
