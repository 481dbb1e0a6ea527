//! `braid key`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// List the keys of volumes and drives, and the clients
    #[command(after_help = "Example:\n  braid key ls --json")]
    Ls,
    /// Turn keys: of volumes, or of drives with all below
    #[command(
        after_help = "A volume's working keys sign what its clients may do. Turned keys are told to all drives; what was signed with the keys before goes on for two minutes, so nothing fails. With --now it ends at once, and clients ask for more.\n\nA drive's key is the one that all others of the drive follow from. It is turned at the drive's next heartbeat. Back up the manager afterwards (braid manager backup): a backup from before does not know the new key.\n\nExamples:\n  \
        braid key rotate braid://media\n  braid key rotate --all\n  braid key rotate --drive drive-3 --now"
    )]
    Rotate(KeyRotate),
    /// End what a file's users, a client, or a drive were allowed
    #[command(
        after_help = "A file's users lose their leases, and open it again if they may. A client that is named is shut out: its leases and locks end, and it gets nothing more; its number is in braid key ls. Other clients go on. A drive that was stolen is nobody any more: its key ends at once, and the keys of all volumes are turned, so that nothing that it has been given counts. Then give its columns to another drive (braid drive replace), or, if it came back, let it join anew (braid key rejoin).\n\nExamples:\n  \
        braid key revoke braid://media/a.mkv\n  braid key revoke --client 11529215046068469760\n  braid key revoke --drive drive-3"
    )]
    Revoke(KeyRevoke),
    /// Let a drive join anew, once
    #[command(
        after_help = "For a drive whose directory, or the manager's state, was put back from before the drive's key was turned: the manager refuses its key, and says so. Start the drive with a join token after this.\n\nExample:\n  braid key rejoin drive-3 && braid drive serve DIR --token-file join.token"
    )]
    Rejoin {
        /// The drive's name or identity
        drive: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct KeyRotate {
    /// Volumes whose working keys are turned
    #[arg(value_name = "braid://VOLUME", required_unless_present_any = ["drives", "all"], conflicts_with_all = ["drives", "all"])]
    pub(crate) volumes: Vec<OsString>,
    /// Turn the key of this drive, and with it the keys of its partitions; may be repeated
    #[arg(long = "drive", value_name = "DRIVE", conflicts_with = "all")]
    pub(crate) drives: Vec<String>,
    /// Turn the keys of all volumes and all drives
    #[arg(long)]
    pub(crate) all: bool,
    /// End what was signed with the keys before at once
    #[arg(long)]
    pub(crate) now: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KeyRevoke {
    /// Files whose capabilities end
    #[arg(value_name = "braid://VOLUME/FILE", required_unless_present_any = ["client", "drive"], conflicts_with_all = ["client", "drive"])]
    pub(crate) files: Vec<OsString>,
    /// Shut this client out, by its number
    #[arg(long, value_name = "NUMBER", conflicts_with = "drive")]
    pub(crate) client: Option<u64>,
    /// End the key of this drive, which was stolen
    #[arg(long, value_name = "DRIVE")]
    pub(crate) drive: Option<String>,
}
