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
    /// Simulate promised rates: streams carried and admitted against drives, on parts of 1991 and of today
    #[command(
        after_help = "More and more streams are simulated until one has a late period, beside ten times more best-effort load than fits and through the loss and rebuild of a drive; and those that admission lets in. It takes about ten minutes on two processors. docs/results/promises-sim.md is what --out writes.\n\nExamples:\n  \
        braid-lab sim promises --out docs/results\n  braid-lab sim promises --drives 10,30 --operations 20000"
    )]
    Promises(SimPromises),
}

#[derive(Debug, Args)]
pub(crate) struct SimPromises {
    /// Numbers of drives, each at least 6
    #[arg(long, value_name = "DRIVES", value_delimiter = ',', default_value = "10,30,100,300,1000", value_parser = clap::value_parser!(u32).range(6..=20_000))]
    pub(crate) drives: Vec<u32>,
    /// Operations of all disks in a run, about: more make runs longer, and late periods surer to be found
    #[arg(long, default_value = "100000", value_parser = clap::value_parser!(u32).range(1000..))]
    pub(crate) operations: u32,
    /// Write the pictures, as SVG and PNG, and the document to this directory too
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Runs at a time [default: one for each processor]; the results do not depend on it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
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
