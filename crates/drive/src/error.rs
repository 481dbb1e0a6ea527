//! Why a drive does not start, or stops.

use std::io;
use std::path::PathBuf;

use braid_layout::ClusterId;
use braid_transport::{Mismatch, TransportError};

/// Why a drive does not start, or stops.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// Another process has the directory.
    #[error("{0} is in use by another drive process")]
    InUse(PathBuf),
    /// The directory belongs to a drive of another cluster.
    #[error(
        "{dir} belongs to a drive of cluster {here}, not of cluster {asked}; use another directory, or the manager and \
         token of the first"
    )]
    OtherCluster {
        /// The directory.
        dir: PathBuf,
        /// Its cluster.
        here: ClusterId,
        /// The token's, or the manager's.
        asked: ClusterId,
    },
    /// A first start needs a join token.
    #[error(
        "{0} holds no drive: to make one, give a join token (the manager's directory has it in join.token)"
    )]
    NoToken(PathBuf),
    /// A client's token cannot join a drive.
    #[error("a drive joins with a join token; this is a client token")]
    NotAJoinToken,
    /// Nobody said where the manager is.
    #[error("the manager's address is not known: give it")]
    NoManager,
    /// The capacity asked for is less than a store needs: a mistake in the configuration.
    #[error("a capacity of {asked} bytes is too small: a drive needs at least {min} bytes")]
    Capacity {
        /// Bytes asked for.
        asked: u64,
        /// The least that is possible, in bytes.
        min: u64,
    },
    /// Reads were to leave by `sendfile`, and none could.
    #[error("reads cannot leave by sendfile: {0}")]
    NoSendfile(&'static str),
    /// The manager was not reached, or said no.
    #[error("cannot join the cluster: {0}{remedy}", remedy = remedy(.0))]
    Join(TransportError),
    /// A file of the drive's directory.
    #[error("cannot {doing} {path}: {source}")]
    File {
        /// The action attempted.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// `drive.toml` is not what a drive wrote.
    #[error("{path} is damaged: {what}; restore it, or empty the directory and join as a new drive")]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The drive has joined, but its store is gone. It must not come back empty under its identity.
    #[error(
        "{0} has lost its store; empty the directory and join as a new drive, then rebuild the old one's columns"
    )]
    StoreGone(PathBuf),
    /// Another process is this drive, by the manager's word.
    #[error(
        "{dir} is not the directory of this drive any more: {why}; one of them is a copy: keep the other running, and remove \
         or empty this one"
    )]
    Superseded {
        /// The directory.
        dir: PathBuf,
        /// The manager's words.
        why: String,
    },
    /// The store.
    #[error("store in {dir}: {source}")]
    Store {
        /// The directory.
        dir: PathBuf,
        /// What is wrong.
        source: braid_store::Error,
    },
    /// Listening or accepting.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A task of the drive ended in a panic: a mistake of ours.
    #[error("internal: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// What to do about a join that failed, where the error does not say so itself.
fn remedy(error: &TransportError) -> &'static str {
    match error {
        TransportError::WrongPeer { mismatch: Mismatch::Cluster { .. }, .. } => {
            "; give the join token of the cluster whose manager this is, or the address of the token's manager"
        }
        TransportError::Refused { .. } | TransportError::Connect { .. } | TransportError::Timeout { .. } => {
            "; see that the manager runs, and that its address is right"
        }
        _ => "",
    }
}
