//! Arguments of the commands on files.

use std::ffi::OsString;

use clap::{ArgAction, Args};

use crate::output::size;

#[derive(Debug, Args)]
pub(crate) struct Cp {
    /// Copy everything as what it is: directories, links, named pipes, sockets and devices, with owner,
    /// permission bits and times, to the nanosecond; several names of one file stay that
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Copy directories and their contents; anything that is neither file nor directory is skipped with a
    /// message
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Keep the time of the last change and the permission bits of files
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Skip files whose copy has the same size and time of the last change; copies that are made get that
    /// time
    #[arg(short, long)]
    pub(crate) update: bool,
    /// Layout of the files that are made in a volume: raid0, raid1, raid4, raid5 or rs(k,m)
    /// [default: that of the directory or the volume, see `braid layout`]
    #[arg(long)]
    pub(crate) scheme: Option<String>,
    /// Columns, parity included
    /// [default: 2 for raid1, k+m for rs, or else as many as there are drives, up to 5]
    #[arg(long, value_name = "COLUMNS", requires = "scheme")]
    pub(crate) width: Option<u16>,
    /// Bytes of a unit, a power of two from 4K to 64M; with --scheme
    #[arg(long, default_value = "512K", value_parser = size::parse, value_name = "SIZE", requires = "scheme")]
    pub(crate) unit: u64,
    /// Have the drives keep room for a whole file before its first byte is copied; if they have not, it fails
    /// at once
    #[arg(long)]
    pub(crate) preallocate: bool,
    /// Show no progress and no summary
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The sources: local paths, braid://VOLUME/PATH, or - for standard input
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<OsString>,
    /// The target: a name, a directory, or - for standard output
    #[arg(required = true, value_name = "TARGET")]
    pub(crate) target: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct Cat {
    #[arg(required = true, value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Ls {
    /// Show permission bits, number of names, owner, group, size, time of the last change, and where symbolic
    /// links lead
    #[arg(short)]
    pub(crate) long: bool,
    /// With -l: show sizes with units, such as 1.50 MiB
    #[arg(short = 'h', long = "human-readable")]
    pub(crate) human: bool,
    /// Print help (-h means sizes, as with ls)
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// List all directories below too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Files and directories to list [default: the volumes]
    #[arg(value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// Remove directories and their contents
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Ignore names that do not exist
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Remove the snapshots of these directories, and of those below them, first
    #[arg(long, requires = "recursive")]
    pub(crate) snapshots: bool,
    #[arg(required = true, value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Mv {
    #[arg(value_name = "FROM")]
    pub(crate) from: OsString,
    /// The new name; an existing directory, or a name that ends in a slash, is the directory to move it into
    #[arg(value_name = "TO")]
    pub(crate) to: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct Mkdir {
    /// Make the directories above it too; no error if it exists
    #[arg(short, long)]
    pub(crate) parents: bool,
    #[arg(required = true, value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Chmod {
    /// All that is below directories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Octal, such as 640, or clauses, such as u+x,go-w
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    pub(crate) mode: String,
    #[arg(required = true, value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Chown {
    /// All that is below directories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Names that this machine knows, or numbers
    #[arg(value_name = "USER[:GROUP]")]
    pub(crate) owner: String,
    #[arg(required = true, value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Ln {
    /// Make a symbolic link: TARGET is a path as it is seen from the link's directory
    #[arg(short, long)]
    pub(crate) symbolic: bool,
    /// The link's target: braid://VOLUME/PATH, or with -s any path
    #[arg(value_name = "TARGET")]
    pub(crate) target: OsString,
    /// The new name
    #[arg(value_name = "braid://VOLUME/PATH")]
    pub(crate) name: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct Touch {
    /// Only the time of the last access
    #[arg(short)]
    pub(crate) access: bool,
    /// Only the time of the last change
    #[arg(short)]
    pub(crate) modification: bool,
    /// Make no files that are not there
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    /// The time, as @SECONDS since 1970, with a fraction if need be [default: now]
    #[arg(short, long, value_name = "DATE")]
    pub(crate) date: Option<String>,
    #[arg(required = true, value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Truncate {
    /// The new size
    #[arg(short, long, value_parser = size::parse, value_name = "SIZE")]
    pub(crate) size: u64,
    /// Have the drives keep room for all bytes of that size, so that writes there do not fail for lack of it
    #[arg(long)]
    pub(crate) allocate: bool,
    /// Make no files that are not there
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,
    #[arg(required = true, value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Stat {
    #[arg(required = true, value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}
