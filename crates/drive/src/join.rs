//! A directory becomes a drive: its identity, its store, and the manager's knowledge of it.
//!
//! In this order: the identity is written, the store is made, a session with the join token gives the master key, the key is
//! written, the manager is asked. After a crash anywhere the next start goes on from what is there. What was made for a join that
//! the manager never heard of holds nothing, and may be made again.

use std::path::Path;
use std::time::Duration;

use braid_layout::DriveId;
use braid_store::{Options, Store};
use braid_transport::{ControlSession, Credentials, Limits, Mismatch, TransportError};
use braid_wire::Reason;
use braid_wire::control::{ControlReply, JoinDrive};
use braid_wire::token::{Standing, Token};
use tracing::{info, warn};

use crate::config::Config;
use crate::error::DriveError;
use crate::heartbeat::About;
use crate::identity::{Directory, Identity};

/// The first wait after a failed try, and the longest.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// The directory's identity; on a first start a new one, from the token's cluster. Blocks on the disk.
pub(crate) fn identity(directory: &Directory, config: &Config) -> Result<Identity, DriveError> {
    let dir = || directory.path().to_owned();
    if config.token.as_ref().is_some_and(|token| token.standing != Standing::Join) {
        return Err(DriveError::NotAJoinToken);
    }
    let mut identity = match (directory.identity()?, &config.token) {
        (Some(identity), Some(token)) if identity.cluster != token.cluster => {
            return Err(DriveError::OtherCluster {
                dir: dir(),
                here: identity.cluster,
                asked: token.cluster,
            });
        }
        (Some(identity), _) => identity,
        (None, None) => return Err(DriveError::NoToken(dir())),
        (None, Some(token)) => fresh(config, token)?,
    };
    if let Some(manager) = &config.manager {
        identity.manager.clone_from(manager);
    }
    if let (Some(name), false) = (&config.name, identity.joined) {
        identity.name.clone_from(name);
    }
    directory.save(&identity)?;
    Ok(identity)
}

fn fresh(config: &Config, token: &Token) -> Result<Identity, DriveError> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).expect("the system gives random bytes");
    let drive = DriveId(u128::from_le_bytes(random));
    let manager = config.manager.clone().ok_or(DriveError::NoManager)?;
    let name = config.name.clone().unwrap_or_else(|| format!("drive-{}", drive.short()));
    Ok(Identity {
        cluster: token.cluster,
        drive,
        name,
        manager,
        master: None,
        joined: false,
        epoch: 0,
        was_out: false,
    })
}

/// Opens the drive's store; makes it if the drive has not joined yet. Blocks on the disk.
pub(crate) fn store(
    directory: &Directory,
    identity: &Identity,
    config: &Config,
) -> Result<Store, DriveError> {
    let dir = directory.store();
    let failed = |source| DriveError::Store { dir: dir.clone(), source };
    let settings = &config.settings;
    let mut options = Options { capacity: config.capacity_bytes, sync: settings.sync, ..Options::default() };
    options.segment_bytes = settings.segment_bytes.unwrap_or(options.segment_bytes);
    let who = braid_store::Identity { cluster: identity.cluster, drive: identity.drive };
    match open(&dir, who, &options) {
        Err(braid_store::Error::NotAStore(_)) if identity.joined => {
            Err(DriveError::StoreGone(directory.path().to_owned()))
        }
        // Nothing was ever stored here: a format that a crash cut short is made again.
        Err(braid_store::Error::NotAStore(_)) => {
            if dir.exists() {
                std::fs::remove_dir_all(&dir).map_err(|source| DriveError::File {
                    doing: "empty",
                    path: dir.clone(),
                    source,
                })?;
            }
            Store::format(&dir, who, &options).map_err(failed)?;
            open(&dir, who, &options).map_err(failed)
        }
        Err(braid_store::Error::Foreign { cluster, .. }) if cluster != identity.cluster => {
            let dir = directory.path().to_owned();
            Err(DriveError::OtherCluster { dir, here: cluster, asked: identity.cluster })
        }
        opened => opened.map_err(failed),
    }
}

fn open(dir: &Path, who: braid_store::Identity, options: &Options) -> Result<Store, braid_store::Error> {
    if !dir.exists() {
        return Err(braid_store::Error::NotAStore(dir.to_owned()));
    }
    let (store, recovery) = Store::open(dir, Some(who), options.clone())?;
    info!(dir = %dir.display(), ?recovery, "store open");
    if recovery.damaged_count > 0 {
        warn!(dir = %dir.display(), damaged = recovery.damaged_count, "the store has damaged records: those units are lost here");
    }
    Ok(store)
}

/// Has the manager know the drive, if it does not yet. Tries for `config.settings.join_wait`.
pub(crate) async fn join(
    directory: &Directory,
    identity: &mut Identity,
    config: &Config,
    about: &About,
    capacity_bytes: u64,
) -> Result<(), DriveError> {
    if identity.joined {
        return Ok(());
    }
    let deadline = tokio::time::Instant::now() + config.settings.join_wait;
    let mut wait = RETRY_MIN;
    loop {
        match attempt(directory, identity, config, about, capacity_bytes).await {
            Ok(()) => return Ok(()),
            Err(DriveError::Join(error))
                if may_pass(&error) && tokio::time::Instant::now() + wait < deadline =>
            {
                warn!(manager = %identity.manager, %error, "not joined yet");
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY_MAX);
    }
}

/// Whether another try may find the manager ready.
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
    config: &Config,
    about: &About,
    capacity_bytes: u64,
) -> Result<(), DriveError> {
    let limits = &config.settings.limits;
    if known(identity, limits).await {
        identity.joined = true;
        return directory.save(identity);
    }
    let Some(token) = &config.token else { return Err(DriveError::NoToken(directory.path().to_owned())) };
    let failed = |error| match error {
        TransportError::WrongPeer { mismatch: Mismatch::Cluster { expected, found }, .. } => {
            DriveError::OtherCluster { dir: directory.path().to_owned(), here: expected, asked: found }
        }
        error => DriveError::Join(error),
    };
    let credentials = Credentials::joining(token, identity.drive);
    let mut session =
        ControlSession::connect(&identity.manager, credentials, limits).await.map_err(failed)?;
    let (binding, nonce) = (*session.binding(), *session.nonce());
    identity.master = Some(Token::master_key(&token.secret, &binding, &nonce, identity.drive));
    // Before the manager hears of it: once it has stored the drive, this key must not be lost.
    directory.save(identity)?;
    let join = JoinDrive {
        name: identity.name.clone(),
        address: about.address.clone(),
        host: about.host.clone(),
        rack: config.rack.clone(),
        directory: about.directory.clone(),
        pid: std::process::id(),
        capacity_bytes,
    };
    match session.call(&join.into()).await.map_err(failed)? {
        ControlReply::Joined(joined) => {
            identity.name = joined.name;
            identity.joined = true;
            directory.save(identity)?;
            info!(drive = %identity.name, id = %identity.drive, cluster = %identity.cluster, "joined");
            Ok(())
        }
        other => {
            let what = format!("{} in answer to a join", other.name());
            Err(failed(TransportError::Unexpected { address: identity.manager.clone(), what }))
        }
    }
}

/// Whether the manager knows the drive already, by a key from a join that a crash cut short.
async fn known(identity: &Identity, limits: &Limits) -> bool {
    let Some(master) = &identity.master else { return false };
    let credentials = Credentials::of_drive(identity.cluster, identity.drive, master);
    ControlSession::connect(&identity.manager, credentials, limits).await.is_ok()
}
