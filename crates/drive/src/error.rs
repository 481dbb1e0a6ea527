//! Errors that keep a drive from starting, or stop it.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use braid_layout::ClusterId;
use braid_transport::{BadManagers, Mismatch, TransportError};
use braid_wire::addresses::BadAddresses;

/// Error that keeps a drive from starting, or stops it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// Another process uses the directory.
    #[error("{0} is in use by another drive process")]
    InUse(PathBuf),
    /// The directory belongs to a drive of another cluster.
    #[error(
        "{dir} belongs to a drive of cluster {here}, not of cluster {asked}; use another directory, or the manager and \
         token of the first"
    )]
    OtherCluster {
        dir: PathBuf,
        here: ClusterId,
        /// The cluster of the token or of the manager.
        asked: ClusterId,
    },
    /// The directory holds files, but none of a drive.
    #[error("{dir} holds {holds:?} and no drive: choose an empty or new directory")]
    NotADrive {
        dir: PathBuf,
        /// One of the files in it.
        holds: OsString,
    },
    /// A first start needs a join token.
    #[error(
        "{0} holds no drive: to make one, give a drive's token (braid token new NAME --role drive prints one; the manager's \
         directory has its own in join.token)"
    )]
    NoToken(PathBuf),
    /// The drive joined before managers had certificates, or its file was changed: it does not know its
    /// cluster's certificate authority.
    #[error(
        "{0} does not say which certificate authority its cluster has: start the drive once with the manager's join.token \
         (--token-file); it keeps its identity and its contents"
    )]
    NoAuthority(PathBuf),
    /// A client's token cannot join a drive.
    #[error(
        "a drive joins with a drive's token, and this is for clients: braid token new NAME --role drive prints one"
    )]
    NotAJoinToken,
    /// The manager's address was never given.
    #[error("the manager's address is not known: give it with --manager")]
    NoManager,
    /// The managers' addresses are no list of managers.
    #[error("--manager: {0}")]
    Managers(BadManagers),
    /// The addresses are no list of rails.
    #[error("the drive's addresses: {0}")]
    Rails(BadAddresses),
    /// Not each address to listen on has one that others are told.
    #[error(
        "the drive listens on {listen} addresses, and {advertise} are told to others: give an address to advertise for \
         each, in the same order, or none"
    )]
    Advertised {
        /// Number of addresses to listen on.
        listen: usize,
        /// Number of addresses that others are told.
        advertise: usize,
    },
    /// The drive has joined under another name, and a drive's name never changes.
    #[error(
        "{dir} is drive {here}, and a drive keeps its name: start it without --name, or with --name {here}; a drive {asked} \
         needs a directory of its own"
    )]
    OtherName {
        dir: PathBuf,
        /// The drive's name.
        here: String,
        /// The name asked for.
        asked: String,
    },
    /// The requested capacity is less than a store needs.
    #[error("a capacity of {asked} bytes is too small: a drive needs at least {min} bytes")]
    Capacity {
        /// Bytes asked for.
        asked: u64,
        /// The minimum, in bytes.
        min: u64,
    },
    /// Sendfile was requested, and this system cannot use it.
    #[error("reads cannot be sent by sendfile: {0}")]
    NoSendfile(&'static str),
    /// The manager was not reached, or refused.
    #[error("cannot join the cluster: {0}{remedy}", remedy = remedy(.0))]
    Join(TransportError),
    /// A file of the drive's directory could not be read or written.
    #[error("cannot {doing} {path}: {source}")]
    File {
        /// The action attempted.
        doing: &'static str,
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// `drive.toml` is of another release.
    #[error(
        "{path} was written by {by}, not by this one ({}): {what}; nothing was changed: serve the drive with that release",
        env!("CARGO_PKG_VERSION")
    )]
    Release {
        path: PathBuf,
        /// The release that wrote the file, as far as the file says so.
        by: String,
        /// Field or format that this release does not know, or field that it misses.
        what: String,
    },
    /// `drive.toml` cannot be parsed.
    #[error(
        "{path} is damaged: {what}; put it back from a copy: without it nothing in its directory can be read, though that \
         may be whole, so keep it. If the drive is lost for good, serve a new one in another directory and have it take the \
         place of this one: braid drive replace OLD NEW"
    )]
    Identity {
        path: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// The drive has joined, but its store is gone. It must not come back empty under its identity.
    #[error(
        "{0} has lost its store; put it back if it was moved. If it is lost for good, serve a new drive in another directory and \
         have it take the place of this one: braid drive replace OLD NEW"
    )]
    StoreGone(PathBuf),
    /// The manager says that another process is this drive.
    #[error(
        "{dir} is not the directory of this drive any more: {why}; one of them is a copy: keep the other running, and serve \
         this one no more"
    )]
    Superseded {
        dir: PathBuf,
        /// The manager's explanation.
        why: String,
    },
    /// An error of the store.
    #[error("store in {dir}: {source}")]
    Store {
        dir: PathBuf,
        /// The store's error.
        source: braid_store::Error,
    },
    /// An error of listening or accepting.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A task of the drive panicked: a bug of ours.
    #[error("internal: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Advice on a failed join, to be appended to the error's text; empty where the error says enough itself.
fn remedy(error: &TransportError) -> &'static str {
    match error {
        TransportError::WrongPeer {
            mismatch: Mismatch::Cluster { .. } | Mismatch::Authority { .. }, ..
        } => {
            "; give the join token of the cluster whose manager this is (braid token new NAME --role drive makes one there), or \
              the address of the token's manager"
        }
        TransportError::Refused { .. } | TransportError::Connect { .. } | TransportError::Timeout { .. } => {
            "; see that the manager runs, and that its address is right"
        }
        _ => "",
    }
}
