//! A client process of `braid bench stripes`, from both sides.
//!
//! The process reads a line of JSON at a time on its standard input: first the cluster, then jobs. It
//! prepares a job and says `ready`; at the next line it runs it, and says what it came to. So that several
//! begin at once, each is prepared before the first is told to go. It ends when its standard input does.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use braid_bench::stripes::{Done, Job, Worker};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::cluster_dir::ClusterFile;
use crate::connect::config;
use crate::exit::{Doing, Exit, Failure};

/// How long a job may take to be prepared, or to run.
const ANSWER_BOUND: Duration = Duration::from_secs(300);
const READY: &str = "ready";
const GO: &str = "go";

/// A client's process. Dropping it kills it.
pub(super) struct ClientProcess {
    _child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl ClientProcess {
    /// Starts one for this cluster.
    pub(super) async fn start(cluster: &ClusterFile) -> Result<ClientProcess, Failure> {
        let what = || "start a client".to_owned();
        let mut command = Command::new(std::env::current_exe().doing(what)?);
        // Not in this process group: Ctrl-C goes to this process, which kills it.
        command.arg("bench-client").kill_on_drop(true).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().doing(what)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (orders, out) = pipes.ok_or_else(|| std::io::Error::other("it has no pipes")).doing(what)?;
        let mut process = ClientProcess { _child: child, orders, answers: BufReader::new(out).lines() };
        process.tell(cluster).await?;
        Ok(process)
    }

    /// Has it prepare a job.
    async fn order(&mut self, job: &Job) -> Result<(), Failure> {
        self.tell(job).await
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        let said: String = self.answer().await?;
        if said == READY { Ok(()) } else { Err(Failure::new(Exit::Failed, "prepare a client's job", said)) }
    }

    async fn tell<T: Serialize>(&mut self, what: &T) -> Result<(), Failure> {
        let doing = || "tell a client what to do".to_owned();
        let line = serde_json::to_string(what).map_err(std::io::Error::from).doing(doing)?;
        self.orders.write_all(format!("{line}\n").as_bytes()).await.doing(doing)?;
        self.orders.flush().await.doing(doing)
    }

    async fn answer<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let what = "wait for a client of the bench";
        let line = match timeout(ANSWER_BOUND, self.answers.next_line()).await {
            Err(_) => {
                let why = format!("no answer in {} s", ANSWER_BOUND.as_secs());
                return Err(Failure::new(Exit::Timeout, what, why));
            }
            Ok(line) => line.doing(|| what.into())?,
        };
        let line =
            line.ok_or_else(|| Failure::new(Exit::Failed, what, "it has ended, and said why above"))?;
        serde_json::from_str(&line).map_err(std::io::Error::from).doing(|| what.into())
    }
}

/// Has each client do its job, all beginning at once when all are ready. Returns what each came to.
pub(super) async fn all_at_once(clients: &mut [ClientProcess], jobs: &[Job]) -> Result<Vec<Done>, Failure> {
    for (client, job) in clients.iter_mut().zip(jobs) {
        client.order(job).await?;
    }
    for client in clients.iter_mut().take(jobs.len()) {
        client.ready().await?;
    }
    for client in clients.iter_mut().take(jobs.len()) {
        client.tell(&GO).await?;
    }
    let mut done = Vec::with_capacity(jobs.len());
    for client in clients.iter_mut().take(jobs.len()) {
        done.push(client.answer().await?);
    }
    Ok(done)
}

/// Has one client do a job.
pub(super) async fn alone(client: &mut ClientProcess, job: &Job) -> Result<Done, Failure> {
    let done = all_at_once(std::slice::from_mut(client), std::slice::from_ref(job)).await?;
    done.into_iter().next().ok_or_else(|| Failure::new(Exit::Failed, "run a job", "no answer"))
}

/// The rate of all together: their bytes over the time of the last.
pub(super) fn rate(done: &[Done]) -> f64 {
    let bytes: u64 = done.iter().map(|one| one.bytes).sum();
    let seconds = done.iter().map(|one| one.seconds).fold(0.0, f64::max);
    crate::rate::Rate { bytes, time: Duration::from_secs_f64(seconds.max(1e-9)) }.bytes_per_second()
}

/// Runs `braid bench-client`.
pub(crate) async fn serve() -> Result<(), Failure> {
    let Some(cluster) = order::<ClusterFile>().await? else { return Ok(()) };
    let mut worker = Worker::new(config(&cluster)?);
    let failed = |error: braid_bench::Error| Failure::new(Exit::Failed, "bench", error.to_string());
    while let Some(job) = order::<Job>().await? {
        let prepared = worker.prepare(&job).await.map_err(failed)?;
        say(&READY)?;
        if order::<String>().await?.is_none() {
            return Ok(());
        }
        let done = prepared.run().await.map_err(failed)?;
        prepared.close().await.map_err(failed)?;
        say(&done)?;
    }
    Ok(())
}

/// The next line of standard input; `None` at its end.
async fn order<T: DeserializeOwned>() -> Result<Option<T>, Failure> {
    let what = || "read what to do".to_owned();
    let read = || {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    };
    let line = tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other).doing(what)?;
    let line = line.doing(what)?;
    if line.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(std::io::Error::from).doing(what)
}

fn say<T: Serialize>(what: &T) -> Result<(), Failure> {
    let doing = || "answer".to_owned();
    let line = serde_json::to_string(what).map_err(std::io::Error::from).doing(doing)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).doing(doing)
}
