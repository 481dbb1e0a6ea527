//! `braid manager serve` and `braid drive serve`: the servers in the foreground. They run until SIGTERM,
//! Ctrl-C or the end of the lifeline, and end at once if their directory is gone.

use std::io::Read;
use std::path::Path;

use braid_client::cluster::environment;
use braid_manager::{EtcdConfig, Ready, SEVERAL_LEASE_MS};
use braid_wire::token::{BadToken, Token};
use tokio::sync::oneshot;

use crate::args::{DriveServe, EtcdOfState, ManagerServe, Supervised};
use crate::config::told::Told;
use crate::machine::address;
use crate::machine::cluster_dir::{CLUSTER_FILE, ClusterFile, write_cluster_file};
use crate::machine::etcd::{Host, Patience};
use crate::machine::held::HeldDirectory;
use crate::machine::hosting::VOTE;
use crate::machine::process::PidRecord;
use crate::output::exit::{Doing, Exit, Failure};
use crate::output::interrupt::{Interrupts, Of};
use crate::output::report::complain;

/// Runs `braid manager serve`. `told` is what its directory remembers.
pub(crate) async fn manager(serve: ManagerServe, told: &Told) -> Result<(), Failure> {
    check_manager(&serve).await?;
    told.log();
    if let Some(host) = Host::of(&serve.dir)? {
        if serve.etcd.state.is_some() {
            let why = "its directory has an etcd of its own, which braid starts";
            return Err(Failure::usage("serve the manager", why).remedy("leave --state out"));
        }
        return with_etcd(serve, told, host, Patience::Ever, async |_: &Ready, _: &str| Ok(())).await;
    }
    let stop = Stop::new(&serve.supervised)?;
    let mut config = config_of(&serve);
    config.etcd = etcd(&serve.etcd, "serve the manager")?;
    let after = async |_: &Ready, _: &str| Ok(());
    serve_manager(config, &serve, told, stop.wait(), after).await
}

/// Serves a manager with the etcd beside it. `after` is run once it serves.
pub(crate) async fn with_etcd(
    serve: ManagerServe,
    told: &Told,
    mut host: Host,
    patience: Patience,
    after: impl AsyncFnOnce(&Ready, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut stopped = tokio::spawn(Stop::new(&serve.supervised)?.wait());
    let etcd = host.start()?;
    let starting = async {
        if host.member.joined && patience != Patience::Ever {
            host.until_votes(VOTE).await?;
        }
        host.until_answers(&etcd, patience).await
    };
    let started = tokio::select! {
        started = starting => started.map(|()| true),
        _ = &mut stopped => Ok(false),
    };
    let noted = |serves: bool| if serves { host.has_started().map(|()| true) } else { Ok(false) };
    let ended = match started.and_then(noted) {
        Ok(true) => {
            let mut config = config_of(&serve);
            config.advertise = Some(host.member.name.clone());
            config.etcd = Some(host.etcd_config());
            config.own_etcd = Some(host.own_etcd());
            let stopping = async { drop(stopped.await) };
            let noting = async |ready: &Ready, address: &str| {
                host.tell_managers()?;
                after(ready, address).await?;
                host.follow().await;
                Ok(())
            };
            serve_manager(config, &serve, told, stopping, noting).await
        }
        Ok(false) => Ok(()),
        Err(failure) => Err(failure),
    };
    // After the manager, which writes its last changes to it.
    etcd.stop().await;
    ended
}

fn config_of(serve: &ManagerServe) -> braid_manager::Config {
    let mut config = braid_manager::Config::new(&serve.dir, &serve.listen);
    config.lost_after_ms = serve.lost_after.saturating_mul(1000);
    config.advertise = serve.advertise.clone();
    config
}

/// Serves a manager until `stop`. `after` is run once it serves; if it fails, the manager ends.
async fn serve_manager(
    config: braid_manager::Config,
    serve: &ManagerServe,
    told: &Told,
    stop: impl Future<Output = ()>,
    after: impl AsyncFnOnce(&Ready, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let what = || format!("serve the manager in {}", serve.dir.display());
    let lease_ms = if config.etcd.is_some() { SEVERAL_LEASE_MS } else { config.lease_ms };
    let config = braid_manager::Config { lease_ms, ..config };
    let (ready, is_ready) = oneshot::channel();
    let running = braid_manager::run(config, ready, stop);
    let announcing = async {
        let Ok(ready) = is_ready.await else { return std::future::pending().await };
        end_without(&serve.dir, what())?;
        let address = serve.advertise.clone().unwrap_or_else(|| ready.address.clone());
        let cluster = cluster_file(&serve.dir, address.clone(), ready.client_token.to_string());
        write_cluster_file(&serve.dir.join(CLUSTER_FILE), &cluster)?;
        told.remember();
        announce(&ready.address, &serve.supervised)?;
        after(&ready, &address).await?;
        std::future::pending().await
    };
    tokio::select! {
        ended = running => ended.doing(what),
        failed = announcing => failed,
    }
}

/// The content of the file by which admins find the manager. Places of volumes' keys that it names stay.
fn cluster_file(dir: &Path, manager: String, token: String) -> ClusterFile {
    let before = ClusterFile::read(dir).unwrap_or_else(|error| {
        tracing::warn!(%error, "the directory's {CLUSTER_FILE} is replaced, with what it said of keys and transport");
        None
    });
    let (transport, volume_keys) =
        before.map(|before| (before.transport, before.volume_keys)).unwrap_or_default();
    ClusterFile { manager, token, drives: Vec::new(), transport, volume_keys }
}

/// Says whether a manager can be served so.
pub(crate) async fn check_manager(serve: &ManagerServe) -> Result<(), Failure> {
    address::check(&serve.listen, serve.advertise.as_deref()).await?;
    etcd(&serve.etcd, "serve the manager").map(drop)
}

/// The etcd that holds the managers' state, with the files of its TLS; `what` is being done with it.
pub(crate) fn etcd(told: &EtcdOfState, what: &str) -> Result<Option<EtcdConfig>, Failure> {
    let files = [&told.etcd_ca, &told.etcd_certificate, &told.etcd_key];
    let Some(mut etcd) = told.state.clone() else {
        return match files.into_iter().flatten().next() {
            None => Ok(None),
            Some(file) => Err(Failure::usage(
                what.to_owned(),
                format!("{} is for etcd, and the state is in --dir", file.display()),
            )
            .remedy("name etcd's members: --state etcd://HOST:PORT,HOST:PORT,...")),
        };
    };
    etcd.ca.clone_from(&told.etcd_ca);
    etcd.certificate.clone_from(&told.etcd_certificate);
    etcd.key.clone_from(&told.etcd_key);
    Ok(Some(etcd))
}

/// Says whether a drive can be served so.
pub(crate) async fn check_drive(serve: &DriveServe) -> Result<(), Failure> {
    address::check_rails(&serve.listen, &serve.advertise).await?;
    token(serve).map(drop)
}

/// Runs `braid drive serve`. `told` is what its directory remembers.
pub(crate) async fn drive(serve: DriveServe, told: &Told) -> Result<(), Failure> {
    check_drive(&serve).await?;
    told.log();
    let stop = Stop::new(&serve.supervised)?;
    let what = || format!("serve the drive in {}", serve.dir.display());
    let token = token(&serve)?;
    let mut config = braid_drive::Config::new(&serve.dir, "");
    config.listen = serve.listen.clone();
    config.advertise = serve.advertise.clone();
    config.manager = serve.manager.clone();
    config.token = token;
    config.name = serve.name.clone();
    config.name_at_first = file_name(&serve.dir);
    config.host = serve.host.clone();
    config.rack = serve.rack.clone();
    config.capacity_bytes = serve.capacity;
    config.settings.scrub_rate = serve.scrub_rate;
    config.settings.clean_share_percent = serve.clean_share;
    config.settings.sending = serve.options.sending();
    config.settings.read_ahead_bytes = serve.options.read_ahead.unwrap_or(braid_drive::READ_AHEAD_BYTES);
    config.settings.disk_model = serve.options.device();
    config.settings.calibrate = !serve.options.no_calibration;
    config.settings.udp = serve.options.udp();
    config.settings.engine = Some(crate::engine::engine());
    config.settings.rail_bytes_per_second = serve.options.rail.unwrap_or_default();
    let (ready, is_ready) = oneshot::channel();
    let running = braid_heal::run(config, ready, stop.wait());
    let announcing = async {
        let Ok(ready) = is_ready.await else { return Ok(()) };
        end_without(&serve.dir, what())?;
        told.remember();
        announce(&ready.listens, &serve.supervised)
    };
    tokio::try_join!(async { running.await.doing(what) }, announcing).map(|_| ())
}

/// Ends the process as soon as its directory is gone, without cleanup, as a crash would: an orderly stop
/// writes files by name, and those names may belong to another process by now.
fn end_without(dir: &Path, what: String) -> Result<(), Failure> {
    let held = HeldDirectory::now(dir).doing(|| what.clone())?;
    tokio::spawn(async move {
        held.gone().await;
        let failure = held.failure(what);
        complain(&failure.to_string());
        std::process::exit(i32::from(failure.exit as u8))
    });
    Ok(())
}

/// Tells the parent that the server is ready, by a pid file. The server itself logs that it is ready.
fn announce(address: &str, supervised: &Supervised) -> Result<(), Failure> {
    let Some(path) = &supervised.pid_file else { return Ok(()) };
    PidRecord::of_self(address)
        .and_then(|record| record.write(path))
        .doing(|| format!("write {}", path.display()))
}

/// The join token, from its file. Command lines and environments are read by others: no secret is in them.
fn token(serve: &DriveServe) -> Result<Option<Token>, Failure> {
    let what = || "read the join token".to_owned();
    let text = match &serve.token_file {
        Some(path) => std::fs::read_to_string(path).doing(|| format!("read {}", path.display()))?,
        None if environment("BRAID_JOIN_TOKEN").is_some() => {
            let why = "BRAID_JOIN_TOKEN is set, and no token is taken from the environment";
            return Err(Failure::usage(what(), why).remedy("write the token to a file: --token-file FILE"));
        }
        None => return Ok(None),
    };
    let token =
        text.parse().map_err(|error: BadToken| Failure::new(Exit::NotAllowed, what(), error.to_string()))?;
    Ok(Some(token))
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}

/// The events that end a server: a signal, or the end of its lifeline; `wait` logs which. If the server fails
/// instead, `main` prints the error as the last line of its log.
struct Stop {
    interrupts: Interrupts,
    lifeline: Option<oneshot::Receiver<()>>,
}

impl Stop {
    fn new(supervised: &Supervised) -> Result<Stop, Failure> {
        let lifeline = supervised.lifeline.then(|| {
            let (cut, is_cut) = oneshot::channel();
            // On its own thread: the read blocks until the parent ends, and must hold up nothing else.
            std::thread::spawn(move || {
                let _ = std::io::stdin().lock().read(&mut [0]);
                let _ = cut.send(());
            });
            is_cut
        });
        Ok(Stop { interrupts: Interrupts::new(Of::Server)?, lifeline })
    }

    async fn wait(mut self) {
        let cut = async {
            match self.lifeline {
                Some(lifeline) => drop(lifeline.await),
                None => std::future::pending().await,
            }
        };
        let reason = tokio::select! {
            signal = self.interrupts.next() => signal,
            () = cut => "the process that it belongs to has ended",
        };
        tracing::info!(reason, "stopping");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_starts_again_leaves_what_its_file_says_of_keys() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = |manager: &str| cluster_file(dir.path(), manager.to_owned(), "t".to_owned());
        assert!(file("a:1").volume_keys.is_empty());
        let text = "manager = \"a:1\"\ntoken = \"old\"\n[volume-keys]\nsecret = \"/etc/secret.key\"\n";
        std::fs::write(dir.path().join(CLUSTER_FILE), text).expect("written");
        let again = file("a:2");
        assert_eq!(again.manager, "a:2");
        assert_eq!(again.token, "t");
        assert_eq!(again.volume_keys["secret"], "/etc/secret.key");
        std::fs::write(dir.path().join(CLUSTER_FILE), "no cluster file").expect("written");
        assert!(file("a:3").volume_keys.is_empty(), "it serves all the same");
    }
}
