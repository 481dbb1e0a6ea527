//! The command that mines sales transactions.

use braid_cli::output::size;
use clap::Args;

use super::BenchCluster;

#[derive(Debug, Args)]
pub(crate) struct Mine {
    /// Numbers of client/drive pairs [default: 1,2,4,8; with --quick 1,2]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=32))]
    pub(crate) pairs: Vec<u16>,
    /// Bytes of the file [default: 320M; with --quick 8M]. Shares are even if each client gets as many chunks
    /// of 2 MiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) bytes: Option<u64>,
    /// Rate of each link, in Mbit/s
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) link: u64,
    /// Seed of the transactions
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// A set is frequent if so many of 1,000 lines hold it
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(10..=1_000))]
    pub(crate) support: u64,
    #[command(flatten)]
    pub(crate) bench: BenchCluster,
}
