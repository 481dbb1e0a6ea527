//! The arguments of `braid reserve`.

use std::ffi::OsString;

use braid_sim::units::{Rate, Span};
use clap::{Args, Subcommand};

use crate::output::duration;
use crate::output::size;

#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true)]
pub(crate) struct Reserve {
    #[command(subcommand)]
    pub(crate) command: Option<ReserveCommand>,
    #[command(flatten)]
    pub(crate) asked: Option<ReserveRate>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReserveCommand {
    /// List reservations: promised, delivered, lateness; and what is booked on each drive
    Ls,
    /// End reservations: what is open under them goes on as best effort
    Rm {
        /// Numbers, or names that were reserved
        #[arg(required = true, value_name = "RESERVATION")]
        reservations: Vec<String>,
    },
    /// Let a reservation end later, or sooner
    Extend {
        /// Its number, or the name that was reserved
        #[arg(value_name = "RESERVATION")]
        reservation: String,
        /// Time from now to its end, such as 90s, 30m, 2h or 1d
        #[arg(long = "for", value_parser = duration::parse, value_name = "TIME")]
        duration: u64,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ReserveRate {
    /// The file, directory or volume that the rate is for
    #[arg(value_name = "braid://VOLUME/PATH")]
    pub(crate) name: OsString,
    /// Bytes of file data a second to write, such as 200MB/s or 1.5Gbit/s
    #[arg(long, value_name = "RATE", required_unless_present = "read")]
    pub(crate) write: Option<Rate>,
    /// Bytes of file data a second to read
    #[arg(long, value_name = "RATE", conflicts_with = "write")]
    pub(crate) read: Option<Rate>,
    /// Time for which the rate is kept, from now, such as 90s, 30m, 2h or 1d
    #[arg(long = "for", value_parser = duration::parse, value_name = "TIME")]
    pub(crate) duration: u64,
    /// Number of streams that share the rate
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) streams: u32,
    /// Time in which the rate's bytes must have arrived
    #[arg(long, default_value = "100ms", value_name = "TIME")]
    pub(crate) period: Span,
    /// Number of drives that may be lost while the rate is kept
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) survive: u8,
    /// Rate of this client's network path; checked only if it is given
    #[arg(long, value_name = "RATE")]
    pub(crate) rail: Option<Rate>,
    /// Scheme of new files under it: raid0, raid1, raid4, raid5 or rs(k,m) [default: chosen for the rate]
    #[arg(long)]
    pub(crate) scheme: Option<String>,
    /// Columns of new files, parity included [default: chosen for the rate]
    #[arg(long, value_name = "COLUMNS", requires = "scheme")]
    pub(crate) width: Option<u16>,
    /// Bytes of a unit of new files [default: chosen for the rate]
    #[arg(long, value_parser = size::parse, value_name = "SIZE", requires = "scheme")]
    pub(crate) unit: Option<u64>,
    /// Time in which something must be opened under it; else it is given back [default: 10m]
    #[arg(long, value_parser = duration::parse, value_name = "TIME")]
    pub(crate) claim_within: Option<u64>,
    /// Say how the plan was chosen
    #[arg(long)]
    pub(crate) explain: bool,
    /// Book nothing: say what would be admitted
    #[arg(long)]
    pub(crate) dry_run: bool,
}
