//! A drive's life: start, serve, stop.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use braid_layout::DriveId;
use braid_schedule::{DeviceCost, RailRate};
use braid_store::Store;
use braid_transport::{
    Capacity, Credentials, Draining, LinkBounds, Listener, Managers, host, raise_descriptors, session_config,
};
use braid_wire::Addresses;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tracing::{info, warn};

use crate::calibration::Calibration;
use crate::connections::connection;
use crate::connections::datagrams;
use crate::connections::room::PeerSlots;
use crate::connections::sending::MEASURED_EVERY;
use crate::core::Core;
use crate::damage::Damage;
use crate::device::gate::{CloseOnDrop, Gate};
use crate::device::rail::Rails;
use crate::error::DriveError;
use crate::keys::Keys;
use crate::life::config::Config;
use crate::life::heartbeat::{self, About, Pulse};
use crate::life::identity::{Directory, Identity};
use crate::life::join;
use crate::life::lease::Lease;
use crate::life::startup_identity::{self, Known};
use crate::parity::forwarder::Forwarder;
use crate::parity::sisters::Sisters;
use crate::readmission::ReadmissionFence;
use crate::{calibration, damage_checks, scrub, scrubber};

/// Pause after the system refuses to accept a connection, because it has run out of a resource.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Timeout for sending the last heartbeat.
const FAREWELL_WAIT: Duration = Duration::from_secs(1);
/// Longest wait of a shutdown for peers by datagrams to acknowledge their last answers.
const DRAIN_WAIT: Duration = Duration::from_secs(1);
/// Longest wait of a shutdown for a store that is being opened.
const PREPARE_WAIT: Duration = Duration::from_secs(1);

/// A drive that listens and that the manager knows.
#[derive(Debug, Clone)]
pub struct Ready {
    pub drive: DriveId,
    /// Name of the drive in the cluster.
    pub name: String,
    /// First address on which the drive listens.
    pub address: SocketAddr,
    /// All addresses on which the drive listens, with commas between.
    pub listens: String,
    /// The managers, for other work that the drive's process does in the drive's name.
    pub managers: Managers,
    /// Credentials that prove to the manager that a session is the drive's; for the same work as `managers`.
    pub credentials: Credentials,
    /// Damaged units that the drive's process is to have repaired.
    pub damage: Arc<Damage>,
}

/// Runs one drive until `shutdown` completes. `ready` is sent when the drive listens and has joined; it
/// serves once the manager has answered a heartbeat. The shutdown interrupts every phase, including joining;
/// the next start continues where this one stopped.
pub async fn run(
    config: Config,
    ready: oneshot::Sender<Ready>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), DriveError> {
    config.validate()?;
    tokio::pin!(shutdown);
    let Some(begun) = begin(&config, &mut shutdown).await? else { return Ok(()) };
    let preparing = prepare(&config, begun);
    tokio::pin!(preparing);
    let Some(prepared) = unless(&mut shutdown, &mut preparing).await else {
        // Usually this is done at once, and leaves the directory free for the next start.
        return match tokio::time::timeout(PREPARE_WAIT, preparing).await {
            Ok(Ok(prepared)) => close_store(prepared.store, &config).await,
            Ok(Err(_)) | Err(_) => Ok(()),
        };
    };
    let Prepared { directory, mut identity, managers, mut listener, room, gate, store, about } = prepared?;
    let _closing = CloseOnDrop(Arc::clone(&gate));
    let capacity = store.stat().map(|stat| stat.capacity).unwrap_or_default();
    let joining = join::join(&directory, &mut identity, &managers, &config, &about, capacity);
    let calibrating = calibrated(&directory, &config);
    let joined = unless(&mut shutdown, async { tokio::try_join!(joining, calibrating) }).await;
    let core = match joined {
        Some(Ok(((), calibration))) => {
            core(&identity, &managers, store.clone(), room, gate, &config, &directory, calibration)
        }
        Some(Err(error)) => Err(error),
        None => {
            info!(%managers, "the drive was stopped before it had joined the cluster");
            return close_store(store, &config).await;
        }
    };
    let core = match core {
        Ok(core) => Arc::new(core),
        Err(error) => {
            // The reason why it does not start matters more than an error here.
            let _ = close_store(store, &config).await;
            return Err(error);
        }
    };
    let listens: Vec<SocketAddr> = listener.local_addresses().collect();
    if let Some(policy) = core.settings.udp
        && let Err(error) = listener.serve_datagrams(&session_config(policy), &datagrams::secret_of(&core))
    {
        // The reason why it does not start matters more than an error here.
        let _ = close_store(store, &config).await;
        return Err(error.into());
    }
    let (close, closing) = watch::channel(false);
    // The drive serves even if nobody waits for this.
    let _ = ready.send(is_ready(&identity, &managers, &listens, &core));
    let address = shown(&listens);
    let udp = listener.has_datagrams();
    info!(drive = %identity.name, id = %identity.drive, address, udp, "listening");
    let verifying = verify(&core, &directory, &closing);
    let mut keeping_time = JoinSet::new();
    keeping_time.spawn(Arc::clone(&core.gate).keep_time());
    let mut closing_rails = Vec::new();
    for gate in core.rails.iter().flat_map(Rails::gates).chain([&core.processors]) {
        keeping_time.spawn(Arc::clone(gate).keep_time());
        closing_rails.push(CloseOnDrop(Arc::clone(gate)));
    }
    let beating = heartbeat::run(Arc::clone(&core), directory, identity, managers, about, closing.clone());
    let mut heartbeats = tokio::spawn(beating);
    let mut connections = JoinSet::new();
    let ended = loop {
        tokio::select! {
            () = &mut shutdown => break Ok(()),
            beaten = &mut heartbeats => break beaten.unwrap_or_else(|error| Err(error.into())).map(drop),
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    connections.spawn(connection::serve(Arc::clone(&core), stream, closing.clone()));
                }
                Err(error) => {
                    warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(served) = connections.join_next() => {
                if let Err(error) = served {
                    warn!(%error, "a connection ended in a panic");
                }
            }
        }
    };
    let draining = listener.close();
    core.lease().handle_closing();
    let _ = close.send(true);
    finish(connections, draining, core.settings.shutdown_wait).await;
    if ended.is_ok() {
        // The manager is told, so that nobody must wait for the lease to lapse.
        farewell(heartbeats, &core).await;
    }
    end_all(verifying, core.settings.shutdown_wait).await;
    core.forwarder.stop();
    close_store(store, &config).await?;
    ended
}

/// Starts the tasks that verify stored units (the scrub of all units, the verifier of doubted ones), and the
/// those that measure.
fn verify(
    core: &Arc<Core>,
    directory: &Arc<Directory>,
    closing: &watch::Receiver<bool>,
) -> [JoinHandle<()>; 4] {
    let scrubbing = scrubber::run(Arc::clone(core), Arc::clone(directory), closing.clone());
    let calibrating = calibration::task::serve(Arc::clone(core), Arc::clone(directory), closing.clone());
    let checking = damage_checks::run(Arc::clone(core), closing.clone());
    let sending = measure_sending(Arc::clone(core), Arc::clone(directory), closing.clone());
    [tokio::spawn(scrubbing), tokio::spawn(checking), tokio::spawn(calibrating), tokio::spawn(sending)]
}

/// Measures what sending costs, at once and from time to time, where the drive has a real disk.
async fn measure_sending(core: Arc<Core>, directory: Arc<Directory>, mut closing: watch::Receiver<bool>) {
    #[cfg(feature = "simulated")]
    let is_real = core.settings.medium.is_none();
    #[cfg(not(feature = "simulated"))]
    let is_real = true;
    if !is_real || core.settings.disk_model.is_some() || !core.settings.calibrate {
        return;
    }
    loop {
        let measured = Arc::clone(&core);
        let path = directory.path().to_owned();
        if let Err(error) = host::spawn_blocking(move || measured.sending.measure(&path)).await {
            warn!(%error, "what sending costs was not measured");
        }
        tokio::select! {
            _ = closing.wait_for(|closing| *closing) => return,
            () = tokio::time::sleep(MEASURED_EVERY) => {}
        }
    }
}

/// The drive's calibration, after a short run if it has none yet: nothing is served before that.
async fn calibrated(directory: &Arc<Directory>, config: &Config) -> Result<Calibration, DriveError> {
    let directory = Arc::clone(directory);
    in_thread(config.clone(), move |config| Ok(calibration::task::at_start(&directory, &config.settings)))
        .await
}

/// Addresses as one text, with commas between.
fn shown(listens: &[SocketAddr]) -> String {
    listens.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(",")
}

fn is_ready(identity: &Identity, managers: &Managers, listens: &[SocketAddr], core: &Core) -> Ready {
    let Identity { drive, name, .. } = identity;
    let name = name.clone();
    let managers = managers.clone();
    let credentials = core.keys.credentials();
    let damage = Arc::clone(&core.damage);
    let address = listens[0];
    Ready { drive: *drive, name, address, listens: shown(listens), managers, credentials, damage }
}

/// Sends the last heartbeat: the drive has served its last request. It does not wait long, as the manager may
/// be away.
async fn farewell(mut heartbeats: JoinHandle<Result<Option<Pulse>, DriveError>>, core: &Arc<Core>) {
    let last = async {
        if let Ok(Ok(Some(pulse))) = (&mut heartbeats).await {
            pulse.farewell(core).await;
        }
    };
    if tokio::time::timeout(FAREWELL_WAIT, last).await.is_err() {
        info!("the manager was not told that the drive stops: it waits for its lease to lapse");
    }
    if !heartbeats.is_finished() {
        end(heartbeats, Duration::ZERO).await;
    }
}

/// Waits until a task ends, as it holds the directory until then. After `wait` it is aborted.
async fn end<T>(mut task: JoinHandle<T>, wait: Duration) {
    if tokio::time::timeout(wait, &mut task).await.is_err() {
        task.abort();
        let _ = task.await;
    }
}

async fn end_all(tasks: [JoinHandle<()>; 4], wait: Duration) {
    for task in tasks {
        end(task, wait).await;
    }
}

/// Waits until accepted requests are answered; after `wait` the connections are cut off. By datagrams, peers
/// have some time to acknowledge their last answers.
async fn finish(mut connections: JoinSet<()>, draining: Draining, wait: Duration) {
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(wait, all).await.is_err() {
        warn!("connections were cut off: their peers did not read their answers");
        connections.shutdown().await;
    }
    draining.drained(DRAIN_WAIT.min(wait)).await;
}

/// The result of `work`, or `None` once `shutdown` completes.
async fn unless<T>(
    shutdown: &mut (impl Future<Output = ()> + Unpin),
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        () = shutdown => None,
        done = work => Some(done),
    }
}

async fn close_store(store: Store, config: &Config) -> Result<(), DriveError> {
    let dir = config.dir.clone();
    host::spawn_blocking(move || store.close()).await?.map_err(|source| DriveError::Store { dir, source })
}

/// Runs several drives in one process until `shutdown` completes or one of them fails; the others then stop
/// too.
pub async fn run_all(
    configs: Vec<(Config, oneshot::Sender<Ready>)>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), DriveError> {
    let (close, closing) = watch::channel(false);
    let mut drives = JoinSet::new();
    for (config, ready) in configs {
        let mut closing = closing.clone();
        let closed = async move {
            let _ = closing.wait_for(|&closing| closing).await;
        };
        drives.spawn(run(config, ready, closed));
    }
    tokio::pin!(shutdown);
    let mut ended = Ok(());
    loop {
        tokio::select! {
            () = &mut shutdown, if !*closing.borrow() => { let _ = close.send(true); }
            drive = drives.join_next() => match drive {
                None => return ended,
                Some(result) => {
                    let _ = close.send(true);
                    ended = ended.and(result.unwrap_or_else(|error| Err(error.into())));
                }
            },
        }
    }
}

/// Everything that a drive needs from its own machine.
struct Prepared {
    directory: Arc<Directory>,
    identity: Identity,
    managers: Managers,
    listener: Listener,
    room: PeerSlots,
    gate: Arc<Gate>,
    store: Store,
    about: About,
}

/// A directory that this process has taken, its drive, and the managers.
struct Begun {
    directory: Directory,
    identity: Identity,
    managers: Managers,
}

/// Takes the directory and finds which drive it is. `None`: the shutdown came first.
async fn begin(
    config: &Config,
    shutdown: &mut (impl Future<Output = ()> + Unpin),
) -> Result<Option<Begun>, DriveError> {
    let taking = in_thread(config.clone(), |config| {
        #[cfg(feature = "simulated")]
        let directory = match &config.settings.medium {
            Some(medium) => Directory::on_medium(&config.dir, Arc::clone(medium)),
            None => Directory::take(&config.dir)?,
        };
        #[cfg(not(feature = "simulated"))]
        let directory = Directory::take(&config.dir)?;
        let known = startup_identity::identity(&directory, &config, None)?;
        Ok((directory, known))
    });
    tokio::pin!(taking);
    let Some(taken) = unless(shutdown, &mut taking).await else {
        // Usually this is done at once, and leaves the directory free for the next start.
        let _ = tokio::time::timeout(PREPARE_WAIT, taking).await;
        return Ok(None);
    };
    let (directory, known) = taken?;
    let managers = match known {
        Known::Is(identity, managers) => {
            return Ok(Some(Begun { directory, identity: *identity, managers }));
        }
        Known::Asks(managers) => managers,
    };
    let Some(token) = &config.token else { return Err(DriveError::NoToken(config.dir.clone())) };
    let Some(cluster) = unless(shutdown, join::cluster_of(&managers, token.pin, config)).await else {
        info!(%managers, "the drive was stopped before it had joined the cluster");
        return Ok(None);
    };
    let cluster = Some(cluster?);
    let (directory, known) = in_thread(config.clone(), move |config| {
        let known = startup_identity::identity(&directory, &config, cluster)?;
        Ok((directory, known))
    })
    .await?;
    match known {
        Known::Is(identity, managers) => Ok(Some(Begun { directory, identity: *identity, managers })),
        Known::Asks(_) => Err(DriveError::NoToken(config.dir.clone())),
    }
}

/// Prepares a drive from its directory, up to the point where it listens. If the future is dropped midway,
/// the thread that it started keeps the directory locked until it is done.
async fn prepare(config: &Config, begun: Begun) -> Result<Prepared, DriveError> {
    let Begun { directory, identity, managers } = begun;
    let settings = &config.settings;
    let descriptors = raise_descriptors(PeerSlots::descriptors(settings.connections_max));
    let room = PeerSlots::new(settings.connections_max, descriptors);
    let link = RailRate::of_told(settings.rail_bytes_per_second).map(|rate| LinkBounds {
        window_bytes: usize::try_from(rate.window_bytes()).unwrap_or(usize::MAX),
        unsent_bytes: rate.piece_bytes(),
    });
    let capacity = Capacity { link, ..room.capacity() };
    let listener = match settings.udp {
        Some(_) => Listener::bind_both(&config.listen, settings.limits, capacity).await?,
        None => Listener::bind_all(&config.listen, settings.limits, capacity).await?,
    };
    let directory = Arc::new(directory);
    let opening = identity.clone();
    let gate = Gate::new(DeviceCost::FREE, settings.reads_max.max(1));
    let store = {
        let directory = Arc::clone(&directory);
        let gate = Arc::clone(&gate);
        in_thread(config.clone(), move |config| join::store(&directory, &opening, &config, &gate)).await?
    };
    let about = About {
        addresses: match config.advertise.as_slice() {
            [] => Addresses::new(&listener.local_addresses().map(|at| at.to_string()).collect::<Vec<_>>()),
            told => Addresses::new(told),
        }
        .map_err(DriveError::Rails)?,
        host: config.host.clone().unwrap_or_else(host_name),
        directory: std::path::absolute(directory.path())
            .unwrap_or_else(|_| directory.path().to_owned())
            .display()
            .to_string(),
    };
    Ok(Prepared { directory, identity, managers, listener, room, gate, store, about })
}

fn core(
    identity: &Identity,
    managers: &Managers,
    store: Store,
    room: PeerSlots,
    gate: Arc<Gate>,
    config: &Config,
    directory: &Directory,
    calibration: Calibration,
) -> Result<Core, DriveError> {
    let Some(master) = &identity.master else { return Err(DriveError::NoToken(directory.path().to_owned())) };
    let fence = if identity.was_out { ReadmissionFence::closed } else { ReadmissionFence::open };
    let readmission = fence(identity.epoch);
    let lease = Lease::new(identity.seen.term);
    let Some(pin) = identity.ca else { return Err(DriveError::NoAuthority(directory.path().to_owned())) };
    let identity = (identity.cluster, identity.drive);
    let keys = Keys::new(identity.0, pin, identity.1, master);
    let sisters = Sisters::new(managers.clone(), keys.credentials(), config.settings.limits);
    let parts = (lease, readmission, scrub::load(directory), room, gate);
    Ok(Core::new(identity, keys, store, parts, Forwarder::new(sisters), calibration, config.settings.clone()))
}

async fn in_thread<T: Send + 'static>(
    config: Config,
    work: impl FnOnce(Config) -> Result<T, DriveError> + Send + 'static,
) -> Result<T, DriveError> {
    host::spawn_blocking(move || work(config)).await?
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
