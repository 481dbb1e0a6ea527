//! Arguments of the commands on files.

use std::ffi::OsString;

use clap::{ArgAction, Args};

#[derive(Debug, Args)]
pub(crate) struct Cp {
    /// Copy directories and what is in them; what is no file or directory is skipped, and told
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Keep the time of the last change, to the millisecond, and the permission bits of files
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Leave a file whose copy is there with the same size and time of the last change; the copies made have
    /// that time
    #[arg(short, long)]
    pub(crate) update: bool,
    /// No progress, no summary
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// What to copy: local paths, braid://VOLUME/PATH, or - for standard input
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<OsString>,
    /// Where to: a name, a directory, or - for standard output
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
    /// With size and time of the last change
    #[arg(short)]
    pub(crate) long: bool,
    /// With -l: sizes for people, such as 1.50 MiB
    #[arg(short = 'h', long = "human-readable")]
    pub(crate) human: bool,
    /// Print help (-h means sizes, as with ls)
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// With all directories below
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Files and directories [default: the volumes themselves]
    #[arg(value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// Remove directories and what is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// What is not there is no error
    #[arg(short, long)]
    pub(crate) force: bool,
    #[arg(required = true, value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Mv {
    #[arg(value_name = "FROM")]
    pub(crate) from: OsString,
    /// The new name; with a slash at its end, or an existing directory: into it
    #[arg(value_name = "TO")]
    pub(crate) to: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct Mkdir {
    /// Make the directories above it too; no error if it is there
    #[arg(short, long)]
    pub(crate) parents: bool,
    #[arg(required = true, value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Stat {
    #[arg(required = true, value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}
