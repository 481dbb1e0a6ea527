//! Arguments of the commands that run methods on files.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::output::size;

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The method; without one, all are listed
    #[arg(value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// The file whose records are asked about
    #[arg(value_name = "braid://VOLUME/PATH")]
    pub(crate) name: Option<OsString>,
    /// The method's arguments
    #[arg(value_name = "NAME=VALUE")]
    pub(crate) arguments: Vec<String>,
    /// Where it runs
    #[arg(long, value_name = "WHERE", default_value = "cheapest")]
    pub(crate) at: At,
    /// The longest record
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = size::parse)]
    pub(crate) record_max: u64,
    /// The file for an answer in Arrow; without one it goes to standard output, as CSV if that is a terminal
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Print which units each drive would answer for, and what either way costs; nothing is run
    #[arg(long)]
    pub(crate) explain: bool,
}

/// The place where a method runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum At {
    /// Where it takes less time
    Cheapest,
    /// At the drives, as far as they can answer
    Drive,
    /// Here: the file is read
    Client,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModuleCommand {
    /// Store a module in a volume, and print its hash
    Put {
        /// The module: a file of WebAssembly
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[arg(value_name = "braid://VOLUME")]
        volume: OsString,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Sum {
    /// Print SHA-256: the drives take turns, in the file's order
    #[arg(long)]
    pub(crate) sha256: bool,
    /// Where it runs
    #[arg(long, value_name = "WHERE", default_value = "cheapest")]
    pub(crate) at: At,
    /// The files whose checksums are printed
    #[arg(required = true, value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
}
