//! `braid-lab bench cache`: NASD's figure 7 (E9). Thirteen drives and up to ten clients, each of which reads
//! a file of its own in order, 2 MB at a time, over four drives with units of 512 KiB, from the drives'
//! caches.

use std::time::Instant;

use braid_bench::against::{Goal, Of, Question, Taken, Unit};
use braid_bench::stripes::{Job, Work};
use braid_cli::output::exit::Failure;
use braid_cli::output::report::Report;
use braid_client::Name;

use super::client::{ClientProcess, all_at_once};
use super::cluster::Cluster;
use super::plain::Plain;
use super::ratios::{self, Bench, Run};
use super::run::Which;
use super::small::meter::Meter;
use super::stripes::{fill, job};
use crate::args::BenchCluster;
use crate::demo::peer::Order;

const BENCH: Bench =
    Bench { name: "cache", title: "Reads from the drives' caches", needed: (6 << 30, 1 << 30) };
const DRIVES: u16 = 13;
const SHAPE: (&str, u8) = ("raid0", 4);
const REQUEST_BYTES: u64 = 2 << 20;
const REQUESTS: u32 = 2;
const CLIENTS: [usize; 5] = [1, 2, 4, 7, 10];
const CLIENTS_QUICK: [usize; 1] = [2];
/// Bytes of each client's file.
const BYTES: (u64, u64) = (128 << 20, 4 << 20);

/// Runs the command.
pub(crate) async fn run(asked: BenchCluster, report: Report) -> Result<(), Failure> {
    ratios::run(BENCH, asked, report, async |run| rows(run).await).await
}

async fn rows(run: &mut Run) -> Result<(), Failure> {
    let counts = run.size(&CLIENTS[..], &CLIENTS_QUICK[..]);
    let row = |clients: usize| {
        let name = format!("{clients} clients, 2 MB reads in order");
        Question::rates("E9", name, ["braid", "13 plain senders, by sendfile"])
            .paper("linear until the clients' processors saturate")
    };
    let cpu = Question {
        unit: Unit::CpuSecondsPerGib,
        ..Question::rates("E9", "processor time of the drives", ["13 drives", "plain senders, by sendfile"])
    };
    let cpu = cpu.goal(Of::Ratio, Goal::AtMost(1.1));
    let all: Vec<Question> = counts.iter().map(|&clients| row(clients)).collect();
    if !run.wants_any(all.iter().chain([&cpu])) {
        return Ok(());
    }
    run.tell("E9: start");
    let bytes = run.size(BYTES.0, BYTES.1);
    let most = counts.iter().copied().max().unwrap_or(1);
    let mut cluster = Cluster::up(run.path(), "e9", DRIVES, SHAPE).await?;
    let mut clients = Vec::new();
    let mut files = Vec::new();
    for _ in 0..most {
        let mut client = cluster.client_process().await?;
        files.push(fill(&mut cluster, &mut client, bytes).await?);
        clients.push(client);
    }
    let mut plain = Plain::start(run.path(), usize::from(DRIVES))?;
    let meter = Meter::of(&cluster)?;
    for (question, &count) in all.iter().zip(counts) {
        run.pairs(question, async |which| match which {
            Which::First => together(&meter, &mut clients[..count], &files, bytes, Counted::All).await,
            Which::Second => plain.run(Order::GiveSendfile, bytes * u64::try_from(count).unwrap_or(1)),
        })
        .await?;
    }
    if run.common.quick {
        run.leave_out(&cpu, "a quick run moves too few bytes for the clock that counts processor time");
        drop((clients, plain));
        return cluster.down().await;
    }
    run.pairs(&cpu, async |which| {
        let taken = match which {
            Which::First => together(&meter, &mut clients, &files, bytes, Counted::Drives).await?,
            Which::Second => plain.senders(bytes * u64::try_from(most).unwrap_or(1))?,
        };
        Ok(Taken::of(taken.cpu.unwrap_or(0.0)))
    })
    .await?;
    drop((clients, plain));
    cluster.down().await
}

/// The processes whose time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    All,
    Drives,
}

/// The rate of all clients together, each with a file of its own.
async fn together(
    meter: &Meter,
    clients: &mut [ClientProcess],
    files: &[Name],
    bytes: u64,
    counted: Counted,
) -> Result<Taken, Failure> {
    let work = Work::Read { bytes, request_bytes: REQUEST_BYTES, depth: REQUESTS };
    let jobs: Vec<Job> = files.iter().take(clients.len()).map(|file| job(file, work.clone())).collect();
    let pids = clients.iter().map(ClientProcess::pid).collect::<Result<Vec<u32>, Failure>>()?;
    let before = meter.read(None)?;
    let own = meter.sum(&pids)?;
    let began = Instant::now();
    let done = all_at_once(clients, &jobs).await?;
    // Preparing opens the files, and takes no time to speak of.
    let longest = done.iter().map(|done| done.seconds).fold(0.0, f64::max);
    let seconds = longest.min(began.elapsed().as_secs_f64());
    let spent = meter.between(before, meter.read(None)?);
    let drives = spent.drives.user + spent.drives.kernel;
    let all = drives + spent.manager.user + spent.manager.kernel + meter.sum(&pids)? - own;
    let moved = bytes * u64::try_from(clients.len()).unwrap_or(1);
    Ok(Taken::rate(moved, seconds, if counted == Counted::All { all } else { drives }))
}
