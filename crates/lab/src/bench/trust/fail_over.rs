//! The manager that leads is killed, with its member of etcd, while files are made, written and read: how
//! long names wait, and whether files that are open notice anything.

use std::time::{Duration, Instant};

use braid_bench::stripes::Goal;
use braid_bench::{Spread, spread};
use braid_cli::connect::connect;
use braid_cli::output::exit::Failure;
use braid_client::{Client, Parents};
use tokio::time::sleep;

use super::{Run, managers};
use crate::bench::cluster::{Cluster, name};
use crate::bench::volumes::load::{Readers, Writers, Written};

pub(super) const GROUP: &str = "fail-over";
const NAMES: &str = "seconds from the leader's death to the next change";
const WRITES: &str = "milliseconds of the longest write of an open file meanwhile";
const READS: &str = "milliseconds of the longest read of an open file meanwhile";
const FAILED: &str = "requests of open files and of names that fail meanwhile";

/// The lease of a leader, and what may pass beyond it.
const LEASE_S: f64 = 5.0;
const BEYOND_S: f64 = 3.0;
const ROUNDS: u32 = 5;
const ROUNDS_QUICK: u32 = 1;
const DRIVES: u16 = 5;
/// Writers, and as many readers.
const AT_ONCE: u32 = 4;
/// Time before the kill, and after the next change.
const CALM: Duration = Duration::from_secs(2);

pub(super) async fn measure(run: &mut Run) -> Result<(), Failure> {
    if ![NAMES, WRITES, READS, FAILED].iter().any(|row| run.wants(row)) {
        return Ok(());
    }
    run.tell(format!("{GROUP}: start"));
    let mut cluster = managers::up(run, GROUP, DRIVES, ("raid5", 5)).await?;
    let rounds = run.size(ROUNDS, ROUNDS_QUICK);
    let mut gaps = Vec::new();
    let mut longest = (Vec::new(), Vec::new());
    let mut done = (0, 0, 0);
    let mut error = None;
    for round in 0..rounds {
        run.tell(format!("{GROUP}: death {} of {rounds}", round + 1));
        let load = Load::start(&cluster, round).await?;
        sleep(CALM).await;
        let began = Instant::now();
        let killed = managers::kill_leader(&mut cluster).await?;
        cluster.client.mkdir(&name(&format!("after-{round}"))?, Parents::MustExist).await?;
        gaps.push(began.elapsed().as_secs_f64());
        sleep(CALM).await;
        let (written, read) = load.end().await?;
        longest.0.push(written.longest.as_secs_f64() * 1000.0);
        longest.1.push(read.longest.as_secs_f64() * 1000.0);
        done = (done.0 + written.writes, done.1 + read.writes, done.2 + written.failed + read.failed);
        error = error.or(written.error).or(read.error);
        managers::start_again(&mut cluster, killed).await?;
    }
    let [gaps, writes, reads] = [gaps, longest.0, longest.1].map(|all| spread(&all));
    let found = |of: &Spread, what: &str| {
        format!("{rounds} deaths: {:.2} .. {:.2} {what}, in the middle {:.2}", of.min, of.max, of.median)
    };
    run.add(NAMES, found(&gaps, "s"), gaps.max, Goal::AtMost(LEASE_S + BEYOND_S));
    run.add(WRITES, found(&writes, "ms"), writes.max, None);
    run.add(READS, found(&reads, "ms"), reads.max, None);
    let error = error.map(|error| format!(": {error}")).unwrap_or_default();
    let found = format!("{} of {} writes and {} reads{error}", done.2, done.0, done.1);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    run.add(FAILED, found, done.2 as f64, Goal::AtMost(0.0));
    cluster.down().await
}

/// Writers and readers, each with a client and an open file of its own.
struct Load {
    writers: Writers,
    readers: Readers,
}

impl Load {
    async fn start(cluster: &Cluster, round: u32) -> Result<Load, Failure> {
        let mut clients = [Vec::new(), Vec::new()];
        for (clients, kind) in clients.iter_mut().zip(["written", "read"]) {
            for number in 0..AT_ONCE {
                let client: Client = connect(&cluster.running.dir, &cluster.running.cluster).await?;
                clients.push((client, name(&format!("{kind}-{round}-{number}"))?));
            }
        }
        let [writers, readers] = clients;
        Ok(Load { writers: Writers::start(writers).await?, readers: Readers::start(readers).await? })
    }

    /// Ends both, and returns the writes and the reads.
    async fn end(self) -> Result<(Written, Written), Failure> {
        let written = self.writers.end().await?;
        Ok((written, self.readers.end().await?))
    }
}
