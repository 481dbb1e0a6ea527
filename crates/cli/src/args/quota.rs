//! `braid quota`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use crate::output::size;

#[derive(Debug, Subcommand)]
pub(crate) enum Quota {
    /// Set a quota, or change one
    #[command(
        after_help = "What is there counts, also if it is more than the quota: then nothing can grow. Files count with their sizes; a file that is open for writing also with what its writer was given, which is little when little is left.\n\nExamples:\n  \
        braid quota set braid://media --bytes 10T\n  \
        braid quota set braid://media/projects/film --bytes 200G --files 100000\n  \
        braid quota set braid://media --user alice --bytes 50G"
    )]
    Set(QuotaSet),
    /// List quotas, and what is used of them
    #[command(after_help = "Examples:\n  braid quota ls\n  braid quota ls braid://media --json")]
    Ls {
        /// The volume [default: all volumes]
        #[arg(value_name = "braid://VOLUME")]
        volume: Option<OsString>,
    },
    /// End a quota; files stay as they are
    #[command(
        after_help = "Examples:\n  braid quota rm braid://media/projects/film\n  braid quota rm braid://media --user alice"
    )]
    Rm {
        #[command(flatten)]
        of: QuotaOf,
    },
}

/// The holder of a quota.
#[derive(Debug, Args)]
pub(crate) struct QuotaOf {
    /// A volume, or a directory with all below it
    #[arg(value_name = "braid://VOLUME[/DIR]")]
    pub(crate) place: OsString,
    /// A user's files in the volume instead, by name or number
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct QuotaSet {
    #[command(flatten)]
    pub(crate) of: QuotaOf,
    /// The most bytes that the files may have; 0 for any
    #[arg(long, default_value = "0", value_parser = size::parse, value_name = "SIZE", required_unless_present = "files")]
    pub(crate) bytes: u64,
    /// The most files that there may be; 0 for any
    #[arg(long, default_value = "0", value_name = "COUNT")]
    pub(crate) files: u64,
}
