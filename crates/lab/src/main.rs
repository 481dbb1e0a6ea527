//! The `braid-lab` binary: experiments. They run clusters as `braid` does, with its library
//! ([`braid_cli::machine`]); whatever word is no experiment is handed to it, so that the processes of a
//! measured cluster are this program again and of the same build.
// The experiments' futures contain those of the commands, which contain the client's.
#![recursion_limit = "256"]

mod args;
mod bench;
mod demo;
mod promises;
mod sim;
mod swift;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use braid_cli::output::exit::Failure;
use braid_cli::output::interrupt::GRACE_DEMO;
use braid_cli::output::report::Report;
use clap::Parser;

use args::{Bench, Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Command::Braid(words) = cli.command {
        let json = cli.json.then(|| OsString::from("--json"));
        return braid_cli::main(std::iter::once("braid".into()).chain(json).chain(words));
    }
    let report = Report { json: cli.json };
    braid_cli::conclude(async {
        braid_cli::log_to(None, "off")?;
        braid_cli::interruptible(GRACE_DEMO, run(cli.command, report)).await
    })
}

async fn run(command: Command, report: Report) -> Result<(), Failure> {
    match command {
        Command::Bench(Bench::Store(store)) => bench::store(store, report).await,
        Command::Bench(Bench::Stripes(stripes)) => bench::stripes::run(stripes, report).await,
        Command::Bench(Bench::Small(small)) => bench::small::run(small, report).await,
        Command::Bench(Bench::Calibrate(asked)) => bench::predict::calibrate::run(asked, report).await,
        Command::Bench(Bench::Predict(asked)) => bench::predict::run(asked, report).await,
        Command::Bench(Bench::Promises(asked)) => bench::promises::run(asked, report).await,
        Command::Bench(Bench::Net(asked)) => bench::net::run(asked, report).await,
        Command::Bench(Bench::Volumes(asked)) => bench::volumes::run(asked, report).await,
        Command::Bench(Bench::Bound(asked)) => bench::bound::run(asked, report).await,
        Command::Bench(Bench::Local(asked)) => bench::local::run(asked, report).await,
        Command::Bench(Bench::Privacy(asked)) => bench::privacy::run(asked, report).await,
        Command::Bench(Bench::Trust(asked)) => bench::trust::run(asked, report).await,
        Command::Bench(Bench::Array(asked)) => bench::array::run(asked, report).await,
        Command::Bench(Bench::Cache(asked)) => bench::cache::run(asked, report).await,
        Command::Bench(Bench::Cost(asked)) => bench::cost::run(asked, report).await,
        Command::Bench(Bench::Peers(asked)) => bench::peers::run(asked, report).await,
        Command::Bench(Bench::Methods(asked)) => bench::methods::run(asked, report).await,
        Command::Bench(Bench::Transport(asked)) => bench::transport::run(asked, report).await,
        Command::Mine(asked) => bench::mine::run(asked, report).await,
        Command::Sim(sim) => sim::run(sim, report).await,
        Command::Demo(demo) => demo::run(demo, report).await,
        Command::DemoPeer { file } => demo::peer::peer(&file),
        Command::BenchClient => bench::client::serve().await,
        Command::BenchAnswers { address } => bench::net::answers(&address).await,
        Command::BenchStreams { address, ways, held_ms } => {
            bench::transport::streams(&address, &ways, Duration::from_millis(held_ms)).await
        }
        Command::BenchFarEnd => bench::small::far_end().await,
        Command::Braid(_) => unreachable!("it was handed on"),
    }
}
