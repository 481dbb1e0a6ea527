//! The manager's directory: its lock, and its faults.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use braid_meta::records::kv::KvError;
use braid_transport::{TransportError, process};
use braid_wire::Refusal;

use crate::etcd::EtcdError;

/// File with all of a manager's state, in its directory.
pub(crate) const STATE_FILE: &str = "manager.redb";

/// File that is locked while a manager runs.
pub(crate) const LOCK_FILE: &str = "LOCK";

/// Reason for which a manager cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// Another manager runs on the directory.
    #[error("{0} is in use by another manager: stop it, or choose another directory")]
    InUse(PathBuf),
    /// A file of the directory could not be made, read or written.
    #[error("{path}: {source}")]
    File {
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The directory holds other things and no manager's state.
    #[error("{dir} holds {holds:?} and no manager's state: choose an empty or new directory")]
    NotAManager {
        dir: PathBuf,
        /// Name of one of the files in the directory.
        holds: OsString,
    },
    /// The state cannot be opened.
    #[error(
        "{0}; if it is damaged, move it away and restore a backup: braid manager restore BACKUP --dir DIR"
    )]
    State(#[from] KvError),
    /// There are tokens and no state: it was lost. A manager that started afresh would know none of the
    /// cluster's files.
    #[error(
        "{dir} has the tokens of a cluster, and its state ({STATE_FILE}) is missing or empty: put it back, or restore a backup: \
         braid manager restore BACKUP --dir {dir}; to found a new cluster, use an empty directory"
    )]
    StateGone { dir: PathBuf },
    /// The directory has a copy of a state in etcd.
    #[error(
        "{dir} is of a manager whose state is in etcd: start it with --state etcd://HOST:PORT,...; to found a new cluster, use an \
         empty directory"
    )]
    OnEtcd { dir: PathBuf },
    /// The state in etcd cannot be used.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// There is nothing to make a backup of.
    #[error("{0} has no manager's state: name the directory of a manager that is stopped")]
    NoState(PathBuf),
    /// A backup is restored only where there is no state.
    #[error("{0} is there already: move it away first, if the backup is to take its place")]
    StateThere(PathBuf),
    /// A file is no backup, or damaged.
    #[error("the backup {path}: {what}")]
    Backup {
        path: PathBuf,
        /// Description of the fault.
        what: String,
    },
    /// The state could not be loaded at the start.
    #[error("cannot start: {0}")]
    Start(Refusal),
    /// The manager cannot listen on its address.
    #[error(transparent)]
    Listen(#[from] TransportError),
}

pub(crate) fn lock(dir: &Path) -> Result<File, ManagerError> {
    let path = dir.join(LOCK_FILE);
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = opened.map_err(|source| ManagerError::File { path: path.clone(), source })?;
    match process::lock(&file) {
        Ok(true) => Ok(file),
        Ok(false) => Err(ManagerError::InUse(dir.to_owned())),
        Err(source) => Err(ManagerError::File { path, source }),
    }
}
