//! Turns a directory into a drive: makes its store, and registers it with the manager.
//!
//! The order is: ask the manager, whose certificate must be of the token's CA, for its cluster; write the
//! identity, make the store, get the master key over a session with the join token, write the key, ask the
//! manager to join. After a crash at any point the next start continues from what it finds. A store made for
//! a join that the manager never heard of is empty and may be made again.

use std::sync::Arc;
use std::time::Duration;

use braid_layout::ClusterId;
use braid_store::{Options, Store, Turns};
use braid_transport::{ControlSession, Credentials, Limits, Managers, TransportError, host};
use braid_wire::Reason;
use braid_wire::control::{ControlReply, JoinDrive};
use braid_wire::token::{Pin, Token};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::device::gate::Gate;
use crate::device::own_work::StoreTurns;
use crate::error::DriveError;
use crate::keys::{Former, MasterKey};
use crate::life::config::Config;
use crate::life::heartbeat::About;
use crate::life::identity::{Directory, Identity};

/// The first wait after a failed try, and the longest.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// The minimum time for one try.
const TRY_MIN: Duration = Duration::from_secs(5);
/// Interval between warnings that the drive still waits.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Opens the drive's store; creates it if the drive has not joined yet. Blocks on the disk.
pub(crate) fn store(
    directory: &Directory,
    identity: &Identity,
    config: &Config,
    gate: &Arc<Gate>,
) -> Result<Store, DriveError> {
    if let Some(store) = open(directory, identity, config, Some(gate))? {
        return Ok(store);
    }
    let gone = || DriveError::StoreGone(directory.path().to_owned());
    if identity.joined {
        return Err(gone());
    }
    // Nothing was ever stored here: a format that a crash interrupted is repeated.
    directory.discard_store()?;
    let dir = directory.store();
    format(directory, identity, config).map_err(|source| DriveError::Store { dir, source })?;
    open(directory, identity, config, Some(gate))?.ok_or_else(gone)
}

/// Opens the drive's store, if there is one. Its own work has its turns at the gate. Blocks on the disk.
pub(crate) fn open(
    directory: &Directory,
    identity: &Identity,
    config: &Config,
    gate: Option<&Arc<Gate>>,
) -> Result<Option<Store>, DriveError> {
    let dir = directory.store();
    #[cfg(feature = "simulated")]
    if let Some(medium) = directory.medium() {
        let opened = medium.open(who(identity), options(config));
        return opened.map_err(|source| DriveError::Store { dir, source });
    }
    if !dir.exists() {
        return Ok(None);
    }
    let turns = gate.map(|gate| Arc::new(StoreTurns(Arc::clone(gate))) as Arc<dyn Turns>);
    let options = Options { turns, ..options(config) };
    match Store::open(&dir, Some(who(identity)), options) {
        Ok((store, recovery)) => {
            info!(
                dir = %dir.display(), checkpoint = recovery.checkpoint, segments = recovery.segments,
                records = recovery.records, torn_bytes = recovery.torn_bytes, damaged = recovery.damaged_count,
                took_ms = recovery.took.as_millis(), "store open"
            );
            if recovery.damaged_count > 0 {
                warn!(dir = %dir.display(), damaged = recovery.damaged_count, "the store has damaged records: those units are lost here");
            }
            Ok(Some(store))
        }
        Err(braid_store::Error::NotAStore(_)) => Ok(None),
        Err(braid_store::Error::Foreign { cluster, .. }) if cluster != identity.cluster => {
            let dir = directory.path().to_owned();
            Err(DriveError::OtherCluster { dir, here: cluster, asked: identity.cluster })
        }
        Err(source) => Err(DriveError::Store { dir, source }),
    }
}

/// Opens the store of a drive that is not to run: nothing in it changes. Returns the number of damaged
/// records too. Blocks on the disk.
pub(crate) fn open_held(directory: &Directory, identity: &Identity) -> Result<(Store, u64), DriveError> {
    let dir = directory.store();
    if !dir.exists() {
        return Err(DriveError::StoreGone(directory.path().to_owned()));
    }
    let options = Options { held: true, ..Options::default() };
    let opened = Store::open(&dir, Some(who(identity)), options);
    let (store, recovery) = opened.map_err(|source| DriveError::Store { dir, source })?;
    Ok((store, recovery.damaged_count))
}

fn format(directory: &Directory, identity: &Identity, config: &Config) -> Result<(), braid_store::Error> {
    #[cfg(feature = "simulated")]
    if let Some(medium) = directory.medium() {
        return medium.format(who(identity), &options(config));
    }
    Store::format(&directory.store(), who(identity), &options(config))
}

/// After this long without writes, the store frees disk space that it does not need.
const GIVE_BACK: Duration = Duration::from_secs(1);

fn who(identity: &Identity) -> braid_store::Identity {
    braid_store::Identity { cluster: identity.cluster, drive: identity.drive }
}

fn options(config: &Config) -> Options {
    let settings = &config.settings;
    Options {
        capacity: config.capacity_bytes,
        // Held until the manager has compared the log's position with its record.
        held: true,
        sync: settings.sync,
        segment_bytes: settings.segment_bytes.unwrap_or(Options::default().segment_bytes),
        clean_share_percent: settings.clean_share_percent,
        give_back: Some(GIVE_BACK),
        device: settings.disk_model.clone(),
        turns: None,
    }
}

/// Registers the drive with the manager that leads, unless that is done. Tries for
/// `config.settings.join_wait`, and at most [`TRY_MIN`] longer. If the future is dropped, the state is the
/// same as after a crash there.
pub(crate) async fn join(
    directory: &Directory,
    identity: &mut Identity,
    managers: &Managers,
    config: &Config,
    about: &About,
    capacity_bytes: u64,
) -> Result<(), DriveError> {
    if identity.joined {
        // A drive whose key is not the one on record joins anew, if it was started with a token and the
        // manager allows it.
        let limits = &config.settings.limits;
        if config.token.is_none() || !matches!(known(identity, managers, limits).await, Ok(false)) {
            return Ok(());
        }
        warn!(%managers, "the manager does not accept the drive's key: joining anew with the token");
    }
    let before = identity.clone();
    let joined = try_for_long(directory, identity, managers, config, about, capacity_bytes).await;
    if before.joined && joined.is_err() {
        // Its own key may still be right: one that was not accepted is worth nothing.
        *identity = before;
        directory.save(identity)?;
    }
    joined
}

/// The identity of the cluster whose CA has this pin, as one of its managers tells it. Tries for
/// `config.settings.join_wait`.
pub(crate) async fn cluster_of(
    managers: &Managers,
    pin: Pin,
    config: &Config,
) -> Result<ClusterId, DriveError> {
    let mut tries = Tries::new(config.settings.join_wait);
    loop {
        let attempt = ControlSession::cluster_of(managers, pin, &config.settings.limits);
        let attempted = tokio::time::timeout(tries.bound(), attempt).await;
        let attempted = attempted.unwrap_or_else(|_| Err(timed_out(managers))).map_err(DriveError::Join);
        if let Some(cluster) = tries.after(managers, attempted).await? {
            return Ok(cluster);
        }
    }
}

/// Tries to join for `config.settings.join_wait`.
async fn try_for_long(
    directory: &Directory,
    identity: &mut Identity,
    managers: &Managers,
    config: &Config,
    about: &About,
    capacity_bytes: u64,
) -> Result<(), DriveError> {
    let mut tries = Tries::new(config.settings.join_wait);
    loop {
        let attempt = attempt(directory, identity, managers, config, about, capacity_bytes);
        let attempted = tokio::time::timeout(tries.bound(), attempt).await;
        let attempted = attempted.unwrap_or_else(|_| Err(DriveError::Join(timed_out(managers))));
        if let Some(()) = tries.after(managers, attempted).await? {
            return Ok(());
        }
    }
}

fn timed_out(managers: &Managers) -> TransportError {
    TransportError::Timeout { what: "to join", address: managers.to_string() }
}

/// Tries to reach the manager, with pauses between.
struct Tries {
    deadline: Instant,
    /// The next pause.
    wait: Duration,
    /// The last warning.
    told: Option<Instant>,
}

impl Tries {
    /// Tries for this long.
    fn new(long: Duration) -> Tries {
        Tries { deadline: Instant::now() + long, wait: RETRY_MIN, told: None }
    }

    /// Maximum time of the next try.
    fn bound(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).max(TRY_MIN)
    }

    /// The result of a try, or its error if no other may succeed in time. `None`: the pause before the next
    /// one is over.
    async fn after<T>(
        &mut self,
        managers: &Managers,
        attempted: Result<T, DriveError>,
    ) -> Result<Option<T>, DriveError> {
        match attempted {
            Ok(done) => return Ok(Some(done)),
            Err(DriveError::Join(error))
                if may_pass(&error) && Instant::now() + self.wait < self.deadline =>
            {
                if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                    self.told = Some(Instant::now());
                    let left = self.deadline.saturating_duration_since(Instant::now()).as_secs();
                    warn!(%managers, %error, "not joined yet: waiting for the manager, trying on for {left} s");
                }
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(self.wait).await;
        self.wait = (self.wait * 2).min(RETRY_MAX);
        Ok(None)
    }
}

/// Returns true if another try may succeed.
fn may_pass(error: &TransportError) -> bool {
    match error {
        TransportError::Refusal(refusal) => {
            matches!(refusal.reason, Reason::Busy | Reason::Closing | Reason::NotLeading)
        }
        TransportError::WrongPeer { .. } | TransportError::Forged { .. } => false,
        _ => true,
    }
}

async fn attempt(
    directory: &Directory,
    identity: &mut Identity,
    managers: &Managers,
    config: &Config,
    about: &About,
    capacity_bytes: u64,
) -> Result<(), DriveError> {
    let limits = &config.settings.limits;
    if known(identity, managers, limits).await.map_err(DriveError::Join)? {
        identity.handle_managers(managers);
        identity.joined = true;
        return directory.save(identity);
    }
    let Some(token) = &config.token else { return Err(DriveError::NoToken(directory.path().to_owned())) };
    let credentials = Credentials::joining(token, identity.drive);
    let mut session = ControlSession::find(managers, credentials, limits).await.map_err(DriveError::Join)?;
    let binding = *session.binding();
    let nonce = *session.nonce();
    let key = Token::master_key(&token.secret, &binding, &nonce, identity.drive);
    // Capabilities that were made with a former key have ended.
    let former = identity.master.take().map(|master| Former { key: master.key, until_ms: Some(0) });
    identity.master = Some(MasterKey { former, ..MasterKey::first(key) });
    identity.handle_managers(managers);
    // Saved before the manager hears of the key: once the manager has stored the drive, the key must not be
    // lost.
    directory.save(identity)?;
    let join = JoinDrive {
        name: identity.name.clone(),
        addresses: about.addresses.clone(),
        host: about.host.clone(),
        rack: config.rack.clone(),
        directory: about.directory.clone(),
        pid: host::process_id(),
        capacity_bytes,
    };
    match session.call(&join.into()).await.map_err(DriveError::Join)? {
        ControlReply::Joined(joined) => {
            identity.name = joined.name;
            if let Some(master) = &mut identity.master {
                master.number = joined.key;
            }
            identity.joined = true;
            directory.save(identity)?;
            info!(drive = %identity.name, id = %identity.drive, cluster = %identity.cluster, "joined");
            Ok(())
        }
        other => {
            let what = format!("{} in answer to a join", other.name());
            Err(DriveError::Join(TransportError::Unexpected { address: session.address().to_owned(), what }))
        }
    }
}

/// Returns true if the manager already knows the drive, by a key from a join that a crash interrupted. Only a
/// refusal from the manager proves that it does not. After a broken session or damaged bytes the key is kept
/// for the next try.
async fn known(identity: &Identity, managers: &Managers, limits: &Limits) -> Result<bool, TransportError> {
    let Some(master) = &identity.master else { return Ok(false) };
    let Some(pin) = identity.ca else { return Ok(false) };
    let credentials = master.credentials(identity.cluster, pin, identity.drive);
    match ControlSession::find(managers, credentials, limits).await {
        Ok(_) => Ok(true),
        Err(error @ TransportError::Refusal(_)) if may_pass(&error) => Err(error),
        Err(TransportError::Refusal(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
