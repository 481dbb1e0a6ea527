//! The arguments of `braid bench`.

use std::ffi::OsString;

use braid_sim::units::Rate;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Measure what all drives do together, so that no more is promised than that
    #[command(
        after_help = "Drives may share a switch, a host's bus or its processors, of which their own calibrations know nothing. This writes and reads files of a volume with several handles at once, and has the manager keep the two rates. From then on a drive is booked for no more than its share of them, nor for more than its own parts can do. `braid drive ls --cost` shows them. The files have no name, and are gone at the end, also after Ctrl-C.

It is refused while rates are reserved or a drive is away. A result is not kept that is above what the parts of the drives can do, more than ten times apart from the last one, or limited by this client's processors: the last good one stays, with its date.

If one client is slower than the drives, run it on several at the same time with --dry-run, and hand in the sums.

Examples:
  braid bench qualify
  braid bench qualify --seconds 30 --files 32 --volume media
  braid bench qualify --dry-run --json
  braid bench qualify --read 9.5GB/s --write 6.2GB/s
  braid bench qualify --forget"
    )]
    Qualify(Qualify),
    // The words for another program, which gets the whole command line, with what stands before.
    #[command(external_subcommand)]
    Elsewhere(#[expect(dead_code, reason = "the other program gets the whole command line")] Vec<OsString>),
}

#[derive(Debug, Args)]
pub(crate) struct Qualify {
    /// Seconds of writing, and of reading
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600), value_name = "N")]
    pub(crate) seconds: u64,
    /// Files that are written and read at the same time [default: one for each drive, 4 to 64]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N")]
    pub(crate) files: Option<u16>,
    /// The volume of the files, in whose scheme they are
    #[arg(long, default_value = "main", value_name = "VOLUME")]
    pub(crate) volume: String,
    /// Measure also beside reservations and without drives that are away, and keep whatever comes out
    #[arg(long)]
    pub(crate) force: bool,
    /// Measure, and keep nothing
    #[arg(long, conflicts_with = "force")]
    pub(crate) dry_run: bool,
    /// Measure nothing: keep this rate of reads, bytes that drives send each second, as the sum of several
    /// clients' runs
    #[arg(long, value_name = "RATE", requires = "write", conflicts_with_all = ["dry_run", "forget"])]
    pub(crate) read: Option<Rate>,
    /// The same for writes: bytes that drives take in, parity included
    #[arg(long, value_name = "RATE", requires = "read", conflicts_with_all = ["dry_run", "forget"])]
    pub(crate) write: Option<Rate>,
    /// Forget the last result: drives are booked by their own parts alone
    #[arg(long, conflicts_with_all = ["force", "dry_run"])]
    pub(crate) forget: bool,
}
