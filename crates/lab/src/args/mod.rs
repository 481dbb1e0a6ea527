//! The command line of `braid-lab`.

mod bench;
mod mine;
mod sim;

use std::ffi::OsString;
use std::path::PathBuf;

use braid_cli::Demo;
use clap::{Parser, Subcommand};

pub(crate) use bench::{Bench, BenchCalibrate, BenchCluster, BenchStore};
pub(crate) use mine::Mine;
pub(crate) use sim::{Sim, SimPromises, SimSwift};

/// Braid's experiments. Any other command is one of `braid`, whose code this program has.
#[derive(Debug, Parser)]
#[command(name = "braid-lab", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes are those of braid: braid --help")]
pub(crate) struct Cli {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure Braid's parts against what this machine does without Braid
    #[command(subcommand, after_help = "Example:\n  braid-lab bench store --help")]
    Bench(Bench),
    /// Simulate, and plot the results
    #[command(subcommand, after_help = "Example:\n  braid-lab sim swift-1991 --help")]
    Sim(Sim),
    /// Find frequent sets of sales transactions, by pairs of a client and a drive, and at the drives
    #[command(
        after_help = "As NASD's mining run and Active Disks (E11, E13; docs/bench.md): a file of generated transactions, striped over N drives (raid0, units of 512 KiB), is counted by N clients, each with four producers and a consumer. Every drive and every client is on a host of its own with a limited link. Then the same file is read from one NFS server, and then a method counts at drives whose links become slower.\n\nHosts need root and iproute2; without, and with --quick, all runs over loopback, and what needs links is left out. NFS needs the programs ganesha.nfsd and rpcbind. It needs three times the file's bytes in the directory, and ends its processes and removes its files and hosts, also on Ctrl-C.\n\nExamples:\n  \
        braid-lab mine\n  braid-lab mine --pairs 1,2,4,8,16 --bytes 320M --out docs/results\n  braid-lab mine --quick --json\n  \
        braid-lab mine --only 'E13'"
    )]
    Mine(Mine),
    /// Run `braid demo`, with the ratio of each rate to its bound
    #[command(
        after_help = "The bound is the rate at which as many processes move the same bytes through plain sockets and files, measured in the same run.\n\nExamples:\n  \
        braid-lab demo\n  braid-lab demo --dir /dev/shm movie.mkv\n  braid-lab demo --json"
    )]
    Demo(Demo),
    /// Send a file over a socket, without a drive; `demo` measures its bound with it
    #[command(hide = true)]
    DemoPeer { file: PathBuf },
    /// Write and read files as standard input says; `bench` measures with it
    #[command(hide = true)]
    BenchClient,
    /// Answer plain messages; `bench small` measures its bounds with it
    #[command(hide = true)]
    BenchFarEnd,
    /// Take and send plain bytes; `bench net` measures its bounds with it
    #[command(hide = true)]
    BenchAnswers {
        /// Address to listen on
        address: String,
    },
    /// Answer with blocks, on a port for each way; `bench transport` measures with it
    #[command(hide = true)]
    BenchStreams {
        /// Address to listen on, without a port
        address: String,
        /// The ways: policies of datagrams, tcp, tcp-of-system
        ways: Vec<String>,
        /// Milliseconds for which each datagram is held, in each direction
        #[arg(long, default_value_t = 0)]
        held_ms: u64,
    },
    /// A command of `braid`: what is measured is this very program, whichever others are installed.
    #[command(external_subcommand)]
    Braid(Vec<OsString>),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_no_experiment_is_a_command_of_braid() {
        let line = "braid-lab drive serve --dir d --json";
        let parsed = Cli::try_parse_from(line.split(' ')).expect("a command line");
        let Command::Braid(words) = parsed.command else { panic!("{parsed:?}") };
        assert_eq!(words, ["drive", "serve", "--dir", "d", "--json"]);
        assert!(Cli::try_parse_from(["braid-lab", "bench", "nothing"]).is_err());
    }
}
