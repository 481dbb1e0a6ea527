//! A cluster with three managers and the etcd that they run, all on this machine.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use braid_cli::machine::cluster_dir::ClusterDir;
use braid_cli::machine::local::{MANAGER, Mode, Server};
use braid_cli::output::exit::{Doing, Exit, Failure};
use braid_client::{Client, TokenSpec};
use braid_wire::token::TokenRole;
use tokio::time::{Instant, sleep};

use super::Run;
use crate::bench::cluster::{Cluster, UNIT_BYTES};

const MANAGERS: [&str; 3] = [MANAGER, "manager-2", "manager-3"];
/// Maximum time until all managers and members of etcd are there.
const BOUND: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);
const HOST: &str = "127.0.0.1";

/// Brings up the cluster, with drives and a volume of this shape.
pub(super) async fn up(run: &Run, name: &str, drives: u16, shape: (&str, u8)) -> Result<Cluster, Failure> {
    let mut taken = BTreeSet::new();
    let mut at = Vec::new();
    for _ in MANAGERS {
        at.push((free(&mut taken, 1)?, free(&mut taken, 2)?));
    }
    let first = format!("{HOST}:{}", at[0].0);
    let all: Vec<String> = at.iter().map(|(port, _)| format!("{HOST}:{port}")).collect();
    let start = async |dir: &ClusterDir| {
        let place = dir.manager().display().to_string();
        let port = at[0].1.to_string();
        let words = ["cluster", "init", "--listen", &first, "--etcd-port", &port, "--dir", &place];
        Server::start_as(dir, MANAGER, &words, Mode::Attached).await
    };
    let mut cluster = Cluster::founded(run.path(), name, drives, Some(&all.join(",")), start).await?;
    for (index, member) in MANAGERS.iter().enumerate().skip(1) {
        let spec = TokenSpec {
            name: (*member).to_owned(),
            role: TokenRole::Manager,
            volumes: None,
            below: Vec::new(),
            user: None,
            read_only: false,
            lasts_s: 0,
        };
        let token = cluster.client.make_token(spec).await?.to_string();
        let file = cluster.running.dir.root().join(format!("{member}.token"));
        std::fs::write(&file, token).doing(|| format!("write {}", file.display()))?;
        let token_file = file.display().to_string();
        let place = directory(&cluster, member).display().to_string();
        let listen = &all[index];
        let port = at[index].1.to_string();
        let words = [
            "cluster",
            "join",
            "--token-file",
            &token_file,
            "--manager",
            &first,
            "--listen",
            listen,
            "--etcd-port",
            &port,
            "--dir",
            &place,
        ];
        let server = Server::start_as(&cluster.running.dir, member, &words, Mode::Attached).await?;
        cluster.running.servers.push(server);
        all_there(&cluster.client, index + 1).await?;
    }
    cluster.start_drives().await?;
    cluster.make_volume(shape, UNIT_BYTES).await?;
    Ok(cluster)
}

/// A manager that was killed: its name, and its address.
pub(super) struct Killed(&'static str, String);

/// Kills the manager that leads, and its etcd with it. Returns which one it was.
pub(super) async fn kill_leader(cluster: &mut Cluster) -> Result<Killed, Failure> {
    let status = cluster.client.status().await?;
    let leads = status.managers.iter().find(|manager| manager.leads);
    let address = leads.map(|manager| manager.address.clone()).unwrap_or_default();
    let server = cluster.running.servers.iter().find(|server| server.record.address == address);
    let name = server.and_then(|server| MANAGERS.into_iter().find(|name| *name == server.name));
    let name = name.ok_or_else(|| {
        Failure::new(
            Exit::NotFound,
            "find the manager that leads",
            format!("none of the bench is at {address}"),
        )
    })?;
    cluster.kill(name).await?;
    Ok(Killed(name, address))
}

/// Starts a manager again at its address, and waits until all are there.
pub(super) async fn start_again(cluster: &mut Cluster, killed: Killed) -> Result<(), Failure> {
    let Killed(name, address) = killed;
    let place = directory(cluster, name).display().to_string();
    let words = ["manager", "serve", "--no-config", "--listen", &address, "--dir", &place];
    let server = Server::start_as(&cluster.running.dir, name, &words, Mode::Attached).await?;
    cluster.running.servers.push(server);
    all_there(&cluster.client, MANAGERS.len()).await
}

fn directory(cluster: &Cluster, name: &str) -> PathBuf {
    if name == MANAGER { cluster.running.dir.manager() } else { cluster.running.dir.root().join(name) }
}

/// Waits until so many managers stand by or lead without a lag, and as many members of etcd are healthy.
async fn all_there(client: &Client, count: usize) -> Result<(), Failure> {
    let end = Instant::now() + BOUND;
    loop {
        let status = client.status().await?;
        let managers = status.managers.iter().filter(|it| it.lag == 0 && it.silent_ms < 2000).count();
        let members = status.members.iter().filter(|it| it.healthy).count();
        if managers >= count && members >= count {
            return Ok(());
        }
        if Instant::now() > end {
            let why = format!("{managers} managers and {members} members of etcd are there, of {count}");
            return Err(Failure::new(Exit::Timeout, "wait for the managers", why));
        }
        sleep(POLL).await;
    }
}

/// The first of so many ports in a row that nobody has now, and that were not given before. They lie below
/// those that the system gives to connections: such a one could have it while its server is away.
fn free(taken: &mut BTreeSet<u16>, count: u16) -> Result<u16, Failure> {
    const PORTS: std::ops::Range<u16> = 12_000..32_000;
    // Benches that run at once begin at different places.
    let begin = PORTS.start + u16::try_from(std::process::id() % 9_000).unwrap_or_default() * 2;
    for first in (begin..PORTS.end).chain(PORTS.start..begin) {
        let ports = first..first + count;
        if ports.clone().all(|port| !taken.contains(&port) && TcpListener::bind((HOST, port)).is_ok()) {
            taken.extend(ports);
            return Ok(first);
        }
    }
    Err(Failure::new(Exit::Failed, "find a port", format!("no {count} free ports in a row")))
}
