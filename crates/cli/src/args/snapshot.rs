//! Arguments of the commands on snapshots.

use std::ffi::OsString;

use braid_wire::control::KeepCounts;
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
        after_help = "A volume lists the snapshots of all of its directories; without one, all are listed. What is kept for a snapshot are files that were removed or opened for writing since, and that no newer snapshot shows; their sizes are an upper bound of what goes with it.\n\nExamples:\n  \
        braid snapshot ls\n  braid snapshot ls braid://media\n  braid snapshot ls braid://media/projects --json"
    )]
    Ls {
        /// The volume or directory
        #[arg(value_name = "braid://VOLUME[/PATH]")]
        of: Option<OsString>,
    },
    /// Remove a snapshot, and free what is kept for it alone
    #[command(after_help = "Example:\n  braid snapshot rm braid://media before-upgrade")]
    Rm(SnapshotOf),
    /// Show what differs between a snapshot and a later one, or the present
    #[command(
        after_help = "Each line has a letter and a path: A for a name that was added, D for one that is gone, R for one that was renamed, M for a file that was opened for writing or replaced by another, P for permissions, owner, times or extended attributes. Only what has changed is looked at, whatever the size of the tree. A file with several names is told by one of them.\n\nExamples:\n  \
        braid snapshot diff braid://media@monday braid://media\n  \
        braid snapshot diff braid://media@monday/projects braid://media@tuesday/projects --json"
    )]
    Diff {
        /// A volume or directory in a snapshot
        #[arg(value_name = "braid://VOLUME@NAME[/PATH]")]
        from: OsString,
        /// The same in a newer snapshot, or as it is now
        #[arg(value_name = "braid://VOLUME[@NAME][/PATH]")]
        to: OsString,
    },
    /// Bring a file or tree back as a snapshot shows it
    #[command(
        after_help = "With a target the file or tree is copied there, as by braid cp -a. Without one it is restored where it was: only what differs is changed, and what was added since is removed. First a snapshot before-restore-TIME is made of what is there. Each file is replaced at once when its copy is whole; programs that have the former file open go on with that. If the command is broken off, run it again.\n\nExamples:\n  \
        braid snapshot restore braid://media@monday/projects\n  \
        braid snapshot restore braid://media@monday/projects/plan.txt\n  \
        braid snapshot restore braid://media@monday/projects braid://media/projects-of-monday"
    )]
    Restore(SnapshotRestore),
    /// Have snapshots made and removed by a schedule, or show the schedules
    #[command(
        after_help = "A schedule keeps the newest snapshot in each of the last so many hours (h), days (d) and weeks (w) that have one; weeks begin on Mondays, times are in UTC. It makes one each hour if it keeps any of hours, else each day or week, under names such as auto-2026-11-28T13, and removes those that it does not keep; never one that was made by hand.\n\nExamples:\n  \
        braid snapshot keep braid://media --keep 24h,7d,4w\n  \
        braid snapshot keep braid://media --keep none\n  \
        braid snapshot keep --json"
    )]
    Keep {
        /// The volume or directory; without --keep its schedules are shown
        #[arg(value_name = "braid://VOLUME[/PATH]", required = false)]
        of: Option<OsString>,
        /// Counts of hours, days and weeks that are kept, such as 24h,7d,4w; none ends the schedule, and
        /// what it made stays
        #[arg(long, value_name = "COUNTS", value_parser = crate::operate::snapshot::keep::parse, requires = "of")]
        keep: Option<KeepCounts>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotRestore {
    /// A file, directory or volume in a snapshot
    #[arg(value_name = "braid://VOLUME@NAME[/PATH]")]
    pub(crate) source: OsString,
    /// The place of a copy; without it, what is there is restored
    #[arg(value_name = "NEW")]
    pub(crate) target: Option<OsString>,
    /// Leave files alone that have the size and time of the snapshot's, such as those of a restore that was
    /// broken off
    #[arg(short, long)]
    pub(crate) update: bool,
    /// Show no progress and no summary
    #[arg(short, long)]
    pub(crate) quiet: bool,
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
