//! Turns `--cluster` into a client: finds the cluster file and reads its token.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use braid_client::cluster::{BadClusterFile, TRANSPORT_VARIABLE, TransportFrom};
use braid_client::{Client, Config, KeyError, Transport};
use braid_wire::control::StatusReply;
use tokio::time::timeout;

use crate::engine;
use crate::machine::cluster_dir::{ClusterDir, ClusterFile};
use crate::output::exit::{Exit, Failure};
use crate::output::waiting::{self, telling};

/// Time limit for the manager's answer to a status request.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The keys of encrypted volumes that the command line names, with absolute paths.
static TOLD_KEYS: OnceLock<Vec<String>> = OnceLock::new();

/// Keeps the keys that the command line names, for all connections of this process.
pub(crate) fn tell_keys(texts: Vec<String>) {
    let absolute = |text: String| match text.split_once('=') {
        Some((volume, file)) if !file.starts_with("command:") => match std::path::absolute(file) {
            Ok(path) => format!("{volume}={}", path.display()),
            Err(_) => text,
        },
        _ => text,
    };
    TOLD_KEYS.get_or_init(|| texts.into_iter().map(absolute).collect());
}

/// The keys that the command line names, as arguments of `--volume-key`.
pub(crate) fn told_keys() -> &'static [String] {
    TOLD_KEYS.get().map(Vec::as_slice).unwrap_or_default()
}

/// The transport that the command line names.
static TOLD_TRANSPORT: OnceLock<Transport> = OnceLock::new();

/// Keeps the transport that the command line names, for all connections of this process.
pub(crate) fn tell_transport(transport: Option<Transport>) {
    if let Some(transport) = transport {
        TOLD_TRANSPORT.get_or_init(|| transport);
    }
}

/// The transport that the command line names, if it does.
pub(crate) fn told_transport() -> Option<Transport> {
    TOLD_TRANSPORT.get().copied()
}

/// The words of who asks for the transport.
fn transport_asked_by(cluster: &ClusterFile) -> &'static str {
    match (told_transport(), cluster.transport()) {
        (Some(_), _) => "--transport",
        (None, Ok((_, TransportFrom::Environment))) => TRANSPORT_VARIABLE,
        (None, Ok((_, TransportFrom::File))) => "cluster.toml",
        (None, Ok((_, TransportFrom::Default)) | Err(_)) => "default",
    }
}

/// Connects to the cluster that the command line or the environment names.
pub(crate) async fn cluster(path: Option<&Path>) -> Result<Client, Failure> {
    Ok(cluster_and_transport(path).await?.0)
}

/// Connects as [`cluster`] does, and tells what asks for the client's transport.
pub(crate) async fn cluster_and_transport(path: Option<&Path>) -> Result<(Client, &'static str), Failure> {
    let dir = ClusterDir::choose(None, path)?;
    match dir.read()? {
        Some(cluster) => Ok((connect(&dir, &cluster).await?, transport_asked_by(&cluster))),
        None => Err(dir
            .none(format!("find a cluster in {}", dir.root().display()))
            .remedy("start one with `braid up --detach`, or name one with --cluster DIR or BRAID_CLUSTER")),
    }
}

/// Connects to this cluster, whose file was found in `dir`.
pub async fn connect(dir: &ClusterDir, cluster: &ClusterFile) -> Result<Client, Failure> {
    let config = config(cluster)?;
    let nobody = |why: String| {
        Failure::new(Exit::NoCluster, format!("connect to the manager at {}", cluster.manager), why)
            .remedy(remedy(dir))
    };
    let looking = cluster.look_for_manager();
    telling(|| format!("for the manager at {} to take a connection", cluster.manager), looking)
        .await
        .map_err(|error| nobody(error.to_string()))?;
    Client::connect(config).await.map_err(Failure::from)
}

/// A client's settings for this cluster.
pub fn config(cluster: &ClusterFile) -> Result<Config, Failure> {
    let config = cluster.config().map_err(|error| match error {
        BadClusterFile::Transport(error) => Failure::usage("choose the transport", error.to_string())
            .remedy(format!("mend {TRANSPORT_VARIABLE}, or transport in cluster.toml")),
        error => Failure::new(Exit::NotAllowed, "read the cluster's file", error.to_string()),
    })?;
    let transport = told_transport().unwrap_or(config.transport);
    let unreadable =
        |error: KeyError| Failure::new(Exit::Usage, "find the keys of volumes", error.to_string());
    let mut volume_keys = cluster.volume_keys().map_err(unreadable)?;
    told_keys().iter().try_for_each(|text| volume_keys.add(text)).map_err(unreadable)?;
    let engine = Some(engine::engine());
    Ok(Config { on_wait: Some(waiting::for_manager), engine, volume_keys, transport, ..config })
}

/// Advice for the case that the manager does not answer. It may be on this machine or on another.
fn remedy(dir: &ClusterDir) -> String {
    if dir.is_by_up() {
        return format!("{} starts what does not run", dir.up_command());
    }
    let place = dir.root().display();
    format!("see that `braid manager serve` runs on its host, and that {place} has its address")
}

/// Asks for the status. Fails if the manager does not answer within [`PATIENCE`]: a status request should not
/// wait for long.
pub(crate) async fn status_soon(client: &Client) -> Result<StatusReply, Failure> {
    match timeout(PATIENCE, client.status()).await {
        Ok(status) => Ok(status?),
        Err(_) => Err(no_answer(client)),
    }
}

/// The failure of a request that the manager did not answer within [`PATIENCE`].
pub(crate) fn no_answer(client: &Client) -> Failure {
    let what = format!("ask the manager at {}", client.config().managers.leading());
    let why = format!("no answer in {} s; it is there, and hangs or is very busy", PATIENCE.as_secs());
    Failure::new(Exit::NoCluster, what, why)
}
