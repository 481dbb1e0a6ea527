//! Commands that simulate.

use std::path::PathBuf;

use braid_sim::units::{Bytes, Rate};
use clap::{Args, Subcommand};

use super::Elsewhere;

#[derive(Debug, Subcommand)]
pub(crate) enum Sim {
    /// Run a spec: how long requests take, how busy each part is, and which one limits
    #[command(
        after_help = "A spec is a TOML file: a cluster, what its parts cost, and loads (docs/sim.md lists the keys). Plan sets are compiled as the client does it and timed on modelled processors, links and disks. The warm-up is found and cut; a run ends when the means are known well enough, or says at which rate it is saturated. A sweep runs once for each combination of its values, on all processors. The same spec gives the same output to the last byte. How many events a second were simulated is said on standard error.\n\nExamples:\n  \
        braid sim run docs/sim/cluster.toml\n  braid sim run docs/sim/cluster.toml --json | jq .[0].outcome.bottleneck\n  \
        braid sim run docs/sim/sweep.toml --csv > sweep.csv\n  braid-lab sim run docs/sim/sweep.toml --out plots\n  \
        braid-lab bench calibrate --out parts.toml && braid sim run cluster.toml --parts parts.toml"
    )]
    Run(SimRun),
    /// Run braid-lab, the program that has the experiments, if it is installed
    #[command(name = "swift-1991", disable_help_flag = true)]
    Swift1991(Elsewhere),
}

#[derive(Debug, Args)]
pub struct SimRun {
    /// The spec to run
    #[arg(value_name = "FILE.toml")]
    pub(crate) spec: PathBuf,
    /// A file with the spec's parts, as `braid-lab bench calibrate --out` writes it
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) parts: Option<PathBuf>,
    /// Print CSV instead of a table
    #[arg(long)]
    pub(crate) csv: bool,
    /// Write the results to this directory too, as CSV; `braid-lab sim run` also plots them, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Runs at a time [default: one for each processor]; the results do not depend on it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct Size {
    /// Streams at the same time
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) streams: u32,
    /// Bytes a second of each stream, such as 25MB/s
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Rate,
    /// Bytes of files, such as 200TB
    #[arg(long, value_name = "SIZE")]
    pub(crate) capacity: Bytes,
    /// Drives that may be lost at the same time
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u8).range(0..=4))]
    pub(crate) survive: u8,
    /// The disk of each drive: hdd-18tb or nvme-2026
    #[arg(long, value_name = "NAME", default_value = "hdd-18tb")]
    pub(crate) drive: String,
    /// Bytes that the disk of each drive holds [default: 18TB of hdd-18tb, 15.36TB of nvme-2026]
    #[arg(long, value_name = "SIZE")]
    pub(crate) drive_capacity: Option<Bytes>,
    /// The link of each host: 1GbE, 10GbE, 25GbE, 100GbE or 200GbE
    #[arg(long, value_name = "NAME", default_value = "25GbE")]
    pub(crate) link: String,
    /// The processor of each host
    #[arg(long, value_name = "NAME", default_value = "server-2026")]
    pub(crate) processor: String,
    /// The share of streams that read, 0 to 1; the others write
    #[arg(long, value_name = "SHARE", default_value = "1")]
    pub(crate) read: f64,
    /// Drives of a host, at most
    #[arg(long, value_name = "DRIVES", default_value = "12", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) drives_per_host: u32,
    /// Hosts that the streams are on [default: one for each stream]
    #[arg(long, value_name = "HOSTS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) clients: Option<u32>,
}
