//! The life of a manager whose state is in etcd: it stands by, leads, and stands by again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_meta::records::log::{HeadRecord, LeaderRecord};
use braid_transport::host;
use braid_transport::{Limits, Listener, raise_descriptors};
use braid_wire::Reason;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::cache::Cache;
use super::checkpoint;
use super::config::EtcdConfig;
use super::election::{Tenure, campaign};
use super::error::EtcdError;
use super::fellows::{self, OwnKey};
use super::kv::EtcdKv;
use super::lease::Lease;
use super::link::Link;
use super::pen::Pen;
use super::reader::{Followed, blocking, catch_up, follow, identify, look};
use super::standby::{Known, Proof, turn_away};
use crate::disk::directory::{ManagerError, lock};
use crate::disk::private;
use crate::sessions::serve::serve;
use crate::sessions::session_slots::SessionSlots;
use crate::start::{CLOSE_WAIT, Config, Ready, start, store_time, write_tokens};
use crate::sweep::sweep;

/// Maximum time that a starting manager waits for etcd, whose members may be starting too.
const START_WAIT: Duration = Duration::from_secs(60);
/// Interval at which a manager that stands by asks etcd who leads and what is new: a dead leader's key is
/// gone for this long at most before another takes its place.
const LOOK: Duration = Duration::from_millis(200);
/// Maximum time that a read waits for etcd: for more than one member.
const WAIT: Duration = Duration::from_secs(6);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(1000);
/// Interval of log lines while etcd does not answer.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Words to clients while no member of the etcd that Braid runs answers.
const OWN_ETCD_SILENT: &str = "this manager stands by and no manager leads, as too few of the managers' etcd run: start \
                               the other managers (braid manager serve --dir DIR). Files that are open go on meanwhile, \
                               until their leases end";
/// Words to clients while no member of an etcd that somebody else runs answers.
const ETCD_SILENT: &str = "this manager stands by and no manager leads, as the etcd of its state does not answer: see that \
                           most of its members run. Files that are open go on meanwhile, until their leases end";

/// End of a turn as a manager that stands by, or leads.
enum Turn {
    /// The manager is to stop.
    Stopped,
    /// It stands by again, with a new lease.
    Over(String),
}

/// The things that all turns share.
struct Node {
    config: Config,
    link: Arc<Link>,
    cache: Arc<Cache>,
    listener: Arc<Listener>,
    known: Arc<Known>,
    me: LeaderRecord,
    key: OwnKey,
    ready: Option<oneshot::Sender<Ready>>,
    said: Option<Instant>,
}

/// Runs a manager whose state is in etcd. See [`crate::start::run`].
pub(crate) async fn run(
    config: Config,
    etcd: EtcdConfig,
    ready: oneshot::Sender<Ready>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ManagerError> {
    let dir = config.dir.clone();
    private::make_dir_all(&dir).map_err(|source| ManagerError::File { path: dir.clone(), source })?;
    let _lock = lock(&dir)?;
    let slots = SessionSlots::new(raise_descriptors(SessionSlots::descriptors()));
    let listener = Listener::bind_with(&config.listen, Limits::default(), slots.capacity()).await?;
    let endpoints = config.own_etcd.as_ref().map(|own| own.access.endpoints.clone());
    let link = Arc::new(Link::new(&etcd, endpoints).await?);
    let at = dir.clone();
    let opening = host::spawn_blocking(move || Cache::open(&at)).await;
    let cache = Arc::new(opening.map_err(|error| EtcdError::Config(error.to_string()))??);
    private::tighten(&dir);
    let mut shutdown = std::pin::pin!(shutdown);
    tokio::select! {
        () = &mut shutdown => return Ok(()),
        found = find_state(&link, &cache) => found?,
    }
    let address = config.advertise.clone().unwrap_or_else(|| listener.local_address().to_string());
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut node = Node {
        config,
        link,
        cache,
        listener: Arc::new(listener),
        known: Arc::default(),
        me: LeaderRecord { address: address.clone(), name: name.clone() },
        key: OwnKey::new(address, name),
        ready: Some(ready),
        said: None,
    };
    let ended = node.turns(shutdown.as_mut()).await;
    let copy = Arc::clone(&node.cache);
    if let Err(error) = blocking(move || copy.sync()).await {
        tracing::info!(%error, "the copy of the state could not be synced: more of it is read from etcd at the next start");
    }
    tracing::info!("the manager has stopped");
    ended
}

/// Makes sure that etcd has the state that the directory belongs to. Etcd's members may still be starting.
async fn find_state(link: &Link, cache: &Arc<Cache>) -> Result<(), EtcdError> {
    let began = Instant::now();
    loop {
        match identify(link, cache, SAY_EVERY).await {
            Err(error @ EtcdError::Silent { .. }) if began.elapsed() < START_WAIT => {
                tracing::warn!(%error, "the manager waits for etcd");
            }
            found => return found,
        }
    }
}

impl Node {
    async fn turns(&mut self, mut shutdown: Pin<&mut impl Future<Output = ()>>) -> Result<(), ManagerError> {
        let mut away = self.turning_away();
        loop {
            let granted = tokio::select! {
                () = &mut shutdown => return Ok(()),
                granted = Lease::grant(&self.link) => granted,
            };
            let lease = match granted {
                Ok(lease) => Arc::new(lease),
                Err(error) if error.is_final() => return Err(error.into()),
                Err(error) => {
                    self.say(&error);
                    tokio::select! {
                        () = &mut shutdown => return Ok(()),
                        () = sleep(PAUSE) => continue,
                    }
                }
            };
            self.key.forget();
            let mut keeping = JoinSet::new();
            let kept = Arc::clone(&lease);
            let link = Arc::clone(&self.link);
            keeping.spawn(async move { kept.keep(&link).await });
            let turn = self.turn(&lease, away, shutdown.as_mut()).await;
            away = self.turning_away();
            keeping.shutdown().await;
            lease.end(&self.link).await;
            match turn? {
                Turn::Stopped => return Ok(()),
                Turn::Over(why) => {
                    tracing::warn!(%why, "the manager stands by");
                    // Others first: whatever ended this turn may last.
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Refuses sessions, until this is shut down or dropped.
    fn turning_away(&self) -> JoinSet<()> {
        let mut away = JoinSet::new();
        away.spawn(turn_away(Arc::clone(&self.listener), Arc::clone(&self.known)));
        away
    }

    /// Stands by, and leads if it is elected, while this lease lasts. `away` refuses sessions until it leads.
    async fn turn(
        &mut self,
        lease: &Arc<Lease>,
        away: JoinSet<()>,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Turn, ManagerError> {
        let elected = tokio::select! {
            () = &mut shutdown => return Ok(Turn::Stopped),
            elected = self.stand_by(lease) => elected?,
        };
        match elected {
            Some(revision) => self.lead(lease, revision, away, shutdown).await,
            None => Ok(Turn::Over("its lease in etcd was not renewed in time".to_owned())),
        }
    }

    /// Follows the log until this manager is elected, and returns the revision of its leader's key; `None`:
    /// the lease is over.
    async fn stand_by(&mut self, lease: &Lease) -> Result<Option<i64>, ManagerError> {
        loop {
            if lease.left().is_zero() {
                return Ok(None);
            }
            match self.step(lease).await {
                Ok(Some(revision)) => return Ok(Some(revision)),
                Ok(None) => {}
                Err(error) if error.is_final() => return Err(error.into()),
                Err(error) => {
                    self.say(&error);
                    sleep(LOOK).await;
                }
            }
        }
    }

    async fn step(&mut self, lease: &Lease) -> Result<Option<i64>, EtcdError> {
        let view = look(&self.link, self.cache.place().index, WAIT).await?;
        let followed = follow(&self.link, &self.cache, &view, WAIT).await?;
        if self.said.take().is_some() {
            tracing::info!("etcd answers again");
        }
        self.key.keep(&self.link, lease, self.cache.place().index).await;
        if self.ready.is_some() && self.announce().await? {
            tracing::info!(address = %self.me.address, "the manager stands by");
        }
        let leader = view.leader.as_ref();
        self.known.set_leader(leader.map_or("", |leader| &leader.record.address));
        match leader {
            // Elected by a request whose answer was lost.
            Some(leader) if leader.lease == lease.id => return Ok(Some(leader.revision)),
            None if followed == Followed::Up => return campaign(&self.link, lease, &self.me).await,
            _ => {}
        }
        if followed == Followed::Up {
            sleep(LOOK).await;
        }
        Ok(None)
    }

    /// Says that this manager is ready, once its copy has what that takes. Returns true if it has.
    async fn announce(&mut self) -> Result<bool, EtcdError> {
        let address = self.listener.local_address().to_string();
        let found = Proof::of(&self.cache, &address).await;
        let found = found.map_err(|refusal| EtcdError::Refused {
            state: self.link.state.clone(),
            what: format!("the copy of the state in {}: {refusal}", self.config.dir.display()),
        })?;
        let Some((proof, ready)) = found else { return Ok(false) };
        self.known.set_proof(proof);
        if let Err(error) = write_tokens(&self.config.dir, &ready) {
            tracing::warn!(%error, "the files of the tokens cannot be written");
        }
        if let Some(waits) = self.ready.take() {
            // Who started this manager may not listen any more.
            let _ = waits.send(ready);
        }
        Ok(true)
    }

    /// Logs a failure, now and then, and tells clients.
    fn say(&mut self, error: &EtcdError) {
        if matches!(error, EtcdError::Silent { .. }) {
            let is_own = self.config.own_etcd.is_some();
            self.known.set_trouble(if is_own { OWN_ETCD_SILENT } else { ETCD_SILENT });
        }
        if self.said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            self.said = Some(Instant::now());
            tracing::warn!(%error, "the manager stands by, and waits for etcd");
        }
    }

    /// Leads until the tenure is over.
    async fn lead(
        &mut self,
        lease: &Arc<Lease>,
        revision: i64,
        mut away: JoinSet<()>,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Turn, ManagerError> {
        let tenure = Arc::new(Tenure::new(revision, Arc::clone(lease)));
        let pen = Pen { link: Arc::clone(&self.link), tenure: Arc::clone(&tenure) };
        let logged = Arc::new(AtomicU64::new(0));
        let mut kv = EtcdKv::new(Arc::clone(&self.cache), pen.clone(), Arc::clone(&logged));
        let closed = kv.closed();
        let head = match prepare(&self.link, &self.cache, &pen).await {
            Ok(head) => head,
            Err(error) if error.is_final() => return Err(error.into()),
            Err(error) => return Ok(Turn::Over(error.to_string())),
        };
        logged.store(checkpoint::estimate(head.as_ref(), self.cache.place()), Ordering::Release);
        let slots = SessionSlots::new(raise_descriptors(SessionSlots::descriptors()));
        let core = match start(Arc::new(kv), &self.config, slots).await {
            Ok(core) => core,
            Err(refusal) if matches!(refusal.reason, Reason::NotLeading | Reason::ManagerFull) => {
                return Ok(Turn::Over(refusal.to_string()));
            }
            Err(refusal) => return Err(ManagerError::Start(refusal)),
        };
        tracing::info!(address = %self.me.address, cluster = %core.cluster.cluster, term = core.term(), "the manager leads");
        self.announce().await?;
        away.shutdown().await;
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(Arc::clone(&core), Arc::clone(&self.listener)));
        tasks.spawn(sweep(Arc::clone(&core)));
        tasks.spawn(checkpoint::keep(pen.clone(), Arc::clone(&self.cache), logged, head));
        let me = self.me.address.clone();
        tasks.spawn(fellows::follow(Arc::clone(&core), Arc::clone(&self.link), Arc::clone(&self.cache), me));
        let stopped = loop {
            tokio::select! {
                () = &mut shutdown => break None,
                why = tenure.over() => break Some(why),
                () = sleep(PAUSE) => self.key.keep(&self.link, lease, self.cache.place().index).await,
            }
        };
        tasks.shutdown().await;
        if stopped.is_none() {
            store_time(&core).await;
        }
        // What is still under way changes nothing more.
        tenure.end("the manager has stopped");
        drop(core);
        if timeout(CLOSE_WAIT, closed).await.is_err() {
            tracing::warn!("a transaction of the former leader takes long to end: it will be refused");
        }
        Ok(stopped.map_or(Turn::Stopped, Turn::Over))
    }
}

/// Brings the copy up to date, and removes what former leaders left unfinished. Returns the newest
/// checkpoint.
pub(super) async fn prepare(
    link: &Arc<Link>,
    cache: &Arc<Cache>,
    pen: &Pen,
) -> Result<Option<HeadRecord>, EtcdError> {
    catch_up(link, cache, WAIT).await?;
    let head = checkpoint::newest(link, WAIT).await?;
    checkpoint::sweep(pen, head.as_ref(), Some(cache.place())).await?;
    Ok(head)
}
