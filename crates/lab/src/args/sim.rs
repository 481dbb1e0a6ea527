//! Commands that simulate.

use std::path::PathBuf;

use braid_cli::SimRun;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Sim {
    /// Run a spec as `braid sim run` does; --out also plots, as SVG and PNG
    #[command(after_help = "Example:\n  braid-lab sim run docs/sim/sweep.toml --out plots")]
    Run(SimRun),
    /// Reproduce the simulation study of the Swift paper (1991): its figures 3 to 6
    #[command(
        name = "swift-1991",
        after_help = "Without --figure it also compares each point that the paper's text fixes with what comes out, shows what the authors left undone (parity, lost disks, preallocation, caching, reservations), and the same curves on today's parts; that takes some minutes. docs/results/swift-1991.md is what --out writes.\n\nExamples:\n  \
        braid-lab sim swift-1991\n  braid-lab sim swift-1991 --figure 3 --csv\n  braid-lab sim swift-1991 --out docs/results"
    )]
    Swift1991(SimSwift),
}

#[derive(Debug, Args)]
pub(crate) struct SimSwift {
    /// Reproduce only this figure
    #[arg(long, value_parser = clap::value_parser!(u8).range(3..=6))]
    pub(crate) figure: Option<u8>,
    /// Print CSV instead of tables
    #[arg(long)]
    pub(crate) csv: bool,
    /// Write the figures to this directory too, as SVG and PNG, and the whole study's document
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Runs at a time [default: one for each processor]; the results do not depend on it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
}
