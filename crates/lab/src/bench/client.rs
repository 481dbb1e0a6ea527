//! A client process of a bench, from both sides.
//!
//! The process is told the cluster first, then jobs. It prepares a job and says `ready`; told `go`, it runs
//! the job and reports the results. So that several begin at once, each is prepared before the first is told
//! to go. A job of `promises` runs until it is told to stop.

use std::time::Duration;

use braid_bench::{mining, promises, small, stripes};
use braid_cli::connect::config;
use braid_cli::machine::cluster_dir::ClusterFile;
use braid_cli::output::exit::{Exit, Failure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::helper::{Helper, order, say};

const READY: &str = "ready";
const GO: &str = "go";
const STOP: &str = "stop";

/// A client's process. Dropping it kills it.
pub(super) struct ClientProcess {
    process: Helper,
}

/// Order to a client process: the job of one of the benches.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    Stripes(stripes::Job),
    Small(small::Job),
    Promises(promises::Job),
    Mining(mining::Job),
}

/// Type of the jobs of one bench.
pub(super) trait ClientJob: Clone {
    /// Results of one job.
    type Done: DeserializeOwned;

    fn order(self) -> Order;
}

impl ClientJob for stripes::Job {
    type Done = stripes::Done;

    fn order(self) -> Order {
        Order::Stripes(self)
    }
}

impl ClientJob for small::Job {
    type Done = small::Done;

    fn order(self) -> Order {
        Order::Small(self)
    }
}

impl ClientJob for promises::Job {
    type Done = promises::Done;

    fn order(self) -> Order {
        Order::Promises(self)
    }
}

impl ClientJob for mining::Job {
    type Done = mining::Done;

    fn order(self) -> Order {
        Order::Mining(self)
    }
}

impl ClientProcess {
    /// Starts a client process for this cluster.
    pub(super) async fn start(cluster: &ClusterFile) -> Result<ClientProcess, Failure> {
        ClientProcess::told(Helper::start("bench-client", "a client")?, cluster).await
    }

    /// Starts a client process for this cluster on a host, by its network namespace's name.
    pub(super) async fn start_on(host: &str, cluster: &ClusterFile) -> Result<ClientProcess, Failure> {
        ClientProcess::told(Helper::start_on(host, "bench-client", "a client")?, cluster).await
    }

    async fn told(mut process: Helper, cluster: &ClusterFile) -> Result<ClientProcess, Failure> {
        process.tell(cluster).await?;
        Ok(ClientProcess { process })
    }

    /// Process id of the client. Fails if the process has ended.
    pub(super) fn pid(&self) -> Result<u32, Failure> {
        self.process.pid()
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        let said: String = self.process.answer().await?;
        if said == READY { Ok(()) } else { Err(Failure::new(Exit::Failed, "prepare a client's job", said)) }
    }
}

/// Has each client prepare its job.
pub(super) async fn prepare<J: ClientJob>(clients: &mut [ClientProcess], jobs: &[J]) -> Result<(), Failure> {
    for (client, job) in clients.iter_mut().zip(jobs) {
        client.process.tell(&job.clone().order()).await?;
    }
    for client in clients.iter_mut().take(jobs.len()) {
        client.ready().await?;
    }
    Ok(())
}

/// Has each client run the job that it has prepared.
pub(super) async fn go<D: DeserializeOwned>(clients: &mut [ClientProcess]) -> Result<Vec<D>, Failure> {
    for client in clients.iter_mut() {
        client.process.tell(&GO).await?;
    }
    let mut done = Vec::with_capacity(clients.len());
    for client in clients {
        done.push(client.process.answer().await?);
    }
    Ok(done)
}

/// Has each client do its job, all beginning at once when all are ready. Returns the results of each.
pub(super) async fn all_at_once<J: ClientJob>(
    clients: &mut [ClientProcess],
    jobs: &[J],
) -> Result<Vec<J::Done>, Failure> {
    prepare(clients, jobs).await?;
    let count = clients.len().min(jobs.len());
    go(&mut clients[..count]).await
}

/// Has one client do a job.
pub(super) async fn alone<J: ClientJob>(client: &mut ClientProcess, job: &J) -> Result<J::Done, Failure> {
    let done = all_at_once(std::slice::from_mut(client), std::slice::from_ref(job)).await?;
    one(done)
}

/// Has each client run its job while `during` runs, all beginning at once when all are ready.
pub(super) async fn during<T>(
    clients: &mut [ClientProcess],
    jobs: &[promises::Job],
    during: impl AsyncFnOnce() -> Result<T, Failure>,
) -> Result<(Vec<promises::Done>, T), Failure> {
    prepare(clients, jobs).await?;
    let count = clients.len().min(jobs.len());
    let clients = &mut clients[..count];
    for client in clients.iter_mut() {
        client.process.tell(&GO).await?;
    }
    let found = during().await?;
    for client in clients.iter_mut() {
        client.process.tell(&STOP).await?;
    }
    let mut done = Vec::with_capacity(count);
    for client in clients {
        done.push(client.process.answer().await?);
    }
    Ok((done, found))
}

/// Results of a single job. Fails if there are none.
pub(super) fn one<D>(done: Vec<D>) -> Result<D, Failure> {
    done.into_iter().next().ok_or_else(|| Failure::new(Exit::Failed, "run a job", "no answer"))
}

/// Rate of all clients together in bytes a second: their bytes over the time of the slowest.
pub(super) fn rate(done: &[stripes::Done]) -> f64 {
    let bytes: u64 = done.iter().map(|one| one.bytes).sum();
    let seconds = done.iter().map(|one| one.seconds).fold(0.0, f64::max);
    braid_cli::output::rate::Rate { bytes, time: Duration::from_secs_f64(seconds.max(1e-9)) }
        .bytes_per_second()
}

/// A job that is ready to run.
enum Prepared {
    Stripes(stripes::Prepared),
    Small(small::Prepared),
    Promises(promises::Prepared),
    Mining(mining::Prepared),
}

/// Runs `braid-lab bench-client`.
pub(crate) async fn serve() -> Result<(), Failure> {
    let Some(cluster) = order::<ClusterFile>().await? else { return Ok(()) };
    let mut of_stripes = stripes::Worker::new(config(&cluster)?);
    let mut of_small = small::Worker::new(config(&cluster)?);
    let mut of_promises = promises::Worker::new(config(&cluster)?);
    let mut of_mining = mining::Worker::new(config(&cluster)?);
    let failed = |error: braid_bench::Error| Failure::new(Exit::Failed, "bench", error.to_string());
    while let Some(job) = order::<Order>().await? {
        let prepared = match job {
            Order::Stripes(job) => of_stripes.prepare(&job).await.map(Prepared::Stripes),
            Order::Small(job) => of_small.prepare(&job).await.map(Prepared::Small),
            Order::Promises(job) => of_promises.prepare(&job).await.map(Prepared::Promises),
            Order::Mining(job) => of_mining.prepare(&job).await.map(Prepared::Mining),
        };
        let prepared = prepared.map_err(failed)?;
        say(&READY)?;
        if order::<String>().await?.is_none() {
            return Ok(());
        }
        match prepared {
            Prepared::Stripes(prepared) => {
                let done = prepared.run().await.map_err(failed)?;
                prepared.close().await.map_err(failed)?;
                say(&done)?;
            }
            Prepared::Small(prepared) => {
                let done = prepared.run().await.map_err(failed)?;
                prepared.close().await.map_err(failed)?;
                say(&done)?;
            }
            Prepared::Mining(prepared) => say(&prepared.run().await.map_err(failed)?)?,
            Prepared::Promises(prepared) => {
                let (stop, stopped) = watch::channel(false);
                let (done, ()) = tokio::try_join!(
                    async { prepared.run(stopped).await.map_err(failed) },
                    // Its last order, or the end of all orders.
                    async { order::<String>().await.map(|_| stop.send_replace(true)).map(|_| ()) },
                )?;
                // A write that failed is counted, and its file cannot be closed well.
                let _closed = prepared.close().await;
                say(&done)?;
            }
        }
    }
    Ok(())
}
