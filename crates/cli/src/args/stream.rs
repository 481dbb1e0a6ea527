//! The arguments of `braid stream`.

use std::ffi::OsString;

use braid_sim::units::{Rate, Span};
use clap::{Args, Subcommand};

use crate::output::duration;
use crate::output::size;

#[derive(Debug, Subcommand)]
pub(crate) enum Stream {
    /// Play files as paced streams: each takes its bytes in every period, and what comes later is counted
    #[command(
        after_help = "Streams that play the same file at about the same place read it once. Playing ends at the end of a file; with --for, files are played again from their beginning until that time is over. The report has the start-up latency beside the one that was admitted. The exit code is 16 if anything was late.

Examples:
  braid stream play braid://main/film --rate 8Mbit/s --to - | player -
  braid stream play braid://main/films --rate 8Mbit/s --streams 200 --random-start --for 1m
  braid stream play braid://main/films --rate 8Mbit/s --streams 200 --for 1m --best-effort"
    )]
    Play(Play),
    /// Record sources as paced streams: each period's bytes are stored in time, and what is later is counted
    #[command(
        after_help = "A source that brings less than its rate is not late at the store: it is counted apart. Recording ends with the sources, after --for, or with Ctrl-C; what was taken until then is stored. The exit code is 16 if anything was late.

Examples:
  braid stream record - braid://main/cam1 --rate 50MB/s < /dev/camera
  braid stream record /run/cam1 /run/cam2 braid://main/cams/ --rate 8Mbit/s --for 2h
  braid stream record --test-data --streams 100 braid://main/cams/ --rate 1MB/s --for 1m"
    )]
    Record(Record),
}

#[derive(Debug, Args)]
pub(crate) struct Pace {
    /// Bytes a second of each stream, such as 200MB/s or 8Mbit/s
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Rate,
    /// Time for which the streams run, such as 90s, 30m or 2h [default: until files or sources end]
    #[arg(long = "for", value_parser = duration::parse, value_name = "TIME")]
    pub(crate) duration: Option<u64>,
    /// Time in which the rate's bytes must have arrived
    #[arg(long, default_value = "100ms", value_name = "TIME")]
    pub(crate) period: Span,
    /// Number of drives that may be lost while the rate is kept
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) survive: u8,
    /// Reserve nothing, for comparison: late is what is later than a period
    #[arg(long, conflicts_with = "survive")]
    pub(crate) best_effort: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Play {
    /// Files, or directories whose files are played
    #[arg(required = true, value_name = "braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
    #[command(flatten)]
    pub(crate) pace: Pace,
    /// Number of streams, dealt out to the files in turn [default: one for each file]
    #[arg(long, value_name = "N")]
    pub(crate) streams: Option<u32>,
    /// Begin each stream at a random place of its file
    #[arg(long)]
    pub(crate) random_start: bool,
    /// File that the bytes of the only stream go to, or - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) to: Option<OsString>,
    /// Most memory for pieces that streams of the same file share
    #[arg(long, value_parser = size::parse, default_value = "256M", value_name = "SIZE")]
    pub(crate) shared: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Record {
    /// Files, pipes or - for standard input; and last the new file, or the directory for new files with a
    /// slash at the end: braid://VOLUME/DIRECTORY/
    #[arg(required = true, num_args = 1.., value_name = "SOURCE... braid://VOLUME/PATH")]
    pub(crate) names: Vec<OsString>,
    #[command(flatten)]
    pub(crate) pace: Pace,
    /// Record made-up bytes instead of sources
    #[arg(long)]
    pub(crate) test_data: bool,
    /// Number of streams of made-up bytes
    #[arg(long, default_value_t = 1, requires = "test_data", value_name = "N")]
    pub(crate) streams: u32,
}
