//! Decides which drive a directory is at a start: the one that it was, or a new one.
//!
//! A drive that the manager is known to know keeps its identity: a token of another cluster is refused. So
//! does a drive that may have joined without hearing the answer, if its token is of the same cluster. An
//! identity made for a join to another cluster that never completed is replaced when a corrected token is
//! given, unless its store holds an object.

use braid_layout::DriveId;
use braid_wire::control::StateMark;
use braid_wire::token::{Standing, Token};
use tracing::info;

use crate::error::DriveError;
use crate::life::config::Config;
use crate::life::identity::{Directory, Identity};
use crate::life::join;

/// The directory's drive; on a first start a new one, of the token's cluster. The second value is the
/// manager's address: it is stored once a session there is authenticated. Blocks on the disk.
pub(crate) fn identity(directory: &Directory, config: &Config) -> Result<(Identity, String), DriveError> {
    if config.token.as_ref().is_some_and(|token| token.standing != Standing::Join) {
        return Err(DriveError::NotAJoinToken);
    }
    let dir = || directory.path().to_owned();
    let mut identity = match (directory.identity()?, &config.token) {
        (Some(before), Some(token)) if before.cluster != token.cluster => {
            let other = DriveError::OtherCluster { dir: dir(), here: before.cluster, asked: token.cluster };
            if before.joined || holds_objects(directory, &before, config)? {
                return Err(other);
            }
            let identity = fresh(config, token)?;
            info!(dir = %dir().display(), was = %before.cluster, now = %token.cluster,
                "the drive had never joined a cluster: it begins anew with the new token");
            // In this order: a crash in between leaves the old identity without a store, which may be
            // replaced again.
            directory.discard_store()?;
            identity
        }
        (Some(identity), _) => identity,
        (None, None) => return Err(DriveError::NoToken(dir())),
        (None, Some(token)) => fresh(config, token)?,
    };
    let manager = config.manager.clone().or_else(|| identity.manager.clone()).ok_or(DriveError::NoManager)?;
    match &config.name {
        Some(name) if !identity.joined => identity.name.clone_from(name),
        Some(name) if *name != identity.name => {
            return Err(DriveError::OtherName { dir: dir(), here: identity.name, asked: name.clone() });
        }
        _ => {}
    }
    directory.tighten();
    directory.save(&identity)?;
    Ok((identity, manager))
}

/// A new drive of the token's cluster.
fn fresh(config: &Config, token: &Token) -> Result<Identity, DriveError> {
    if config.manager.is_none() {
        return Err(DriveError::NoManager);
    }
    let mut random = [0; 16];
    getrandom::fill(&mut random).expect("the system gives random bytes");
    let drive = DriveId(u128::from_le_bytes(random));
    let told = config.name.clone().or_else(|| config.name_at_first.clone());
    let name = told.unwrap_or_else(|| format!("drive-{}", drive.short()));
    Ok(Identity {
        cluster: token.cluster,
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
