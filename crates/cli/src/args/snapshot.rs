//! `braid snapshot`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Snapshot {
    /// Make a snapshot of a volume, or of a directory with all below it
    #[command(
        after_help = "It is there at once, and takes no space until something changes. It shows all that was closed or synced before, and names, sizes and attributes as of one moment. Files that are open for writing wait for that moment, for some milliseconds; one that cannot be held in time is \"late\": its bytes are of a moment after.\n\nWhat is in it is read as braid://VOLUME@NAME/PATH, and cannot be changed.\n\nExamples:\n  \
        braid snapshot make braid://media before-upgrade\n  \
        braid snapshot make braid://media/projects monday --sync\n  \
        braid cp -a braid://media@before-upgrade/projects/a braid://media/projects/"
    )]
    Make(SnapshotMake),
    /// List snapshots, and what is kept for each
    #[command(
        after_help = "A volume lists the snapshots of all of its directories. What is kept for a snapshot are files that were removed or opened for writing since, and that no newer snapshot shows; their sizes are an upper bound of what goes with it.\n\nExamples:\n  \
        braid snapshot ls braid://media\n  braid snapshot ls braid://media/projects --json"
    )]
    Ls {
        /// The volume or directory
        #[arg(value_name = "braid://VOLUME[/PATH]")]
        of: OsString,
    },
    /// Remove a snapshot, and free what is kept for it alone
    #[command(after_help = "Example:\n  braid snapshot rm braid://media before-upgrade")]
    Rm(SnapshotOf),
}

/// A snapshot, by its directory and name.
#[derive(Debug, Args)]
pub(crate) struct SnapshotOf {
    /// The volume or directory
    #[arg(value_name = "braid://VOLUME[/PATH]")]
    pub(crate) of: OsString,
    /// The snapshot's name: letters, digits, '.', '_' and '-'
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotMake {
    #[command(flatten)]
    pub(crate) of: SnapshotOf,
    /// Have mounts write out first what programs have written in open files
    #[arg(long)]
    pub(crate) sync: bool,
}
