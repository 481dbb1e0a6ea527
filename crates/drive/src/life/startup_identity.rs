//! Decides which drive a directory is at a start: the one that it was, or a new one.
//!
//! A drive that the manager is known to know keeps its identity: a token of another cluster is refused. So
//! does a drive that may have joined without hearing the answer, if its token is of the same cluster. An
//! identity made for a join to another cluster that never completed is replaced when a corrected token is
//! given, unless its store holds an object. A token tells its cluster by the hash of a certificate authority
//! (CA) alone: the cluster's identity is what the manager says, if its certificate is of that CA. If it is
//! the drive's own cluster, that has another CA now, and the drive keeps the new hash.

use braid_layout::{ClusterId, DriveId};
use braid_transport::Managers;
use braid_wire::control::StateMark;
use braid_wire::token::{Pin, Token, TokenRole};
use tracing::info;

use crate::error::DriveError;
use crate::life::config::Config;
use crate::life::identity::{Directory, Identity};
use crate::life::join;

/// The drive that a directory is, as far as it is known.
pub(crate) enum Known {
    /// The drive, and the managers: they are stored once a session with one is authenticated.
    Is(Box<Identity>, Managers),
    /// It depends on the identity of the token's cluster, which is to be asked of these managers.
    Asks(Managers),
}

/// The directory's drive; on a first start a new one, of the token's cluster. `cluster`: that cluster, once
/// it was asked. Blocks on the disk.
pub(crate) fn identity(
    directory: &Directory,
    config: &Config,
    cluster: Option<ClusterId>,
) -> Result<Known, DriveError> {
    if config.token.as_ref().is_some_and(|token| token.role != TokenRole::Drive) {
        return Err(DriveError::NotAJoinToken);
    }
    let dir = || directory.path().to_owned();
    let before = directory.identity()?;
    let remembered = before.as_ref().and_then(|before| before.managers());
    let managers = match (config.managers()?, remembered) {
        (Some(told), Some(remembered)) => Some(told.with_remembered(&remembered)),
        (told, remembered) => told.or(remembered),
    };
    let is_of = |token: &Token| before.as_ref().is_some_and(|before| before.ca == Some(token.pin));
    let mut identity = match (before.clone(), config.token.as_ref().filter(|token| !is_of(token))) {
        (None, None) => return Err(DriveError::NoToken(dir())),
        (Some(identity), None) => identity,
        (before, Some(token)) => {
            let managers = managers.clone().ok_or(DriveError::NoManager)?;
            let Some(cluster) = cluster else { return Ok(Known::Asks(managers)) };
            match before {
                // Its cluster has another CA since, or had none when it joined.
                Some(before) if before.cluster == cluster => Identity { ca: Some(token.pin), ..before },
                before => begin_anew(directory, config, before, cluster, token.pin)?,
            }
        }
    };
    let managers = managers.ok_or(DriveError::NoManager)?;
    if identity.ca.is_none() {
        return Err(DriveError::NoAuthority(dir()));
    }
    match &config.name {
        Some(name) if !identity.joined => identity.name.clone_from(name),
        Some(name) if *name != identity.name => {
            return Err(DriveError::OtherName { dir: dir(), here: identity.name, asked: name.clone() });
        }
        _ => {}
    }
    directory.tighten();
    directory.save(&identity)?;
    Ok(Known::Is(Box::new(identity), managers))
}

/// A new drive of the cluster in a directory that may hold one of another cluster, which never joined.
fn begin_anew(
    directory: &Directory,
    config: &Config,
    before: Option<Identity>,
    cluster: ClusterId,
    pin: Pin,
) -> Result<Identity, DriveError> {
    let Some(before) = before else { return fresh(config, cluster, pin) };
    let dir = directory.path().to_owned();
    if before.joined || holds_objects(directory, &before, config)? {
        return Err(DriveError::OtherCluster { dir, here: before.cluster, asked: cluster });
    }
    let identity = fresh(config, cluster, pin)?;
    info!(dir = %dir.display(), was = %before.cluster, now = %cluster,
        "the drive had never joined a cluster: it begins anew with the new token");
    // In this order: a crash in between leaves the old identity without a store, which may be replaced again.
    directory.discard_store()?;
    Ok(identity)
}

/// A new drive of a cluster.
fn fresh(config: &Config, cluster: ClusterId, pin: Pin) -> Result<Identity, DriveError> {
    if config.manager.is_none() {
        return Err(DriveError::NoManager);
    }
    let mut random = [0; 16];
    getrandom::fill(&mut random).expect("the system gives random bytes");
    let drive = DriveId(u128::from_le_bytes(random));
    let told = config.name.clone().or_else(|| config.name_at_first.clone());
    let name = told.unwrap_or_else(|| format!("drive-{}", drive.short()));
    Ok(Identity {
        cluster,
        ca: Some(pin),
        drive,
        name,
        manager: None,
        master: None,
        joined: false,
        epoch: 0,
        was_out: false,
        instance: 0,
        seen: StateMark { term: 0, mark: 0, changes: 0 },
    })
}

/// Returns true if the drive's store holds objects. If that cannot be determined, it is an error.
fn holds_objects(directory: &Directory, identity: &Identity, config: &Config) -> Result<bool, DriveError> {
    let Some(store) = join::open(directory, identity, config, None)? else { return Ok(false) };
    let failed = |source| DriveError::Store { dir: directory.store(), source };
    let objects = store.stat().map_err(failed)?.objects;
    store.close().map_err(failed)?;
    Ok(objects > 0)
}
