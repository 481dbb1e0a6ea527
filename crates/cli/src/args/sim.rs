//! Commands that simulate.

use std::path::PathBuf;

use braid_sim::units::{Bytes, Rate};
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Sim {
    /// Run a spec: how long requests take, how busy each part is, and which one limits
    #[command(
        after_help = "A spec is a TOML file: a cluster, what its parts cost, and loads (docs/sim.md lists the keys). Plan sets are compiled as the client does it and timed on modelled processors, links and disks. The warm-up is found and cut; a run ends when the means are known well enough, or says at which rate it is saturated. A sweep runs once for each combination of its values, on all processors. The same spec gives the same output to the last byte. How many events a second were simulated is said on standard error.\n\nExamples:\n  \
        braid sim run docs/sim/cluster.toml\n  braid sim run docs/sim/cluster.toml --json | jq .[0].outcome.bottleneck\n  \
        braid sim run docs/sim/sweep.toml --csv > sweep.csv\n  braid sim run docs/sim/sweep.toml --out plots\n  \
        braid bench calibrate --out parts.toml && braid sim run cluster.toml --parts parts.toml"
    )]
    Run(SimRun),
    /// Reproduce the simulation study of the Swift paper (1991): its figures 3 to 6
    #[command(
        name = "swift-1991",
        after_help = "Without --figure it also compares each point that the paper's text fixes with what comes out, shows what the authors left undone (parity, lost disks, preallocation, caching, reservations), and the same curves on today's parts; that takes some minutes. docs/results/swift-1991.md is what --out writes.\n\nExamples:\n  \
        braid sim swift-1991\n  braid sim swift-1991 --figure 3 --csv\n  braid sim swift-1991 --out docs/results"
    )]
    Swift1991(SimSwift),
}

#[derive(Debug, Args)]
pub(crate) struct SimRun {
    /// The spec to run
    #[arg(value_name = "FILE.toml")]
    pub(crate) spec: PathBuf,
    /// A file with the spec's parts, as `braid bench calibrate --out` writes it
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) parts: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: SimOutput,
}

#[derive(Debug, Args)]
pub(crate) struct SimSwift {
    /// Reproduce only this figure
    #[arg(long, value_parser = clap::value_parser!(u8).range(3..=6))]
    pub(crate) figure: Option<u8>,
    #[command(flatten)]
    pub(crate) output: SimOutput,
}

// Arguments of all simulations. (Not a doc comment: that would become the command's help.)
#[derive(Debug, Args)]
pub(crate) struct SimOutput {
    /// Print CSV instead of a table
    #[arg(long)]
    pub(crate) csv: bool,
    /// Write the results to this directory too: CSV, and plots as SVG and PNG
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
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
